"""Pieces: how the rows of all tasks reach the files of their days.

    pass     each task   its entities, one after the other   ->  one file of pieces for each table; a piece has rows of one week
    merge    each unit   the pieces of one table and week    ->  sorted rows, one Parquet file for each day

Example: tasks 0 and 1 fold 5,000 topics each, and both have rows of `changes` in the week of 2026-11-23. Each task writes them as
pieces into its own file. One unit reads the pieces of this week from both files, sorts them, and writes the seven days.

Spark can deal the rows to the days itself: then each row goes through three formats, with the columns of all tables, and costs
ten times the fold. A file of pieces is Arrow's, and both sides read and write columns.

A unit holds its rows in memory, so a week with many rows has several units, and its days several files.
"""

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

import pyarrow as pa

from snapshots.offline.history.storage.directory import TablesDirectory
from snapshots.offline.history.tables import DAY_AT, Values, schema_of_table
from snapshots.offline.typed.arrow_schema import record_batch

PIECES: Final = "_pieces"
"""The directory of the files of pieces, in the staging directory."""
WAITING_ROWS_MAX: Final = 50_000
"""Maximum number of rows that a task holds before it writes them as pieces."""
UNIT_ROWS_MAX: Final = 500_000
"""About how many rows a unit has at most."""
DAYS: Final = 7
_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4")


class Piece(NamedTuple):
    """Rows of one table and week, in a file of pieces."""

    table: str
    week: int | None
    """The number of the week; None: rows that later records can still change."""
    file: str
    number: int
    rows: int


class Unit(NamedTuple):
    """Pieces that are merged together."""

    table: str
    week: int | None
    pieces: tuple[tuple[str, int], ...]
    """The file of each piece, and its number there."""


def week_of(day: dt.date | None) -> int | None:
    """Return the week of a row, by its day; None if it has no day yet."""
    return None if day is None else day.toordinal() // DAYS


class PieceWriter:
    """Writes the rows of one attempt of a task as pieces. Use it as a context, and call `finish` at its end. Only the pieces of a
    successful attempt are merged.
    """

    def __init__(self, staging: TablesDirectory, attempt: int) -> None:
        self._staging = staging
        self._attempt = attempt
        self._waiting: defaultdict[tuple[str, dt.date | None], list[Values]] = defaultdict(list)
        """The rows of each table and day."""
        self._waiting_rows = 0
        self._writers: dict[str, Any] = {}
        self._counts: defaultdict[str, int] = defaultdict(int)
        self._pieces: list[Piece] = []
        self._stack = ExitStack()

    def __enter__(self) -> "PieceWriter":
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def add(self, table: str, row: Values) -> None:
        self._waiting[table, row[DAY_AT]].append(row)
        self._waiting_rows += 1
        if self._waiting_rows >= WAITING_ROWS_MAX:
            self._write()

    def finish(self) -> list[Piece]:
        """Write what is left, and return all pieces."""
        self._write()
        self._stack.close()
        return self._pieces

    def _write(self) -> None:
        weeks: defaultdict[tuple[str, int | None], list[Values]] = defaultdict(list)
        for (table, day), some in self._waiting.items():
            weeks[table, week_of(day)] += some
        for (table, week), rows in weeks.items():
            name = f"{table}-{self._attempt}.arrow"
            self._writer(table, name).write_batch(record_batch(schema_of_table(table), rows))
            self._pieces.append(Piece(table, week, name, self._counts[table], len(rows)))
            self._counts[table] += 1
        self._waiting.clear()
        self._waiting_rows = 0

    def _writer(self, table: str, name: str) -> Any:
        if table not in self._writers:
            sink = self._stack.enter_context(self._staging.sink(f"{PIECES}/{name}"))
            file = pa.ipc.new_file(sink, schema_of_table(table), options=_OPTIONS)
            self._writers[table] = self._stack.enter_context(file)
        return self._writers[table]


def units_of(pieces: Iterable[Piece]) -> Iterator[Unit]:
    """Return the units of these pieces, always in the same order."""
    groups: defaultdict[tuple[str, int | None], list[Piece]] = defaultdict(list)
    for piece in pieces:
        groups[piece.table, piece.week].append(piece)
    for (table, week), some in sorted(groups.items(), key=lambda item: (item[0][0], item[0][1] or 0)):
        taken: list[tuple[str, int]] = []
        rows = 0
        for piece in sorted(some):
            taken.append((piece.file, piece.number))
            rows += piece.rows
            if rows >= UNIT_ROWS_MAX:
                yield Unit(table, week, tuple(taken))
                taken, rows = [], 0
        if taken:
            yield Unit(table, week, tuple(taken))


class PieceReader:
    """Reads pieces of any task. Use it as a context: it keeps the files open."""

    def __init__(self, staging: TablesDirectory) -> None:
        self._staging = staging
        self._files: dict[str, Any] = {}
        self._stack = ExitStack()

    def __enter__(self) -> "PieceReader":
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def rows_of(self, unit: Unit) -> pa.Table:
        """Return the rows of a unit, by day, and by offset there."""
        schema = schema_of_table(unit.table)
        batches = [self._file(name).get_batch(number) for name, number in unit.pieces]
        keys = [(name, "ascending") for name in _ORDER if name in schema.names]
        return pa.Table.from_batches(batches, schema=schema).combine_chunks().sort_by(keys)

    def _file(self, name: str) -> Any:
        if name not in self._files:
            source = self._stack.enter_context(self._staging.source(f"{PIECES}/{name}"))
            self._files[name] = self._stack.enter_context(pa.ipc.open_file(source))
        return self._files[name]


_ORDER: Final = (
    "day", "to_offset", "offset", "from_offset", "topic_id", "partition", "condition", "kind", "name", "field",
)  # fmt: skip
