"""All segment files of one log, oldest first. The last one is active; the others are sealed.

    piece          piece        piece            piece (active)
    [------------)[------)~~~~~~[--------------)[------------)
    file 0        file 1: damaged inside        file 2

A *piece* is the intact part of one file, without damage inside: nearly always the whole file. Between two adjacent
pieces there is nothing, or one damaged range. So a reader meets damage only at the end of a piece.

Example: file 1 has the records 100..199, and a scrub finds damage at 150. The index has entries at 100, 140 and 170.
Afterwards file 1 has two pieces, [100, 140) and [170, 200), and the damaged range [140, 170) between them. A read at
120 returns the batches up to 139; a read at 150 raises DamagedRangeRead.

Several files are changed in an order that leaves a log after any crash, although perhaps an older one:
  * a cut deletes the newest file first, so that no gap opens;
  * a segment is sealed (exact length, fsync) before the next one is created, so that only the last one can be torn;
  * segments below the log's start are retired after the start has moved, because recovery ignores files below the
    start.

At most `OPEN_FILES_MAX` sealed files are kept open.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from metadata_log.disk.files import Directory
from metadata_log.format.batch import Batch, verify_chain
from metadata_log.format.errors import CorruptLog
from metadata_log.format.ids import Offset
from metadata_log.store.archive import Archive
from metadata_log.store.damage import DamagedRange, DamagedRangeRead
from metadata_log.store.log_notes import LogStart
from metadata_log.store.piece import EpochBelow, Piece
from metadata_log.store.segment import BadBatch, SegmentHeader, base_offset_of, segment_names, walk
from metadata_log.store.segment_repair import may_rewrite, repair_range

OPEN_FILES_MAX: Final = 8
"""Maximum number of sealed files that are kept open."""


class Extent(NamedTuple):
    """Adjacent batches in one file, [position, end_position). This is everything that a scrub needs to check them."""

    name: str
    position: int
    end_position: int
    chain: bytes | None
    """The chain before the first batch; None if the batches have no chain to check (batches of a snapshot)."""


class Segments:
    """The pieces and damaged ranges of one log. Never empty once the log is open."""

    def __init__(self, directory: Directory, *, archive: bool) -> None:
        self._directory = directory
        self.archive = Archive(directory) if archive else None
        self._pieces: list[Piece] = []
        self._opened: deque[Piece] = deque()
        self.ranges: list[DamagedRange] = []
        """The damaged ranges, oldest first. Each one ends where a piece begins."""

    @property
    def active(self) -> Piece:
        return self._pieces[-1]

    @property
    def pieces(self) -> tuple[Piece, ...]:
        return tuple(self._pieces)

    @property
    def size_bytes(self) -> int:
        """The bytes of all segments, up to the end of their last batches."""
        return sum(piece.end_position - piece.first_position for piece in self._pieces)

    def of(self, offset: Offset) -> Piece:
        """Return the piece that has the record at `offset`, or ends there; if `offset` is damaged, the piece before."""
        index = bisect_right(self._pieces, offset, key=lambda each: each.base_offset) - 1
        piece = self._pieces[max(0, index)]
        if piece is not self._pieces[-1] and piece not in self._opened:
            self._opened.append(piece)
            if len(self._opened) > OPEN_FILES_MAX:
                oldest = self._opened.popleft()
                if oldest is not self._pieces[-1]:
                    oldest.release()
        return piece

    def damaged_at(self, offset: Offset) -> DamagedRange | None:
        """Return the damaged range that includes the record at `offset`."""
        for each in self.ranges:
            if each.start <= offset < each.end:
                return each
        return None

    def adopt(self, pieces: list[Piece], ranges: list[DamagedRange]) -> None:
        """Replace all pieces and ranges by those of a recovery or a repair."""
        self._pieces, self.ranges = pieces, ranges
        self._opened.clear()
        for piece in pieces[:-1]:
            piece.release()

    def create(self, header: SegmentHeader) -> Piece:
        """Seal the active segment and create a new one, durable together with its name."""
        if self._pieces:
            self.active.seal()
        segment = Piece.create(self._directory, header)
        sealed = self._pieces[-1:]
        self._pieces.append(segment)
        for piece in sealed:
            self.of(piece.base_offset)
        return segment

    def cut(self, end: Offset, position: int) -> None:
        """Remove everything from `end` on, durably. `ending_at` has found `end` at `position`. Nothing is read
        again.
        """
        keep = bisect_right(self._pieces, end, key=lambda each: each.base_offset)
        last = base_offset_of(self._pieces[keep - 1].name)
        assert last is not None
        for piece in reversed(self._pieces[keep:]):
            piece.release()
        gone = [name for name in segment_names(self._directory) if (base_offset_of(name) or 0) > last]
        for name in reversed(gone):
            self._directory.remove(name)
        if gone:
            self._directory.flush()
        del self._pieces[keep:]
        self.ranges = [each for each in self.ranges if each.end <= end]
        self._opened.clear()
        self.active.cut(end, position)

    def remove_all(self) -> None:
        """Delete every segment in the directory, open or not."""
        self.close()
        self._pieces, self.ranges = [], []
        self._opened.clear()
        for name in segment_names(self._directory):
            self._directory.remove(name)
        self._directory.flush()

    def retire_below(self, start: Offset) -> list[str]:
        """Retire the files that are wholly below `start`. Return their names."""
        keep = max(0, bisect_right(self._pieces, start, key=lambda each: each.base_offset) - 1)
        for piece in self._pieces[:keep]:
            piece.release()
        del self._pieces[:keep]
        self.ranges = [each for each in self.ranges if each.end > start]
        first = base_offset_of(self._pieces[0].name)
        assert first is not None
        return self.retire([name for name in segment_names(self._directory) if (base_offset_of(name) or 0) < first])

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
        place = self._holding(offset).locate(offset)
        return place[1] if place else None

    def ending_at(self, offset: Offset) -> tuple[int, bytes, Batch | None] | None:
        """Return the position of the boundary `offset` in its file, the chain there, and the batch before, if that
        piece has one.

        Returns None if `offset` is not a boundary. Raises as `chain_at` does.
        """
        piece = self._holding(offset)
        place = piece.locate(offset)
        return (*place, piece.last_batch_below(offset)) if place else None

    def read(self, offset: Offset, max_bytes: int, until: Offset) -> list[Batch]:
        """Read batches from the boundary `offset` on, from disk: at least one if any batch ends at or below `until`.

        Raises:
            DamagedRangeRead: the first batch is damaged. If only a later batch is damaged, `read` returns the batches
                before the damage.
        """
        taken: list[Batch] = []
        while offset < until:
            piece = self.of(offset)
            if not piece.base_offset <= offset < piece.end_offset:
                if taken:
                    return taken
                self._refuse(offset)
            place = piece.locate(offset)
            assert place is not None, f"{offset} is not a batch boundary"
            for _, batch in piece.batches(place[0]):
                max_bytes -= len(batch.data)
                if batch.end_offset > until or (taken and max_bytes < 0):
                    return taken
                taken.append(batch)
            offset = piece.end_offset
        return taken

    def _holding(self, offset: Offset) -> Piece:
        piece = self.of(offset)
        if not piece.base_offset <= offset <= piece.end_offset:
            self._refuse(offset)
        return piece

    def _refuse(self, offset: Offset) -> None:
        damaged = self.damaged_at(offset)
        assert damaged is not None, f"a gap at {offset} that is not a damaged range"
        raise DamagedRangeRead.of(self._directory.path_text, damaged)

    # --- damage that shows later -----------------------------------------------------------------------------------

    def extents(self) -> list[Extent]:
        """Return the parts of the sealed segments that are believed to be intact."""
        return [
            Extent(piece.name, piece.first_position, piece.end_position, piece.header.previous_chain)
            for piece in self._pieces[:-1]
        ]

    def damage(self, name: str, position: int, end_chain: bytes, epoch_below: EpochBelow) -> DamagedRange | None:
        """Record damage at `position` of the file `name`. Returns None if no piece covers that position (any more).

        The damaged range reaches from the last index entry before the damage to the next entry behind it. `end_chain`
        is the chain at the log's end.
        """
        i = next((i for i, each in enumerate(self._pieces) if each.name == name and each.holds(position)), None)
        if i is None:
            return None
        piece = self._pieces[i]
        following = self._pieces[i + 1] if i + 1 < len(self._pieces) else None
        before, after = piece.split(position, end_chain, epoch_below)
        place = before.locate(before.end_offset)
        assert place is not None
        ahead = None
        if before.end_offset == before.base_offset:
            ahead = next((each for each in self.ranges if each.end == before.base_offset), None)
        kept = [before] if ahead is None else []
        behind = after
        if following is not None and after.end_offset == after.base_offset:
            behind = following  # nothing before the next piece is known to be intact
        else:
            kept.append(after)
        damaged = DamagedRange(
            ahead.start if ahead else before.end_offset,
            behind.base_offset,
            ahead.chain_before if ahead else place[1],
            behind.header.previous_chain,
            file=ahead.file if ahead else name,
            position=ahead.position if ahead else before.end_position,
            end_file=behind.name,
            end_position=behind.first_position,
            epoch_after=behind.header.start.epoch,
            timestamp_after_ms=behind.header.previous_timestamp_ms,
        )
        self._pieces[i : i + 1] = kept
        others = [each for each in self.ranges if each.end <= damaged.start or each.start >= damaged.end]
        self.ranges = sorted([*others, damaged])
        self._opened.clear()
        return damaged

    def forget_damage_below(self, start: LogStart) -> None:
        """Drop damage below the log's start: the log does not miss those records."""
        offset = start.start.offset
        self.ranges = [each.above(offset, start.chain) for each in self.ranges if each.end > offset]

    def empty_ranges(self) -> list[DamagedRange]:
        """Return the damaged ranges without a missing record that can be repaired without harm to the other ranges."""
        empty = [each for each in self.ranges if each.start == each.end]
        return [each for each in empty if may_rewrite(self._directory, each, self.ranges)]

    def repair(self, damaged: DamagedRange, batches: Sequence[Batch], start: LogStart) -> None:
        """Put back the records of `damaged`; see `segment_repair.repair_range`."""
        repaired = repair_range(self._directory, self._pieces, damaged, batches, start)
        others = [each for each in self.ranges if each != damaged]
        self.adopt(repaired.pieces, [repaired.moved.follow(each) if repaired.moved else each for each in others])

    def close(self) -> None:
        for piece in self._pieces:
            piece.release()


def check(directory: Directory, extent: Extent, max_bytes: int) -> Extent | None:
    """Read up to `max_bytes` of `extent` again, and check CRCs and chain. Return the unread rest. May run on any
    thread.

    Raises:
        CorruptLog: the disk returns wrong bytes, or cannot read them; the error names the place.
        FileNotFoundError: the file was retired or replaced meanwhile.
    """
    name, position, end_position, chain = extent
    file = directory.open(name)
    stop = min(end_position, position + max_bytes)
    try:
        for _, batch in walk(file, position, stop):
            if chain is not None:
                if not verify_chain(batch, chain):
                    raise BadBatch(position, "the batch does not continue the chain")
                chain = batch.chain
            position += len(batch.data)
        if position < stop:
            raise BadBatch(position, "the file ends, or is zero, where a batch was written")
    except BadBatch as e:
        raise CorruptLog.at(f"{directory.path_text}/{name}", e.position, 0, str(e)) from e
    finally:
        file.close()
    return Extent(name, position, end_position, chain) if position < end_position else None
