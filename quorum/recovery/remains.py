"""The readable parts of a log on a disk. Reads as a start would read (`metadata_log.store.recovery`), and changes nothing.

The reader goes on behind damage if intact batches behind the damage prove their place in the history. A *run* is a part of the
log without a gap. Two runs are useful: the first run, and the run that contains the end of the newest snapshot, because the
snapshot replaces every record below its end.

    first run     damaged            damaged
    [ intact    |~~~~~~~~|  intact  |~~~~~~~~| intact ]
                               ^    |
                       snapshot     the log counts up to here

Example: controller 1 has records 0 to 99 and a snapshot at 60. Records 20 to 29 and 80 to 89 are damaged.

    1. The runs are [0, 20), [30, 80) and [90, 100).
    2. Records 0 to 19 are readable: `first` is [0, 20).
    3. The second run contains 60. With the snapshot, history is known up to 80: `last` is [60, 80).
    4. The run [90, 100) is useless: nothing on this disk has records 80 to 89.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from metadata_log.disk.files import Directory
from metadata_log.format.batch import Batch
from metadata_log.format.errors import CorruptLog
from metadata_log.format.ids import Epoch, Offset, OffsetAndEpoch
from metadata_log.store.damage import DamagedRange, LostTail
from metadata_log.store.log_notes import Flushed, LogStart, read_start
from metadata_log.store.recovery import Recovery
from metadata_log.store.segment import segment_names
from metadata_log.store.segment_repair import read_again
from snapshots.format import SnapshotMeta


class Place(NamedTuple):
    """A place in history: the offset, and the epoch and chain of the record before it."""

    offset: Offset
    epoch: Epoch
    chain: bytes


class Run(NamedTuple):
    """A part of the log without a gap."""

    start: Place
    end: Place


def place_of(snapshot: SnapshotMeta | None) -> Flushed | None:
    """Returns the end and chain of a snapshot; None without a snapshot."""
    return None if snapshot is None else Flushed(snapshot.end.offset, snapshot.chain)


class Remains:
    """One pass over a log. Read all of `batches` first; the other methods and fields are complete after that."""

    def __init__(
        self, metadata: Directory, proven: Flushed | None, first_chain: bytes, snapshot: SnapshotMeta | None
    ) -> None:
        self.proven = proven
        """The durable end that this pass assumes: the `flushed` note, or a later place that the snapshot proves."""
        self.damages: list[str] = []
        self.stop: str | None = None
        """The reason why the pass ended before the end of the files; None if it reached the end. (A torn tail is no damage.)"""
        self.runs: list[Run] = []
        self._standing: int | None = None
        """Index of the run that contains the snapshot's end, with the snapshot's chain."""
        self._epoch_instead: Epoch | None = None
        """Epoch of the log at the snapshot's end, if the log has another record than the snapshot there."""
        self._metadata = metadata
        self._snapshot = None if snapshot is None else Place(*snapshot.end, snapshot.chain)
        noted = read_start(metadata)
        begin = noted or LogStart(OffsetAndEpoch(0, 0), first_chain, 0)
        is_new = noted is None and not segment_names(metadata) and (proven is None or proven.end == 0)
        self.log_start: Offset = begin.start.offset
        self._begin_at(Place(*begin.start, begin.chain))
        # After the begin of a reset no segment counts.
        self._recovery = None if begin.resetting or is_new else Recovery(metadata, noted, proven, place_of(snapshot))
        self._is_noted = noted is not None

    # --- reading ---------------------------------------------------------------------------------------------------

    def batches(self) -> Iterator[Batch]:
        """Yields all intact batches, in order."""
        recovery = self._recovery
        if recovery is None:
            return
        begun = False
        try:
            for item in recovery.read():
                if not begun:
                    self._begin(recovery)
                    begun = True
                if isinstance(item, Batch):
                    self._take(item)
                    yield item
                else:
                    yield from self._step_over(item, recovery)
            if not begun:
                self._begin(recovery)
        finally:
            for piece in recovery.pieces:
                piece.release()
        self.stop = None if recovery.stop is None else str(recovery.stop)

    def _begin(self, recovery: Recovery) -> None:
        if not recovery.pieces:
            return
        header = recovery.pieces[0].header
        self._begin_at(Place(*header.start, header.previous_chain))
        self.log_start = recovery.start.start.offset
        if not self._is_noted and self.log_start > 0:
            self.damages.append(f"its log should start at 0, and the records before {self.log_start} are missing")

    def _begin_at(self, place: Place) -> None:
        """Begins anew at the log's start. Damage below the log's start does not matter."""
        self.runs.clear()
        self._standing = self._epoch_instead = None
        self._begin_run(place)

    def _begin_run(self, place: Place) -> None:
        self.runs.append(Run(place, place))
        self._look_at(place)

    def _take(self, batch: Batch) -> None:
        place = Place(batch.end_offset, batch.epoch, batch.chain)
        self.runs[-1] = self.runs[-1]._replace(end=place)
        if self._snapshot is not None and batch.base_offset < self._snapshot.offset < batch.end_offset:
            self._epoch_instead = batch.epoch
        self._look_at(place)

    def _look_at(self, place: Place) -> None:
        if self._snapshot is not None and place.offset == self._snapshot.offset:
            if place.chain == self._snapshot.chain:
                self._standing = len(self.runs) - 1
            else:
                self._epoch_instead = place.epoch

    def _step_over(self, damaged: DamagedRange, recovery: Recovery) -> Iterator[Batch]:
        """Reads a damaged range again, and yields its batches if the disk returns them now.

        If the range contains the snapshot's end, the part above that end is enough: the snapshot has the chain there.
        """
        start, snapshot = recovery.start, self._snapshot
        behind = Place(damaged.end, damaged.epoch_after, damaged.chain_after)
        if damaged.end <= start.start.offset:
            self._begin_at(behind)
            return
        if damaged.start == damaged.end:
            return  # no record is missing
        self.damages.append(f"damage: {damaged}")
        if damaged.start == start.start.offset:
            self._begin_at(Place(*start.start, start.chain))
        is_inside = snapshot is not None and damaged.start < snapshot.offset < damaged.end
        wanted = damaged.above(snapshot.offset, snapshot.chain) if snapshot is not None and is_inside else damaged
        others = [each for each in recovery.ranges if each != damaged]
        found = read_again(self._metadata, wanted, others)
        is_all = bool(found) and found[-1].end_offset == damaged.end
        if not is_all:
            self._begin_run(behind)
            return
        if snapshot is not None and is_inside:
            self._begin_run(snapshot)
        for batch in found:
            self._take(batch)
            yield batch

    # --- judging ---------------------------------------------------------------------------------------------------

    def lost(self) -> Flushed | None:
        """Returns the end of the records that were durable and cannot be read, as a start would judge; None if all can."""
        try:
            if self._recovery is not None:
                self._recovery.settle(may_lose=lambda: False)
        except LostTail as e:
            return Flushed(e.durable_end, e.durable_chain)
        except CorruptLog as e:
            self.damages.append(str(e))
        return None

    @property
    def is_broken(self) -> bool:
        """True if the log has a gap, or could not be read to its end."""
        return self.stop is not None or len(self.runs) > 1

    @property
    def is_replaced(self) -> bool:
        """True if the log has another epoch at the snapshot's end: the snapshot is from a leader, and a start drops the log."""
        return self._snapshot is not None and self._epoch_instead not in (None, self._snapshot.epoch)

    @property
    def is_contradicted(self) -> bool:
        """True if log and snapshot have the same epoch and different chains. No controller starts with both."""
        return self._snapshot is not None and self._epoch_instead == self._snapshot.epoch

    @property
    def ends_below_snapshot(self) -> bool:
        """True if the log has no readable record at the snapshot's end: the log is damaged there, or ends below."""
        snapshot = self._snapshot
        is_above = snapshot is not None and snapshot.offset > self.runs[0].start.offset
        return is_above and self._standing is None and self._epoch_instead is None

    def first(self) -> Run:
        """Returns the run at the log's start; an empty run if the snapshot has replaced the log."""
        first = self.runs[0]
        return first._replace(end=first.start) if self.is_replaced else first

    def last(self) -> Run:
        """Returns the run with the last useful record: from the snapshot's end on, or the first run.

        The run is empty if only the snapshot is left.
        """
        snapshot = self._snapshot
        if self._standing is not None and self._standing > 0:
            assert snapshot is not None
            return self.runs[self._standing]._replace(start=snapshot)
        if self.is_replaced or self.ends_below_snapshot:
            assert snapshot is not None
            return Run(snapshot, snapshot)
        return self.runs[0]
