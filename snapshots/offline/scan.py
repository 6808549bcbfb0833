"""Scan a part of a segment's file, and go on after damage: a damaged place becomes a `Scanned` with an error.

    [ header | batch | batch | ~~~~~~~ | batch | 0 0 0 0
                               ^ error   ^ found by searching the next intact batch with a later offset

One damaged batch is one error. Example: the batch of 40..49 is damaged. The scan reports 40..49, and does not know the
chain at 50. So it does not report the intact batch of 50..59 as one with a broken chain.
"""

import re
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from metadata_log.disk.files import File
from metadata_log.format.batch import BATCH_BYTES_MAX, HEADER_BYTES, Batch, batch_length, decode, verify_chain
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import OFFSET_MAX, Offset
from metadata_log.store.segment import SEGMENT_HEADER_BYTES, base_offset_of, unpack_header, unproven

_WINDOW_BYTES: Final = 8 << 20
_CHAIN_AT: Final = 48
_BATCH_BEGINS: Final = re.compile(rb"(?=\x01[\x00\x01]\x00\x00)")
"""Pattern for the beginning of a batch, with a lookahead: if a record ends with 01, the next batch begins one byte
later."""
_PLACE_AT: Final = 16
_PLACE: Final = struct.Struct(">QI")
"""Base offset and record count, as in a batch's header."""


class Scanned(NamedTuple):
    """A batch, or a damaged place where a batch should be."""

    position: int
    length: int
    batch: Batch | None
    """None for a damaged place."""
    expected_offset: Offset | None
    """The end of the batch before; None after damage."""
    previous_chain: bytes | None
    """The chain before, from the file's header or the previous batch; None after damage."""
    chain_ok: bool | None
    """True if the batch continues `previous_chain`; None if that or the batch is unknown, or no chain is verified."""
    error: str | None


class FileRange(NamedTuple):
    """A part of a segment's file, from one batch boundary to another."""

    name: str
    start: int
    stop: int
    expected_offset: Offset | None
    previous_chain: bytes | None
    """Chain and expected offset are None at the start of a file: the file's header has them."""


class Window:
    """A file that is read forward in large blocks."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._data = b""
        self._start = 0

    def at(self, position: int, length: int) -> tuple[bytes, int]:
        """Return bytes, and the index of `position` in them. At least `length` bytes follow, unless the file ends."""
        at = position - self._start
        if not 0 <= at <= len(self._data) - length:
            self._data = self._file.read_at(position, max(length, _WINDOW_BYTES))
            self._start, at = position, 0
        return self._data, at


def split(file: File, name: str, split_bytes: int) -> list[FileRange]:
    """Split a file into parts of about `split_bytes` at batch boundaries. Only headers are read, and nothing is
    checked.

    From the first header that cannot be right, the rest of the file is one part.
    """
    size = file.size()
    ranges: list[FileRange] = []
    begun = FileRange(name, 0, size, None, None)
    window, position = Window(file), SEGMENT_HEADER_BYTES
    expected: Offset | None = None
    chain: bytes | None = None
    while size > split_bytes and position < size:
        data, at = window.at(position, HEADER_BYTES)
        try:
            length = batch_length(data, at)
        except LogFormatError:
            break
        if expected is not None and position - begun.start >= split_bytes:
            ranges.append(begun._replace(stop=position))
            begun = FileRange(name, position, size, expected, chain)
        base_offset, count = _PLACE.unpack_from(data, at + _PLACE_AT)
        expected, chain = base_offset + count, data[at + _CHAIN_AT : at + HEADER_BYTES]
        position += length
    return [*ranges, begun]


def scan(file: File, stretch: FileRange, until: Offset | None = None, *, chained: bool = True) -> Iterator[Scanned]:
    """Scan the batches of one part of a file, in order. End at the zero tail, or when the log reaches `until`.

    A batch that begins below `until` is returned as a whole. Unless `chained`, no chain is verified.
    """
    position, expected, chain = stretch.start, stretch.expected_offset, stretch.previous_chain
    if position == 0:
        error = None
        head = file.read_at(0, SEGMENT_HEADER_BYTES)
        try:
            header = unpack_header(head)
            expected, chain = header.start.offset, header.previous_chain
            if expected != base_offset_of(stretch.name):
                error = f"the header names base offset {expected}"
            elif any(unproven(head)):
                error = "reserved bytes of the segment header are not zero"
        except LogFormatError as e:
            error = str(e)
        if error is not None:
            expected, chain = base_offset_of(stretch.name), None
            if until is not None and expected is not None and expected >= until:
                return
            yield Scanned(0, SEGMENT_HEADER_BYTES, None, expected, None, None, error)
        position = SEGMENT_HEADER_BYTES
    window = Window(file)
    while position < stretch.stop and (until is None or expected is None or expected < until):
        data, at = window.at(position, BATCH_BYTES_MAX)
        if at >= len(data) or (data[at] == 0 and _is_zero(file, position, stretch.stop)):
            return
        try:
            batch = decode(data, at)
            if batch.end_offset > OFFSET_MAX:
                raise LogFormatError(f"the batch would end at offset {batch.end_offset}; {OFFSET_MAX} is the last one")
        except LogFormatError as e:
            after = _next_intact(file, position, stretch.stop, expected)
            stop = stretch.stop if after is None else after
            yield Scanned(position, stop - position, None, expected, chain, None, str(e))
            position, expected, chain = stop, None, None
            continue
        if until is not None and batch.base_offset >= until:
            return  # behind damage, which may have hidden the end
        chain_ok = verify_chain(batch, chain) if chained and chain is not None else None
        yield Scanned(position, len(batch.data), batch, expected, chain, chain_ok, None)
        position += len(batch.data)
        expected, chain = batch.end_offset, batch.chain


def _is_zero(file: File, position: int, stop: int) -> bool:
    while position < stop:
        data = file.read_at(position, min(_WINDOW_BYTES, stop - position))
        if not data:
            return True
        if data.strip(b"\x00"):
            return False
        position += len(data)
    return True


def _next_intact(file: File, position: int, stop: int, above: Offset | None) -> int | None:
    """Return the nearest position after `position` where an intact batch with a later offset begins; None if there is
    none.

    The damaged batch's own length is not used: one wrong bit in it could skip intact batches.
    """
    overlap = BATCH_BYTES_MAX
    start = position + 1
    while start < stop:
        data = file.read_at(start, _WINDOW_BYTES + overlap)
        for match in _BATCH_BEGINS.finditer(data, 0, min(len(data), _WINDOW_BYTES + 4)):
            if start + match.start() < stop and _intact(data, match.start(), above):
                return start + match.start()
        start += _WINDOW_BYTES
    return None


def _intact(data: bytes, at: int, above: Offset | None) -> bool:
    try:
        batch = decode(data, at)
        return batch.base_offset >= (above or 0) and batch.end_offset <= OFFSET_MAX
    except LogFormatError:
        return False
