"""A death is proved by free locks, and only where free locks prove anything."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker_agent.death import proof
from broker_agent.death.process_note import (
    BESIDE,
    INSIDE,
    NOTE_NAME,
    NOWHERE,
    SERVING_LOCK_NAME,
    FileId,
    ProcessNote,
    note_of,
    read_note,
    write_note,
)
from broker_agent.death.proof import DeathCertificate, NoProof, StillServing, filesystem_of, is_served, prove_death
from broker_agent.own_disk.process_notes import forget_incarnations, read_incarnations
from broker_agent.store import BrokerStore
from metadata_log.disk.files import RealDirectory
from metadata_log.disk.identity import Identity, write_identity
from tests.sim.world.disk import MemoryDirectory

A, B = b"a" * 16, b"b" * 16


class Process:
    """A process of broker 7, as far as its directory goes."""

    def __init__(self, path: Path, incarnation: bytes = A, data_plane: str = NOWHERE) -> None:
        self.directory = RealDirectory(path)
        self.directory.lock()
        write_identity(self.directory, Identity("cluster", 7, b"d" * 16, 1, "broker"))
        write_note(self.directory, note_of((path,), data_plane))
        BrokerStore(self.directory).note_attempt(incarnation)

    def dies(self) -> None:
        self.directory.unlock()


@contextmanager
def served(path: Path) -> Iterator[None]:
    """A data plane beside the broker serves."""
    fd = os.open(path / SERVING_LOCK_NAME, os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_SH)
    try:
        yield
    finally:
        os.close(fd)


@pytest.fixture(autouse=True)
def local(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' directory is on this host, whatever its filesystem is."""
    monkeypatch.setattr(proof, "filesystem_of", lambda path, mounts: "ext4")


def test_a_free_directory_proves_the_death_of_all_its_processes(tmp_path: Path) -> None:
    """Also of those that died before they were registered: the controllers know which one is."""
    Process(tmp_path, A).dies()
    Process(tmp_path, B).dies()
    assert prove_death(tmp_path) == DeathCertificate("cluster", 7, 1, (B, A))


def test_a_held_directory_proves_nothing(tmp_path: Path) -> None:
    """It is the last process that lives, or the next one: which does not matter."""
    process = Process(tmp_path)
    with pytest.raises(NoProof, match="it lives"):
        prove_death(tmp_path)
    process.dies()
    prove_death(tmp_path)


def test_the_locks_are_released_so_no_restart_is_blocked(tmp_path: Path) -> None:
    Process(tmp_path).dies()
    prove_death(tmp_path)
    Process(tmp_path, B).dies()


def test_a_data_plane_that_lives_on_prevents_the_proof(tmp_path: Path) -> None:
    """It serves with the leases that the dead process got. Two of them share the lock."""
    Process(tmp_path, data_plane=BESIDE).dies()
    with served(tmp_path), served(tmp_path), pytest.raises(StillServing):
        prove_death(tmp_path)
    prove_death(tmp_path)


def test_a_living_data_plane_is_seen_by_the_next_process(tmp_path: Path) -> None:
    """Then the next process names no predecessor: else its partitions would be led elsewhere at once, while they are served."""
    process = Process(tmp_path, data_plane=BESIDE)
    assert not is_served(tmp_path)
    with served(tmp_path):
        assert is_served(tmp_path)
    assert not is_served(tmp_path)
    forget_incarnations(process.directory)
    forget_incarnations(process.directory)
    assert read_incarnations(process.directory) == ()


def test_a_data_plane_that_never_took_its_lock_proves_nothing(tmp_path: Path) -> None:
    """It may not know the lock at all, and may serve. Where nothing is beside the broker, the file need not exist."""
    Process(tmp_path, data_plane=BESIDE).dies()
    with pytest.raises(NoProof, match="does not exist"):
        prove_death(tmp_path)
    Process(tmp_path, data_plane=INSIDE).dies()
    prove_death(tmp_path)


@pytest.mark.parametrize("name", [".lock", SERVING_LOCK_NAME])
def test_a_lock_that_was_replaced_proves_nothing(tmp_path: Path, name: str) -> None:
    """The process may hold the deleted file; the new file, with another inode, is free."""
    with served(tmp_path):
        process = Process(tmp_path, data_plane=BESIDE)
    (tmp_path / name).rename(tmp_path / "old")
    (tmp_path / name).touch()
    if name == SERVING_LOCK_NAME:
        process.dies()
    with pytest.raises(NoProof, match="deleted or replaced"):
        prove_death(tmp_path)


def test_another_boot_or_host_proves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Process(tmp_path).dies()
    monkeypatch.setattr(proof, "this_boot", lambda: "another")
    with pytest.raises(NoProof, match="another host"):
        prove_death(tmp_path)


def test_a_copied_directory_proves_nothing(tmp_path: Path) -> None:
    """Its locks are free, and the process that they name runs elsewhere."""
    original, copy = tmp_path / "original", tmp_path / "copy"
    process = Process(original)
    copy.mkdir()
    for file in original.iterdir():
        if file.is_file():
            (copy / file.name).write_bytes(file.read_bytes())
    with pytest.raises(NoProof, match="moved or copied"):
        prove_death(copy)
    process.dies()


def test_a_network_filesystem_proves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Process(tmp_path).dies()
    monkeypatch.setattr(proof, "filesystem_of", lambda path, mounts: "nfs4")
    with pytest.raises(NoProof, match="nfs4"):
        prove_death(tmp_path)


def test_a_directory_without_note_or_process_proves_nothing(tmp_path: Path) -> None:
    for content in (None, b"", b"boot.id=1\n", b"\xff", b"boot.id=1\ndata.plane=none\nlock=x:y z\n"):
        if content is not None:
            (tmp_path / NOTE_NAME).write_bytes(content)
        with pytest.raises(NoProof):
            prove_death(tmp_path)
    with pytest.raises(NoProof):
        prove_death(tmp_path / "nowhere")
    write_note(RealDirectory(tmp_path), None)
    assert not (tmp_path / NOTE_NAME).exists()


def test_a_note_reads_back_as_it_was_written() -> None:
    directory = MemoryDirectory()
    note = ProcessNote("boot", BESIDE, FileId(1, 2), (("/a b", FileId(3, 4)), ("/c", FileId(5, 6))))
    write_note(directory, note)
    assert read_note(directory) == note


MOUNTS = r"""22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:40 / /var/lib/my\040data rw shared:9 master:2 - nfs4 server:/x rw
41 40 8:2 / /var/lib/my\040data/local rw - xfs /dev/sdb rw
42 22 8:3 / /srv rw - ext4 /dev/sdc rw
43 42 0:50 / /srv rw - fuse.sshfs host: rw
not a mount
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/broker", "ext4"),
        ("/var/lib/my data/broker", "nfs4"),
        ("/var/lib/my data/local/broker", "xfs"),
        ("/srv/broker", "fuse.sshfs"),
        ("/srvs", "ext4"),
    ],
)
def test_the_innermost_and_last_mount_holds_a_path(path: str, kind: str) -> None:
    assert filesystem_of(Path(path), MOUNTS) == kind
