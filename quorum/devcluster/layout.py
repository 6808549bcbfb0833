"""Lays out a cluster on this machine: its nodes, their ports and their files. One directory holds the whole cluster:

    cluster.json                     the nodes, their ports and their settings; written once
    controller-1/ config.yaml        the configuration of `quorumd`
                  data/              the data directory
                  log                the daemon's output
                  pid                the daemon's pid, while the daemon runs
    broker-101/   the same, for `brokerd`
                  replicas/          the log directory, if the brokers have records

Ports are chosen once and stay the same over restarts. They are below the range that the kernel gives to outgoing connections.
Otherwise a client's connection could take a stopped node's port:
    1. broker-101 on port 40000 stops;
    2. a client's outgoing connection gets the local port 40000 from the kernel;
    3. broker-101 starts again, and cannot listen on its port.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any, Final, NamedTuple

from metadata_log.disk.files import RealDirectory
from metadata_log.disk.identity import IDENTITY_NAME, read_identity
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import parse_uuid, uuid_text
from quorum.devcluster import node_files
from quorum.devcluster.node_files import open_regular, why_text
from quorum.runtime.disk.format_directory import InitialController, format_directory, random_uuid

HOST: Final = "127.0.0.1"
DATA_PLANE: Final = "broker.data.plane"
PARTITIONS: Final = "partitions"
CLUSTER_FILE: Final = "cluster.json"
CLUSTER_FILE_BYTES_MAX: Final = 1 << 20
SCHEMA_VERSION: Final = 1
FIRST_CONTROLLER_ID: Final = 1
FIRST_BROKER_ID: Final = 101
NODES_MAX: Final = 99
_PORTS: Final = range(20_000, 32_000)


class DevClusterError(Exception):
    """The cluster cannot do what was asked. The message says the reason, and the way out, in one sentence."""


class NotThere(DevClusterError):
    """No such cluster or node."""


class Conflict(DevClusterError):
    """A running node, a port in use or a foreign directory is in the way."""


class DevNode(NamedTuple):
    """One daemon. `directory` holds its files; `directory_id` is the id of its data directory (KIP-853)."""

    name: str
    role: str
    node_id: int
    port: int
    rack: str | None
    directory_id: str
    directory: Path

    @property
    def endpoint(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def data_directory(self) -> Path:
        return self.directory / "data"

    @property
    def log_directory(self) -> Path:
        return self.directory / "replicas"

    @property
    def config_path(self) -> Path:
        return self.directory / "config.yaml"

    @property
    def log_path(self) -> Path:
        return self.directory / "log"

    @property
    def pid_path(self) -> Path:
        return self.directory / "pid"


class Layout(NamedTuple):
    """A whole cluster, as `cluster.json` has it."""

    directory: Path
    cluster_id: str
    nodes: tuple[DevNode, ...]
    settings: Mapping[str, Mapping[str, object]] = {}
    """By role, the keys that `dev up --set` gave to the configuration of each node."""

    @property
    def controllers(self) -> tuple[DevNode, ...]:
        return tuple(node for node in self.nodes if node.role == "controller")

    @property
    def brokers(self) -> tuple[DevNode, ...]:
        return tuple(node for node in self.nodes if node.role == "broker")

    @property
    def bootstrap(self) -> str:
        """The controllers' endpoints, as `quorumctl -C` takes them."""
        return ",".join(node.endpoint for node in self.controllers)


def plan(directory: Path, controllers: int, brokers: int, racks: int = 0, base_port: int | None = None) -> Layout:
    """Plans a new cluster; writes nothing.

    Raises:
        DevClusterError: impossible numbers, or ports that are taken.
    """
    if not 1 <= controllers <= NODES_MAX or not 0 <= brokers <= NODES_MAX:
        raise DevClusterError(
            f"1 to {NODES_MAX} controllers and 0 to {NODES_MAX} brokers, not {controllers} and {brokers}"
        )
    ports = iter(_ports(controllers + brokers, base_port))
    nodes: list[DevNode] = []
    for role, first_id, count in (
        ("controller", FIRST_CONTROLLER_ID, controllers),
        ("broker", FIRST_BROKER_ID, brokers),
    ):
        for index in range(count):
            node_id = first_id + index
            name = f"{role}-{node_id}"
            rack = f"rack-{index % racks + 1}" if racks and role == "broker" else None
            directory_id = uuid_text(random_uuid())
            nodes.append(DevNode(name, role, node_id, next(ports), rack, directory_id, directory / name))
    return Layout(directory, uuid_text(random_uuid()), tuple(nodes))


