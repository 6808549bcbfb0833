"""A `Consumer` with a fake clock, fake metadata and fake leaders, and a program that uses it."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from clients.consumer.effects import AskEpochs, AskOffsets, Fetch
from clients.consumer.errors import PositionsUnusable
from clients.consumer.positions import StoredPosition
from clients.metadata.cluster import ClusterNode, TopicPartition
from clients.metadata.updates import MetadataRequestPlan, MetadataUpdate, TopicUpdate
from clients.partition_calls import CallFailed
from clients.partition_values import (
    EpochEnd,
    EpochQuestion,
    FetchAnswer,
    FetchRequest,
    FoundOffset,
    OffsetQuestion,
)
from metadata_log.format.errors import ErrorCode
from metaquorum import Consumer, ConsumerConfig, MetadataClient
from tests.clients.consumer.leaders import TOPIC, FakeLeaders
from tests.clients.consumer.world import LOST


class FakeClock:
    """Stands still until a test moves it. Many tasks may wait."""

    def __init__(self) -> None:
        self._now_ms = 1_000_000
        self._waits: dict[asyncio.Event, int] = {}

    def now_ms(self) -> int:
        return self._now_ms

    async def wait(self, event: asyncio.Event, until_ms: int) -> None:
        timer = asyncio.create_task(self._until(until_ms))
        waiting = asyncio.create_task(event.wait())
        try:
            await asyncio.wait((timer, waiting), return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            waiting.cancel()

    async def _until(self, until_ms: int) -> None:
        over = asyncio.Event()
        self._waits[over] = until_ms
        try:
            if self._now_ms < until_ms:
                await over.wait()
        finally:
            del self._waits[over]

    def work(self, ms: int) -> None:
        """Lets `ms` pass while no task runs but the caller."""
        self._now_ms += ms

    async def run(self, ms: int) -> None:
        """Lets `ms` pass, with a stop at every moment for which a task waits."""
        end_ms = self._now_ms + ms
        await settle()
        while due := [each for each in self._waits.values() if self._now_ms < each <= end_ms]:
            await self._go_to(min(due))
        await self._go_to(end_ms)

    async def _go_to(self, now_ms: int) -> None:
        self._now_ms = now_ms
        for event, until_ms in list(self._waits.items()):
            if until_ms <= now_ms:
                event.set()
        await settle()


async def settle() -> None:
    """Lets all tasks run until they wait."""
    for _ in range(30):
        await asyncio.sleep(0)


class FakeMetadata:
    """Answers from the truth of the leaders, if `exists`."""

    def __init__(self, leaders: FakeLeaders) -> None:
        self.leaders = leaders
        self.exists = True
        self.asked: list[tuple[str, ...]] = []

    async def fetch(
        self, node: ClusterNode, plan: MetadataRequestPlan, page_came: Callable[[], None]
    ) -> MetadataUpdate:
        self.asked.append(plan.topics)
        cluster = self.leaders.cluster()
        views = tuple(cluster.partitions.values())
        found = TopicUpdate(TOPIC, self.leaders.topic_id, views)
        lost = TopicUpdate(TOPIC, None, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        topics = tuple((found if self.exists else lost) for name in plan.topics if name == TOPIC)
        return MetadataUpdate("cluster", tuple(cluster.nodes.values()), topics, 1)

    async def describe(self, node: ClusterNode) -> Any:
        raise NotImplementedError("these tests ask for metadata only")

    async def configs(self, node: ClusterNode, resources: Any) -> Any:
        raise NotImplementedError("these tests ask for metadata only")

    async def close(self) -> None:
        """Has nothing to close."""


class FakeCalls:
    """Calls to the fake leaders. A fetch without records is parked until `stir`, or until its wait is over."""

    def __init__(self, leaders: FakeLeaders, clock: FakeClock) -> None:
        self.leaders = leaders
        self.clock = clock
        self.appended = asyncio.Event()
        self.dead: set[int] = set()
        self.fetches = self.parked = self.cancelled = 0
        self.is_closed = False

    def stir(self) -> None:
        """Wakes the parked fetches."""
        self.appended.set()
        self.appended = asyncio.Event()

    async def fetch(self, node: ClusterNode, request: FetchRequest, timeout_s: float) -> FetchAnswer:
        self.fetches += 1
        asked = Fetch(0, node, request)
        until_ms = self.clock.now_ms() + request.max_wait_ms
        self.parked += 1
        try:
            while node.node_id not in self.dead and not self.leaders.has_news(asked) and self.clock.now_ms() < until_ms:
                await self.clock.wait(self.appended, until_ms)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.parked -= 1
        if node.node_id in self.dead:
            raise CallFailed(LOST)
        return FetchAnswer(0, tuple(self.leaders.fetched(asked)))

    async def list_offsets(
        self, node: ClusterNode, questions: Sequence[OffsetQuestion], timeout_s: float
    ) -> tuple[FoundOffset, ...]:
        return tuple(self.leaders.offsets(AskOffsets(0, node, tuple(questions))))

    async def epoch_ends(
        self, node: ClusterNode, questions: Sequence[EpochQuestion], timeout_s: float
    ) -> tuple[EpochEnd, ...]:
        return tuple(self.leaders.epochs(AskEpochs(0, node, tuple(questions))))

    async def append(self, node: ClusterNode, request: Any, timeout_s: float) -> Any:
        raise NotImplementedError("a consumer appends nothing")

    async def allocate_producer_id(self, node: ClusterNode, timeout_s: float) -> int:
        raise NotImplementedError("a consumer appends nothing")

    async def close(self) -> None:
        self.is_closed = True


class MemoryPositions:
    """A store in memory, which notes each commit, and fails if `broken`."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.positions: dict[TopicPartition, StoredPosition] = {}
        self.commits: list[tuple[int, dict[int, int]]] = []
        """The time, and the offset of each partition."""
        self.broken = False
        self.gate: asyncio.Event | None = None
        self.begun = 0
        """How many saves have begun."""

    async def load(self) -> Mapping[TopicPartition, StoredPosition]:
        return dict(self.positions)

    async def save(self, positions: Mapping[TopicPartition, StoredPosition]) -> None:
        self.begun += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.broken:
            raise PositionsUnusable("the disk is full")
        self.positions.update(positions)
        self.commits.append((self.clock.now_ms(), {key.partition: at.offset for key, at in positions.items()}))


