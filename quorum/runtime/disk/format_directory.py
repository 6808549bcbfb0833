"""Formatting a data directory: from then on it belongs to one node of one cluster.

Nothing formats by itself, ever: a majority of controllers that came up with empty disks and helped themselves could elect a
leader that has lost what was committed (KAFKA-14077).
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from metadata_log.disk.files import RealDirectory
from metadata_log.disk.identity import Identity, read_identity, write_identity
from metadata_log.format.ids import NodeId, Uuid, parse_uuid, uuid_text
from metadata_log.format.records import Endpoint, Voter, Voters

LISTENER = "CONTROLLER"
LOG_DIRECTORY = "@metadata"
CLUSTER_ID_CHARACTERS_MAX = 255


class AlreadyFormatted(Exception):
    """The directory belongs to somebody; the message says to whom."""


class RunningCluster(NamedTuple):
    """What a node must be formatted with that is to join a cluster: its history begins where the cluster's does."""

    cluster_id: str
    generation: int
    first_voters: Voters
    voters: tuple[str, ...]
    """Who votes now, as `id@host:port`."""

    @property
    def hint(self) -> str | None:
        """What a new controller must be configured with to find the leader: nothing, while any of the first voters votes."""
        now = {entry.partition("@")[0] for entry in self.voters}
        if now.isdisjoint(str(voter.node_id) for voter in self.first_voters.voters):
            return f"controller.quorum.voters: [{', '.join(self.voters)}]"
        return None


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
    from service_kit.process.endpoints import parse_node_address

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
    """Makes `path` the directory of a node of a new cluster; a controller's gets the first voter set too.

    Returns what was written.

    Raises:
        AlreadyFormatted: it has an owner.
        ValueError: what was asked for cannot be (a controller that is not among `controllers`, ...).
        OSError: the directory cannot be made or written.
    """
    _check(cluster_id, node_id, role, controllers)
    mine = {each.node_id: each.directory_id for each in controllers}.get(node_id)
    first = voters_record(controllers) if controllers else None
    return _write(path, cluster_id, node_id, role, directory_id or mine or random_uuid(), 1, first)


def format_joining(path: Path, cluster: RunningCluster, *, node_id: NodeId, role: str) -> Identity:
    """Makes `path` the directory of a node that joins `cluster`; a controller begins as an observer.

    The directory id is new in any case. With that of a voter, an empty disk would count as the one that has promised votes
    and holds what was committed (KAFKA-14077).

    Raises:
        AlreadyFormatted, ValueError, OSError: as `format_directory` does.
    """
    _check_cluster_id(cluster.cluster_id)
    first = cluster.first_voters if role == "controller" else None
    return _write(path, cluster.cluster_id, node_id, role, random_uuid(), cluster.generation, first)


def _write(
    path: Path,
    cluster_id: str,
    node_id: NodeId,
    role: str,
    directory_id: Uuid,
    generation: int,
    first: Voters | None,
) -> Identity:
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} is not a directory")
    if path.is_dir():
        _check_empty(path)
    from snapshots.format import BOOTSTRAP_END
    from snapshots.store import SnapshotStore, genesis

    identity = Identity(
        cluster_id=cluster_id,
        node_id=node_id,
        directory_id=directory_id,
        generation=generation,
        role=role,
        genesis_chain=b"" if first is None else genesis(cluster_id, first),
    )
    directory = RealDirectory(path)
    if role == "controller":
        assert first is not None
        store = SnapshotStore(directory.subdirectory(LOG_DIRECTORY))
        # A format that was killed may have left that of other voters: it would be kept, and the controller never start.
        store.drop([BOOTSTRAP_END])
        store.write_bootstrap(first)
    write_identity(directory, identity)  # last: a directory that was half formatted is not formatted
    return identity


def _check(cluster_id: str, node_id: NodeId, role: str, controllers: tuple[InitialController, ...]) -> None:
    _check_cluster_id(cluster_id)
    if role == "controller" and not controllers:
        raise ValueError(
            "a controller needs to know the first voters: --initial-controllers ID@HOST:PORT:DIRECTORY-ID,..., "
            "the same for each of them (`quorumctl storage random-uuid` makes directory ids); one that joins a running "
            "cluster asks that: --from HOST:PORT"
        )
    if role == "controller" and node_id not in [each.node_id for each in controllers]:
        known = ", ".join(str(each.node_id) for each in controllers)
        raise ValueError(
            f"controller {node_id} is not among the initial controllers ({known}); one that joins a running cluster is "
            "formatted with --from HOST:PORT of a controller that runs"
        )


def _check_cluster_id(cluster_id: str) -> None:
    printable = cluster_id.isascii() and cluster_id.isprintable() and " " not in cluster_id
    if not printable or not 0 < len(cluster_id) <= CLUSTER_ID_CHARACTERS_MAX:
        raise ValueError(f"{cluster_id[:60]!r} is no cluster id; `quorumctl storage random-uuid` makes one")


def _check_empty(path: Path) -> None:
    found = read_identity(RealDirectory(path))
    if found is not None:
        raise AlreadyFormatted(
            f"{path} is formatted already: {found.role} {found.node_id} of cluster {found.cluster_id}, "
            f"directory {uuid_text(found.directory_id)}"
        )
    from quorum.runtime.disk import election_file
    from quorum.runtime.disk.open_directory import is_of_a_log

    log = path / LOG_DIRECTORY
    leftovers = sorted(entry.name for entry in log.iterdir() if is_of_a_log(entry.name)) if log.is_dir() else []
    if (path / election_file.FILE_NAME).exists():
        leftovers.append(election_file.FILE_NAME)
    if leftovers:
        raise AlreadyFormatted(
            f"{path} has no meta.properties, but a node's data ({leftovers[0]}): its owner is not known"
        )


def fingerprint(genesis_chain: bytes) -> str:
    """A few characters for people to compare: controllers of one cluster show the same."""
    return hashlib.sha256(genesis_chain).hexdigest()[:12] if genesis_chain else "-"
