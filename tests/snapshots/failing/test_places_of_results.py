"""A place where a job cannot write its result is refused before Spark starts, with the next step."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from snapshots.offline import __main__ as cli
from snapshots.offline import session
from tests.snapshots.nodes import Node

JOBS = ("compact --out", "history --out", "report --out page.html --history", "import kafka --out")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Node(tmp_path_factory.mktemp("node") / "node", 60).live(1).path


def refused(monkeypatch: pytest.MonkeyPatch, words: str, place: Path, node: Path) -> str:
    monkeypatch.setattr(session, "start_session", None)  # a start would be a TypeError
    result = CliRunner().invoke(cli.main, [*words.split(), str(place), str(node)])
    assert result.exit_code == 2, result
    return result.stderr


@pytest.mark.parametrize("words", JOBS)
def test_no_directory_can_be_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, node: Path, words: str) -> None:
    """The jobs worked to their end, and then said `[Errno 17] File exists`."""
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    for name, told in (
        ("file/x", "file is a file; name a directory"),
        ("pipe", "pipe is a file; name a directory"),
        ("dangling", f"dangling is a link to {tmp_path / 'gone'}, which does not exist; make that directory"),
    ):
        assert told in refused(monkeypatch, words, tmp_path / name, node), name
    assert not (tmp_path / "gone").exists()


@pytest.mark.parametrize("words", JOBS)
def test_a_directory_without_rights(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, node: Path, words: str) -> None:
    monkeypatch.setattr(
        os, "access", lambda path, mode: mode == os.F_OK and Path(path).exists()
    )  # tests may run as root
    told = refused(monkeypatch, words, tmp_path / "new" / "deep", node)
    assert f"this user may not write into {tmp_path}; allow it, or name another directory" in told


@pytest.mark.parametrize("words", JOBS)
def test_a_place_far_below_a_node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, node: Path, words: str) -> None:
    """Such a place was refused after the start of Spark, and only if it was below a directory that the job reads."""
    other = Node(tmp_path / "other", 61).live(1).path
    (tmp_path / "link").symlink_to(other)
    (other / "sub").mkdir()
    (tmp_path / "below").symlink_to(other / "sub")
    before = sorted(other.rglob("*"))
    for place in (other / "a" / "b" / "c", tmp_path / "link" / "a" / "b", tmp_path / "below" / "a"):
        assert "is the directory of a node, where no job writes" in refused(monkeypatch, words, place, node)
    assert sorted(other.rglob("*")) == before
