"""The Spark data source `metadata_log`: a node's log as tables, read in parallel, with damage as rows.

    spark.read.format("metadata_log").option("path", DIR).option("mode", "records").load()

Options:
    path          a data directory, an `@metadata` directory, or a JSON list of several
    mode          batches (default), records, entities, packed, activity or stretches: see `schema`; or the name of a record
                  type, such as PartitionChange: see `typed`
    until         flushed (default: the durable end at the start), end, an offset, or a JSON object {path: offset}
    since         an offset; only for entities, packed and the name of a record type
    types         type numbers, comma-separated; only for records
    invisible     JSON list of [from, to) offset ranges to leave out; only for entities and packed
    base          name of the snapshot below the log, to be read first; only for entities and packed
    first_ms, bucket_ms    begin and length of the time buckets; only for activity
    wanted        JSON list of offsets: which ends of batches to tell; only for stretches
    split_bytes   about how many bytes one task reads (default: an eighth of the logs, from 4 to 64 MiB)
    damage        fail (default) or skip; only for the name of a record type
    pushdown      true: the source answers filters; only for the name of a record type, and for one query (see `typed.reader`)

One `InputPartition` is a part of a file between two batch boundaries. The driver plans with file names and headers
only. The workers open the files themselves, so a log in an object store is read by the workers.
"""

import json
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from metadata_log.format.batch import Batch
from metadata_log.format.codec import encode_valid
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import OFFSET_MAX, Offset
from metadata_log.format.records import MetadataRecord
from snapshots.offline import rows
from snapshots.offline.inputs import NodeLog, find_logs, split_bytes_of, until_of
from snapshots.offline.packed.entities import packed_rows, packed_snapshot_rows
from snapshots.offline.readonly import ReadOnlyDirectory
from snapshots.offline.scan import FileRange, Scanned, scan, split
from snapshots.offline.schema import TABLES, BatchBuilder, spark_schema
from snapshots.offline.stretch import survey
from snapshots.offline.typed.arrow_schema import spark_schema_of
from snapshots.offline.typed.columns import CLASSES, schema_of
from snapshots.offline.typed.reader import parse_typed, typed_reader
from snapshots.reader import records_of


class Settings(NamedTuple):
    """The parsed options."""

    paths: tuple[str, ...]
    mode: str
    until: str
    since: Offset
    types: frozenset[int] | None
    invisible: tuple[tuple[Offset, Offset], ...]
    base: str | None
    first_ms: int
    bucket_ms: int
    wanted: frozenset[Offset]
    split_bytes: int
    """0: the default."""


def parse_options(options: Mapping[str, str]) -> Settings:
    """Parse the options.

    Raises:
        ValueError: an option has an invalid value.
    """
    path = options.get("path")
    if not path:
        raise ValueError('metadata_log: no path given; name the log with .option("path", DIRECTORY)')
    mode = options.get("mode", "batches")
    if mode not in TABLES and mode not in CLASSES:
        raise ValueError(
            f"metadata_log: mode {mode!r}; there are {', '.join(TABLES)}, and the name of each record type"
        )
    until = options.get("until", "flushed")
    if until not in ("flushed", "end") and not until.isdigit() and not until.startswith("{"):
        raise ValueError(
            f"metadata_log: until {until!r}; it can be flushed, end, an offset, or a JSON object of offsets"
        )
    types = options.get("types")
    return Settings(
        paths=tuple(json.loads(path)) if path.startswith("[") else (path,),
        mode=mode,
        until=until,
        since=int(options.get("since", "0")),
        types=None if types is None else frozenset(map(int, types.split(","))),
        invisible=tuple((begin, end) for begin, end in json.loads(options.get("invisible", "[]"))),
        base=options.get("base"),
        first_ms=int(options.get("first_ms", "0")),
        bucket_ms=max(1, int(options.get("bucket_ms", "60000"))),
        wanted=frozenset(map(int, json.loads(options.get("wanted", "[]")))),
        split_bytes=max(0, int(options.get("split_bytes", "0"))),
    )


class Stretch(InputPartition):  # type: ignore[misc]
    """The input of one task: a part of a segment, or (stretch None) the base snapshot."""

    def __init__(self, node: str, directory: str, stretch: FileRange | None, until: Offset | None) -> None:
        super().__init__((node, directory, stretch, until))
        self.node = node
        self.directory = directory
        self.stretch = stretch
        self.until = until