def write(layout: Layout) -> None:
    """Formats every data directory and writes every config file; writes `cluster.json` last, which makes the cluster complete."""
    controllers = tuple(
        InitialController(node.node_id, HOST, node.port, parse_uuid(node.directory_id)) for node in layout.controllers
    )
    for node in layout.nodes:
        node.directory.mkdir(parents=True)
        format_directory(
            node.data_directory,
            cluster_id=layout.cluster_id,
            node_id=node.node_id,
            role=node.role,
            controllers=controllers,
            directory_id=parse_uuid(node.directory_id),
        )
        write_config(layout, node)
    document = {
        "schema_version": SCHEMA_VERSION,
        "cluster_id": layout.cluster_id,
        "settings": layout.settings,
        "nodes": [
            {name: value for name, value in node._asdict().items() if name != "directory"} for node in layout.nodes
        ],
    }
    temporary = layout.directory / f"{CLUSTER_FILE}.tmp"
    temporary.write_text(json.dumps(document, indent=2) + "\n")
    temporary.rename(layout.directory / CLUSTER_FILE)


def write_config(layout: Layout, node: DevNode) -> None:
    """Writes the config file of `node` if it is missing: at the beginning, and after the node's whole directory was removed.

    Does nothing while a path of the node cannot be used.

    Raises:
        OSError: the file cannot be written.
    """
    if unusable(node) is not None or node.config_path.exists():
        return
    values = {**_config(layout, node), **layout.settings.get(node.role, {})}
    if values.get(DATA_PLANE) == PARTITIONS:
        values.setdefault("log.dirs", str(node.log_directory))
    node.directory.mkdir(parents=True, exist_ok=True)
    node.config_path.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in values.items()))


def _config(layout: Layout, node: DevNode) -> dict[str, Any]:
    common = {"node.id": node.node_id, "metadata.log.dir": str(node.data_directory), "log.format": "text"}
    if node.role == "controller":
        return {**common, "process.roles": "controller", "listeners": f"CONTROLLER://{node.endpoint}"}
    rack = {"broker.rack": node.rack} if node.rack is not None else {}
    return {
        **common,
        **rack,
        "listeners": f"PLAINTEXT://{node.endpoint}",
        "controller.quorum.bootstrap.servers": layout.bootstrap,
        "controlled.shutdown.deadline.ms": 5_000,
        DATA_PLANE: "none",  # no data is replicated here: every active replica is in sync
    }


def load(directory: Path) -> Layout:
    """Loads the cluster in `directory`.

    Raises:
        DevClusterError: the directory holds no cluster, or the file cannot be read.
    """
    path = directory / CLUSTER_FILE
    try:
        with open_regular(path) as file:
            document = json.loads(file.read(CLUSTER_FILE_BYTES_MAX))
        nodes = tuple(_node(directory, values) for values in document["nodes"])
        return Layout(directory, str(document["cluster_id"]), nodes, document.get("settings", {}))
    except FileNotFoundError as e:
        raise NotThere(f"{directory} holds no cluster; `quorumctl dev up --dir {directory}` makes one") from e
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise DevClusterError(f"{path} cannot be read: {e}") from e


def _node(directory: Path, values: Mapping[str, Any]) -> DevNode:
    return DevNode(
        name=str(values["name"]),
        role=str(values["role"]),
        node_id=int(values["node_id"]),
        port=int(values["port"]),
        rack=values["rack"],
        directory_id=str(values["directory_id"]),
        directory=directory / str(values["name"]),
    )


def strays(layout: Layout) -> dict[DevNode, str]:
    """The nodes with a path that cannot be used, and those whose data directory was wiped or belongs to another node than
    `cluster.json` says, each with the reason.
    """
    found = {node: unusable(node) or _why_foreign(layout, node) for node in layout.nodes}
    return {node: why for node, why in found.items() if why is not None}


