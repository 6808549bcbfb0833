"""What is left of a log on a disk, read as a start would read it (`metadata_log.store.recovery`), and changed by nobody.

It is read over what is damaged, where what comes behind proves itself. So it comes in runs. Of use are those that lead without a
gap to an end: the first one, and the one that goes on where the newest snapshot ends.

    first run     damaged        damaged       damaged
    [ intact    |~~~~~~~~| intact   |   intact  |~~~~~| intact ]
                                    snapshot    end             behind that nothing is of use
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
    """A place in history, and what lies below: the last record's epoch, the chain."""

    offset: Offset
    epoch: Epoch
    chain: bytes


class Run(NamedTuple):
    """What is there without a gap."""

    start: Place
    end: Place


def place_of(snapshot: SnapshotMeta | None) -> Flushed | None:
    """The place in the log that a snapshot vouches for."""
    return None if snapshot is None else Flushed(snapshot.end.offset, snapshot.chain)


class Remains:
    """One pass over a log: `batches`, all that are intact, in order. From then on the rest says what was found."""

    def __init__(
        self, metadata: Directory, proven: Flushed | None, first_chain: bytes, snapshot: SnapshotMeta | None
    ) -> None:
        self.proven = proven
        """Up to here it was durable once, for whoever reads it."""
        self.damages: list[str] = []
        self.stop: str | None = None
        """Why it was read no further. A torn tail is no damage."""
        self.runs: list[Run] = []
        self._standing: int | None = None
        """Which run goes on at the snapshot's end."""
        self._epoch_instead: Epoch | None = None
        """That of the log at the snapshot's end, where it has something else there."""
        self._metadata = metadata
        self._snapshot = None if snapshot is None else Place(*snapshot.end, snapshot.chain)
        noted = read_start(metadata)
        begin = noted or LogStart(OffsetAndEpoch(0, 0), first_chain, 0)
        is_new = noted is None and not segment_names(metadata) and (proven is None or proven.end == 0)
        self.log_start: Offset = begin.start.offset
        self._begin_at(Place(*begin.start, begin.chain))
        # Where a reset had begun, no segment counts.
        self._recovery = None if begin.resetting or is_new else Recovery(metadata, noted, proven, place_of(snapshot))
        self._is_noted = noted is not None

    # --- reading ---------------------------------------------------------------------------------------------------

    def batches(self) -> Iterator[Batch]:
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
            self.damages.append(f"its log should start at 0, and what stands before {self.log_start} is missing")

    def _begin_at(self, place: Place) -> None:
        """What was read before is below the log's start: nobody misses what is damaged there."""
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
        """What of it the disk gives after all: all, or all above the snapshot's end, where the chain is known again."""
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
        """What had been durable and cannot be read any more, as a start would judge it."""
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
        """Whether it was not read to its end without a gap."""
        return self.stop is not None or len(self.runs) > 1

    @property
    def is_replaced(self) -> bool:
        """Whether the snapshot has replaced it: a leader gives one where it has another epoch, and a start lets the log go."""
        return self._snapshot is not None and self._epoch_instead not in (None, self._snapshot.epoch)

    @property
    def is_contradicted(self) -> bool:
        """Whether the snapshot is of another history. With both, no controller starts."""
        return self._snapshot is not None and self._epoch_instead == self._snapshot.epoch

    @property
    def ends_below_snapshot(self) -> bool:
        """Whether there is nothing at the snapshot's end: damage, or no log any more."""
        snapshot = self._snapshot
        is_above = snapshot is not None and snapshot.offset > self.runs[0].start.offset
        return is_above and self._standing is None and self._epoch_instead is None

    def first(self) -> Run:
        """What begins where the log does."""
        first = self.runs[0]
        return first._replace(end=first.start) if self.is_replaced else first

    def last(self) -> Run:
        """What leads to the end: the first one too, or what goes on where the snapshot ends, if only that."""
        snapshot = self._snapshot
        if self._standing is not None and self._standing > 0:
            assert snapshot is not None
            return self.runs[self._standing]._replace(start=snapshot)
        if self.is_replaced or self.ends_below_snapshot:
            assert snapshot is not None
            return Run(snapshot, snapshot)
        return self.runs[0]
