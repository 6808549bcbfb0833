"""Real brokers with records: written to leaders, read back from them, and kept through the deaths and stops of brokers."""

import asyncio
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from quorum_rpc.v1 import partition_pb2, partition_pb2_grpc

from metadata_log.format.batch import decode_all
from metadata_log.format.data_batch import DataRecord, decode_data, pack_records
from metadata_log.format.errors import ErrorCode
from quorum.devcluster.cluster import DevCluster
from quorum.devcluster.process import exit_code
from service_kit.rpc.refusals import Refusal
from tests.processes.conftest import BROKER_SETTINGS, CONTROLLER_SETTINGS, Cluster, said, until

pytestmark = [pytest.mark.processes, pytest.mark.slow]

PARTITIONS = 6
NONE = ErrorCode.NONE.value


class Store:
    """A small client of one topic: it asks the leader that the controllers name, and asks again after any error."""

    def __init__(self, cluster: Cluster, topic_id: bytes) -> None:
        self.cluster = cluster
        self.topic_id = topic_id
        self.acknowledged: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
        self._channels: dict[str, grpc.aio.Channel] = {}

    def stub(self, broker_id: int) -> Any:
        target = self.cluster.brokers[broker_id].endpoint
        if target not in self._channels:
            self._channels[target] = grpc.aio.insecure_channel(target)
        return partition_pb2_grpc.PartitionServiceStub(self._channels[target])  # type: ignore[no-untyped-call]

    async def close(self) -> None:
        for each in self._channels.values():
            await each.close()

    async def leaders(self) -> dict[int, int]:
        """The leader of each partition."""
        described = await self.cluster.client.describe_topics(["orders"])
        return {each.partition: each.leader_id for each in described.topics[0].partitions if each.HasField("leader_id")}

    async def isrs(self) -> dict[int, set[int]]:
        described = await self.cluster.client.describe_topics(["orders"])
        return {each.partition: set(each.isr) for each in described.topics[0].partitions}

    def place(self, partition: int) -> partition_pb2.TopicIdPartition:
        return partition_pb2.TopicIdPartition(topic_id=self.topic_id, partition=partition)

    async def append(self, partition: int, value: bytes, leader: int, acks: int = -1) -> partition_pb2.AppendResult:
        """Appends one record. Raises AioRpcError."""
        packed = pack_records([DataRecord(1_000, None, value)])
        batch = partition_pb2.PartitionBatch(partition=self.place(partition), record_count=1, records=packed.packed)
        request = partition_pb2.AppendRequest(acks=acks, timeout_ms=2_000, batches=[batch])
        response = await self.stub(leader).Append(request, timeout=5)
        return response.results[0]  # type: ignore[no-any-return]

    async def write(self, partition: int, value: bytes, within_s: float = 30) -> None:
        """Appends one record with acks=all until a leader has acknowledged it, and notes it."""

        async def probe() -> bool | None:
            leader = (await self.leaders()).get(partition)
            if leader is None:
                return None
            try:
                result = await self.append(partition, value, leader)
            except grpc.aio.AioRpcError:
                return None
            return True if result.error.code == NONE else None

        await until(probe, within_s)
        self.acknowledged[partition].append(value)

    async def read(self, partition: int, leader: int) -> list[bytes]:
        """All committed values of a partition, from its leader."""
        found: list[bytes] = []
        offset = 0
        while True:
            request = partition_pb2.FetchRecordsRequest(session_epoch=-1, max_bytes=1 << 20)
            request.partitions.add(partition=self.place(partition), offset=offset)
            response = await self.stub(leader).FetchRecords(request, timeout=5)
            answer = response.partitions[0]
            assert answer.error.code == NONE, answer
            if offset >= answer.high_watermark:
                return found
            for batch in decode_all(answer.batches):
                for at, record in enumerate(decode_data(batch), batch.base_offset):
                    if offset <= at < answer.high_watermark:
                        found.append(record.value or b"")
                offset = batch.end_offset

    async def read_all(self, partition: int, within_s: float = 30) -> list[bytes]:
        """All committed values, from whoever leads."""

        async def probe() -> list[bytes] | None:
            leader = (await self.leaders()).get(partition)
            try:
                return None if leader is None else await self.read(partition, leader)
            except (grpc.aio.AioRpcError, AssertionError):
                return None

        return await until(probe, within_s)

    async def assert_nothing_lost(self) -> None:
        """Every acknowledged value is there, in the order of its acknowledgement."""
        for partition, values in self.acknowledged.items():
            found = await self.read_all(partition)
            wanted = set(values)
            first_times = list(dict.fromkeys(value for value in found if value in wanted))
            assert first_times == values, (partition, len(values), len(found))

    async def full_isrs(self, within_s: float = 45) -> None:
        async def probe() -> bool | None:
            return True if all(len(isr) == 3 for isr in (await self.isrs()).values()) else None

        await until(probe, within_s)


@asynccontextmanager
async def store(tmp_path: Path, **broker_settings: str) -> AsyncIterator[Store]:
    """Three controllers, three brokers with records, and the topic `orders` with three replicas and min ISR 2."""
    settings = {**BROKER_SETTINGS, "replica.lag.time.max.ms": "3000", **broker_settings}
    dev = DevCluster.create(
        tmp_path / "cluster",
        controllers=3,
        brokers=3,
        data_plane="partitions",
        controller_settings={**CONTROLLER_SETTINGS},
        broker_settings=settings,
    )
    cluster = Cluster(dev)
    try:
        await dev.up(30)
        await cluster.client.create_topic("orders", PARTITIONS, 3, configs={"min.insync.replicas": "2"})
        described = await cluster.client.describe_topics(["orders"])
        the_store = Store(cluster, described.topics[0].topic_id)
        try:
            yield the_store
        finally:
            await the_store.close()
    finally:
        try:
            await cluster.client.close()
        finally:
            await dev.down(0)


