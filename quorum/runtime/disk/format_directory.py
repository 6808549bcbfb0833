"""Formats a data directory: from then on the directory belongs to one node of one cluster.

No node ever formats its own directory. Counter-example (KAFKA-14077) with voters 1, 2 and 3:
    1. voters 1 and 2 have committed record 40; voter 3 lacks the record;
    2. the disk of voter 2 is replaced; node 2 starts, formats the empty disk by itself, and counts as voter 2;
    3. voter 1 dies: 2 and 3 elect voter 3, and the committed record 40 is lost.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from metadata_log.disk.files import RealDirectory
from metadata_log.disk.identity import Identity, read_identity, write_identity
from metadata_log.format.ids import NodeId, Uuid, parse_uuid, uuid_text
from metadata_log.format.records import Endpoint, Voter, Voters

if TYPE_CHECKING:
    from quorum.runtime.disk.first_snapshot import FirstSnapshot

LISTENER = "CONTROLLER"
LOG_DIRECTORY = "@metadata"
CLUSTER_ID_CHARACTERS_MAX = 255


class AlreadyFormatted(Exception):
    """Raised if the directory belongs to a node already; the message names the node."""


class OwnerUnknown(AlreadyFormatted):
    """Raised if the directory has a node's data, and no identity; the message says what to do."""


class RunningCluster(NamedTuple):
    """The facts about a running cluster for the format of a joining node, whose history begins with the cluster's history."""

    cluster_id: str
    generation: int
    first_voters: Voters
    voters: tuple[str, ...]
    """The present voters, as `id@host:port`."""

    @property
    def hint(self) -> str | None:
        """The configuration line with which a new controller finds the leader; None while any of the first voters still votes."""
        now = {entry.partition("@")[0] for entry in self.voters}
        if now.isdisjoint(str(voter.node_id) for voter in self.first_voters.voters):
            return f"controller.quorum.voters: [{', '.join(self.voters)}]"
        return None


class InitialController(NamedTuple):
    """A member of the first voter set, as `id@host:port:directory-id`."""

    node_id: NodeId
    host: str
    port: int
    directory_id: Uuid

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.node_id}@{host}:{self.port}:{uuid_text(self.directory_id)}"


def parse_initial_controllers(text: str) -> tuple[InitialController, ...]:
    """Parses the first voter set, and sorts the controllers by node id.

    Raises:
        ValueError: an entry cannot be read, or an id occurs twice; the text names the entry or the id.
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
    """The first voter set as the record at the beginning of every controller's history."""
    return Voters(
        tuple(
            Voter(each.node_id, each.directory_id, (Endpoint(LISTENER, each.host, each.port),))
            for each in sorted(controllers)
        )
    )


def random_uuid() -> Uuid:
    """A new random id. Its text does not begin with a dash, so that no command takes the id for an option."""
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
    snapshot: Path | None = None,
) -> Identity:
    """Formats `path` for a node of a new cluster. A controller's directory gets the first voter set, too, and the imported
    `snapshot` with which the cluster begins.

    Returns the written identity.

    Raises:
        AlreadyFormatted: the directory belongs to a node already, or to an unknown one.
        ValueError: an argument is wrong, for example a controller that is not among `controllers`, or a damaged snapshot.
        OSError: the directory cannot be created or written.
    """
    _check(cluster_id, node_id, role, controllers)
    mine = {each.node_id: each.directory_id for each in controllers}.get(node_id)
    first = voters_record(controllers) if controllers else None
    begin = None
    if snapshot is not None:
        if role != "controller":
            raise ValueError(
                "a snapshot is for the first controllers: a broker fetches it from them; nothing was written"
            )
        from quorum.runtime.disk.first_snapshot import FirstSnapshot

        begin = FirstSnapshot(snapshot)
    return _write(path, cluster_id, node_id, role, directory_id or mine or random_uuid(), 1, first, begin)


