"""Parquet files of a history as rows in Spark.

Spark reads files of this machine itself. At a URL it would need Hadoop's packages and their own credentials, so Spark's tasks
open the files with Arrow there. Such a task reads all columns of its files, in batches: a question cannot make it read less.
"""

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from snapshots.offline.history.output import day_of, files_that_count
from snapshots.offline.history.storage.directory import LocalTables, StoredTables, TablesDirectory
from snapshots.offline.history.tables import schema_of_table
from snapshots.offline.typed.arrow_schema import spark_schema_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

READ_TASKS: Final = 64
"""Maximum number of tasks that read the files of one table at a URL."""
_ROWS: Final = 10_000
"""Maximum number of rows in one RecordBatch."""
_NAMES: Final = pa.schema([pa.field("name", pa.string())])
_NOTHING_WRITTEN: Final = "Nothing was written. Check that the credentials may list and read there, and ask again"


class TaskRead:
    """Reads the files that its input names. A column that a file does not have is null; `day` comes from the file's name."""

    def __init__(self, out: StoredTables, schema: pa.Schema) -> None:
        self._out = out
        self._schema = schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with self._out.explaining_errors(_NOTHING_WRITTEN):
            for batch in batches:
                for name in batch.column(0).to_pylist():
                    yield from self._rows_of(name)

    def _rows_of(self, name: str) -> Iterator[pa.RecordBatch]:
        with self._out.source(name) as source, pq.ParquetFile(source) as file:
            for found in file.iter_batches(_ROWS):
                columns = [self._column(found, field, name) for field in self._schema]
                yield pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _column(self, found: pa.RecordBatch, field: pa.Field, name: str) -> pa.Array:
        if field.name in found.schema.names:
            return found.column(field.name).cast(field.type)
        day = day_of(name) if field.name == "day" else None
        if day is None:
            return pa.nulls(found.num_rows, field.type)
        return pa.repeat(pa.scalar(dt.date.fromisoformat(day), field.type), found.num_rows)


def table_rows(spark: "SparkSession", out: TablesDirectory, table: str, run: int) -> "DataFrame":
    """Return the rows of a table that count after `run` is complete. A run that died may have left files that do not count.

    Spark finds the files of a directory faster than a list of thousands of names, so it gets the list only if it must.
    """
    schema, names = schema_of_table(table), files_that_count(out, table, run)
    if not names:
        return spark.createDataFrame([], spark_schema_of(schema))
    if not isinstance(out, LocalTables):
        return parquet_rows(spark, out, names, schema)
    reader = spark.read.schema(spark_schema_of(schema))
    if names == out.files(table):
        return reader.parquet(str(out.path / table))
    base = reader.option("basePath", str(out.path / table))
    return base.parquet(*(str(out.path / name) for name in names))


def parquet_rows(spark: "SparkSession", out: TablesDirectory, names: Sequence[str], schema: pa.Schema) -> "DataFrame":
    """Return the rows of these files, one or more, which lie in `out`."""
    if isinstance(out, LocalTables):
        return spark.read.schema(spark_schema_of(schema)).parquet(*(str(out.path / name) for name in names))
    files = spark.createDataFrame([(name,) for name in names], spark_schema_of(_NAMES))
    tasks = files.repartition(min(len(names), READ_TASKS))
    return tasks.mapInArrow(TaskRead(out, schema), spark_schema_of(schema))
