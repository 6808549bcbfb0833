"""The history of a log, kept in memory: the start of each epoch, the records about voters and skipped batches, and the
time of the last batch.

Example: a log holds 0..6 of epoch 1, 7..11 of epoch 4, and from 12 on records of epoch 5. `epochs` is (1, 0) (4, 7) (5,
12). Cutting the log back to 9 leaves (1, 0) (4, 7).
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import TypeAlias

from metadata_log.format.batch import Batch
from metadata_log.format.codec import decode_batch
from metadata_log.format.ids import Epoch, Offset
from metadata_log.format.log_shape import EpochStart
from metadata_log.format.records import KRaftVersion, SkippedBatch, Voters
from metadata_log.store.damage import DamagedRange
from metadata_log.store.log_notes import LogStart

QuorumRecord: TypeAlias = Voters | KRaftVersion
"""The control records that name the voters and the protocol level. They take effect as soon as they are appended."""


class LogHistory:
    """The history of one log. The log reports every batch in order."""

    def __init__(self, start: LogStart) -> None:
        self.epochs: tuple[EpochStart, ...] = ()
        self.last_epoch: Epoch = start.start.epoch
        self.last_timestamp_ms = start.timestamp_ms
        self.quorum_records: list[tuple[Offset, QuorumRecord]] = []
        self.skipped: list[tuple[Offset, SkippedBatch]] = []

    def append(self, batch: Batch) -> None:
        """Add `batch`, the log's new last batch."""
        self._enter(batch.epoch, batch.base_offset)
        if batch.is_control:
            self._note(batch)
        self.last_timestamp_ms = max(self.last_timestamp_ms, batch.last_timestamp_ms)

    def _note(self, batch: Batch) -> None:
        for offset, record in enumerate(decode_batch(batch), batch.base_offset):
            if isinstance(record, Voters | KRaftVersion):
                self.quorum_records.append((offset, record))
            elif isinstance(record, SkippedBatch):
                self.skipped.append((offset, record))

    def _enter(self, epoch: Epoch, offset: Offset) -> None:
        if epoch != self.last_epoch or not self.epochs:
            self.epochs += (EpochStart(epoch, offset),)
            self.last_epoch = epoch

    def forget_from(self, end: Offset, start_epoch: Epoch, timestamp_ms: int) -> None:
        """Cut the history back to `end`; `timestamp_ms` is the time of the last remaining batch."""
        self.epochs = tuple(entry for entry in self.epochs if entry.start_offset < end)
        self.last_epoch = self.epochs[-1].epoch if self.epochs else start_epoch
        self.quorum_records = [entry for entry in self.quorum_records if entry[0] < end]
        self.skipped = [entry for entry in self.skipped if entry[0] < end]
        self.last_timestamp_ms = timestamp_ms

    def forget_below(self, start: Offset, end: Offset) -> None:
        """Move the log's start up to `start`; the log ends at `end`."""
        index = bisect_right(self.epochs, start, key=lambda each: each.start_offset) - 1
        if start == end:
            self.epochs = ()
        elif index >= 0:
            self.epochs = (EpochStart(self.epochs[index].epoch, start), *self.epochs[index + 1 :])
        self.quorum_records = [entry for entry in self.quorum_records if entry[0] >= start]
        self.skipped = [entry for entry in self.skipped if entry[0] >= start]

    def append_damaged(self, damaged: DamagedRange) -> None:
        """Add a damaged range.

        The range's records count as records of the epoch before them, except the last record, whose epoch is known. If
        an epoch began inside the range, this node believes that the epoch began later. The node may then keep records
        that it should cut, but it never cuts records that it should keep.
        """
        if not self.epochs and damaged.end - damaged.start > 1:
            self._enter(self.last_epoch, damaged.start)
        self._enter(damaged.epoch_after, damaged.end - 1)
        self.last_timestamp_ms = max(self.last_timestamp_ms, damaged.timestamp_after_ms)

    def start_inside(self, start: LogStart, damaged: DamagedRange) -> None:
        """Move the log's start into `damaged`. The history behind the range does not change."""
        fresh = LogHistory(start)
        fresh.append_damaged(damaged)
        for entry in self.epochs:
            if entry.start_offset >= damaged.end:
                fresh._enter(entry.epoch, entry.start_offset)
        self.epochs = fresh.epochs
        self.quorum_records = [entry for entry in self.quorum_records if entry[0] >= damaged.end]
        self.skipped = [entry for entry in self.skipped if entry[0] >= damaged.end]

    def replace_damaged(self, damaged: DamagedRange, batches: Sequence[Batch]) -> None:
        """Replace what `append_damaged` assumed about `damaged` by the repaired batches."""
        epochs = [entry for entry in self.epochs if entry.start_offset < damaged.start]
        filling = [EpochStart(batch.epoch, batch.base_offset) for batch in batches]
        for entry in [*filling, *(entry for entry in self.epochs if entry.start_offset >= damaged.end)]:
            if not epochs or epochs[-1].epoch != entry.epoch:
                epochs.append(entry)
        self.epochs = tuple(epochs)
        outside = [entry for entry in self.quorum_records if not damaged.start <= entry[0] < damaged.end]
        not_inside = [entry for entry in self.skipped if not damaged.start <= entry[0] < damaged.end]
        self.quorum_records, self.skipped = outside, not_inside
        for batch in batches:
            if batch.is_control:
                self._note(batch)
        self.quorum_records.sort(key=lambda entry: entry[0])
        self.skipped.sort(key=lambda entry: entry[0])
