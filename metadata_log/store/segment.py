"""A segment: one file of batches, named `<20-digit base offset>.log`.

    0        8         10         12      20            28               36               68    72
    | magic  | version | reserved | epoch | base offset | last timestamp | previous chain | CRC | batch | batch | 0 0 0
        ...

The header says which history the segment continues: its base offset, and the epoch, timestamp and chain below. So the
batches of a segment can be checked without the segments before, which may have been retired. The layout above is
version 2. Version 1 has four bytes for the epoch (so all later fields begin four bytes earlier) and four unused bytes
behind the CRC. This code reads version 1 for ever and does not write it.

The file is preallocated in steps, with zeros. An append then does not change the file's size, and `fdatasync` has no
metadata to write. A batch never begins with a zero byte (its format version is 1), so the first zero byte where a batch
could begin is the end of the segment. A sealed segment is cut to its exact length.

In memory each piece of a segment has a sparse index: about one entry for every `INDEX_STEP_BYTES` of batches, with base
offset, position and the chain before. Example: entries for the offsets 0, 120 and 250; a search for 200 begins at the
position of 120 and walks over the batches from there.
"""

import re
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Final, NamedTuple, NoReturn, TypeAlias

import google_crc32c

from metadata_log.disk.bad_sectors import SECTOR_BYTES, read_around
from metadata_log.disk.files import Directory, File
from metadata_log.format.batch import HEADER_BYTES, Batch, batch_length, decode
from metadata_log.format.errors import CorruptLog, LogFormatError
from metadata_log.format.ids import EPOCH_MAX, Epoch, Offset, OffsetAndEpoch

SEGMENT_HEADER_BYTES: Final = 72
PREALLOCATE_BYTES: Final = 1 << 20
INDEX_STEP_BYTES: Final = 16 << 10

_MAGIC: Final = b"metaqlog"
_VERSION: Final = 2
_HEADER: Final = struct.Struct(">8sHHQQQ32sI")
_HEADER_1: Final = struct.Struct(">8sHHIQQ32sI4x")
_VERSION_AT: Final = 8
_FIRST_VERSION: Final = b"\x00\x01"
_CRC_END: Final = 68
_CRC_END_1: Final = 64
_WINDOW_BYTES: Final = 256 << 10
_NAME: Final = re.compile(r"(\d{20})\.log")

assert _HEADER.size == _HEADER_1.size == SEGMENT_HEADER_BYTES


class SegmentHeader(NamedTuple):
    """The header of a segment: the history that the segment continues."""

    start: OffsetAndEpoch
    """The offset of the segment's first record, and the epoch of the record below (0 if no record is below)."""
    previous_chain: bytes
    previous_timestamp_ms: int
    """The timestamp of the last batch below; 0 if no batch is below."""


EpochBelow: TypeAlias = Callable[[Offset], Epoch | None]
"""Return the epoch of the record below an offset; None if that record is outside the log."""


class BadBatch(Exception):
    """No intact batch begins at `position`. The caller decides whether the cause is a torn tail or damage."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position


class UnreadableBatch(BadBatch):
    """The disk cannot read the bytes at `position`, so the log cannot tell whether a batch begins there."""


class UnsupportedSegment(LogFormatError):
    """An intact segment of a newer version than this code knows. This is not damage."""


def segment_name(base_offset: Offset) -> str:
    return f"{base_offset:020d}.log"


def base_offset_of(name: str) -> Offset | None:
    """Return the base offset in a segment's name; None if `name` is not the name of a segment."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def pack_header(header: SegmentHeader) -> bytes:
    offset, epoch = header.start
    summed = _HEADER.pack(_MAGIC, _VERSION, 0, epoch, offset, header.previous_timestamp_ms, header.previous_chain, 0)
    crc: int = google_crc32c.value(summed[:_CRC_END])
    return summed[:_CRC_END] + crc.to_bytes(4, "big")


def unpack_header(data: bytes) -> SegmentHeader:
    """Decode the header at the beginning of `data`.

    Raises:
        LogFormatError: `data` does not begin with a header, or its version is not supported.
    """
    if len(data) < SEGMENT_HEADER_BYTES:
        raise LogFormatError(f"{len(data)} bytes where a segment header of {SEGMENT_HEADER_BYTES} should be")
    is_first = data[_VERSION_AT : _VERSION_AT + 2] == _FIRST_VERSION
    layout, crc_end = (_HEADER_1, _CRC_END_1) if is_first else (_HEADER, _CRC_END)
    magic, version, _, epoch, offset, timestamp_ms, chain, crc = layout.unpack_from(data)
    if magic != _MAGIC:
        raise LogFormatError("not a segment of a metadata log")
    if google_crc32c.value(data[:crc_end]) != crc:
        raise LogFormatError("CRC-32C mismatch in the segment header")
    if version not in (1, _VERSION):
        raise UnsupportedSegment(f"segment format version {version}; this code reads 1 and {_VERSION}")
    if epoch > EPOCH_MAX:
        raise LogFormatError(f"an epoch of {epoch}; the last one is {EPOCH_MAX}")
    return SegmentHeader(OffsetAndEpoch(offset, epoch), chain, timestamp_ms)


