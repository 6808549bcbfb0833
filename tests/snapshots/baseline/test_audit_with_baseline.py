"""A nightly audit proves that the log continues the baseline, reads only what is newer, and moves the baseline if all is well."""

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from metadata_log.disk.files import RealDirectory
from metadata_log.store.log import Log
from snapshots.format import snapshot_name
from snapshots.offline import __main__ as cli
from snapshots.offline.audit.baseline import Baseline, read_baseline
from snapshots.offline.audit.baseline_checks import AgainstBaseline
from snapshots.offline.audit.result import AuditResult, Compared
from snapshots.offline.audit.run import audit
from snapshots.offline.commands import running, shared
from snapshots.offline.inputs import find_logs
from tests.snapshots.baseline.nights import CONFIG, Nights, cloned, nights
from tests.snapshots.nodes import batches_of, flip, segments
from tests.snapshots.test_committed import Three

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def run(
    spark: "SparkSession", paths: list[Path], before: Baseline | None, *, full: bool = False
) -> tuple[AuditResult, Compared]:
    against = AgainstBaseline(before, find_logs([str(path) for path in paths]), is_full=full)
    result = audit(spark, [], against=against)
    assert result.baseline is not None
    return result, result.baseline


def places(result: AuditResult) -> set[tuple[str, str | None, str | None, int | None]]:
    return {(each.rule, each.node, each.file, each.offset) for each in result.findings}


def read_segments(result: AuditResult) -> dict[str, int]:
    return {node: numbers.segments for node, numbers in result.nodes.items()}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Nights:
    return nights(tmp_path_factory.mktemp("cluster"))


@pytest.fixture(scope="module")
def monday(spark: "SparkSession", cluster: Nights) -> Baseline:
    """The baseline that the first audit notes. It reads everything."""
    result, compared = run(spark, cluster.first, None)
    assert result.findings == ()
    assert (compared.before, compared.segments_left_out) == (None, 0)
    assert read_segments(result) == {log.node: len(log.segments) for log in find_logs(map(str, cluster.first))}
    after = compared.after
    assert after is not None
    assert after.end == max(numbers.end_offset for numbers in result.nodes.values())
    assert [each.node for each in after.holders] == ["controller 1", "controller 2"]
    assert [each.end.offset for each in after.snapshots] == [snapshot.end for snapshot in result.snapshots[:1]]
    return after


def test_the_next_night_reads_only_what_is_new(spark: "SparkSession", cluster: Nights, monday: Baseline) -> None:
    """The audit stands on the snapshot that Monday has proven. With `is_full` it reads all, and comes to the same baseline.
    Controller 3 has always been behind the baseline, and that is healthy.
    """
    result, compared = run(spark, cluster.second, monday)
    assert result.findings == ()
    base = monday.snapshots[0].end.offset
    assert compared.read_from == {"controller 1": base, "controller 2": base, "controller 3": 0}
    assert compared.same_on == ("controller 1", "controller 2")
    wanted = {}
    for log in find_logs(map(str, cluster.second)):
        since = compared.read_from[log.node]
        wanted[log.node] = sum(1 for each in log.segments if not since or _end(log.path, each.name) >= since)
    assert read_segments(result) == wanted
    total = sum(len(log.segments) for log in find_logs(map(str, cluster.second)))
    assert compared.segments_left_out == total - sum(wanted.values()) > 0
    assert compared.after is not None
    assert compared.after.end > monday.end

    whole, full = run(spark, cluster.second, monday, full=True)
    assert whole.findings == ()
    assert full.segments_left_out == 0
    assert full.after == compared.after


def _end(directory: str, name: str) -> int:
    return batches_of(Path(directory) / name)[-1][1].end_offset


@pytest.mark.parametrize("full", [False, True])
def test_a_history_that_was_rewritten_everywhere_is_found(
    spark: "SparkSession", tmp_path: Path, monday: Baseline, full: bool
) -> None:
    """One early config has another value on all nodes, and all checksums, chains, notes and snapshots are right for it. An audit
    without the baseline finds nothing.
    """
    forged = nights(tmp_path, value="2").second
    result, compared = run(spark, forged, monday, full=full)
    rewritten = {each for each in places(result) if each[0] == "history-rewritten"}
    (file,) = (
        each.name for each in segments(forged[0]) for _, batch in batches_of(each) if batch.end_offset == monday.end
    )
    assert rewritten == {("history-rewritten", f"controller {each}", file, monday.end) for each in (1, 2)}
    name = next(each.name for each in result.snapshots if each.end == monday.snapshots[0].end.offset)
    end = monday.snapshots[0].end.offset
    changed = {("baseline-snapshot", f"controller {each}", name, end) for each in (1, 2)}
    assert places(result) == rewritten | changed
    assert (compared.after, compared.reason) == (None, "the audit has errors")
    if not full:
        assert audit(spark, [str(path) for path in forged]).findings == ()


def test_damage_in_the_new_part_is_found_and_the_baseline_stays(
    spark: "SparkSession", tmp_path: Path, cluster: Nights, monday: Baseline
) -> None:
    paths = cloned(cluster.second, tmp_path)
    last = segments(paths[1])[-2]
    position, batch = batches_of(last)[2]
    flip(last, position + len(batch.data) - 3)
    result, compared = run(spark, paths, monday)
    assert places(result) == {("damaged-batch", "controller 2", last.name, batch.base_offset)}
    assert compared.after is None


