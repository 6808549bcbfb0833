"""The Spark job: the same rows as the passes alone, run after run, and refusals."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest
from click.testing import CliRunner

from metadata_log.store.log_config import LogConfig
from snapshots.offline import __main__ as cli
from snapshots.offline.commands import running, shared
from snapshots.offline.history import delta_log
from snapshots.offline.history.output import BASELINE_NAME, HistoryRefused, place_of, read_baseline
from snapshots.offline.history.place import Place
from snapshots.offline.history.run import make_history
from snapshots.offline.history.tables import GROWTH, TABLES, schema_of_table
from snapshots.offline.history.views import register
from snapshots.offline.inputs import find_log
from tests.sim.cluster import Cluster
from tests.snapshots.healthy_logs.rounds import export
from tests.snapshots.history.nodes import PastNode
from tests.snapshots.nodes import Node
from tests.snapshots.tables.local import local_history
from tests.snapshots.test_committed import Three

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def rows_in(out: Path | str, table: str) -> list[str]:
    """The rows of a table at a path or URL, as texts, sorted. Read without Spark."""
    schema = schema_of_table(table)
    partitioning = ds.partitioning(schema.empty_table().select(["day"]).schema, flavor="hive")
    found = ds.dataset(f"{out}/{table}", schema=schema, partitioning=partitioning, format="parquet").to_table()
    return sorted(json.dumps(row, default=str, sort_keys=True) for row in found.to_pylist())


def all_rows(out: Path | str) -> dict[str, list[str]]:
    return {table: rows_in(out, table) for table in TABLES}


@pytest.fixture(scope="module")
def cluster_log(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The log of a simulated cluster whose brokers were fenced."""
    cluster = Cluster(92)
    cluster.run(1_500)
    return str(export(cluster.controllers[0].disk, tmp_path_factory.mktemp("cluster") / "c1"))


