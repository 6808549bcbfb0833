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
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.replicas.figures import Recovery, Throughput, recovery_of
from benchmarks.replicas.kafka_jars import find_jars
from quorum.devcluster.layout import free_ports

BROKERS = (1, 2, 3)
CONTROLLER = 100
HEAP = "-Xmx384m"
CLIENT_HEAP = "-Xmx256m"
START_S = 60.0
BUFFERED = 64
PROBE = Path(__file__).with_name("RecoveryProbe.java")
_LINE = re.compile(
    r"^(?P<records>\d+) records sent, (?P<rate>[\d.]+) records/sec .* ms avg latency, .* ms max latency, "
    r"(?P<p50>\d+) ms 50th, \d+ ms 95th, (?P<p99>\d+) ms 99th"
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
            await asyncio.gather(*(self._run(CLIENT_HEAP, *words) for words in formats))
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

    async def _run(self, heap: str, *words: str) -> str:
        """Runs a tool of Kafka, and returns its output."""
        process = await asyncio.create_subprocess_exec(
            "java", heap, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", self._classpath, *words,
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

    async def throughput(
        self, topic: str, record_bytes: int, *, batch_records: int, records: int, producers: int
    ) -> Throughput:
        """`producers` processes at full speed. Each holds at most `BUFFERED` batches, so that its queue is short."""
        batch_bytes = batch_records * (record_bytes + 8) + 61
        settings = (f"batch.size={batch_bytes}", f"buffer.memory={BUFFERED * batch_bytes}", "linger.ms=5")
        return await self._produce(topic, record_bytes, records, -1, producers, settings)

    async def paced(
        self, topic: str, record_bytes: int, *, per_second: int, seconds: float, producers: int
    ) -> Throughput:
        """Single records at a fixed rate, each sent at once."""
        return await self._produce(
            topic, record_bytes, int(per_second * seconds), per_second, producers, ("linger.ms=0",)
        )

    async def _produce(
        self, topic: str, record_bytes: int, records: int, rate: int, producers: int, settings: Sequence[str]
    ) -> Throughput:
        shared = ["--topic", topic, "--record-size", str(record_bytes), "--num-records", str(records // producers)]
        limits = ["--throughput", str(rate if rate < 0 else rate // producers)]
        properties = ["--producer-props", f"bootstrap.servers={self.bootstrap}", "acks=all", *settings]
        words = ("org.apache.kafka.tools.ProducerPerformance", *shared, *limits, *properties)
        outputs = await asyncio.gather(*(self._run(CLIENT_HEAP, *words) for _ in range(producers)))
        return combined(outputs, record_bytes)

    async def recovery(self, topic: str, partitions: int, leader: int) -> Recovery:
        """Kills `leader` with SIGKILL while one producer sends to every partition, and waits until all acknowledge again."""
        survivors = ",".join(f"127.0.0.1:{port}" for node, port in self._ports.items() if node != leader)
        process = await asyncio.create_subprocess_exec(
            "java", CLIENT_HEAP, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", self._classpath, str(PROBE),
            survivors, topic, str(partitions),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        try:
            async with asyncio.timeout(120):
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


def combined(outputs: Sequence[str], record_bytes: int) -> Throughput:
    """The figures of several producers that ran at the same time, of the last line that each has printed.

    The rates are added. The percentiles are those of the slowest producer.
    """
    found = [[match for line in output.splitlines() if (match := _LINE.match(line))] for output in outputs]
    if not all(found):
        raise KafkaError(f"no figures from Kafka's producer: {outputs}")
    last = [each[-1] for each in found]
    rate = sum(float(each["rate"]) for each in last)
    p50_ms, p99_ms = (max(float(each[key]) for each in last) for key in ("p50", "p99"))
    return Throughput(rate, rate * record_bytes / 1e6, p50_ms, p99_ms)
