"""All the files of one log, oldest first; the last one is active, the others are sealed.

    piece          piece        piece            piece (active)
    [------------)[------)~~~~~~[--------------)[------------)
    file 0        file 1: damaged inside        file 2

A *piece* is what is intact in one file, without damage in between: the whole file, nearly always. Between two pieces there is
nothing, or a damaged range. So nobody who reads has to know of damage before coming to the end of a piece.

The order of work on several files is chosen so that a crash in between leaves a log, though perhaps not the newest one:
  * what is cut off at the end goes newest first, so that no gap opens;
  * a segment is sealed (its exact length, an fsync) before the next one exists, so that only the last can be torn;
  * what lies below the log's start is retired after the start has moved: recovery looks at nothing below the start.

Of the sealed files only a few are kept open.
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
from metadata_log.store.recovery import segment_names
from metadata_log.store.segment import BadBatch, EpochBelow, Segment, SegmentHeader, base_offset_of, walk
from metadata_log.store.segment_repair import may_rewrite, mend

OPEN_FILES_MAX: Final = 8


class Extent(NamedTuple):
    """Batches that stand end to end in one file, for a scrub that knows nothing else: [position, end_position)."""

    name: str
    position: int
    end_position: int
    chain: bytes | None
    """The chain before the first one; None where the batches have none to check (a snapshot's)."""


class Segments:
    """See the file's head. Never empty once a log is open."""

    def __init__(self, directory: Directory, *, archive: bool) -> None:
        self._directory = directory
        self.archive = Archive(directory) if archive else None
        self._pieces: list[Segment] = []
        self._opened: deque[Segment] = deque()
        self.ranges: list[DamagedRange] = []
        """What is damaged, oldest first; each ends where a piece begins."""

    @property
    def active(self) -> Segment:
        return self._pieces[-1]

    @property
    def pieces(self) -> tuple[Segment, ...]:
        return tuple(self._pieces)

    @property
    def size_bytes(self) -> int:
        """The bytes of all segments, up to the end of their last batches."""
        return sum(piece.end_position - piece.first_position for piece in self._pieces)

    def of(self, offset: Offset) -> Segment:
        """The piece that holds the record at `offset`, or ends there; the one before, if `offset` is damaged."""
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
        """The damaged range that the record at `offset` is in."""
        return next((each for each in self.ranges if each.start <= offset < each.end), None)

    def adopt(self, pieces: list[Segment], ranges: list[DamagedRange]) -> None:
        """Takes over what recovery, or a repair, has made."""
        self._pieces, self.ranges = pieces, ranges
        self._opened.clear()
        for piece in pieces[:-1]:
            piece.release()

    def create(self, header: SegmentHeader) -> Segment:
        """A new active segment, durable with its name; the one before it is sealed."""
        if self._pieces:
            self.active.seal()
        segment = Segment.create(self._directory, header)
        sealed = self._pieces[-1:]
        self._pieces.append(segment)
        for piece in sealed:
            self.of(piece.base_offset)
        return segment

    def cut(self, end: Offset, position: int) -> None:
        """Nothing from `end` on stays, durably; `ending_at` has found it at `position`. Nothing is read any more."""
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
        """Every segment in the directory goes, open or not."""
        self.close()
        self._pieces, self.ranges = [], []
        self._opened.clear()
        for name in segment_names(self._directory):
            self._directory.remove(name)
        self._directory.flush()

    def retire_below(self, start: Offset) -> list[str]:
        """Files that lie wholly below `start` go to the archive, or away; gives their names."""
        keep = max(0, bisect_right(self._pieces, start, key=lambda each: each.base_offset) - 1)
        for piece in self._pieces[:keep]:
            piece.release()
        del self._pieces[:keep]
        self.ranges = [each for each in self.ranges if each.end > start]
        first = base_offset_of(self._pieces[0].name)
        assert first is not None
        return self.retire([name for name in segment_names(self._directory) if (base_offset_of(name) or 0) < first])

    def retire(self, names: list[str]) -> list[str]:
        """Moves these to the archive, or removes them."""
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
        """The chain at `offset`, which lies in the log; None if that is no batch boundary.

        Raises:
            DamagedRangeRead: whether it is one is not known any more.
        """
        place = self._holding(offset).locate(offset)
        return place[1] if place else None

    def ending_at(self, offset: Offset) -> tuple[int, bytes, Batch | None] | None:
        """Where in its file the boundary `offset` is, the chain there, and the batch before it, if one is in that piece.

        None if it is no boundary. Raises as `chain_at` does.
        """
        piece = self._holding(offset)
        place = piece.locate(offset)
        return (*place, piece.last_batch_below(offset)) if place else None

    def read(self, offset: Offset, max_bytes: int, until: Offset) -> list[Batch]:
        """Batches from the boundary `offset` on, from disk: at least one if any ends at or below `until`.

        Raises:
            DamagedRangeRead: the very first one is damaged. (Else what comes before the damage is given.)
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

    def _holding(self, offset: Offset) -> Segment:
        piece = self.of(offset)
        if not piece.base_offset <= offset <= piece.end_offset:
            self._refuse(offset)
        return piece

    def _refuse(self, offset: Offset) -> None:
        damaged = self.damaged_at(offset)
        assert damaged is not None, f"a gap at {offset} that nobody knows of"
        raise DamagedRangeRead.of(self._directory.path_text, damaged)

    # --- damage that shows later -----------------------------------------------------------------------------------

    def extents(self) -> list[Extent]:
        """What of the sealed segments is believed to be intact."""
        return [
            Extent(piece.name, piece.first_position, piece.end_position, piece.header.previous_chain)
            for piece in self._pieces[:-1]
        ]

    def damage(self, name: str, position: int, end_chain: bytes, epoch_below: EpochBelow) -> DamagedRange | None:
        """Something at `position` of the file `name` is not what was written. None if no piece holds that (any more).

        What is lost with it, the index tells: everything from its last entry before to its next one behind. `end_chain` is
        the chain at the log's end.
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
            behind = following  # up to the next piece nothing is known to be intact
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
        """What is damaged below the log's start is not missed, or not any more."""
        offset = start.start.offset
        self.ranges = [each.above(offset, start.chain) for each in self.ranges if each.end > offset]

    def empty_ranges(self) -> list[DamagedRange]:
        """Those of which no record is missing, and which can be mended without loss to the others."""
        empty = [each for each in self.ranges if each.start == each.end]
        return [each for each in empty if may_rewrite(self._directory, each, self.ranges)]

    def mend(self, damaged: DamagedRange, batches: Sequence[Batch], start: LogStart) -> None:
        """See `mending.mend`."""
        mended = mend(self._directory, self._pieces, damaged, batches, start)
        others = [each for each in self.ranges if each != damaged]
        self.adopt(mended.pieces, [mended.moved.follow(each) if mended.moved else each for each in others])

    def close(self) -> None:
        for piece in self._pieces:
            piece.release()


def check(directory: Directory, extent: Extent, max_bytes: int) -> Extent | None:
    """Reads up to `max_bytes` of `extent` again, CRC and chain; gives what is left of it. May run on any thread.

    Raises:
        CorruptLog: silent rot, or what the disk cannot read, with its place.
        FileNotFoundError: the file was retired, or replaced, meanwhile.
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
