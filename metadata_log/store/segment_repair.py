"""Put lost batches back: write each affected file again as a whole, and replace the old file in one step.

    file 1: [header|intact|~~~~]   file 2: [~~~~~~~~]   file 3: [~~|intact]        ~ is one damaged range
    file 1: [header|intact|++++]   file 2: [header|++++++]   file 3: [header|++|intact]

Intact bytes are copied. The base offsets in the file names say which of the filling batches (+) belong into which file.
A header follows from the batches before it. Example, for the picture above, where the files are named 0, 100 and 200
and the range [60, 220) is damaged:
  1. write `0.repair` (intact 0..59, filling 60..99), `100.repair` (filling 100..199) and `200.repair` (filling
     200..219, the intact rest), and fsync all three. If the disk has no room, delete them; the log is unchanged;
  2. rename `0.repair` to `0` and fsync the directory: now only [100, 220) is damaged;
  3. rename the second file, then the third, in the same way.
A crash between two renames leaves a log with a smaller damaged range. A crash before the first rename leaves the log
unchanged, and the next start deletes the `*.repair` files.
"""

from collections.abc import Sequence
from contextlib import closing
from typing import Final, NamedTuple

from metadata_log.disk.copy import copy_bytes
from metadata_log.disk.files import Directory, File, is_unreadable
from metadata_log.format.batch import Batch, verify_chain
from metadata_log.format.errors import CorruptLog, LogFormatError
from metadata_log.format.ids import Offset
from metadata_log.store.damage import DamagedRange
from metadata_log.store.log_notes import LogStart
from metadata_log.store.piece import Piece
from metadata_log.store.recovery import DAMAGED_SUFFIX
from metadata_log.store.salvage import intact_batches
from metadata_log.store.segment import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    base_offset_of,
    header_of,
    is_leftover,
    pack_header,
    segment_name,
    segment_names,
)

REPAIR_SUFFIX: Final = ".repair"


class Moved(NamedTuple):
    """A move of the batches behind the damage: from the file `old` to the file `new`, `shift` bytes further on."""

    old: str
    new: str
    shift: int

    def follow(self, damaged: DamagedRange) -> DamagedRange:
        """Return `damaged` with its current files and positions."""
        if damaged.file == self.old:
            damaged = damaged._replace(file=self.new, position=damaged.position + self.shift)
        if damaged.end_file == self.old:
            damaged = damaged._replace(end_file=self.new, end_position=damaged.end_position + self.shift)
        return damaged


class Repaired(NamedTuple):
    """The pieces of the repaired log, and the move of the last piece, which other damaged ranges in that file must
    follow.
    """

    pieces: list[Piece]
    moved: Moved | None


def check_filling(damaged: DamagedRange, batches: Sequence[Batch]) -> None:
    """Raise LogFormatError unless `batches` are exactly the lost batches."""
    end, chain = damaged.start, damaged.chain_before
    for batch in batches:
        if batch.base_offset != end or not verify_chain(batch, chain):
            raise LogFormatError(
                f"the batch at offset {batch.base_offset} does not continue the intact log before {end}; nothing was changed"
            )
        end, chain = batch.end_offset, batch.chain
    if (end, chain) != (damaged.end, damaged.chain_after):
        raise LogFormatError(
            f"the batches end at {end} with another chain than the log has at {damaged.end}; nothing was changed"
        )


def read_again(directory: Directory, damaged: DamagedRange, others: Sequence[DamagedRange]) -> list[Batch]:
    """Read the files of `damaged` again, and return the batches that continue the intact log before the range.

    A failed read says little about the stored bytes, because cables, controllers and networks fail too. Damage below
    the log's start does not matter and is skipped, even if it is in the same file.

    Returns nothing while the disk cannot read another damaged range (one of `others`) in these files. A repair would
    replace those unread bytes by zeros for ever, and perhaps only this disk has those records.
    """
    if not may_rewrite(directory, damaged, others):
        return []
    first, last = base_offset_of(damaged.file), base_offset_of(damaged.end_file)
    assert first is not None and last is not None, damaged
    end, chain = damaged.start, damaged.chain_before
    batches: list[Batch] = []
    for name in segment_names(directory):
        if not first <= (base_offset_of(name) or 0) <= last:
            continue
        begin = max(damaged.position, SEGMENT_HEADER_BYTES) if name == damaged.file else SEGMENT_HEADER_BYTES
        try:
            with closing(directory.open(name)) as file:
                for _, batch in intact_batches(file, begin, damaged.start):
                    if end == damaged.end:
                        return batches
                    if batch.base_offset == end and verify_chain(batch, chain):
                        batches.append(batch)
                        end, chain = batch.end_offset, batch.chain
        except FileNotFoundError:
            return batches  # the file was retired meanwhile
    return batches


def may_rewrite(directory: Directory, damaged: DamagedRange, others: Sequence[DamagedRange]) -> bool:
    """Return True if the disk can read all other damaged ranges in the files that a repair of `damaged` writes
    again.
    """
    names = {damaged.file, damaged.end_file}
    return all(_can_read(directory, each, name) for each in others if each != damaged for name in names)


