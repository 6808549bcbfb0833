"""A merged file: consecutive segments of one archive, compressed, named `<20-digit base offset>-<20-digit end offset>.merged`.

    | block | block | ... | block | index | trailer (48 bytes) |

    block      a zlib stream of 1 MiB of a segment's bytes; the last block of a segment has the rest
    index      for each segment: base offset (8), size in bytes (8);  then for each block: stored bytes (4), their CRC-32C (4)
    trailer    magic `metaqarc`, version (2), reserved (2), segments (4), blocks (4), base offset (8), end offset (8),
               reserved (8), CRC-32C of index and trailer up to here (4)

The segments come out byte for byte, with their headers, so all code that reads segments reads merged ones, too. Example: a
reader wants the batch at byte 5,000,000 of the segment at offset 2,500.

  1. The trailer and the index say that this segment begins with block 7. Byte 5,000,000 is in its fifth block: block 11.
  2. The stored sizes of the blocks before give the position of block 11. The reader reads, checks and expands this block alone.

zlib, because every Python has it. On 12 MiB of a log of 500,000 changes, in blocks of 1 MiB, zlib 6 made 2.6 times less, at 31
MB/s, and gave it back at 215 MB/s. LZMA made 3.0 to 3.4 times less, at 7 to 12 MB/s, and gave it back at 36 MB/s: a read of the
past would take six times as long.
"""

import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

import google_crc32c

from metadata_log.disk.bad_sectors import read_around
from metadata_log.disk.files import Directory, File
from metadata_log.disk.read_only import ReadOnlyFile
from metadata_log.format.errors import CorruptLog, LogFormatError
from metadata_log.format.ids import OFFSET_MAX, Offset

BLOCK_BYTES: Final = 1 << 20
STORED_BYTES_MAX: Final = BLOCK_BYTES + 1_024
"""Maximum size of a block in the file: zlib adds less than 1,024 bytes to a block that does not shrink."""
SEGMENTS_MAX: Final = 65_536
BLOCKS_MAX: Final = 1 << 20
LEVEL: Final = 6

_MAGIC: Final = b"metaqarc"
_VERSION: Final = 1
_TRAILER: Final = struct.Struct(">8sHHIIQQQI")
_SEGMENT: Final = struct.Struct(">QQ")
_BLOCK: Final = struct.Struct(">II")
_NAME: Final = re.compile(r"(\d{20})-(\d{20})\.merged")
MERGED_SUFFIX: Final = ".merged"
PART_SUFFIX: Final = ".part"

assert _TRAILER.size == 48


class Range(NamedTuple):
    """The offsets of a merged file: [base, end)."""

    base: Offset
    end: Offset


class Index(NamedTuple):
    """The end of a merged file."""

    range: Range
    bases: Sequence[Offset]
    """The base offset of each segment, ascending."""
    sizes: Sequence[int]
    """The size of each segment in bytes."""
    blocks: Sequence[tuple[int, int]]
    """Stored bytes and CRC-32C of each block."""

    def pack(self) -> bytes:
        """Return index and trailer."""
        segments = b"".join(_SEGMENT.pack(*each) for each in zip(self.bases, self.sizes, strict=True))
        index = segments + b"".join(_BLOCK.pack(*each) for each in self.blocks)
        trailer = _TRAILER.pack(_MAGIC, _VERSION, 0, len(self.bases), len(self.blocks), *self.range, 0, 0)[:-4]
        crc: int = google_crc32c.value(index + trailer)
        return index + trailer + crc.to_bytes(4, "big")


def merged_name(range_: Range) -> str:
    return f"{range_.base:020d}-{range_.end:020d}.merged"


def range_of(name: str) -> Range | None:
    """Return the offsets in the name of a merged file; None for any other name."""
    match = _NAME.fullmatch(name)
    if match is None or not int(match[1]) < int(match[2]) <= OFFSET_MAX:
        return None
    return Range(int(match[1]), int(match[2]))


