"""The promises of a `Directory`: one suite over the real and the fake one, then tests that need one of them."""

import contextlib
import errno
import io
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from metadata_log.disk.failures import DirectoryInUse, FileTooLarge, FlushFailed
from metadata_log.disk.files import Directory, RealDirectory
from tests.sim.world.disk import MemoryDirectory, PowerCut
from tests.sim.world.disk_content import SECTOR_BYTES


@pytest.fixture(params=["real", "memory"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Directory:
    return RealDirectory(tmp_path / "data") if request.param == "real" else MemoryDirectory()


# --- both ----------------------------------------------------------------------------------------------------------


def test_a_file_reads_back_what_was_written(directory: Directory) -> None:
    file = directory.open("a", create=True)
    file.write_at(0, b"hello")
    file.write_at(7, b"world")

    assert file.size() == 12
    assert file.read_at(0, 100) == b"hello\x00\x00world"
    assert file.read_at(7, 3) == b"wor"
    assert file.read_at(12, 5) == b""
    file.flush()
    file.close()
    assert directory.read("a", 100) == b"hello\x00\x00world"


def test_a_file_that_is_not_there_is_not_made_by_looking(directory: Directory) -> None:
    for attempt in (lambda: directory.open("a"), lambda: directory.read("a", 1), lambda: directory.remove("a")):
        with pytest.raises(FileNotFoundError):
            attempt()

    assert directory.names() == []


def test_a_directory_is_deleted_with_its_files(directory: Directory) -> None:
    for name in ("a", "b"):
        directory.subdirectory(name).write_atomic("file", b"content")

    directory.remove_directory("a")

    assert directory.names() == ["b"] and directory.subdirectory("b").read("file", 99) == b"content"
    assert directory.subdirectory("a").names() == []
    for missing in ("c", "c.deleted"):
        with pytest.raises(FileNotFoundError):
            directory.remove_directory(missing)
    directory.subdirectory("b.deleted").write_atomic("file", b"what a crash has left")
    directory.remove_directory("b")
    assert directory.names() == ["a"]
    directory.subdirectory("d.deleted").write_atomic("file", b"what a crash has left")
    directory.remove_directory("d.deleted")
    assert directory.names() == ["a"]


def test_truncation_cuts_and_extends_with_zeros(directory: Directory) -> None:
    file = directory.open("a", create=True)
    file.write_at(0, b"hello")
    file.truncate(2)
    file.truncate(4)

    assert file.read_at(0, 9) == b"he\x00\x00"
    file.close()


def test_preallocation_adds_zeros_and_never_cuts(directory: Directory) -> None:
    file = directory.open("a", create=True)
    file.write_at(0, b"hello")
    file.preallocate(4096)
    assert file.size() == 4096
    file.preallocate(10)

    assert file.size() == 4096
    assert file.read_at(0, 4096) == b"hello".ljust(4096, b"\x00")
    file.close()


def test_two_handles_see_the_same_file(directory: Directory) -> None:
    one, other = directory.open("a", create=True), directory.open("a")
    one.write_at(0, b"hello")

    assert other.read_at(0, 5) == b"hello"
    one.close()
    other.close()


def test_a_flush_after_close_does_nothing(directory: Directory) -> None:
    """A worker may still flush the file of a ticket that a reset has made void."""
    file = directory.open("a", create=True)
    file.write_at(0, b"kept")
    file.close()
    file.flush()
    file.close()

    assert directory.read("a", 16) == b"kept"


def test_names_are_sorted_and_hold_subdirectories_too(directory: Directory) -> None:
    for name in ("b", "a"):
        directory.open(name, create=True).close()
    directory.subdirectory("c")

    assert directory.names() == ["a", "b", "c"]
    assert directory.exists("c")
    assert not directory.exists("d")


def test_a_small_file_is_read_only_up_to_its_bound(directory: Directory) -> None:
    directory.write_atomic("a", b"12345")

    assert directory.read("a", 5) == b"12345"
    with pytest.raises(FileTooLarge):
        directory.read("a", 4)


def test_an_atomic_write_replaces_and_leaves_nothing_beside_it(directory: Directory) -> None:
    directory.write_atomic("a", b"a longer first text")
    directory.write_atomic("a", b"second")

    assert directory.read("a", 100) == b"second"
    assert directory.names() == ["a"]


def test_rename_replaces(directory: Directory) -> None:
    directory.write_atomic("a", b"1")
    directory.write_atomic("b", b"2")
    directory.rename("a", "b")

    assert directory.names() == ["b"]
    assert directory.read("b", 9) == b"1"


def test_move_takes_a_file_into_another_directory(directory: Directory) -> None:
    archive = directory.subdirectory("archive")
    directory.write_atomic("a", b"1")
    directory.move("a", archive)

    assert (directory.names(), archive.names()) == (["archive"], ["a"])
    assert directory.subdirectory("archive").read("a", 9) == b"1"


def test_one_holder_of_the_lock(directory: Directory) -> None:
    directory.lock()
    other = RealDirectory(directory.path) if isinstance(directory, RealDirectory) else directory
    with pytest.raises(DirectoryInUse, match="in use by process"):
        other.lock()
    directory.unlock()
    other.lock()
    other.unlock()


def test_there_is_room(directory: Directory) -> None:
    assert directory.free_bytes() > 0


# --- the real one --------------------------------------------------------------------------------------------------


def test_nobody_else_may_look(tmp_path: Path) -> None:
    directory = RealDirectory(tmp_path / "data")
    directory.write_atomic("a", b"1")
    below = directory.subdirectory("below")

    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
    assert stat.S_IMODE(below.path.stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "data" / "a").stat().st_mode) == 0o600


def test_the_message_about_a_locked_directory_names_the_process(tmp_path: Path) -> None:
    directory = RealDirectory(tmp_path)
    directory.lock()

    with pytest.raises(DirectoryInUse, match=f"{tmp_path} is in use by process {os.getpid()}"):
        RealDirectory(tmp_path).lock()
    directory.unlock()


def test_a_full_disk_can_be_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock must not need a new block for the process id: the reserved room is for votes."""
    pwrite = os.pwrite

    def full(fd: int, data: bytes, position: int) -> int:
        if position + len(data) > os.fstat(fd).st_size:
            raise OSError(errno.ENOSPC, "No space left on device")
        return pwrite(fd, data, position)

    used, new = RealDirectory(tmp_path / "used"), RealDirectory(tmp_path / "new")
    used.lock()
    used.unlock()
    monkeypatch.setattr(os, "pwrite", full)
    for directory, holder in ((used, str(os.getpid())), (new, "unknown")):
        directory.lock()
        with pytest.raises(DirectoryInUse, match=f"is in use by process {holder}. Nothing was changed"):
            RealDirectory(directory.path).lock()
        directory.unlock()


@pytest.mark.parametrize("before", ["", "7\n", f"{123_456_789:<19}\n"])
def test_the_lock_names_its_holder_and_not_the_one_before(tmp_path: Path, before: str) -> None:
    (tmp_path / ".lock").write_text(before)
    directory = RealDirectory(tmp_path)
    directory.lock()
    with pytest.raises(DirectoryInUse, match=f"is in use by process {os.getpid()}."):
        RealDirectory(tmp_path).lock()
    directory.unlock()


def test_what_is_made_above_a_directory_is_durable_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a power cut deletes a formatted directory together with its new parent."""
    fsync, flushed = os.fsync, set()

    def noting(fd: int) -> None:
        flushed.add(os.fstat(fd).st_ino)
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noting)
    path = tmp_path / "a" / "b" / "data"
    RealDirectory(path)
    assert flushed == {each.stat().st_ino for each in (tmp_path, tmp_path / "a", tmp_path / "a" / "b")}
    flushed.clear()
    RealDirectory(path)
    assert not flushed


