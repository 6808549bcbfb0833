"""One producer process beside Kafka's: `python -m benchmarks.replicas.our_producer BROKERS TOPIC ...` prints its figures as JSON.

At full speed the process keeps one request under way to each leader, with one batch for each of its partitions, as an idempotent
producer does. At a fixed rate each record is a request of its own, sent at its time, however long the others take.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence

import uvloop

from clients.metadata.cluster import Cluster, ClusterNode, PartitionView
from clients.metadata_client import MetadataClient
from clients.partition_calls import GrpcPartitionCalls
from clients.partition_values import AppendBatch, AppendRequest, TopicIdPartition
from metadata_log.format.data_batch import NO_STAMP, DataRecord, ProducerStamp, RecordSet, pack_records
from metadata_log.format.errors import ErrorCode

ACKS_ALL = -1
TIMEOUT_MS = 30_000
WARM_UP_S = 3.0


class AppendRefused(Exception):
    """A batch was answered with an error. A load without faults has none."""


class Producer:
    """The calls of one process to the leaders of one topic."""

    def __init__(self, view: Cluster, topic: str, calls: GrpcPartitionCalls, records: RecordSet) -> None:
        self._topic_id = view.topic_ids[topic]
        self._calls = calls
        self._records = records
        self.partitions = view.partitions_by_topic[topic]
        self._leaders = {
            each.partition: view.node(each.leader_id) for each in self.partitions if each.leader_id is not None
        }

    def led(self) -> dict[ClusterNode, list[PartitionView]]:
        """The partitions, by leader."""
        found: dict[ClusterNode, list[PartitionView]] = {}
        for each in self.partitions:
            found.setdefault(self._leaders[each.partition], []).append(each)
        return found

    async def producer_id(self) -> int:
        return await self._calls.allocate_producer_id(next(iter(self._leaders.values())), 10)

    async def append(self, node: ClusterNode, partitions: Sequence[PartitionView], stamp: ProducerStamp) -> float:
        """One batch for each partition. Returns the seconds until the answer."""
        batches = tuple(
            AppendBatch(
                TopicIdPartition(self._topic_id, each.partition),
                None,
                stamp,
                self._records.record_count,
                self._records.packed,
            )
            for each in partitions
        )
        began = time.perf_counter()
        for result in await self._calls.append(
            node, AppendRequest(ACKS_ALL, TIMEOUT_MS, batches), TIMEOUT_MS / 1_000 + 5
        ):
            if result.code is not ErrorCode.NONE:
                raise AppendRefused(f"{result.place.partition}: {result.code.name} {result.message}")
        return time.perf_counter() - began

    async def at_full_speed(self, seconds: float) -> tuple[int, list[float]]:
        """Returns how many records were acknowledged, and how long each request took; the warm-up is not counted."""
        producer_id = await self.producer_id()
        start = time.perf_counter() + WARM_UP_S
        end = start + seconds
        count, took = self._records.record_count, list[float]()
        acknowledged = 0

        async def one(node: ClusterNode, partitions: list[PartitionView]) -> None:
            nonlocal acknowledged
            sequence = 0
            while time.perf_counter() < end:
                lasted = await self.append(node, partitions, ProducerStamp(producer_id, 0, sequence))
                sequence += count
                if start <= time.perf_counter() <= end:
                    took.append(lasted)
                    acknowledged += count * len(partitions)

        await asyncio.gather(*(one(node, partitions) for node, partitions in self.led().items()))
        return acknowledged, took

    async def at_rate(self, per_second: float, seconds: float) -> tuple[int, list[float]]:
        """As `at_full_speed`, with a request at each tick. The first ticks are the warm-up, in whichever order answers come."""
        warm_up, count = int(per_second * WARM_UP_S), int(per_second * (WARM_UP_S + seconds))
        began = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            sent = []
            for number in range(count):
                await asyncio.sleep(max(0.0, began + number / per_second - time.perf_counter()))
                sent.append(tasks.create_task(self._single(number)))
        took = [each.result() for each in sent[warm_up:]]
        return len(took), took

    async def _single(self, number: int) -> float:
        each = self.partitions[number % len(self.partitions)]
        return await self.append(self._leaders[each.partition], [each], NO_STAMP)


async def produce(arguments: argparse.Namespace) -> dict[str, float | list[float]]:
    record = DataRecord(time.time_ns() // 1_000_000, None, os.urandom(arguments.record_bytes))
    records = pack_records([record] * arguments.batch_records)
    calls = GrpcPartitionCalls()
    async with MetadataClient(arguments.brokers) as client:
        view = (await client.wait_for(arguments.topic, partition=0, max_wait_s=20)).cluster
        producer = Producer(view, arguments.topic, calls, records)
        work = (
            producer.at_rate(arguments.rate, arguments.seconds)
            if arguments.rate
            else producer.at_full_speed(arguments.seconds)
        )
        count, took = await work
    await calls.close()
    return {"records_per_s": count / arguments.seconds, "took_ms": [each * 1_000 for each in took]}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replicas.our_producer")
    parser.add_argument("brokers")
    parser.add_argument("topic")
    parser.add_argument("--record-bytes", type=int, default=100)
    parser.add_argument("--batch-records", type=int, default=100)
    parser.add_argument("--rate", type=float, default=0.0, help="records a second; 0: full speed")
    parser.add_argument("--seconds", type=float, default=5.0)
    print(json.dumps(uvloop.run(produce(parser.parse_args()))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
