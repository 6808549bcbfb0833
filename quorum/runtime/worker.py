"""Long jobs beside the turns: reading the log again on a thread, writing or loading a snapshot in slices.

*A snapshot is loaded and written on the event loop*, in slices of a few milliseconds between the turns; the thread has only the
work that waits for the disk. A thread that computes shares one interpreter with the event loop, and the loop asks for the
interpreter after each system call. Example: a machine with two cores starts three controllers, each with a snapshot of 540,000
partitions, and other processes compute too.
  1. On controller 1 a thread loads. The kernel takes the core from this thread, which holds the interpreter meanwhile.
  2. The event loop of controller 1 waits some 20 ms until the thread gets a core again and gives way. A turn with thirty system
     calls takes 600 ms, a follower's fetch is not answered within the fetch timeout, and the leader falls. This repeats until
     the images are loaded.
  3. With slices, no thread competes for the interpreter. A message waits for the end of one slice.
Four starts of this kind had 1, 1, 2 and 2 elections with slices, and 1, 2, 3 and 4 with a thread. In the same way a thread that
wrote a snapshot of 1,000,000 partitions delayed every write of a client by up to 370 ms.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from quorum.runtime.protocol.jobs import Job, LoadSnapshotJob, WriteSnapshotJob
from quorum.runtime.protocol.surroundings import Clock
from quorum.runtime.protocol.world import JobDone
from service_kit.process.switches import frequent_switches

T = TypeVar("T")

SLICE_US: Final = 5_000
"""How long one slice of a load takes. Half of a long turn, because a message may wait for a slice and a turn."""
WRITE_SLICE_US: Final = 1_000
WRITE_REST_S: Final = 0.004
"""How long one slice of writing takes, and how long the event loop has after it. Nobody waits for a snapshot to be written, and
all controllers write theirs at the same time: so writing takes a fifth of a core."""
REST_S: Final = 0.001
"""How long the event loop of a leader has for its other work after a slice. A message takes several steps through the loop, and
on a busy machine each step that had to wait for a slice would take several times as long as the slice."""
FOLLOWER_REST_S: Final = 0.002
"""How long the event loop of another node has. Only the leader keeps clients waiting while it loads."""
NEW_EPOCH_REST_S: Final = 0.03
"""How long the event loop of a follower has while the leader may be loading, too: three controllers on one machine are often
started together, and clients wait for the leader. At a start of three controllers with 2,000,000 partitions each, the followers
had spent 3.8 s of CPU on their images at the first write with the shorter rest, and 0.6 s with this rest."""


class Worker:
    """One thread, and the slices on the event loop."""

    def __init__(
        self,
        clock: Clock,
        count: Callable[[Job, float], None],
        done: Callable[[JobDone], None],
        rest_s: Callable[[], float],
    ) -> None:
        """Calls `count` with each finished job and its seconds, on any thread, and `done` on the event loop. `rest_s` returns how
        long the event loop has after a slice of a load.
        """
        self._clock = clock
        self._rest_s = rest_s
        self._count = count
        self._done = done
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="snapshot")
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, job: Job) -> None:
        """Starts a long job. The event loop goes on meanwhile."""
        task = self._loop.create_task(self._work(job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def run(self, job: Job) -> JobDone:
        """Runs `job` on the calling thread."""
        began_us = self._clock.elapsed_us()
        try:
            job.run()
        except Exception as e:  # the node judges every failure of a job: it arrives as an event
            return JobDone(job, e)
        return self._finished(job, began_us)

    async def stop(self) -> None:
        """Ends all loads, and waits for the job on the thread."""
        for task in self._tasks:
            task.cancel()
        await asyncio.to_thread(self._thread.shutdown, wait=True)

    async def _work(self, job: Job) -> None:
        if isinstance(job, LoadSnapshotJob):
            self._done(await self._in_slices(job, self._load(job)))
        elif isinstance(job, WriteSnapshotJob):
            self._done(await self._in_slices(job, self._write(job)))
        else:
            self._done(await self._on_thread(lambda: self.run(job)))

    async def _in_slices(self, job: Job, work: Awaitable[None]) -> JobDone:
        began_us = self._clock.elapsed_us()
        try:
            await work
        except Exception as e:
            return JobDone(job, e)
        return self._finished(job, began_us)

    async def _load(self, job: LoadSnapshotJob) -> None:
        await self._on_thread(job.begin)
        slices = job.slices()
        while self._take_slice(slices, SLICE_US):
            await asyncio.sleep(self._rest_s())
        await self._on_thread(job.finish)

    async def _write(self, job: WriteSnapshotJob) -> None:
        writer = job.writer()
        with job.store.writing(job.meta.end):
            try:
                await self._on_thread(writer.begin)
                slices = writer.slices()
                while self._take_slice(slices, WRITE_SLICE_US):
                    await (self._on_thread(writer.write) if writer.has_chunk else asyncio.sleep(WRITE_REST_S))
                job.written = await self._on_thread(writer.finish)
            except Exception:
                writer.close()
                raise
            # Not closed when the node stops: the thread may still flush this file, and must not rename what is not flushed.

    def _take_slice(self, slices: Iterator[None], slice_us: int) -> bool:
        """Works for `slice_us`. Returns False at the end."""
        end_us = self._clock.elapsed_us() + slice_us
        return any(self._clock.elapsed_us() >= end_us for _ in slices)

    async def _on_thread(self, work: Callable[[], T]) -> T:
        with frequent_switches():
            return await self._loop.run_in_executor(self._thread, work)

    def _finished(self, job: Job, began_us: int) -> JobDone:
        self._count(job, (self._clock.elapsed_us() - began_us) / 1e6)
        return JobDone(job)
