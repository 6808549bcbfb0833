"""Reads the history that a damaged disk still proves: the newest whole snapshot, and what follows it without a gap.

Reads as a start would read (`metadata_log.store.recovery`), and changes nothing. Three cases:

    [ start ... snapshot ... end )                  no damage: the whole log
    [ start ... snapshot ... end )~~~~~ ...         damage above the snapshot: the log up to the damage
    ... ~~~~~ ... [ snapshot ... end )              damage below the snapshot: from the snapshot's end on

Example: controller 1 has records 0 to 99 and a snapshot at 60.

    1. Records 20 to 29 are damaged: the history is the snapshot and records 60 to 99. Records 0 to 19 are not needed.
    2. Records 80 to 89 are damaged as well, in a later segment: the history ends at 80. Records 90 to 99 are left out, because no
       byte on this disk says what came before.
    3. Record 60 is damaged: the history is the snapshot alone.
    4. The log ends at 40, and the note `flushed` says 60: the history is the snapshot alone, and no record is lost. If the note
       says 100, records 60 to 99 are lost.
    5. A damaged range [50, 70) contains the snapshot's end. The snapshot's chain proves records 60 to 69, if they are intact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from metadata_log.disk.files import Directory
from metadata_log.format.batch import Batch
from metadata_log.format.errors import CorruptLog
from metadata_log.format.ids import Epoch, Offset, OffsetAndEpoch
from metadata_log.store.damage import DamagedRange, LostTail
from metadata_log.store.log_notes import Flushed, LogStart, read_start
from metadata_log.store.recovery import Recovery
from metadata_log.store.salvage import following
from metadata_log.store.segment import segment_names
from snapshots.format import SnapshotMeta


class Place(NamedTuple):
    """A place in history: the offset, and the epoch and chain of the record before it."""

    offset: Offset
    epoch: Epoch
    chain: bytes


def place_of(snapshot: SnapshotMeta | None) -> Flushed | None:
    """Returns the end and chain of a snapshot; None without a snapshot."""
    return None if snapshot is None else Flushed(snapshot.end.offset, snapshot.chain)


class Remains:
    """One pass over a log. Read all of `batches` first; the other methods and fields are complete after that."""

    def __init__(
        self, metadata: Directory, note: Flushed | None, first_chain: bytes, snapshot: SnapshotMeta | None
    ) -> None:
        self.damages: list[str] = []
        self.stop: str | None = None
        """The reason why the pass ended before the end of the files; None if it reached the end. (A torn tail is no damage.)"""
        self.left_out: Flushed | None = None
        """The end of intact records behind a gap, which are no part of the history."""
        self._snapshot = None if snapshot is None else Place(*snapshot.end, snapshot.chain)
        self._has_snapshot_place = False
        self._epoch_instead: Epoch | None = None
        """Epoch of the log at the snapshot's end, if the log has another record than the snapshot there."""
        self._metadata = metadata
        noted = read_start(metadata)
        begin = noted or LogStart(OffsetAndEpoch(0, 0), first_chain, 0)
        is_new = noted is None and not segment_names(metadata) and (note is None or note.end == 0)
        self.log_start: Offset = begin.start.offset
        self._begin_at(Place(*begin.start, begin.chain))
        # After the begin of a reset no segment counts.
        self._recovery = None if begin.resetting or is_new else Recovery(metadata, noted, note, place_of(snapshot))
        self._is_noted = noted is not None

    # --- reading ---------------------------------------------------------------------------------------------------

    def batches(self) -> Iterator[Batch]:
        """Yields all intact batches, in order; those in [start, end) are the history."""
        recovery = self._recovery
        if recovery is not None:
            try:
                yield from self._read(recovery)
            finally:
                for segment in recovery.segments:
                    segment.release()
            self.stop = None if recovery.stop is None else str(recovery.stop)
        snapshot = self._snapshot
        if snapshot is not None and (self.is_replaced or self._ends_below(snapshot)):
            self.start = self.end = snapshot

    def _read(self, recovery: Recovery) -> Iterator[Batch]:
        has_begun = False
        for item in recovery.read():
            if not has_begun:
                self._begin(recovery)
                has_begun = True
            if isinstance(item, Batch):
                self._take(item)
                yield item
            else:
                yield from self._step_over(item, recovery.start)
        if not has_begun:
            self._begin(recovery)

    def _begin(self, recovery: Recovery) -> None:
        if not recovery.segments:
            return
        header = recovery.segments[0].header
        if header is not None:
            self._begin_at(Place(*header.start, header.previous_chain))
        self.log_start = recovery.start.start.offset
        if not self._is_noted and self.log_start > 0:
            self.damages.append(f"its log should start at 0, and the records before {self.log_start} are missing")

    def _begin_at(self, place: Place) -> None:
        self.start = self.end = place
        self._is_going_on = True
        self._look_at(place)

    def _take(self, batch: Batch) -> None:
        place = Place(batch.end_offset, batch.epoch, batch.chain)
        if self._snapshot is not None and batch.base_offset < self._snapshot.offset < batch.end_offset:
            self._epoch_instead = batch.epoch
        self._go_on_at(place)

    def _go_on_at(self, place: Place) -> None:
        """Takes `place`, to which intact records have led."""
        self._look_at(place)
        if self._is_going_on:
            self.end = place
        elif place == self._snapshot and self.end.offset < place.offset:
            self._begin_at(place)
        else:
            self.left_out = Flushed(place.offset, place.chain)

    def _look_at(self, place: Place) -> None:
        if self._snapshot is not None and place.offset == self._snapshot.offset:
            if place.chain == self._snapshot.chain:
                self._has_snapshot_place = True
            else:
                self._epoch_instead = place.epoch

    def _step_over(self, damaged: DamagedRange, start: LogStart) -> Iterator[Batch]:
        behind = Place(damaged.end, damaged.epoch_after, damaged.chain_after)
        if damaged.end <= start.start.offset:
            self._begin_at(behind)  # damage below the log's start does not matter
            return
        if damaged.start == damaged.end:
            return  # no record is missing
        self.damages.append(f"damage: {damaged}")
        if damaged.start == start.start.offset:
            self._begin_at(Place(*start.start, start.chain))
        self._is_going_on = False
        proven = self._proven_by_snapshot(damaged)
        if proven and self._snapshot is not None:
            self._begin_at(self._snapshot)
        for batch in proven:
            self._take(batch)
            yield batch
        self._go_on_at(behind)

    def _proven_by_snapshot(self, damaged: DamagedRange) -> Sequence[Batch]:
        """Finds the records from the snapshot's end to the end of `damaged`, if all of these records are intact."""
        snapshot = self._snapshot
        if snapshot is None or not damaged.start <= snapshot.offset < damaged.end:
            return ()
        behind = following(self._metadata, Flushed(snapshot.offset, snapshot.chain))
        found = [batch for batch in behind if batch.end_offset <= damaged.end]
        is_all = bool(found) and (found[-1].end_offset, found[-1].chain) == (damaged.end, damaged.chain_after)
        return found if is_all else ()

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
    def is_replaced(self) -> bool:
        """True if the log has another epoch at the snapshot's end: the snapshot is from a leader, and a start drops the log."""
        return self._snapshot is not None and self._epoch_instead not in (None, self._snapshot.epoch)

    @property
    def is_contradicted(self) -> bool:
        """True if log and snapshot have the same epoch and different chains. No controller starts with both."""
        return self._snapshot is not None and self._epoch_instead == self._snapshot.epoch

    def _ends_below(self, snapshot: Place) -> bool:
        """True if the log has no readable record at the snapshot's end: the log is damaged there, or ends below."""
        is_above = snapshot.offset > self.log_start
        return is_above and not self._has_snapshot_place and self._epoch_instead is None
