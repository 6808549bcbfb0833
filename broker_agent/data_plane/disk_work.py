"""The disk work of the replicas, on threads: flushes of many logs, openings, deletions, searches.

    1. Partition orders-0 appends batch A, and its flush starts on a thread. The event loop goes on.
    2. Batches B and C come to orders-0. The manager asks for no second flush yet: one flush for each log at a time.
    3. The first flush ends. The next one makes B and C durable together: a group commit.

A flush is a wait for the disk, so a few threads keep a disk busy. Openings and deletions are long, and have threads of their own
for each log directory: no flush and no file of high watermarks waits behind them. Searches have others: clients ask for them, as
many as they like, and no log may wait for a client. Ends of work are collected: however many end together, the event loop takes
them in slices.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from broker_agent.partitions.effects import DiskResult, DiskWork, FindTime, Flush, WriteHighWatermarks
from metadata_log.format.ids import Uuid

FLUSH_THREADS: Final = 8
"""How many logs are flushed at the same time."""
SEARCH_THREADS: Final = 2
"""How many searches read the logs of one directory at the same time."""
SLICE: Final = 32
"""How many ends are taken in one turn of the event loop."""


class Ended(NamedTuple):
    """Work has ended, with its result, or with the error that it has raised."""

    work: DiskWork
    result: DiskResult
    error: Exception | None


class DiskWorkers:
    """The threads of one broker. `take` gets each end, on the event loop that makes this object."""

    def __init__(self, take: Callable[[Ended], None], wall_ms: Callable[[], int], threads_per_directory: int) -> None:
        self.under_way = 0
        """How many pieces of work have begun, and were not taken yet."""
        self._take = take
        self._wall_ms = wall_ms
        self._threads_per_directory = threads_per_directory
        self._loop = asyncio.get_running_loop()
        self._flushing = ThreadPoolExecutor(FLUSH_THREADS, "flush")
        self._of_directory: dict[Uuid, ThreadPoolExecutor] = {}
        self._searching: dict[Uuid, ThreadPoolExecutor] = {}
        self._ended: deque[Ended] = deque()
        self._lock = threading.Lock()
        self._is_called = False
        """True while a call of `_take_some` is on its way."""

    def begin(self, work: DiskWork) -> None:
        """Begins a piece of work."""
        self.under_way += 1
        self._threads(work).submit(self._run, work)

    def _threads(self, work: DiskWork) -> ThreadPoolExecutor:
        if isinstance(work, Flush | WriteHighWatermarks):
            return self._flushing
        is_search = isinstance(work, FindTime)
        pools = self._searching if is_search else self._of_directory
        threads = pools.get(work.directory)
        if threads is None:
            count = SEARCH_THREADS if is_search else self._threads_per_directory
            threads = pools[work.directory] = ThreadPoolExecutor(count, "search" if is_search else "log-dir")
        return threads

    def _run(self, work: DiskWork) -> None:
        result: DiskResult = None
        error: Exception | None = None
        try:
            result = work.run(self._wall_ms())
        except Exception as e:  # a thread has nobody to raise to: the manager gets the error, whatever it is
            error = e
        with self._lock:
            self._ended.append(Ended(work, result, error))
            is_first, self._is_called = not self._is_called, True
        if is_first:
            self._loop.call_soon_threadsafe(self._take_some)

    def _take_some(self) -> None:
        for _ in range(SLICE):
            with self._lock:
                if not self._ended:
                    self._is_called = False
                    return
                ended = self._ended.popleft()
            self.under_way -= 1
            self._take(ended)
        self._loop.call_soon(self._take_some)

    def close(self) -> None:
        """Waits for the work in progress, and drops the rest. Ends are not taken any more."""
        self._take = _dropped
        for threads in (self._flushing, *self._of_directory.values(), *self._searching.values()):
            threads.shutdown(wait=True, cancel_futures=True)


def _dropped(ended: Ended) -> None:
    """Takes the end of work whose owner has gone: a log that was opened too late is closed by the process's end."""
