"""A node's log for watches: real batches and a real replay, in memory. Tests append, hold back, trim and fence."""

import asyncio
from collections.abc import Iterable, Sequence

from metadata_log.format.batch import Batch, encode, genesis_chain
from metadata_log.format.codec import encode_records
from metadata_log.format.ids import Offset
from metadata_log.format.records import FIRST_CONTROL_TYPE, TYPE_NUMBERS, Record, SkippedBatch
from metadata_log.image.metadata_image import EMPTY_IMAGE, MetadataImage
from metadata_log.image.replay import Replay
from watches.core.position import Place, Position
from watches.core.watched_log import LogUnreadable, PositionLost, Stretch, Unavailable

CLUSTER_ID = "test-cluster"
GENESIS = genesis_chain(CLUSTER_ID, b"voters")


class FakeLog:
    """Implements `WatchedLog`."""

    def __init__(self, batches: Iterable[Batch] = (), generation: int = 1) -> None:
        self.cluster_id = CLUSTER_ID
        self.generation = generation
        self.batches: list[Batch] = []
        self.start: Offset = 0
        self.start_chain = GENESIS
        self.unavailable: Unavailable | None = None
        self.is_damaged = False
        self.reads = 0
        """How many times batches were read."""
        self.epoch = 1
        self.replay = Replay(EMPTY_IMAGE)
        self.held: list[Batch] = []
        """Batches of the log that are not applied yet."""
        self._news: asyncio.Event | None = None
        for batch in batches:
            self.take(batch)

    # --- for tests ---------------------------------------------------------------------------------------------------

    def append(self, *records: Record, apply: bool = True) -> Batch:
        """Appends one batch, and applies it unless it is to be held."""
        batch = self.made(*records)
        self.take(batch, apply=apply)
        return batch

    def made(self, *records: Record) -> Batch:
        """Makes the batch that would continue the log."""
        last = self.batches[-1] if self.batches else None
        return encode(
            encode_records(records),
            base_offset=0 if last is None else last.end_offset,
            epoch=self.epoch,
            record_count=len(records),
            first_timestamp_ms=1_000 + len(self.batches),
            last_timestamp_ms=1_000 + len(self.batches),
            is_control=TYPE_NUMBERS[type(records[0])] >= FIRST_CONTROL_TYPE,
            previous_chain=GENESIS if last is None else last.chain,
        )

    def take(self, batch: Batch, *, apply: bool = True) -> None:
        """Appends a batch that another log has made."""
        self.batches.append(batch)
        self.held.append(batch)
        if apply:
            self.apply_held()

    def apply_held(self) -> None:
        self.replay.learn(skip for _, skip in self.skips)
        batches, self.held = self.held, []
        self.replay.apply(batches)
        self.tell()

    def tell(self) -> None:
        """Wakes the watches."""
        news, self._news = self._news, None
        if news is not None:
            news.set()

    def trim(self, offset: Offset) -> None:
        """Moves the log's start up to a batch boundary."""
        self.start, self.start_chain = offset, self._chain_at(offset) or b""
        assert self.start_chain

    def fence(self, text: str = "is fenced") -> None:
        self.unavailable = Unavailable("BROKER_NOT_AVAILABLE", text)
        self.tell()

    def position(self, offset: Offset | None = None) -> Position:
        """The position at a batch boundary; by default at the image's offset."""
        at = self.image.offset if offset is None else offset
        chain = self._chain_at(at)
        assert chain is not None, at
        return Position(self.generation, at, self._epoch_below(at) or 0, chain)

    @property
    def skips(self) -> list[tuple[Offset, SkippedBatch]]:
        from metadata_log.image.skips import skips_in

        return [(batch.base_offset, skip) for batch in self.batches for skip in skips_in((batch,))]

    # --- WatchedLog --------------------------------------------------------------------------------------------------

    @property
    def image(self) -> MetadataImage:
        return self.replay.image

    def problem(self) -> Unavailable | None:
        return self.unavailable

    async def changed(self) -> None:
        if self._news is None:
            self._news = asyncio.Event()
        await self._news.wait()

    async def place_of(self, offset: Offset) -> Place:
        await asyncio.sleep(0)
        is_inside = self.start <= offset <= self._end
        epoch, chain = (self._epoch_below(offset), self._chain_at(offset)) if is_inside else (None, None)
        return Place(self.start, self.image.offset, self.image.provenance.epoch, epoch, chain, tuple(self.skips))

    async def read(self, position: Position, max_bytes: int, until: Offset) -> Stretch:
        await asyncio.sleep(0)
        self.reads += 1
        if self.is_damaged:
            raise LogUnreadable("the disk has lost a batch")
        if position.offset < self.start or (
            position.offset <= self._end and self._chain_at(position.offset) != position.chain
        ):
            raise PositionLost("gone")
        taken: list[Batch] = []
        size = 0
        for batch in self.batches:
            if batch.base_offset >= position.offset and batch.end_offset <= min(until, self.image.offset):
                if taken and size + len(batch.data) > max_bytes:
                    break
                taken.append(batch)
                size += len(batch.data)
        return Stretch(tuple(taken), tuple(self.skips))

    @property
    def _end(self) -> Offset:
        return self.batches[-1].end_offset if self.batches else 0

    def _chain_at(self, offset: Offset) -> bytes | None:
        if offset == self.start:
            return self.start_chain
        return next((batch.chain for batch in self.batches if batch.end_offset == offset), None)

    def _epoch_below(self, offset: Offset) -> int | None:
        if offset == 0:
            return 0
        found = (batch.epoch for batch in self.batches if batch.base_offset < offset <= batch.end_offset)
        return next(found, None)


def clone(log: FakeLog, batches: Sequence[Batch] | None = None) -> FakeLog:
    """Another node with the same history."""
    return FakeLog(log.batches if batches is None else batches, log.generation)
