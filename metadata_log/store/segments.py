"""All segment files of one log, oldest first. The last one is active; the others are sealed.

    segment        segment            segment          segment (active)
    [------------)[------~~~~~~------)[--------------)[------------)
                         damaged range [130, 170)

A reader meets damage where the ledger (`damage`) has a range, and nowhere else. Example: file 1 has the records
100..199, and a scrub finds damage at 150. The index has entries at 100, 130 and 170. From now on the range [130, 170)
is damaged. A read at 120 returns the batches up to 129; a read at 130 raises DamagedRangeRead.

Several files are changed in an order that leaves a log after any crash, although perhaps an older one:
  * a cut deletes the newest file first, so that no gap opens;
  * a segment is sealed (exact length, fsync) before the next one is created, so that only the last one can be torn;
  * segments below the log's start are retired after the start has moved, because recovery ignores files below the
    start.

Only a few sealed files are kept open (`LogConfig.open_files_max`).
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from metadata_log.disk.files import Directory
from metadata_log.format.batch import Batch, verify_chain
from metadata_log.format.errors import CorruptLog
from metadata_log.format.ids import Epoch, Offset, OffsetAndEpoch
from metadata_log.format.log_shape import SegmentSpan
from metadata_log.store.archive import Archive
from metadata_log.store.damage import DamagedRange, DamagedRangeRead, DamageLedger
from metadata_log.store.log_memory import LogMemory
from metadata_log.store.log_notes import LogStart
from metadata_log.store.segment import BadBatch, SegmentHeader, base_offset_of, segment_names, walk
from metadata_log.store.segment_file import Segment
from metadata_log.store.segment_repair import repaired


class Extent(NamedTuple):
    """Adjacent batches in one file, [position, end_position). This is everything that a scrub needs to check them."""

    name: str
    position: int
    end_position: int
    chain: bytes | None
    """The chain before the first batch; None if the batches have no chain to check (batches of a snapshot)."""


class LogPlace(NamedTuple):
    """The start and the end of a log, and the epochs between."""

    start: LogStart
    end_chain: bytes
    epoch_below: Callable[[Offset], Epoch | None]
    """Return the epoch of the record below an offset; None if that record is outside the log."""


class Segments:
    """The segments and damaged ranges of one log. Never empty once the log is open."""

    def __init__(self, directory: Directory, *, archive: bool, open_files_max: int) -> None:
        self._directory = directory
        self._open_files_max = open_files_max
        self.archive = Archive(directory) if archive else None
        self._files: list[Segment] = []
        self._opened: deque[Segment] = deque()
        self.ledger = DamageLedger()

    @property
    def active(self) -> Segment:
        return self._files[-1]

    @property
    def files(self) -> tuple[Segment, ...]:
        return tuple(self._files)

    @property
    def size_bytes(self) -> int:
        """The bytes of all segments, up to the end of their last batches."""
        return sum(each.end_position for each in self._files)

    def of(self, offset: Offset) -> Segment:
        """Return the segment that has the record at `offset`, or ends there."""
        index = bisect_right(self._files, offset, key=lambda each: each.base_offset) - 1
        segment = self._files[max(0, index)]
        if segment is not self._files[-1] and segment not in self._opened:
            self._opened.append(segment)
            if len(self._opened) > self._open_files_max:
                oldest = self._opened.popleft()
                if oldest is not self._files[-1]:
                    oldest.release()
        return segment

    def adopt(self, files: Sequence[Segment], ledger: DamageLedger) -> None:
        """Replace all segments and ranges by those of a recovery or a repair."""
        self._files, self.ledger = list(files), ledger
        self._opened.clear()
        for each in self._files[:-1]:
            each.release()

    def create(self, header: SegmentHeader) -> Segment:
        """Seal the active segment and create a new one, durable together with its name."""
        if self._files:
            self.active.seal()
        segment = Segment.create(self._directory, header)
        sealed = self._files[-1:]
        self._files.append(segment)
        for each in sealed:
            self.of(each.base_offset)
        return segment

    def write(self, batches: Sequence[Batch], memory: LogMemory, segment_bytes: int) -> None:
        """Append verified batches, with one write for all batches that fit into the active segment.

        Raises:
            OSError: the disk is full or broken; `memory` has the batches that were appended.
        """
        run: list[Batch] = []
        run_end = self.active.end_position
        for batch in batches:
            if run_end + len(batch.data) > segment_bytes and batch.base_offset > self.active.base_offset:
                self._write_run(run, memory, segment_bytes)
                self.create_next(memory)
                run, run_end = [], self.active.end_position
            run.append(batch)
            run_end += len(batch.data)
        self._write_run(run, memory, segment_bytes)

    def append_unwritten(self, batch: Batch, memory: LogMemory, segment_bytes: int) -> None:
        """Append a verified batch. `active.write_out` writes it, together with the batches appended since the last write.

        Raises:
            OSError: the disk is full or broken; the batch was not appended.
        """
        active = self._files[-1]
        if active.end_position + len(batch.data) > segment_bytes and batch.base_offset > active.base_offset:
            active = self.create_next(memory)
        active.append_unwritten(batch, memory.chain, segment_bytes)
        memory.append(batch)

    def create_next(self, memory: LogMemory) -> Segment:
        """Seal the active segment, and create the segment that continues the log."""
        place = OffsetAndEpoch(memory.end, memory.history.last_epoch)
        return self.create(SegmentHeader(place, memory.chain, memory.history.last_timestamp_ms))

    def _write_run(self, run: Sequence[Batch], memory: LogMemory, segment_bytes: int) -> None:
        active = self.active
        if run:
            data = run[0].data if len(run) == 1 else b"".join([batch.data for batch in run])
            active.append(data, segment_bytes)
        for batch in run:
            active.extend(batch, memory.chain)
            memory.append(batch)

    def cut(self, end: Offset, position: int) -> None:
        """Remove everything from `end` on, durably. `ending_at` has found `end` at `position`. Nothing is read
        again.
        """
        keep = bisect_right(self._files, end, key=lambda each: each.base_offset)
        last = self._files[keep - 1].base_offset
        for each in reversed(self._files[keep:]):
            each.release()
        gone = [name for name in segment_names(self._directory) if (base_offset_of(name) or 0) > last]
        for name in reversed(gone):
            self._directory.remove(name)
        if gone:
            self._directory.flush()
        del self._files[keep:]
        self.ledger.cut(end)
        self._opened.clear()
        self.active.cut(end, position)

    def remove_all(self) -> None:
        """Delete every segment in the directory, open or not."""
        self.close()
        self._files, self.ledger = [], DamageLedger()
        self._opened.clear()
        for name in segment_names(self._directory):
            self._directory.remove(name)
        self._directory.flush()

    def retire_below(self, start: Offset) -> list[str]:
        """Retire the files that are wholly below `start`. Return their names."""
        first = self.forget_below(start)
        return self.retire([name for name in segment_names(self._directory) if (base_offset_of(name) or 0) < first])

    def forget_below(self, start: Offset) -> Offset:
        """Forget the segments wholly below `start`, and keep their files. Return the base offset of the first other segment."""
        keep = max(0, bisect_right(self._files, start, key=lambda each: each.base_offset) - 1)
        gone, self._files = self._files[:keep], self._files[keep:]
        for each in gone:
            each.release()
        return self._files[0].base_offset

    def retire(self, names: list[str]) -> list[str]:
        """Move the named segments to the archive, or delete them if the log has no archive."""
        if names and self.archive is not None:
            self.archive.take(names)
        else:
            for name in names:
                self._directory.remove(name)
        if names:
            self._directory.flush()
        return names

    # --- reading ---------------------------------------------------------------------------------------------------

    def chain_at(self, offset: Offset) -> bytes | None:
        """Return the chain at `offset`, an offset in the log; None if `offset` is not a batch boundary.

        Raises:
            DamagedRangeRead: `offset` is inside damage, so the log no longer knows.
        """
        self._refuse(self.ledger.within(offset))
        known = self.ledger.chain_at(offset)
        if known is not None:
            return known
        place = self.of(offset).locate(offset)
        return place[1] if place else None

    def base_of(self, offset: Offset) -> Offset:
        """Return the base offset of the batch that holds the record at `offset`, a record in the log.

        Raises:
            DamagedRangeRead: the record is damaged.
        """
        self._refuse(self.ledger.at(offset))
        return self.of(offset).base_of(offset)

    def spans(self, last_timestamp_ms: int) -> tuple[SegmentSpan, ...]:
        """Return all segments, oldest first; `last_timestamp_ms` is the largest timestamp of the log."""
        headers = [each.header for each in self._files[1:]]
        times = [last_timestamp_ms if each is None else each.previous_timestamp_ms for each in headers]
        return tuple(
            SegmentSpan(each.base_offset, each.end_offset, each.end_position, at_ms)
            for each, at_ms in zip(self._files, [*times, last_timestamp_ms], strict=True)
        )

    def ending_at(self, offset: Offset) -> tuple[int, bytes, int] | None:
        """Return the position of the boundary `offset` in its file, the chain there, and the time of the batch before.

        Returns None if `offset` is not a boundary. Raises as `chain_at` does.
        """
        self._refuse(self.ledger.within(offset))
        place = self.of(offset).locate(offset)
        return (*place, self.time_below(offset)) if place else None

    def time_below(self, offset: Offset) -> int:
        """Return the time of the batch that ends at the boundary `offset`; 0 if it is not known any more."""
        for each in self.ledger.ranges:
            if each.end == offset:
                return each.timestamp_after_ms
        segment = self.of(offset)
        last = segment.last_batch_below(offset)
        if last is not None:
            return last.last_timestamp_ms
        return segment.header.previous_timestamp_ms if segment.header is not None else 0

    def read(self, offset: Offset, max_bytes: int, until: Offset) -> list[Batch]:
        """Read batches from the boundary `offset` on, from disk: at least one if any batch ends at or below `until`.

        Raises:
            DamagedRangeRead: the first batch is damaged. If only a later batch is damaged, `read` returns the batches
                before the damage.
        """
        taken: list[Batch] = []
        while offset < until:
            damaged = self.ledger.at(offset)
            if damaged is not None and taken:
                return taken
            self._refuse(damaged)
            segment = self.of(offset)
            place = segment.locate(offset)
            assert place is not None, f"{offset} is not a batch boundary"
            for _, batch in segment.batches(place[0]):
                max_bytes -= len(batch.data)
                if batch.end_offset > until or (taken and max_bytes < 0):
                    return taken
                taken.append(batch)
            assert taken and taken[-1].end_offset > offset, f"no batch at {offset} in {segment.name}"
            offset = taken[-1].end_offset
        return taken

    def _refuse(self, damaged: DamagedRange | None) -> None:
        if damaged is not None:
            raise DamagedRangeRead.of(self._directory.path_text, damaged)

    # --- damage that shows later -----------------------------------------------------------------------------------

    def extents(self) -> list[Extent]:
        """Return the parts of the sealed segments that are believed to be intact."""
        return [
            Extent(each.name, *stretch, each.entry_at(stretch.position).previous_chain)
            for each in self._files[:-1]
            for stretch in each.stretches
        ]

    def damage(self, name: str, position: int, log: LogPlace) -> DamagedRange | None:
        """Record damage at `position` of the file `name`, and return the damaged range.

        Returns None if no readable batch covers that position (any more).

        The damaged range reaches from the last index entry before the damage to the next entry behind it, and includes
        the range that the file has already.
        """
        i = next((i for i, each in enumerate(self._files) if each.name == name and each.holds(position)), None)
        if i is None:
            return None
        segment = self._files[i]
        end_chain = self._chain_behind(i, log.end_chain)
        known = self.ledger.overlapping(segment.base_offset, segment.end_offset)
        first, behind = segment.damage(position, end_chain)
        self._opened.clear()
        start, chain_before, at = log.start.start.offset, log.start.chain, position
        if known is not None and (first is None or known.start <= first.base_offset):
            start, chain_before, name, at = known.start, known.chain_before, known.file, known.position
        elif first is not None:
            start, chain_before, at = first.base_offset, first.previous_chain, first.position
        if known is not None and (behind is None or behind.base_offset <= known.end):
            damaged = known._replace(start=start, chain_before=chain_before, file=name, position=at)
        else:
            assert behind is not None, f"{name} ends with a gap that is no damage"
            end, chain_after = behind.base_offset, behind.previous_chain
            epoch = log.epoch_below(end) or 0  # below the log's start no epoch is known, and none is needed
            timestamp_ms = segment.header.previous_timestamp_ms if segment.header else 0
            damaged = DamagedRange(start, end, chain_before, chain_after, name, at, epoch, timestamp_ms)
        self.ledger.note(damaged)
        self.ledger.forget_below(log.start.start.offset, log.start.chain)
        return damaged

    def _chain_behind(self, index: int, end_chain: bytes) -> bytes:
        """Return the chain at the end of the `index`-th file; `end_chain` is the chain at the log's end.

        If the next file is missing, the header of the file behind it has the chain of a later offset. The damaged range in
        the place of the missing file has the right chain.
        """
        known = self.ledger.chain_at(self._files[index].end_offset)
        if known is not None:
            return known
        following = [each.header for each in self._files[index + 1 : index + 2]]
        return following[0].previous_chain if following and following[0] else end_chain

    def repair(self, damaged: DamagedRange, batches: Sequence[Batch], start: LogStart) -> None:
        """Put back the records of `damaged`; see `segment_repair`."""
        first = sum(1 for each in self._files if each.end_offset <= damaged.start)
        old = [each for each in self._files[first:] if each.base_offset < damaged.end]
        end = first + len(old)
        header: SegmentHeader | None = SegmentHeader(start.start, start.chain, start.timestamp_ms)
        if first > 0 and self._files[first - 1].base_offset == damaged.start:
            first -= 1  # only the header of this file is left, and a new file takes its place
            header = self._files[first].header
            self._files[first].release()
        elif damaged.start > start.start.offset and first > 0 and not (old and old[0].base_offset <= damaged.start):
            before = self._files[first - 1].last_batch_below(damaged.start)
            if before is None:  # the file before has lost its end: that range must be repaired first
                self._refuse(self.ledger.at(damaged.start - 1))
            assert before is not None, f"nothing ends at {damaged.start}"
            header = SegmentHeader(before.end, before.chain, self.time_below(damaged.start))
        assert header is not None, f"a file at {damaged.start} without a header and without a gap"
        new = repaired(self._directory, old, damaged, batches, header)
        self._files[first:end] = new
        self.ledger.repaired(damaged)
        self._opened.clear()

    def close(self) -> None:
        for each in self._files:
            each.release()
        self._opened.clear()


def check(directory: Directory, extent: Extent, max_bytes: int) -> Extent | None:
    """Read up to `max_bytes` of `extent` again, and check CRCs and chain. Return the unread rest. May run on any
    thread.

    Raises:
        CorruptLog: the disk returns wrong bytes, or cannot read them; the error names the place.
        FileNotFoundError: the file was retired or replaced meanwhile.
    """
    name, position, end_position, chain = extent
    offset: Offset | None = None
    file = directory.open(name)
    stop = min(end_position, position + max_bytes)
    try:
        for _, batch in walk(file, position, stop):
            if chain is not None:
                if not verify_chain(batch, chain):
                    raise BadBatch(position, "the batch does not continue the chain")
                chain, offset = batch.chain, batch.end_offset
            position += len(batch.data)
        if position < stop:
            raise BadBatch(position, "the file ends, or is zero, where a batch was written")
    except BadBatch as e:
        raise CorruptLog.at(f"{directory.path_text}/{name}", e.position, offset, str(e)) from e
    finally:
        file.close()
    return Extent(name, position, end_position, chain) if position < end_position else None
