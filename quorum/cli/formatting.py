"""Formatting a data directory: from then on it belongs to one node of one cluster.

Nothing formats by itself, ever: a majority of controllers that came up with empty disks and helped themselves could elect a
leader that has lost what was committed (KAFKA-14077).
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from metadata_log.files import RealDirectory
from metadata_log.identity import Identity, read_identity, write_identity
from metadata_log.ids import NodeId, Uuid, parse_uuid, uuid_text
from metadata_log.records import Endpoint, Voter, Voters

LISTENER = "CONTROLLER"
LOG_DIRECTORY = "@metadata"
CLUSTER_ID_CHARACTERS_MAX = 255


class AlreadyFormatted(Exception):
    """The directory belongs to somebody; the message says to whom."""


class InitialController(NamedTuple):
    """One member of the first voter set, as `id@host:port:directory-id`."""

    node_id: NodeId
    host: str
    port: int
    directory_id: Uuid

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.node_id}@{host}:{self.port}:{uuid_text(self.directory_id)}"


def parse_initial_controllers(text: str) -> tuple[InitialController, ...]:
    """The first voter set, sorted by node id.

    Raises:
        ValueError: naming the entry that cannot be read, or the id that is there twice.
    """
    from daemon.endpoints import parse_node_address

    controllers = []
    for entry in (part.strip() for part in text.split(",")):
        address, colon, directory_id = entry.rpartition(":")
        if not colon:
            raise ValueError(f"{entry!r} is not of the form id@host:port:directory-id")
        node_id, where = parse_node_address(address)
        controllers.append(InitialController(node_id, where.host, where.port, parse_uuid(directory_id)))
    ids = [controller.node_id for controller in controllers]
    for node_id in ids:
        if ids.count(node_id) > 1:
            raise ValueError(f"controller {node_id} is named twice")
    return tuple(sorted(controllers))


def voters_record(controllers: tuple[InitialController, ...]) -> Voters:
    """The same as the record that opens every controller's history."""
    return Voters(
        tuple(
            Voter(each.node_id, each.directory_id, (Endpoint(LISTENER, each.host, each.port),))
            for each in sorted(controllers)
        )
    )


def random_uuid() -> Uuid:
    """A new id, whose text does not begin with a dash (options would)."""
    import secrets

    while True:
        value = secrets.token_bytes(16)
        if not uuid_text(value).startswith("-"):
            return value


def format_directory(
    path: Path,
    *,
    cluster_id: str,
    node_id: NodeId,
    role: str,
    controllers: tuple[InitialController, ...] = (),
    directory_id: Uuid | None = None,
) -> Identity:
    """Makes `path` the directory of a new node; a controller's gets the first voter set too. Returns what was written.

    Raises:
        AlreadyFormatted: it has an owner.
        ValueError: what was asked for cannot be (a controller that is not among `controllers`, ...).
        OSError: the directory cannot be made or written.
    """
    _check(cluster_id, node_id, role, controllers)
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} is not a directory")
    if path.is_dir():
        _check_empty(path)
    mine = {each.node_id: each.directory_id for each in controllers}.get(node_id)
    identity = Identity(
        cluster_id=cluster_id,
        node_id=node_id,
        directory_id=directory_id or mine or random_uuid(),
        generation=1,
        role=role,
        genesis_chain=_genesis_chain(cluster_id, controllers) if controllers else b"",
    )
    directory = RealDirectory(path)
    if role == "controller":
        from snapshots.store import SnapshotStore

        SnapshotStore(directory.subdirectory(LOG_DIRECTORY)).write_bootstrap(voters_record(controllers))
    write_identity(directory, identity)  # last: a directory that was half formatted is not formatted
    return identity


def _genesis_chain(cluster_id: str, controllers: tuple[InitialController, ...]) -> bytes:
    from snapshots.store import genesis

    return genesis(cluster_id, voters_record(controllers))


def _check(cluster_id: str, node_id: NodeId, role: str, controllers: tuple[InitialController, ...]) -> None:
    printable = cluster_id.isascii() and cluster_id.isprintable() and " " not in cluster_id
    if not printable or not 0 < len(cluster_id) <= CLUSTER_ID_CHARACTERS_MAX:
        raise ValueError(f"{cluster_id[:60]!r} is no cluster id; `quorumctl storage random-uuid` makes one")
    if role == "controller" and not controllers:
        raise ValueError(
            "a controller needs to know the first voters: --initial-controllers ID@HOST:PORT:DIRECTORY-ID,..., "
            "the same for each of them; `quorumctl storage random-uuid` makes directory ids"
        )
    if role == "controller" and node_id not in [each.node_id for each in controllers]:
        known = ", ".join(str(each.node_id) for each in controllers)
        raise ValueError(f"controller {node_id} is not among the initial controllers ({known})")


def _check_empty(path: Path) -> None:
    found = read_identity(RealDirectory(path))
    if found is not None:
        raise AlreadyFormatted(
            f"{path} is formatted already: {found.role} {found.node_id} of cluster {found.cluster_id}, "
            f"directory {uuid_text(found.directory_id)}"
        )
    log = path / LOG_DIRECTORY
    leftovers = [entry.name for entry in log.iterdir() if entry.name.endswith(".log")] if log.is_dir() else []
    if leftovers:
        raise AlreadyFormatted(f"{path} has no meta.properties, but a log ({leftovers[0]}): its owner is not known")


def fingerprint(genesis_chain: bytes) -> str:
    """A few characters for people to compare: controllers of one cluster show the same."""
    return hashlib.sha256(genesis_chain).hexdigest()[:12] if genesis_chain else "-"
