"""The asyncio half of a client's metadata: with a fake clock and fake brokers, and once against a real service."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest

from clients.metadata.refresher import Problem, ProblemKind
from clients.metadata_calls import MetadataProblem
from metadata_log.format.errors import ErrorCode
from metaquorum import (
    ClientConfig,
    Cluster,
    ClusterDescription,
    ClusterNode,
    ClusterResource,
    MetadataClient,
    MetadataError,
    MetadataRequestPlan,
    MetadataUpdate,
    PartitionView,
    TopicPartition,
    TopicUpdate,
    ViewVersion,
)
from service_kit.process.endpoints import BadEndpoint

CLOSED = Problem(ProblemKind.NOT_CONNECTED, ErrorCode.BROKER_NOT_AVAILABLE, "nobody listens there")
LOST = Problem(ProblemKind.LOST, ErrorCode.REQUEST_TIMED_OUT, "the connection broke")
DENIED = Problem(ProblemKind.FATAL, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no such client")


class FakeClock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self._now_ms = 1_000_000
        self._event: asyncio.Event | None = None
        self._until_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    async def wait(self, event: asyncio.Event, until_ms: int) -> None:
        self._event, self._until_ms = event, until_ms
        if self._now_ms < until_ms:
            await event.wait()

    async def run(self, ms: int) -> None:
        """Lets `ms` pass, with a stop at every moment at which the client wants to do something."""
        end_ms = self._now_ms + ms
        await settle()
        while self._until_ms < end_ms:
            await self._go_to(max(self._until_ms, self._now_ms))
        await self._go_to(end_ms)

    async def _go_to(self, now_ms: int) -> None:
        self._now_ms = now_ms
        if self._event is not None and now_ms >= self._until_ms:
            self._event.set()
        await settle()


async def settle() -> None:
    """Lets all tasks run until they wait."""
    for _ in range(10):
        await asyncio.sleep(0)


class FakeBrokers:
    """Brokers 1 to 3, and what they answer. An entry in `broken` is the problem of a node; None: it never answers."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.topics: dict[str, TopicUpdate] = {}
        self.broken: dict[str, Problem | None] = {}
        self.held: asyncio.Event | None = None
        self.asked: list[tuple[int, str, tuple[str, ...]]] = []
        """The time, the host and the topics of each request."""
        self.most_in_flight = self._in_flight = 0
        self.cluster_id = "cluster"
        self.is_closed = False

    async def fetch(
        self, node: ClusterNode, plan: MetadataRequestPlan, page_came: Callable[[], None]
    ) -> MetadataUpdate:
        self._in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self._in_flight)
        try:
            self.asked.append((self.clock.now_ms(), node.host, plan.topics))
            if node.host in self.broken:
                problem = self.broken[node.host]
                if problem is None:
                    await asyncio.Event().wait()
                else:
                    raise MetadataProblem(problem)
            if self.held is not None:
                await self.held.wait()
            return self.answer(plan)
        finally:
            self._in_flight -= 1

    def answer(self, plan: MetadataRequestPlan) -> MetadataUpdate:
        nodes = tuple(ClusterNode(node_id, f"b{node_id}", 9092) for node_id in (1, 2, 3))
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        names = self.topics if plan.all_topics else plan.topics
        told = tuple(self.topics.get(name, TopicUpdate(name, None, error=unknown)) for name in names)
        return MetadataUpdate(self.cluster_id, nodes, told, 1, ViewVersion(1, self.clock.now_ms()))

    def create(self, name: str, partitions: int = 1, leader: int = 1, epoch: int = 0) -> None:
        views = tuple(PartitionView(name, number, leader, epoch) for number in range(partitions))
        self.topics[name] = TopicUpdate(name, name.encode().ljust(16), views)

    async def describe(self, node: ClusterNode) -> ClusterDescription:
        raise NotImplementedError("tests of this file ask for metadata only")

    async def configs(self, node: ClusterNode, resources: Any) -> Any:
        raise NotImplementedError("tests of this file ask for metadata only")

    @property
    def hosts(self) -> list[str]:
        return [host for _, host, _ in self.asked]

    async def close(self) -> None:
        self.is_closed = True


class World:
    """A client, its clock and its brokers."""

    def __init__(self, bootstrap: str = "boot:9092", **options: Any) -> None:
        self.clock = FakeClock()
        self.brokers = FakeBrokers(self.clock)
        self.client = MetadataClient(bootstrap, calls=self.brokers, clock=self.clock, dice=random.Random(7), **options)

    def waits(self, topic: str, partition: int | None = None, max_wait_s: float = 60) -> asyncio.Task[Any]:
        return asyncio.ensure_future(self.client.wait_for(topic, partition, max_wait_s))


