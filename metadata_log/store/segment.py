"""A segment: one file of batches, named `<20-digit base offset>.log`.

    0        8         10         12      20            28               36               68    72
    | magic  | version | reserved | epoch | base offset | last timestamp | previous chain | CRC | batch | batch | 0 0 0 ...

The header says which history the segment continues: its base offset, and the epoch, timestamp and chain below. So the
batches of a segment can be checked without the segments before, which may have been retired. The layout above is
version 2. Version 1 has four bytes for the epoch (so all later fields begin four bytes earlier) and four unused bytes
behind the CRC. This code reads version 1 for ever and does not write it.

The file is preallocated in steps, with zeros. An append then does not change the file's size, and `fdatasync` has no
metadata to write. A batch never begins with a zero byte (its format version is 1), so the first zero byte where a batch
could begin is the end of the segment. A sealed segment is cut to its exact length.
"""

import re
import struct
from collections.abc import Iterator
from contextlib import closing
from typing import Final, NamedTuple

import google_crc32c

from metadata_log.disk.bad_sectors import read_around
from metadata_log.disk.files import Directory, File
from metadata_log.format.batch import HEADER_BYTES, Batch, batch_length, decode
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import EPOCH_MAX, Offset, OffsetAndEpoch

SEGMENT_HEADER_BYTES: Final = 72

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


class BadBatch(Exception):
    """No intact batch begins at `position`. The caller decides whether the cause is a torn tail or damage."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position


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
        raise UnsupportedSegment(
            f"segment format version {version}; this release reads 1 and {_VERSION}; use the release that wrote it"
        )
    if epoch > EPOCH_MAX:
        raise LogFormatError(f"an epoch of {epoch}; the last one is {EPOCH_MAX}")
    return SegmentHeader(OffsetAndEpoch(offset, epoch), chain, timestamp_ms)


def read_header(file: File) -> SegmentHeader:
    """Read the header of a segment's file.

    Raises:
        LogFormatError: the header is damaged or unreadable, or its version is not supported.
    """
    return unpack_header(read_around(file, 0, SEGMENT_HEADER_BYTES))


def segment_names(directory: Directory) -> list[str]:
    """Return the names of the segments in `directory`, oldest first. Other files are ignored."""
    return [name for name in directory.names() if base_offset_of(name) is not None]


def header_of(directory: Directory, name: str) -> SegmentHeader | None:
    """Return the header of a segment; None if the header is damaged, or has another base offset than the file's name."""
    with closing(directory.open(name)) as file:
        try:
            header = read_header(file)
        except LogFormatError:
            return None
    return header if header.start.offset == base_offset_of(name) else None


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
            read_header(file)
        except LogFormatError as e:
            return not isinstance(e, UnsupportedSegment)
    return False


def walk(file: File, position: int, stop: int) -> Iterator[tuple[int, Batch]]:
    """Read the batches of a segment's file from `position` on, each with its position. Check each CRC, but not the
    chain.

    The walk ends at `stop`, at a zero byte, or at the end of the file.

    Raises:
        BadBatch: the bytes at some position are neither the end nor an intact batch.
    """
    window, window_start = b"", position

    def read(length: int) -> bytes:
        return read_around(file, position, max(length, min(_WINDOW_BYTES, stop - position)))

    while position < stop:
        at = position - window_start
        if len(window) - at < HEADER_BYTES:
            window, window_start, at = read(HEADER_BYTES), position, 0
        if not window or window[at] == 0:
            return
        try:
            length = batch_length(window, at)
            if at + length > len(window):
                window, window_start, at = read(length), position, 0
            batch = decode(window, at)
        except LogFormatError as e:
            raise BadBatch(position, str(e)) from e
        yield position, batch
        position += length
