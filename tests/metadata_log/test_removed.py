"""Somebody runs `rm -rf` under a process: no write into nothing is called durable. Over the real directory and the fake one."""

import functools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from metadata_log.disk.files import Directory, FlushFailed, RealDirectory, Removed
from metadata_log.format.records import NoOp
from metadata_log.store.log import Log
from tests.sim.disk import MemoryDirectory


@pytest.fixture(params=["real", "memory"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Directory:
    return RealDirectory(tmp_path / "data") if request.param == "real" else MemoryDirectory()


def remove(directory: Directory) -> None:
    """`rm -rf`, by somebody else."""
    if isinstance(directory, RealDirectory):
        shutil.rmtree(directory.path)
    else:
        assert isinstance(directory, MemoryDirectory)
        directory.vanish()


def test_a_directory_that_is_removed_under_a_process_takes_nothing_more(directory: Directory) -> None:
    """Files that are open go on taking writes, and nobody will ever find those: no flush says that they are durable."""
    directory.lock()
    below = directory.subdirectory("below")
    file, closed = below.open("a", create=True), below.open("a")
    closed.close()
    file.write_at(0, b"1")
    file.flush()
    for each in (directory, below, file):
        each.check_in_place()
    remove(directory)
    file.write_at(0, b"2")

    attempts: list[Callable[[], object]] = [file.flush, file.check_in_place]
    for each in (directory, below):
        attempts += [each.check_in_place, each.flush, functools.partial(each.write_atomic, "vote", b"3")]
    for attempt in attempts:
        with pytest.raises(FlushFailed):
            attempt()
    for each in (directory, below):
        with pytest.raises(Removed, match=r"was removed, or replaced, while.*this node's disk is lost"):
            each.check_in_place()
    closed.flush()
    closed.check_in_place()
    file.close()
    directory.unlock()


def test_a_file_that_is_removed_while_it_is_open_is_not_flushed(directory: Directory) -> None:
    """Removed, or replaced by another of its name; one that moved with its directory, or was renamed, has a name."""
    directory.write_atomic("a", b"1")
    directory.write_atomic("b", b"1")
    replaced, renamed = directory.open("a"), directory.open("b")
    renamed.write_at(0, b"2")
    directory.rename("b", "c")
    renamed.flush()
    directory.rename("c", "a")
    renamed.flush()
    with pytest.raises(Removed):
        replaced.flush()
    directory.remove("a")
    with pytest.raises(Removed):
        renamed.check_in_place()
    for file in (replaced, renamed):
        file.close()


def test_a_log_under_which_its_directory_is_removed_acknowledges_nothing(directory: Directory) -> None:
    log = Log.open(directory.subdirectory("log"))
    log.append([NoOp()], epoch=1, wall_ms=0)
    log.flush()
    log.check_in_place()
    log.append([NoOp()], epoch=1, wall_ms=0)
    remove(directory)
    with pytest.raises(Removed):
        log.check_in_place()
    with pytest.raises(FlushFailed):
        log.flush()
    assert log.shape.flushed_end == 1
    log.close()


@pytest.mark.parametrize("instead", ["nothing", "a new one", "a file"])
def test_a_directory_that_was_moved_away_is_not_written_to(tmp_path: Path, instead: str) -> None:
    """Nor the one in its place: a vote in there would be another node's, or nobody's."""
    directory = RealDirectory(tmp_path / "data")
    directory.lock()
    directory.path.rename(tmp_path / "old")
    if instead == "a new one":
        directory.path.mkdir()
    elif instead == "a file":
        directory.path.write_text("")
    for attempt in (directory.check_in_place, directory.flush, lambda: directory.write_atomic("vote", b"1")):
        with pytest.raises(Removed, match=str(directory.path)):
            attempt()
    assert not (directory.path / "vote").exists()
    directory.unlock()


def test_a_new_directory_is_not_taken_for_the_old_one_whatever_its_inode(tmp_path: Path) -> None:
    """File systems give an inode that is free to whoever asks next. The lock is open, so its inode is not free."""
    directory = RealDirectory(tmp_path / "data")
    directory.lock()
    (directory.path / ".lock").unlink()
    with pytest.raises(Removed):
        directory.check_in_place()
    directory.unlock()