def test_an_atomic_write_goes_file_rename_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order is the promise: any other order loses a vote in a power cut."""
    directory = RealDirectory(tmp_path)
    calls: list[str] = []

    def noting(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object) -> object:
            calls.append(name)
            return real(*args)

        return call

    monkeypatch.setattr(os, "fdatasync", noting("fdatasync", os.fdatasync))
    monkeypatch.setattr(os, "fsync", noting("fsync", os.fsync))
    monkeypatch.setattr(Path, "replace", noting("rename", Path.replace))

    directory.write_atomic("a", b"1")

    assert calls == ["fdatasync", "rename", "fsync"]


def test_a_failed_fsync_is_final(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel marks the pages clean: a second fsync would succeed and prove nothing."""

    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    file = RealDirectory(tmp_path).open("a", create=True)
    file.write_at(0, b"1")
    with monkeypatch.context() as m:
        m.setattr(os, "fdatasync", fail)
        with pytest.raises(FlushFailed, match="fdatasync failed"):
            file.flush()

    for attempt in (file.flush, lambda: file.write_at(0, b"2"), lambda: file.truncate(0), lambda: file.preallocate(9)):
        with pytest.raises(FlushFailed, match="refuses further writes"):
            attempt()
    file.close()


def test_a_failed_fsync_of_a_directory_is_one_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(FlushFailed, match=f"{tmp_path}: fsync of the directory failed"):
        RealDirectory(tmp_path).flush()


