"""The asyncio `Producer`, with a fake clock, a real metadata client over fake metadata, and fake leaders."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from clients import producer_client
from clients.metadata.cluster import ClusterNode
from clients.metadata.updates import MetadataRequestPlan, MetadataUpdate, TopicUpdate
from clients.partition_calls import CallFailed
from clients.partition_values import Appended, AppendRequest
from metadata_log.format.data_batch import HEADERS_MAX, unpack_records
from metadata_log.format.errors import ErrorCode, LogFormatError
from metaquorum import (
    BufferExhausted,
    MayHaveBeenWritten,
    MetadataClient,
    NotWritten,
    Producer,
    ProducerClosed,
    ProducerConfig,
    RecordMetadata,
    RecordTooLarge,
    SendError,
    TopicNotKnown,
    TopicPartition,
)
from tests.clients.consumer.program import FakeClock, settle
from tests.clients.producer.driving import AWAY, LATE, LOST
from tests.clients.producer.leaders import FakeCluster

HIDDEN = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class Clock(FakeClock):
    def wall_ms(self) -> int:
        return 1_700_000_000_000


class FakeMetadata:
    """Answers from the truth of the cluster."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.asked: list[tuple[str, ...]] = []
        self.hidden = False

    async def fetch(
        self, node: ClusterNode, plan: MetadataRequestPlan, page_came: Callable[[], None]
    ) -> MetadataUpdate:
        self.asked.append(plan.topics)
        view = self.cluster.view()
        topics = [
            TopicUpdate(name, view.topic_ids.get(name), views)
            if (views := view.partitions_by_topic.get(name))
            else TopicUpdate(name, None, error=HIDDEN if self.hidden else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            for name in plan.topics
        ]
        return MetadataUpdate("fake", tuple(view.nodes.values()), tuple(topics), 1)

    async def describe(self, node: ClusterNode) -> Any:
        raise NotImplementedError("these tests ask for metadata only")

    async def configs(self, node: ClusterNode, resources: Any) -> Any:
        raise NotImplementedError("these tests ask for metadata only")

    async def close(self) -> None:
        """Has nothing to close."""


class FakeCalls:
    """Calls to the fake leaders. A broker in `dead` is not there; while `gate` is closed, requests wait before they arrive."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.dead: set[int] = set()
        self.gate = asyncio.Event()
        self.gate.set()
        self.loses_answers = 0
        self.in_flight = 0
        self.requests: list[AppendRequest] = []
        self.ids = 0
        self.is_closed = False
        self.broken = False

    async def append(self, node: ClusterNode, request: AppendRequest, timeout_s: float) -> tuple[Appended, ...]:
        self.requests.append(request)
        if self.broken:
            raise RuntimeError("a bug in the calls")
        if node.node_id in self.dead:
            raise CallFailed(AWAY)
        self.in_flight += 1
        try:
            await self.gate.wait()
        finally:
            self.in_flight -= 1
        results = tuple(self.cluster.append(node.node_id, each) for each in request.batches)
        if self.loses_answers:
            self.loses_answers -= 1
            raise CallFailed(LOST)
        return results

    async def allocate_producer_id(self, node: ClusterNode, timeout_s: float) -> int:
        if node.node_id in self.dead:
            raise CallFailed(LATE)
        self.ids += 1
        return self.ids

    async def fetch(self, node: ClusterNode, request: Any, timeout_s: float) -> Any:
        raise NotImplementedError("a producer reads nothing")

    list_offsets = epoch_ends = fetch

    async def close(self) -> None:
        self.is_closed = True


class World:
    """One test's cluster and program."""

    def __init__(self, partitions: int = 1) -> None:
        self.clock = Clock()
        self.cluster = FakeCluster([("orders", partitions)])
        self.metadata = FakeMetadata(self.cluster)
        self.calls = FakeCalls(self.cluster)
        self.client: MetadataClient | None = None

    @asynccontextmanager
    async def producer(self, **config: Any) -> AsyncIterator[Producer]:
        dice = random.Random(7)
        settings = ProducerConfig(**{"linger_ms": 0, **config})
        async with MetadataClient("boot:9092", calls=self.metadata, clock=self.clock, dice=dice) as client:
            self.client = client
            producer = Producer(config=settings, metadata=client, calls=self.calls, clock=self.clock, dice=dice)
            async with producer:
                yield producer

    async def end(self, work: Any, ms: int = 0) -> Any:
        """Runs `work` to its end, while `ms` pass."""
        task = asyncio.ensure_future(work)
        await settle()
        for _ in range(20):
            if task.done():
                break
            await self.clock.run(ms)
        return await task

    def log(self, partition: int = 0) -> list[bytes]:
        return self.cluster.logs[TopicPartition("orders", partition)].values

    async def fails(self, work: Any, ms: int = 0) -> SendError:
        with pytest.raises(SendError) as caught:
            await self.end(work, ms)
        return caught.value


# --- the happy path --------------------------------------------------------------------------------------------------


async def test_a_send_returns_the_place_of_the_record() -> None:
    world = World()
    async with world.producer() as producer:
        first = await world.end(producer.send("orders", b"one", key=b"k", headers={"trace": b"7"}))
        second = await world.end(producer.send("orders", None, key=b"k", timestamp_ms=5))
    assert first == RecordMetadata("orders", 0, 0, 1_700_000_000_000) and second == RecordMetadata("orders", 0, 1, 5)
    (record,) = unpack_records(world.calls.requests[0].batches[0].records, 1)
    assert record == (1_700_000_000_000, b"k", b"one", (("trace", b"7"),))
    assert world.calls.ids == 1 and world.calls.is_closed


async def test_records_that_are_enqueued_together_share_a_batch_and_stay_in_order() -> None:
    world = World()
    async with world.producer(linger_ms=5) as producer:
        sent = [await world.end(producer.enqueue("orders", b"%d" % number)) for number in range(100)]
        await world.clock.run(5)
        assert [each.result().offset for each in sent] == list(range(100))
    assert len(world.calls.requests) == 1 and world.log() == [b"%d" % number for number in range(100)]


async def test_tasks_that_wait_for_a_new_topic_enter_in_the_order_in_which_they_came() -> None:
    world = World()
    async with world.producer() as producer:
        tasks = [asyncio.create_task(producer.send("orders", b"%d" % number)) for number in range(20)]
        await settle()
        await world.clock.run(200)
        assert [(await each).offset for each in tasks] == list(range(20))


async def test_a_task_that_sends_again_does_not_overtake_the_tasks_that_wait() -> None:
    world = World()

    async def send_twice(producer: Producer) -> None:
        for value in (b"0", b"late"):
            await producer.enqueue("orders", value)

    async with world.producer() as producer:
        tasks = [asyncio.create_task(send_twice(producer))]
        tasks += [asyncio.create_task(_enqueue(producer, b"%d" % number)) for number in (1, 2)]
        await settle()
        await world.clock.run(200)
        await asyncio.gather(*tasks)
    assert world.log() == [b"0", b"1", b"2", b"late"]


async def test_a_given_partition_wins_over_the_key() -> None:
    world = World(partitions=4)
    async with world.producer() as producer:
        for number in (3, 1):
            assert (await world.end(producer.send("orders", b"v", key=b"k", partition=number))).partition == number


async def test_flush_waits_for_all_records_and_raises_nothing() -> None:
    world = World()
    async with world.producer(linger_ms=1_000) as producer:
        sent = [await world.end(producer.enqueue("orders", b"%d" % number)) for number in range(3)]
        await world.end(producer.flush())
        assert all(each.done() for each in sent)
        await world.end(producer.flush())


async def test_a_sender_that_is_cancelled_does_not_take_the_record_back() -> None:
    world = World()
    async with world.producer() as producer:
        world.calls.gate.clear()
        task = asyncio.create_task(producer.send("orders", b"one"))
        await settle()
        await world.clock.run(100)
        task.cancel()
        await settle()
        world.calls.gate.set()
        await world.end(producer.send("orders", b"two"))
    assert world.log() == [b"one", b"two"]


# --- failures --------------------------------------------------------------------------------------------------------


async def test_a_leader_that_moves_is_found_and_no_record_is_doubled() -> None:
    world = World()
    async with world.producer() as producer:
        await world.end(producer.send("orders", b"one"))
        world.calls.loses_answers = 1
        task = asyncio.create_task(producer.send("orders", b"two"))
        await settle()
        world.cluster.logs[TopicPartition("orders", 0)].elect(2)
        world.calls.dead.add(1)
        await world.clock.run(2_000)
        assert (await task).offset == 1
    assert world.log() == [b"one", b"two"]


async def test_without_a_leader_records_wait_and_the_metadata_are_refreshed() -> None:
    world = World()
    async with world.producer() as producer:
        world.cluster.logs[TopicPartition("orders", 0)].elect(None)
        task = asyncio.create_task(producer.send("orders", b"one"))
        await world.clock.run(5_000)
        assert not task.done() and len(world.metadata.asked) > 4
        world.cluster.logs[TopicPartition("orders", 0)].elect(3)
        await world.clock.run(2_000)
        assert (await task).offset == 0


async def test_requests_in_flight_are_counted_for_the_choice_of_a_broker() -> None:
    world = World()
    async with world.producer() as producer:
        world.calls.gate.clear()
        task = asyncio.create_task(producer.send("orders", b"one"))
        await world.clock.run(100)
        assert world.client is not None and world.client._nodes.in_flight(1) == 1
        world.calls.gate.set()
        await world.end(task)
        assert world.client._nodes.in_flight(1) == 0


async def test_another_broker_gives_the_id_if_one_does_not_answer() -> None:
    world = World()
    world.calls.dead = {2, 3}
    async with world.producer() as producer:
        await world.end(producer.send("orders", b"one"), 200)
    assert world.calls.ids == 1


async def test_a_record_that_expires_on_its_way_may_have_been_written() -> None:
    world = World()
    async with world.producer(delivery_timeout_ms=30_000) as producer:
        world.calls.gate.clear()
        error = await world.fails(producer.send("orders", b"one"), 10_000)
        assert isinstance(error, MayHaveBeenWritten) and error.may_have_been_written
        assert (error.topic, error.partition, error.code) == ("orders", 0, ErrorCode.REQUEST_TIMED_OUT)
        world.calls.gate.set()


async def test_a_bug_in_the_calls_ends_all_records_and_later_sends() -> None:
    world = World()
    with pytest.raises(RuntimeError, match="a bug"):
        async with world.producer() as producer:
            world.calls.broken = True
            assert isinstance(await world.fails(producer.send("orders", b"one"), 10), MayHaveBeenWritten)
            error = await world.fails(producer.send("orders", b"two"))
            assert isinstance(error, ProducerClosed) and "a bug in the calls" in error.message
            raise RuntimeError("a bug")


# --- refusals before anything is queued ------------------------------------------------------------------------------


async def test_an_unknown_topic_is_an_error_after_max_block_ms() -> None:
    world = World()
    async with world.producer(max_block_ms=2_000) as producer:
        task = asyncio.create_task(producer.send("nowhere", b"one"))
        await world.clock.run(1_900)
        assert not task.done()
        error = await world.fails(task, 200)
        assert isinstance(error, TopicNotKnown) and "nowhere" in error.message and not error.may_have_been_written


async def test_a_partition_that_does_not_exist_is_an_error_with_the_number_of_partitions() -> None:
    world = World(partitions=3)
    async with world.producer(max_block_ms=1_000) as producer:
        error = await world.fails(producer.send("orders", b"one", partition=3), 500)
        assert isinstance(error, TopicNotKnown) and error.partition == 3 and "3 partitions" in error.message
        with pytest.raises(ValueError, match="must not be negative"):
            await producer.send("orders", b"one", partition=-1)


async def test_a_caller_with_a_partition_that_does_not_exist_does_not_hold_the_others() -> None:
    world = World()
    async with world.producer(max_block_ms=60_000) as producer:
        bad = asyncio.create_task(producer.send("orders", b"bad", partition=9))
        good = asyncio.create_task(producer.send("orders", b"good", partition=0))
        await settle()
        await world.clock.run(500)
        assert good.done() and not bad.done() and (await good).offset == 0
        assert isinstance(await world.fails(bad, 30_000), TopicNotKnown)


async def test_callers_that_wait_for_a_new_partition_enter_in_the_order_in_which_they_came() -> None:
    world = World()
    async with world.producer() as producer:
        await world.end(producer.send("orders", b"first"))
        tasks = [asyncio.create_task(producer.send("orders", b"%d" % number, partition=1)) for number in range(5)]
        await world.clock.run(500)
        assert not any(each.done() for each in tasks)
        world.cluster.add_partition("orders", 1)
        await world.clock.run(5_000)
        assert [(await each).offset for each in tasks] == list(range(5))


async def test_a_topic_with_an_impossible_name_is_refused_at_once() -> None:
    world = World()
    async with world.producer() as producer:
        error = await world.fails(producer.send("x" * 300, b"one"))
        assert isinstance(error, TopicNotKnown) and error.code is ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_a_topic_that_is_no_text_is_refused_and_harms_no_other_caller() -> None:
    world = World()
    async with world.producer() as producer:
        with pytest.raises(ValueError, match="b'orders' is no topic: a name is text"):
            await producer.send(b"orders", b"x")  # type: ignore[arg-type]
        assert world.client is not None
        with pytest.raises(ValueError, match="is no topic"):
            world.client.want([b"orders"])  # type: ignore[list-item]
        for bad in ("orders\udcff", 5):
            with pytest.raises(ValueError, match="is no topic: a name is text that UTF-8 can say"):
                await producer.send(bad, b"x")  # type: ignore[arg-type]
        assert (await world.end(producer.send("orders", b"x"))).offset == 0


async def test_a_record_that_is_too_large_or_not_bytes_is_refused_at_once() -> None:
    world = World()
    async with world.producer(max_request_size=1_000) as producer:
        error = await world.fails(producer.send("orders", bytes(1_000)))
        assert isinstance(error, RecordTooLarge) and "1000" in error.message
        with pytest.raises(LogFormatError):
            await producer.send("orders", "text")  # type: ignore[arg-type]
        with pytest.raises(LogFormatError):
            await producer.send("orders", b"v", headers=[("name", b"")] * (HEADERS_MAX + 1))
    assert not world.calls.requests


async def test_a_program_that_enqueues_without_a_wait_leaves_the_loop_its_turns() -> None:
    """The first records are on their way long before the buffer is full, and a signal is heard."""
    world = World()
    async with world.producer() as producer:
        await world.end(producer.send("orders", b"first"))
        for number in range(100):
            world.clock.work(1)
            await producer.enqueue("orders", b"%d" % number)
        assert len(world.calls.requests) >= 3
        await world.end(producer.flush())
    assert world.log() == [b"first", *(b"%d" % number for number in range(100))]


async def test_a_full_buffer_holds_the_callers_until_there_is_room_in_their_order() -> None:
    world = World()
    async with world.producer(buffer_memory=2_000, batch_size=100) as producer:
        await world.end(producer.send("orders", b"first"))
        world.calls.gate.clear()
        tasks = [asyncio.create_task(producer.enqueue("orders", bytes([number]) * 90)) for number in range(12)]
        await settle()
        assert 0 < sum(each.done() for each in tasks) < 12
        world.calls.gate.set()
        await world.clock.run(100)
        assert [(await (await each)).offset for each in tasks] == list(range(1, 13))


async def test_a_buffer_that_stays_full_is_an_error_after_what_is_left_of_max_block_ms() -> None:
    """Row 1 of Kafka's `send`: the wait for metadata and the wait for room share the time."""
    world = World()
    async with world.producer(buffer_memory=2_000, batch_size=100, max_block_ms=3_000) as producer:
        world.calls.gate.clear()
        tasks = [asyncio.create_task(producer.enqueue("orders", bytes(90))) for _ in range(12)]
        await world.clock.run(2_900)
        waiting = next(each for each in tasks if not each.done())
        error = await world.fails(waiting, 200)
        assert isinstance(error, BufferExhausted) and "max_block_ms=3000" in error.message
        world.calls.gate.set()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_caller_that_no_longer_waits_for_room_does_not_hold_the_next_one() -> None:
    world = World()
    async with world.producer(buffer_memory=2_000, batch_size=100) as producer:
        await world.end(producer.send("orders", b"first"))
        world.calls.gate.clear()
        tasks = [asyncio.create_task(producer.enqueue("orders", bytes([number]) * 90)) for number in range(12)]
        await settle()
        first, *others = [each for each in tasks if not each.done()]
        first.cancel()
        await settle()
        world.calls.gate.set()
        await world.clock.run(100)
        assert first.cancelled() and len([await (await each) for each in others]) == len(others) > 1


async def test_a_topic_that_the_client_may_not_see_is_an_error_at_once() -> None:
    world = World()
    world.metadata.hidden = True
    async with world.producer() as producer:
        error = await world.fails(producer.send("secret", b"one"), 200)
        assert isinstance(error, TopicNotKnown) and error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_each_minute_of_use_keeps_the_topic_of_interest() -> None:
    """Interest in a topic ends 5 minutes after the last wait for it: the producer renews the interest while it sends."""
    world = World()
    async with world.producer() as producer:
        for _ in range(8):
            await world.end(producer.send("orders", b"one"))
            await world.clock.run(61_000)
        assert world.client is not None and world.client._metadata.topics == {"orders"}
        await world.clock.run(700_000)
        assert world.client._metadata.topics == frozenset()


# --- close -----------------------------------------------------------------------------------------------------------


async def test_close_delivers_what_was_enqueued_and_then_refuses() -> None:
    world = World()
    async with world.producer(linger_ms=1_000) as producer:
        sent = await world.end(producer.enqueue("orders", b"one"))
        await world.end(producer.close())
        assert sent.result().offset == 0
        error = await world.fails(producer.send("orders", b"two"))
        assert isinstance(error, ProducerClosed) and isinstance(error, NotWritten)


async def test_a_sender_that_is_cancelled_after_the_close_ends_as_cancelled() -> None:
    world = World()
    async with world.producer() as producer:
        task = asyncio.create_task(producer.send("nowhere", b"one"))
        await settle()
        await producer.close(timeout_s=0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_close_with_a_time_fails_what_is_left() -> None:
    world = World()
    async with world.producer() as producer:
        await world.end(producer.send("orders", b"first"))
        world.calls.gate.clear()
        sent = await world.end(producer.enqueue("orders", b"one"))
        other = asyncio.create_task(producer.send("nowhere", b"two"))
        await settle()
        await producer.close(timeout_s=0)
        assert isinstance(sent.exception(), MayHaveBeenWritten)
        world.clock._now_ms += 60_000
        assert isinstance(await world.fails(other, 60_000), ProducerClosed)


async def test_a_cancelled_program_does_not_wait_for_a_cluster_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_client, "CANCELLED_CLOSE_S", 0)
    world = World()
    ends: list[asyncio.Future[RecordMetadata]] = []

    async def program() -> None:
        async with world.producer() as producer:
            world.calls.gate.clear()
            ends.append(await producer.enqueue("orders", b"one"))
            await asyncio.Event().wait()

    task = asyncio.create_task(program())
    await settle()
    await world.clock.run(100)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert isinstance(ends[0].exception(), MayHaveBeenWritten)


async def test_a_producer_with_bad_addresses_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(ValueError, match="host:port"):
        Producer("no-port")


async def _enqueue(producer: Producer, value: bytes) -> None:
    await producer.enqueue("orders", value)
