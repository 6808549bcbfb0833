"""The tables of a history at the URL of an object store: a run that dies anywhere, two jobs at once, and a store that refuses."""

import datetime as dt
import json
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from snapshots.offline import __main__ as cli
from snapshots.offline.commands import running, shared
from snapshots.offline.history import delta_log
from snapshots.offline.history.output import (
    HistoryRefused,
    check_alone,
    files_that_count,
    place_of,
    prepare,
    read_baseline,
    write_baseline,
)
from snapshots.offline.history.storage.directory import StoredTables, StoreRefused
from snapshots.offline.history.storage.parquet_rows import TaskRead
from snapshots.offline.history.tables import GROWTH, schema_of_table
from snapshots.offline.typed.arrow_schema import list_of
from tests.snapshots.submitted.object_store import ObjectStore, object_store
from tests.snapshots.tables.test_history_job import all_rows
from tests.snapshots.tables.test_history_output import BASELINE, continue_tables_in
from tests.snapshots.tables.test_history_page import PAGE, QUESTION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

URL = "s3://meta/h"


@pytest.fixture(scope="module")
def one_store() -> Iterator[ObjectStore]:
    """The same port for all tests: Spark starts other Python processes when their environment changes."""
    with object_store() as started:
        yield started


@pytest.fixture
def store(one_store: ObjectStore) -> ObjectStore:
    one_store.objects, one_store.refused, one_store.changes_left = {}, None, float("inf")
    return one_store


def kept(store: ObjectStore) -> dict[str, bytes]:
    """The objects with content, which are no left `.part`."""
    return {
        name: data for name, data in store.objects.items() if data and "_delta_log" not in name and ".part" not in name
    }


@pytest.mark.slow
def test_a_run_that_dies_leaves_the_tables_of_a_run_that_lived(store: ObjectStore) -> None:
    """The second run dies before each of its changes. The store has run 1 or run 2 as a whole, and the next run cleans up."""
    wanted: list[dict[str, bytes]] = []
    given: dict[str, bytes] = {}
    for _ in range(3):
        given = dict(store.objects) if len(wanted) == 1 else given
        continue_tables_in(place_of(URL))
        wanted.append(kept(store))
    out, found_runs = place_of(URL), []
    for changes in count():
        store.objects, store.changes_left = dict(given), changes
        try:
            continue_tables_in(place_of(URL))
            break
        except StoreRefused as e:
            assert "AccessDenied" in str(e) or "ACCESS_DENIED" in str(e)
        store.changes_left = float("inf")
        found = read_baseline(out)
        assert found is not None
        counting = {f"meta/h/{name}" for name in files_that_count(out, GROWTH, found.run)}
        assert counting == {name for name in wanted[found.run - 1] if GROWTH in name}, changes
        continue_tables_in(place_of(URL))
        assert kept(store) == wanted[found.run], changes
        assert delta_log.named_files(out, GROWTH) == {name.removeprefix(f"{GROWTH}/") for name in out.files(GROWTH)}
        found_runs.append(found.run)
    assert found_runs == sorted(found_runs) and {*found_runs} == {1, 2}
    assert kept(store) == wanted[1]


def test_of_two_jobs_at_a_time_the_first_one_is_refused(store: ObjectStore) -> None:
    """A store has no lock. The second job removes the staging directory of the first job, which notices it, also later on."""
    out = place_of(URL)
    first = prepare(out, 0)
    second = prepare(out, 0)
    check_alone(out, second, None)
    with pytest.raises(HistoryRefused, match="another run writes the tables in s3://meta/h; let one job at a time"):
        check_alone(out, first, None)
    write_baseline(out, BASELINE)
    with pytest.raises(HistoryRefused, match="another run has written s3://meta/h meanwhile"):
        check_alone(out, first, None)


def test_a_store_that_refuses_does_so_before_the_long_pass(store: ObjectStore) -> None:
    store.refused = ""
    out = place_of(URL)
    told = r"the store of s3://meta/h refused .*ACCESS_DENIED.*The tables were not changed"
    with pytest.raises(StoreRefused, match=told), out.explaining_errors():
        prepare(out, 0)
    assert store.objects == {}


def test_a_store_is_not_blamed_for_a_socket_of_spark(store: ObjectStore) -> None:
    """Java was killed while the tables lay in a store, and the job told the operator to check the credentials."""
    out = place_of(URL)
    with pytest.raises(ConnectionRefusedError), out.explaining_errors():
        raise ConnectionRefusedError(111, "Connection refused")
    with (
        pytest.raises(StoreRefused, match="the store of s3://meta/h refused or did not answer: curlCode: 7"),
        out.explaining_errors(),
    ):
        raise OSError("curlCode: 7, Could not connect to server")


