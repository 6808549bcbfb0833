"""Catching up: reads a stretch of the log for one watch, in chunks, and encodes what the watch shows.

The stretch is read twice: once for its plan (`watches.core.log_plan`), and once for its events. A stretch of one chunk, which is
the usual one after a failover, is read once. At most one chunk of batches is in memory for each watch that catches up.

    1. A watch of `orders` goes on at 1,000, and the hub is at 900,000. The plan reads everything between, 1 MiB at a time, and
       keeps the names of deleted topics and the bounds of transactions.
    2. The second pass encodes chunk by chunk. The next chunk is read when the client has taken the messages of the last one.
    3. The hub has moved to 900,120 meanwhile. The stretch [900,000, 900,120) is one chunk. Then the watch attaches to the hub.
"""

from collections.abc import AsyncGenerator, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from metadata_log.format.batch import Batch
from metadata_log.format.errors import LogFormatError
from metadata_log.image.metadata_image import MetadataImage
from watches.core.filters import Filter
from watches.core.log_plan import LogPlan, OutOfOrder, landmarks_of
from watches.core.position import Position, is_ambiguous
from watches.core.reader_queue import Message
from watches.core.watched_log import LogUnreadable, PositionLost, Stretch
from watches.service.batch_changes import ChangesKept
from watches.service.hub import Hub
from watches.service.messages import Tail, packed, tail_of
from watches.service.reader import Reader
from watches.service.wave import NameFinder

CHUNK_BYTES: Final = 256 << 10
"""Maximum size of the batches that are read at once; a single batch may be larger."""


class Piece(NamedTuple):
    """Some messages of a stretch, in order."""

    before: tuple[Message, ...]
    """The messages in front of `tail`, which belongs to the last of them."""
    tail: Tail | None
    """The last place of the piece where a watch may stop."""
    after: tuple[Message, ...]
    """The messages behind `tail`: parts of a batch or of a transaction that the next piece continues."""


class NotThere(Exception):
    """The node does not have a part of the stretch now."""


async def caught_up(
    hub: Hub, reader: Reader, since: Position, until: Position, image: MetadataImage
) -> AsyncGenerator[Piece, None]:
    """Yields what a watch shows of [since, until). `image` is the image at `until`.

    Raises:
        PositionLost: the history of the log is another one, or has been trimmed meanwhile.
        LogUnreadable: the disk has lost a part of the stretch.
        NotThere: see above.
    """
    first = await _chunk(hub, since, until)
    plan = LogPlan(first.skips)
    is_whole = _end_of(since, first.batches).offset == until.offset
    await _plan(hub, plan, since, until, first)
    if is_ambiguous(reader.since, plan.skips):
        raise PositionLost("a batch was skipped that the watch may have shown")
    find = NameFinder(plan.names, (image,))
    position, stretch = since, first
    while True:
        encode = partial(_piece, stretch.batches, plan, reader.shown, hub.kept, find, since.generation)
        try:
            yield await hub.work(_size(stretch.batches), encode)
        except LogFormatError as e:
            raise LogUnreadable(str(e)) from e
        position = _end_of(position, stretch.batches)
        if is_whole or position.offset == until.offset:
            break
        stretch = await _chunk(hub, position, until)
    if position.chain != until.chain:
        raise PositionLost(f"the history below offset {until.offset} has changed")


async def _plan(hub: Hub, plan: LogPlan, since: Position, until: Position, first: Stretch) -> None:
    position, stretch = since, first
    while True:
        try:
            await hub.work(_size(stretch.batches), partial(_take, plan, stretch.batches))
        except OutOfOrder as e:
            raise PositionLost(str(e)) from e
        except LogFormatError as e:
            raise LogUnreadable(str(e)) from e
        position = _end_of(position, stretch.batches)
        if position.offset == until.offset:
            return
        stretch = await _chunk(hub, position, until)


def _take(plan: LogPlan, batches: Iterable[Batch]) -> None:
    for batch in batches:
        plan.take(batch, () if plan.drops(batch) else landmarks_of(batch))


async def _chunk(hub: Hub, position: Position, until: Position) -> Stretch:
    stretch = await hub.log.read(position, CHUNK_BYTES, until.offset)
    if not stretch.batches:
        raise NotThere(f"the batch at offset {position.offset} is not there now")
    return stretch


def _end_of(position: Position, batches: Sequence[Batch]) -> Position:
    last = batches[-1]
    return Position(position.generation, last.end_offset, last.epoch, last.chain)


def _size(batches: Iterable[Batch]) -> int:
    return sum(len(batch.data) for batch in batches)


def _piece(
    batches: Sequence[Batch], plan: LogPlan, shown: Filter, kept: ChangesKept, find: NameFinder, generation: int
) -> Piece:
    parts: list[bytes] = []
    stop: Batch | None = None
    parts_before = 0
    for batch in batches:
        if not batch.is_control and not plan.drops(batch):
            found = kept.of(batch, plan, find)
            for number, change in enumerate(found.changes):
                if shown.shows(change.subject):
                    parts.append(found.part(number))
        if plan.may_stop_at(batch.end_offset):
            stop, parts_before = batch, len(parts)
    if stop is None:
        return Piece((), None, tuple(packed(parts)))
    tail = tail_of(Position(generation, stop.end_offset, stop.epoch, stop.chain), stop.last_timestamp_ms)
    return Piece(tuple(packed(parts[:parts_before])), tail, tuple(packed(parts[parts_before:])))
