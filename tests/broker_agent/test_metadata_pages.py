"""What one Metadata request may cost its broker: a page of bounded size, built in slices of bounded work."""

import asyncio
from typing import Any

import pytest
from quorum_rpc.v1 import client_pb2

from broker_agent.cache import MetadataCache
from broker_agent.metadata_pages import PAGE_PARTITIONS_MAX, SLICE_PARTITIONS, Page, Turns
from broker_agent.session.lifecycle import BrokerState
from broker_agent.topic_order import TopicOrder
from broker_agent.wire import NAMES_MAX, ClusterMetadata
from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import (
    FENCED_MODE,
    METADATA_VERSION,
    BrokerMode,
    FeatureLevel,
    MetadataRecord,
    RemoveTopic,
    Topic,
)
from service_kit.rpc.grpc_options import MESSAGE_BYTES_MAX
from tests.broker_agent.test_cache import Cluster, broker, partition, topic_id
from tests.quorum.wire.calling import Context
from tests.quorum.wire.refusing import code_of, refusal_of

LISTENER = "PLAIN"


class Broker:
    """What the service needs to know of its broker, and no broker."""

    cluster_id = "cluster"
    generation = 3
    broker_id = 1
    incarnation = b"i" * 16
    state = BrokerState.ONLINE
    reason = "it was told so"
    broker_epoch = 5
    high_watermark = 0
    lease_lapsed = False
    problems = ()

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.serves = True

    @property
    def cache(self) -> MetadataCache:
        return self.cluster.cache

    def may_serve(self) -> bool:
        return self.serves

    async def applied(self, offset: int) -> None:
        raise AssertionError("nobody waits here")


def topic(name: str, partitions: int, replicas: tuple[int, ...] = (1, 2)) -> list[MetadataRecord]:
    return [
        Topic(name, topic_id(name)),
        *[partition(name, number, replicas, replicas[0]) for number in range(partitions)],
    ]


def cluster_of(**partitions: int) -> Cluster:
    cluster = Cluster()
    cluster.write(broker(1, LISTENER), broker(2, LISTENER))
    for name, count in partitions.items():
        cluster.write(*topic(name, count))
    return cluster


def service_of(cluster: Cluster, turns: Turns | None = None) -> ClusterMetadata:
    return ClusterMetadata(Broker(cluster), LISTENER, turns)


async def ask(service: ClusterMetadata, **fields: Any) -> client_pb2.MetadataResponse:
    names, ids = fields.pop("names", None), fields.pop("ids", None)
    topics = None if names is None else client_pb2.TopicNames(names=names)
    topic_ids = None if ids is None else client_pb2.TopicIds(ids=ids)
    request = client_pb2.MetadataRequest(topics=topics, topic_ids=topic_ids, **fields)
    return await service.Metadata(request, Context(request))


async def pages(service: ClusterMetadata, **fields: Any) -> list[client_pb2.MetadataResponse]:
    """As a client reads them: it goes on where the page before says."""
    told = [await ask(service, **fields)]
    while told[-1].next_page_token:
        assert told[-1].topics, "a page that brings nothing, and asks to come again"
        told.append(await ask(service, page_token=told[-1].next_page_token, **fields))
    assert all(page.error.code == 0 for page in told)
    return told


def token(**fields: Any) -> bytes:
    """The token of a page that no broker has sent, or none of this cluster."""
    return client_pb2.MetadataCursor(**fields).SerializeToString()


def partitions_of(told: list[client_pb2.MetadataResponse]) -> list[tuple[str, int]]:
    return [(topic.name, each.partition) for page in told for topic in page.topics for each in topic.partitions]


# --- pages -----------------------------------------------------------------------------------------------------------