def unproven(header: bytes) -> bytes:
    """Return the header bytes that no checksum covers: in version 1 the last four, which were written as zero; else
    none.
    """
    return header[_HEADER_1.size - 4 :] if header[_VERSION_AT : _VERSION_AT + 2] == _FIRST_VERSION else b""


def is_leftover(directory: Directory, name: str) -> bool:
    """Return True if the segment never got its header, because of a crash or a full disk. Such a file has no batches.

    (A batch is written only after the header is durable.) The log may have gone on in the file before, beyond this
    file's offset.
    """
    with closing(directory.open(name)) as file:
        if file.size() > SEGMENT_HEADER_BYTES:
            return False
        try:
            unpack_header(read_around(file, 0, SEGMENT_HEADER_BYTES, _refuse_header))
        except LogFormatError as e:
            return not isinstance(e, UnsupportedSegment)
    return False


def walk(file: File, position: int, stop: int) -> Iterator[tuple[int, Batch]]:
    """Read the batches of a segment's file from `position` on, each with its position. Check each CRC, but not the
    chain.

    The walk ends at `stop`, at a zero byte, or at the end of the file.

    Raises:
        BadBatch: the bytes at some position are neither the end nor an intact batch.
        UnreadableBatch: as BadBatch, because the disk cannot read those bytes.
    """
    window, window_start = b"", position
    unreadable: list[int] = []

    def bad(length: int, reason: str) -> BadBatch:
        if any(each < position + length and position < each + SECTOR_BYTES for each in unreadable):
            return UnreadableBatch(position, "the disk cannot read it")
        return BadBatch(position, reason)

    def read(length: int) -> bytes:
        return read_around(file, position, max(length, min(_WINDOW_BYTES, stop - position)), unreadable.append)

    while position < stop:
        at = position - window_start
        if len(window) - at < HEADER_BYTES:
            window, window_start, at = read(HEADER_BYTES), position, 0
        if not window or window[at] == 0:
            end = bad(1, "")
            if isinstance(end, UnreadableBatch):
                raise end
            return
        length = HEADER_BYTES
        try:
            length = batch_length(window, at)
            if at + length > len(window):
                window, window_start, at = read(length), position, 0
            batch = decode(window, at)
        except LogFormatError as e:
            raise bad(length, str(e)) from e
        yield position, batch
        position += length


def _refuse_header(_: int) -> NoReturn:
    raise LogFormatError("the disk cannot read the segment header")


class _IndexEntry(NamedTuple):
    base_offset: Offset
    position: int
    previous_chain: bytes


class Segment:
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
    def open(cls, directory: Directory, name: str) -> "Segment":
        """Open an existing segment. The piece is empty until the caller has walked over its batches and called `extend`
        for each.

        Raises:
            LogFormatError: the header is damaged, or has another base offset than the file's name.
        """
        file = directory.open(name)
        try:
            header = unpack_header(read_around(file, 0, SEGMENT_HEADER_BYTES, _refuse_header))
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
            raise UnreadableBatch(self.end_position, "the disk cannot read what follows the last batch")

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

    def split(self, position: int, end_chain: bytes, epoch_below: EpochBelow) -> "tuple[Segment, Segment]":
        """Split this piece at damage at `position` into the intact parts before and behind the damage, as far as the
        index knows.

        If the index has no entry behind the damage, the second piece is empty and begins at the end, where the chain is
        `end_chain`.
        """
        first = bisect_right(self._index, position, key=lambda each: each.position)
        before = Segment(self._directory, self.name, self.header, self.first_position, self._file)
        before._index = self._index[:first]
        before.end_offset, before.end_position = before._index[-1].base_offset, before._index[-1].position
        behind = [*self._index[first:], _IndexEntry(self.end_offset, self.end_position, end_chain)]
        first_offset = behind[0].base_offset
        # (Below the log's start no epoch is known, and none is needed.)
        place = OffsetAndEpoch(first_offset, epoch_below(first_offset) or 0)
        header = SegmentHeader(place, behind[0].previous_chain, self.header.previous_timestamp_ms)
        after = Segment(self._directory, self.name, header, behind[0].position)
        after._index = behind[:-1] or behind
        after.end_offset, after.end_position = self.end_offset, self.end_position
        return before, after

    def absorb(self, other: "Segment", shift: int) -> None:
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