def test_a_failed_preallocation_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file system that cannot reserve blocks, the C library writes zeros, and may fail half way."""

    def half_way(fd: int, position: int, length: int) -> None:
        os.ftruncate(fd, position + length // 2)
        raise OSError(errno.ENOSPC, "No space left on device")

    file = RealDirectory(tmp_path).open("a", create=True)
    file.write_at(0, b"hello")
    monkeypatch.setattr(os, "posix_fallocate", half_way)
    with pytest.raises(OSError, match="No space"):
        file.preallocate(4096)

    assert file.size() == 5
    file.close()


def test_short_writes_and_reads_are_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may write or read fewer bytes than requested."""
    pwrite, pread = os.pwrite, os.pread
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: pwrite(fd, data[:3], position))
    monkeypatch.setattr(os, "pread", lambda fd, length, position: pread(fd, min(length, 2), position))
    file = RealDirectory(tmp_path).open("a", create=True)
    file.write_at(1, b"0123456789")

    assert file.read_at(0, 100) == b"\x000123456789"
    file.close()


def test_a_read_that_fails_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's error has no file name, but an operator needs one."""

    class Unreadable(io.FileIO):
        def readinto(self, _: object) -> int:
            raise OSError(errno.EIO, "Input/output error")

    directory = RealDirectory(tmp_path)
    directory.write_atomic("some-file", b"data")
    with directory.open("some-file") as file:
        pass
    with pytest.raises(OSError, match="some-file"):
        file.read_at(0, 4)
    monkeypatch.setattr(Path, "open", lambda self, _: io.BufferedReader(Unreadable(self)))
    with pytest.raises(OSError, match=r"Input/output error: '.*some-file'"):
        directory.read("some-file", 100)


def test_a_write_to_a_full_disk_names_the_file() -> None:
    """A full disk told the operator `No space left on device`, and not which disk."""
    with (
        RealDirectory("/dev").open("full") as file,
        pytest.raises(OSError, match=r"No space left on device: '/dev/full'"),
    ):
        file.write_at(0, b"data")


def test_close_waits_for_a_flush_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the file descriptor's number could belong to another file when the worker calls fsync."""
    file = RealDirectory(tmp_path).open("a", create=True)
    in_flush, may_end = threading.Event(), threading.Event()

    def slow(_: int) -> None:
        in_flush.set()
        assert may_end.wait(10)

    monkeypatch.setattr(os, "fdatasync", slow)
    flusher, closer = threading.Thread(target=file.flush), threading.Thread(target=file.close)
    flusher.start()
    assert in_flush.wait(10)
    closer.start()
    closer.join(0.05)
    assert closer.is_alive()
    may_end.set()
    flusher.join(10)
    closer.join(10)
    assert not closer.is_alive()


def test_a_full_disk_gets_the_bytes_of_a_failed_atomic_write_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = RealDirectory(tmp_path)
    directory.write_atomic("a", b"old")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space"):
        directory.write_atomic("a", b"new")

    assert directory.names() == ["a"]
    assert directory.read("a", 9) == b"old"


# --- the fake one --------------------------------------------------------------------------------------------------


def test_a_power_cut_keeps_any_subset_of_unflushed_sectors() -> None:
    outcomes = set()
    for seed in range(200):
        directory = MemoryDirectory()
        file = directory.open("a", create=True)
        file.preallocate(2 * SECTOR_BYTES)
        file.flush()
        directory.flush()
        file.write_at(0, b"1" * 2 * SECTOR_BYTES)
        data = directory.crash(Random(seed)).read("a", 10_000)
        outcomes.add((data[:1], data[SECTOR_BYTES : SECTOR_BYTES + 1]))
        assert data[:SECTOR_BYTES] in (bytes(SECTOR_BYTES), b"1" * SECTOR_BYTES)

    assert outcomes == {(a, b) for a in (b"\x00", b"1") for b in (b"\x00", b"1")}


def test_a_power_cut_leaves_alone_what_was_flushed() -> None:
    for seed in range(50):
        directory = MemoryDirectory()
        file = directory.open("a", create=True)
        file.write_at(0, b"durable")
        file.flush()
        directory.flush()
        file.write_at(600, b"not durable")

        assert directory.crash(Random(seed)).read("a", 10_000)[:7] == b"durable"