@asynccontextmanager
async def world(**options: Any) -> AsyncIterator[World]:
    made = World(**options)
    async with made.client:
        yield made
        assert made.brokers.most_in_flight <= 1


async def refused(wait: asyncio.Task[Any]) -> MetadataError:
    with pytest.raises(MetadataError) as caught:
        await wait
    return caught.value


# --- waiting ---------------------------------------------------------------------------------------------------------


async def test_a_topic_is_asked_for_when_somebody_waits_for_it() -> None:
    """The first wait asks a broker, the second finds the view: no request, no time."""
    async with world() as all_:
        all_.brokers.create("orders", 2)
        found = await all_.waits("orders", 1)
        assert found.cluster is all_.client.cluster
        asked = len(all_.brokers.asked)
        assert (await all_.client.wait_for("orders")).waited_ms == 0
        assert len(all_.brokers.asked) == asked


async def test_a_wait_ends_when_the_topic_is_created() -> None:
    """Nobody had created it: the client asks again and again, rarer and rarer, until the topic is there."""
    async with world() as all_:
        wait = all_.waits("orders")
        await all_.clock.run(5_000)
        assert not wait.done()
        pauses = [after - before for (before, *_), (after, *_) in pairwise(all_.brokers.asked)]
        assert all(80 <= pause <= 1_200 for pause in pauses[2:]), pauses
        assert 5 < len(pauses) < 15 and pauses[-1] > 700

        all_.brokers.create("orders")
        await all_.clock.run(1_000)
        assert 5_000 < (await wait).waited_ms <= 6_000


async def test_a_wait_is_over_after_its_time() -> None:
    """max.block.ms is 60 s, and the message names topic, time and the last failure. All addresses failed."""
    async with world() as all_:
        all_.brokers.broken["boot"] = CLOSED
        waits = [all_.waits("orders"), all_.waits("orders", 3, 0.5)]
        await all_.clock.run(500)
        assert "after 500 ms; the last request failed: nobody listens there" in (await refused(waits[1])).message
        await all_.clock.run(59_499)
        assert not waits[0].done()
        await all_.clock.run(1)
        error = await refused(waits[0])
        assert error.code is ErrorCode.REQUEST_TIMED_OUT
        assert error.message.startswith("topic 'orders' is not in the metadata after 60000 ms")


async def test_a_wait_for_no_time_finds_what_is_there_and_a_negative_one_is_refused() -> None:
    async with world() as all_:
        all_.brokers.create("orders")
        assert (await refused(all_.waits("orders", max_wait_s=0))).code is ErrorCode.REQUEST_TIMED_OUT
        await all_.waits("orders")
        assert (await all_.client.wait_for("orders", max_wait_s=0)).waited_ms == 0
        with pytest.raises(ValueError, match="the maximum wait is -1 ms"):
            await all_.client.wait_for("orders", max_wait_s=-0.001)


async def test_a_wait_that_is_cancelled_is_forgotten() -> None:
    """The other waits for the same topic go on."""
    async with world() as all_:
        gone, here = all_.waits("orders"), all_.waits("orders")
        await all_.clock.run(100)
        gone.cancel()
        await settle()
        assert len(all_.client._waits) == 1
        all_.brokers.create("orders")
        await all_.clock.run(1_000)
        await here


async def test_a_topic_added_while_a_request_is_in_flight_is_asked_for_next() -> None:
    """One request at a time: the answer to the first does not stand for the second topic."""
    async with world() as all_:
        all_.brokers.held = asyncio.Event()
        all_.brokers.create("a")
        all_.brokers.create("b")
        waits = [all_.waits("a")]
        await settle()
        waits.append(all_.waits("b"))
        await settle()
        assert len(all_.brokers.asked) == 1
        all_.brokers.held.set()
        await asyncio.gather(*waits)
        assert [topics for _, _, topics in all_.brokers.asked] in ([("a",), ("b",)], [(), ("a", "b")])


# --- refreshing ------------------------------------------------------------------------------------------------------


