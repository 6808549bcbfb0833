"""The Delta log names the files that count, run after run, also behind a run that died. Without Spark's JVM."""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest

from snapshots.offline.history import delta_log
from snapshots.offline.history.output import (
    HistoryRefused,
    place_of,
    prepare,
    publish,
    remove_old,
)
from snapshots.offline.history.storage.directory import TablesDirectory
from snapshots.offline.history.tables import GROWTH
from snapshots.offline.history.writer import write_rows

DAYS = [dt.date(2026, 11, day) for day in range(1, 6)]


def write_run(out: TablesDirectory, run: int) -> None:
    """A run that closes its day, and leaves the next day open."""
    staging = prepare(out, run - 1)
    rows = [{"date": DAYS[run], "records": run, "day": DAYS[run]}, {"date": DAYS[run + 1], "records": 0, "day": None}]
    write_rows(staging, run, GROWTH, rows)
    publish(out, staging, [GROWTH])


def on_disk(out: Path) -> set[str]:
    return {str(path.relative_to(out / GROWTH)) for path in (out / GROWTH).rglob("*.parquet")}


def actions(out: Path, version: int) -> list[dict[str, Any]]:
    text = (out / GROWTH / "_delta_log" / f"{version:020}.json").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_each_run_is_one_commit(tmp_path: Path) -> None:
    out = place_of(str(tmp_path))
    write_run(out, 1)
    delta_log.commit(out, [GROWTH], 1)
    protocol, metadata, *added = actions(tmp_path, 0)
    assert protocol == {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    assert metadata["metaData"]["partitionColumns"] == ["day"]
    schema = json.loads(metadata["metaData"]["schemaString"])
    assert [field["name"] for field in schema["fields"]][-1] == "day"
    assert {action["add"]["partitionValues"]["day"] for action in added} == {"2026-11-02", None}
    assert all(json.loads(action["add"]["stats"]) == {"numRecords": 1} for action in added)
    write_run(out, 2)
    delta_log.commit(out, [GROWTH], 2)
    assert [*map(next, map(iter, actions(tmp_path, 1)))] == ["add", "add", "remove"]
    assert on_disk(tmp_path) - delta_log.named_files(out, GROWTH) == {
        "day=__HIVE_DEFAULT_PARTITION__/run-1-driver.parquet"
    }
    remove_old(out, 2)
    assert on_disk(tmp_path) == delta_log.named_files(out, GROWTH)
    delta_log.commit(out, [GROWTH], 2)
    assert len([*(tmp_path / GROWTH / "_delta_log").glob("*.json")]) == 2


def test_a_run_that_died_is_made_up_for(tmp_path: Path) -> None:
    """Run 2 has died behind its baseline, and without a commit: the next run commits it first. A log that begins later has the
    files of all runs.
    """
    out = place_of(str(tmp_path))
    write_run(out, 1)
    assert not delta_log.has_log(out)
    delta_log.commit(out, [GROWTH], 1)
    assert delta_log.has_log(out)
    write_run(out, 2)
    delta_log.commit(out, [GROWTH], 1)
    assert len(delta_log.named_files(out, GROWTH)) == 2  # as long as the baseline says 1
    delta_log.commit(out, [GROWTH], 2)
    write_run(out, 3)
    delta_log.commit(out, [GROWTH], 3)
    remove_old(out, 3)
    assert on_disk(tmp_path) == delta_log.named_files(out, GROWTH)


def test_a_damaged_log_is_refused(tmp_path: Path) -> None:
    out = place_of(str(tmp_path))
    write_run(out, 1)
    delta_log.commit(out, [GROWTH], 1)
    (tmp_path / GROWTH / "_delta_log" / f"{1:020}.json").write_text('{"add": {}}\n')
    with pytest.raises(HistoryRefused, match=r"0001\.json is damaged .*in another directory"):
        delta_log.commit(out, [GROWTH], 2)


def test_delta_lake_reads_the_tables(tmp_path: Path) -> None:
    """The reference reader sees the rows of the last run, where it is installed."""
    out = place_of(str(tmp_path))
    deltalake = pytest.importorskip("deltalake")
    for run in (1, 2, 3):
        write_run(out, run)
        delta_log.commit(out, [GROWTH], run)
        remove_old(out, run)
        rows = deltalake.DeltaTable(str(tmp_path / GROWTH)).to_pyarrow_table().to_pylist()
        assert sorted(row["records"] for row in rows) == [0, *range(1, run + 1)]
        assert {row["day"] for row in rows} == {None, *DAYS[1 : run + 1]}
