"""One segment file of an open log: where its batches are.

    file      [header| batch | batch | ~~~~~ | batch | batch | 0 0 0 ...
    readable         [---------------)       [---------------)
                                      gap

A segment knows its extent in the file and a sparse index of its batches: about one entry for every `INDEX_STEP_BYTES`,
with base offset, position and the chain before. A segment has at most one *gap*, a stretch of bytes that are damaged.
Example: a segment has entries for the offsets 0, 120, 250 and 300.
  1. A search for 200 begins at the position of 120 and walks over the batches from there.
  2. A scrub finds damage between the positions of 120 and 250: this is the gap now. Batches in the gap that are intact
     count as damaged, too.
  3. A read finds damage behind 300: the gap grows, and reaches from 120 to the end.
  4. A repair writes the file again as a whole (`segment_repair`): the new segment has no gap.

The last segment of a log is the active one, to which the log appends. The file is preallocated in steps: it doubles, from
`PREALLOCATE_FIRST_BYTES` on, and grows by `PREALLOCATE_BYTES` once it is larger than that. So the thousand small partitions of a
broker do not reserve a gibibyte.
"""

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from metadata_log.disk.bad_sectors import read_around
from metadata_log.disk.files import Directory, File
from metadata_log.format.batch import Batch, verify_chain
from metadata_log.format.errors import CorruptLog, LogFormatError
from metadata_log.format.ids import Offset
from metadata_log.store.segment import (
    SEGMENT_HEADER_BYTES,
    BadBatch,
    SegmentHeader,
    base_offset_of,
    pack_header,
    read_header,
    segment_name,
    walk,
)

PREALLOCATE_FIRST_BYTES: Final = 64 << 10
PREALLOCATE_BYTES: Final = 1 << 20
INDEX_STEP_BYTES: Final = 16 << 10
_WINDOW_BYTES: Final = 256 << 10


class IndexEntry(NamedTuple):
    """A batch boundary in a segment's file."""

    base_offset: Offset
    position: int
    previous_chain: bytes


class Stretch(NamedTuple):
    """A part of a file: [position, end_position)."""

    position: int
    end_position: int