async def test_metadata_is_refreshed_every_five_minutes() -> None:
    """metadata.max.age.ms: and until then nobody is asked."""
    async with world() as all_:
        all_.brokers.create("orders")
        await all_.waits("orders")
        asked = len(all_.brokers.asked)
        await all_.clock.run(299_000)
        assert len(all_.brokers.asked) == asked
        await all_.clock.run(2_000)
        assert len(all_.brokers.asked) == asked + 1


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
    ],
)
async def test_what_a_producer_learns_forces_a_refresh(code: ErrorCode) -> None:
    """An unknown leader, a disconnect, a timeout and a stale answer: after the retry back-off the client knows the new leader,
    and tells its listeners. A node that did not answer is not asked."""
    async with world() as all_:
        seen = list[Cluster]()
        all_.brokers.create("orders", leader=1)
        await all_.waits("orders")
        await all_.clock.run(1_000)
        all_.client.subscribe(seen.append)
        all_.brokers.create("orders", leader=2, epoch=1)
        before = len(all_.brokers.asked)
        assert all_.client.note_stale(code, 1)
        await settle()
        assert seen[-1].partitions[TopicPartition("orders", 0)].leader_id == 2
        if code in (ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT):
            assert "b1" not in all_.brokers.hosts[before:]
        assert not all_.client.note_stale(ErrorCode.RECORD_BATCH_TOO_LARGE, 1)


async def test_a_later_leader_epoch_forces_a_refresh_and_an_older_one_does_not() -> None:
    """A broker's response has epoch 5, the view 4."""
    async with world() as all_:
        all_.brokers.create("orders", epoch=4)
        await all_.waits("orders")
        await all_.clock.run(1_000)
        asked = len(all_.brokers.asked)
        assert not all_.client.note_leader_epoch("orders", 0, 4)
        assert all_.client.note_leader_epoch("orders", 0, 5)
        all_.brokers.create("orders", leader=3, epoch=5)
        await settle()
        assert len(all_.brokers.asked) == asked + 1
        assert all_.client.cluster.leader_of(TopicPartition("orders", 0)) == ClusterNode(3, "b3", 9092)


async def test_an_update_can_be_requested() -> None:
    """Two requests are retry.backoff.ms apart, and further apart while the answers are equal, however often an update is
    requested."""
    async with world() as all_:
        await all_.clock.run(1_000)
        first = len(all_.brokers.asked)
        for _ in range(1_000):
            all_.client.request_update()
            await all_.clock.run(1)
        times = [at for at, *_ in all_.brokers.asked[first:]]
        assert 4 <= len(times) <= 7
        assert all(after - before >= 80 for before, after in pairwise(times))


async def test_topics_nobody_waits_for_expire() -> None:
    """metadata.max.idle.ms: at the second refresh the topic is no longer asked for, and it leaves the view."""
    async with world() as all_:
        all_.brokers.create("orders")
        await all_.waits("orders")
        await all_.clock.run(700_000)
        assert all_.brokers.asked[-1][2] == ()
        assert all_.client.cluster.topics == frozenset()


async def test_a_client_of_all_topics_knows_them_without_asking() -> None:
    async with world(all_topics=True) as all_:
        all_.brokers.create("orders")
        all_.brokers.create("payments")
        await settle()
        assert all_.client.cluster.topics == {"orders", "payments"}


# --- nodes -----------------------------------------------------------------------------------------------------------


async def test_the_broker_with_the_fewest_requests_in_flight_is_asked() -> None:
    """A producer has requests under way to two brokers."""
    async with world() as all_:
        await settle()
        for busy, free in (((1, 2), "b3"), ((2, 3), "b1"), ((1, 3), "b2")):
            with all_.client.requests_to(busy[0]), all_.client.requests_to(busy[1]):
                all_.client.request_update()
                await all_.clock.run(1_200)
                assert all_.brokers.hosts[-1] == free


async def test_a_broker_that_does_not_answer_is_given_up_and_another_one_is_asked() -> None:
    """request.timeout.ms is 30 s. The wait goes on meanwhile, and ends with the answer of the other broker."""
    async with world() as all_:
        await settle()
        all_.brokers.create("orders")
        for host in ("b1", "b2", "b3"):
            all_.brokers.broken[host] = None
        wait = all_.waits("orders")
        await settle()
        mute = all_.brokers.hosts[-1]
        all_.brokers.broken = {mute: None}
        await all_.clock.run(29_999)
        assert not wait.done()
        await all_.clock.run(200)
        assert 30_000 <= (await wait).waited_ms <= 30_200
        assert all_.brokers.hosts[-1] != mute


