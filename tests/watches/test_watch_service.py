"""Watches over one node's log, without gRPC: what a client is shown, and where it goes on."""

import asyncio
import json
from collections.abc import AsyncIterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quorum_rpc.v1 import watch_pb2

from metadata_log.format.records import (
    FROM_OFFSET,
    AbortTransaction,
    BeginTransaction,
    Config,
    DelegationToken,
    EndTransaction,
    Entity,
    FeatureLevel,
    Partition,
    PartitionChange,
    RegisterBroker,
    RemoveEntity,
    RemoveTopic,
    SkippedBatch,
    Topic,
    UserScramCredential,
)
from tests.watches import twin
from tests.watches.client import Client
from tests.watches.fake_log import FakeLog
from tests.watches.histories import Historian
from watches.core.position import Position
from watches.service import hub, watch
from watches.service.request import wanted
from watches.service.watch_service import WatchService

FILTERS = (
    watch_pb2.WatchFilter(),
    watch_pb2.WatchFilter(entities=[{"kind": "lock"}]),
    watch_pb2.WatchFilter(entities=[{"kind": "shard", "name_prefix": "a"}, {"name_prefix": "b"}]),
    watch_pb2.WatchFilter(topics=["orders"]),
    watch_pb2.WatchFilter(all_topics=True, brokers=[2]),
    watch_pb2.WatchFilter(sessions=True, others=True),
)


@pytest.mark.slow
@given(st.integers(0, 1 << 32), st.integers(1, 60))
@settings(max_examples=25, deadline=None)
def test_a_watch_shows_what_the_filter_names_of_the_committed_history(seed: int, steps: int) -> None:
    """Each event once, in order, from any position, and across two nodes, one of which is late; compared with the dumb twin."""
    asyncio.run(_compare_with_twin(seed, steps))


class Resuming:
    """A client that now and then goes on at another node; what it has been shown in all."""

    def __init__(self, service: WatchService, since: Position, shown: watch_pb2.WatchFilter) -> None:
        self.since, self.shown = since.offset, shown
        self.offsets: list[int] = []
        self.stops: set[int] = set()
        self.resets = 0
        self._position = watch_pb2.WatchPosition(**since._asdict())
        self.client = self._opened(service)

    def _opened(self, service: WatchService) -> Client:
        return Client(service, filter=self.shown, position=self._position, bookmark_interval_ms=100)

    async def stop(self) -> None:
        client = self.client
        await client.stop()
        self.offsets += client.offsets
        self.stops |= {message.position.offset for message in client.messages if message.is_whole}
        self.resets += len(client.resets)
        self._position = client.position or self._position

    async def go_on(self, service: WatchService) -> None:
        await self.stop()
        self.client = self._opened(service)


async def _compare_with_twin(seed: int, steps: int) -> None:
    dice = Random(seed)
    log, other = FakeLog(), FakeLog()
    services = [WatchService(log), WatchService(other)]
    historian = Historian(log, dice)
    stops = [0, *(batch.end_offset for batch in log.batches)]
    clients: list[Resuming] = []
    for _ in range(steps):
        historian.step()
        if log.replay.open is None:
            stops.append(log.image.offset)
        if dice.random() < 0.6:
            _follow(other, log)
        if dice.random() < 0.3:
            position = log.position(dice.choice(stops))
            clients.append(Resuming(dice.choice(services), position, dice.choice(FILTERS)))
        if clients and dice.random() < 0.3:
            await dice.choice(clients).go_on(dice.choice(services))
        for _ in range(dice.choice((0, 1, 20))):
            await asyncio.sleep(0)
    historian.finish()
    _follow(other, log)
    end = log.image.offset
    await asyncio.gather(*(each.client.until(end) for each in clients))
    for each in clients:
        await each.stop()
        what = wanted(watch_pb2.WatchRequest(filter=each.shown)).shown
        assert each.offsets == twin.shown(log, what, each.since, end), (each.since, each.shown)
        assert not each.resets
        assert each.stops <= {*stops, end}
    for service in services:
        assert service.tallies.open == 0
        await service.close()


def _follow(other: FakeLog, log: FakeLog) -> None:
    """The other node gets what it lacks."""
    for batch in log.batches[len(other.batches) :]:
        other.take(batch)


LOCKS = watch_pb2.WatchFilter(entities=[{"kind": "lock"}])
ORDERS = watch_pb2.WatchFilter(topics=["orders"])
A, B = bytes([1]) * 16, bytes([2]) * 16