class Segment:
    """One segment file of a log.

    The segment knows its extent and its index. The log decides which batches may be appended. The file is opened when
    needed; `release` closes it until then.
    """

    def __init__(
        self,
        directory: Directory,
        name: str,
        header: SegmentHeader | None,
        *,
        file: File | None = None,
        is_header_lost: bool = False,
    ) -> None:
        base_offset = base_offset_of(name)
        assert base_offset is not None, name
        self.name = name
        self.base_offset: Offset = base_offset
        self.header = header
        """The file's header; None if it is damaged, and the records before this segment are damaged, too."""
        self.is_header_lost = is_header_lost
        """The file's header is damaged, and `header` follows from the batch before."""
        self.end_offset = base_offset
        self.end_position = SEGMENT_HEADER_BYTES
        """One past the last batch. The bytes behind are zero, or the remains of a failed write."""
        self._gap: Stretch | None = None
        self._directory = directory
        self._file = file
        self._path = f"{directory.path_text}/{name}"
        self._unwritten: list[bytes] = []
        """The last batches of this segment, if they are not in the file yet. Their room is reserved."""
        self._allocated = self.file.size()
        self._index: list[IndexEntry] = []
        if header is not None:
            self._index.append(IndexEntry(base_offset, SEGMENT_HEADER_BYTES, header.previous_chain))

    @property
    def file(self) -> File:
        """The open file, with all batches of the segment in it."""
        if self._file is None:
            self._file = self._directory.open(self.name)
        if self._unwritten:
            self.write_out()
        return self._file

    @classmethod
    def create(cls, directory: Directory, header: SegmentHeader) -> "Segment":
        """Create an empty segment, durable together with its name. An older file with that name, left by a crash, is
        overwritten.

        Raises:
            OSError: usually the disk is full. The new name is removed again, if the disk permits that.
        """
        name = segment_name(header.start.offset)
        file = directory.open(name, create=True)
        try:
            file.truncate(0)
            # first the name: once the header is written, only an fsync can fail, which ends the process
            directory.flush()
            file.write_at(0, pack_header(header))
            file.flush()
        except BaseException as e:
            file.close()
            if isinstance(e, OSError):
                with suppress(OSError):
                    directory.remove(name)  # the log may go on in the previous file, beyond this offset
            raise
        return cls(directory, name, header, file=file)

    @classmethod
    def create_whole(cls, directory: Directory, header: SegmentHeader) -> "Segment":
        """Create an empty segment with its header, durably and in one step: the first one of a log.

        Raises:
            OSError: usually the disk is full; there is no such file.
        """
        name = segment_name(header.start.offset)
        directory.write_atomic(name, pack_header(header))
        return cls(directory, name, header)

    @classmethod
    def open(cls, directory: Directory, name: str) -> "Segment":
        """Open an existing segment. The segment is empty until the caller has walked over its batches and called `extend`
        for each.

        Raises:
            LogFormatError: the header is damaged, or has another base offset than the file's name.
        """
        file = directory.open(name)
        try:
            header = read_header(file)
            if header.start.offset != base_offset_of(name):
                raise LogFormatError(f"the header names base offset {header.start.offset}")
        except BaseException:
            file.close()
            raise
        return cls(directory, name, header, file=file)

    @property
    def stretches(self) -> list[Stretch]:
        """The readable parts of the file: one, or two with a gap between them."""
        if self._gap is None:
            return [Stretch(SEGMENT_HEADER_BYTES, self.end_position)]
        ahead = Stretch(SEGMENT_HEADER_BYTES, self._gap.position)
        return [
            each
            for each in (ahead, Stretch(self._gap.end_position, self.end_position))
            if each.end_position > each.position
        ]

    def holds(self, position: int) -> bool:
        """Return True if a readable batch covers this byte of the file."""
        return any(each.position <= position < each.end_position for each in self.stretches)

    def append(self, data: bytes, segment_bytes: int) -> None:
        """Write `data` (whole batches) at the end. The caller then calls `extend` for each batch.

        Raises:
            OSError: the segment is unchanged; the next append writes to the same position.
        """
        if self.end_position + len(data) > self._allocated:
            self._reserve(self.end_position + len(data), segment_bytes)
        self.file.write_at(self.end_position, data)

    def append_unwritten(self, batch: Batch, previous_chain: bytes, segment_bytes: int) -> None:
        """Add `batch`, and reserve its room in the file. `write_out`, or the next use of the file, writes it.

        Raises:
            OSError: the disk has no room for `batch`; the segment is unchanged.
        """
        if self.end_position + len(batch.data) > self._allocated:
            self._reserve(self.end_position + len(batch.data), segment_bytes)
        self.extend(batch, previous_chain)
        self._unwritten.append(batch.data)

    def write_out(self) -> None:
        """Write all unwritten batches, with one write.

        Raises:
            OSError: the batches are still unwritten; the next call writes them to the same position.
        """
        if self._unwritten and self._file is not None:
            data = b"".join(self._unwritten)
            self._file.write_at(self.end_position - len(data), data)
            self._unwritten.clear()

    def _reserve(self, needed: int, segment_bytes: int) -> None:
        step = min(max(PREALLOCATE_FIRST_BYTES, self._allocated), PREALLOCATE_BYTES)
        size = max(needed, min(self._allocated + step, segment_bytes))
        self.file.preallocate(size)
        self._allocated = size

    def extend(self, batch: Batch, previous_chain: bytes) -> None:
        """Add a batch that has been written at the end of this segment."""
        assert batch.base_offset == self.end_offset
        if self.end_position - self._index[-1].position >= INDEX_STEP_BYTES:
            self._index.append(IndexEntry(batch.base_offset, self.end_position, previous_chain))
        self.end_offset = batch.end_offset
        self.end_position += len(batch.data)

    def seal(self) -> None:
        """End the segment: cut the file to its exact length and make all of it durable."""
        if self._allocated > self.end_position:
            self.file.truncate(self.end_position)
            self._allocated = self.end_position
        self.file.flush()

    def cut(self, offset: Offset, position: int) -> None:
        """Remove the batches from the boundary `offset` on, durably. `locate` has found `offset` at `position`."""
        self.write_out()
        self.end_offset, self.end_position = offset, position
        if self._gap is not None and position <= self._gap.position:
            self._gap = None
            if self.is_header_lost:
                self.write_header()
        self._index = [entry for entry in self._index if entry.position <= position]
        self.cut_tail()

    def cut_tail(self) -> None:
        """Cut the file, durably, after the last known batch."""
        self.file.truncate(self.end_position)
        self._allocated = self.end_position
        self.file.flush()

    def write_again(self, offset: Offset) -> None:
        """Write again all batches from `offset` on, or from a little below. The caller flushes afterwards.

        An fsync that failed in an earlier process leaves bytes in the page cache, marked clean, that are not on the
        disk. A second fsync would report success and prove nothing. Bytes that are written again are dirty again, so
        the next fsync writes them.

        Raises:
            OSError: the disk cannot read the batches any more. The next start judges that damage.
        """
        first = self.entry_below(offset)
        position = SEGMENT_HEADER_BYTES if first is None else first.position
        if position == SEGMENT_HEADER_BYTES:
            self.write_header()
        for stretch in self.stretches:
            position = max(position, stretch.position)
            while position < stretch.end_position:
                data = self.file.read_at(position, min(_WINDOW_BYTES, stretch.end_position - position))
                assert data, f"{self._path} ends at {position}, and {stretch.end_position} was read"
                self.file.write_at(position, data)
                position += len(data)

    def write_header(self) -> None:
        """Write the header, unless a repair of the first batches will write it. The caller flushes afterwards."""
        if self.header is not None and (self._gap is None or self._gap.position > SEGMENT_HEADER_BYTES):
            self.file.write_at(0, pack_header(self.header))

    def tail_is_zero(self) -> bool:
        """Return True if only zeros follow the last known batch."""
        position = self.end_position
        while data := read_around(self.file, position, _WINDOW_BYTES):
            if data != bytes(len(data)):
                return False
            position += len(data)
        return True

    def batches(self, position: int) -> Iterator[tuple[int, Batch]]:
        """Read the known batches from `position` on, up to the gap or the end.

        Raises:
            CorruptLog: the file no longer holds what was written.
        """
        stop = self.end_position
        if self._gap is not None and position <= self._gap.position:
            stop = self._gap.position
        offset: Offset | None = None
        here = position
        try:
            for here, batch in walk(self.file, position, stop):
                if offset is not None and batch.base_offset != offset:
                    raise BadBatch(here, f"a batch with base offset {batch.base_offset}")
                offset = batch.end_offset
                yield here, batch
                here += len(batch.data)
            if here < stop:
                raise BadBatch(here, "the file ends, or is zero, where a batch was written")
        except BadBatch as e:
            raise self.corrupt(e.position, str(e), offset) from e

    def proven(self, entry: IndexEntry) -> Iterator[Batch]:
        """Read the known batches from `entry` on, as `batches` does, and check the chain over them, too."""
        chain = entry.previous_chain
        for position, batch in self.batches(entry.position):
            if not verify_chain(batch, chain):
                raise self.corrupt(position, "the batch does not continue the chain", batch.base_offset)
            chain = batch.chain
            yield batch

    def locate(self, offset: Offset) -> tuple[int, bytes] | None:
        """Return the position of the boundary `offset` in the file, and the chain there; None if `offset` is not a
        boundary, or lies in the gap.
        """
        entry = self.entry_below(offset)
        if entry is None or offset > self.end_offset:
            return None
        if entry.base_offset == offset:
            return entry.position, entry.previous_chain
        for position, batch in self.batches(entry.position):
            if batch.end_offset >= offset:
                return (position + len(batch.data), batch.chain) if batch.end_offset == offset else None
        return None

    def base_of(self, offset: Offset) -> Offset:
        """Return the base offset of the batch that holds the record at `offset`, a record of this segment outside the gap."""
        entry = self.entry_below(offset)
        assert entry is not None and offset < self.end_offset, offset
        return next(batch.base_offset for _, batch in self.batches(entry.position) if batch.end_offset > offset)

    def last_batch_below(self, offset: Offset) -> Batch | None:
        """Return the batch that ends at `offset`, a boundary of this segment; None if no readable batch ends there."""
        entry = self.entry_below(offset - 1)
        if entry is None:
            return None
        return next((batch for _, batch in self.batches(entry.position) if batch.end_offset == offset), None)

    def entry_below(self, offset: Offset) -> IndexEntry | None:
        """Return the last index entry at or below `offset`; None if the segment begins with a gap there."""
        count = bisect_right(self._index, offset, key=lambda each: each.base_offset)
        return self._index[count - 1] if count else None

    def entry_at(self, position: int) -> IndexEntry:
        """Return the index entry at the beginning of a stretch."""
        return next(entry for entry in reversed(self._index) if entry.position == position)

    def corrupt(self, position: int, reason: str, offset: Offset | None = None) -> CorruptLog:
        """Make the error for damage at `position`. Without `offset`, the error names an offset only if the index has it."""
        if offset is None:
            offset = next((entry.base_offset for entry in self._index if entry.position == position), None)
        return CorruptLog.at(self._path, position, offset, reason)

    # --- the gap ---------------------------------------------------------------------------------------------------

    @property
    def gap_start(self) -> Offset | None:
        """The offset of the first record in the gap; None without a gap."""
        if self._gap is None:
            return None
        known = [entry.base_offset for entry in self._index if entry.position <= self._gap.position]
        return known[-1] if known else self.base_offset

    def step_over(self, end: IndexEntry, chain: bytes | None, *, is_end_known: bool) -> None:
        """Record a gap from the last batch to `end`, from which the segment goes on. `chain` is the chain before the gap, if
        known; `is_end_known` says the same of the chain in `end`.
        """
        assert self._gap is None, f"a second gap in {self._path}"
        if chain is not None and self._index and self._index[-1].position < self.end_position:
            self._index.append(IndexEntry(self.end_offset, self.end_position, chain))
        self._gap = Stretch(self.end_position, end.position)
        if is_end_known:
            self._index.append(end)
        self.end_offset, self.end_position = end.base_offset, end.position

    def damage(self, position: int, end_chain: bytes) -> tuple[IndexEntry | None, IndexEntry | None]:
        """Take the batches around `position`, from index entry to index entry, into the gap.

        Returns the boundaries at both ends of the gap; None for a boundary that lies in another file. `end_chain` is
        the chain at the segment's end.
        """
        count = bisect_right(self._index, position, key=lambda each: each.position)
        start = self._index[count - 1]
        end = [*self._index[count:], IndexEntry(self.end_offset, self.end_position, end_chain)][0]
        gap = self._gap or Stretch(self.end_position, start.position)
        self._gap = gap = Stretch(min(start.position, gap.position), max(end.position, gap.end_position))
        self._index = [each for each in self._index if not gap.position < each.position < gap.end_position]
        if end.position == gap.end_position and end not in self._index:
            self._index.append(end)
        edges = [next((each for each in self._index if each.position == at), None) for at in gap]
        return edges[0], edges[1]

    def release(self) -> None:
        """Close the file until it is needed again.

        Unwritten batches are dropped: the caller has written them (`file`), cuts or replaces them, or closes the log. No
        other part of the node counts on unwritten batches.
        """
        self._unwritten.clear()
        if self._file is not None:
            self._file.close()
            self._file = None