async def test_records_with_acks_all_are_read_back_from_each_leader(tmp_path: Path) -> None:
    """One topic, three replicas: what was acknowledged is there, on all three brokers."""
    async with store(tmp_path) as orders:
        for number in range(5):
            await asyncio.gather(
                *(orders.write(partition, b"%d-%d" % (partition, number)) for partition in range(PARTITIONS))
            )
        await orders.full_isrs()
        assert len(set((await orders.leaders()).values())) == 3
        for partition in range(PARTITIONS):
            assert await orders.read_all(partition) == orders.acknowledged[partition]


async def test_a_killed_leader_loses_no_acknowledged_record(tmp_path: Path) -> None:
    """kill -9 of the leader of some partitions in the middle of appends; it comes back, and its ISRs are full again."""
    async with store(tmp_path) as orders:
        async with writing(orders):
            await until(lambda: _some(orders, 60))
            victim = (await orders.leaders())[0]
            await orders.cluster.ends(orders.cluster.brokers[victim])
            so_far = sum(map(len, orders.acknowledged.values()))
            await until(lambda: _some(orders, so_far + 60))
            orders.cluster.dev.start(f"broker-{victim}")
            await orders.cluster.online(victim)
            await orders.full_isrs()
        await orders.assert_nothing_lost()


@asynccontextmanager
async def writing(orders: Store) -> AsyncIterator[None]:
    """Appends to every partition, one record after the other, inside of the block."""
    stop = asyncio.Event()

    async def write(partition: int) -> None:
        number = 0
        while not stop.is_set():
            await orders.write(partition, b"%d-%d" % (partition, number))
            number += 1

    writers = [asyncio.create_task(write(partition)) for partition in range(PARTITIONS)]
    try:
        yield
    finally:
        stop.set()
        await asyncio.gather(*writers)


async def _some(orders: Store, count: int) -> bool | None:
    return True if sum(map(len, orders.acknowledged.values())) >= count else None


async def test_a_clean_restart_returns_to_isrs_and_leaderships(tmp_path: Path) -> None:
    """SIGTERM under appends: the leaderships move away first, and the broker serves them until then. The next process is in sync
    again, and leads again by preferred election.
    """
    async with store(tmp_path) as orders:
        async with writing(orders):
            await until(lambda: _some(orders, 30))
            await orders.full_isrs()
            before = await orders.leaders()
            victim = before[0]
            assert await orders.cluster.ends(orders.cluster.brokers[victim], signal.SIGTERM) == 0
            so_far = sum(map(len, orders.acknowledged.values()))
            await until(lambda: _some(orders, so_far + 30))
            assert victim not in (await orders.leaders()).values()
            orders.cluster.dev.start(f"broker-{victim}")
            await orders.full_isrs()
            await orders.cluster.client.elect_leaders({"orders": range(PARTITIONS)})
            await until(lambda: _leads(orders, before))
        await orders.assert_nothing_lost()


async def test_a_broker_whose_last_log_directory_is_gone_ends(tmp_path: Path) -> None:
    """With exit code 1 and the reason; the others lead, and have every acknowledged record."""
    async with store(tmp_path) as orders:
        for partition in range(PARTITIONS):
            await orders.write(partition, b"first")
        victim = (await orders.leaders())[0]
        node = orders.cluster.brokers[victim]
        pid = orders.cluster.dev.pid(node.name)
        assert pid is not None
        shutil.rmtree(node.log_directory)
        for partition in range(PARTITIONS):
            await orders.write(partition, b"second")
        await orders.cluster.dev.wait_until_gone(node.name, 15)

        assert exit_code(pid) == 1
        (reason,) = [line["reason"] for line in said(node) if line["event"] == "gave up"]
        assert "log director" in reason
        await orders.assert_nothing_lost()


async def _leads(orders: Store, wanted: dict[int, int]) -> bool | None:
    return True if await orders.leaders() == wanted else None


async def test_a_stopped_broker_that_wakes_after_its_session_answers_nothing_as_leader(tmp_path: Path) -> None:
    """SIGSTOP, a session later SIGCONT: calls that wait in the broker, and calls that come, are refused until it has a lease."""
    async with store(tmp_path) as orders:
        await orders.write(0, b"first")
        victim = (await orders.leaders())[0]
        fetch = partition_pb2.FetchRecordsRequest(session_epoch=-1, max_wait_ms=500, min_bytes=1 << 20)
        fetch.partitions.add(partition=orders.place(0), offset=1)
        parked = asyncio.ensure_future(orders.stub(victim).FetchRecords(fetch, timeout=60))
        await asyncio.sleep(0.2)  # the fetch waits in the broker now
        orders.cluster.dev.kill(f"broker-{victim}", signal.SIGSTOP)
        written = asyncio.ensure_future(orders.append(0, b"late", victim))

        async def moved() -> bool | None:
            return True if (await orders.leaders()).get(0) not in (None, victim) else None

        await until(moved, 30)
        await orders.write(0, b"second")
        orders.cluster.dev.kill(f"broker-{victim}", signal.SIGCONT)
        for call in (parked, written):
            try:
                answer = await call
            except grpc.aio.AioRpcError as e:
                refusal = Refusal.of(e)
                assert refusal is None or refusal.reason == "BROKER_NOT_AVAILABLE", e
            else:
                result = answer if isinstance(answer, partition_pb2.AppendResult) else answer.partitions[0]
                code = result.error.code
                assert code != NONE, "an answer as leader without a lease"
        await orders.assert_nothing_lost()
