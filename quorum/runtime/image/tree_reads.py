"""Queries of the tree on a running node: made on threads that rest, portion by portion, a few at a time.

    gRPC stream --> portion() --> [thread: 2 ms of work, rest, 2 ms of work ...] --> rows --> written --> portion() --> ...

While the client takes no rows, nothing is made, and no thread is held. All threads together work for half of the time at most, so
the event loop keeps its turns (`past_images` explains why a thread rests). A query of the newest image does not wait for images
of the past that others want: it has a thread of its own. Example with controller 1:
    1. Operator A asks for the history of `/topics`. The base comes from `past_images`, and a thread replays 1,000,000 batches.
    2. Operator B asks for the names in `/topics`. Another thread makes them at once. While both work, each rests longer.
    3. Operator A presses Ctrl-C. The thread sees the end at its next step, within a few milliseconds.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Generic, TypeVar

from metadata_log.disk.files import Directory
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Offset
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.replay import ReplayStopped
from metadata_log.tree.queries import BatchChange, History, QueryRefused, Row, Seen, answer
from quorum.runtime.image.past_images import STOPS, WORK_US, PastImages
from quorum.runtime.protocol.requests import Refused
from quorum.runtime.protocol.tree_question import TreeQuestion
from service_kit.process.switches import frequent_switches
from snapshots.history.past import Past
from snapshots.history.wanted import HistoryDamaged, OutOfReach, Shown, Wanted

T = TypeVar("T")
U = TypeVar("U")

READS_MAX: Final = 8
"""Maximum number of answers that a node makes at a time; further queries are refused."""
HISTORIES_MAX: Final = 2
"""Maximum number of histories among these: each one has an image of its own, which may be large."""
PORTION_ROWS: Final = 500
"""Maximum number of rows in a portion."""
PORTION_BYTES: Final = 64 << 10
"""How many bytes complete a portion. The last row may be larger."""
PORTION_US: Final = 50_000
"""How long a portion with at least one row may take: an operator sees the first rows of a long search at once."""


class _Ended(Exception):
    """Nobody wants the rows any more."""


class TreeReads:
    """The answers that one node makes. Use on the event loop's thread."""

    def __init__(self, metadata: Directory, images: PastImages, elapsed_us: Callable[[], int]) -> None:
        self.past = Past(metadata)
        self.images = images
        self.elapsed_us = elapsed_us
        self.pool = ThreadPoolExecutor(READS_MAX, thread_name_prefix="tree")
        self.working = 0
        """How many threads work now."""
        self._reads: set[TreeRead[Any]] = set()
        self._is_stopped = False

    def open(self, asked: TreeQuestion, encode: Callable[[Row], tuple[T, int]]) -> "TreeRead[T]":
        """Begins an answer. `encode` returns a row for the wire, and its size in bytes; it runs on a thread.

        Raises:
            Refused: THROTTLING_QUOTA_EXCEEDED: the node makes as many answers as it may. BROKER_NOT_AVAILABLE: it stops.
        """
        if self._is_stopped:
            raise Refused(ErrorCode.BROKER_NOT_AVAILABLE, STOPS)
        is_history = isinstance(asked.query, History)
        histories = sum(each.is_history for each in self._reads)
        if len(self._reads) >= READS_MAX or (is_history and histories >= HISTORIES_MAX):
            what = f"{histories} histories" if is_history else f"{len(self._reads)} queries of the tree"
            text = f"nothing was read: this controller answers {what} already; ask again in a moment, or ask another controller"
            raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, text)
        read = TreeRead(self, asked, encode)
        self._reads.add(read)
        return read

    def closed(self, read: "TreeRead[T]") -> None:
        """Forgets an answer."""
        self._reads.discard(read)

    async def stop(self) -> None:
        """Ends all answers, and waits for their threads. Their readers are refused."""
        self._is_stopped = True
        for read in self._reads:
            read.end()
        await asyncio.to_thread(self.pool.shutdown, wait=True)


