"""Directories of strangers: names and files that no node makes neither stop nor hold up a reader."""

import os
from pathlib import Path

import pytest

from metadata_log.disk.files import Directory
from metadata_log.disk.read_only import LocalDirectory
from snapshots.offline.readonly import ReadOnlyDirectory

KINDS = (LocalDirectory, lambda path: ReadOnlyDirectory(str(path)))


@pytest.fixture(params=KINDS)
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Directory:
    made: Directory = request.param(tmp_path)
    return made


def test_a_pipe_is_refused_and_not_waited_for(directory: Directory, tmp_path: Path) -> None:
    """A copy of a directory can hold anything. A read of a pipe without a writer never ended."""
    os.mkfifo(tmp_path / "flushed")
    for read in (lambda: directory.read("flushed", 100), lambda: directory.open("flushed")):
        with pytest.raises(OSError, match=r"no regular file, and was not read.*flushed"):
            read()


def test_a_name_that_is_not_utf_8_is_a_name(directory: Directory, tmp_path: Path) -> None:
    (tmp_path / "flushed").write_bytes(b"")
    name = os.fsdecode(b"\xff.log")
    (tmp_path / name).write_bytes(b"")
    assert directory.names() == sorted([name, "flushed"])


def test_files_that_do_not_exist_and_directories_are_told_apart(directory: Directory, tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    with pytest.raises(FileNotFoundError):
        directory.open("flushed")
    with pytest.raises(OSError, match=r"(?i)is a directory"):
        directory.open("archive")
    assert directory.subdirectory("none").names() == []