def blocks_of(size: int) -> int:
    """Return how many blocks a segment of this size has."""
    return -(-size // BLOCK_BYTES)


def compressed(raw: bytes) -> bytes:
    return zlib.compress(raw, LEVEL)


class MergedFile:
    """A merged file, open for reading. Only the index is in memory."""

    def __init__(self, directory: Directory, name: str, *, part: bool = False) -> None:
        """Open the file and read its index; `part`: the file is not renamed yet.

        Raises:
            CorruptLog: the index is damaged, or does not fit the file.
            FileNotFoundError: the file does not exist.
        """
        range_ = range_of(name)
        assert range_ is not None, name
        self._name = name + PART_SUFFIX if part else name
        self._directory = directory
        self.path = f"{directory.path_text}/{self._name}"
        with closing(self.file()) as file:
            self.index = _read_index(file, range_, self.path)
        self._positions = [0, *accumulate(stored for stored, _ in self.index.blocks)]
        self._first_blocks = [0, *accumulate(blocks_of(size) for size in self.index.sizes)]

    def file(self) -> File:
        """Open the file that all blocks lie in."""
        return self._directory.open(self._name)

    def open(self, base: Offset) -> "MergedSegment":
        """Open the segment at `base`, which the index has."""
        number = self.index.bases.index(base)
        return MergedSegment(self, self._first_blocks[number], self.index.sizes[number])

    def block(self, file: File, number: int, size: int) -> bytes:
        """Read block `number`, which has `size` bytes when it is expanded.

        Raises:
            CorruptLog: the block is damaged.
        """
        stored, crc = self.index.blocks[number]
        position = self._positions[number]
        data = read_around(file, position, stored)
        if len(data) != stored or google_crc32c.value(data) != crc:
            raise CorruptLog(f"{self.path}: the block at {position} is damaged: its CRC-32C is another one")
        expanding = zlib.decompressobj()
        try:
            raw = expanding.decompress(data, size)
            more = expanding.decompress(
                expanding.unconsumed_tail, 1
            )  # the stream's checksum may be behind the last byte
        except zlib.error as e:
            raise CorruptLog(f"{self.path}: the block at {position} cannot be expanded: {e}") from e
        if len(raw) != size or more or not expanding.eof or expanding.unused_data:
            raise CorruptLog(
                f"{self.path}: the block at {position} does not have the {size} bytes that the index names"
            )
        return raw


class MergedSegment(ReadOnlyFile):
    """One segment inside of a merged file, which reads as the segment's own file did."""

    def __init__(self, merged: MergedFile, first_block: int, size: int) -> None:
        self._merged, self._first_block, self._size = merged, first_block, size
        self._file = merged.file()
        self._last: tuple[int, bytes] = (-1, b"")
        """The block that was read last, and its bytes."""

    def size(self) -> int:
        return self._size

    def read_at(self, position: int, length: int) -> bytes:
        stop = min(position + length, self._size)
        parts = []
        while position < stop:
            number, at = divmod(position, BLOCK_BYTES)
            parts.append(self._block(number)[at : at + stop - position])
            position += len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _block(self, number: int) -> bytes:
        if self._last[0] != number:
            size = min(BLOCK_BYTES, self._size - number * BLOCK_BYTES)
            self._last = (number, self._merged.block(self._file, self._first_block + number, size))
        return self._last[1]

    def close(self) -> None:
        self._file.close()


def chunks(file: File) -> Iterator[bytes]:
    """Read a segment's file in the pieces that become its blocks."""
    size = file.size()
    for position in range(0, size, BLOCK_BYTES):
        yield file.read_at(position, min(BLOCK_BYTES, size - position))


def _read_index(file: File, range_: Range, path: str) -> Index:
    size = file.size()
    trailer = read_around(file, max(0, size - _TRAILER.size), _TRAILER.size)
    if len(trailer) < _TRAILER.size:
        raise CorruptLog(f"{path}: {size} bytes are too few for a merged file")
    magic, version, _, segments, blocks, base, end, _, crc = _TRAILER.unpack(trailer)
    if magic != _MAGIC:
        raise CorruptLog(f"{path}: the file does not end as a merged file does")
    if segments > SEGMENTS_MAX or blocks > BLOCKS_MAX:
        raise CorruptLog(
            f"{path}: the trailer names {segments} segments and {blocks} blocks, more than a file may have"
        )
    index_bytes = segments * _SEGMENT.size + blocks * _BLOCK.size
    start = size - _TRAILER.size - index_bytes
    data = b"" if start < 0 else read_around(file, start, index_bytes)
    if len(data) != index_bytes or google_crc32c.value(data + trailer[:-4]) != crc:
        raise CorruptLog(f"{path}: the CRC-32C of the index is another one")
    if version != _VERSION:
        raise LogFormatError(
            f"{path}: merged file of version {version}; this release reads {_VERSION}; use the release that wrote it"
        )
    rows = list(_SEGMENT.iter_unpack(data[: segments * _SEGMENT.size]))
    found = Index(
        Range(base, end),
        [each[0] for each in rows],
        [each[1] for each in rows],
        list(_BLOCK.iter_unpack(data[segments * _SEGMENT.size :])),
    )
    problem = _problem(found, range_, start)
    if problem is not None:
        raise CorruptLog(f"{path}: the index does not fit: {problem}")
    return found


def _problem(index: Index, range_: Range, blocks_end: int) -> str | None:
    """Return what is wrong with an index, whose blocks end at `blocks_end`; None: nothing."""
    bases = index.bases
    if index.range != range_:
        return "it names other offsets than the file's name"
    if not bases or bases[0] != range_.base or bases[-1] >= range_.end:
        return "the segments do not begin at the file's base offset, or go beyond its end"
    if any(low >= high for low, high in pairwise(bases)):
        return "the segments are not in order"
    if not all(0 < size <= BLOCKS_MAX * BLOCK_BYTES for size in index.sizes):
        return "a segment has no bytes, or too many"
    if sum(map(blocks_of, index.sizes)) != len(index.blocks):
        return "the number of blocks is not that of the segments' sizes"
    if any(not 0 < stored <= STORED_BYTES_MAX for stored, _ in index.blocks):
        return "a block has no bytes, or too many"
    if sum(stored for stored, _ in index.blocks) != blocks_end:
        return "the blocks do not fill the file"
    return None
