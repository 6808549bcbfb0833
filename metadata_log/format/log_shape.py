"""The shape of a log: its start and end, how far it is durable, and which epoch wrote which offsets.

The pure Raft core sees only this shape of a log. A shape is a value: each change of the log makes a new shape.

    start         flushed_end      end
      |                |            |
      v                v            v
      [----------------|------------)        every offset exclusive at the right
      epoch 1 | epoch 4    | epoch 5          the epoch table: (1, 0) (4, 7) (5, 12)

Always start <= flushed_end <= end. A follower's flushed_end may be below the *leader's* high watermark, because a
follower may lag. But a node applies only records below its own flushed_end, and only these count for the quorum.

Example, with the epoch table above: the record at 6 has epoch 1 (`epoch_below(7)` gives 1), and epoch 4 ends at 12
(`end_of_epoch(4)` gives 12@4). Epoch 3 wrote nothing, so the epoch below counts: `end_of_epoch(3)` gives 7@1.
"""

from bisect import bisect_right
from itertools import pairwise
from typing import NamedTuple

from metadata_log.format.ids import Epoch, Offset, OffsetAndEpoch


class EpochStart(NamedTuple):
    """The first offset that was written in `epoch`."""

    epoch: Epoch
    start_offset: Offset


class SegmentSpan(NamedTuple):
    """One segment of a log: the records [base_offset, end_offset)."""

    base_offset: Offset
    end_offset: Offset
    size_bytes: int
    last_timestamp_ms: int
    """The largest timestamp of this segment and of all segments before it."""


class LogShape(NamedTuple):
    """An immutable description of one log.

    Invariants: `epochs` ascends in both fields; its first entry, if any, starts at or above `start.offset`; `start` is
    (0, 0) or the end of a snapshot that is durable on this node.
    """

    start: OffsetAndEpoch
    end: Offset
    flushed_end: Offset
    epochs: tuple[EpochStart, ...]
    chain: bytes
    """The chain at `end`: the hash of all history."""
    flushed_chain: bytes
    """The chain at `flushed_end`."""
    snapshot: OffsetAndEpoch | None = None
    """The newest snapshot that is durable on this node; None if only the bootstrap snapshot exists."""

    @property
    def last_epoch(self) -> Epoch:
        """The epoch of the last record; in an empty log, the epoch of the snapshot below."""
        return self.epochs[-1].epoch if self.epochs else self.start.epoch

    @property
    def end_and_epoch(self) -> OffsetAndEpoch:
        """The end offset and the epoch of the last record, which voters compare in an election (Raft 5.4.1)."""
        return OffsetAndEpoch(self.end, self.last_epoch)

    def epoch_below(self, offset: Offset) -> Epoch | None:
        """Return the epoch of the record at `offset - 1`; None if that record is outside the log."""
        if offset == self.start.offset:
            return self.start.epoch
        if not self.start.offset < offset <= self.end:
            return None
        index = bisect_right(self.epochs, offset - 1, key=lambda entry: entry.start_offset) - 1
        assert index >= 0
        return self.epochs[index].epoch

    def end_of_epoch(self, epoch: Epoch) -> OffsetAndEpoch:
        """Return the end of the largest epoch that is at most `epoch`: the offset to truncate to after a divergence
        (KIP-595).

        Returns the log's start if all its records have later epochs.
        """
        index = bisect_right(self.epochs, epoch, key=lambda entry: entry.epoch)
        if index == 0:
            return self.start
        end = self.epochs[index].start_offset if index < len(self.epochs) else self.end
        return OffsetAndEpoch(end, self.epochs[index - 1].epoch)

    def check_invariants(self) -> None:
        start, end, epochs = self.start, self.end, self.epochs
        assert start.offset <= self.flushed_end <= end, self
        if not epochs:
            assert start.offset == end, self
            return
        assert epochs[0].epoch >= start.epoch, self
        assert start.offset <= epochs[0].start_offset < end, self
        for before, after in pairwise(epochs):
            assert before.epoch < after.epoch, self
            assert before.start_offset < after.start_offset, self
