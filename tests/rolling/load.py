"""The load of a rolling restart: producers at a steady rate, and one consumer that reads all of it from the beginning.

Every record has a time at which it is *due*. A late producer counts against the cluster:

    1. Record 7 is due at 70 ms. Its producer waits for metadata until 170 ms, and then sends record 7.
    2. The leader acknowledges record 7 at 180 ms. The append took 110 ms, not 10 ms.
"""

import asyncio
import time
from collections.abc import Iterable
from functools import partial
from typing import Final

from metaquorum import (
    Consumer,
    ConsumerConfig,
    MayHaveBeenWritten,
    Producer,
    ProducerConfig,
    RecordMetadata,
    TopicPartition,
)
from tests.chaos.data.history import Fate, Send
from tests.rolling.notes import Notes

LOOK_S: Final = 0.02
READ_WITHIN_S: Final = 60.0
PAUSE_S_MAX: Final = 0.05
"""Maximum pause of a producer, so that a stop is noticed."""


class Load:
    """Producers and a consumer of one topic, from `start` to `stop`."""

    def __init__(self, brokers: Iterable[str], topic: str, partitions: int, per_second: float, producers: int) -> None:
        """`per_second`: records of all producers together."""
        self.notes = Notes(partitions)
        self._brokers = list(brokers)
        self._topic = topic
        self._partitions = partitions
        self._gap_ns = int(producers / per_second * 1e9)
        self._producers = producers
        self._is_stopping = asyncio.Event()
        self._writing: list[asyncio.Task[None]] = []
        self._reading: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._reading = asyncio.create_task(self._consume(), name="consumer of the load")
        names = [f"p{number}" for number in range(1, self._producers + 1)]
        self._writing = [asyncio.create_task(self._produce(name), name=f"producer {name}") for name in names]

    async def goes_on(self, records: int, within_s: float = READ_WITHIN_S) -> None:
        """Waits until so many further records were acknowledged, and as many have been read. Raises TimeoutError."""
        wanted = self.notes.totals.acknowledged + records
        async with asyncio.timeout(within_s):
            while min(self.notes.totals) < wanted:
                self._raise_failure()
                await asyncio.sleep(LOOK_S)

    async def stop(self) -> None:
        """Ends the producers; waits until the consumer has read every acknowledged record, or has had a minute for this.

        The judge counts a record as lost that the consumer has not read by then.
        """
        self._is_stopping.set()
        await asyncio.gather(*self._writing)
        deadline_s = time.monotonic() + READ_WITHIN_S
        while self.notes.unread() and time.monotonic() < deadline_s:
            self._raise_failure()
            await asyncio.sleep(LOOK_S)
        await self.abandon()

    async def abandon(self) -> None:
        """Ends all tasks at once."""
        tasks = [*self._writing, *([self._reading] if self._reading is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _produce(self, name: str) -> None:
        async with Producer(self._brokers, config=ProducerConfig(acks="all")) as producer:
            due_ns, number = time.monotonic_ns(), 0
            while not self._is_stopping.is_set():
                wait_s = (due_ns - time.monotonic_ns()) / 1e9
                if wait_s > 0:
                    await asyncio.sleep(min(wait_s, PAUSE_S_MAX))
                    continue
                await self._send(producer, name, number, due_ns)
                due_ns, number = due_ns + self._gap_ns, number + 1

    async def _send(self, producer: Producer, name: str, number: int, due_ns: int) -> None:
        """Puts one record into the producer; its end is noted when it comes."""
        partition, value = number % self._partitions, f"{name}-{number}"
        send = Send(name, partition, (value,), time.monotonic_ns(), 0, Fate.UNKNOWN)
        self.notes.sent()
        sent = await producer.enqueue(self._topic, value.encode(), partition=partition)
        sent.add_done_callback(partial(self._ended, send, due_ns))

    def _ended(self, send: Send, due_ns: int, sent: asyncio.Future[RecordMetadata]) -> None:
        send = send._replace(ended_ns=time.monotonic_ns())
        error = None if sent.cancelled() else sent.exception()
        if sent.cancelled() or error is not None:
            may_be_written = sent.cancelled() or isinstance(error, MayHaveBeenWritten)
            self.notes.failed(send, may_be_written=may_be_written)
            return
        offset = sent.result().offset
        assert offset is not None, "acks=all tells the offset"
        self.notes.acknowledged(send, offset, due_ns)

    async def _consume(self) -> None:
        config = ConsumerConfig(auto_offset_reset="earliest")
        async with Consumer(self._brokers, config=config) as consumer:
            consumer.assign([TopicPartition(self._topic, number) for number in range(self._partitions)])
            async for record in consumer:
                if not self.notes.read(record.partition, record.offset, (record.value or b"").decode()):
                    return

    def _raise_failure(self) -> None:
        """Raises the error of a task that has failed: no client may stop by itself."""
        for task in (*self._writing, self._reading):
            if task is not None and task.done() and not task.cancelled():
                task.result()
