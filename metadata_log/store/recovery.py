"""Recovery: decide which bytes of the files are the log, which are a torn tail, and which are damage.

A power cut keeps any subset of the sectors that were not flushed. So *above* the durable end the files may hold
anything: half a batch, a hole, a later batch without an earlier one. These bytes are a **torn tail**. No other node was
told of them, and recovery cuts them. *Below* the durable end, everything was on the disk once, so only a broken disk
explains damage there. Other nodes may count on those records. Recovery never cuts them silently.

    intact               o                           o = the first offset that is not intact
    [--------------------|~~~~~~~~~~~~~~)
                ^                                    durable up to here: a torn tail, cut at o
                                  ^                  durable up to here, nothing intact behind: LostTail
    [--------------------|~~~|-----------------)
                                  ^                  durable up to here: a DamagedRange, the log goes on behind it

Example. The log has batches for 0..59, and the batch of 40..49 has a wrong checksum:
  1. `flushed` says 40: the bytes from 40 on were not durable yet, and a power cut explains the damage. Recovery cuts
     at 40.
  2. `flushed` says 60, and 50..59 are intact and lead to the noted chain at 60: the range [40, 50) is damaged, and the
     log still ends at 60. The node fetches 40..49 from another voter.
  3. `flushed` says 60, and the batch of 50..59 is damaged too: LostTail. The node had acknowledged up to 60 and can
     only prove 40.

*The durable end is known* from the note `flushed`. For all segments but the last, the header of the next segment says
it as well, because a segment is sealed before the next one exists.

*Going on behind damage* is the subject of `resume`.

*The note `flushed` is missing or damaged* (no crash causes that). Recovery then has only the segments. If the last
segment has an intact batch with a later offset behind the damage, the end is lost; otherwise the damage is a torn tail.

*A read error never shortens a log.* An unreadable sector inside the log is damage like any other. But recovery does not
cut bytes that the disk cannot read; the start fails instead. Example, if recovery cut them:
  1. Node 1 flushes 0..99 and notes 100, then flushes 100..109, acknowledges them, and notes 110.
  2. The power fails, and the note is 100 again. The disk cannot read the sector with 100..109 for a moment.
  3. Node 1 takes the sector for a torn tail, cuts at 100, and votes as if it had never acknowledged 100..109.

*The note is older than the node's newest snapshot.* A power cut may bring back such a note. The snapshot was made from
durable records, so damage below the snapshot's end is not a torn tail. If batches continue the snapshot, recovery goes
on behind the damage as far as these batches lead. If the record at the snapshot's end is damaged as well, an intact
batch above it means that the end is lost, as without a note. A snapshot that was installed just before a crash, before
the log was reset to it, has no batch above it.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Final

from metadata_log.disk.copy import copy_file
from metadata_log.format.batch import Batch
from metadata_log.format.errors import CorruptLog
from metadata_log.format.ids import Offset
from metadata_log.store.damage import LostTail
from metadata_log.store.log_notes import Flushed
from metadata_log.store.recovery_scan import RecoveryScan
from metadata_log.store.resume import DamagedPlace
from metadata_log.store.salvage import intact_batches
from metadata_log.store.segment import (
    SEGMENT_HEADER_BYTES,
    segment_name,
)

DAMAGED_SUFFIX: Final = ".damaged"
_WINDOW_BYTES: Final = 1 << 20


class Recovery(RecoveryScan):
    """One recovery of one directory. Call `read` once to scan, then `settle` once to judge, then `cut`."""

    # --- judging ---------------------------------------------------------------------------------------------------

    def settle(self, *, may_lose: Callable[[], bool]) -> Flushed | None:
        """Judge: return how far the log had been durable if its end is lost; None if no end is lost. Changes nothing.

        Raises:
            LostTail: the log's durable end is lost, and `may_lose` returns False.
            CorruptLog: the files do not hold what was written, or do not belong together.
            OSError: the disk cannot read bytes that would be cut. The disk may be able to read them at the next start.
        """
        damage, where = self._damage, self._where()
        if self._foreign:
            raise where
        if damage is not None:
            self._check_readable(damage)
        known = [place for place in self._promised if place.end > self._end]
        if damage is not None and (behind := self._lost_behind(damage)) is not None:
            known.append(behind)  # also beside a promise: an old note may be below the damage that hides the end
        lost = max(known, default=None)
        if not self.segments and lost is None and not self._is_empty():
            raise where
        if self.segments:
            self._check_promises_kept()
        if lost is not None and not may_lose():
            raise LostTail.what(where, self._end, lost.end, lost.chain)
        return lost

    def _check_readable(self, damage: DamagedPlace) -> None:
        """Raise OSError if the disk cannot read all bytes from `damage` on, which a cut would remove."""
        for index in range(damage.file_index, len(self._names)):
            position = damage.position if index == damage.file_index else 0
            with closing(self._directory.open(self._names[index])) as file:
                try:
                    while data := file.read_at(position, _WINDOW_BYTES):
                        position += len(data)
                except OSError as e:
                    text = f"{self._where()}; the disk cannot read the bytes behind that ({e.strerror})"
                    raise OSError(
                        e.errno,
                        f"{text}. Nothing was cut; the next start reads them again. If the disk never can, give the node a new "
                        "directory",
                    ) from e

    def _is_empty(self) -> bool:
        """Return True if the log has only a file without a header at its start, and the note knows of no record above
        that.

        After a node installs a snapshot in an idle cluster, the log may have nothing but a header for hours.
        """
        start = self._start.start.offset if self._start else 0
        return self._note is not None and not self._names and self._leftovers == [segment_name(start)]

    def _check_promises_kept(self) -> None:
        for promised in self._promised:
            end = promised.end
            within = any(damaged.start < end < damaged.end for damaged in self.ranges)
            if promised not in self._kept and self._lowest <= end <= self._end and not within:
                reason = f"the chain at {end} is not the one noted there"
                raise CorruptLog.at(self._directory.path_text, 0, self._lowest, reason)

    def _lost_behind(self, damage: DamagedPlace) -> Flushed | None:
        """Return how far the records behind `damage` had been durable; None if they are a torn tail, as far as can be
        known.
        """
        without_note = self._note is None
        if not without_note and damage.offset >= self._snapshot_end:
            return None
        last: Flushed | None = None
        for batch in self._intact_behind(damage, damage.offset + 1 if without_note else self._snapshot_end):
            if batch.base_offset == self._snapshot_end and not without_note:
                return None  # intact, but does not continue the snapshot: another history
            last = max(last or Flushed(0, b""), Flushed(batch.end_offset, batch.chain))
        return last

    def _intact_behind(self, damage: DamagedPlace, lowest: Offset) -> Iterator[Batch]:
        for index in range(damage.file_index, len(self._names)):
            position = damage.position if index == damage.file_index else SEGMENT_HEADER_BYTES
            with closing(self._directory.open(self._names[index])) as file:
                for _, batch in intact_batches(file, position, lowest):
                    yield batch

    # --- cutting ---------------------------------------------------------------------------------------------------

    def set_aside(self) -> None:
        """Copy the file from which `cut` will take bytes, durably, for later inspection."""
        damage = self._damage
        if damage is not None and self.segments and self.segments[-1].name == self._names[damage.file_index]:
            copy_file(self._directory, self.segments[-1].name, self.segments[-1].name + DAMAGED_SUFFIX)

    def cut(self, *, keep_files: bool) -> None:
        """End the log where it is intact, durably. Delete whole files behind that, or keep them as `*.damaged`."""
        for name in self._leftovers:
            self._directory.remove(name)
        damage = self._damage
        if damage is None:
            return
        kept = self._names.index(self.segments[-1].name) + 1 if self.segments else 0
        # Newest first: after a crash in here the directory again has an intact log with a torn tail.
        for name in reversed(self._names[kept:]):
            if keep_files:
                self._directory.rename(name, name + DAMAGED_SUFFIX)
            else:
                self._directory.remove(name)
        self._directory.flush()
        if damage.file_index < kept:
            self.segments[-1].cut_tail()
