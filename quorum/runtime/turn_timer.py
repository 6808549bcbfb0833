"""The timer that starts a node's turn when one of the node's deadlines has passed.

A node has a dozen deadlines, and most turns move some of them. So the timer does not ask the node after every turn, but at most
once in SLACK_MS, when it fires. Example:
    1. a turn ends at 1,000 ms: the timer is set to 1,005 ms;
    2. three more turns follow until 1,004 ms: the timer stays as it is;
    3. at 1,005 ms the timer asks the node for its next deadline, 1,250 ms, and is set to 1,250 ms.
A deadline of 1,002 ms, set by a turn in step 2, would be served at 1,005 ms.
"""

import asyncio
from collections.abc import Callable

from quorum.runtime.protocol.surroundings import Clock

SLACK_MS = 5
"""Maximum number of milliseconds that a turn for a deadline may be late while other events keep coming."""


class TurnTimer:
    """One timer of the event loop."""

    def __init__(self, clock: Clock, next_deadline_ms: Callable[[], int | None], on_due: Callable[[], None]) -> None:
        """`next_deadline_ms` gives the node's next deadline, if any; `on_due` is called when this deadline has passed."""
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._next_deadline_ms = next_deadline_ms
        self._on_due = on_due
        self._handle: asyncio.TimerHandle | None = None
        self._due_ms = 0

    def late_ms(self, now_ms: int) -> int:
        """How long ago the timer was due. Much later than that, the process was paused."""
        return max(0, now_ms - self._due_ms) if self._due_ms else 0

    def turn_ended(self, now_ms: int) -> None:
        """Sees to it that the timer fires within SLACK_MS. `now_ms` is the time of the turn."""
        if self._handle is None or self._due_ms > now_ms + SLACK_MS:
            self._set(now_ms + SLACK_MS)
        elif self._due_ms < now_ms:
            self._due_ms = now_ms  # overdue, and about to fire: the delay counts once

    def cancel(self) -> None:
        """The timer never fires again."""
        if self._handle is not None:
            self._handle.cancel()

    def _set(self, due_ms: int) -> None:
        self.cancel()
        self._due_ms = due_ms
        self._handle = self._loop.call_later(max(0, due_ms - self._clock.now_ms()) / 1_000, self._fire)

    def _fire(self) -> None:
        self._handle = None
        deadline_ms = self._next_deadline_ms()
        if deadline_ms is None:
            return
        if deadline_ms <= self._clock.now_ms():
            self._on_due()
        else:
            self._set(deadline_ms)