class MetadataLogSource(DataSource):  # type: ignore[misc]
    """The data source; see the top of this file."""

    @classmethod
    def name(cls) -> str:
        return "metadata_log"

    def schema(self) -> StructType:
        mode = parse_options(self.options).mode
        return spark_schema(TABLES[mode]) if mode in TABLES else spark_schema_of(schema_of(CLASSES[mode]))

    def reader(self, schema: StructType) -> DataSourceReader:
        settings = parse_options(self.options)
        if settings.mode in TABLES:
            return MetadataLogReader(settings)
        return typed_reader(parse_typed(self.options, settings))


class MetadataLogReader(DataSourceReader):  # type: ignore[misc]
    """Plans the tasks, and reads the input of one task."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def partitions(self) -> list[InputPartition]:
        settings = self._settings
        stretches: list[InputPartition] = []
        logs = find_logs(settings.paths)
        settings = settings._replace(split_bytes=split_bytes_of(logs, settings.split_bytes))
        for log in logs:
            until = until_of(log, settings.until)
            if settings.base is not None:
                stretches.append(Stretch(log.node, log.path, None, None))
            stretches += [Stretch(log.node, log.path, each, until) for each in _stretches(log, settings, until)]
        return stretches

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        settings = self._settings
        builder = BatchBuilder(TABLES[settings.mode])
        if isinstance(partition, Stretch):
            for row in self._rows(partition):
                payload = row[-3] if settings.mode == "records" else row[-1]
                builder.add(row, len(payload) if isinstance(payload, bytes) else 0)
                if builder.is_full:
                    yield builder.take()
        yield builder.take()

    def _rows(self, partition: Stretch) -> Iterator[rows.Row]:
        settings = self._settings
        directory = ReadOnlyDirectory(partition.directory)
        if partition.stretch is None:
            assert settings.base is not None
            as_rows = packed_snapshot_rows if settings.mode == "packed" else rows.snapshot_entity_rows
            yield from as_rows(_snapshot_records(directory, settings.base))
            return
        stretch, node, name = partition.stretch, partition.node, partition.stretch.name
        try:
            file = directory.open(name)
        except FileNotFoundError:
            return  # retired since the planning; a job that needs the file finds the gap
        try:
            if settings.mode == "stretches":
                whole = survey(file, stretch, partition.until, settings.wanted)
                yield (node, name, stretch.start, None if whole is None else whole.to_text())
                return
            scanned = scan(file, stretch, partition.until, chained=settings.mode == "batches")
            if settings.mode == "batches":
                for each in scanned:
                    yield rows.batch_row(node, name, each)
            elif settings.mode == "records":
                for each in scanned:
                    yield from rows.record_rows(node, name, each, settings.types)
            elif settings.mode == "packed":
                end = partition.until if partition.until is not None else OFFSET_MAX
                yield from packed_rows(_intact(scanned), settings.since, end, settings.invisible)
            elif settings.mode == "entities":
                yield from _entities(scanned, settings, partition.until)
            else:
                counts = rows.activity(_intact(scanned), settings.first_ms, settings.bucket_ms)
                for (kind, bucket), count in counts.items():
                    yield (kind, bucket, count)
        finally:
            file.close()


def _stretches(log: NodeLog, settings: Settings, until: Offset | None) -> Iterator[FileRange]:
    since = settings.since if settings.mode in ("entities", "packed") else 0
    for name, *_ in log.segments_needed(since, until):
        try:
            file = log.directory.open(name)
        except FileNotFoundError:
            continue
        try:
            yield from split(file, name, settings.split_bytes)
        finally:
            file.close()


def _intact(scanned: Iterator[Scanned]) -> Iterator[Batch]:
    return (each.batch for each in scanned if each.batch is not None)


def _entities(scanned: Iterator[Scanned], settings: Settings, until: Offset | None) -> Iterator[rows.Row]:
    end = until if until is not None else OFFSET_MAX
    for batch in _intact(scanned):
        try:
            yield from rows.entity_rows(batch, settings.since, end, settings.invisible)
        except LogFormatError as e:
            raise LogFormatError(f"batch {batch}: {e}") from e


def _snapshot_records(directory: ReadOnlyDirectory, name: str) -> Iterator[tuple[MetadataRecord, bytes]]:
    for record in records_of(directory, name):
        yield record, encode_valid(record)