@pytest.fixture
def log() -> FakeLog:
    log = FakeLog()
    log.append(FeatureLevel("metadata.version", 3))
    log.append(*(RegisterBroker(each, bytes([each]) * 16, (), (), None, True, False, (A,)) for each in (1, 2, 3)))
    return log


@pytest.fixture
async def service(log: FakeLog) -> AsyncIterator[WatchService]:
    service = WatchService(log)
    yield service
    await service.close()


def lock(name: str, value: bytes = b"", created: int = FROM_OFFSET) -> Entity:
    return Entity("lock", name, value, None, created)


def topic(name: str, topic_id: bytes) -> tuple[Topic, Partition]:
    return Topic(name, topic_id), Partition(topic_id, 0, (1, 2), (1, 2), (), (), 1, 0, 0, 0)


def at(log: FakeLog, offset: int | None = None) -> dict[str, object]:
    return log.position(offset)._asdict()


# --- RESET -----------------------------------------------------------------------------------------------------------


async def test_a_watch_without_a_position_begins_with_the_state_and_goes_on_with_changes(
    log: FakeLog, service: WatchService
) -> None:
    """The state is that of one offset, and the first change is the first one behind this offset."""
    log.append(lock("a", b"1"), Entity("shard", "7", b"", None))
    log.append(lock("b", b"2"))
    client = Client(service, filter=LOCKS)
    await client.until(log.image.offset)
    assert client.resets == [watch_pb2.NO_POSITION]
    found = [event.entity_written.entity for event in client.state]
    assert [(each.name, each.value, each.version, each.created) for each in found] == [
        ("a", b"1", 4, 4),
        ("b", b"2", 6, 6),
    ]
    log.append(lock("a", b"3", created=4))
    log.append(RemoveEntity("lock", "b"))
    await client.until(log.image.offset)
    written, deleted = client.events
    assert (written.offset, written.entity_written.entity.version, written.entity_written.entity.created) == (7, 7, 4)
    assert (deleted.offset, deleted.entity_deleted.entity.name) == (8, "b")
    await client.stop()


@pytest.mark.slow
@given(st.integers(0, 1 << 32), st.integers(1, 60))
@settings(max_examples=25, deadline=None)
def test_a_state_and_the_changes_behind_it_are_the_next_state(seed: int, steps: int) -> None:
    """For entities: the state at S, changed by the events of [S, E), is the state at E."""
    asyncio.run(_fold(seed, steps))


async def _fold(seed: int, steps: int) -> None:
    dice, log = Random(seed), FakeLog()
    service, historian = WatchService(log), Historian(log, dice)
    for _ in range(steps):
        historian.step()
    client = Client(service, filter={"entities": [{}]}, bookmark_interval_ms=100)
    await client.until(log.image.offset)
    for _ in range(steps):
        historian.step()
    historian.finish()
    await client.until(log.image.offset)
    known = {(each.kind, each.name): each for each in (event.entity_written.entity for event in client.state)}
    for event in client.events:
        if event.HasField("entity_deleted"):
            del known[event.entity_deleted.entity.kind, event.entity_deleted.entity.name]
        else:
            entity = event.entity_written.entity
            known[entity.kind, entity.name] = entity
    fresh = Client(service, filter={"entities": [{}]})
    await fresh.until(log.image.offset)
    assert [known[key] for key in sorted(known)] == [event.entity_written.entity for event in fresh.state]
    assert len(known) == len(log.image.entities)
    await client.stop()
    await fresh.stop()
    await service.close()


async def test_a_state_of_everything_has_all_that_the_image_has_and_no_secret(
    log: FakeLog, service: WatchService
) -> None:
    """Credentials and tokens are in the image, and no watch shows that they exist."""
    log.append(*topic("orders", A), Config(2, "orders", "retention.ms", "5"), lock("a"))
    log.append(
        UserScramCredential("alice", 1, b"salt", b"stored", b"server", 4_096),
        DelegationToken("t", "a", "b", (), 1, 2, 3),
    )
    client = Client(service)
    await client.until(log.image.offset)
    types = [event.record.type for event in client.state if event.HasField("record")]
    assert types == ["FeatureLevel", *["RegisterBroker"] * 3, "Topic", "Partition", "Config"]
    assert len(client.state) == len(types) + 1
    assert b"alice" not in b"".join(message.SerializeToString() for message in client.messages)
    log.append(UserScramCredential("bob", 1, b"salt", b"stored", b"server", 4_096))
    log.append(lock("b"))
    await client.until(log.image.offset)
    assert len(client.events) == 1
    await client.stop()


