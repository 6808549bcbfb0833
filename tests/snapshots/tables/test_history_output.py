"""The directory of a history: a run that is killed, a second run at the same time, and a baseline that is none. Without Spark."""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest

from snapshots.offline.history import delta_log
from snapshots.offline.history.folding.steps import Step
from snapshots.offline.history.output import (
    BASELINE_NAME,
    STAGING,
    Baseline,
    HistoryRefused,
    check_alone,
    files_that_count,
    locked,
    place_of,
    prepare,
    publish,
    read_baseline,
    remove_old,
    write_baseline,
)
from snapshots.offline.history.storage.directory import TablesDirectory
from snapshots.offline.history.tables import GROWTH
from snapshots.offline.history.writer import write_rows
from tests.killing import killed_everywhere

SIZES = {"topics": 2, "partitions": 4, "brokers": 3, "newest": None}
BASELINE = Baseline(1, "controller 1", (GROWTH,), 0, Step(60, 1_000, 3), b"c" * 32, (3, 1), SIZES, (), 12)
BROKER = {"broker_id": 1, "state": "online", "from_offset": 5, "from_time": 7}


def continue_tables(path: Path) -> None:
    continue_tables_in(place_of(str(path)))


def continue_tables_in(out: TablesDirectory) -> None:
    """Do what a run does with the directory, in its order."""
    with out.explaining_errors():
        last = read_baseline(out)
    run = 1 if last is None else last.run + 1
    with out.explaining_errors(), locked(out, last):
        if last is not None and delta_log.has_log(out):
            delta_log.commit(out, [GROWTH], last.run)
        staging = prepare(out, run - 1)
        days = [dt.date(2026, 11, run + each) for each in range(2)]
        rows = [{"date": days[0], "records": run, "day": days[0]}, {"date": days[1], "records": 0, "day": None}]
        write_rows(staging, run, GROWTH, rows)
        check_alone(out, staging, last)
        publish(out, staging, [GROWTH])
        write_baseline(out, BASELINE._replace(run=run))
        delta_log.commit(out, [GROWTH], run)
        remove_old(out, run)


def tree(out: Path) -> dict[str, bytes]:
    names = (path for path in out.rglob("*") if path.is_file() and "_delta_log" not in path.parts)
    return {str(path.relative_to(out)): path.read_bytes() for path in names if path.name != ".lock"}


@pytest.mark.slow
def test_a_killed_run_leaves_the_tables_of_a_run_that_lived(tmp_path: Path) -> None:
    """Killed anywhere, and run again: the files are those of the runs without the kill, and the baseline counts whole runs."""
    given, whole = tmp_path / "given", tmp_path / "whole"
    for out in (given, whole):
        continue_tables(out)
    wanted = [tree(whole)]
    for _ in range(2):
        continue_tables(whole)
        wanted.append(tree(whole))
    for copy in killed_everywhere(continue_tables, given, tmp_path / "killed"):
        found = read_baseline(place_of(str(copy)))
        assert found is not None and found.run in (1, 2)
        counting = {*files_that_count(place_of(str(copy)), GROWTH, found.run)}
        assert counting == {name for name in wanted[found.run - 1] if name.startswith(GROWTH)}, copy
        continue_tables(copy)
        assert tree(copy) == wanted[found.run], copy
        assert not (copy / STAGING).exists()
        names = {str(path.relative_to(copy / GROWTH)) for path in (copy / GROWTH).rglob("*.parquet")}
        assert delta_log.named_files(place_of(str(copy)), GROWTH) == names


def test_one_run_at_a_time_writes(tmp_path: Path) -> None:
    """The second run would delete the staged files of the first one, or build on tables that have grown meanwhile."""
    out = place_of(str(tmp_path / "out"))
    with locked(out, None):
        staging = prepare(out, 0)
        with pytest.raises(HistoryRefused, match="another run writes the tables"), locked(out, None):
            pass
        assert Path(str(staging)).is_dir()
        write_baseline(out, BASELINE)
    with pytest.raises(HistoryRefused, match="another run has written"), locked(out, None):
        pass
    with locked(out, read_baseline(out)):
        pass


def test_a_task_of_a_killed_driver_writes_beside_the_next_run(tmp_path: Path) -> None:
    """Spark's tasks live a little longer than the driver. Both write a file of run 1 with the same name."""
    out = place_of(str(tmp_path))
    first, second = prepare(out, 0), prepare(out, 0)
    write_rows(second, 1, GROWTH, [{"date": dt.date(2026, 11, 1), "records": 1, "day": None}])
    before = tree(Path(str(second)))
    write_rows(first, 1, GROWTH, [{"date": dt.date(2026, 11, 2), "records": 2, "day": None}])
    assert tree(Path(str(second))) == before
    publish(out, second, [GROWTH])
    assert [*tree(tmp_path).values()] == [*before.values()]


@pytest.mark.parametrize(
    "text", ["", "5", "[]", "null", '"x"', "{}", "[" * 200_000, json.dumps({"schema_version": 1, "end": 7, "run": 1})]
)
def test_a_baseline_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / BASELINE_NAME).write_text(text)
    with pytest.raises(HistoryRefused, match="is damaged"):
        read_baseline(place_of(str(tmp_path)))


@pytest.mark.parametrize(
    "wrong",
    [{"run": "2"}, {"run": -1}, {"end": [60, "x", 3]}, {"end": [60, 1, 3, 7]}, {"tables": ["../.."]}, {"tables": "growth"},
     {"since": -5}, {"chain": "ab"}, {"brokers": [1]}, {"growth": 5}, {"growth": {}}, {"growth": {**SIZES, "topics": "2"}},
     {"growth": {**SIZES, "newest": {"date": "2026-11-01"}}}, {"brokers": [{}]}, {"brokers": [{**BROKER, "from_time": "x"}]},
     {"brokers": [{**BROKER, "state": 5}]}, {"brokers": [{**BROKER, "to_offset": 9}]}, {"brokers": {}},
     {"state_rows": 1.5}, {"election": ["a", 1]}, {"node": 7}],
)  # fmt: skip
def test_a_baseline_with_a_wrong_field_is_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    """A table named `../..` would be written outside of the directory."""
    out = place_of(str(tmp_path))
    write_baseline(out, BASELINE)
    assert read_baseline(out) == BASELINE
    path = tmp_path / BASELINE_NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), **wrong}))
    with pytest.raises(HistoryRefused, match="is damaged"):
        read_baseline(out)
