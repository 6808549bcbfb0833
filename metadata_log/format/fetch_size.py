"""The size of the next fetch over a link, and batches that arrive in parts.

*A fetch's answer must arrive within the request timeout, or all its bytes were sent for nothing.* A node does not know
the speed of a new link, so it begins with a small size and adapts, as TCP does (slow start). A *piece* is the answer to
one fetch:
  * a piece that arrived within two fifths of the timeout doubles the next size;
  * a piece that took more than four fifths halves the next size;
  * the two limits differ by a factor of two, so a size that has just grown does not shrink at once;
  * only received bytes count, because the last part of a batch may be short.
After a piece that did not arrive, or after `KNOWN_MS` without news of the link, the size falls back to the smallest
one: the link may have become slow, and a large answer would block all later answers.

Example: a link with 256 kbit/s (32 KB a second) and a timeout of 500 ms.
  1. 4 KiB take 128 ms, less than 200: the next size is 8 KiB.
  2. 8 KiB take 256 ms, between 200 and 400: the size stays.
Over a fast link the ninth piece has 1 MiB, after eight round trips.

*A batch that is larger than a piece travels in parts.* Usually the answer has whole batches. If the first batch is
larger than the piece, the answer is a part of its bytes. The fetching node keeps the parts in memory, says in each
request how many bytes it has, and decodes the batch when it has all of them. If parts of two batches are mixed, the CRC
or the chain does not match, and the node fetches the batch again.

Example: a batch of 10,000 bytes and pieces of 4,096 bytes: parts at 0, 4,096 and 8,192; the last one has 1,808 bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from metadata_log.format.batch import BATCH_BYTES_MAX, Batch, decode
from metadata_log.format.ids import Offset

PIECE_BYTES_MIN = 4 << 10
"""The smallest piece, unless configured otherwise. At 256 kbit/s it takes a quarter of a controller's request
timeout."""
KNOWN_MS = 10_000
"""How long the measured speed of a link is believed (RFC 5681, 4.1, has a similar rule for idle connections)."""


class FetchSize:
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
        """Return how many bytes to fetch now."""
        if now_ms - self._seen_ms > KNOWN_MS:
            self.start_small()
        return self.bytes

    def start_small(self) -> None:
        """Return to the smallest size: a piece did not arrive in time, or the link is new."""
        self.bytes = self.smallest

    def came(self, content_bytes: int, asked_ms: int, now_ms: int) -> None:
        """Adapt to a piece of `content_bytes` bytes that was requested at `asked_ms`.

        Call this only if the sender had more bytes waiting. Otherwise the answer may have waited for a new record, and
        its time says nothing about the link.
        """
        took_ms, self._seen_ms = now_ms - asked_ms, now_ms
        if 5 * took_ms > 4 * self._timeout_ms:
            self.bytes = max(self.smallest, min(self.bytes, content_bytes // 2))
        elif 5 * took_ms <= 2 * self._timeout_ms:
            self.bytes = min(self.largest, max(self.bytes, 2 * content_bytes))


class BatchPart(NamedTuple):
    """A part of a batch of `size` bytes: `data`, from byte `position` on."""

    position: int
    size: int
    data: bytes

    @property
    def is_last(self) -> bool:
        return self.position + len(self.data) == self.size

    @property
    def is_sound(self) -> bool:
        """True if the part can belong to a batch at all. Check this for every part from the network."""
        end = self.position + len(self.data)
        return bool(self.data) and 0 <= self.position < end <= self.size <= BATCH_BYTES_MAX


def content_bytes(batches: Sequence[Batch], part: BatchPart | None) -> int:
    """Return how many bytes of the log an answer has."""
    return sum(len(batch.data) for batch in batches) + (0 if part is None else len(part.data))


def as_asked(
    batches: Sequence[Batch], max_bytes: int, part_position: int | None
) -> tuple[tuple[Batch, ...], BatchPart | None]:
    """Return whole batches, or a part of the first one if that is larger than `max_bytes` or was begun in parts.

    `part_position` is how many bytes of the first batch the fetching node has. None: the node accepts whole batches
    only.
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
    """The first bytes of the batch at `offset`, whose full size is `size` bytes."""

    offset: Offset
    size: int
    data: bytes

    @property
    def is_whole(self) -> bool:
        return len(self.data) == self.size

    def decode(self) -> Batch:
        """Decode the batch when all parts have arrived. Check the CRC, but not the chain.

        Raises:
            LogFormatError: the parts do not form one batch.
        """
        assert self.is_whole
        return decode(self.data)


def held_at(partial: PartialBatch | None, offset: Offset) -> int:
    """Return how many bytes of the batch at `offset` have arrived."""
    return len(partial.data) if partial is not None and partial.offset == offset else 0


def joined(partial: PartialBatch | None, offset: Offset, part: BatchPart) -> PartialBatch | None:
    """Return `partial` with `part` appended; None if `part` does not continue `partial`."""
    held = held_at(partial, offset)
    if not part.is_sound or part.position != held:
        return None
    if held == 0 or partial is None:
        return PartialBatch(offset, part.size, part.data)
    return PartialBatch(offset, part.size, partial.data + part.data) if part.size == partial.size else None
