"""Parquet files of a history. Spark tasks write those of the large tables, and the driver those of the small ones."""

import datetime as dt
import gc
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import groupby
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from snapshots.offline.history.folding.task import Task, rows_of_task
from snapshots.offline.history.output import OPEN_DAY
from snapshots.offline.history.pieces import PieceReader, PieceWriter, Unit
from snapshots.offline.history.storage.directory import TablesDirectory
from snapshots.offline.history.tables import COUNTED, COUNTS, STATE, TABLES, Row, Values, schema_of_table
from snapshots.offline.history.topic_packs import EntityRow
from snapshots.offline.typed.arrow_schema import record_batch

Batches = Iterator[pa.RecordBatch]

PASSED: Final = pa.schema(
    [
        pa.field("table", pa.string()),
        pa.field("week", pa.int64()),
        pa.field("file", pa.string()),
        pa.field("number", pa.int64()),
        pa.field("rows", pa.int64()),
        pa.field("counts", pa.string()),
    ]
)
"""The answer of a task of the pass: its pieces, the number of its rows of state, and the sums of `_counts` as JSON."""
UNITS: Final = pa.schema([pa.field("number", pa.int64()), pa.field("unit", pa.string())])
"""The input of a task of the merge."""
WRITTEN: Final = pa.schema(
    [pa.field("table", pa.string()), pa.field("final", pa.int64()), pa.field("open", pa.int64())]
)
"""The answer of a task of the merge: the rows in the files of each unit."""
_STATE_ROWS: Final = 10_000
_OBJECTS_BETWEEN_COLLECTIONS: Final = 200_000
"""The rows of the pass have no cycles, in which Python's collector would look for them a quarter of the time."""

