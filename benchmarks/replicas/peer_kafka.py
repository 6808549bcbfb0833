"""Apache Kafka as the peer: one controller and three brokers (KRaft) on loopback, and Kafka's own producers.

Each node is a Java process with a small heap. The one controller is in Kafka's favour: the product beside it runs three. Kafka's
brokers acknowledge from the page cache by default; a topic with `flush.messages` 1 flushes before it acknowledges, as the broker
setting `log.flush.interval.messages=1` does for all topics.
"""

import asyncio
import base64
import contextlib
import os
import re
import signal
import statistics
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.replicas.figures import Latency, Recovery, Throughput, percentile, recovery_of
from benchmarks.replicas.kafka_jars import find_jars
from quorum.devcluster.layout import free_ports

BROKERS = (1, 2, 3)
CONTROLLER = 100
HEAP = "-Xmx384m"
CLIENT_HEAP = "-Xmx256m"
START_S = 180.0
PROBE = Path(__file__).with_name("RecoveryProbe.java")
PACED = Path(__file__).with_name("PacedProducer.java")
PRODUCERS = 2
WINDOW_S = 5
"""How often Kafka's tool prints its rate."""
WARM_UP_S = 3.0
ENDLESS = 1_000_000_000
_WINDOW = re.compile(
    r"^\d+ records sent, ([\d.]+) records/sec \([\d.]+ MB/sec\), [\d.]+ ms avg latency, [\d.]+ ms max latency\.$"
)
_OPEN_LOG = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"


class KafkaError(Exception):
    """A command or a node of Kafka failed; the message has its last words."""


