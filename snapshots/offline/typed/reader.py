"""The reader of the typed view: plans the parts of the log that can have rows, and reads one part in a task.

A place that is damaged ends the query: a table without the records of a damaged place would look whole. With the option
`damage` = `skip` the reader leaves such places out; `audit` names them. Records of the type that a later release wrote end the
query, too.

*Filters are pushed down only on demand* (option `pushdown`), because of a defect in Spark 4.1 to 4.3: Spark keeps what a pushed
filter made of the source, and uses it for the next query over the same DataFrame. Example: `log = ....load()` with `pushdown`.
  1. `log.where("offset < 200").count()` is right: 6 records.
  2. `log.count()` has no filter. Spark uses the plan of step 1 again, and the answer is 6, although the log has 16 records.
So `pushdown` is for a DataFrame that serves one query. The options `since` and `until` are safe for all.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from metadata_log.format.batch import Batch
from metadata_log.format.codec import UnknownRecord, decode_record, split_payload
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Offset
from metadata_log.format.records import FIRST_CONTROL_TYPE, TYPE_NUMBERS
from metadata_log.store.segment import SEGMENT_HEADER_BYTES, unpack_header
from snapshots.offline.inputs import NodeLog, SegmentFile, find_logs, split_bytes_of, until_of
from snapshots.offline.readonly import ReadOnlyDirectory
from snapshots.offline.rows import peek_type
from snapshots.offline.scan import FileRange, scan, split
from snapshots.offline.typed.arrow_schema import record_batch
from snapshots.offline.typed.columns import CLASSES, converter_of, schema_of
from snapshots.offline.typed.filters import Bounds, Condition, bounds_of, split_filters

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

    from snapshots.offline.datasource import Settings

ROWS_MAX: Final = 10_000
"""Maximum number of rows in one RecordBatch."""
_US: Final = 1_000


class TypedSettings(NamedTuple):
    """The options of the view."""

    paths: tuple[str, ...]
    record_type: str
    since: Offset
    until: str
    """As the option `until` of all modes."""
    split_bytes: int
    skips_damage: bool
    pushes_down: bool


class Part(InputPartition):  # type: ignore[misc]
    """The input of one task: a part of a segment."""

    def __init__(self, node: str, directory: str, stretch: FileRange, until: Offset) -> None:
        super().__init__((node, directory, stretch, until))
        self.node = node
        self.directory = directory
        self.stretch = stretch
        self.until = until


def parse_typed(options: Mapping[str, str], common: "Settings") -> TypedSettings:
    """Parse the options of the typed view; `common` has those that all modes have.

    Raises:
        ValueError: an option has an invalid value.
    """
    damage, pushdown = options.get("damage", "fail"), options.get("pushdown", "false")
    if damage not in ("fail", "skip"):
        raise ValueError(f"metadata_log: damage {damage!r}; it can be fail or skip")
    if pushdown not in ("true", "false"):
        raise ValueError(f"metadata_log: pushdown {pushdown!r}; it can be true or false")
    return TypedSettings(
        common.paths, common.mode, common.since, common.until, common.split_bytes, damage == "skip", pushdown == "true"
    )


def typed_reader(settings: TypedSettings) -> "TypedReader":
    """Return the reader for these options."""
    return PushingTypedReader(settings) if settings.pushes_down else TypedReader(settings)


class TypedReader(DataSourceReader):  # type: ignore[misc]
    """Reads the records of one type. Spark applies all filters."""

    def __init__(self, settings: TypedSettings) -> None:
        self._settings = settings
        self._schema = schema_of(CLASSES[settings.record_type])
        self._conditions: tuple[Condition, ...] = ()
        self._bounds = Bounds(since=settings.since)

    def partitions(self) -> list[InputPartition]:
        settings, bounds = self._settings, self._bounds
        parts: list[InputPartition] = []
        logs = find_logs(settings.paths)
        split_bytes = split_bytes_of(logs, settings.split_bytes)
        for log in logs:
            end = until_of(log, settings.until)
            until = bounds.until if end is None else min(end, bounds.until)
            for segment in _in_time(log, log.segments_needed(bounds.since, until), bounds):
                try:
                    file = log.directory.open(segment.name)
                except FileNotFoundError:
                    continue  # retired since the directory was listed
                try:
                    stretches = split(file, segment.name, split_bytes)
                finally:
                    file.close()
                needed = [
                    stretch
                    for stretch, after in zip(stretches, [*stretches[1:], None], strict=True)
                    if not _is_outside(stretch, after, bounds.since, until)
                ]
                parts += [Part(log.node, log.path, stretch, until) for stretch in needed]
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        rows: list[tuple[Any, ...]] = []
        if isinstance(partition, Part):
            for row in self._rows(partition):
                rows.append(row)
                if len(rows) >= ROWS_MAX:
                    yield record_batch(self._schema, rows)
                    rows = []
        yield record_batch(self._schema, rows)

    def _rows(self, part: Part) -> Iterator[tuple[Any, ...]]:
        tests = [(self._schema.get_field_index(each.column), each) for each in self._conditions]
        try:
            file = ReadOnlyDirectory(part.directory).open(part.stretch.name)
        except FileNotFoundError:
            return  # retired since the planning
        try:
            for scanned in scan(file, part.stretch, part.until):
                if scanned.batch is None:
                    self._damaged(part, f"position {scanned.position}: {scanned.error}")
                    continue
                for row in self._rows_of(part, scanned.batch):
                    if all(test.holds(row[at]) for at, test in tests):
                        yield row
        finally:
            file.close()

    def _rows_of(self, part: Part, batch: Batch) -> Iterator[tuple[Any, ...]]:
        cls, bounds = CLASSES[self._settings.record_type], self._bounds
        number, timestamp = TYPE_NUMBERS[cls], batch.last_timestamp_ms * _US
        is_elsewhere = (
            batch.is_control is not (number >= FIRST_CONTROL_TYPE)
            or batch.end_offset <= bounds.since
            or not bounds.first_us <= timestamp <= bounds.last_us
        )
        if is_elsewhere:
            return
        convert = converter_of(cls)
        try:
            packed = split_payload(batch.payload, batch.record_count)
            found = [
                (offset, decode_record(each))
                for offset, each in enumerate(packed, batch.base_offset)
                if peek_type(each) == number
            ]
        except LogFormatError as e:
            self._damaged(part, f"the batch at offset {batch.base_offset}: {e}")
            return
        for offset, record in found:
            if isinstance(record, UnknownRecord):
                raise LogFormatError(
                    f"the record at offset {offset} is of type {number}, version {record.version}, which this release does "
                    "not know: use the release that wrote it, or a later one"
                )
            if bounds.since <= offset < part.until:
                yield (part.node, offset, batch.epoch, timestamp, *convert(record))

    def _damaged(self, part: Part, reason: str) -> None:
        if not self._settings.skips_damage:
            raise LogFormatError(
                f'{part.directory}/{part.stretch.name}, {reason}; audit the log, or leave damage out with .option("damage", '
                '"skip")'
            )


class PushingTypedReader(TypedReader):
    """Reads the records of one type, and answers filters. Spark refuses this class in a session without
    `spark.sql.python.filterPushdown.enabled`.
    """

    def pushFilters(self, filters: "Iterable[Filter]") -> "Iterable[Filter]":  # noqa: N802 (Spark's name)
        self._conditions, rest = split_filters(filters, self._schema)
        bounds = bounds_of(self._conditions)
        self._bounds = bounds._replace(since=max(bounds.since, self._settings.since))
        return rest


def _is_outside(stretch: FileRange, after: FileRange | None, since: Offset, until: Offset) -> bool:
    """Return True if no record of the stretch is in [since, until). The stretch ends where the one after it begins."""
    begins = stretch.expected_offset
    ends = None if after is None else after.expected_offset
    return (begins is not None and begins >= until) or (ends is not None and ends <= since)


def _in_time(log: NodeLog, segments: list[SegmentFile], bounds: Bounds) -> list[SegmentFile]:
    """Leave out the segments whose records all lie outside of the times. Times of batches never go back, and the header of a
    segment has the time of the last batch below.
    """
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
    try:
        file = log.directory.open(segment.name)
    except FileNotFoundError:
        return None
    try:
        return unpack_header(file.read_at(0, SEGMENT_HEADER_BYTES)).previous_timestamp_ms
    except LogFormatError:
        return None
    finally:
        file.close()
