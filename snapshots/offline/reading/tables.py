"""The reader of the tables in `schema`: plans the tasks, and reads the input of one task.

Damage is a row with an error in `batches`, `records` and `snapshots`. In a stream it is an error, because a stream reads each
place once, and nobody would look at the row.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from metadata_log.format.batch import Batch
from metadata_log.format.codec import encode_valid
from metadata_log.format.errors import LogFormatError
from metadata_log.format.records import TYPE_NUMBERS, MetadataRecord
from snapshots.format import parse_name, snapshot_name
from snapshots.offline import rows
from snapshots.offline.inputs import find_logs
from snapshots.offline.packed.entities import packed_rows, packed_snapshot_rows
from snapshots.offline.reading.activity import activity
from snapshots.offline.reading.options import Settings
from snapshots.offline.reading.parts import Part, plan
from snapshots.offline.readonly import ReadOnlyDirectory
from snapshots.offline.scan import Scanned, scan
from snapshots.offline.schema import TABLES, BatchBuilder, arrow_schema
from snapshots.offline.stretch import read_stretch
from snapshots.offline.typed.columns import CLASSES
from snapshots.offline.typed.filters import Bounds, Condition, bounds_of, split_filters
from snapshots.reader import read_snapshot, records_of

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

_PUSHED: Final = ("batches", "records", "entities")
"""The tables for which filters are answered."""
_FROM_SINCE: Final = ("batches", "records", "entities", "packed")
"""The tables without the records below the option `since`."""


def table_reader(settings: Settings) -> "TableReader":
    """Return the reader for these options."""
    return PushingTableReader(settings) if settings.pushes_down and settings.mode in _PUSHED else TableReader(settings)


class TableReader(DataSourceReader):  # type: ignore[misc]
    """Reads one of the tables. Spark applies all filters."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._schema = arrow_schema(TABLES[settings.mode])
        self._conditions: tuple[Condition, ...] = ()
        self._bounds = Bounds(since=settings.since if settings.mode in _FROM_SINCE else 0)
        self._types = settings.types

    def partitions(self) -> list[InputPartition]:
        settings = self._settings
        logs = find_logs(settings.paths)
        if settings.is_snapshots:
            return [Part(log, None, 0, None, snapshot=snapshot_name(end)) for log in logs for end in log.snapshots]
        below = [] if settings.base is None else [Part(log, None, 0, None, snapshot=settings.base) for log in logs]
        return [*below, *plan(logs, settings, self._bounds, prunes=bool(self._conditions))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        builder = BatchBuilder(TABLES[self._settings.mode])
        tests = [(self._schema.get_field_index(each.column), each) for each in self._conditions]
        payload_at = self._schema.get_field_index("payload")
        if isinstance(partition, Part):  # a table without parts gets one of Spark's own
            for row in self._rows(partition):
                if all(test.holds(row[at]) for at, test in tests):
                    payload = row[payload_at] if payload_at >= 0 else None
                    builder.add(row, len(payload) if isinstance(payload, bytes) else 0)
                    if builder.is_full:
                        yield builder.take()
        yield builder.take()

    def _rows(self, part: Part) -> Iterator[rows.Row]:
        settings = self._settings
        if part.stretch is None:
            yield from _snapshot_rows(settings, part)
            return
        file = part.open()
        if file is None:
            return  # retired since the planning; a job that needs the file finds the gap
        try:
            if settings.mode == "stretches":
                whole = read_stretch(file, part.stretch, part.until, settings.wanted)
                yield (part.node, part.stretch.name, part.stretch.start, None if whole is None else whole.to_text())
                return
            scanned = scan(file, part.stretch, part.until, chained=settings.mode == "batches")
            if settings.mode in ("batches", "records"):
                yield from self._shown(part, scanned)
            elif settings.mode == "packed":
                yield from packed_rows(_intact(part, scanned), part.since, part.end, settings.invisible)
            elif settings.mode == "entities":
                yield from _entities(part, scanned, settings)
            else:
                counts = activity(_intact(part, scanned), settings.first_ms, settings.bucket_ms)
                for (kind, bucket), count in counts.items():
                    yield (kind, bucket, count)
        finally:
            file.close()

    def _shown(self, part: Part, scanned: Iterable[Scanned]) -> Iterator[rows.Row]:
        """Return the rows of `batches` or `records`, damage included."""
        assert part.stretch is not None
        for each in scanned:
            if each.batch is not None and each.batch.end_offset <= part.since:
                continue
            if self._settings.mode == "batches":
                found: Iterable[rows.Row] = (rows.batch_row(part.node, part.stretch.name, each),)
            else:
                found = _within(part, rows.record_rows(part.node, part.stretch.name, each, self._types))
            for row in found:
                if part.strict and row[-1] is not None:
                    _refuse(part, each.position, str(row[-1]))
                yield row


class PushingTableReader(TableReader):
    """Reads one of the tables, and answers filters. Spark refuses this class in a session without
    `spark.sql.python.filterPushdown.enabled`.
    """

    def pushFilters(self, filters: "Iterable[Filter]") -> "Iterable[Filter]":  # noqa: N802 (Spark's name)
        self._conditions, rest = split_filters(filters, self._schema)
        columns = {"base_offset": "offset", "last_timestamp": "timestamp"} if self._settings.mode == "batches" else {}
        bounds = bounds_of(each._replace(column=columns.get(each.column, each.column)) for each in self._conditions)
        # A damaged place is told at the end of the batch before, which may be in the segment before.
        since = max(bounds.since - 1, self._settings.since)
        self._bounds = bounds._replace(since=since)
        for each in self._conditions:
            types = _types_of(each)
            if types is not None:
                self._types = types if self._types is None else self._types & types
        return rest


def _within(part: Part, found: Iterable[rows.RecordRow]) -> Iterator[rows.RecordRow]:
    """Leave out the records outside of [since, until): a batch may begin or end beyond. Damage stays."""
    for row in found:
        if row.error is not None or (row.offset is not None and part.since <= row.offset < part.end):
            yield row


def _types_of(condition: Condition) -> frozenset[int] | None:
    """Return the type numbers that pass a condition; None for a condition on another column."""
    if condition.kind not in ("EqualTo", "In"):
        return None
    if condition.column == "type":
        return frozenset(condition.values)
    if condition.column == "type_name" and all(name in CLASSES for name in condition.values):
        return frozenset(TYPE_NUMBERS[CLASSES[name]] for name in condition.values)
    return None


def _refuse(part: Part, position: int, reason: str) -> None:
    assert part.stretch is not None
    raise LogFormatError(
        f"{part.directory}/{part.stretch.name}, position {position}: {reason}; the stream has stopped there: audit the log, "
        "and read another node's directory"
    )


def _intact(part: Part, scanned: Iterable[Scanned]) -> Iterator[Batch]:
    for each in scanned:
        if each.batch is not None:
            yield each.batch
        elif part.strict:
            _refuse(part, each.position, str(each.error))


def _entities(part: Part, scanned: Iterable[Scanned], settings: Settings) -> Iterator[rows.Row]:
    for batch in _intact(part, scanned):
        try:
            yield from rows.entity_rows(batch, part.since, part.end, settings.invisible)
        except LogFormatError as e:
            raise LogFormatError(f"batch {batch}: {e}") from e


def _snapshot_rows(settings: Settings, part: Part) -> Iterator[rows.Row]:
    """Return the rows of `snapshots` for one snapshot, or the rows of the records in the base snapshot."""
    directory, name = ReadOnlyDirectory(part.directory), part.snapshot
    assert name is not None
    if settings.is_snapshots:
        yield from _snapshot_row(part.node, directory, name)
        return
    as_rows = packed_snapshot_rows if settings.mode == "packed" else rows.snapshot_entity_rows
    yield from as_rows(_snapshot_records(directory, name))


def _snapshot_row(node: str, directory: ReadOnlyDirectory, name: str) -> Iterator[rows.Row]:
    parsed = parse_name(name)
    assert parsed is not None
    end, size = parsed[0], directory.size_of(name)
    place = (node, name, end.offset, end.epoch)
    try:
        found = read_snapshot(directory, end)
    except FileNotFoundError:
        return  # retention has deleted it since the planning
    except LogFormatError as e:
        yield (*place, None, size, None, None, None, str(e))
        return
    timestamp = rows.time_us(found.meta.timestamp_ms)
    yield (*place, timestamp, size, found.record_count, found.digest, found.meta.chain, None)


def _snapshot_records(directory: ReadOnlyDirectory, name: str) -> Iterator[tuple[MetadataRecord, bytes]]:
    for record in records_of(directory, name):
        yield record, encode_valid(record)
