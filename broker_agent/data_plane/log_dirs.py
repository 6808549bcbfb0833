"""The log directories of this process: opened, locked, and known by their ids.

A log directory has a file `meta.properties`, like the metadata directory: whose it is, and an id that is drawn when the directory
is made. The controllers know replicas by these ids. Example: broker 101 has the directories /disk1 and /disk2.

    1. At the first start both are empty. Broker 101 makes them its own, with the ids A and B, and registers A and B.
    2. Disk 2 is replaced. At the next start /disk2 is empty, and gets the id C. The broker registers A and C: the controllers
       know that the replicas in B are lost, and take them out of ISRs. An empty directory never counts as the old one.
    3. Disk 1 cannot be read at a start. The broker registers C alone, with an error line, and serves the replicas in C.

A directory that belongs to another broker or cluster stops the start, because its replicas are another broker's.
"""

import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from broker_agent.metadata_loader import Log
from metadata_log.disk.failures import DirectoryInUse
from metadata_log.disk.files import RealDirectory
from metadata_log.disk.identity import Identity, check_identity, read_identity, write_identity
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Uuid, uuid_text

LOCK_ATTEMPTS: Final = 50
LOCK_PAUSE_S: Final = 0.01
_RESERVED: Final = 100
"""Ids below are reserved: the unassigned directory (0), the lost directory (1)."""


class OpenLogDir(NamedTuple):
    """A log directory of this process, locked."""

    directory_id: Uuid
    directory: RealDirectory

    @property
    def path(self) -> Path:
        return self.directory.path


class NoLogDir(OSError):
    """None of the log directories can be used. The text has the reason for each."""


def lock(directory: RealDirectory) -> None:
    """Locks the directory. A watcher holds the lock for a moment, while it proves a death.

    Raises:
        DirectoryInUse: another process has locked the directory.
    """
    for _ in range(LOCK_ATTEMPTS - 1):
        with suppress(DirectoryInUse):
            directory.lock()
            return
        time.sleep(LOCK_PAUSE_S)
    directory.lock()


@contextmanager
def open_log_dirs(paths: Iterable[Path], owner: Identity, log: Log) -> Iterator[tuple[OpenLogDir, ...]]:
    """Opens and locks the directories that are sound; yields them in the order of `paths`, and unlocks them at the end.

    `owner` is the identity of the broker's metadata directory.

    Raises:
        NoLogDir: no directory can be used.
        ForeignDirectory: a directory belongs to another broker or cluster.
        DirectoryInUse: another process has locked a directory.
    """
    found: list[OpenLogDir] = []
    reasons = []
    try:
        for path in paths:
            try:
                found.append(_open(path, owner))
            except (OSError, LogFormatError) as e:
                reasons.append(f"{path}: {e}")
                means = "this broker does not register it: its replicas are offline until a start that can use it"
                log.error("log directory left out", path=str(path), reason=str(e), means=means)
        if not found:
            raise NoLogDir(f"no log directory can be used: {'; '.join(reasons)}. The broker was not started")
        yield tuple(found)
    finally:
        for each in found:
            each.directory.unlock()


def _open(path: Path, owner: Identity) -> OpenLogDir:
    directory = RealDirectory(path)
    lock(directory)
    try:
        identity = _identity(directory, owner)
    except BaseException:
        directory.unlock()
        raise
    return OpenLogDir(identity.directory_id, directory)


def _identity(directory: RealDirectory, owner: Identity) -> Identity:
    """Reads the identity of the directory; a directory without one becomes the broker's."""
    found = read_identity(directory)
    if found is None:
        found = owner._replace(directory_id=_new_id())
        write_identity(directory, found)
    return check_identity(
        found, node_id=owner.node_id, role=owner.role, cluster_id=owner.cluster_id, where=directory.path_text
    )


def _new_id() -> Uuid:
    while True:
        drawn = secrets.token_bytes(16)
        if int.from_bytes(drawn, "big") >= _RESERVED and not uuid_text(drawn).startswith("-"):
            return drawn