def test_a_place_is_a_path_or_the_url_of_a_store(store: ObjectStore, tmp_path: Path) -> None:
    assert str(place_of(f"file://{tmp_path}/out")) == f"{tmp_path}/out"
    assert str(place_of(f"{URL}/")) == URL
    with pytest.raises(HistoryRefused, match="ftp://host/out is no URL of a store that can be opened"):
        place_of("ftp://host/out")
    store.objects["meta/h/letter.txt"] = b"Dear"
    with pytest.raises(HistoryRefused, match=r"s3://meta/h has files that no history has, such as letter\.txt"):
        read_baseline(place_of(URL))


def test_a_column_that_a_file_does_not_have_is_null(store: ObjectStore) -> None:
    """The table has got two columns since run 1 was written. The day is in the name of the file's directory alone."""
    continue_tables_in(place_of(URL))
    out = place_of(URL)
    assert isinstance(out, StoredTables)
    schema = (
        schema_of_table(GROWTH).append(pa.field("newer", list_of(pa.int64()))).append(pa.field("note", pa.string()))
    )
    read = pickle.loads(pickle.dumps(TaskRead(out, schema)))  # as Spark sends it to a task
    names = pa.RecordBatch.from_pydict({"name": files_that_count(out, GROWTH, 1)})
    rows = [row for batch in read(iter([names])) for row in batch.to_pylist()]
    assert sorted((row["records"], row["day"]) for row in rows) == [(0, None), (1, dt.date(2026, 11, 1))]
    assert all(row["newer"] is None and row["note"] is None and row["date"] for row in rows)


# --- with Spark -------------------------------------------------------------------------------------------------------

Run = Callable[..., Any]


@pytest.fixture
def run(spark: "SparkSession", store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command, in the session of the tests. Spark's tasks find the store as this process does."""

    @contextmanager
    def session(*_: object) -> Iterator[object]:
        with running.failing_in_one_line():
            yield spark, lambda _: None

    monkeypatch.setattr(running, "session", session)
    for name in (name for name in os.environ if name.startswith("AWS_")):
        monkeypatch.setitem(spark.sparkContext.environment, name, os.environ[name])
    return lambda *words: CliRunner().invoke(cli.main, [*words])


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_history_at_a_url_is_the_history_in_a_directory(story: Path, run: Run, store: ObjectStore) -> None:
    """Three runs at the store: one over a part of the log; one that dies before its baseline, and is told so in one line; and
    one more, which ends with the rows of one run into a directory. A question of docs/history.md has the page's answer.
    """
    log, local = str(story / "log"), place_of(str(story / "out"))
    first = json.loads(run("history", log, "--out", URL, "--until", "40", "--delta", "-o", "json").stdout)
    assert (first["out"], first["run"]) == (URL, 1)
    assert 0 < first["end_offset"] <= 40

    before = {name: data for name, data in store.objects.items() if data}
    store.refused = "_history.json"
    died = run("history", log, "--out", URL)
    assert died.exit_code == shared.EXIT_FAILED
    (line,) = died.stderr.splitlines()
    assert "ACCESS_DENIED" in line and "Nobody knows whether run 2 counts now; run the job again" in line
    assert {*before} < {*store.objects}
    assert {name: store.objects[name] for name in before} == before

    store.refused = None
    again = run("history", log, "--out", URL)
    assert again.exit_code == 0, again.output
    assert all_rows(URL) == all_rows(str(local))
    whole, baseline = read_baseline(local), read_baseline(place_of(URL))
    assert whole is not None
    assert baseline == whole._replace(run=2)
    for table in whole.tables:
        files = {name.removeprefix(f"{table}/") for name in place_of(URL).files(table)}
        assert delta_log.named_files(place_of(URL), table) == files

    question = next(match for match in QUESTION.finditer(PAGE.read_text()) if "FROM outages" in match["query"])
    assert run("query", URL, question["query"]).stdout == question["answer"]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_store_that_refuses_a_task_ends_the_job_in_one_line(story: Path, run: Run, store: ObjectStore) -> None:
    """The line says that the tables are as they were, and what to do."""
    store.refused = "_pieces"
    refused = run("history", str(story / "log"), "--out", URL, "--tables", "leadership")
    assert refused.exit_code == shared.EXIT_FAILED
    (line,) = refused.stderr.splitlines()
    assert line.startswith("Error: the store of s3://meta/h/_staging/") and "ACCESS_DENIED" in line
    assert "The tables were not changed. Check that the bucket exists" in line
    assert read_baseline(place_of(URL)) is None