def format_joining(path: Path, cluster: RunningCluster, *, node_id: NodeId, role: str) -> Identity:
    """Formats `path` for a node that joins `cluster`; a controller begins as an observer.

    The directory id is always new. With a voter's directory id, an empty disk would count as the disk that has granted votes and
    holds committed records (KAFKA-14077).

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
    begin: FirstSnapshot | None = None,
) -> Identity:
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} is not a directory")
    if path.is_dir():
        _check_empty(path, begin)
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
        # A killed format may have left a checkpoint with other voters: `write_bootstrap` would keep that, and no start succeed.
        store.drop([BOOTSTRAP_END])
        store.write_bootstrap(first)
        if begin is not None:
            begin.write(directory, store, identity.genesis_chain, first)
    write_identity(directory, identity)  # last: a directory without an identity does not count as formatted
    return identity


def _check(cluster_id: str, node_id: NodeId, role: str, controllers: tuple[InitialController, ...]) -> None:
    _check_cluster_id(cluster_id)
    if role == "controller" and not controllers:
        raise ValueError(
            "a controller needs to know the first voters: --initial-controllers ID@HOST:PORT:DIRECTORY-ID,..., "
            "the same for each of them (`quorumctl storage random-uuid` makes directory ids); a controller that joins "
            "a running cluster is formatted with --from HOST:PORT"
        )
    from quorum.core.protocol.voters import VOTERS_MAX

    if len(controllers) > VOTERS_MAX:
        raise ValueError(f"{len(controllers)} initial controllers; the maximum is {VOTERS_MAX}; nothing was written")
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


def _check_empty(path: Path, begin: FirstSnapshot | None) -> None:
    """Refuses a directory with an identity, or with data that a killed format with the same snapshot cannot have left.

    Example: a format with the snapshot 275@6 is killed before the identity is written.
        1. The directory has the snapshot, and the vote of a node that has never voted. Nothing is lost if both are written again.
        2. The next format with this snapshot writes them again, also with other voters.
        3. If the node has voted, or has a log, or another snapshot, then the data may be the only copy: it is left as it is.
    """
    directory = RealDirectory(path)
    found = read_identity(directory)
    if found is not None:
        raise AlreadyFormatted(
            f"{path} is formatted already: {found.role} {found.node_id} of cluster {found.cluster_id}, "
            f"directory {uuid_text(found.directory_id)}"
        )
    from quorum.runtime.disk import election_file
    from quorum.runtime.disk.open_directory import is_of_a_log
    from snapshots.format import parse_name

    log = path / LOG_DIRECTORY
    leftovers = sorted(entry.name for entry in log.iterdir() if is_of_a_log(entry.name)) if log.is_dir() else []
    has_vote = directory.exists(election_file.FILE_NAME)
    if has_vote and _has_never_voted(directory):
        has_vote = False
        if begin is not None and begin.is_all_of(leftovers, directory.subdirectory(LOG_DIRECTORY)):
            return
        if leftovers and all(parse_name(name) is not None for name in leftovers):
            raise OwnerUnknown(
                f"{path} has no meta.properties, but {leftovers[0]}: a format with a snapshot was not finished here. Give "
                f"the same snapshot again; or, if no node needs this state, move {log} away"
            )
    if leftovers or has_vote:
        first = [*leftovers, election_file.FILE_NAME][0]
        raise OwnerUnknown(f"{path} has no meta.properties, but a node's data ({first}): its owner is not known")


def _has_never_voted(directory: RealDirectory) -> bool:
    """True if the election file is the one that a format with a snapshot writes."""
    from metadata_log.format.errors import LogFormatError
    from quorum.runtime.disk import election_file

    try:
        return election_file.load(directory) == election_file.FIRST_STATE
    except LogFormatError:
        return False  # a forgotten vote is a vote


def fingerprint(genesis_chain: bytes) -> str:
    """The first characters of a hash, for people to compare: all controllers of a cluster show the same characters."""
    return hashlib.sha256(genesis_chain).hexdigest()[:12] if genesis_chain else "-"