async def test_a_client_whose_brokers_are_all_gone_begins_again_with_the_bootstrap_addresses() -> None:
    """KIP-899: all brokers were replaced, and only the bootstrap address (a load balancer) is the same. The wait ends well."""
    async with world() as all_:
        await settle()
        all_.brokers.create("orders")
        all_.brokers.broken = {"b1": CLOSED, "b2": CLOSED, "b3": CLOSED}
        await all_.waits("orders")
        assert sorted(all_.brokers.hosts[1:4]) == ["b1", "b2", "b3"]
        assert all_.brokers.hosts[4] == "boot"


async def test_a_name_that_cannot_be_resolved_keeps_no_client_from_starting() -> None:
    """KIP-909. The client asks the other address at once; a client with no other address finds the brokers when the name is
    there."""
    unknown = Problem(ProblemKind.NOT_CONNECTED, ErrorCode.BROKER_NOT_AVAILABLE, "its name cannot be resolved")
    for addresses in ("nowhere:9092", "nowhere:9092,boot:9092"):
        made = World(bootstrap=addresses)
        async with made.client:
            made.brokers.broken["nowhere"] = unknown
            made.brokers.create("orders")
            wait = made.waits("orders")
            await made.clock.run(300)
            assert wait.done() == ("boot" in addresses)
            del made.brokers.broken["nowhere"]
            await made.clock.run(1_000)
            await wait


async def test_while_nobody_can_be_reached_attempts_become_rarer() -> None:
    """reconnect.backoff.ms is 50 with jitter, doubled up to 1 s: about 70 attempts a minute, and not thousands."""
    async with world() as all_:
        all_.brokers.broken["boot"] = LOST
        await all_.clock.run(60_000)
        assert 55 <= len(all_.brokers.asked) <= 90
        all_.brokers.broken.clear()
        await all_.clock.run(1_200)
        assert not all_.client.cluster.is_bootstrap


# --- errors and the end ----------------------------------------------------------------------------------------------


async def test_a_fatal_error_fails_all_who_wait_and_the_client_goes_on() -> None:
    """A certificate was refused; after it is renewed the next wait succeeds."""
    async with world() as all_:
        all_.brokers.broken["boot"] = DENIED
        waits = [all_.waits("a"), all_.waits("b")]
        for wait in waits:
            assert (await refused(wait)).code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        all_.brokers.broken.clear()
        all_.brokers.create("a")
        wait = all_.waits("a")
        await all_.clock.run(2_000)
        await wait


async def test_close_fails_all_who_wait_and_closes_the_connections() -> None:
    """Also a wait for a topic in the view, and every later wait. A second close does nothing."""
    made = World()
    async with made.client:
        made.brokers.create("b")
        await made.waits("b")
        made.brokers.held = asyncio.Event()
        wait = made.waits("a")
        await settle()
    assert "was closed" in (await refused(wait)).message
    assert made.brokers.is_closed and made.brokers._in_flight == 0
    assert "was closed" in (await refused(made.waits("b"))).message
    await made.client.close()


async def test_a_mistake_in_a_listener_or_in_a_call_is_logged_and_stops_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The other listener hears all the same; a wait ends with the call's error instead of hanging."""
    async with world() as all_:
        seen = list[Cluster]()
        stop = all_.client.subscribe(lambda cluster: 1 // 0)
        all_.client.subscribe(seen.append)
        await settle()
        assert len(seen) == 1
        stop()
        assert "a listener of the metadata client has failed" in caplog.text

        all_.brokers.topics["a"] = None  # type: ignore[assignment]
        assert "AttributeError" in (await refused(all_.waits("a"))).message
        all_.brokers.create("a")
        wait = all_.waits("a")
        await all_.clock.run(1_000)
        await wait


async def test_another_cluster_behind_the_address_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The first id is news, another id is a warning. Listeners of the cluster hear both."""
    caplog.set_level(logging.INFO, logger="clients.metadata_client")
    async with world() as all_:
        heard = list[ClusterResource]()
        all_.client.subscribe_cluster(heard.append)
        await settle()
        all_.brokers.cluster_id = "other"
        all_.client.request_update()
        await all_.clock.run(200)
        assert heard == [ClusterResource("cluster"), ClusterResource("other")]
        assert [(each.levelname, each.message) for each in caplog.records] == [
            ("INFO", "cluster id: cluster"),
            ("WARNING", "the brokers now belong to cluster other, and no longer to cluster"),
        ]


def test_bad_bootstrap_addresses_and_times_are_refused_before_anything_is_sent() -> None:
    with pytest.raises(BadEndpoint):
        MetadataClient("b1")
    with pytest.raises(ValueError, match="request_timeout_ms is 0"):
        MetadataClient("b1:9092", config=ClientConfig(request_timeout_ms=0))