async def test_a_record_is_shown_in_words_with_the_name_of_its_topic(log: FakeLog, service: WatchService) -> None:
    client = Client(service, filter=ORDERS, from_now=True)
    await client.until(log.image.offset)
    log.append(*topic("orders", A), *topic("bills", B))
    log.append(PartitionChange(A, 0, leader=2))
    log.append(PartitionChange(B, 0, leader=2))
    log.append(RemoveTopic("orders", A))
    await client.until(log.image.offset - 1)
    shown = [(event.record.type, event.record.topic) for event in client.events]
    assert shown[:3] == [("Topic", "orders"), ("Partition", "orders"), ("PartitionChange", "orders")]
    assert json.loads(client.events[2].record.json)["leader"] == 2
    await client.until(log.image.offset)
    assert client.events[-1].record.type == "RemoveTopic"
    await client.stop()


# --- positions -------------------------------------------------------------------------------------------------------


async def test_a_watch_goes_on_at_another_node_without_gap_or_duplicate(log: FakeLog, service: WatchService) -> None:
    first = Client(service, filter=LOCKS, from_now=True)
    await first.until(4)
    log.append(lock("a"))
    await first.until(log.image.offset)
    await first.stop()
    log.append(lock("b"))
    log.append(lock("c"))
    elsewhere = WatchService(FakeLog(log.batches))
    second = Client(elsewhere, filter=LOCKS, position=first.position)
    await second.until(log.image.offset)
    assert first.offsets + second.offsets == [4, 5, 6]
    assert not second.resets
    await second.stop()
    await elsewhere.close()


