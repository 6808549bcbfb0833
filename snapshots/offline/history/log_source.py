"""The Spark data source behind a history: the rows of `log_rows`, of one log, read in parallel. For this room only.

Options: `path` (the `@metadata` directory), `since` (an offset: 0, the end of the snapshot below, or the end of the last run),
`until` (the durable end), `base` (the name of the snapshot below the log, if its records come first) and `split_bytes`.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from metadata_log.disk.files import File
from metadata_log.format.codec import encode_valid
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Offset
from snapshots.offline.history.log_rows import LOG_ROWS, LogRow, rows_of, snapshot_rows
from snapshots.offline.inputs import find_log
from snapshots.offline.reading.parts import opened, with_archive
from snapshots.offline.readonly import ReadOnlyDirectory
from snapshots.offline.scan import FileRange, scan, split
from snapshots.offline.typed.arrow_schema import record_batch, spark_schema_of
from snapshots.reader import records_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

SPLIT_BYTES: Final = 32 << 20
ROWS_MAX: Final = 10_000
"""Maximum number of rows in one RecordBatch."""
BYTES_MAX: Final = 8 << 20
"""Size of the payloads at which a RecordBatch is full."""
_PAYLOAD: Final = LOG_ROWS.get_field_index("payload")


class Settings(NamedTuple):
    """The parsed options."""

    path: str
    since: Offset
    until: Offset | None
    base: str | None
    split_bytes: int


class Part(InputPartition):  # type: ignore[misc]
    """The input of one task: a part of a segment, or (stretch None) the snapshot below the log."""

    def __init__(self, stretch: FileRange | None) -> None:
        super().__init__(stretch)
        self.stretch = stretch


def read_log(
    spark: "SparkSession", path: str, *, since: Offset, until: Offset | None, base: str | None, split_bytes: int
) -> "DataFrame":
    """Return the rows of the log in the `@metadata` directory `path`."""
    spark.dataSource.register(HistoryLogSource)
    reader = spark.read.format(HistoryLogSource.name()).option("path", path).option("since", since)
    if until is not None:
        reader = reader.option("until", until)
    if base is not None:
        reader = reader.option("base", base)
    return reader.option("split_bytes", split_bytes).load()


def parse(options: Mapping[str, str]) -> Settings:
    until = options.get("until")
    return Settings(
        options["path"],
        int(options["since"]),
        None if until is None else int(until),
        options.get("base"),
        int(options["split_bytes"]),
    )


class HistoryLogSource(DataSource):  # type: ignore[misc]
    """The data source; see the top of this file."""

    @classmethod
    def name(cls) -> str:
        return "metadata_log_history"

    def schema(self) -> "StructType":
        return spark_schema_of(LOG_ROWS)

    def reader(self, schema: "StructType") -> DataSourceReader:
        return HistoryLogReader(parse(self.options))


class HistoryLogReader(DataSourceReader):  # type: ignore[misc]
    """Plans the tasks, and reads the input of one task."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def partitions(self) -> list[InputPartition]:
        settings = self._settings
        log = with_archive(find_log(settings.path))
        parts: list[InputPartition] = [] if settings.base is None else [Part(None)]
        # The segment with the batch below `since` is needed, too: its chain there must be the chain of the earlier run.
        for segment in log.segments_needed(max(0, settings.since - 1), settings.until):
            file = _open(log.directory, segment.name)
            try:
                parts += [Part(stretch) for stretch in split(file, segment.name, settings.split_bytes)]
            finally:
                file.close()
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        rows: list[LogRow] = []
        size = 0
        if isinstance(partition, Part):
            for row in self._rows(partition.stretch):
                rows.append(row)
                size += len(row[_PAYLOAD] or b"")
                if len(rows) >= ROWS_MAX or size >= BYTES_MAX:
                    yield record_batch(LOG_ROWS, rows)
                    rows, size = [], 0
        yield record_batch(LOG_ROWS, rows)

    def _rows(self, stretch: FileRange | None) -> Iterator[LogRow]:
        settings = self._settings
        directory = ReadOnlyDirectory(settings.path)
        if stretch is None:
            assert settings.base is not None
            yield from snapshot_rows((record, encode_valid(record)) for record in records_of(directory, settings.base))
            return
        file = _open(directory, stretch.name)
        try:
            yield from rows_of(scan(file, stretch, settings.until), settings.since)
        finally:
            file.close()


def _open(directory: ReadOnlyDirectory, name: str) -> File:
    file = opened(directory, name)
    if file is None:
        raise LogFormatError(f"{directory.path_text}/{name} was deleted while the log was read; run the job again")
    return file
