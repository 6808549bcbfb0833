"""The shape of a log: where it starts and ends, how far it is durable, and which epoch wrote what.

This is all that Raft needs to know of a log, and all that the pure core ever sees of it. A shape is a value: each
operation of the log makes a new one.

    start         flushed_end      end
      |                |            |
      v                v            v
      [----------------|------------)        every offset exclusive at the right
      epoch 1 | epoch 4    | epoch 5          the epoch table: (1, 0) (4, 7) (5, 12)

    start <= flushed_end <= end.  Not: flushed_end >= high watermark of the *leader* (a follower may lag);
    but a node applies, and counts for others, only what lies below its own flushed_end.
"""

from bisect import bisect_right
from itertools import pairwise
from typing import NamedTuple

from metadata_log.format.ids import Epoch, Offset, OffsetAndEpoch


class EpochStart(NamedTuple):
    """The first offset that was written in `epoch`."""

    epoch: Epoch
    start_offset: Offset


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
    """The newest snapshot that is durable on this node; None where there is none but the bootstrap one."""

    @property
    def last_epoch(self) -> Epoch:
        """The epoch of the last record, or of the snapshot below it where the log is empty."""
        return self.epochs[-1].epoch if self.epochs else self.start.epoch

    @property
    def end_and_epoch(self) -> OffsetAndEpoch:
        """What a voter compares: the end offset and the epoch of the last record (Raft 5.4.1)."""
        return OffsetAndEpoch(self.end, self.last_epoch)

    def epoch_below(self, offset: Offset) -> Epoch | None:
        """The epoch of the record at `offset - 1`; None if that lies outside the log."""
        if offset == self.start.offset:
            return self.start.epoch
        if not self.start.offset < offset <= self.end:
            return None
        index = bisect_right(self.epochs, offset - 1, key=lambda entry: entry.start_offset) - 1
        assert index >= 0
        return self.epochs[index].epoch

    def end_of_epoch(self, epoch: Epoch) -> OffsetAndEpoch:
        """Where the largest epoch that is at most `epoch` ends here: the point to truncate to (KIP-595, divergence).

        The log's start if all that it holds is of later epochs.
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
