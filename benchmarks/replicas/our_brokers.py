"""Three quorumd and three brokerd with `broker.data.plane: partitions` on loopback, beside the peer."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from quorum_rpc.v1 import admin_pb2

from benchmarks.replicas.figures import Latency, Recovery, Throughput, percentile, recovery_of
from benchmarks.replicas.our_recovery import OurRecoveryProbe
from clients.metadata_client import MetadataClient
from clients.partition_calls import GrpcPartitionCalls
from quorum.devcluster.cluster import DevCluster

READY_S = 60.0
PRODUCERS = 2


class OurBrokers:
    """`async with OurBrokers(directory)`: up inside the block, gone after it."""

    def __init__(self, directory: Path) -> None:
        self._cluster = DevCluster.create(directory, controllers=3, brokers=3, data_plane="partitions")
        self.brokers = [node.node_id for node in self._cluster.layout.brokers]

    async def __aenter__(self) -> Self:
        await self._cluster.up()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._cluster.down()

    def _bootstrap(self, without: int | None = None) -> str:
        return ",".join(node.endpoint for node in self._cluster.layout.brokers if node.node_id != without)

    async def create_topic(self, name: str, partitions: int) -> None:
        """A topic with three replicas."""
        await self._create(admin_pb2.NewTopic(name=name, partitions=partitions, replication_factor=3))

    async def create_led_by(self, name: str, partitions: int, leader: int) -> None:
        """A topic whose partitions all have `leader` as their first replica."""
        one, other = (each for each in self.brokers if each != leader)
        pairs = ((leader, one, other), (leader, other, one))
        lists = [admin_pb2.ReplicaList(broker_ids=pairs[i % 2]) for i in range(partitions)]
        await self._create(admin_pb2.NewTopic(name=name, assignment=lists))

    async def _create(self, topic: admin_pb2.NewTopic) -> None:
        topic.configs.append(admin_pb2.ConfigEntry(key="min.insync.replicas", value="2"))
        async with self._cluster.client(30) as admin:
            created = await admin.create_topics([topic])
            assert not created.results[0].error.code, created.results[0].error
        await self._until_acknowledged(topic.name, created.results[0].partitions)

    async def _until_acknowledged(self, topic: str, partitions: int) -> None:
        calls = GrpcPartitionCalls()
        async with MetadataClient(self._bootstrap()) as client:
            await client.wait_for(topic, partition=0, max_wait_s=READY_S)
            await OurRecoveryProbe(client, calls, topic, partitions).until_all(READY_S)
        await calls.close()

    async def throughput(self, topic: str, record_bytes: int, *, batch_records: int, seconds: float) -> Throughput:
        """`PRODUCERS` processes at full speed."""
        words = ("--record-bytes", f"{record_bytes}", "--batch-records", f"{batch_records}", "--seconds", f"{seconds}")
        rate = sum(float(found["records_per_s"]) for found in await self._produce(topic, words))
        return Throughput(rate, rate * record_bytes / 1e6)

    async def paced(self, topic: str, record_bytes: int, *, per_second: int, seconds: float) -> Latency:
        """Single records at a fixed rate, of all producers together, each record sent at once."""
        size = ("--record-bytes", f"{record_bytes}", "--batch-records", "1")
        pace = ("--seconds", f"{seconds}", "--rate", f"{per_second / PRODUCERS}")
        took_ms = [each for found in await self._produce(topic, (*size, *pace)) for each in found["took_ms"]]
        return Latency(percentile(took_ms, 50), percentile(took_ms, 99))

    async def _produce(self, topic: str, words: Sequence[str]) -> list[dict[str, Any]]:
        """Runs the producers; returns the figures that they have printed."""
        command = (sys.executable, "-m", "benchmarks.replicas.our_producer", self._bootstrap(), topic, *words)
        processes = [await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE) for _ in range(PRODUCERS)]
        outputs = [(await process.communicate())[0] for process in processes]
        if any(process.returncode for process in processes):
            raise RuntimeError("a producer of the benchmark failed; its error is above")
        return [json.loads(output) for output in outputs]

    async def recovery(self, topic: str, partitions: int, leader: int) -> Recovery:
        """Kills `leader` with SIGKILL while one client sends to every partition, and waits until all acknowledge again."""
        calls = GrpcPartitionCalls()
        async with MetadataClient(self._bootstrap(without=leader)) as client:
            await client.wait_for(topic, partition=0, max_wait_s=READY_S)
            probe = OurRecoveryProbe(client, calls, topic, partitions)
            await probe.until_all(READY_S)
            self._cluster.kill(next(node.name for node in self._cluster.layout.brokers if node.node_id == leader))
            took = await probe.until_all(READY_S)
        await calls.close()
        return recovery_of(list(took.values()))
