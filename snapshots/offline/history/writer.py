"""Parquet files of a history. Spark tasks write those of the large tables, and the driver those of the small ones."""

import datetime as dt
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from snapshots.offline.history.output import OPEN_DAY
from snapshots.offline.history.tables import COUNTS, STATE, TABLES, Row, schema_of_table

WRITTEN: Final = pa.schema(
    [
        pa.field("table", pa.string()),
        pa.field("day", pa.date32()),
        pa.field("rows", pa.int64()),
        pa.field("counts", pa.string()),
    ]
)
"""The answer of a task: one row for each file, and the sums of `_counts` as JSON."""

STATE_SCHEMA: Final = pa.schema(
    [
        pa.field("entity", pa.string()),
        pa.field("generation", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("payload", pa.binary()),
    ]
)
COUNTED: Final = ("topics_created", "topics_removed", "partitions_created", "partitions_removed")


def file_schema(table: str) -> pa.Schema:
    """Return the columns in a file of the table. The name of its directory has the day."""
    if table == STATE:
        return STATE_SCHEMA
    schema = schema_of_table(table)
    return schema.remove(schema.get_field_index("day"))


def directory_of(staging: Path, table: str, day: dt.date | None) -> Path:
    if table == STATE:
        return staging / STATE
    return staging / table / (OPEN_DAY if day is None else f"day={day.isoformat()}")


class TaskWriter:
    """Writes the rows of one task, which are sorted by table and day. A task that is run again writes the same files."""

    def __init__(self, staging: Path, run: int) -> None:
        self._staging = staging
        self._run = run

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        number = 0 if context is None else context.partitionId()
        answers: list[tuple[Any, ...]] = []
        counts: Counter[str] = Counter()
        pieces = (piece for batch in batches for piece in _pieces(batch))
        for (table, day), group in groupby(pieces, key=lambda piece: piece[:2]):
            if table == COUNTS:
                for _, _, piece in group:
                    _count(piece, counts)
                continue
            rows = self._write(table, day, number, (piece for _, _, piece in group))
            answers.append((table, day, rows, None))
        answers.append((COUNTS, None, 0, json.dumps(counts)))
        columns = zip(*answers, strict=True)
        arrays = [pa.array(values, type=field.type) for values, field in zip(columns, WRITTEN, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=WRITTEN)

    def _write(self, table: str, day: dt.date | None, number: int, pieces: Iterable[pa.RecordBatch]) -> int:
        directory, schema, rows = directory_of(self._staging, table, day), file_schema(table), 0
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"run-{self._run}-{number:05d}.parquet"
        unfinished = path.with_suffix(".unfinished")
        with pq.ParquetWriter(unfinished, schema) as writer:
            for piece in pieces:
                writer.write_batch(piece.select(schema.names).cast(schema))
                rows += piece.num_rows
        unfinished.replace(path)
        return rows


def _pieces(batch: pa.RecordBatch) -> Iterator[tuple[str, dt.date | None, pa.RecordBatch]]:
    """Cut a batch where the table or the day changes."""
    keys = list(zip(batch.column("table").to_pylist(), batch.column("day").to_pylist(), strict=True))
    begin = 0
    for (table, day), group in groupby(keys):
        length = sum(1 for _ in group)
        yield table, day, batch.slice(begin, length)
        begin += length


def _count(piece: pa.RecordBatch, counts: Counter[str]) -> None:
    """Add the counts of each day, under names such as `2026-11-24 topics_created`."""
    days = piece.column("date").to_pylist()
    for name in COUNTED:
        for day, count in zip(days, piece.column(name).to_pylist(), strict=True):
            counts[f"{day.isoformat()} {name}"] += count or 0


def write_rows(staging: Path, run: int, table: str, rows: Iterable[Row]) -> tuple[int, int]:
    """Write a small table from the driver. Returns the numbers of its closed and open rows."""
    schema, sizes = file_schema(table), [0, 0]
    ordered = sorted(rows, key=lambda row: (row.get("day") is None, row.get("day") or dt.date.min))
    for day, group in groupby(ordered, key=lambda row: row.get("day")):
        found = list(group)
        directory = directory_of(staging, table, day)
        directory.mkdir(parents=True, exist_ok=True)
        whole = [{name: row.get(name) for name in schema.names} for row in found]
        pq.write_table(pa.Table.from_pylist(whole, schema=schema), directory / f"run-{run}-driver.parquet")
        sizes[day is None] += len(found)
    assert table in TABLES
    return sizes[0], sizes[1]
