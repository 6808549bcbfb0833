"""What a producer costs: its decisions alone, and the whole client with brokers that answer at once, in one process.

    python -m benchmarks.producer [RECORDS]

Records of 100 bytes go to 12 partitions of three brokers. The brokers append nothing, so the figures are those of the client.
They count CPU time, so other work on the machine does not matter.
"""

import asyncio
import random
import sys
from collections.abc import Awaitable, Callable
from time import process_time
from typing import Any

from clients.metadata.cluster import Cluster, ClusterNode, PartitionView, TopicPartition
from clients.metadata.updates import MetadataUpdate, TopicUpdate
from clients.metadata_client import MetadataClient
from clients.partition_values import Appended, AppendRequest
from clients.producer.config import ProducerConfig
from clients.producer.effects import AskProducerId, SendAppend
from clients.producer.producer_core import ProducerCore
from clients.producer_client import Producer
from metadata_log.format.data_batch import DataRecord, pack_record

PARTITIONS = 12
NODES = {number: ClusterNode(number, "127.0.0.1", 9090 + number) for number in (1, 2, 3)}
VIEWS = tuple(PartitionView("orders", number, 1 + number % 3, 1) for number in range(PARTITIONS))
CLUSTER = Cluster(nodes=NODES, partitions={view.key: view for view in VIEWS}, topic_ids={"orders": bytes(16)})


def answers(request: AppendRequest) -> tuple[Appended, ...]:
    return tuple(Appended(batch.place, base_offset=0) for batch in request.batches)


def pure(records: int) -> float:
    """CPU seconds that the decisions about so many records take: partition, pack, batch, send, answer."""
    core = ProducerCore(ProducerConfig(), random.Random(1))
    core.id_allocated(7)
    begin = process_time()
    for number in range(records):
        packed = pack_record(DataRecord(number, None, VALUE))
        partition = core.partition_for("orders", None, len(packed), CLUSTER)
        core.enqueue(TopicPartition("orders", partition), packed, number, number, number // 100)
        if number % 100 == 0:
            turn(core, number // 100)
    core.flush()
    while core.records.used_bytes:
        turn(core, records // 100)
    return process_time() - begin


def turn(core: ProducerCore, now_ms: int) -> None:
    for effect in core.step(CLUSTER, now_ms):
        assert not isinstance(effect, AskProducerId)
        if isinstance(effect, SendAppend):
            core.answered(effect.number, answers(effect.request), now_ms)


class Brokers:
    """Metadata and partitions without a network."""

    async def fetch(self, *_: Any) -> MetadataUpdate:
        return MetadataUpdate("bench", tuple(NODES.values()), (TopicUpdate("orders", bytes(16), VIEWS),), 1)

    async def append(self, node: ClusterNode, request: AppendRequest, timeout_s: float) -> tuple[Appended, ...]:
        await asyncio.sleep(0)
        return answers(request)

    async def allocate_producer_id(self, node: ClusterNode, timeout_s: float) -> int:
        return 7

    async def unused(self, *_: Any) -> Any:
        raise NotImplementedError("this benchmark only appends")

    describe = configs = list_offsets = epoch_ends = unused

    async def close(self) -> None:
        """Has nothing to close."""


async def enqueued(records: int) -> float:
    """CPU seconds for one task that enqueues all records, and then waits for all."""
    async with producer() as client:
        await client.send("orders", VALUE)
        begin = process_time()
        futures = [await client.enqueue("orders", VALUE) for _ in range(records)]
        await client.flush()
        assert all(each.done() for each in futures)
        return process_time() - begin


async def sent(records: int) -> float:
    """CPU seconds for 1,000 tasks, each of which sends one record after the other."""
    async with producer() as client:
        await client.send("orders", VALUE)

        async def task() -> None:
            for _ in range(records // 1_000):
                await client.send("orders", VALUE)

        begin = process_time()
        await asyncio.gather(*(task() for _ in range(1_000)))
        return process_time() - begin


def producer() -> "Started":
    return Started()


class Started:
    """A producer and its metadata client."""

    async def __aenter__(self) -> Producer:
        brokers: Any = Brokers()
        self.metadata = MetadataClient("127.0.0.1:9091", calls=brokers)
        await self.metadata.__aenter__()
        self.producer = Producer(metadata=self.metadata, calls=brokers)
        return await self.producer.__aenter__()

    async def __aexit__(self, *_: object) -> None:
        await self.producer.close()
        await self.metadata.close()


VALUE = bytes(100)


def run(records: int) -> None:
    works: dict[str, Callable[[], float]] = {
        "the decisions alone": lambda: pure(records),
        "enqueue, one task": lambda: asyncio.run(as_float(enqueued(records))),
        "send, 1,000 tasks": lambda: asyncio.run(as_float(sent(records))),
    }
    for name, work in works.items():
        seconds = min(work() for _ in range(3))
        print(f"{name:<24} {records / seconds:>10,.0f} records per CPU second   {seconds / records * 1e6:6.1f} us each")


async def as_float(work: Awaitable[float]) -> float:
    return await work


if __name__ == "__main__":
    run(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
