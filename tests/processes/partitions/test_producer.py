"""The `Producer` with real brokers, which are killed, stopped and frozen while it sends: each record once, in order."""

import asyncio
import signal
from pathlib import Path

import pytest

from metaquorum import Producer, ProducerConfig, RecordMetadata, SendError
from tests.processes.conftest import until
from tests.processes.partitions.test_brokers import PARTITIONS, Store, store

pytestmark = [pytest.mark.processes, pytest.mark.slow]

CONFIG = ProducerConfig(linger_ms=2, request_timeout_ms=3_000, delivery_timeout_ms=90_000)


class Sending:
    """Tasks that send numbered records to each partition, many at a time, until they are stopped."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._stop = asyncio.Event()
        self.acknowledged: dict[int, list[tuple[bytes, RecordMetadata]]] = {number: [] for number in range(PARTITIONS)}
        self.errors: list[SendError] = []
        self._tasks = [asyncio.create_task(self._send_to(partition)) for partition in range(PARTITIONS)]

    async def _send_to(self, partition: int) -> None:
        number = 0
        while not self._stop.is_set():
            values = [b"%d-%d" % (partition, number + i) for i in range(20)]
            number += 20
            futures = [await self._producer.enqueue("orders", value, partition=partition) for value in values]
            for value, sent in zip(values, await asyncio.gather(*futures, return_exceptions=True), strict=True):
                if isinstance(sent, SendError):
                    self.errors.append(sent)
                else:
                    assert isinstance(sent, RecordMetadata)
                    self.acknowledged[partition].append((value, sent))

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    async def more(self, records: int = 500) -> None:
        """Waits until each partition has more records."""
        wanted = {partition: len(each) + records // PARTITIONS for partition, each in self.acknowledged.items()}

        async def probe() -> bool | None:
            return True if all(len(self.acknowledged[number]) >= least for number, least in wanted.items()) else None

        await until(probe, 60)

    async def end(self) -> None:
        self._stop.set()
        await asyncio.gather(*self._tasks)


async def check(orders: Store, sending: Sending) -> None:
    """Every acknowledged record is at its offset, and no record is there twice."""
    for partition, acknowledged in sending.acknowledged.items():
        found = await orders.read_all(partition)
        assert len(set(found)) == len(found), f"orders-{partition} has a record twice"
        offsets = [sent.offset or 0 for _, sent in acknowledged]
        assert offsets == sorted(offsets)
        for value, sent in acknowledged:
            assert sent.offset is not None and found[sent.offset] == value
    assert not sending.errors, "each fault is shorter than delivery_timeout_ms"


async def test_a_producer_outlives_the_death_the_stop_and_the_freezing_of_leaders(tmp_path: Path) -> None:
    async with store(tmp_path) as orders:
        bootstrap = [broker.endpoint for broker in orders.cluster.brokers.values()]
        async with Producer(bootstrap, config=CONFIG) as producer:
            sending = Sending(producer)
            await sending.more()

            victim = (await orders.leaders())[0]
            await orders.cluster.ends(orders.cluster.brokers[victim])  # kill -9
            await sending.more()
            orders.cluster.dev.start(f"broker-{victim}")
            await orders.full_isrs()

            victim = (await orders.leaders())[1]
            await orders.cluster.ends(orders.cluster.brokers[victim], signal.SIGTERM)
            await sending.more()
            orders.cluster.dev.start(f"broker-{victim}")
            await orders.full_isrs()

            victim = (await orders.leaders())[2]
            orders.cluster.dev.kill(f"broker-{victim}", signal.SIGSTOP)
            await sending.more()
            orders.cluster.dev.kill(f"broker-{victim}", signal.SIGCONT)
            await sending.more()
            await sending.end()
        await check(orders, sending)
