"""The parts of the logs that tasks read: planned by names and headers, opened by the workers.

Segments that retention has moved lie in `archive/`, alone or merged, and a part does not name the folder, because a live node may
move a segment between the planning and the reading. Example:
  1. The driver plans the segment at 1,244, in the log's directory.
  2. The node moves the segment into the archive, and an operator merges the archive.
  3. The task finds the segment there. If the node has deleted the segment, the part is empty; a stream fails instead.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Final

from pyspark.sql.datasource import InputPartition

from metadata_log.disk.files import Directory, File
from metadata_log.format.errors import CorruptLog, LogFormatError
from metadata_log.format.ids import OFFSET_MAX, Offset
from metadata_log.store.archive import ARCHIVE_NAME
from metadata_log.store.archived.view import ArchiveView
from metadata_log.store.segment import SEGMENT_HEADER_BYTES, base_offset_of, unpack_header
from snapshots.offline.inputs import NodeLog, SegmentFile, split_bytes_of
from snapshots.offline.reading.ends import ends_of
from snapshots.offline.reading.options import Settings
from snapshots.offline.readonly import ReadOnlyDirectory
from snapshots.offline.scan import FileRange, split
from snapshots.offline.typed.filters import Bounds

_US: Final = 1_000


class Part(InputPartition):  # type: ignore[misc]
    """The input of one task: the records [since, until) in a part of a segment, or (stretch None) a snapshot."""

    def __init__(
        self,
        log: NodeLog,
        stretch: FileRange | None,
        since: Offset,
        until: Offset | None,
        *,
        snapshot: str | None = None,
        strict: bool = False,
    ) -> None:
        super().__init__((log.node, log.path, stretch, since, until, snapshot, strict))
        self.node = log.node
        self.directory = log.path
        self.stretch = stretch
        self.since = since
        self.until = until
        self.snapshot = snapshot
        self.strict = strict
        """A stream: a file that is gone, and a place that is damaged, are errors."""

    @property
    def end(self) -> Offset:
        """`until`, or the highest offset."""
        return OFFSET_MAX if self.until is None else self.until

    def open(self) -> File | None:
        """Open the segment where it lies now; None if the file is gone.

        Raises:
            LogFormatError: the file is gone, and the part is strict.
        """
        assert self.stretch is not None
        file = opened(ReadOnlyDirectory(self.directory), self.stretch.name)
        if file is None and self.strict:
            raise LogFormatError(
                f"{self.directory}/{self.stretch.name} was deleted before the stream has read it; begin a new query, or read "
                "another node's directory"
            )
        return file


def with_archive(log: NodeLog) -> NodeLog:
    """Return the log with the segments in `archive/`. A segment that lies in both directories is read once.

    Raises:
        CorruptLog: a merged file of the archive is damaged.
    """
    if not log.directory.exists(ARCHIVE_NAME):
        return log
    archive = ArchiveView(log.directory.subdirectory(ARCHIVE_NAME))
    found = {segment.base_offset: segment for segment in log.segments}
    for name in archive.names():
        base = base_offset_of(name)
        if base is None or base in found:
            continue
        try:
            with closing(archive.open(name)) as file:
                found[base] = SegmentFile(name, base, file.size())
        except FileNotFoundError:
            continue  # deleted since the directory was listed
    for reason in archive.damaged.values():
        raise CorruptLog(
            f'{reason}; move the file out of the archive, or read the log without its archive: .option("archive", "false")'
        )
    return log._replace(segments=tuple(found[base] for base in sorted(found)))


def opened(directory: ReadOnlyDirectory, name: str) -> File | None:
    """Open a segment in the directory, or in its archive; None if the segment is gone."""
    places: tuple[Directory, ...] = (directory, ArchiveView(directory.subdirectory(ARCHIVE_NAME)))
    for place in places:
        try:
            return place.open(name)
        except FileNotFoundError:
            continue
    return None


def plan(logs: Sequence[NodeLog], settings: Settings, bounds: Bounds, *, prunes: bool) -> Iterator[Part]:
    """Return the parts of all logs up to the ends that the settings name.

    Raises:
        LogFormatError: see `ends_of`.
    """
    ends = ends_of(logs, settings.until, settings.beside)
    logs = tuple(map(with_archive, logs)) if settings.reads_archive else logs
    logs = tuple(log.standing_on(settings.standing[log.path]) if log.path in settings.standing else log for log in logs)
    split_bytes = split_bytes_of(logs, settings.split_bytes)
    for log in logs:
        yield from parts_of(log, ends[log.path], bounds, split_bytes, prunes=prunes)


def parts_of(
    log: NodeLog, until: Offset | None, bounds: Bounds, split_bytes: int, *, prunes: bool, strict: bool = False
) -> Iterator[Part]:
    """Return the parts of one log that can have records within the bounds. `prunes`: leave out parts of segments, too."""
    end = min(bounds.until, OFFSET_MAX if until is None else until)
    segments = log.segments_needed(bounds.since, None if end == OFFSET_MAX else end)
    for segment in _in_time(log, segments, bounds):
        file = opened(log.directory, segment.name)
        if file is None:
            continue  # retired since the directory was listed
        try:
            stretches = split(file, segment.name, split_bytes)
        finally:
            file.close()
        for stretch, after in zip(stretches, [*stretches[1:], None], strict=True):
            if not prunes or not _is_outside(stretch, after, bounds.since, end):
                yield Part(log, stretch, bounds.since, None if end == OFFSET_MAX else end, strict=strict)


def _is_outside(stretch: FileRange, after: FileRange | None, since: Offset, until: Offset) -> bool:
    """Return True if no record of the stretch is in [since, until). The stretch ends where the one after it begins."""
    begins = stretch.expected_offset
    ends = None if after is None else after.expected_offset
    return (begins is not None and begins >= until) or (ends is not None and ends <= since)


def _in_time(log: NodeLog, segments: Iterable[SegmentFile], bounds: Bounds) -> list[SegmentFile]:
    """Leave out the segments whose records all lie outside of the times. Times of batches never go back, and the header of a
    segment has the time of the last batch below.
    """
    segments = list(segments)
    if bounds.first_us <= 0 and bounds.last_us >= Bounds().last_us:
        return segments
    times = [_time_below(log, segment) for segment in segments]
    kept = []
    for segment, begins, ends in zip(segments, times, [*times[1:], None], strict=True):
        is_before = ends is not None and ends * _US < bounds.first_us
        is_behind = begins is not None and begins * _US > bounds.last_us
        if not is_before and not is_behind:
            kept.append(segment)
    return kept


def _time_below(log: NodeLog, segment: SegmentFile) -> int | None:
    """Return the time of the last batch below the segment; None if the header is damaged, or the file is gone."""
    file = opened(log.directory, segment.name)
    if file is None:
        return None
    try:
        return unpack_header(file.read_at(0, SEGMENT_HEADER_BYTES)).previous_timestamp_ms
    except LogFormatError:
        return None
    finally:
        file.close()