async def test_pages_together_are_the_cluster() -> None:
    """Every partition once, in order of topic and number; a topic may begin on one page and end on another."""
    cluster = cluster_of(b=3, a=5, c=1)
    every = [("a", n) for n in range(5)] + [("b", n) for n in range(3)] + [("c", 0)]
    for limit in (1, 2, 3, 4, 5, 8, 9, 10, 0):
        told = await pages(service_of(cluster), page_size=limit)
        assert partitions_of(told) == every
        assert all(sum(len(topic.partitions) for topic in page.topics) <= (limit or 9) for page in told)
        assert {(page.generation, page.as_of_offset) for page in told} == {(3, cluster.image.offset)}
        assert {topic.partition_count for page in told for topic in page.topics if topic.name == "a"} == {5}
        assert all(len(page.nodes) == 2 for page in told)


async def test_named_topics_come_in_pages_too() -> None:
    """As they are asked for, each once; one that is not there counts as a partition."""
    service = service_of(cluster_of(a=3, b=2))
    too_long = "x" * 300
    told = await pages(service, names=["b", "nowhere", "b", too_long, "a"], page_size=2)
    assert partitions_of(told) == [("b", 0), ("b", 1), ("a", 0), ("a", 1), ("a", 2)]
    codes = {topic.name[:7]: topic.error.code for page in told for topic in page.topics}
    assert codes == {
        "b": 0,
        "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "x" * 7: ErrorCode.INVALID_TOPIC_EXCEPTION,
        "a": 0,
    }
    assert (await ask(service, names=[])).topics == []
    told = await pages(service, names=[too_long, too_long + "y"], page_size=1)
    assert len(told) == 1, "names that no topic can have are told apart by what a topic's name may have"
    told = await pages(service, names=["a", "", "b"], page_size=3)
    assert [len(page.topics) for page in told] == [1, 2], "a page that begins with the empty name has a token, too"


async def test_topics_can_be_asked_for_by_id() -> None:
    """As they are asked for, each once, in pages of any size. An id that no topic has is answered with UNKNOWN_TOPIC_ID; so is
    the id of a topic that was deleted between two pages, also if another topic has its name now."""
    cluster = cluster_of(a=3, b=2)
    service, nobody = service_of(cluster), b"n" * 16
    ids = [topic_id("b"), nobody, topic_id("b"), bytes(16), topic_id("a")]
    for size in (1, 2, 3, 4, 100):
        told = await pages(service, ids=ids, page_size=size)
        assert partitions_of(told) == [("b", 0), ("b", 1), ("a", 0), ("a", 1), ("a", 2)]
        unknown = {
            each.topic_id: ErrorCode(each.error.code) for page in told for each in page.topics if each.error.code
        }
        assert unknown == {nobody: ErrorCode.UNKNOWN_TOPIC_ID, bytes(16): ErrorCode.UNKNOWN_TOPIC_ID}
    assert (await ask(service, ids=[])).topics == []

    first = await ask(service, ids=[topic_id("a")], page_size=2)
    cluster.write(RemoveTopic("a", topic_id("a")), Topic("a", nobody))
    (told_topic,) = (await ask(service, ids=[topic_id("a")], page_token=first.next_page_token)).topics
    assert ErrorCode(told_topic.error.code) is ErrorCode.UNKNOWN_TOPIC_ID
    assert told_topic.name == ""