def test_a_name_that_was_not_flushed_may_be_lost_and_those_after_it() -> None:
    outcomes = set()
    for seed in range(50):
        directory = MemoryDirectory()
        for name in ("a", "b"):
            file = directory.open(name, create=True)
            file.write_at(0, b"x")
            file.flush()
        outcomes.add(tuple(directory.crash(Random(seed)).names()))

    assert outcomes == {(), ("a",), ("a", "b")}


def test_a_careless_replace_can_lose_both_versions_and_write_atomic_cannot() -> None:
    careless, careful = set(), set()
    for seed in range(100):
        directory = MemoryDirectory()
        directory.write_atomic("a", b"old")
        file = directory.open("t", create=True)
        file.write_at(0, b"new")
        directory.rename("t", "a")
        careless.add(directory.crash(Random(seed)).read("a", 9))

        directory = MemoryDirectory()
        directory.write_atomic("a", b"old")
        directory.cut_power_after(1 + seed % 8)
        with contextlib.suppress(PowerCut):
            directory.write_atomic("a", b"new")
        careful.add(directory.crash(Random(seed)).read("a", 9))

    assert careless == {b"old", b"new", b"", bytes(3)}
    assert careful == {b"old", b"new"}


def test_a_killed_process_leaves_its_writes_and_they_are_still_not_durable() -> None:
    outcomes = set()
    for seed in range(50):
        directory = MemoryDirectory()
        directory.write_atomic("a", b"old")
        directory.lock()
        directory.open("a").write_at(0, b"new")
        after = directory.kill()
        after.lock()
        assert after.read("a", 9) == b"new"
        outcomes.add(after.crash(Random(seed)).read("a", 9))

    assert outcomes == {b"old", b"new"}


def test_a_dark_disk_does_nothing_more() -> None:
    directory = MemoryDirectory()
    file = directory.open("a", create=True)
    directory.crash(Random(1))

    for attempt in (
        file.flush,
        lambda: file.write_at(0, b"1"),
        directory.flush,
        lambda: directory.write_atomic("b", b""),
    ):
        with pytest.raises(PowerCut):
            attempt()


def test_a_full_disk_refuses_to_grow_and_takes_what_fits() -> None:
    directory = MemoryDirectory()
    file = directory.open("a", create=True)
    file.preallocate(100)
    directory.limit_space(150)

    with pytest.raises(OSError, match="No space") as e:
        file.preallocate(200)
    assert e.value.errno == errno.ENOSPC
    file.write_at(0, bytes(100))
    file.preallocate(150)
    assert directory.free_bytes() == 0
    directory.remove("a")
    assert directory.free_bytes() == 150


def test_a_flush_that_was_told_to_fail_fails_once_and_its_file_for_ever() -> None:
    directory = MemoryDirectory()
    bad, good = directory.open("bad", create=True), directory.open("good", create=True)
    directory.fail_next_flush("bad")
    good.flush()
    for _ in range(2):
        with pytest.raises(FlushFailed):
            bad.flush()
    with pytest.raises(FlushFailed):
        bad.write_at(0, b"1")


def test_a_name_whose_flush_failed_is_there_until_the_power_goes_and_a_later_flush_does_not_help() -> None:
    """A later flush helps only after another change in the directory."""
    for changes_again in (False, True):
        directory = MemoryDirectory()
        directory.write_atomic("a", b"old")
        directory.fail_next_flush("/memory")
        with pytest.raises(FlushFailed):
            directory.write_atomic("a", b"new")
        after = directory.kill()
        if changes_again:
            after.open("b", create=True)
        after.flush()
        assert (after.read("a", 9), after.is_durable("a")) == (b"new", changes_again)
        assert after.crash(Random(1)).read("a", 9) == (b"new" if changes_again else b"old")


def test_a_flipped_bit_is_there_for_programs_and_after_a_crash() -> None:
    directory = MemoryDirectory()
    directory.write_atomic("a", b"\x00\x00")
    directory.flip_bit("a", 1, 3)

    assert directory.read("a", 9) == b"\x00\x08"
    assert directory.crash(Random(1)).read("a", 9) == b"\x00\x08"


def test_a_deletion_that_a_crash_ends_leaves_the_whole_directory_or_another_name() -> None:
    for operations in (1, 2):
        for seed in range(10):
            directory = MemoryDirectory()
            directory.subdirectory("a").write_atomic("file", b"content")
            directory.cut_power_after(operations)
            with pytest.raises(PowerCut):
                directory.remove_directory("a")
            left = directory.crash(Random(seed))
            assert left.names() in (["a"], ["a.deleted"], [])
            if left.exists("a"):
                assert left.subdirectory("a").read("file", 99) == b"content"
