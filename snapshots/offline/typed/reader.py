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

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from metadata_log.format.batch import Batch
from metadata_log.format.codec import UnknownRecord, decode_record, split_payload
from metadata_log.format.errors import LogFormatError
from metadata_log.format.records import FIRST_CONTROL_TYPE, TYPE_NUMBERS
from snapshots.offline.inputs import find_logs
from snapshots.offline.reading.options import Settings
from snapshots.offline.reading.parts import Part, plan
from snapshots.offline.rows import peek_type, time_us
from snapshots.offline.scan import scan
from snapshots.offline.typed.arrow_schema import record_batch
from snapshots.offline.typed.columns import CLASSES, converter_of, schema_of
from snapshots.offline.typed.filters import Bounds, Condition, bounds_of, split_filters

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

ROWS_MAX: Final = 10_000
"""Maximum number of rows in one RecordBatch."""


def typed_reader(settings: Settings) -> "TypedReader":
    """Return the reader for these options."""
    return PushingTypedReader(settings) if settings.pushes_down else TypedReader(settings)


class TypedReader(DataSourceReader):  # type: ignore[misc]
    """Reads the records of one type. Spark applies all filters."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._schema = schema_of(CLASSES[settings.mode])
        self._conditions: tuple[Condition, ...] = ()
        self._bounds = Bounds(since=settings.since)

    def partitions(self) -> list[InputPartition]:
        return list(plan(find_logs(self._settings.paths), self._settings, self._bounds, prunes=True))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        rows: list[tuple[Any, ...]] = []
        if isinstance(partition, Part):  # a table without parts gets one of Spark's own
            for row in self._rows(partition):
                rows.append(row)
                if len(rows) >= ROWS_MAX:
                    yield record_batch(self._schema, rows)
                    rows = []
        yield record_batch(self._schema, rows)

    def _rows(self, part: Part) -> Iterator[tuple[Any, ...]]:
        assert part.stretch is not None
        tests = [(self._schema.get_field_index(each.column), each) for each in self._conditions]
        file = part.open()
        if file is None:
            return  # retired since the planning
        try:
            for scanned in scan(file, part.stretch, part.until, chained=False):
                if scanned.batch is None:
                    self._damaged(part, f"position {scanned.position}: {scanned.error}")
                    continue
                for row in self._rows_of(part, scanned.batch):
                    if all(test.holds(row[at]) for at, test in tests):
                        yield row
        finally:
            file.close()

    def _rows_of(self, part: Part, batch: Batch) -> Iterator[tuple[Any, ...]]:
        cls, bounds = CLASSES[self._settings.mode], self._bounds
        number, timestamp = TYPE_NUMBERS[cls], time_us(batch.last_timestamp_ms)
        is_elsewhere = (
            batch.is_control is not (number >= FIRST_CONTROL_TYPE)
            or batch.end_offset <= part.since
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
                if peek_type(each) in (number, -1)
            ]
        except LogFormatError as e:
            self._damaged(part, f"the batch at offset {batch.base_offset}: {e}")
            return
        for offset, record in found:
            if not isinstance(record, UnknownRecord):
                if type(record) is cls and part.since <= offset < part.end:
                    yield (part.node, offset, batch.epoch, timestamp, *convert(record))
            elif record.type_number == number:
                raise LogFormatError(
                    f"the record at offset {offset} is of type {number}, version {record.version}, which this release does "
                    "not know: use the release that wrote it, or a later one"
                )

    def _damaged(self, part: Part, reason: str) -> None:
        if not self._settings.skips_damage:
            assert part.stretch is not None
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