async def test_what_changes_between_pages_is_told_as_of_each_page() -> None:
    """A topic that was created anew under the cursor is told from its beginning; one that is gone is passed over."""
    cluster = cluster_of(a=4, b=4, c=1)
    service = service_of(cluster)
    first = await ask(service, page_size=6)
    place = client_pb2.MetadataCursor.FromString(first.next_page_token)
    assert (place.topic, place.partition) == ("b", 2)

    cluster.write(RemoveTopic("b", topic_id("b")))
    gone = await ask(service, page_token=first.next_page_token)
    assert gone.as_of_offset > first.as_of_offset
    assert partitions_of([gone]) == [("c", 0)]

    cluster.write(Topic("b", b"n" * 16), partition("b", 0, (1,), 1)._replace(topic_id=b"n" * 16))
    anew = await ask(service, page_token=first.next_page_token)
    assert partitions_of([anew]) == [("b", 0), ("c", 0)]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"page_size": -1}, "page_size is -1"),
        ({"page_token": token(topic="a", partition=-1)}, "page_token is not from an answer"),
        ({"page_token": b"\xff"}, "page_token is not from an answer"),
        ({"page_token": token(topic="a" * 300)}, "page_token is not from an answer"),
        ({"names": ["a"], "page_token": token(topic="b")}, "not among the requested topics"),
        ({"names": [str(n) for n in range(NAMES_MAX + 1)]}, "send several requests"),
        ({"ids": [bytes(16)] * (NAMES_MAX + 1)}, "send several requests"),
        ({"ids": [b"short"]}, "does not have 16 bytes"),
        ({"ids": [bytes(16)], "names": ["a"]}, "send two requests"),
        ({"ids": [bytes(16)], "page_token": token(topic="a", topic_id=b"a" * 16)}, "not among the requested ids"),
    ],
)
async def test_a_request_that_makes_no_sense_is_refused_with_the_reason(fields: dict[str, Any], words: str) -> None:
    refusal = await refusal_of(ask(service_of(cluster_of(a=1)), **fields))
    assert refusal.reason == "INVALID_REQUEST"
    assert words in refusal.message


async def test_a_cursor_from_anywhere_ends_somewhere() -> None:
    """Beyond the last partition, beyond the last topic: the last page, with nothing on it that was not asked for."""
    cluster = cluster_of(a=2, b=1)
    beyond = token(topic="a", partition=7, topic_id=topic_id("a"))
    assert partitions_of([await ask(service_of(cluster), page_token=beyond)]) == [("b", 0)]
    assert (await ask(service_of(cluster), page_token=token(topic="z"))).topics == []


