"""The thread on which a leader flushes its log.

A leader's event loop must send new batches to the followers while the disk works, so that all voters flush at the same time.
(A follower flushes inside of its turn: it would only wait for the disk, and a hop to a thread and back costs half an fsync.)

*A flush wakes the event loop only if the flush may commit something, or failed.* Usually the leader's flush ends before any
follower fetches, and the turn of the fetch takes the end of the flush along (`inbox`). Example with leader 1, followers 2 and 3:
    1. a turn appends record 40, answers the fetches of 2 and 3, and starts a flush; `wake_up_for_next` is False;
    2. the flush ends; the thread leaves the end in `ended`, and the event loop sleeps on;
    3. follower 2 fetches from 41: the turn of the fetch takes the end of the flush, commits 40 and answers the client.
If follower 2 is faster than the disk, the turn of step 3 cannot commit, sets `wake_up_for_next`, and the flush wakes the loop.
"""

import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

from quorum.runtime.protocol.jobs import FlushJob
from quorum.runtime.protocol.world import JobDone


class Flusher:
    """One thread, with one flush at a time."""

    def __init__(self, run: Callable[[FlushJob], JobDone], wake_up: Callable[[], object]) -> None:
        """`run` and `wake_up` are called on the thread; `wake_up` must make the loop look at `ended`."""
        self._run = run
        self._wake_up = wake_up
        self._jobs: SimpleQueue[FlushJob | None] = SimpleQueue()
        self.ended: deque[JobDone] = deque()
        """The flushes that have ended. The loop removes them."""
        self.wake_up_for_next = False
        """True if the next end of a flush must wake the event loop. After setting this to True, the loop looks at `ended` once
        more: the thread may have looked at the flag just before.
        """
        self._thread = threading.Thread(target=self._work, name="flush", daemon=True)
        self._thread.start()

    def start(self, job: FlushJob) -> None:
        self._jobs.put(job)

    def stop(self) -> None:
        """Waits for the flush in progress, and ends the thread."""
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            done = self._run(job)
            self.ended.append(done)
            if self.wake_up_for_next or done.error is not None:
                self._wake_up()
