"""A small KRaft cluster of a real Apache Kafka on loopback, for the scenarios of `scenarios.py`. No test starts it.

Each node is a Java process with a small heap at a low priority. Example:

    1. `async with KafkaCluster(directory, "4.1.1", nodes)` formats and starts the nodes.
    2. `cluster.kill(cluster.active())` kills the active controller with SIGKILL, as a crash of the machine's process would.
    3. After the block every process is gone; `node_files` lists what is left on the disk of each node.
"""

import asyncio
import base64
import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from benchmarks.replicas.kafka_jars import find_jars
from quorum.devcluster.layout import free_ports

JAVA = (
    "nice",
    "-n",
    "2",
    "java",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
ENVIRONMENT = {**os.environ, "LC_ALL": "C.UTF-8"}
"""For names beyond ASCII, in the arguments of tools and in their output."""
HEAP = "-Xmx256m"
TOOL_S = 240.0
WAIT_S = 1_200.0
STOP_S = 60.0
TRIES = 5
DONE_BEFORE = ("already exists", "does not exist", "TokenNotFound")
"""What a tool says the second time if its first try did more than it knew."""
METADATA = "__cluster_metadata-0"
USER, PASSWORD = "alice", "alice-secret"


class KafkaFailed(Exception):
    """A node or a tool of Kafka failed, or did not come to the state that the scenario needs in time."""


class Node(NamedTuple):
    """One node of the cluster."""

    id: int
    is_controller: bool
    is_broker: bool


def controllers(*ids: int) -> tuple[Node, ...]:
    return tuple(Node(node_id, True, False) for node_id in ids)


def brokers(*ids: int) -> tuple[Node, ...]:
    return tuple(Node(node_id, False, True) for node_id in ids)


def combined(*ids: int) -> tuple[Node, ...]:
    return tuple(Node(node_id, True, True) for node_id in ids)


def random_id() -> str:
    """Return an node_id as Kafka writes ids: 16 bytes, base64 without padding."""
    return base64.urlsafe_b64encode(b"\x01" + os.urandom(15)).decode().rstrip("=")


class KafkaCluster:
    """The nodes on the disk and their processes. `dynamic`: the voters are in the log (KIP-853), not in the settings.
    `disks`: the names of the log directories of a broker."""

    def __init__(
        self,
        directory: Path,
        version: str,
        nodes: tuple[Node, ...],
        settings: Mapping[str, object],
        *,
        dynamic: bool = False,
        disks: str = "ab",
    ) -> None:
        self.directory, self.version, self.nodes = directory, version, {node.id: node for node in nodes}
        jars = sorted(find_jars(version).glob("*.jar"))
        self._classpath = ":".join(str(jar) for jar in jars if "reload4j" not in jar.name)  # its log would be silent
        ports = iter(free_ports(3 * len(nodes)))
        self._ports = {node.id: (next(ports), next(ports), next(ports)) for node in nodes}
        self._extra, self._dynamic, self._disks = dict(settings), dynamic, disks
        self._cluster_id = random_id()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        directory.mkdir(parents=True)
        for node in nodes:
            self._config(node.id).write_text(self._settings(node))
        self.client_config = directory / "client.properties"
        self.client_config.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config="
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'username="{USER}" password="{PASSWORD}";\n'
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node_id in list(self._processes):
            self.kill(node_id)

    # --- what a node is told

    @property
    def bootstrap(self) -> str:
        return self._addresses(1, (node.id for node in self.nodes.values() if node.is_broker))

    @property
    def sasl_bootstrap(self) -> str:
        return self._addresses(2, (node.id for node in self.nodes.values() if node.is_broker))

    @property
    def controller_bootstrap(self) -> str:
        return self._addresses(0, (node.id for node in self.nodes.values() if node.is_controller))

    def _addresses(self, listener: int, ids: Iterable[int]) -> str:
        return ",".join(f"127.0.0.1:{self._ports[node_id][listener]}" for node_id in ids)

    def config(self, node_id: int) -> str:
        return str(self._config(node_id))

    def _config(self, node_id: int) -> Path:
        return self.directory / f"node-{node_id}.properties"

    def data(self, node_id: int) -> Path:
        """Return the first log directory of a node, which holds the metadata."""
        return self.directory / f"node-{node_id}" / "a"

    def _settings(self, node: Node) -> str:
        control, client, sasl = self._ports[node.id]
        voting = [each.id for each in self.nodes.values() if each.is_controller]
        quorum = {
            "controller.quorum.bootstrap.servers": self.controller_bootstrap,
        } if self._dynamic else {
            "controller.quorum.voters": ",".join(f"{node_id}@127.0.0.1:{self._ports[node_id][0]}" for node_id in voting)
        }  # fmt: skip
        listeners = [f"CONTROLLER://127.0.0.1:{control}"] if node.is_controller else []
        listeners += [f"CLIENT://127.0.0.1:{client}", f"SASL://127.0.0.1:{sasl}"] if node.is_broker else []
        roles = ["controller"] * node.is_controller + ["broker"] * node.is_broker
        disks = [self.directory / f"node-{node.id}" / disk for disk in (self._disks if node.is_broker else "a")]
        found: dict[str, object] = {
            "process.roles": ",".join(roles),
            "node.id": node.id,
            **quorum,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,CLIENT:PLAINTEXT,SASL:SASL_PLAINTEXT",
            "listeners": ",".join(listeners),
            "log.dirs": ",".join(map(str, disks)),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:ANONYMOUS;User:{USER}",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'user_{USER}="{PASSWORD}";',
            "delegation.token.secret.key": "secret",
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 2,
            "broker.session.timeout.ms": 12_000,
            "broker.heartbeat.interval.ms": 500,
            "initial.broker.registration.timeout.ms": 300_000,
            "controller.quorum.election.timeout.ms": 4_000,
            "controller.quorum.request.timeout.ms": 12_000,
            "controller.quorum.fetch.timeout.ms": 10_000,
            "replica.lag.time.max.ms": 12_000,
            "num.network.threads": 1,
            "num.io.threads": 2,
            "log.cleaner.enable": "false",
            **({"inter.broker.listener.name": "CLIENT", "broker.rack": f"rack-{node.id}"} if node.is_broker else {}),
            **self._extra,
        }
        return "".join(f"{name}={value}\n" for name, value in found.items())

    # --- processes

    async def format(self, node_id: int, *words: str) -> None:
        await self.tool("kafka.tools.StorageTool", "format", "-t", self._cluster_id, "-c", self.config(node_id), *words)

    async def format_all(self, *words: str) -> None:
        await asyncio.gather(*(self.format(node_id, *words) for node_id in self.nodes))

    def initial_controllers(self) -> str:
        """Return the words behind `--initial-controllers`, with new directory ids."""
        ids = [node.id for node in self.nodes.values() if node.is_controller]
        return ",".join(f"{node_id}@127.0.0.1:{self._ports[node_id][0]}:{random_id()}" for node_id in ids)

    def start(self, *ids: int) -> None:
        for node_id in ids:
            command = (*JAVA, HEAP, "-cp", self._classpath, "kafka.Kafka", self.config(node_id))
            with (self.directory / f"node-{node_id}.log").open("ab") as log:
                self._processes[node_id] = subprocess.Popen(
                    command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=ENVIRONMENT
                )

    def kill(self, node_id: int) -> None:
        """End a node with SIGKILL."""
        process = self._processes.pop(node_id)
        process.kill()
        process.wait()

    async def stop(self, node_id: int) -> None:
        """End a node in order, with SIGTERM."""
        process = self._processes.pop(node_id)
        process.terminate()
        try:
            await asyncio.to_thread(process.wait, STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise KafkaFailed(f"node {node_id} did not stop within {STOP_S:g} s") from None

    async def until_up(self) -> None:
        """Wait until every running broker takes connections and a client lists the topics."""
        for node_id in [node_id for node_id in self._processes if self.nodes[node_id].is_broker]:
            for _ in waiting(f"node {node_id} does not take connections"):
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", self._ports[node_id][1])
                    writer.close()
                    break
                self._check_alive()
                await asyncio.sleep(0.2)
        await self.topics("--list")

    def _check_alive(self) -> None:
        for node_id, process in self._processes.items():
            if process.poll() is not None:
                words = (self.directory / f"node-{node_id}.log").read_text(errors="replace")[-1_500:]
                raise KafkaFailed(f"node {node_id} ended: {words}")

    # --- the quorum

    def _leader_seen_by(self, node_id: int) -> tuple[int, int]:
        """Return epoch and leader, as the node's file `quorum-state` has them; -1 for no leader."""
        try:
            state = json.loads((self.data(node_id) / METADATA / "quorum-state").read_text())
        except (OSError, ValueError):
            return -1, -1
        return state["leaderEpoch"], state["leaderId"]

    def active(self) -> int:
        """Return the active controller, as the living controllers know it; -1: none."""
        living = [node_id for node_id in self._processes if self.nodes[node_id].is_controller]
        leader = max(map(self._leader_seen_by, living), default=(-1, -1))[1]
        return leader if leader in self._processes else -1

    async def until_led(self) -> int:
        for _ in waiting("no living controller leads"):
            if (leader := self.active()) >= 0:
                return leader
            self._check_alive()
            await asyncio.sleep(0.1)
        raise AssertionError

    async def fail_over(self) -> None:
        """Kill the active controller, wait for the next one, and start the killed node again."""
        killed = await self.until_led()
        self.kill(killed)
        await self.until_led()
        await self.topics("--list")
        self.start(killed)
        await self.until_up()

    # --- tools

    async def tool(self, name: str, *words: str, fails: bool = False) -> str:
        """Run a tool of Kafka, and return its output. `fails`: a failure is no error. A busy machine may need several tries."""
        for tries in range(TRIES):
            code, text = await self._run_tool(name, *words)
            is_done_before = tries > 0 and any(word in text for word in DONE_BEFORE)
            if code == 0 or fails or is_done_before:
                return text
            if not any(word in text for word in ("TimeoutException", "DisconnectException", "Timed out")):
                break
        raise KafkaFailed(f"{name} {' '.join(words)}: {text[-1_500:]}")

    async def _run_tool(self, name: str, *words: str) -> tuple[int, str]:
        """Return the exit code, and the output; for a failure what the tool said about it too."""
        command = (*JAVA, "-Xmx128m", "-cp", self._classpath, name, *words)
        process = await asyncio.create_subprocess_exec(
            *command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT
        )
        try:
            async with asyncio.timeout(TOOL_S):
                output, errors = await process.communicate()
        except TimeoutError:
            process.kill()
            return -1, f"Timed out after {TOOL_S:g} s"
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            raise
        code = process.returncode or 0
        return code, (output + errors if code else output).decode(errors="replace")

    async def _at_brokers(self, name: str, *words: str) -> str:
        return await self.tool(name, "--bootstrap-server", self.bootstrap, *words)

    async def topics(self, *words: str) -> str:
        return await self._at_brokers("org.apache.kafka.tools.TopicCommand", *words)

    async def configs(self, *words: str) -> str:
        return await self._at_brokers("kafka.admin.ConfigCommand", *words)

    async def acls(self, *words: str) -> str:
        room = "kafka.admin" if self.version.startswith("3.") else "org.apache.kafka.tools"
        return await self._at_brokers(f"{room}.AclCommand", *words)

    async def features(self, *words: str) -> str:
        return await self._at_brokers("org.apache.kafka.tools.FeatureCommand", *words)

    async def quorum(self, *words: str) -> str:
        return await self._at_brokers("org.apache.kafka.tools.MetadataQuorumCommand", *words)

    async def produce(self, topic: str) -> None:
        """Send a few records with an idempotent producer, for which a broker takes producer ids."""
        words = ("--topic", topic, "--num-records", "5", "--record-size", "10", "--throughput", "-1")
        settings = ("--producer-props", f"bootstrap.servers={self.bootstrap}", "acks=all")
        await self.tool("org.apache.kafka.tools.ProducerPerformance", *words, *settings)

    async def tokens(self, *words: str) -> str:
        at = ("--bootstrap-server", self.sasl_bootstrap, "--command-config", str(self.client_config))
        return await self.tool("org.apache.kafka.tools.DelegationTokenCommand", *at, *words)

    async def reassign(self, moves: Mapping[tuple[str, int], list[int]]) -> None:
        """Move replicas, and wait until they have moved."""
        plan = self.directory / "moves.json"
        partitions = [{"topic": t, "partition": p, "replicas": ids} for (t, p), ids in moves.items()]
        plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
        name = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
        words = (name, "--reassignment-json-file", str(plan))
        await self._at_brokers(*words, "--execute", "--throttle", "10000000")
        for _ in waiting("the replicas did not move"):
            if "still in progress" not in await self._at_brokers(*words, "--verify"):
                return


def waiting(what: str) -> Iterator[None]:
    """Yield again and again, for `WAIT_S` seconds, then fail: the body of the loop leaves it when it has what it needs."""
    ends_s = time.monotonic() + WAIT_S
    while time.monotonic() < ends_s:
        yield
    raise KafkaFailed(f"after {WAIT_S:g} s: {what}")
