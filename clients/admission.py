"""The way of a record into a producer's buffer: first the topic's metadata, then room, both within `max_block_ms`.

Callers of one topic enter in the order in which they came, and all callers get room in the order in which they asked. Example:

    1. Tasks 1 and 2 send to orders, which is not in the view yet. Task 1 waits for metadata, and task 2 waits for task 1.
    2. The metadata come after 2 s, and the buffer is full. Task 1 may wait for room for 58 s of the 60 s that are left.
    3. A batch is delivered: task 1 enters, then task 2.

A caller that names a partition which is not in the view lets the others of its topic pass while it waits for the partition.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from clients.errors import MetadataError
from clients.metadata_client import ClientClock, MetadataClient
from clients.producer.errors import BufferExhausted, ProducerClosed, TopicNotKnown
from clients.producer.producer_core import ProducerCore
from metadata_log.format.errors import ErrorCode

INTEREST_MS: Final = 60_000
"""How often the producer tells the metadata client that it still uses a topic."""


class _Wait(NamedTuple):
    """A caller that waits for room."""

    topic: str
    size: int
    deadline_ms: int
    entered: asyncio.Future[None]


class _Gate:
    """The lock that callers of one topic pass one by one, and how many callers hold it or wait for it."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.callers = 0


class Admission:
    """The callers that wait to enter."""

    def __init__(self, core: ProducerCore, client: MetadataClient, clock: ClientClock, wake: asyncio.Event) -> None:
        """`wake` is set when the producer should look at the waits."""
        self._core = core
        self._client = client
        self._clock = clock
        self._wake = wake
        self._gates: dict[str, _Gate] = {}
        self._used_ms: dict[str, int] = {}
        self._waits: deque[_Wait] = deque()

    def is_open(self, topic: str, partition: int | None, size: int, now_ms: int) -> bool:
        """True if a record may enter at once."""
        used_ms = self._used_ms.get(topic)
        if used_ms is None or now_ms >= used_ms + INTEREST_MS or self._waits or topic in self._gates:
            return False
        return self._has_partition(topic, partition) and self._core.records.has_room(size)

    async def enter(self, topic: str, partition: int | None, size: int) -> None:
        """Waits until the record may enter. The caller then puts the record into the buffer before it waits for anything else.

        Raises:
            TopicNotKnown: the topic or the partition is not there.
            BufferExhausted: there is no room.
            ProducerClosed: the producer was closed meanwhile.
            ValueError: the partition is negative.
        """
        begin_ms = self._clock.now_ms()
        if partition is not None and partition < 0:
            raise ValueError(f"partition {partition} of topic {topic!r}: a partition's number must not be negative")
        async with self._gate(topic):
            await self._wait_for_topic(topic, None, begin_ms)
            if self._has_partition(topic, partition):
                await self._wait_for_room(topic, size, begin_ms)
                return
        await self._wait_for_topic(topic, partition, begin_ms)
        async with self._gate(topic):
            await self._wait_for_room(topic, size, begin_ms)

    @asynccontextmanager
    async def _gate(self, topic: str) -> AsyncIterator[None]:
        """Waits for the callers that came before. A gate stays while anybody waits at it: a later caller cannot overtake."""
        gate = self._gates.setdefault(topic, _Gate())
        gate.callers += 1
        try:
            async with gate.lock:
                yield
        finally:
            gate.callers -= 1
            if not gate.callers:
                del self._gates[topic]

    def _has_partition(self, topic: str, partition: int | None) -> bool:
        count = self._client.cluster.partition_count(topic)
        return count is not None and (partition is None or 0 <= partition < count)

    async def _wait_for_topic(self, topic: str, partition: int | None, begin_ms: int) -> None:
        left_ms = max(0, begin_ms + self._core.config.max_block_ms - self._clock.now_ms())
        try:
            await self._client.wait_for(topic, partition, left_ms / 1_000)
        except MetadataError as e:
            raise TopicNotKnown(e.code, f"{e.message}; the record was not queued", topic, partition) from e
        self._used_ms[topic] = self._clock.now_ms()

    async def _wait_for_room(self, topic: str, size: int, begin_ms: int) -> None:
        if not self._waits and self._core.records.has_room(size):
            return
        deadline_ms = begin_ms + self._core.config.max_block_ms
        wait = _Wait(topic, size, deadline_ms, asyncio.get_running_loop().create_future())
        self._waits.append(wait)
        self._core.note_crowded(True)
        self._wake.set()
        try:
            await wait.entered
        finally:
            if wait in self._waits:
                self._waits.remove(wait)
            self._core.note_crowded(bool(self._waits))
            self._wake.set()  # the next caller may enter, too

    # --- the producer's task -----------------------------------------------------------------------------------------

    def settle(self, now_ms: int) -> None:
        """Lets the first caller in if there is room for its record, and ends the waits whose time is over."""
        for wait in list(self._waits):
            if now_ms >= wait.deadline_ms and not wait.entered.done():
                text = (
                    f"no room for {wait.size} bytes within max_block_ms={self._core.config.max_block_ms}: "
                    f"{self._core.records.used_bytes} of buffer_memory={self._core.config.buffer_memory} bytes wait for their "
                    "delivery; the record was not queued"
                )
                wait.entered.set_exception(BufferExhausted(ErrorCode.REQUEST_TIMED_OUT, text, wait.topic))
        first = next((wait for wait in self._waits if not wait.entered.done()), None)
        is_next = first is not None and first is self._waits[0]
        if first is not None and is_next and self._core.records.has_room(first.size):
            first.entered.set_result(None)

    def next_ms(self) -> int | None:
        """The time of the first deadline."""
        return min((wait.deadline_ms for wait in self._waits if not wait.entered.done()), default=None)

    def close(self) -> None:
        """Ends all waits for room. Waits for metadata end with the metadata client, or find the producer closed."""
        for wait in self._waits:
            if not wait.entered.done():
                text = "the producer was closed; the record was not queued"
                wait.entered.set_exception(ProducerClosed(ErrorCode.NOT_READY, text, wait.topic))
