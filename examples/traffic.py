"""The traffic of the demo: a producer and a consumer that go on while daemons are killed, and the proof that nothing is lost.

The producer writes numbered records with acks=all, and notes each acknowledgement: partition and offset. The consumer reads all
partitions from their beginning, and notes each record. `compare` looks at the notes of both:

    1. The producer wrote b"17". The leader acknowledged offset 5 of partition 3.
    2. The consumer must have read offset 5 of partition 3 once, after offset 4, with the value b"17".
    3. A record without an acknowledgement may be there once, or not at all.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Final, NamedTuple

from evidence import until
from narrator import expect

from metaquorum import (
    Consumer,
    ConsumerConfig,
    MayHaveBeenWritten,
    NotWritten,
    Producer,
    ProducerConfig,
    RecordMetadata,
    TopicPartition,
)

TOPIC: Final = "orders"
PARTITIONS: Final = 12
PAUSE_S: Final = 0.02
"""The pause between two records: a steady trickle, so that the machine's cores are free for what the demo shows."""
KEYS: Final = 97


class Read(NamedTuple):
    """One record that the consumer has read."""

    partition: int
    offset: int
    value: bytes


class Totals(NamedTuple):
    """The notes of both sides, counted."""

    acknowledged: int
    unknown: int
    """Records that were sent and not acknowledged: each may be there once."""
    read: int


class Traffic:
    """One producer and one consumer, from `start` to `stop`."""

    def __init__(self, brokers: Iterable[str]) -> None:
        self._brokers = list(brokers)
        self._acknowledged: dict[tuple[int, int], bytes] = {}
        self._unknown: set[bytes] = set()
        self._read: list[Read] = []
        self._is_stopping = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._writing = asyncio.create_task(self._write(), name="producer of the demo")
        self._reading = asyncio.create_task(self._consume(), name="consumer of the demo")

    @property
    def totals(self) -> Totals:
        return Totals(len(self._acknowledged), len(self._unknown), len(self._read))

    async def goes_on(self, records: int) -> None:
        """Waits until so many further records were acknowledged, and all of them were read."""
        wanted = len(self._acknowledged) + records

        async def probe() -> bool | None:
            self._raise_failure()
            return True if min(len(self._acknowledged), len(self._read)) >= wanted else None

        await until(f"{wanted} records written and read", probe, 60, lambda: self.totals)

    async def stop(self) -> Totals:
        """Ends the producer, waits until the consumer has read every acknowledged record, and ends the consumer."""
        assert self._writing is not None and self._reading is not None
        self._is_stopping.set()
        await self._writing

        async def probe() -> bool | None:
            self._raise_failure()
            read = {(each.partition, each.offset) for each in self._read}
            return True if self._acknowledged.keys() <= read else None

        await until("every acknowledged record read", probe, 60, lambda: self.totals)
        await self.abandon()
        return self.totals

    async def abandon(self) -> None:
        """Ends both at once, if they run."""
        tasks = [task for task in (self._writing, self._reading) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def compare(self) -> None:
        """Checks that what was acknowledged was read: each offset once, in order. Raises DoesNotHold."""
        for partition in range(PARTITIONS):
            offsets = [each.offset for each in self._read if each.partition == partition]
            expect(
                offsets == list(range(len(offsets))), f"the offsets of partition {partition} once, in order", offsets
            )
        values = {(each.partition, each.offset): each.value for each in self._read}
        wrong = [place for place, value in self._acknowledged.items() if values.get(place) != value]
        expect(not wrong, "every acknowledged record at its offset", wrong[:3])
        twice = [value for value, count in Counter(values.values()).items() if count > 1]
        expect(not twice, "no record twice", twice[:3])
        strangers = set(values.values()) - set(self._acknowledged.values()) - self._unknown
        expect(not strangers, "no record that was never written", list(strangers)[:3])

    async def _write(self) -> None:
        async with Producer(self._brokers, config=ProducerConfig(acks="all", linger_ms=1)) as producer:
            number = 0
            while not self._is_stopping.is_set():
                value, key = str(number).encode(), str(number % KEYS).encode()
                self._unknown.add(value)
                sent = await producer.enqueue(TOPIC, value, key=key)
                sent.add_done_callback(partial(self._note, value))
                number += 1
                await asyncio.sleep(PAUSE_S)

    def _note(self, value: bytes, sent: asyncio.Future[RecordMetadata]) -> None:
        error = None if sent.cancelled() else sent.exception()
        if sent.cancelled() or isinstance(error, MayHaveBeenWritten):
            return  # the record stays among the unknown ones
        self._unknown.discard(value)
        if not isinstance(error, NotWritten):
            place = sent.result()
            assert place.offset is not None
            self._acknowledged[place.partition, place.offset] = value

    async def _consume(self) -> None:
        config = ConsumerConfig(auto_offset_reset="earliest")
        async with Consumer(self._brokers, config=config) as consumer:
            consumer.assign([TopicPartition(TOPIC, number) for number in range(PARTITIONS)])
            async for record in consumer:
                assert record.value is not None
                self._read.append(Read(record.partition, record.offset, record.value))

    def _raise_failure(self) -> None:
        """Raises the error of a task that has failed: neither side may stop by itself."""
        for task in (self._writing, self._reading):
            if task is not None and task.done() and not task.cancelled():
                task.result()