class KafkaCluster:
    """`async with KafkaCluster(directory)`: up inside the block, gone after it."""

    def __init__(self, directory: Path) -> None:
        self._classpath = f"{find_jars()}/*"
        self._directory = directory
        self._controller_port, *ports = free_ports(1 + len(BROKERS))
        self._ports = dict(zip(BROKERS, ports, strict=True))
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._cluster_id = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports)

    async def __aenter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        try:
            nodes = (CONTROLLER, *BROKERS)
            for node in nodes:
                self._config(node).write_text(self._settings(node))
            formats = [
                ("kafka.tools.StorageTool", "format", "-t", self._cluster_id, "-c", str(self._config(node)))
                for node in nodes
            ]
            await asyncio.gather(*(self._run(*words) for words in formats))
            for node in nodes:
                self._start(node)
            await self._until_up()
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    def _config(self, node: int) -> Path:
        return self._directory / f"node-{node}.properties"

    def _settings(self, node: int) -> str:
        is_controller = node == CONTROLLER
        name, port = ("CONTROLLER", self._controller_port) if is_controller else ("CLIENT", self._ports[node])
        return "\n".join(
            (
                f"process.roles={'controller' if is_controller else 'broker'}",
                f"node.id={node}",
                f"controller.quorum.voters={CONTROLLER}@127.0.0.1:{self._controller_port}",
                "controller.listener.names=CONTROLLER",
                "listener.security.protocol.map=CONTROLLER:PLAINTEXT,CLIENT:PLAINTEXT",
                f"listeners={name}://127.0.0.1:{port}",
                *([] if is_controller else ["inter.broker.listener.name=CLIENT"]),
                f"log.dirs={self._directory}/data-{node}",
                "offsets.topic.replication.factor=1",
                "auto.create.topics.enable=false",
                "min.insync.replicas=2",
                "",
            )
        )

    def _start(self, node: int) -> None:
        command = [
            "java",
            HEAP,
            "-XX:+UseG1GC",
            _OPEN_LOG,
            "-cp",
            self._classpath,
            "kafka.Kafka",
            str(self._config(node)),
        ]
        with (self._directory / f"node-{node}.log").open("ab") as log:
            self._processes[node] = subprocess.Popen(command, stdout=log, stderr=log)

    async def _until_up(self) -> None:
        """Waits until every broker takes connections and a client lists the topics."""
        ends_s = time.monotonic() + START_S
        while time.monotonic() < ends_s:
            for node, process in self._processes.items():
                if process.poll() is not None:
                    raise KafkaError(f"Kafka's node {node} ended: {self._last_words(node)}")
            with contextlib.suppress(OSError):
                for port in self._ports.values():
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                await self._topics("--list")
                return
            await asyncio.sleep(0.2)
        raise KafkaError(f"Kafka is not up after {START_S:g} s: {self._last_words(BROKERS[0])}")

    def _last_words(self, node: int) -> str:
        return " ".join((self._directory / f"node-{node}.log").read_text(errors="replace").split())[-500:]

    async def _topics(self, *words: str) -> str:
        return await self._run(
            CLIENT_HEAP, "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", self.bootstrap, *words
        )

    async def create_topic(self, name: str, partitions: int, *, flushes: bool) -> None:
        """A topic with three replicas. `flushes`: a broker flushes before it acknowledges."""
        words = ["--create", "--topic", name, "--partitions", str(partitions), "--replication-factor", "3"]
        await self._topics(*words, *(["--config", "flush.messages=1"] if flushes else []))

    async def create_led_by(self, name: str, partitions: int, leader: int, *, flushes: bool) -> None:
        """A topic whose partitions all have `leader` as their first replica."""
        one, other = (node for node in BROKERS if node != leader)
        pairs = (f"{leader}:{one}:{other}", f"{leader}:{other}:{one}")
        assignment = ",".join(pairs[i % 2] for i in range(partitions))
        words = ["--create", "--topic", name, "--replica-assignment", assignment]
        await self._topics(*words, *(["--config", "flush.messages=1"] if flushes else []))

    async def _run(self, *words: str) -> str:
        """Runs a tool of Kafka, and returns its output."""
        process = await asyncio.create_subprocess_exec(
            *self._java(), *words,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            output, errors = await process.communicate()
        except BaseException:
            process.kill()
            raise
        if process.returncode:
            raise KafkaError(f"{words[0]} failed: {(errors or output).decode(errors='replace')[-500:]}")
        return output.decode()

    async def throughput(self, topic: str, record_bytes: int, *, batch_records: int, windows: int) -> Throughput:
        """`PRODUCERS` processes of Kafka's own tool at full speed, which prints its rate every 5 s. The first rate of a process
        is not counted: the process is still cold."""
        batch_bytes = batch_records * (record_bytes + 8) + 61
        words = (
            "--topic",
            topic,
            "--record-size",
            str(record_bytes),
            "--num-records",
            str(ENDLESS),
            "--throughput",
            "-1",
        )
        settings = (f"bootstrap.servers={self.bootstrap}", "acks=all", f"batch.size={batch_bytes}", "linger.ms=5")
        command = ("org.apache.kafka.tools.ProducerPerformance", *words, "--producer-props", *settings)
        rates = await asyncio.gather(*(self._windows(command, windows) for _ in range(PRODUCERS)))
        rate = sum(rates)
        return Throughput(rate, rate * record_bytes / 1e6)

    async def _windows(self, command: Sequence[str], windows: int) -> float:
        """Runs one producer for the first and `windows` more windows; returns its records a second."""
        process = await asyncio.create_subprocess_exec(
            *self._java(), *command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        rates: list[float] = []
        try:
            async with asyncio.timeout(START_S + WINDOW_S * windows):
                while len(rates) <= windows:
                    line = await process.stdout.readline()
                    if not line:
                        raise KafkaError("Kafka's producer ended before its time")
                    if match := _WINDOW.match(line.decode()):
                        rates.append(float(match[1]))
        finally:
            process.kill()
            await process.wait()
        return statistics.mean(rates[1:])

    async def paced(
        self, topic: str, partitions: int, record_bytes: int, *, per_second: int, seconds: float
    ) -> Latency:
        """Single records at a fixed rate, of all producers together, each record sent at once."""
        rate = per_second / PRODUCERS
        words = (self.bootstrap, topic, partitions, rate, WARM_UP_S, seconds, record_bytes)
        outputs = await asyncio.gather(*(self._run(str(PACED), *map(str, words)) for _ in range(PRODUCERS)))
        took_ms = [int(line) / 1_000 for output in outputs for line in output.split()]
        return Latency(percentile(took_ms, 50), percentile(took_ms, 99))

    def _java(self) -> tuple[str, ...]:
        return ("java", CLIENT_HEAP, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", self._classpath)

    async def recovery(self, topic: str, partitions: int, leader: int) -> Recovery:
        """Kills `leader` with SIGKILL while one producer sends to every partition, and waits until all acknowledge again."""
        survivors = ",".join(f"127.0.0.1:{port}" for node, port in self._ports.items() if node != leader)
        process = await asyncio.create_subprocess_exec(
            *self._java(), str(PROBE), survivors, topic, str(partitions),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        try:
            async with asyncio.timeout(START_S):
                while (line := await process.stdout.readline()) != b"ready\n":
                    if not line:
                        raise KafkaError("the probe of Kafka's recovery ended before it was ready")
                await asyncio.sleep(1)
                self._processes[leader].send_signal(signal.SIGKILL)
                process.stdin.write(b"%d\n" % int(time.time() * 1_000))
                output, _ = await process.communicate()
        except BaseException:
            process.kill()
            raise
        return recovery_of([int(line) / 1_000 for line in output.split()])
