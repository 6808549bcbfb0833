"""The hub: brings each new batch to all watches of one node that are at the end of the log.

    commit --> image moves --> one read, one decoding, one encoding for each filter --> a reference in the queue of each reader

The cost of a commit is that of one encoding, and of one message for each reader that shows it. A reader that shows none of it
costs nothing. While no watch is open, the hub does nothing at all.

Readers that are not at the end read the log for themselves (`catching_up`), and attach when they reach the hub's position.
Example:
    1. The hub is at 50. Reader A attaches at 50; reader B has come to 44, and reads [44, 50).
    2. A batch [50, 52) is committed. The hub queues it for A, and is at 52.
    3. B comes to 50, finds the hub at 52, reads [50, 52), and attaches at 52: nothing is missing, and nothing comes twice.

*A transaction with more bytes than a wave* is not encoded here: all readers leave the hub, and read it piece by piece, each as
fast as its client takes it. They share the decoded batches (`batch_changes`).
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeVar

from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Offset, Uuid
from metadata_log.image.metadata_image import EMPTY_IMAGE, MetadataImage
from service_kit.process.switches import frequent_switches
from service_kit.rpc.refusals import Refusal
from watches.core.filter_index import FilterIndex
from watches.core.filters import Filter
from watches.core.log_plan import LogPlan, OutOfOrder
from watches.core.position import Position, ResetReason, is_ambiguous
from watches.core.reader_queue import Message, Pushed
from watches.core.watched_log import LogUnreadable, PositionLost, WatchedLog
from watches.service.batch_changes import ChangesKept, StatesKept
from watches.service.messages import Tail, tail_of
from watches.service.reader import Reader
from watches.service.tallies import WatchTallies
from watches.service.wave import WAVE_BYTES, NameFinder, Wave, wave_of

logger = logging.getLogger(__name__)

T = TypeVar("T")

INLINE_BYTES: Final = 16 << 10
"""Maximum size of batches that are decoded and encoded on the event loop: about 2 ms."""

SLICE: Final = 64
"""How many readers are woken at once. gRPC takes some 50 us to write a message, so that each slice takes 4 ms."""
PUSHES_PER_S_MAX: Final = 10_000
"""How many messages are pushed in a second. After each push the hub rests, and the next one has all changes of the meantime: so a
burst of commits costs each reader one message, and all of them together less than a core."""
REST_S: Final = 0.025
FEW_PUSHES_PER_S_MAX: Final = 4_000
"""How many messages are pushed in a second while the rest is at most REST_S. So a hundred readers cost a fifth of a core, and
leave the event loop to the commits: with 10,000 messages a second, commits waited longer than readers do here."""


def rest_s(pushed: int) -> float:
    """How long the hub rests after it has pushed so many messages: 100 take 25 ms, 250 the same, 1,000 take 100 ms."""
    return max(pushed / PUSHES_PER_S_MAX, min(REST_S, pushed / FEW_PUSHES_PER_S_MAX))


class Hub:
    """The watches of one node."""

    def __init__(self, log: WatchedLog, tallies: WatchTallies) -> None:
        self.log = log
        self.tallies = tallies
        self.kept = ChangesKept(tallies.batches)
        self.states = StatesKept()
        self.lock = asyncio.Lock()
        """Held while the hub moves, and while a reader attaches."""
        self._at: Tail | None = None
        """The end of the last wave; None while no watch is open."""
        self._image = EMPTY_IMAGE
        """The image at `_at`."""
        self._index = FilterIndex()
        self._groups: dict[Filter, set[Reader]] = {}
        self._readers: set[Reader] = set()
        """All watches, attached or not."""
        self._moving: asyncio.Task[None] | None = None
        self._is_closed = False
        self._pushed = 0
        """How many messages were pushed since the last rest."""
        self._waits_beyond: Offset | None = None
        """The offset of an image whose last batches could not be read yet."""
        self._thread = ThreadPoolExecutor(1, "watches")

    # --- readers -----------------------------------------------------------------------------------------------------

    @contextmanager
    def joined(self, reader: Reader) -> Iterator[None]:
        """Counts the reader as a watch of this node inside of the block."""
        self._readers.add(reader)
        self.tallies.open += 1
        try:
            yield
        finally:
            self.tallies.open -= 1
            self._readers.remove(reader)
            self._groups.get(reader.shown, set()).discard(reader)
            if not self._readers:
                self._rest()

    def _rest(self) -> None:
        """Forgets the position: the next watch begins anew, at the end of the log at that time."""
        if self._moving is not None:
            self._moving.cancel()
        self._moving = self._at = self._waits_beyond = None
        self._groups.clear()
        self._index = FilterIndex()

    async def place(self, at_least: Offset = 0) -> tuple[Tail, MetadataImage]:
        """Returns the hub's position and the image there. The caller holds the lock.

        A hub that rests below `at_least` moves on first, if the node has applied more. Otherwise a watch that has come from a
        quicker node would wait for the next commit.

        Raises:
            Refusal: the node serves no watches now.
        """
        self.check()
        if self._at is None:
            self._at, self._image = await self._end_of_log()
            self._moving = asyncio.get_running_loop().create_task(self._move())
        if self._at.position.offset < at_least and self._is_late():
            await self._advance()
            assert self._at is not None, "the hub has readers"
        return self._at, self._image

    def check(self) -> None:
        """Raises Refusal if the node serves no watches now."""
        if self._is_closed:
            raise _stopping()
        problem = self.log.problem()
        if problem is not None:
            raise Refusal(*problem)

    def attach(self, reader: Reader) -> None:
        """Lets the hub push to the reader, which is at the hub's position. The caller holds the lock."""
        group = self._groups.get(reader.shown)
        if group is None:
            group = self._groups[reader.shown] = set()
            self._index.add(reader.shown)
        reader.behind = reader.tail = None
        group.add(reader)

    def detach(self, reader: Reader) -> None:
        """Takes the reader from the hub, with an empty queue."""
        self._groups.get(reader.shown, set()).discard(reader)
        reader.queue.clear()
        reader.behind = None

    def bookmark(self, reader: Reader) -> Tail:
        """The position of a reader that is attached and has an empty queue: the hub's, or that of a wave which has reached the
        reader and not all others yet."""
        assert self._at is not None, "a reader is attached"
        own = reader.tail
        return self._at if own is None or own.position.offset <= self._at.position.offset else own

    async def work(self, size: int, work: Callable[[], T]) -> T:
        """Does work on batches, or on a state, of `size` bytes: large work on the thread of the watches."""
        if size <= INLINE_BYTES:
            return work()
        with frequent_switches():
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def close(self) -> None:
        """Ends all watches: the node stops."""
        self._is_closed = True
        self.end_all(_stopping())
        if self._moving is not None:
            self._moving.cancel()
            await asyncio.gather(self._moving, return_exceptions=True)
        self._thread.shutdown(wait=False, cancel_futures=True)

    def end_all(self, refusal: Refusal) -> None:
        """Ends all watches, each once its queue is empty."""
        for reader in self._readers:
            reader.end(refusal)
        self._groups.clear()
        self._index = FilterIndex()

    # --- moving ------------------------------------------------------------------------------------------------------

    async def _move(self) -> None:
        """Moves the hub along the log as long as a watch is open."""
        while True:
            try:
                await self._catch_up()
            except Refusal as e:
                return await self._end_moving(e)
            except (
                Exception
            ):  # a bug must not leave the watches silent: their clients go elsewhere, and the log says why
                logger.exception("the watches have failed by an internal error (please report)")
                return await self._end_moving(
                    Refusal("UNKNOWN_SERVER_ERROR", "this node has failed to read on: watch at another node")
                )
            await self.log.changed()

    async def _catch_up(self) -> None:
        """Moves the hub up to the newest image, and rests after each push."""
        while self._is_late():
            self._pushed = 0
            async with self.lock:
                await self._advance()
            await asyncio.sleep(rest_s(self._pushed))

    async def _end_moving(self, refusal: Refusal) -> None:
        """Ends all watches. A reader that moves the hub comes to its end before, and cannot set a position that nobody moves."""
        async with self.lock:
            self.end_all(refusal)
            self._moving = self._at = self._waits_beyond = None

    def _is_late(self) -> bool:
        self.check()
        assert self._at is not None
        position, image = self._at.position, self.log.image
        if self.log.generation != position.generation:
            text = "the cluster was recovered, and this node has dropped its copy: go on from the last position"
            raise Refusal("BROKER_NOT_AVAILABLE", text)
        if image.offset < position.offset:
            text = "this node loads its image anew: go on at another node, from the last position"
            raise Refusal("NOT_READY", text)
        return image.offset not in (position.offset, self._waits_beyond)

    async def _advance(self) -> None:
        """Moves the hub up to the newest image. Raises Refusal: the node serves no watches now."""
        image = self.log.image
        self._forget_empty_groups()
        names: dict[Uuid, str] = {}
        try:
            while self._at is not None and self._at.position.offset < image.offset:
                if not await self._take_wave(names, image):
                    return
        except LogUnreadable as e:
            raise Refusal("STORAGE_ERROR", f"{e}: go on at another node, from the last position") from e
        except (PositionLost, OutOfOrder):
            await self._jump()
            return
        self._image = image

    async def _take_wave(self, names: dict[Uuid, str], image: MetadataImage) -> bool:
        """Moves the hub by one wave. False: the node does not have the batches yet, or the hub has jumped over them."""
        assert self._at is not None
        before = self._at.position
        stretch = await self.log.read(before, WAVE_BYTES, image.offset)
        if not stretch.batches:
            self._waits_beyond = image.offset
            return False
        last, plan = stretch.batches[-1], LogPlan(stretch.skips, names, with_created=True)
        size = sum(len(batch.data) for batch in stretch.batches)
        find = NameFinder(names, (self._image, image))
        encode = partial(wave_of, stretch.batches, plan, self._index, self.kept, find)
        try:
            wave = await self.work(size, encode)
        except LogFormatError as e:
            raise LogUnreadable(str(e)) from e
        if not wave.is_closed:
            await self._jump()
            return False
        after = Position(before.generation, last.end_offset, last.epoch, last.chain)
        tail = tail_of(after, last.last_timestamp_ms)
        await self._spread(wave, before, tail)
        self._at = tail
        return True

    async def _spread(self, wave: Wave, before: Position, tail: Tail) -> None:
        """Pushes the messages of a wave. A slice of readers has its turn on the event loop before the next slice is woken.

        A reader that moves the hub may be cancelled between two slices. The next wave begins at `before` again, so the readers of
        the first slices have seen more, and read on from the log at their own ends. Example:
            1. Reader 200 moves the hub from 50 to 52. Readers 1 to 64 have the wave when the client of reader 200 goes away.
            2. The hub is at 50. The next wave is [50, 55): reader 65 gets it, and reader 1 reads [52, 55) from the log.
        """
        for shown, messages in wave.messages.items():
            data, events = messages[0]
            message = Message(data + tail.data, events)
            group = self._groups.get(shown, set())  # none: the node stops meanwhile
            for reader in [*group]:
                if reader not in group:
                    continue  # its client has gone meanwhile
                if len(messages) > 1 or reader.is_beyond(before):
                    reader.leave(before)
                elif reader.push(message, before, tail) is Pushed.CUT:
                    self.tallies.cut.add()
                if reader.tail is not tail:
                    group.discard(reader)
                self._pushed += 1
                if self._pushed % SLICE == 0:
                    await asyncio.sleep(0)
        for skip in wave.skips:
            for reader in self._readers:
                if is_ambiguous(reader.since, (skip,)):
                    reader.reset(ResetReason.OTHER_HISTORY)

    async def _jump(self) -> None:
        """Moves the hub to the end of the log. All readers leave it, and read on for themselves."""
        assert self._at is not None
        before = self._at.position
        for group in self._groups.values():
            for reader in group:
                reader.leave(before)
            group.clear()
        self._at, self._image = await self._end_of_log()

    async def _end_of_log(self) -> tuple[Tail, MetadataImage]:
        """Returns the position of the newest image, and the image. Raises Refusal."""
        image = self.log.image
        try:
            place = await self.log.place_of(image.offset)
        except LogUnreadable as e:
            raise Refusal("STORAGE_ERROR", f"{e}: watch at another node") from e
        if place.chain is None or place.epoch is None:
            raise Refusal("NOT_READY", "this node loads its copy of the log: watch at another node, or later")
        position = Position(self.log.generation, image.offset, place.epoch, place.chain)
        return tail_of(position, image.provenance.timestamp_ms), image

    def _forget_empty_groups(self) -> None:
        for shown in [shown for shown, group in self._groups.items() if not group]:
            del self._groups[shown]
            self._index.remove(shown)


def _stopping() -> Refusal:
    return Refusal("BROKER_NOT_AVAILABLE", "this node stops: go on at another node, from the last position")
