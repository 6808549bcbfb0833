"""Real daemons in a directory: formatted, started, signalled, and gone at the end whatever happens.

A cluster of the demo is what an operator would run: one config file and one data directory for each node, `quorumd` and
`brokerd` as processes of their own. What they say goes to files, and is evidence.
"""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from metadata_log.files import RealDirectory
from metadata_log.identity import Identity, write_identity
from metadata_log.ids import uuid_text
from metadata_log.records import Endpoint, Voter, Voters
from snapshots.store import SnapshotStore, genesis

MODULES: Final = {"controller": "quorum", "broker": "broker_agent"}
KILL_WAIT_S: Final = 10.0


class Node:
    """One daemon: its config file, its data directory, its log, and its process while there is one."""

    def __init__(self, root: Path, role: str, node_id: int, port: int) -> None:
        self.role = role
        self.node_id = node_id
        self.endpoint = f"127.0.0.1:{port}"
        self.port = port
        self.config_file = root / f"{self.name}.yaml"
        self.data_directory = root / self.name
        self.log_file = root / f"{self.name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        """As files are called."""
        return f"{self.role}-{self.node_id}"

    @property
    def is_up(self) -> bool:
        """Whether its process lives."""
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Starts the daemon. It has a session of its own: a Ctrl-C at the terminal is for the demo alone, which then stops it."""
        assert not self.is_up, self.name
        command = [sys.executable, "-m", MODULES[self.role], "--config", str(self.config_file)]
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def send(self, number: signal.Signals) -> None:
        """A signal, if it lives."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def kill(self) -> None:
        """kill -9, and it is gone when this returns."""
        self.send(signal.SIGKILL)
        self.wait(KILL_WAIT_S)

    def wait(self, timeout_s: float) -> int | None:
        """Its exit code; None if it still lives after `timeout_s`."""
        if self.process is None:
            return None
        with suppress(subprocess.TimeoutExpired):
            return self.process.wait(timeout_s)
        return None

    def said(self) -> list[dict[str, Any]]:
        """What it has logged, line by line."""
        lines = self.log_file.read_text(errors="replace").splitlines() if self.log_file.exists() else []
        return [json.loads(line) for line in lines if line.startswith("{")]

    def last_words(self, count: int = 3) -> str:
        """The end of its log, for a report of what went wrong."""
        lines = self.log_file.read_text(errors="replace").splitlines() if self.log_file.exists() else []
        return " | ".join(lines[-count:]) or "nothing"


class Daemons:
    """A cluster's nodes in one directory."""

    def __init__(self, root: Path, controllers: int, brokers: int) -> None:
        self.root = root
        self.cluster_id = uuid_text(secrets.token_bytes(16))
        ports = _free_ports(controllers + brokers)
        self.controllers = {i: Node(root, "controller", i, ports.pop()) for i in range(1, controllers + 1)}
        self.brokers = {i: Node(root, "broker", i, ports.pop()) for i in range(101, 101 + brokers)}

    def __iter__(self) -> Iterator[Node]:
        yield from self.controllers.values()
        yield from self.brokers.values()

    @property
    def endpoints(self) -> list[str]:
        """Where controllers are asked."""
        return [node.endpoint for node in self.controllers.values()]

    def format(self) -> None:
        """Gives each node its directory and its config file."""
        ids = {node.name: secrets.token_bytes(16) for node in self}
        voters = Voters(
            tuple(
                Voter(i, ids[node.name], (Endpoint("CONTROLLER", "127.0.0.1", node.port),))
                for i, node in self.controllers.items()
            )
        )
        chain = genesis(self.cluster_id, voters)
        for node in self:
            directory = RealDirectory(node.data_directory)
            write_identity(directory, Identity(self.cluster_id, node.node_id, ids[node.name], 1, node.role, chain))
            if node.role == "controller":
                SnapshotStore(directory.subdirectory("@metadata")).write_bootstrap(voters)
            node.config_file.write_text("".join(f"{key}: {value}\n" for key, value in self._config(node).items()))

    def _config(self, node: Node) -> dict[str, object]:
        listener = "CONTROLLER" if node.role == "controller" else "PLAINTEXT"
        config: dict[str, object] = {
            "node.id": node.node_id,
            "listeners": f"{listener}://{node.endpoint}",
            "metadata.log.dir": node.data_directory,
            "log.format": "json",
        }
        if node.role == "broker":
            config["controller.quorum.bootstrap.servers"] = ",".join(self.endpoints)
            config["broker.rack"] = f"rack-{node.node_id % 2}"
        return config

    def stop_all(self) -> list[Node]:
        """Kills what lives; gives those that would not go (there should be none)."""
        for node in self:
            node.send(signal.SIGKILL)
        return [node for node in self if node.process is not None and node.wait(KILL_WAIT_S) is None]

    def alive(self) -> list[int]:
        """Process ids that still exist, whoever waits for them."""
        return [node.process.pid for node in self if node.process is not None and _exists(node.process.pid)]


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, all different: they are held until the last one is found."""
    held = [socket.socket() for _ in range(count)]
    try:
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in held]
    finally:
        for each in held:
            each.close()
