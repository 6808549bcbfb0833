"""All the files of one log, oldest first and without gaps; the last one is active, the others are sealed.

The order of work on several files is chosen so that a crash in between leaves a log, though perhaps not the newest one:
  * what is cut off at the end goes newest first, so that no gap opens;
  * a segment is sealed (its exact length, an fsync) before the next one exists, so that only the last can be torn;
  * what lies below the log's start is retired after the start has moved: recovery looks at nothing below the start.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from metadata_log.batch import Batch, verify_chain
from metadata_log.files import Directory
from metadata_log.ids import Offset
from metadata_log.recovery import segment_names
from metadata_log.segment import SEGMENT_HEADER_BYTES, Segment, SegmentHeader

ARCHIVE_NAME: Final = "archive"


class ScrubProgress(NamedTuple):
    """How far a scrub has come: all of `segment` below `position` is as it was written."""

    segment: str
    position: int
    offset: Offset


class Segments:
    """See the file's head. Never empty once a log is open."""

    def __init__(self, directory: Directory, *, archive: bool) -> None:
        self._directory = directory
        self._archive = archive
        self._segments: list[Segment] = []

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    @property
    def size_bytes(self) -> int:
        """The bytes of all segments, up to the end of their last batches."""
        return sum(segment.end_position for segment in self._segments)

    def of(self, offset: Offset) -> Segment:
        """The segment that holds the record at `offset`, or ends there."""
        return self._segments[bisect_right(self._segments, offset, key=lambda each: each.base_offset) - 1]

    def adopt(self, segments: list[Segment]) -> None:
        """Takes over what recovery has opened."""
        self._segments = segments

    def create(self, header: SegmentHeader) -> Segment:
        """A new active segment, durable with its name; the one before it is sealed."""
        if self._segments:
            self.active.seal()
        segment = Segment.create(self._directory, header)
        self._segments.append(segment)
        return segment

    def cut(self, end: Offset) -> None:
        """Nothing from `end` on stays, durably."""
        keep = bisect_right(self._segments, end, key=lambda each: each.base_offset)
        for segment in reversed(self._segments[keep:]):
            segment.close()
            self._directory.remove(segment.name)
        if self._segments[keep:]:
            self._directory.flush()
            del self._segments[keep:]
        self.active.cut(end)

    def remove_all(self) -> None:
        """Every segment in the directory goes, open or not."""
        self.close()
        self._segments = []
        for name in segment_names(self._directory):
            self._directory.remove(name)
        self._directory.flush()

    def retire_below(self, start: Offset) -> list[str]:
        """Segments that lie wholly below `start` go to the archive, or away; gives their names."""
        keep = max(0, bisect_right(self._segments, start, key=lambda each: each.base_offset) - 1)
        retired = self._segments[:keep]
        del self._segments[:keep]
        for segment in retired:
            segment.close()
        return self.retire([segment.name for segment in retired])

    def retire(self, names: list[str]) -> list[str]:
        """Moves these to the archive, or removes them."""
        if names and self._archive:
            archive = self._directory.subdirectory(ARCHIVE_NAME)
            for name in names:
                self._directory.move(name, archive)
            archive.flush()
        else:
            for name in names:
                self._directory.remove(name)
        if names:
            self._directory.flush()
        return names

    def chain_at(self, offset: Offset) -> bytes | None:
        """The chain at `offset`, which lies in the log; None if that is no batch boundary."""
        place = self.of(offset).locate(offset)
        return place[1] if place else None

    def read(self, offset: Offset, max_bytes: int, until: Offset) -> list[Batch]:
        """Batches from the boundary `offset` on, from disk: at least one if any ends at or below `until`."""
        taken: list[Batch] = []
        while offset < until:
            segment = self.of(offset)
            place = segment.locate(offset)
            assert place is not None, f"{offset} is not a batch boundary"
            for _, batch in segment.batches(place[0]):
                max_bytes -= len(batch.data)
                if batch.end_offset > until or (taken and max_bytes < 0):
                    return taken
                taken.append(batch)
            offset = segment.end_offset
        return taken

    def scrub(self, slice_bytes: int, is_current: Callable[[], bool]) -> Iterator[ScrubProgress]:
        """Checks the sealed segments again, CRC and chain; ends early where `is_current` says so.

        Raises:
            CorruptLog: silent rot, with its place.
        """
        for segment in self._segments[:-1]:
            chain, unread = segment.header.previous_chain, slice_bytes
            if segment not in self._segments:
                continue  # retired since the scrub began
            for position, batch in segment.batches(SEGMENT_HEADER_BYTES):
                if not verify_chain(batch, chain):
                    raise segment.corrupt(position, "the batch does not continue the chain", batch.base_offset)
                chain = batch.chain
                unread -= len(batch.data)
                if unread <= 0:
                    unread = slice_bytes
                    yield ScrubProgress(segment.name, position + len(batch.data), batch.end_offset)
                    if not is_current():
                        return
                    if segment not in self._segments:
                        break
            else:
                yield ScrubProgress(segment.name, segment.end_position, segment.end_offset)
                if not is_current():
                    return

    def close(self) -> None:
        for segment in self._segments:
            segment.close()