def test_a_damaged_snapshot_below_leaves_the_other_nodes_to_replay(
    spark: "SparkSession", tmp_path: Path, cluster: Nights, monday: Baseline
) -> None:
    """Controller 1 stands on a proven snapshot, and a bit of it flips. The log of controller 2 is replayed."""
    paths = cloned(cluster.second, tmp_path)
    end = monday.snapshots[0].end
    snapshot = paths[0] / "@metadata" / snapshot_name(end)
    flip(snapshot, snapshot.stat().st_size // 2)
    result, compared = run(spark, paths, monday)
    assert {each[:3] for each in places(result)} == {("snapshot-damaged", "controller 1", snapshot.name)}
    assert result.reference == "controller 2"
    assert result.fold is not None
    assert compared.after is None


def test_a_log_from_an_older_backup_is_found(
    spark: "SparkSession", tmp_path: Path, cluster: Nights, monday: Baseline
) -> None:
    """Controller 1 had the baseline, and its log ends below. A new disk, with another directory id, may be behind."""
    paths = cloned(cluster.second, tmp_path)
    log = Log.open(RealDirectory(paths[0] / "@metadata"), config=CONFIG)
    end = next(each for each in range(monday.end - 5, 0, -1) if _is_end(paths[0], each))
    log.truncate(end)
    log.close()
    result, compared = run(spark, paths, monday)
    file = segments(paths[0])[-1].name
    assert places(result) == {("baseline-missing", "controller 1", file, end)}
    assert compared.after is None

    others = monday._replace(holders=tuple(each._replace(directory_id="other") for each in monday.holders))
    result, compared = run(spark, paths, others)
    assert result.findings == ()
    assert compared.same_on == ("controller 2",)


def _is_end(path: Path, offset: int) -> bool:
    return any(batch.end_offset == offset for each in segments(path) for _, batch in batches_of(each))


def test_only_a_full_audit_reads_the_segments_below(
    spark: "SparkSession", tmp_path: Path, cluster: Nights, monday: Baseline
) -> None:
    """A bit of the oldest segment flips. The chain at the baseline stands in a newer segment, and is as it was."""
    paths = cloned(cluster.second, tmp_path)
    first = segments(paths[0])[0]
    position, batch = batches_of(first)[1]
    flip(first, position + len(batch.data) - 3)
    assert run(spark, paths, monday)[0].findings == ()
    result, compared = run(spark, paths, monday, full=True)
    assert places(result) == {("damaged-batch", "controller 1", first.name, batch.base_offset)}
    assert compared.after is None


def test_logs_that_start_above_the_baseline_cannot_be_joined(
    spark: "SparkSession", tmp_path: Path, cluster: Nights, monday: Baseline
) -> None:
    """All nodes have removed the baseline's batch. That is a warning, and the next baseline is noted all the same."""
    paths = cloned(cluster.second[:2], tmp_path)
    for path in paths:
        log = Log.open(RealDirectory(path / "@metadata"), config=CONFIG)
        newest = find_logs([str(path)])[0].snapshots[-1]
        log.note_snapshot(newest)
        assert log.drop_prefix(newest)
        log.close()
    result, compared = run(spark, paths, monday)
    assert places(result) == {("baseline-trimmed", None, None, monday.end)}
    assert compared.after is not None
    assert compared.after.end > monday.end


def test_the_command_keeps_the_file(
    spark: "SparkSession", tmp_path: Path, cluster: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two nights and a bad third one: exit codes, lines, and what is in the file."""

    @contextmanager
    def session(*_: object) -> "Iterator[object]":
        yield spark, lambda _: None

    monkeypatch.setattr(running, "session", session)
    file = tmp_path / "baseline.json"

    def night(paths: list[Path], *words: str) -> Result:
        return CliRunner().invoke(cli.main, ["audit", *map(str, paths), "--baseline", str(file), *words])

    first = night(cluster.first)
    assert first.exit_code == 0, first.output
    assert f"baseline: {file} does not exist yet, so nothing was compared" in first.output
    assert "read: all " in first.output
    noted = read_baseline(str(file), ())
    assert noted is not None
    assert f"baseline: noted: offset {noted.end}, " in first.output

    second = night(cluster.second)
    assert second.exit_code == 0, second.output
    assert f"baseline: the history below offset {noted.end}, " in second.output
    assert " is the same on controller 1, controller 2\n" in second.output
    assert "segments below proven snapshots were not read (--full reads them)" in second.output
    moved = file.read_bytes()
    assert read_baseline(str(file), ()) != noted

    third = night(cluster.first)
    assert third.exit_code == shared.EXIT_FINDINGS, third.output
    assert "baseline-missing: controller 1, " in third.output
    assert "baseline: not moved, because the audit has errors" in third.output
    assert file.read_bytes() == moved
    assert [each.name for each in tmp_path.iterdir()] == ["baseline.json"]


def test_the_longest_log_is_no_baseline_if_its_tail_was_replaced(spark: "SparkSession", tmp_path: Path) -> None:
    """Controller 1 led the epoch before. It appended alone, more than the others have committed since, and will cut its tail."""
    three = Three(tmp_path)
    end = three.diverge()
    result, compared = run(spark, three.paths, None)
    assert result.is_clean and [each.rule for each in result.findings] == ["divergent-tail"]
    assert result.reference == "controller 2"
    assert compared.after is not None and compared.after.end == end
    assert [each.node for each in compared.after.holders] == ["controller 2", "controller 3"]
