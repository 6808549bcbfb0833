"""How much one fetch asks for, so that it arrives in time; and a batch that arrives in parts.

*A piece must arrive within the request's timeout, or all of it was sent for nothing.* Nobody knows how fast a link is before
something has come over it, so the asker begins with the smallest piece, as TCP does (slow start). After a piece that came within
two fifths of the time the next one is twice as large, after one that took more than four fifths it is half as large. The two
bounds are a factor of two apart, so a size that has grown does not shrink at once. Only the bytes that came count: a batch's last
part may be short, and says nothing of a whole piece.

The smallest piece is asked for again after one that did not come at all, and after a time in which nothing was learned of the
link: it may have become slow meanwhile, and a large answer would stand in its queue in front of all that comes later.

Example. Over 256 kbit/s (32 KB a second), 4 KiB take 128 ms of 500: the next piece is one of 8 KiB, takes 256 ms, and that
size stays. Over a fast link the ninth piece is one of 1 MiB, after eight round trips.

*A batch that is larger than a piece travels in parts.* Whole batches are sent as ever; but where the first batch that was asked
for is larger than the piece, the answer is a part of its bytes. The asker keeps the parts in memory, says with each request how
many bytes it holds, and decodes the batch when all are there. Parts of two batches that were mixed up fail the batch's CRC or
its chain, and are fetched anew.

Example. A batch of 10,000 bytes, pieces of 4,096: parts at 0, 4,096 and 8,192; the last one has 1,808 bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from metadata_log.format.batch import BATCH_BYTES_MAX, Batch, decode
from metadata_log.format.ids import Offset

PIECE_BYTES_MIN = 4 << 10
"""The smallest piece, unless configured otherwise: at 256 kbit/s it takes a quarter of a controller's request timeout."""
KNOWN_MS = 10_000
"""For so long what was learned of a link is believed (RFC 5681, 4.1, has a similar rule for idle connections)."""


class PieceSize:
    """The size of the next piece over one link, between `smallest` and `largest` bytes."""

    __slots__ = ("_seen_ms", "_timeout_ms", "bytes", "largest", "smallest")

    def __init__(self, smallest: int, largest: int, timeout_ms: int) -> None:
        assert smallest > 0 and timeout_ms > 0
        self.largest = largest
        self.smallest = min(smallest, largest)
        self._timeout_ms = timeout_ms
        self._seen_ms = 0
        self.bytes = self.smallest

    def next(self, now_ms: int) -> int:
        """How much to ask for now."""
        if now_ms - self._seen_ms > KNOWN_MS:
            self.start_small()
        return self.bytes

    def start_small(self) -> None:
        """A piece did not come in time, or the link is another one: nothing is known of its speed."""
        self.bytes = self.smallest

    def came(self, content_bytes: int, asked_ms: int, now_ms: int) -> None:
        """So many bytes have come, which were asked for at `asked_ms`, and more is waiting where they came from.

        Of an answer that leaves nothing behind this must not be called: it may have waited for something to be written.
        """
        took_ms, self._seen_ms = now_ms - asked_ms, now_ms
        if 5 * took_ms > 4 * self._timeout_ms:
            self.bytes = max(self.smallest, min(self.bytes, content_bytes // 2))
        elif 5 * took_ms <= 2 * self._timeout_ms:
            self.bytes = min(self.largest, max(self.bytes, 2 * content_bytes))


class BatchPart(NamedTuple):
    """`data` from byte `position` on, of a batch of `size` bytes."""

    position: int
    size: int
    data: bytes

    @property
    def is_last(self) -> bool:
        return self.position + len(self.data) == self.size

    @property
    def is_sound(self) -> bool:
        """Whether it can be part of a batch at all. What comes from the network is to be asked this."""
        end = self.position + len(self.data)
        return bool(self.data) and 0 <= self.position < end <= self.size <= BATCH_BYTES_MAX


def content_bytes(batches: Sequence[Batch], part: BatchPart | None) -> int:
    """How much of the log an answer carries."""
    return sum(len(batch.data) for batch in batches) + (0 if part is None else len(part.data))


def as_asked(
    batches: Sequence[Batch], max_bytes: int, part_position: int | None
) -> tuple[tuple[Batch, ...], BatchPart | None]:
    """Whole batches, or a part of the first one: where it is larger than `max_bytes`, or was begun in parts.

    `part_position`: so many bytes of the first batch the asker holds. None: it takes whole batches only.
    """
    if part_position is None or not batches:
        return tuple(batches), None
    data = batches[0].data
    position = part_position if 0 < part_position < len(data) else 0
    if position == 0 and len(data) <= max_bytes:
        return tuple(batches), None
    return (), BatchPart(position, len(data), data[position : position + max_bytes])


@dataclass(frozen=True, slots=True)
class PartialBatch:
    """The first bytes of the batch at `offset`, which has `size` of them."""

    offset: Offset
    size: int
    data: bytes

    @property
    def is_whole(self) -> bool:
        return len(self.data) == self.size

    def decode(self) -> Batch:
        """The batch, once all parts are here; its CRC is checked, its chain is not.

        Raises:
            LogFormatError: the parts are not one batch.
        """
        assert self.is_whole
        return decode(self.data)


def held_at(partial: PartialBatch | None, offset: Offset) -> int:
    """How many bytes of the batch at `offset` are held."""
    return len(partial.data) if partial is not None and partial.offset == offset else 0


def joined(partial: PartialBatch | None, offset: Offset, part: BatchPart) -> PartialBatch | None:
    """What is held of the batch at `offset` once `part` has come; None where `part` does not continue it."""
    held = held_at(partial, offset)
    if not part.is_sound or part.position != held:
        return None
    if held == 0 or partial is None:
        return PartialBatch(offset, part.size, part.data)
    return PartialBatch(offset, part.size, partial.data + part.data) if part.size == partial.size else None