async def test_a_watch_from_a_quicker_node_does_not_wait_for_a_hub_that_rests(
    log: FakeLog, service: WatchService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node has applied everything below the position, and its hub rests after a push. No further commit comes."""
    first = Client(service, filter=LOCKS, from_now=True, bookmark_interval_ms=100)
    await first.until(4)
    monkeypatch.setattr(hub, "rest_s", lambda pushed: 60.0)
    log.append(lock("a"))
    await first.until(5)
    log.append(lock("b"))
    second = Client(service, filter=LOCKS, position=at(log), bookmark_interval_ms=100)
    async with asyncio.timeout(2):
        await second.until(6)
        await first.until(6)
        while len(second.messages) < 3:
            await asyncio.sleep(0.01)
    assert (first.offsets, second.offsets) == ([4, 5], [])
    for client in (first, second):
        await client.stop()


async def test_a_node_that_is_late_lets_the_watch_wait(log: FakeLog, service: WatchService) -> None:
    """The watch begins when the node has applied everything below the position."""
    ahead = FakeLog(log.batches)
    ahead.append(lock("a"))
    client = Client(service, filter=LOCKS, position=at(ahead))
    await asyncio.sleep(0.01)
    assert not client.messages
    log.take(ahead.batches[-1])
    log.append(lock("b"))
    await client.until(log.image.offset)
    assert client.offsets == [5]
    await client.stop()


async def test_a_node_that_stays_late_sends_the_client_elsewhere(
    log: FakeLog, service: WatchService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "READY_WAIT_S", 0.02)
    ahead = FakeLog(log.batches)
    ahead.append(lock("a"))
    refusal = await Client(service, filter=LOCKS, position=at(ahead)).ended()
    assert refusal.reason == "NOT_READY"


async def test_a_position_below_the_log_s_start_gets_the_state(log: FakeLog, service: WatchService) -> None:
    old = at(log)
    log.append(lock("a"))
    log.append(lock("b"))
    log.trim(log.image.offset)
    client = Client(service, filter=LOCKS, position=old)
    await client.until(log.image.offset)
    assert client.resets == [watch_pb2.BELOW_LOG_START]
    assert len(client.state) == 2
    await client.stop()


async def test_a_position_of_a_history_that_was_cut_off_gets_the_state(log: FakeLog, service: WatchService) -> None:
    """Also where this node's log is shorter: its last epoch is newer, so it can never come to the position."""
    lost = FakeLog(log.batches)
    lost.append(lock("lost"))
    lost.append(lock("lost too"))
    log.epoch = 2
    log.append(lock("a"))
    for position, generation, reason in (
        (lost.position(5), 1, watch_pb2.OTHER_HISTORY),
        (lost.position(), 1, watch_pb2.OTHER_HISTORY),
        (lost.position(), 2, watch_pb2.OTHER_GENERATION),
    ):
        log.generation = generation
        client = Client(service, filter=LOCKS, position=position._asdict())
        await client.until(log.image.offset)
        assert (client.resets, len(client.state), client.offsets) == ([reason], 1, [])
        assert client.position is not None and client.position.generation == generation
        await client.stop()


async def test_a_position_of_an_earlier_generation_goes_on_where_the_history_has_it(
    log: FakeLog, service: WatchService
) -> None:
    position = at(log)
    log.generation, log.epoch = 2, 100
    log.append(lock("a"))
    client = Client(service, filter=LOCKS, position=position)
    await client.until(log.image.offset)
    assert (client.resets, client.offsets) == ([], [4])
    await client.stop()


async def test_a_log_that_is_trimmed_under_a_watch_gives_the_state(log: FakeLog, service: WatchService) -> None:
    """A node may load a snapshot that is ahead of its watches."""
    client = Client(service, filter=LOCKS, from_now=True)
    await client.until(log.image.offset)
    log.append(lock("a"), apply=False)
    log.append(lock("b"), apply=False)
    log.trim(6)
    log.apply_held()
    await client.until(6)
    assert (client.resets, len(client.state)) == ([watch_pb2.BELOW_LOG_START], 2)
    log.append(lock("c"))
    await client.until(log.image.offset)
    assert client.offsets == [6]
    await client.stop()


# --- transactions and skips ------------------------------------------------------------------------------------------


async def test_a_transaction_shows_at_its_end_and_no_position_lies_inside(log: FakeLog, service: WatchService) -> None:
    client = Client(service, filter=LOCKS, from_now=True, bookmark_interval_ms=100)
    await client.until(4)
    log.append(BeginTransaction("t"), lock("a"))
    log.append(lock("b"))
    await asyncio.sleep(0.25)
    assert client.offset == 4
    log.append(EndTransaction())
    await client.until(log.image.offset)
    assert client.offsets == [5, 6]
    await client.stop()


async def test_an_aborted_transaction_never_shows(log: FakeLog, service: WatchService) -> None:
    """Also not to a watch that comes later, and a topic that only it has created needs no name."""
    position = at(log)
    live = Client(service, filter=watch_pb2.WatchFilter(), from_now=True)
    await live.until(4)
    log.append(BeginTransaction("t"), *topic("orders", A))
    log.append(PartitionChange(A, 0, leader=2))
    log.append(AbortTransaction("test"))
    log.append(lock("b"))
    later = Client(service, filter=watch_pb2.WatchFilter(), position=position)
    for client in (live, later):
        await client.until(log.image.offset)
        assert client.offsets == [9]
        await client.stop()


async def test_a_transaction_that_no_queue_holds_is_read_piece_by_piece(log: FakeLog, service: WatchService) -> None:
    """2.4 MB of values: pieces that are not whole, then one with the position. A second watch decodes nothing again."""
    clients = [Client(service, filter=LOCKS, from_now=True) for _ in range(2)]
    for client in clients:
        await client.until(4)
    log.append(BeginTransaction("t"), lock("first"))
    for number in range(12):
        log.append(lock(f"{number:02}", bytes(200_000)))
    log.append(EndTransaction())
    for client in clients:
        await client.until(log.image.offset)
        assert client.offsets == [5, *range(6, 18)]
        assert [message.is_whole for message in client.messages[-3:-1]] == [False, False]
        assert not client.resets
        await client.stop()


async def test_a_skipped_batch_does_not_show(log: FakeLog, service: WatchService) -> None:
    """Also while the skip is not known yet: the image of the node stays in front of the batch."""
    client = Client(service, filter=LOCKS, from_now=True)
    await client.until(4)
    bad = log.append(lock("bad"), apply=False)
    skip = SkippedBatch(bad.base_offset, bad.epoch, bad.chain, bad.base_offset, bad.end_offset)
    log.append(lock("good"), apply=False)
    assert client.offset == 4
    log.append(skip)
    await client.until(log.image.offset)
    assert (client.offsets, client.resets) == ([5], [])
    await client.stop()


async def test_a_watch_that_may_have_shown_a_skipped_batch_gets_the_state(log: FakeLog) -> None:
    """Another node could apply the batch, and has shown it. The client comes here with a position behind it."""
    other = FakeLog(log.batches)
    bad = other.append(lock("bad"))
    there = WatchService(other)
    shown = Client(there, filter=LOCKS, position=at(log))
    await shown.until(5)
    await shown.stop()
    log.take(bad, apply=False)
    log.append(SkippedBatch(bad.base_offset, bad.epoch, bad.chain, bad.base_offset, bad.end_offset))
    here = WatchService(log)
    client = Client(here, filter=LOCKS, position=shown.position)
    await client.until(log.image.offset)
    assert (shown.offsets, client.resets, client.state) == ([4], [watch_pb2.OTHER_HISTORY], [])
    await client.stop()
    await here.close()
    await there.close()


async def test_names_of_deleted_and_recreated_topics_are_those_of_their_time(
    log: FakeLog, service: WatchService
) -> None:
    """A watch that catches up resolves a topic that is gone, and does not mix it up with a topic of the same name."""
    position = at(log)
    log.append(*topic("orders", A))
    log.append(PartitionChange(A, 0, leader=2))
    log.append(RemoveTopic("orders", A))
    log.append(*topic("orders", B))
    log.append(*topic("bills", bytes([3]) * 16))
    log.append(PartitionChange(bytes([3]) * 16, 0, leader=2))
    log.append(RemoveTopic("bills", bytes([3]) * 16))
    client = Client(service, filter=ORDERS, position=position)
    await client.until(log.image.offset)
    assert [event.record.type for event in client.events] == [
        "Topic", "Partition", "PartitionChange", "RemoveTopic", "Topic", "Partition",
    ]  # fmt: skip
    await client.stop()


# --- many watches, slow watches --------------------------------------------------------------------------------------


async def test_a_batch_is_read_and_decoded_once_for_all_watches(log: FakeLog, service: WatchService) -> None:
    """And a node without watches reads and decodes nothing."""
    log.append(lock("before"))
    assert (log.reads, service.tallies.batches.total) == (0, 0)
    clients = [Client(service, filter=shown, from_now=True) for shown in FILTERS for _ in range(20)]
    for client in clients:
        await client.until(log.image.offset)
    log.append(lock("a"), *topic("orders", A))
    for client in clients[:40] + clients[60:80]:  # the filters that name a lock `a` or the topic
        await client.until(log.image.offset)
    assert (log.reads, service.tallies.batches.total) == (1, 1)
    assert service.tallies.open == len(clients)
    for client in clients:
        await client.stop()
    log.append(lock("after"))
    await asyncio.sleep(0)
    assert (log.reads, service.tallies.open) == (1, 0)


async def test_a_slow_client_is_cut_and_goes_on_where_it_was(log: FakeLog) -> None:
    """The other clients do not notice."""
    service = WatchService(log, buffer_bytes=10_000)
    slow = Client(service, filter=LOCKS, from_now=True)
    quick = Client(service, filter=LOCKS, from_now=True)
    for client in (slow, quick):
        await client.until(4)
    slow.gate.clear()
    created = FROM_OFFSET
    for _ in range(10):
        log.append(lock("a", bytes(2_000), created))
        created = 4
        await quick.until(log.image.offset)
    slow.gate.set()
    refusal = await slow.ended()
    assert refusal.reason == "THROTTLING_QUOTA_EXCEEDED"
    assert service.tallies.cut.total == 1
    again = Client(service, filter=LOCKS, position=slow.position)
    await again.until(log.image.offset)
    assert slow.offsets + again.offsets == quick.offsets == [*range(4, 14)]
    for client in (again, quick):
        await client.stop()
    await service.close()


async def test_a_client_that_takes_nothing_is_cut(
    log: FakeLog, service: WatchService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "STALLED_S", 0.02)
    client = Client(service, filter=LOCKS, from_now=True, bookmark_interval_ms=100)
    await client.until(4)
    client.gate.clear()
    refusal = await client.ended()
    assert refusal.reason == "THROTTLING_QUOTA_EXCEEDED"
    assert service.tallies.cut.total == 1


async def test_an_idle_watch_gets_bookmarks_that_move(log: FakeLog, service: WatchService) -> None:
    """The position moves with batches that the watch does not show, so that a resume reads little."""
    client = Client(service, filter=LOCKS, from_now=True, bookmark_interval_ms=100)
    await client.until(4)
    log.append(Entity("shard", "7", b"", None))
    await client.until(5)
    assert not client.events
    assert client.messages[-1].timestamp_ms == log.batches[-1].last_timestamp_ms
    await client.stop()


# --- the node --------------------------------------------------------------------------------------------------------


async def test_a_fenced_node_ends_its_watches_after_what_it_has_shown(log: FakeLog, service: WatchService) -> None:
    client = Client(service, filter=LOCKS, from_now=True)
    await client.until(4)
    log.append(lock("a"))
    await client.until(5)
    log.fence("broker 7 is fenced")
    assert (await client.ended()).reason == "BROKER_NOT_AVAILABLE"
    assert (await Client(service, filter=LOCKS).ended()).reason == "BROKER_NOT_AVAILABLE"
    log.unavailable = None
    again = Client(service, filter=LOCKS, position=client.position)
    await again.until(5)
    await again.stop()


async def test_a_node_that_loads_an_older_image_ends_its_watches(log: FakeLog, service: WatchService) -> None:
    """What the watches have shown may not be true in the image that comes."""
    client = Client(service, filter=LOCKS, from_now=True)
    await client.until(4)
    log.replay = FakeLog(log.batches[:1]).replay
    log.tell()
    assert (await client.ended()).reason == "NOT_READY"


async def test_a_new_generation_ends_the_watches_and_they_go_on(log: FakeLog, service: WatchService) -> None:
    client = Client(service, filter=LOCKS, from_now=True)
    await client.until(4)
    log.generation = 2
    log.tell()
    assert (await client.ended()).reason == "BROKER_NOT_AVAILABLE"
    again = Client(service, filter=LOCKS, position=client.position)
    await again.until(4)
    assert again.position is not None and again.position.generation == 2
    await again.stop()


async def test_a_damaged_log_sends_the_client_elsewhere(log: FakeLog, service: WatchService) -> None:
    client = Client(service, filter=LOCKS, from_now=True)
    await client.until(4)
    log.is_damaged = True
    log.append(lock("a"))
    assert (await client.ended()).reason == "STORAGE_ERROR"


async def test_a_node_that_stops_ends_its_watches(log: FakeLog, service: WatchService) -> None:
    client = Client(service, filter=LOCKS, from_now=True)
    await client.until(4)
    await service.close()
    assert (await client.ended()).reason == "BROKER_NOT_AVAILABLE"
    assert (await Client(service, filter=LOCKS).ended()).reason == "BROKER_NOT_AVAILABLE"


async def test_a_bug_in_reading_ends_the_watches_and_is_told(
    log: FakeLog, service: WatchService, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A watch that stays open and silent would look like an idle cluster."""
    client = Client(service, filter=LOCKS, from_now=True)
    await client.until(4)

    def fails(*_: object) -> None:
        raise AssertionError("told to")

    monkeypatch.setattr(hub, "wave_of", fails)
    log.append(lock("a"))
    assert (await client.ended()).reason == "UNKNOWN_SERVER_ERROR"
    assert "told to" in caplog.text
    monkeypatch.undo()
    again = Client(service, filter=LOCKS, position=client.position)
    await again.until(5)
    await again.stop()


async def test_a_node_has_so_many_watches_and_no_more(log: FakeLog) -> None:
    service = WatchService(log, watches_max=1)
    client = Client(service, filter=LOCKS)
    await client.until(4)
    assert (await Client(service, filter=LOCKS).ended()).reason == "THROTTLING_QUOTA_EXCEEDED"
    await client.stop()
    again = Client(service, filter=LOCKS)
    await again.until(4)
    await again.stop()
    await service.close()


async def test_a_node_promises_so_many_bookmarks_a_second_and_no_more(log: FakeLog) -> None:
    """1,000 watches with a bookmark every 100 ms took a whole core, and a controller lost its leader under them."""
    service = WatchService(log, bookmarks_per_s_max=20)
    clients = [Client(service, filter=LOCKS, bookmark_interval_ms=100) for _ in range(2)]
    for client in clients:
        await client.until(4)
    refused = await Client(service, filter=LOCKS).ended()
    assert refused.reason == "THROTTLING_QUOTA_EXCEEDED"
    assert "ask another node, or for a longer bookmark_interval_ms than 5,000" in str(refused)
    await clients.pop().stop()
    clients.append(Client(service, filter=LOCKS))
    await clients[-1].until(4)
    for client in clients:
        await client.stop()
    await service.close()