class TreeRead(Generic[T]):
    """The rows of one answer (`TreeRows`)."""

    def __init__(self, reads: TreeReads, asked: TreeQuestion, encode: Callable[[Row], tuple[T, int]]) -> None:
        self.is_history = isinstance(asked.query, History)
        self._reads = reads
        self._asked = asked
        self._encode = encode
        self._rows: Iterator[Row] | None = None
        self._last: MetadataImage | None = None
        """The newest image of a history so far."""
        self._refused: Refused | None = None
        """The reason for which no rows follow those that were returned."""
        self._job: asyncio.Future[Any] | None = None
        self._ended = threading.Event()
        self._until_us = 0

    async def portion(self) -> list[T]:
        if self._rows is None:
            self._rows = await self._begun()
        if self._refused is not None:
            raise self._refused
        rows = self._rows
        return await self._on_thread(lambda: self._portion(rows))

    def end(self) -> None:
        """Ends the work at its next step."""
        self._ended.set()

    async def close(self) -> None:
        self.end()
        if self._job is not None:
            await asyncio.wait({self._job})
        self._rows = None
        self._reads.closed(self)
        # Images of the past go slice by slice: the last reference to a large one would free it in one long moment.
        of_past = (each for each in (self._asked.image, self._asked.before) if each is not None)
        gone = [each for each in of_past if each.offset < self._asked.committed_end]
        self._reads.images.release(gone if self._last is None else [*gone, self._last])

    # --- the beginning -----------------------------------------------------------------------------------------------

    async def _begun(self) -> Iterator[Row]:
        query, image, before, _ = self._asked
        changes: Iterator[BatchChange] = iter(())
        if isinstance(query, History):
            changes = self._changes(await self._base(query.since))
        return answer(query, Seen(image, before, changes), self._pace)

    async def _base(self, since: Offset | None) -> Shown:
        """Returns the image that the replay of a history begins with: from `past_images`, which keeps it for others."""
        end = self._asked.committed_end
        first = await self._on_thread(self._lowest) if since is None else since
        base = await self._reads.images.shown(Wanted(offset=first), end)
        if not base.is_base:  # a transaction is replayed from its beginning
            base = await self._reads.images.shown(Wanted(offset=base.image.offset), end)
        return base

    # --- on a thread -------------------------------------------------------------------------------------------------

    async def _on_thread(self, work: Callable[[], U]) -> U:
        def done(job: asyncio.Future[U]) -> None:
            self._reads.working -= 1
            job.exception()  # the reader was told, or has gone

        if self._ended.is_set():
            raise Refused(ErrorCode.BROKER_NOT_AVAILABLE, STOPS)

        job = asyncio.get_running_loop().run_in_executor(self._reads.pool, self._carried_out, work)
        self._reads.working += 1
        job.add_done_callback(done)
        self._job = job
        return await asyncio.shield(job)

    def _carried_out(self, work: Callable[[], U]) -> U:
        with frequent_switches():
            self._until_us = self._reads.elapsed_us() + WORK_US
            try:
                return work()
            except _Ended:
                raise Refused(ErrorCode.BROKER_NOT_AVAILABLE, STOPS) from None
            except OutOfReach as e:
                raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, str(e)) from e
            except (HistoryDamaged, ReplayStopped, OSError) as e:
                raise Refused(ErrorCode.STORAGE_ERROR, f"the history cannot be read on here: {e}") from e

    def _portion(self, rows: Iterator[Row]) -> list[T]:
        taken: list[T] = []
        size, until_us = 0, self._reads.elapsed_us() + PORTION_US
        try:
            for row in rows:
                item, item_bytes = self._encode(row)
                taken.append(item)
                size += item_bytes
                if len(taken) >= PORTION_ROWS or size >= PORTION_BYTES or self._reads.elapsed_us() >= until_us:
                    break
        except QueryRefused as e:
            code = ErrorCode.RESOURCE_NOT_FOUND if e.is_missing else ErrorCode.INVALID_REQUEST
            self._refused = Refused(code, str(e))
        except (HistoryDamaged, ReplayStopped, OSError) as e:
            self._refused = Refused(ErrorCode.STORAGE_ERROR, f"the history cannot be read on here: {e}")
        except Refused as e:
            self._refused = e
        if self._refused is not None and not taken:
            raise self._refused
        return taken

    def _lowest(self) -> Offset:
        steps = self._reads.past.reach(self._asked.committed_end)
        while True:
            try:
                next(steps)
            except StopIteration as e:
                lowest: Offset = e.value.lowest
                return lowest
            self._pace()

    def _changes(self, base: Shown) -> Iterator[BatchChange]:
        for each in self._reads.past.changes_from(base, self._asked.committed_end):
            self._pace()
            if each is not None:
                self._last = each.after
                yield each

    def _pace(self) -> None:
        """Rests after WORK_US of work, so long that all threads together work for half of the time at most."""
        if self._reads.elapsed_us() < self._until_us:
            return
        if self._ended.wait(WORK_US / 1e6 * (2 * max(1, self._reads.working) - 1)):
            raise _Ended
        self._until_us = self._reads.elapsed_us() + WORK_US