def unusable(node: DevNode) -> str | None:
    """The first file or directory of `node` that cannot be opened, with the reason; None if there is none."""
    identity = node.data_directory / IDENTITY_NAME
    directories = (node.directory, node.data_directory)
    return node_files.unusable(directories, (node.config_path, node.log_path, node.pid_path, identity))


def _why_foreign(layout: Layout, node: DevNode) -> str | None:
    path = node.data_directory
    try:
        found = read_identity(RealDirectory(path)) if path.is_dir() else None
    except LogFormatError as e:
        return str(e)
    except OSError as e:
        return why_text(e)
    if found is None:
        return f"{path} is not formatted: it was wiped, or its disk is not there"
    if (found.cluster_id, found.node_id, found.role) == (layout.cluster_id, node.node_id, node.role):
        return None
    return (
        f"{path} belongs to {found.role} {found.node_id} of cluster {found.cluster_id}, not to {node.role} {node.node_id} "
        f"of cluster {layout.cluster_id}"
    )


def repair(layout: Layout) -> str:
    """Says how a node comes back whose files cannot be used."""
    return f"Repair it, or move it away; then run {_up_again(layout)}"


def _up_again(layout: Layout) -> str:
    return f"`quorumctl dev up --dir {quote(str(layout.directory))}` again"


def way_back(layout: Layout, node: DevNode, running: DevNode) -> str:
    """Names the commands that bring `node` back; `running` and a majority must run.

    A controller with an empty data directory comes back as a new voter: its old votes were lost with its disk
    (deploy/runbook.md).
    """
    if unusable(node) is not None:
        return repair(layout)
    if _why_foreign(layout, node) is None:
        return (
            repair(layout)
            if _is_free(node.port)
            else f"Stop the process with port {node.port}; then run {_up_again(layout)}"
        )
    config = quote(str(node.config_path))
    start = f"`quorumctl dev start --dir {quote(str(layout.directory))} {node.name}`"
    form = f"`quorumctl storage format --config {config}"
    if node.role != "controller":
        return f"Put the right directory there; or, with none there, {form} --cluster-id {layout.cluster_id}`, then {start}"
    return (
        f"Put the right directory there; or, with none there, {form} --from {running.endpoint}`, {start}, "
        f"`quorumctl -C {running.endpoint} quorum remove-voter --node-id {node.node_id}`, and when its lag is 0, "
        f"`quorumctl -C {running.endpoint} quorum add-voter --config {config}`"
    )


async def listens(node: DevNode) -> bool:
    """True if a process accepts connections on the node's port."""
    try:
        _, writer = await asyncio.open_connection(HOST, node.port)
    except OSError:
        return False
    writer.close()
    return True


def taken_ports(nodes: Iterable[DevNode]) -> dict[DevNode, str]:
    """The nodes whose port is in use by another process, each with the reason; none of `nodes` runs."""
    return {
        node: f"port {node.port} of {node.name} is in use by another process"
        for node in nodes
        if not _is_free(node.port)
    }


def check_ports(nodes: Iterable[DevNode]) -> None:
    """Raises Conflict for the first node whose port is in use by another process."""
    for why in taken_ports(nodes).values():
        raise Conflict(f"{why}; stop it, or make the cluster elsewhere")


def _ports(count: int, base_port: int | None) -> Sequence[int]:
    if base_port is not None:
        ports = range(base_port, base_port + count)
        taken = [port for port in ports if not 0 < port < 65_536 or not _is_free(port)]
        if taken:
            raise Conflict(f"port {taken[0]} cannot be had; give another --base-port, or none at all")
        return ports
    return free_ports(count)


def free_ports(count: int) -> Sequence[int]:
    """Returns `count` free ports, ascending."""
    dice = random.SystemRandom()
    found: list[int] = []
    for port in dice.sample(_PORTS, len(_PORTS)):
        if _is_free(port):
            found.append(port)
            if len(found) == count:
                return sorted(found)
    raise DevClusterError(f"no {count} free ports between {_PORTS.start} and {_PORTS.stop}")


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
    return True
