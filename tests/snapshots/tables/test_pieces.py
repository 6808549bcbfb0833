"""Pieces: rows of any order become units of whole weeks, bounded in size."""

import datetime as dt
from pathlib import Path

import pytest

from snapshots.offline.history import pieces
from snapshots.offline.history.pieces import Piece, PieceReader, PieceWriter, units_of
from snapshots.offline.history.storage.directory import LocalTables
from snapshots.offline.history.tables import ISR_CHANGES, Values, values_of

MONDAY = dt.date(2026, 11, 23)


def change(offset: int, days: int | None) -> Values:
    day = None if days is None else MONDAY + dt.timedelta(days=days)
    row = {"offset": offset, "topic": "orders", "topic_id": "A", "partition": 0, "before": [1, 2], "day": day}
    return values_of(ISR_CHANGES, row)


def test_the_pieces_of_all_tasks_are_merged_by_day_and_offset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tasks write two weeks and an open row, a few rows at a time. Each week is one unit, with every row once, in order."""
    monkeypatch.setattr(pieces, "WAITING_ROWS_MAX", 3)
    found: list[Piece] = []
    for task in range(2):
        with PieceWriter(LocalTables(tmp_path), task) as writer:
            for number in reversed(range(10)):
                writer.add(ISR_CHANGES, change(2 * number + task, number))
            writer.add(ISR_CHANGES, change(99, None))
            found += writer.finish()
    assert sum(piece.rows for piece in found) == 22
    units = [*units_of(found)]
    with PieceReader(LocalTables(tmp_path)) as reader:
        merged = {unit.week: reader.rows_of(unit).to_pylist() for unit in units}
    assert len(merged) == len(units) == 3
    in_order = [row for week in sorted(week for week in merged if week is not None) for row in merged[week]]
    assert [row["offset"] for row in in_order] == [*range(20)]
    assert [row["day"] for row in in_order] == sorted(row["day"] for row in in_order)
    assert all(row["before"] == [1, 2] and row["after"] is None for row in in_order)
    assert [row["offset"] for row in merged[None]] == [99, 99]


def test_a_large_week_has_several_units() -> None:
    """A unit is full at its number of rows; no piece is lost, and the order of the units does not depend on that of the tasks."""
    some = [Piece("changes", 7, f"changes-{task}.arrow", number, 200_000) for task in range(2) for number in range(3)]
    units = [*units_of(some)]
    assert units == [*units_of(reversed(some))]
    assert [len(unit.pieces) for unit in units] == [3, 3]
    assert sorted(each for unit in units for each in unit.pieces) == [(piece.file, piece.number) for piece in some]


def test_no_rows_make_no_units(tmp_path: Path) -> None:
    with PieceWriter(LocalTables(tmp_path), 0) as writer:
        assert writer.finish() == []
    assert [*units_of([])] == []