def _can_read(directory: Directory, damaged: DamagedRange, name: str) -> bool:
    """Return True if the disk can read the bytes of `damaged` in the file `name`, whether right or wrong."""
    if name not in (damaged.file, damaged.end_file):
        return True
    try:
        with closing(directory.open(name)) as file:
            position = damaged.position if name == damaged.file else SEGMENT_HEADER_BYTES
            stop = damaged.end_position if name == damaged.end_file else file.size()
            while position < stop and (data := file.read_at(position, min(1 << 20, stop - position))):
                position += len(data)
    except FileNotFoundError:
        return False
    except OSError as e:
        if not is_unreadable(e):
            raise
        return False
    return True


def discard_unfinished(directory: Directory) -> None:
    """Delete the `*.repair` files that a crash has left."""
    for name in directory.names():
        if name.endswith(REPAIR_SUFFIX):
            directory.remove(name)


def repair_range(
    directory: Directory, pieces: Sequence[Piece], damaged: DamagedRange, batches: Sequence[Batch], start: LogStart
) -> Repaired:
    """Put `batches` in the place of `damaged`, durably. `check_filling` has accepted the batches.

    Raises:
        OSError: usually the disk is full; the log is unchanged.
        CorruptLog: the disk cannot read bytes that must be copied, which is more damage; the log is unchanged.
    """
    place = (damaged.end_file, damaged.end_position)
    index = next(i for i, piece in enumerate(pieces) if (piece.name, piece.first_position) == place)
    has_before = index > 0 and pieces[index - 1].end_offset == damaged.start
    repair = _RangeRepair(directory, pieces, damaged, pieces[index - 1] if has_before else None, pieces[index], start)
    repaired = repair.run(batches)
    ahead, behind = pieces[: index - has_before], pieces[index + 1 :]
    for piece in ahead:
        piece.release()  # its file may have been replaced
    if repair.begins_anew:
        ahead = ()
    moved = repair.moved
    for piece in behind:
        if moved is not None and piece.name == moved.old:
            piece.move(moved.new, moved.shift)
    return Repaired([*ahead, *repaired, *behind], moved)


class _Rewrite(NamedTuple):
    """The new content of one file."""

    name: str
    header: SegmentHeader
    prefix: Piece | None
    """The piece before the damage, if this file begins with it."""
    share: Sequence[Batch]
    """The filling batches that belong into this file."""
    suffix: Piece | None
    """The piece behind the damage, if this file ends with it. The piece may still be in another file."""


