"""The segments of one node, in the log's directory and in `archive/`, read beside the process that owns them.

    archive/00000000000000000000.log   archive/...1244.log   00000000000000002500.log   ...3700.log (the log appends here)

A segment that was merged (`metadata_log.store.archived`) is read as if it still lay in `archive/`.

The reader trusts nothing that it has not checked: each batch has to continue the chain of the batch before, and a segment the
segment before. Files may go meanwhile. Example:
  1. A reader lists the segments at 0, 1,244 and 2,500, and reads the first one.
  2. The node moves the segment at 1,244 into the archive. The reader finds the file there.
  3. The node deletes the segment at 1,244 from the archive instead. The reader gets FilesChanged, and no half image.
"""

from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Final, NamedTuple

from metadata_log.disk.bad_sectors import read_around
from metadata_log.disk.files import Directory, File
from metadata_log.format.batch import BATCH_BYTES_MAX, HEADER_BYTES, Batch, BatchHead, head_of, verify_chain
from metadata_log.format.errors import CorruptLog, LogFormatError
from metadata_log.format.ids import Offset
from metadata_log.store.archive import ARCHIVE_NAME
from metadata_log.store.archived.view import ArchiveView
from metadata_log.store.log_notes import read_start
from metadata_log.store.segment import (
    SEGMENT_HEADER_BYTES,
    BadBatch,
    SegmentHeader,
    base_offset_of,
    is_leftover,
    read_header,
    segment_name,
    segment_names,
    walk,
)

_WINDOW_BYTES: Final = 1 << 20
HOPS_PER_STEP: Final = 500
"""How many batches one step of a search hops over."""
assert _WINDOW_BYTES >= BATCH_BYTES_MAX


class FilesChanged(Exception):
    """A file was deleted while it was needed. The caller lists the files again, or gives up."""


class Spot(NamedTuple):
    """A batch boundary in a file."""

    base: Offset
    """The base offset of the segment: its name."""
    position: int
    offset: Offset


