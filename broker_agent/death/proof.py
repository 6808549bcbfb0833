"""The proof that all processes of a broker's directory have ended: every lock that they held is free.

A registered process holds its locks until it exits: it never unlocks, and its children do not inherit the locks (O_CLOEXEC). So a
watcher that gets all locks, of the same files on the same boot of the same host, knows that the process has exited. While the
watcher holds the locks, no new process starts, so all processes in the file `incarnations` have ended.

    1. The process of broker 7, incarnation A, is killed. The kernel closes its files, and so its locks are free.
    2. The watcher locks `.lock` of each data directory and `serving.lock`, and reads the incarnations: A.
    3. The watcher releases all locks. The proof holds on: A has ended for ever.
    4. The next process locks the directory at once, notes incarnation B, and registers.
    5. The watcher reports A. The controllers have B, or A is fenced now: in both cases nothing wrong is done.

Counter-example without `serving.lock`: the data plane of broker 7 is a process beside the agent. The agent is killed, and its
directory is free. The data plane has a lease for 5 s more, and serves `orders-0`, which broker 8 leads already.

A network filesystem proves nothing: its lock may be free because the network is cut.
"""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from broker_agent.death.process_note import (
    BESIDE,
    NOTE_NAME,
    SERVING_LOCK_NAME,
    FileId,
    ProcessNote,
    read_note,
    this_boot,
)
from broker_agent.own_disk.process_notes import read_incarnations
from metadata_log.disk.files import LOCK_NAME, RealDirectory
from metadata_log.disk.identity import read_identity
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import NodeId, Uuid

LOCAL_FILESYSTEMS: Final = frozenset(
    ("bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "nilfs2", "overlay", "tmpfs", "xfs", "zfs")
)
"""Filesystems whose locks are those of this kernel. All others prove nothing."""
MOUNTS_PATH: Final = Path("/proc/self/mountinfo")
_OCTAL: Final = re.compile(r"\\([0-7]{3})")


class NoProof(Exception):
    """The death is not proved. The text says why."""


class StillServing(NoProof):
    """A data plane holds `serving.lock`. It may release the lock soon."""


class DeathCertificate(NamedTuple):
    """The processes of a broker that have ended."""

    cluster_id: str
    broker_id: NodeId
    generation: int
    incarnations: tuple[Uuid, ...]


def prove_death(path: Path) -> DeathCertificate:
    """Proves that all processes of the broker's directory have ended. The locks are held only while this function runs.

    Raises:
        StillServing: not now; the data plane beside the broker may stop.
        NoProof: a process holds the directory, or its locks would prove nothing.
    """
    directory, note = _noted(path)
    with ExitStack() as stack:
        for each, file in note.locks:
            _check_local(Path(each))
            stack.enter_context(_locked(Path(each) / LOCK_NAME, file))
        serving = path / SERVING_LOCK_NAME
        if serving.exists():
            stack.enter_context(_locked(serving, note.serving_lock, StillServing))
        elif note.data_plane == BESIDE or note.serving_lock is not None:
            raise NoProof(
                f"{serving} does not exist, and the broker's data are served by another process: that process may live. "
                "It has to hold a shared lock of this file while it serves"
            )
        if read_note(directory) != note:
            raise NoProof(f"{path} was taken over by another process")
        return _certificate(directory)


def is_served(path: Path) -> bool:
    """True if a data plane beside the broker may serve: its `serving.lock` in the broker's directory cannot be had."""
    serving = path / SERVING_LOCK_NAME
    if not serving.exists():
        return False
    try:
        with _locked(serving, None):
            return False
    except NoProof:
        return True


def _noted(path: Path) -> tuple[RealDirectory, ProcessNote]:
    if not path.is_dir():
        raise NoProof(f"{path} does not exist")
    directory = RealDirectory(path)
    note = read_note(directory)
    if note is None:
        raise NoProof(f"{path / NOTE_NAME} does not exist or cannot be read: no process has noted its locks")
    if note.boot_id != this_boot():
        raise NoProof(f"the last process of {path} ran on another host, or before a restart of this one")
    if Path(note.locks[0][0]) != path.absolute():
        raise NoProof(f"the last process of {path} ran in {note.locks[0][0]}: the directory was moved or copied")
    return directory, note


def _certificate(directory: RealDirectory) -> DeathCertificate:
    try:
        identity = read_identity(directory)
        incarnations = read_incarnations(directory)
    except (LogFormatError, OSError) as e:
        raise NoProof(f"{directory.path}: {e}") from e
    if identity is None or identity.role != "broker" or not incarnations:
        raise NoProof(f"{directory.path}: no process of a broker has registered from here")
    return DeathCertificate(identity.cluster_id, identity.node_id, identity.generation, incarnations)


@contextmanager
def _locked(path: Path, noted: FileId | None, held: type[NoProof] = NoProof) -> Iterator[None]:
    """Holds the lock of the file inside of the block. Raises NoProof; `held` if a process has the lock."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as e:
        raise NoProof(f"{path} cannot be opened: {e}") from e
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            raise held(f"a process holds {path}: it lives") from e
        status = os.fstat(fd)
        if status.st_nlink == 0 or (noted is not None and FileId(status.st_dev, status.st_ino) != noted):
            raise NoProof(f"{path} is not the file that the last process has locked: it was deleted or replaced")
        yield
    finally:
        os.close(fd)


def _check_local(path: Path) -> None:
    try:
        kind = filesystem_of(path.resolve(), MOUNTS_PATH.read_text())
    except OSError as e:
        raise NoProof(f"{path}: its filesystem is not known: {e}") from e
    if kind not in LOCAL_FILESYSTEMS:
        raise NoProof(f"{path} is on a filesystem of type {kind}, whose locks prove nothing on this host")


def filesystem_of(path: Path, mounts: str) -> str:
    """The type of the filesystem that holds `path`, an absolute path without links. `mounts` is the text of `mountinfo`."""
    found, longest = "unknown", -1
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        words = before.split(" ")
        if len(words) < 5 or not after:
            continue
        point = Path(_OCTAL.sub(lambda match: chr(int(match[1], 8)), words[4]))
        if path.is_relative_to(point) and len(point.parts) >= longest:  # a later mount hides an earlier one
            found, longest = after.split(" ", 1)[0], len(point.parts)
    return found
