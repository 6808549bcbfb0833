"""The own producer of `benchmarks.replicas`: the leaders that it finds, and the requests that it counts."""

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from benchmarks.replicas import our_producer
from clients.metadata.cluster import Cluster, ClusterNode, PartitionView, TopicPartition
from clients.partition_calls import GrpcPartitionCalls
from metadata_log.format.data_batch import DataRecord, ProducerStamp, pack_records

NODE = ClusterNode(0, "b0", 9092)
VIEW = Cluster(
    nodes={0: NODE},
    partitions={TopicPartition("orders", 0): PartitionView("orders", 0, 0, 1)},
    topic_ids={"orders": bytes(16)},
)


class Paced(our_producer.Producer):
    """Takes its number as its time. The five requests of the warm-up are answered last."""

    def __init__(self) -> None:
        super().__init__(VIEW, "orders", cast(GrpcPartitionCalls, None), pack_records([DataRecord(0, None, b"")]))
        self.count = 0
        self.are_counted_answered = asyncio.Event()

    async def append(self, node: ClusterNode, partitions: Sequence[PartitionView], stamp: ProducerStamp) -> float:
        self.count += 1
        number = self.count
        if number <= 5:
            await self.are_counted_answered.wait()
        elif number == 15:
            self.are_counted_answered.set()
        return float(number)


async def test_the_warm_up_is_what_was_sent_first_and_not_what_was_answered_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(our_producer, "WARM_UP_S", 0.005)
    count, took = await Paced().at_rate(1_000, 0.01)
    assert (count, took) == (10, [float(number) for number in range(6, 16)])


async def test_broker_0_leads_as_others_do() -> None:
    assert list(Paced().led()) == [NODE]