class LogFiles:
    """The segments of one `@metadata` directory, as they were listed by the constructor."""

    def __init__(self, metadata: Directory) -> None:
        self._places: dict[Offset, list[Directory]] = {}
        self._metadata = metadata
        archive = ArchiveView(metadata.subdirectory(ARCHIVE_NAME)) if metadata.exists(ARCHIVE_NAME) else None
        start = read_start(metadata)
        # After a power cut a segment may lie in both directories. While a reset runs, the log's own segments do not count.
        for directory in (None if start is not None and start.resetting else metadata, archive):
            for name in () if directory is None else segment_names(directory):
                if directory is not None and not _is_empty(directory, name):
                    self._places.setdefault(base_offset_of(name) or 0, []).append(directory)
        self.bases = sorted(self._places)
        self._archive = archive

    def first_below(self, offset: Offset) -> Offset | None:
        """Return the base offset of the segment that holds the record at `offset`, or would hold it; None: no segment does."""
        below = [base for base in self.bases if base <= offset]
        return below[-1] if below else None

    def heads(self, spot: Spot, until: Offset | None) -> Iterator[tuple[Spot, BatchHead]]:
        """Hop over the batches from `spot` on, each with its place, as far as they follow each other, and at most to `until`.

        Checksums are not computed. The hops end without an error at the first byte that is no batch: the caller knows how far
        the log has to reach.

        Raises:
            FilesChanged: a segment was deleted meanwhile.
        """
        base, position, offset = spot
        while until is None or offset < until:
            with closing(self._open(base)) as file:
                for at, head in _hop(file, position):
                    if head.base_offset != offset or (until is not None and head.end_offset > until):
                        return
                    offset = head.end_offset
                    yield Spot(base, at, head.base_offset), head
            following = self._next(base, offset)
            if following is None:
                return
            base, position = following, SEGMENT_HEADER_BYTES

    def start_of(self, offset: Offset) -> Spot | None:
        """Return the place of the boundary `offset`; None if the segments do not have this boundary.

        Raises:
            FilesChanged: a segment was deleted meanwhile.
        """
        base = self.first_below(offset)
        if base is None:
            return None
        if base == offset:
            return Spot(base, SEGMENT_HEADER_BYTES, offset)
        for spot, head in self.heads(Spot(base, SEGMENT_HEADER_BYTES, base), offset):
            if head.end_offset == offset:
                return Spot(spot.base, spot.position + head.length, offset)
        return None

    def chain_at(self, spot: Spot) -> bytes | None:
        """Return the chain that the segment's header names, if `spot` is the beginning of a segment with an intact header."""
        return self._header(spot.base).previous_chain if spot.position == SEGMENT_HEADER_BYTES else None

    def batches(self, spot: Spot, chain: bytes, until: Offset) -> Iterator[Batch]:
        """Read the batches in [spot.offset, until), two boundaries, and check CRCs and chain.

        Raises:
            CorruptLog: the disk does not hold these batches.
            FilesChanged: a segment was deleted meanwhile.
        """
        base, position, offset = spot
        while offset < until:
            with closing(self._open(base)) as file:
                try:
                    for at, batch in walk(file, position, file.size()):
                        if batch.base_offset != offset or not verify_chain(batch, chain):
                            raise BadBatch(at, "the batch does not continue the history")
                        offset, chain = batch.end_offset, batch.chain
                        yield batch
                        if offset >= until:
                            return
                except BadBatch as e:
                    raise CorruptLog.at(self._path(base), e.position, offset, str(e)) from e
            following = self._next(base, offset)
            if following is None:
                raise CorruptLog.at(
                    self._path(base), position, offset, f"no segment follows that continues at {offset}"
                )
            base, position = following, SEGMENT_HEADER_BYTES

    def batch_at(self, spot: Spot) -> Batch:
        """Read one batch, whose head was found at `spot`. Raises as `batches`."""
        with closing(self._open(spot.base)) as file:
            try:
                for _, batch in walk(file, spot.position, file.size()):
                    return batch
            except BadBatch as e:
                raise CorruptLog.at(self._path(spot.base), e.position, spot.offset, str(e)) from e
        raise CorruptLog.at(self._path(spot.base), spot.position, spot.offset, "the file ends where a batch was")

    def lowest_before(self, end: Offset) -> Generator[None, None, Offset]:
        """Find, in steps, the base offset of the oldest segment from which segments lead up to `end` without a gap; `end`: none.

        Raises:
            FilesChanged: a segment was deleted meanwhile.
        """
        lowest = end
        for base in reversed([each for each in self.bases if each < end]):
            reached = base
            for count, (_, head) in enumerate(self._heads_of(base)):
                if count % HOPS_PER_STEP == 0:
                    yield
                reached = head.end_offset
                if reached >= end:
                    break
            if reached < lowest:
                break
            lowest = base
        return lowest

    def _heads_of(self, base: Offset) -> Iterator[tuple[int, BatchHead]]:
        offset = base
        with closing(self._open(base)) as file:
            for position, head in _hop(file, SEGMENT_HEADER_BYTES):
                if head.base_offset != offset:
                    return
                offset = head.end_offset
                yield position, head

    def _next(self, base: Offset, offset: Offset) -> Offset | None:
        """Return the segment that goes on at `offset` behind the segment `base`; None if there is none."""
        return offset if offset > base and offset in self._places else None

    def _header(self, base: Offset) -> SegmentHeader:
        with closing(self._open(base)) as file:
            try:
                return read_header(file)
            except LogFormatError as e:
                raise CorruptLog.at(self._path(base), 0, base, str(e)) from e

    def _open(self, base: Offset) -> File:
        """Open a segment where it lies now: it may have been moved into the archive."""
        name = segment_name(base)
        places = list(self._places[base])
        if self._archive is None and self._metadata.exists(ARCHIVE_NAME):
            self._archive = ArchiveView(self._metadata.subdirectory(ARCHIVE_NAME))
        for directory in (*places, *(() if self._archive is None else (self._archive,))):
            try:
                file: File = directory.open(name)
                return file
            except FileNotFoundError:
                continue
        raise FilesChanged(f"{self._path(base)} was deleted while it was read")

    def _path(self, base: Offset) -> str:
        return f"{self._places[base][0].path_text}/{segment_name(base)}"


def _is_empty(directory: Directory, name: str) -> bool:
    """Return True for a segment that has no header yet, or is gone. The log may have gone on in the file before."""
    try:
        return is_leftover(directory, name)
    except FileNotFoundError:
        return True


def _hop(file: File, position: int) -> Iterator[tuple[int, BatchHead]]:
    """Hop from header to header, up to the first bytes that are no header of a batch that lies in the file as a whole."""
    size = file.size()
    window, start = b"", position
    while position + HEADER_BYTES <= size:
        at = position - start
        if at + HEADER_BYTES > len(window):
            window, start, at = read_around(file, position, _WINDOW_BYTES), position, 0
            if len(window) < HEADER_BYTES:
                return
        try:
            head = head_of(window, at)
        except LogFormatError:
            return
        if position + head.length > size:
            return
        yield position, head
        position += head.length
