"""An operator runs `rm -rf` under a running process: no write to a deleted file counts as durable. Over both
directories, real and fake.
"""

import functools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from metadata_log.disk.failures import FlushFailed, Removed
from metadata_log.disk.files import Directory, RealDirectory
from metadata_log.format.records import NoOp
from metadata_log.store.log import Log
from tests.sim.world.disk import MemoryDirectory


@pytest.fixture(params=["real", "memory"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Directory:
    return RealDirectory(tmp_path / "data") if request.param == "real" else MemoryDirectory()


def remove(directory: Directory) -> None:
    """Run `rm -rf` from outside."""
    if isinstance(directory, RealDirectory):
        shutil.rmtree(directory.path)
    else:
        assert isinstance(directory, MemoryDirectory)
        directory.vanish()


def test_a_directory_that_is_removed_under_a_process_takes_nothing_more(directory: Directory) -> None:
    """Open files of the deleted directory still accept writes, which are lost at the next start. So no flush
    succeeds.
    """
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
    """A flush fails for a file that was deleted or replaced. A renamed file, or a file in a moved directory, still has
    a name.
    """
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
    with pytest.raises(Removed):  # and not as a failed fsync, after which a restart would help
        replaced.write_at(0, b"3")
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
    """Neither is the directory that replaced it: a vote written there could belong to another node."""
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
    """A file system may give a free inode number to the next directory. The lock file is open, so its number is not
    free.
    """
    directory = RealDirectory(tmp_path / "data")
    directory.lock()
    (directory.path / ".lock").unlink()
    with pytest.raises(Removed):
        directory.check_in_place()
    directory.unlock()