def test_one_run_and_many_give_the_rows_of_the_passes(spark: "SparkSession", cluster_log: str, tmp_path: Path) -> None:
    """Spark writes what the passes give, which the twin has checked. Three runs, one of which leaves half of its files, give the
    same tables as one run.
    """
    job = partial(make_history, spark, cluster_log, uncommitted=True)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    result = job(str(whole), split_bytes=4_000)
    local = local_history(Path(cluster_log))
    assert result.baseline.end.offset == local.end.offset
    for table in ("leadership", "broker_states", "partition_conditions", "isr_changes", "changes"):
        sizes = result.rows[table]
        closed = len(local.closed(table))
        assert sizes == (closed, len(local.rows[table]) - closed), table
        assert len(rows_in(whole, table)) == len(local.rows[table]), table
    assert result.rows["elections"][0] > 0

    end = result.baseline.end.offset
    job(str(parts), until=Place(end // 3), delta=True)
    shutil.copytree(parts, tmp_path / "first")
    job(str(parts), until=Place(end // 2))
    shutil.copytree(tmp_path / "first", parts, dirs_exist_ok=True)  # as if that run had died just before its baseline
    job(str(parts))
    assert all_rows(parts) == all_rows(whole)
    for table in TABLES:
        files = {str(path.relative_to(parts / table)) for path in (parts / table).rglob("*.parquet")}
        assert delta_log.named_files(place_of(str(parts)), table) == files
    first, last = (read_baseline(place_of(str(each))) for each in (whole, parts))
    assert last is not None and last._replace(run=1) == first
    before = all_rows(parts)
    assert job(str(parts)).begin == end
    assert all_rows(parts) == before


def test_the_archive_closes_a_gap(spark: "SparkSession", tmp_path: Path) -> None:
    """Retention drops the part of the log that the tables do not have yet, and the archive has it. A first run begins with the
    first record in the archive.
    """
    node = Node(tmp_path / "node", 8, config=LogConfig(segment_bytes=3 << 10, tail_bytes=1 << 10)).live(15)
    job = partial(make_history, spark, str(node.path), uncommitted=True, wanted=["changes", "broker_states"])
    job(str(tmp_path / "whole"))
    job(str(tmp_path / "parts"), until=Place(40))
    shutil.copytree(tmp_path / "parts", tmp_path / "first")
    node.journal.drop_prefix(node.marks[-1])
    assert find_log(str(node.path)).start_offset > 40
    assert job(str(tmp_path / "parts")).begin <= 40
    assert job(str(tmp_path / "anew")).begin == 0
    for table in ("changes", "broker_states"):
        assert (
            rows_in(tmp_path / "parts", table)
            == rows_in(tmp_path / "anew", table)
            == rows_in(tmp_path / "whole", table)
        )
    max((node.path / "@metadata" / "archive").glob("*.log")).unlink()
    with pytest.raises(HistoryRefused, match="the part between is gone"):
        job(str(tmp_path / "first"))


def test_other_logs_and_other_tables_are_refused(spark: "SparkSession", tmp_path: Path) -> None:
    """The chain at the baseline decides. A log with another history, one that is cut, one with damage, a later skip, and other
    tables are refused, and the tables stay as they are.
    """
    node, other = PastNode(tmp_path / "node", 5), PastNode(tmp_path / "other", 6)
    job = partial(make_history, spark, uncommitted=True)
    for each in (node, other):
        each.live(10)
        each.write_out()
        each.journal.flush()
    out = tmp_path / "out"
    job(str(node.path), str(out), wanted=["changes"])
    before, baseline = rows_in(out, "changes"), (out / BASELINE_NAME).read_text()
    with pytest.raises(HistoryRefused, match=r"another history below|does not reach offset"):
        job(str(other.path), str(out), wanted=["changes"])
    with pytest.raises(HistoryRefused, match="the directory has the tables changes"):
        job(str(node.path), str(out), wanted=["growth"])
    with pytest.raises(HistoryRefused, match="leave --since out"):
        job(str(node.path), str(out), since=Place(5))
    node.skip_a_batch()
    node.journal.flush()
    assert job(str(node.path), str(out)).rows.keys() == {"changes"}
    assert (rows_in(out, "changes"), baseline) != (before, (out / BASELINE_NAME).read_text())
    next((out / "_state").glob("*.parquet")).unlink()
    with pytest.raises(HistoryRefused, match=r"_state has \d+ of the \d+ rows of run 2: files are missing"):
        job(str(node.path), str(out))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("")
    with pytest.raises(HistoryRefused, match=r"such as letter\.txt"):
        job(str(node.path), str(tmp_path / "full"))


def test_the_command(spark: "SparkSession", cluster_log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """0 and a summary; 1 and one line if the job refuses; 2 for a table that does not exist. A run ends where the files prove no
    more, and another controller's directory proves more.
    """

    @contextmanager
    def session(*_: object) -> Iterator[object]:
        with running.failing_in_one_line():
            yield spark, lambda _: None

    monkeypatch.setattr(running, "session", session)
    out = str(tmp_path / "out")

    def run(*words: str) -> Any:
        return CliRunner().invoke(cli.main, ["history", *words])

    refused = run(cluster_log, "--out", out)
    assert refused.exit_code == shared.EXIT_FAILED
    assert "no record of c1 is proven to be committed" in refused.output
    three = Three(tmp_path / "three")
    log, beside = map(str, three.paths[:2])
    found = run(log, "--out", out, "--tables", "broker_states,growth", "-o", "json")
    assert found.exit_code == 0, found.output
    summary = json.loads(found.stdout)
    assert summary["tables"].keys() == {"broker_states", "growth"}
    assert (summary["run"], summary["end_offset"]) == (1, three.marked)
    assert "has written a snapshot" in summary["committed"]["proof"]
    more = json.loads(run(log, "--beside", beside, "--out", out, "-o", "json").stdout)
    assert (more["begin_offset"], more["end_offset"]) == (three.marked, three.end)
    register(spark, out)
    (row,) = spark.sql("SELECT count(*) n, sum(CAST(day IS NULL AS INT)) open FROM growth").collect()
    assert (row["n"], row["open"]) == (len(rows_in(Path(out), GROWTH)), 1)
    again = run(log, "--uncommitted", "--out", out)
    assert again.exit_code == 0
    assert "nothing new" in again.output
    assert run(log, "--out", out, "--since", "5").exit_code == shared.EXIT_FAILED
    assert run(log, "--out", out, "--tables", "nothing").exit_code == 2
    assert run(log, "--out", out, "--until", "soon").exit_code == 2