class Program:
    """The world of one test."""

    def __init__(self, partitions: int = 1) -> None:
        self.clock = FakeClock()
        self.leaders = FakeLeaders(partitions)
        self.metadata = FakeMetadata(self.leaders)
        self.calls = FakeCalls(self.leaders, self.clock)
        self.store = MemoryPositions(self.clock)

    def append(self, *values: str, partition: int = 0) -> None:
        for value in values:
            self.leaders.append(value, partition=partition)
        self.calls.stir()

    @asynccontextmanager
    async def consumer(self, **config: Any) -> AsyncIterator[Consumer]:
        settings = ConsumerConfig(**{"auto_offset_reset": "earliest", **config})
        dice = random.Random(7)
        async with (
            MetadataClient("boot:9092", calls=self.metadata, clock=self.clock, dice=dice) as metadata,
            Consumer(
                "boot:9092",
                positions=self.store,
                config=settings,
                metadata=metadata,
                calls=self.calls,
                clock=self.clock,
                dice=dice,
            ) as consumer,
        ):
            yield consumer

    async def poll(self, consumer: Consumer, ms: int = 1_000) -> list[str]:
        """Polls once, and lets `ms` pass meanwhile."""
        task = asyncio.create_task(consumer.poll(ms / 1_000))
        await settle()
        if not task.done():
            await self.clock.run(ms)
        return [(record.value or b"").decode() for record in await task]
