"""Streams of assignments: from the first current image to the end of the broker, for any number of readers."""

import asyncio
import random
from itertools import islice

import pytest

from broker_agent.publishing.assignment_feed import BURST, AssignmentFeed, AssignmentStream
from broker_agent.publishing.assignments import (
    Assignment,
    AssignmentNews,
    Delete,
    ResumePoint,
    TopicIdPartition,
    WholeSet,
    all_assignments,
)
from broker_agent.publishing.publishers import ImageUpdate
from metadata_log.format.records import MetadataRecord, Partition, PartitionChange, Topic
from metadata_log.image.changes import Changes
from metadata_log.image.delta import MetadataDelta
from metadata_log.image.metadata_image import NOWHERE, Provenance
from tests.metadata_log.image.histories import History, broker, newest_level

ME = 1
ORDERS = b"o" * 16


class Broker:
    """The feed of broker 1, whose image is current from `current_at` on."""

    def __init__(self, current_at: int = 0) -> None:
        delta = MetadataDelta(newest_level())
        for broker_id in (1, 2):
            delta.replay(broker(broker_id), 0)
        self.image = delta.finish(NOWHERE)
        self.generation = 1
        self.feed = AssignmentFeed(ME, lambda image: image.offset >= current_at)

    async def write(self, *records: MetadataRecord) -> None:
        before, delta = self.image, MetadataDelta(self.image)
        for offset, record in enumerate(records, before.offset):
            delta.replay(record, offset)
        self.image = delta.finish(Provenance(before.offset + len(records), 1, 1_000))
        await self.feed.take(ImageUpdate(before, self.image, delta.changed, self.generation))


def orders(count: int, leader: int = ME) -> list[Partition]:
    return [Partition(ORDERS, number, (1, 2), (1, 2), (), (), leader, 0, 0, 0) for number in range(count)]


def drawn(news: AssignmentNews) -> str:
    return f"{type(news).__name__} {news.partition if isinstance(news, Assignment) else len(news.replicas)}"


async def read(stream: AssignmentStream, count: int) -> list[str]:
    return [drawn(await anext(stream)) for _ in range(count)]


async def test_nothing_is_assigned_before_the_image_is_current() -> None:
    """An assignment from the disk of a broker that was away may be stale: 2 leads orders-0 now."""
    me = Broker(current_at=4)
    stream = me.feed.stream(None)
    reading = asyncio.get_running_loop().create_task(read(stream, 3))
    await me.write(Topic("orders", ORDERS), *orders(2))
    await asyncio.sleep(0)
    assert not reading.done() and me.feed.read(None) is None
    await me.write(PartitionChange(ORDERS, 0, leader=2))
    assert await reading == ["WholeSet 2", "Follow 0", "Lead 1"]
    assert stream.resume_point == ResumePoint(1, 4)


async def test_a_reader_goes_on_where_another_has_ended() -> None:
    """The point of a reader that breaks off between two changes lies before the change that it has not finished."""
    me = Broker()
    await me.write(Topic("orders", ORDERS), *orders(2))
    stream = me.feed.stream(None)
    assert await read(stream, 2) == ["WholeSet 2", "Lead 0"]
    points = [stream.resume_point]
    assert await read(stream, 1) == ["Lead 1"]
    points.append(kept := stream.resume_point)
    assert points == [None, ResumePoint(1, 3)]
    await me.write(PartitionChange(ORDERS, 0, leader=2), PartitionChange(ORDERS, 1, leader=2))
    await me.write(PartitionChange(ORDERS, 1, leader=1))
    assert await read(stream, 1) == ["Follow 0"]
    assert stream.resume_point == ResumePoint(1, 5)
    assert await read(me.feed.stream(kept), 2) == ["Follow 0", "Lead 1"]
    assert await read(me.feed.stream(stream.resume_point), 1) == ["Lead 1"]


async def test_a_new_generation_waits_until_its_image_is_current() -> None:
    """Nothing is deleted: the whole set of the new history says what is there."""
    me = Broker(current_at=3)
    await me.write(Topic("orders", ORDERS), *orders(2))
    stream = me.feed.stream(None)
    assert await read(stream, 3) == ["WholeSet 2", "Lead 0", "Lead 1"]
    recovered, me.generation = Broker(), 2
    me.image = recovered.image
    await me.write(Topic("orders", ORDERS))
    assert me.feed.read(stream.resume_point) == ((), ResumePoint(1, 3))
    await me.write(*orders(1), Topic("late", b"l" * 16))
    assert await read(stream, 2) == ["WholeSet 1", "Lead 0"]
    assert stream.resume_point == ResumePoint(2, 3)


async def test_a_stream_ends_with_the_broker_and_lets_others_run() -> None:
    """A reader of a large set gives way again and again; at the end it has read all of it."""
    me = Broker()
    await me.write(Topic("orders", ORDERS), *orders(3 * BURST))
    turns, running = 0, True

    async def others() -> None:
        nonlocal turns
        while running:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.get_running_loop().create_task(others())
    me.feed.end()
    news = [each async for each in me.feed.stream(None)]
    running = False
    await beside
    assert turns >= 3
    assert isinstance(news[0], WholeSet) and len(news) == 3 * BURST + 1
    assert {each.replica for each in islice(news, 1, None) if isinstance(each, Assignment)} == news[0].replicas


class Store:
    """A data plane that crashes now and then, and goes on from the point that it has kept, or from nothing."""

    def __init__(self, feed: AssignmentFeed, dice: random.Random) -> None:
        self.feed, self.dice = feed, dice
        self.roles: dict[TopicIdPartition, Assignment] = {}
        self.kept: ResumePoint | None = None
        self.stream = feed.stream(None)

    async def obey(self) -> None:
        """Carries out what is there, and keeps the point after some of it."""
        while (reading := self.feed.read(self.stream.resume_point)) is not None and reading[0]:
            for _ in range(self.dice.randint(1, 2 * len(reading[0]))):
                if (left := self.feed.read(self.stream.resume_point)) is None or not left[0]:
                    break
                self.carry_out(await anext(self.stream))
                if self.dice.random() < 0.7:
                    self.kept = self.stream.resume_point
                if self.dice.random() < 0.05:
                    self.stream = self.feed.stream(self.kept)

    def carry_out(self, news: AssignmentNews) -> None:
        if isinstance(news, WholeSet):
            self.roles = {replica: role for replica, role in self.roles.items() if replica in news.replicas}
        elif isinstance(news, Delete):
            self.roles.pop(news.replica, None)
        else:
            self.roles[news.replica] = news


@pytest.mark.parametrize("seed", range(4))
async def test_readers_that_crash_anywhere_end_with_the_roles_of_the_image(seed: int) -> None:
    """Any points that are kept, and a new generation in the middle, whose history lacks the end of the old one."""
    dice, generation, compared = random.Random(seed), 1, 0
    history = History(seed).run(10)
    feed = AssignmentFeed(ME, lambda image: True)
    await feed.take(ImageUpdate.whole(history.image, generation))
    stores = [Store(feed, dice) for _ in range(3)]
    for step in range(80):
        before = history.image
        for _ in range(dice.randint(1, 4)):
            for record in history.next_records():
                history.append(record)
        if step == 40:
            generation, history = 2, History(seed).run(25)
            await feed.take(ImageUpdate.whole(history.image, generation))
        else:
            await feed.take(ImageUpdate(before, history.image, Changes.between(before, history.image), generation))
        for store in stores:
            if dice.random() < 0.5:
                await store.obey()
                assert store.roles == all_assignments(history.image, ME)
                compared += bool(store.roles)
    assert compared > 30