class _RangeRepair:
    """One repair of one damaged range."""

    def __init__(
        self,
        directory: Directory,
        all_pieces: Sequence[Piece],
        damaged: DamagedRange,
        before: Piece | None,
        after: Piece,
        start: LogStart,
    ) -> None:
        self._directory = directory
        self._all_pieces = all_pieces
        self._damaged = damaged
        self._before = before
        self._after = after
        self._header = _header_behind(before) if before else SegmentHeader(start.start, start.chain, start.timestamp_ms)
        """The header of a segment that would begin where the filling has come to."""
        self._after_is_whole = self._is_whole(after)
        self.moved: Moved | None = None
        self.begins_anew = False
        """The log's first file began below the log's start; the new file begins at the start."""

    def run(self, batches: Sequence[Batch]) -> list[Piece]:
        """Write all files; return the pieces from `before` to `after`."""
        bases = self._bases()
        ends = [*bases, self._damaged.end][1:]
        self._check_that_batches_begin_at(bases[1:], batches)
        is_kept = self._before is not None and base_offset_of(self._before.name) not in bases
        pieces = [self._before] if self._before is not None and is_kept else []
        rewrites = []
        for base, end in zip(bases, ends, strict=True):
            share = [batch for batch in batches if max(base, self._header.start.offset) <= batch.base_offset < end]
            rewrites.append(self._planned(segment_name(base), share, is_last=base == bases[-1]))
        names = {rewrite.name for rewrite in rewrites}
        assert not (self._after_is_whole and self._after.name in names), (
            f"{self._after.name} is intact, and {self._damaged} is not it"
        )
        positions = self._write_all(rewrites)
        for rewrite, position in zip(rewrites, positions, strict=True):
            pieces.append(self._replace(rewrite, position))
        if self._after_is_whole:
            if not rewrites:
                self._set_foreign_file_aside()
            return [*pieces, self._after]
        if self._before is None and self.moved is not None and self.moved.old not in names:
            self._directory.remove(self.moved.old)
            self._directory.flush()
            self.begins_anew = True
        return pieces

    def _is_whole(self, after: Piece) -> bool:
        """Return True if the intact part behind the damage is a whole file with an intact header."""
        if after.first_position != SEGMENT_HEADER_BYTES or after.name != segment_name(after.base_offset):
            return False
        return after.name != self._damaged.file and header_of(self._directory, after.name) is not None

    def _bases(self) -> list[Offset]:
        """Return the base offsets of the files to write, ascending."""
        damaged, before, after = self._damaged, self._before, self._after
        in_before = before is not None and before.name == damaged.file
        bases = {base_offset_of(before.name) if before is not None and in_before else damaged.start}
        for name in segment_names(self._directory):
            base = base_offset_of(name) or 0
            if damaged.start <= base <= damaged.end and not is_leftover(self._directory, name):
                bases.add(base)
        if self._after_is_whole:
            bases.discard(after.base_offset)
        return sorted(base for base in bases if base is not None)

    def _set_foreign_file_aside(self) -> None:
        """Rename a file that does not belong to this log: no record is missing between the two whole files around
        it.
        """
        name = self._damaged.file
        self._directory.rename(name, name + DAMAGED_SUFFIX)
        self._directory.flush()

    def _check_that_batches_begin_at(self, bases: Sequence[Offset], batches: Sequence[Batch]) -> None:
        known = {self._damaged.end, *(batch.base_offset for batch in batches)}
        for base in bases:
            if base not in known:
                raise LogFormatError(f"no batch begins at {base}, where a segment begins; nothing was changed")

    def _planned(self, name: str, share: Sequence[Batch], *, is_last: bool) -> _Rewrite:
        """Plan one file, and move the next header to the end of its share."""
        prefix = self._before if self._before is not None and self._before.name == name else None
        suffix = self._after if is_last and not self._after_is_whole else None
        planned = _Rewrite(name, self._header, prefix, share, suffix)
        for batch in share:
            timestamp_ms = max(self._header.previous_timestamp_ms, batch.last_timestamp_ms)
            self._header = SegmentHeader(batch.end, batch.chain, timestamp_ms)
        return planned

    def _write_all(self, rewrites: Sequence[_Rewrite]) -> list[int]:
        """Write the files, durably, with the suffix `.repair`. Return the position of the intact rest in each."""
        positions = []
        try:
            for rewrite in rewrites:
                with closing(self._directory.open(rewrite.name + REPAIR_SUFFIX, create=True)) as file:
                    file.truncate(0)
                    positions.append(self._write(file, rewrite))
                    file.flush()
        except (OSError, CorruptLog):
            discard_unfinished(self._directory)
            raise
        return positions

    def _replace(self, rewrite: _Rewrite, suffix_position: int) -> Piece:
        """Put one file in place, durably. Return its piece."""
        name, header, prefix, share, suffix = rewrite
        for each in (prefix, suffix):
            if each is not None:
                each.release()
        self._directory.rename(name + REPAIR_SUFFIX, name)
        self._directory.flush()
        chain = header.previous_chain
        if prefix is not None:
            piece = prefix
            piece.reopen()
        else:
            piece = Piece(self._directory, name, header)
        for batch in share:
            piece.extend(batch, chain)
            chain = batch.chain
        if suffix is not None:
            self.moved = Moved(suffix.name, name, suffix_position - suffix.first_position)
            piece.absorb(suffix, self.moved.shift)
        return piece

    def _write(self, file: File, rewrite: _Rewrite) -> int:
        """Write one whole file. Return the position of its suffix."""
        prefix, suffix = rewrite.prefix, rewrite.suffix
        at = 0
        # Take the header from memory: on disk it shares a sector with the first batch, and that sector may be damaged.
        known = (each.header for each in self._all_pieces if _begins(each, rewrite.name))
        header = next(known, None) if prefix is not None else rewrite.header
        if header is not None:
            file.write_at(0, pack_header(header))
            at = SEGMENT_HEADER_BYTES
        if prefix is not None:
            at = self._copy(prefix, at, prefix.end_position, file, at)
        for batch in rewrite.share:
            file.write_at(at, batch.data)
            at += len(batch.data)
        if suffix is not None:
            # Copy to the end of the file: batches behind other damage in this file, and preallocated room, are needed
            # as well.
            self._copy(suffix, suffix.first_position, suffix.file.size(), file, at)
        return at

    def _copy(self, piece: Piece, position: int, stop: int, target: File, at: int) -> int:
        """Copy a part of a piece's file.

        A sector that the disk cannot read is more damage, unless that sector is known to be damaged: then zeros are
        written.
        """

        def refuse(sector: int) -> None:
            for each in self._all_pieces:
                if each.name == piece.name:
                    each.refuse_unreadable(sector)

        return copy_bytes(piece.file, position, stop, target, at, refuse)


def _begins(piece: Piece, name: str) -> bool:
    return piece.name == name and piece.first_position == SEGMENT_HEADER_BYTES


def _header_behind(piece: Piece) -> SegmentHeader:
    """Return the header of a segment that would begin where `piece` ends."""
    last = piece.last_batch_below(piece.end_offset)
    if last is None:
        return piece.header
    return SegmentHeader(last.end, last.chain, max(last.last_timestamp_ms, piece.header.previous_timestamp_ms))