async def test_a_page_is_limited_by_bytes_where_replicas_are_many() -> None:
    """4,500 partitions with 100 replicas each, whose ids take five bytes, are more than gRPC takes in one message."""
    cluster = Cluster()
    ids = tuple(range(1 << 28, (1 << 28) + 100))
    cluster.write(*[broker(each, LISTENER) for each in ids], *topic("a", 4_500, ids))
    told = await pages(service_of(cluster))
    assert len(partitions_of(told)) == 4_500
    assert sum(page.ByteSize() for page in told) > MESSAGE_BYTES_MAX
    assert all(page.ByteSize() < MESSAGE_BYTES_MAX // 2 for page in told)
    assert len(told) < 10


async def test_whoever_asks_for_more_than_a_page_gets_a_page() -> None:
    """A client's limit makes pages smaller, and never larger."""
    told = await ask(service_of(cluster_of(a=PAGE_PARTITIONS_MAX + 1)), page_size=1 << 30)
    assert [len(topic.partitions) for topic in told.topics] == [PAGE_PARTITIONS_MAX]
    assert client_pb2.MetadataCursor.FromString(told.next_page_token).partition == PAGE_PARTITIONS_MAX


async def test_a_lease_that_lapses_while_a_page_is_built_keeps_it_from_being_answered() -> None:
    """The lease is looked at when the answer leaves, and not only when it is begun."""
    here = Broker(cluster_of(a=3 * SLICE_PARTITIONS))
    asking = asyncio.ensure_future(ask(ClusterMetadata(here, LISTENER)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not asking.done()
    here.serves = False
    assert await code_of(asking) is ErrorCode.BROKER_NOT_AVAILABLE


# --- slices ----------------------------------------------------------------------------------------------------------


class Rounds:
    """How much was done in each round of the event loop; a round is what a lease's renewal waits for at the most."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.work = [0]
        self.steps = 0
        original = Page._topic

        def counting(page: Page, name: str | bytes) -> Any:
            before = page._left
            for step in original(page, name):
                self._add(before - page._left)
                before = page._left
                yield step
            self._add(before - page._left)

        monkeypatch.setattr(Page, "_topic", counting)

    def _add(self, partitions: int) -> None:
        self.work[-1] += partitions
        self.steps += 1

    async def count(self, *asked: Any) -> list[Any]:
        renewing = asyncio.ensure_future(self._renew())
        try:
            return await asyncio.gather(*asked)
        finally:
            renewing.cancel()

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.work.append(0)


async def test_requests_take_turns_with_each_other_and_with_everything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten clients ask for everything, on two listeners, and two hundred for one topic each: no round does more than two
    slices, and the small ones do not wait until the large ones are done."""
    cluster, turns = cluster_of(large=1_500, small=20), Turns()
    services = [service_of(cluster, turns), service_of(cluster, turns)]
    rounds, finished = Rounds(monkeypatch), list[str]()

    async def named(number: int, kind: str) -> None:
        names = ["small"] if kind == "small" else None
        told = await ask(services[number % 2], names=names)
        assert told.error.code == 0
        finished.append(kind)

    large = [named(number, "large") for number in range(10)]
    await rounds.count(*large, *[named(number, "small") for number in range(200)])
    assert max(rounds.work) <= 2 * SLICE_PARTITIONS
    assert sum(rounds.work) == 10 * 1_520 + 200 * 20
    assert finished[:200] == ["small"] * 200


@pytest.mark.slow
async def test_300000_partitions_hold_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unpaged, one request took 2 s in one piece, and its answer was larger than gRPC takes: a renewal of the lease came too late
    or never. Now no round of the event loop does more than two slices, and every page fits."""
    cluster = Cluster()
    cluster.write(*[broker(each, LISTENER) for each in (1, 2, 3)])
    cluster.write(*topic("one", 100_000, (1, 2, 3)))
    for thousand in range(10):
        cluster.write(*[record for n in range(2_000) for record in topic(f"t{thousand}-{n}", 10, (1, 2, 3))])
    rounds = Rounds(monkeypatch)
    service = service_of(cluster)
    (told,) = await rounds.count(pages(service))

    assert len(set(partitions_of(told))) == 300_000
    assert max(rounds.work) <= 2 * SLICE_PARTITIONS
    assert all(page.ByteSize() < MESSAGE_BYTES_MAX // 2 for page in told)
    assert len(told) == 300_000 // PAGE_PARTITIONS_MAX

    (named,) = await rounds.count(pages(service, names=["one", *[f"t9-{n}" for n in range(2_000)]]))
    assert len(partitions_of(named)) == 120_000
    assert max(rounds.work) <= 2 * SLICE_PARTITIONS


def test_names_are_sorted_a_shard_at_a_time_and_only_where_topics_came_or_went() -> None:
    """After one new topic among 5,000 one shard of 128 is sorted anew, and the order is that of a plain sort."""
    cluster, order = Cluster(), TopicOrder()
    cluster.write(*[Topic(f"t{n}", n.to_bytes(16)) for n in range(1, 5_001)])

    def taken(start: str) -> tuple[int, list[str]]:
        steps, names = 0, order.names_from(cluster.image.topic_ids, start)
        while True:
            try:
                next(names)
            except StopIteration as end:
                return steps, list(end.value)
            steps += 1

    plain = sorted(cluster.image.topic_ids.sorted_keys())
    assert taken("") == (128, plain)
    assert taken("t4") == (0, [name for name in plain if name >= "t4"])
    cluster.write(Topic("new", b"n" * 16))
    assert taken("") == (1, ["new", *plain])
    cluster.write(RemoveTopic("new", b"n" * 16))
    assert taken("t") == (1, plain)


# --- the status ------------------------------------------------------------------------------------------------------


async def test_a_broker_names_the_fence_of_an_operator() -> None:
    """The broker is well, so its own reason tells nothing: the status has the command that ends the fence."""
    cluster = cluster_of()
    cluster.write(FeatureLevel(METADATA_VERSION, 2), BrokerMode(1, FENCED_MODE, "slow disk"))
    kept_out = Broker(cluster)
    for state, reason in (
        (BrokerState.ONLINE, "it was told so"),
        (BrokerState.FENCED, "an operator keeps it out (slow disk); `quorumctl brokers unfence 1` ends that"),
    ):
        kept_out.state = state
        request = client_pb2.BrokerStatusRequest()
        status = await ClusterMetadata(kept_out, LISTENER).BrokerStatus(request, Context(request))
        assert status.reason == reason
