"""Files for people are old or new, never torn, whatever kills the writer and however the disk is."""

import os
import stat
from pathlib import Path

import pytest

from metadata_log.disk.whole_file import write_whole
from tests.killing import killed_everywhere

OLD, NEW = b"old" * 10_000, b"new" * 20_000


def replace_the_report(place: Path) -> None:
    write_whole(place / "report.html", NEW)


@pytest.mark.slow
def test_a_killed_writer_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "report.html").write_bytes(OLD)
    copies = killed_everywhere(replace_the_report, tmp_path / "given", tmp_path / "killed")
    assert {(copy / "report.html").read_bytes() for copy in copies[:-1]} == {OLD}
    assert [each.read_bytes() for each in copies[-1].iterdir()] == [NEW]


def test_a_file_keeps_its_permissions_and_a_link_its_target(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(OLD)
    target.chmod(0o640)
    (tmp_path / "link").symlink_to(target)
    write_whole(tmp_path / "link", NEW, mode=0o600)
    assert (tmp_path / "link").is_symlink()
    assert (target.read_bytes(), stat.S_IMODE(target.stat().st_mode)) == (NEW, 0o640)
    write_whole(tmp_path / "private", NEW, mode=0o600)
    assert stat.S_IMODE((tmp_path / "private").stat().st_mode) == 0o600


def test_a_pipe_gets_the_bytes(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, b"line\n")
    assert os.read(reader, 100) == b"line\n"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_wrong_place_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"was not written: there is no directory .*make the directory"):
        write_whole(tmp_path / "missing" / "report.html", NEW)
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path, NEW)
    with pytest.raises(OSError, match="too long"):
        write_whole(tmp_path / ("n" * 250), NEW)
    assert [*tmp_path.iterdir()] == []


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_bytes(OLD)
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(OLD), limits[1]))  # the kernel refuses larger files
    try:
        with pytest.raises(OSError, match="File too large"):
            write_whole(tmp_path / "report.html", NEW)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]
    assert (tmp_path / "report.html").read_bytes() == OLD