STATE_SCHEMA: Final = pa.schema(
    [
        pa.field("entity", pa.string()),
        pa.field("generation", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("payload", pa.binary()),
    ]
)


def file_schema(table: str) -> pa.Schema:
    """Return the columns in a file of the table. The name of its directory has the day."""
    if table == STATE:
        return STATE_SCHEMA
    schema = schema_of_table(table)
    return schema.remove(schema.get_field_index("day"))


def directory_of(table: str, day: dt.date | None) -> str:
    if table == STATE:
        return STATE
    return f"{table}/{OPEN_DAY if day is None else f'day={day.isoformat()}'}"


class TaskPass:
    """The pass of one task. A class instead of a closure, so that workers find it by name. A task that runs again writes the same
    files.
    """

    def __init__(self, task: Task, staging: TablesDirectory, run: int) -> None:
        self._task = task
        self._staging = staging
        self._run = run

    def __call__(self, batches: Batches) -> Batches:
        number, attempt = _task()
        counts: Counter[str] = Counter()
        with (
            self._staging.explaining_errors(),
            PieceWriter(self._staging, attempt) as pieces,
            _StateWriter(self._staging, self._run, number) as state,
        ):
            with _few_collections():
                for table, row in rows_of_task(_entity_rows(batches), self._task):
                    if table == STATE:
                        state.add(row)
                    elif table == COUNTS:
                        _count(row, counts)
                    else:
                        pieces.add(table, row)
            found: list[Values] = [(*piece, None) for piece in pieces.finish()]
            found.append((STATE, None, None, None, state.finish(), None))
        found.append((COUNTS, None, None, None, None, json.dumps(counts)))
        yield record_batch(PASSED, found)


@contextmanager
def _few_collections() -> Iterator[None]:
    """Let Python's collector look rarely. At the end of the block the collector takes what the task remembered, which has cycles:
    a shape leads to the next shape, and back. The next task of the process finds the collector as this task found it.
    """
    before = gc.get_threshold()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.collect()


def _task() -> tuple[int, int]:
    """Return the number of this task, and that of its attempt, which no other task and attempt has."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return (0, 0) if context is None else (context.partitionId(), context.taskAttemptId())


def _unfinished(name: str) -> str:
    """Return a name of this attempt for a file until it is whole. A machine that Spark took for dead may still write its own."""
    return f"{name.removesuffix('.parquet')}.{_task()[1]}.unfinished"


def _entity_rows(batches: Batches) -> Iterator[EntityRow]:
    for batch in batches:
        columns = [column.to_pylist() for column in batch.columns]
        yield from map(EntityRow, *columns)


def _count(row: Values, counts: Counter[str]) -> None:
    """Add the counts of a day, under names such as `2026-11-24 topics_created`."""
    day, *numbers = row
    for name, number in zip(COUNTED, numbers, strict=True):
        counts[f"{day.isoformat()} {name}"] += number


class _StateWriter:
    """Writes the state of one task's entities. Use it as a context, and call `finish` at its end."""

    def __init__(self, staging: TablesDirectory, run: int, number: int) -> None:
        self._staging = staging
        self._name = f"{directory_of(STATE, None)}/run-{run}-{number:05d}.parquet"
        self._stack = ExitStack()
        sink = self._stack.enter_context(staging.sink(_unfinished(self._name)))
        self._writer = self._stack.enter_context(pq.ParquetWriter(sink, STATE_SCHEMA, write_page_checksum=True))
        self._waiting: list[Values] = []
        self._rows = 0

    def __enter__(self) -> "_StateWriter":
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def add(self, row: Values) -> None:
        self._waiting.append(row)
        if len(self._waiting) >= _STATE_ROWS:
            self._write()

    def finish(self) -> int:
        """Write what is left; return the number of rows."""
        self._write()
        self._stack.close()
        self._staging.rename(_unfinished(self._name), self._name)
        return self._rows

    def _write(self) -> None:
        self._writer.write_batch(record_batch(STATE_SCHEMA, self._waiting))
        self._rows += len(self._waiting)
        self._waiting = []


class TaskMerge:
    """The merge of one task: the files of the days of its units."""

    def __init__(self, staging: TablesDirectory, run: int) -> None:
        self._staging = staging
        self._run = run

    def __call__(self, batches: Batches) -> Batches:
        found: list[Values] = []
        with self._staging.explaining_errors(), PieceReader(self._staging) as reader:
            for batch in batches:
                for number, text in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    unit = Unit(*json.loads(text))
                    rows = reader.rows_of(unit)
                    self._write(unit.table, number, rows)
                    is_open = unit.week is None
                    found.append((unit.table, 0, rows.num_rows) if is_open else (unit.table, rows.num_rows, 0))
        yield record_batch(WRITTEN, found)

    def _write(self, table: str, number: int, rows: pa.Table) -> None:
        """Write the rows, which are sorted by day."""
        schema, begin = file_schema(table), 0
        for day, group in groupby(rows.column("day").to_pylist()):
            end = begin + sum(1 for _ in group)
            name = f"{directory_of(table, day)}/run-{self._run}-{number:05d}.parquet"
            with self._staging.sink(_unfinished(name)) as sink:
                pq.write_table(rows.slice(begin, end - begin).select(schema.names), sink)
            self._staging.rename(_unfinished(name), name)
            begin = end


def write_rows(staging: TablesDirectory, run: int, table: str, rows: Iterable[Row]) -> tuple[int, int]:
    """Write a small table from the driver. Returns the numbers of its closed and open rows."""
    schema, sizes = file_schema(table), [0, 0]
    ordered = sorted(rows, key=lambda row: (row.get("day") is None, row.get("day") or dt.date.min))
    for day, group in groupby(ordered, key=lambda row: row.get("day")):
        found = list(group)
        whole = [{name: row.get(name) for name in schema.names} for row in found]
        with staging.sink(f"{directory_of(table, day)}/run-{run}-driver.parquet") as sink:
            pq.write_table(pa.Table.from_pylist(whole, schema=schema), sink)
        sizes[day is None] += len(found)
    assert table in TABLES
    return sizes[0], sizes[1]
