"""The positions that a reader of the past may ask for, and the refusals.

    Wanted(offset=1_244)        the batches that end at or below 1,244
    Wanted(time_ms=...)         the batches that were appended at or before this time

A batch takes effect as a whole, so an offset inside a batch shows the image before the batch. Times of batches never go back
(`metadata_log.format.batch`), so each time has one place in the log.
"""

from typing import NamedTuple

from metadata_log.format.batch import Batch, BatchHead
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Offset
from metadata_log.image.metadata_image import MetadataImage


class Wanted(NamedTuple):
    """A position in the log: one of the two fields is set. With both, both hold."""

    offset: Offset | None = None
    """End-exclusive: the image after [0, offset)."""
    time_ms: int | None = None
    """Milliseconds since 1970."""

    def takes(self, batch: BatchHead | Batch) -> bool:
        """Return True if `batch` lies at or below the position."""
        return self.reaches(batch.end_offset, batch.last_timestamp_ms)

    def reaches(self, end: Offset, timestamp_ms: int) -> bool:
        """Return True if the place `end`, below which the last batch has this time, lies at or below the position."""
        return (self.offset is None or end <= self.offset) and (self.time_ms is None or timestamp_ms <= self.time_ms)

    def __str__(self) -> str:
        texts = [] if self.offset is None else [f"offset {self.offset}"]
        return " and ".join(texts if self.time_ms is None else [*texts, f"time {self.time_ms} ms"])


class Reach(NamedTuple):
    """The part of the history that the files of one node can show: each offset from `lowest` to `end`."""

    lowest: Offset
    lowest_time_ms: int
    """The time of the last batch below `lowest`; 0 if no batch is below."""
    end: Offset
    """The end of the committed records."""


class OutOfReach(Exception):
    """The position is above the committed records, or below everything that snapshots, archive and log reach."""

    def __init__(self, text: str, reach: Reach) -> None:
        super().__init__(text)
        self.reach = reach
        """If the position is above the end: the end alone, because nobody has looked how far back the files reach."""

    @classmethod
    def above(cls, wanted: Wanted, end: Offset) -> "OutOfReach":
        """Make the error of a position above the committed records. O(1): a reader may ask for the future again and again."""
        text = f"the image at {wanted} cannot be shown: the committed records end at {end}. Nothing was read"
        return cls(text, Reach(end, 0, end))

    @classmethod
    def below(cls, wanted: Wanted, reach: Reach) -> "OutOfReach":
        """Make the error of a position below the files' reach."""
        text = (
            f"the image at {wanted} cannot be shown: this node can show each offset from {reach.lowest} "
            f"(time {reach.lowest_time_ms} ms) to {reach.end}. Nothing was read; ask for one of these, or ask another node"
        )
        return cls(text, reach)


class HistoryDamaged(LogFormatError):
    """A file that the image needs is damaged, or the files changed while they were read. No image was made."""


class Shown(NamedTuple):
    """An image of the past, with the proof of its place."""

    image: MetadataImage
    """Its `offset` is below `end` if a metadata transaction is open at `end`."""
    end: Offset
    """The end of the last batch that lies at or below the wanted position."""
    timestamp_ms: int
    """The time of this batch; 0 without a batch."""
    chain: bytes | None
    """The chain at `end`; None at the beginning of a log."""
    next_end: Offset | None
    next_time_ms: int | None
    """The end and the time of the next batch; None if no batch followed."""
    seen_end: Offset
    """How far the log was searched for skips of batches below `end`."""
    is_settled: bool
    """True if no later skip can drop a batch below `end`: the leader refuses a skip if a snapshot mark follows the batch."""

    @property
    def is_base(self) -> bool:
        """True if replay can go on from this image: no transaction is open at `end`."""
        return self.image.offset == self.end

    def answers(self, wanted: Wanted, committed_end: Offset) -> bool:
        """Return True if this is the image at `wanted` still, in a log that is committed up to `committed_end`."""
        is_above = wanted.offset is not None and wanted.offset > committed_end
        if is_above or not wanted.reaches(self.end, self.timestamp_ms):
            return False
        is_newest = self.end == wanted.offset or self.seen_end == committed_end == self.end
        is_next_above = self.next_end is not None and not wanted.reaches(self.next_end, self.next_time_ms or 0)
        return (is_newest or is_next_above) and (self.is_settled or self.seen_end == committed_end)
