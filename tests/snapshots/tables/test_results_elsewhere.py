"""No job writes into the directory of a node. Without Spark: the places are judged before anything is read."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from snapshots.offline.__main__ import main
from snapshots.offline.commands import running
from snapshots.offline.compaction import CannotCompact, compact
from snapshots.offline.history.output import HistoryRefused
from snapshots.offline.history.run import make_history
from snapshots.offline.inputs import find_log, lies_in
from tests.snapshots.strict.faults import Small

NO_SPARK: Any = None


@pytest.fixture
def node(tmp_path: Path) -> Path:
    return Small(tmp_path / "node", 1).beginning().end().path


def test_results_in_the_directory_of_a_node_are_refused(node: Path, tmp_path: Path) -> None:
    """A snapshot in `@metadata` counts as the node's own, and proves what it ends at."""
    (tmp_path / "link").symlink_to(node / "@metadata")
    other = Small(tmp_path / "other", 2).beginning().end().path
    before = sorted(tmp_path.rglob("*"))
    for out in (node, node / "@metadata", node / "@metadata" / "archive", tmp_path / "link", f"file://{node}/new"):
        with pytest.raises(CannotCompact, match="lies in the directory of a node"):
            compact(NO_SPARK, str(other), None, str(out), beside=[str(node)])
        with pytest.raises(HistoryRefused, match="lies in the directory of a node"):
            make_history(NO_SPARK, str(node / "@metadata"), str(out))
    assert sorted(tmp_path.rglob("*")) == before
    assert not lies_in(str(tmp_path / "node-2"), find_log(str(node)))
    assert not lies_in("s3://bucket/node", find_log(str(node)))


@pytest.mark.parametrize("words", [["history", "--out"], ["report", "--out", "page.html", "--history"]])
def test_a_directory_with_other_files_is_refused_before_spark_starts(
    words: list[str], node: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def session(*_: object) -> object:
        raise AssertionError("Spark would start")

    monkeypatch.setattr(running, "session", session)
    monkeypatch.chdir(tmp_path)
    other = tmp_path / "photos"
    other.mkdir()
    (other / "beach.jpg").touch()
    result = CliRunner().invoke(main, [words[0], str(node), *words[1:], str(other)])
    assert result.exit_code == 1
    assert f"{other} has files that no history has, such as beach.jpg; choose another directory" in result.stderr
    assert [path.name for path in other.iterdir()] == ["beach.jpg"]
