"""The intact part of one segment file: nearly always the whole file, or the part before or behind damage.

    file     [header| batch | batch | ~~~~~ | batch | batch | 0 0 0 ...
    pieces          [---------------)       [---------------)

A piece knows its extent in the file and a sparse index of its batches: about one entry for every `INDEX_STEP_BYTES`,
with base offset, position and the chain before. Example: a piece has entries for the offsets 0, 120 and 250.
  1. A search for 200 begins at the position of 120 and walks over the batches from there.
  2. A scrub finds damage between the positions of 120 and 250. `split` makes two pieces, [0, 120) and from 250 on,
     because the index knows the chain at both offsets. Batches in between that are intact count as damaged, too.
  3. A repair puts 120..249 back, and `absorb` joins the two pieces.

The last piece of a log is the active one, to which the log appends. The file is preallocated in steps of
`PREALLOCATE_BYTES`.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple, NoReturn, TypeAlias

from metadata_log.disk.bad_sectors import SECTOR_BYTES, read_around
from metadata_log.disk.files import Directory, File
from metadata_log.format.batch import Batch
from metadata_log.format.errors import CorruptLog, LogFormatError
from metadata_log.format.ids import Epoch, Offset, OffsetAndEpoch
from metadata_log.store.segment import (
    SEGMENT_HEADER_BYTES,
    BadBatch,
    SegmentHeader,
    UnreadableBatch,
    base_offset_of,
    pack_header,
    read_header,
    segment_name,
    walk,
)

PREALLOCATE_BYTES: Final = 1 << 20
INDEX_STEP_BYTES: Final = 16 << 10
_WINDOW_BYTES: Final = 256 << 10

EpochBelow: TypeAlias = Callable[[Offset], Epoch | None]
"""Return the epoch of the record below an offset; None if that record is outside the log."""


class _IndexEntry(NamedTuple):
    base_offset: Offset
    position: int
    previous_chain: bytes


class Piece:
    """The intact part of one segment file: usually the whole file, or the part before or behind damage.

    The piece knows its extent and its index. The log decides which batches may be appended. The file is opened when
    needed; `release` closes it until then.
    """

    def __init__(
        self,
        directory: Directory,
        name: str,
        header: SegmentHeader,
        first_position: int = SEGMENT_HEADER_BYTES,
        file: File | None = None,
    ) -> None:
        self.name = name
        self.header = header
        """The file's header; for a piece behind damage, the header that a file beginning there would have."""
        self.first_position = first_position
        self.end_offset = header.start.offset
        self.end_position = first_position
        """One past the last batch. The bytes behind are zero, or the remains of a failed write."""
        self._directory = directory
        self._file = file
        self._path = f"{directory.path_text}/{name}"
        self._allocated = self.file.size()
        self._index = [_IndexEntry(self.base_offset, first_position, header.previous_chain)]

    @property
    def file(self) -> File:
        if self._file is None:
            self._file = self._directory.open(self.name)
        return self._file

    @classmethod
    def create(cls, directory: Directory, header: SegmentHeader) -> "Piece":
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
    def open(cls, directory: Directory, name: str) -> "Piece":
        """Open an existing segment. The piece is empty until the caller has walked over its batches and called `extend`
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
    def base_offset(self) -> Offset:
        return self.header.start.offset

    def holds(self, position: int) -> bool:
        """Return True if a batch of this piece covers this byte of the file."""
        return self.first_position <= position < self.end_position

    def append(self, data: bytes, segment_bytes: int) -> None:
        """Write `data` (whole batches) at the end. The caller then calls `extend` for each batch.

        Raises:
            OSError: the piece is unchanged; the next append writes to the same position.
        """
        needed = self.end_position + len(data)
        if needed > self._allocated:
            size = max(needed, min(self._allocated + PREALLOCATE_BYTES, segment_bytes))
            self.file.preallocate(size)
            self._allocated = size
        self.file.write_at(self.end_position, data)

    def extend(self, batch: Batch, previous_chain: bytes) -> None:
        """Add a batch that has been written at the end of this piece."""
        assert batch.base_offset == self.end_offset
        if self.end_position - self._index[-1].position >= INDEX_STEP_BYTES:
            self._index.append(_IndexEntry(batch.base_offset, self.end_position, previous_chain))
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
        self.end_offset, self.end_position = offset, position
        while len(self._index) > 1 and self._index[-1].base_offset >= offset:
            self._index.pop()
        self.cut_tail()

    def cut_tail(self) -> None:
        """Cut the file, durably, after the last known batch."""
        self.file.truncate(self.end_position)
        self._allocated = self.end_position
        self.file.flush()

    def write_again(self, offset: Offset) -> None:
        """Write again all batches from `offset` on. The caller flushes afterwards.

        An fsync that failed in an earlier process leaves bytes in the page cache, marked clean, that are not on the
        disk. A second fsync would report success and prove nothing. Bytes that are written again are dirty again, so
        the next fsync writes them.

        Raises:
            CorruptLog: the disk cannot read the batches any more.
        """
        place = self.locate(offset) if offset > self.base_offset else None
        if place is None and self.first_position == SEGMENT_HEADER_BYTES:
            self.file.write_at(0, pack_header(self.header))
        position = place[0] if place else self.first_position
        while position < self.end_position:
            length = min(_WINDOW_BYTES, self.end_position - position)
            data = read_around(self.file, position, length, self.refuse_unreadable)
            assert data, f"{self._path} ends at {position}, and {self.end_position} was read"
            self.file.write_at(position, data)
            position += len(data)

    def tail_is_zero(self) -> bool:
        """Return True if only zeros follow the last known batch.

        Raises:
            UnreadableBatch: the disk cannot read the bytes behind the last batch.
        """

        def refuse(_: int) -> NoReturn:
            raise UnreadableBatch(self.end_position, "the disk cannot read the bytes after the last batch")

        position = self.end_position
        while data := read_around(self.file, position, _WINDOW_BYTES, refuse):
            if data != bytes(len(data)):
                return False
            position += len(data)
        return True

    def batches(self, position: int, stop: int | None = None) -> Iterator[tuple[int, Batch]]:
        """Read the known batches from `position` on.

        Raises:
            CorruptLog: the file no longer holds what was written.
        """
        stop = self.end_position if stop is None else stop
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

    def locate(self, offset: Offset) -> tuple[int, bytes] | None:
        """Return the position of the boundary `offset` in the file, and the chain there; None if `offset` is not a
        boundary.
        """
        if not self.base_offset <= offset <= self.end_offset:
            return None
        entry = self._index[bisect_right(self._index, offset, key=lambda each: each.base_offset) - 1]
        if entry.base_offset == offset:
            return entry.position, entry.previous_chain
        for position, batch in self.batches(entry.position):
            if batch.end_offset >= offset:
                return (position + len(batch.data), batch.chain) if batch.end_offset == offset else None
        raise AssertionError(f"{offset} lies inside {self.name} and no batch holds it")

    def last_batch_below(self, offset: Offset) -> Batch | None:
        """Return the batch that ends at `offset`, a boundary of this piece; None if `offset` is the piece's first
        offset.
        """
        if offset == self.base_offset:
            return None
        entry = self._index[bisect_right(self._index, offset - 1, key=lambda each: each.base_offset) - 1]
        return next(batch for _, batch in self.batches(entry.position) if batch.end_offset == offset)

    def refuse_unreadable(self, position: int) -> None:
        """Report that the disk cannot read the sector at `position`.

        Raises:
            CorruptLog: the sector belongs to this piece.
        """
        begin = max(position, self.first_position)
        if begin < min(position + SECTOR_BYTES, self.end_position):
            raise self.corrupt(begin, "the disk cannot read it")

    def corrupt(self, position: int, reason: str, offset: Offset | None = None) -> CorruptLog:
        """Make the error for damage at `position`. Without `offset`, the error names the nearest indexed offset
        below.
        """
        if offset is None:
            entries = [entry for entry in self._index if entry.position <= position]
            offset = entries[-1].base_offset if entries else self.base_offset
        return CorruptLog.at(self._path, position, offset, reason)

    def split(self, position: int, end_chain: bytes, epoch_below: EpochBelow) -> "tuple[Piece, Piece]":
        """Split this piece at damage at `position` into the intact parts before and behind the damage, as far as the
        index knows.

        If the index has no entry behind the damage, the second piece is empty and begins at the end, where the chain is
        `end_chain`.
        """
        first = bisect_right(self._index, position, key=lambda each: each.position)
        before = Piece(self._directory, self.name, self.header, self.first_position, self._file)
        before._index = self._index[:first]
        before.end_offset, before.end_position = before._index[-1].base_offset, before._index[-1].position
        behind = [*self._index[first:], _IndexEntry(self.end_offset, self.end_position, end_chain)]
        first_offset = behind[0].base_offset
        # (Below the log's start no epoch is known, and none is needed.)
        place = OffsetAndEpoch(first_offset, epoch_below(first_offset) or 0)
        header = SegmentHeader(place, behind[0].previous_chain, self.header.previous_timestamp_ms)
        after = Piece(self._directory, self.name, header, behind[0].position)
        after._index = behind[:-1] or behind
        after.end_offset, after.end_position = self.end_offset, self.end_position
        return before, after

    def absorb(self, other: "Piece", shift: int) -> None:
        """Append `other`'s batches to this piece: they are now directly behind these, `shift` bytes further on in the
        file than before.
        """
        assert other.base_offset == self.end_offset
        self._index += [entry._replace(position=entry.position + shift) for entry in other._index]
        self.end_offset, self.end_position = other.end_offset, other.end_position + shift

    def move(self, name: str, shift: int) -> None:
        """Move this piece to the file `name`, where its batches are `shift` bytes further on than before."""
        self.release()
        self.name, self._path = name, f"{self._directory.path_text}/{name}"
        self.first_position, self.end_position = self.first_position + shift, self.end_position + shift
        self._index = [entry._replace(position=entry.position + shift) for entry in self._index]
        self._allocated = self.file.size()

    def reopen(self) -> None:
        """Use the new file under this piece's name. A repair has replaced the file."""
        self.release()
        self._allocated = self.file.size()

    def release(self) -> None:
        """Close the file until it is needed again."""
        if self._file is not None:
            self._file.close()
            self._file = None
