"""Publishers: each subscriber gets every change in order, whatever the other subscribers do."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from broker_agent.publishing.publishers import ImageUpdate, Publishers
from metadata_log.format.records import RemoveTopic, Topic
from metadata_log.image.delta import MetadataDelta
from metadata_log.image.metadata_image import EMPTY_IMAGE, MetadataImage, Provenance


class Said:
    """A log that keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, Any]] = []

    def info(self, event: str, **fields: object) -> None:
        self.lines.append((event, fields["publisher"]))

    error = info


class Cache:
    """Swaps one image after the other, and publishes each swap."""

    def __init__(self) -> None:
        self.log = Said()
        self.tasks: list[asyncio.Task[None]] = []
        self.pauses: list[float] = []
        self.may_go_on = asyncio.Semaphore(0)
        self.publishers = Publishers(self.spawn, self.log, generation=1, rest=self.rest)
        self.image: MetadataImage = EMPTY_IMAGE

    async def rest(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await self.may_go_on.acquire()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    def swap(self, *records: Topic | RemoveTopic) -> None:
        before, delta = self.image, MetadataDelta(self.image)
        for offset, record in enumerate(records, before.offset):
            delta.replay(record, offset)
        self.image = delta.finish(Provenance(before.offset + len(records), 1, 1_000))
        self.publishers.publish(before, self.image, delta.changed)

    def add(self, name: str) -> None:
        self.swap(Topic(name, name.encode() * 16))


class Seen:
    """A subscriber that notes each update as `before..after: topics created -topics deleted`, and may be told to fail."""

    def __init__(self) -> None:
        self.updates: list[str] = []
        self.after: MetadataImage = EMPTY_IMAGE
        self.fails = False

    def take(self, update: ImageUpdate) -> None:
        if self.fails:
            raise KeyError("told to")
        assert update.before is self.after
        assert update.provenance.offset == update.after.offset
        self.after = update.after
        created = "".join(sorted(update.after.topics_by_id[each].name for each in update.changes.created_topics))
        deleted = "".join(f"-{name}" for name in sorted(update.changes.deleted_topics.values()))
        self.updates.append(f"{update.before.offset}..{update.after.offset}: {created}{deleted}")


class SeenSlowly(Seen):
    """A coroutine that takes an update only when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.may = asyncio.Semaphore(0)

    async def take_slowly(self, update: ImageUpdate) -> None:
        await self.may.acquire()
        self.take(update)


def test_subscribers_get_every_swap_in_their_order() -> None:
    """A subscriber that comes late gets the whole image first."""
    cache, first, late = Cache(), Seen(), Seen()
    order: list[str] = []
    cache.publishers.subscribe("first", first.take)
    cache.publishers.subscribe("a", lambda update: order.append("a"))
    cache.publishers.subscribe("b", lambda update: order.append("b"))
    cache.add("x")
    cache.add("y")
    cache.publishers.subscribe("late", late.take)
    cache.swap(RemoveTopic("x", b"x" * 16), Topic("z", b"z" * 16))
    assert first.updates == ["0..1: x", "1..2: y", "2..4: z-x"]
    assert late.updates == ["0..2: xy", "2..4: z-x"]
    assert order == ["a", "b"] * 3
    cache.publishers.unsubscribe("late")
    cache.add("u")
    assert len(late.updates) == 2
    with pytest.raises(ValueError, match="no subscription: 'first' is empty or the name of another publisher"):
        cache.publishers.subscribe("first", late.take)


def test_a_subscriber_that_fails_is_a_problem_and_stops_no_other() -> None:
    """It is told of once, and gets the update that it has not taken again, with the next one."""
    cache, bad, good = Cache(), Seen(), Seen()
    cache.publishers.subscribe("bad", bad.take)
    cache.publishers.subscribe("good", good.take)
    cache.add("x")
    bad.fails = True
    cache.add("y")
    cache.add("z")
    assert good.updates == ["0..1: x", "1..2: y", "2..3: z"]
    (problem,) = cache.publishers.problems
    assert problem == ("bad", "KeyError: 'told to'", 2)
    assert cache.log.lines == [("publisher failed", "bad")]
    bad.fails = False
    cache.swap(RemoveTopic("y", b"y" * 16))
    assert bad.updates == ["0..1: x", "1..4: z"]
    assert cache.publishers.problems == ()
    assert cache.publishers.failures == {("bad",): 2, ("good",): 0}
    assert cache.log.lines[1:] == [("publisher works again", "bad")]


async def test_a_slow_subscriber_holds_nobody_up_and_gets_merged_changes() -> None:
    """While it works on one update, all later ones become one."""
    cache, slow, quick = Cache(), SeenSlowly(), Seen()
    cache.publishers.subscribe("slow", slow.take_slowly)
    cache.publishers.subscribe("quick", quick.take)
    cache.add("x")
    await asyncio.sleep(0)
    for name in "yzu":
        cache.add(name)
    assert len(quick.updates) == 4 and slow.updates == []
    slow.may.release()
    slow.may.release()
    await cache.tasks[0]
    assert slow.updates == ["0..1: x", "1..4: uyz"]
    cache.add("v")
    slow.may.release()
    await cache.tasks[1]
    assert slow.updates[2:] == ["4..5: v"]
    assert len(cache.tasks) == 2


async def test_a_slow_subscriber_that_fails_gets_the_update_again() -> None:
    """After a pause that doubles, also if nothing else happens; merged with what has come meanwhile."""
    cache, slow = Cache(), SeenSlowly()
    slow.fails = True
    cache.publishers.subscribe("slow", slow.take_slowly)
    cache.add("x")
    for _ in range(8):
        slow.may.release()
    for _ in range(7):
        cache.may_go_on.release()
    while len(cache.pauses) < 8:
        await asyncio.sleep(0)
    assert cache.pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    assert [each.failures for each in cache.publishers.problems] == [8]
    cache.add("y")
    slow.fails = False
    slow.may.release()
    cache.may_go_on.release()
    await cache.tasks[0]
    assert slow.updates == ["0..2: xy"]
    assert cache.publishers.problems == ()
    assert cache.log.lines == [("publisher failed", "slow"), ("publisher works again", "slow")]


def test_a_new_generation_begins_with_the_empty_image() -> None:
    """Its history may lack what subscribers have seen, so no changes lead from one to the other."""
    cache = Cache()
    seen: list[tuple[int, int, int]] = []
    cache.publishers.subscribe("seen", lambda it: seen.append((it.generation, it.before.offset, it.after.offset)))
    cache.add("x")
    cache.add("y")
    cache.publishers.begin_generation(2)
    cache.image = EMPTY_IMAGE
    cache.add("x")
    assert seen == [(1, 0, 1), (1, 1, 2), (2, 0, 1)]
