"""The calls of a client's metadata: pages, refusals, and the whole client against the service of real brokers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from quorum_rpc.v1 import client_pb2, client_pb2_grpc

from broker_agent.wire import ClusterMetadata
from clients.metadata.refresher import ProblemKind
from clients.metadata_calls import GrpcMetadataCalls, JoinedPages, MetadataProblem
from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import (
    BrokerRegistrationChange,
    Config,
    Endpoint,
    PartitionChange,
    RemoveTopic,
    Topic,
)
from metaquorum import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    ClientConfig,
    ClusterNode,
    MetadataClient,
    MetadataError,
    MetadataRequestPlan,
    OwnConfigs,
    TopicPartition,
    ViewVersion,
)
from quorum.wire.server import serve
from tests.broker_agent.test_cache import Cluster, broker, partition, topic_id
from tests.broker_agent.test_metadata_pages import LISTENER, Broker
from tests.quorum.wire.fake_node import ANY_PORT, IDENTITY, FakeNode

ALL = MetadataRequestPlan((), 0, False, True)


@asynccontextmanager
async def serving(service: Any) -> AsyncIterator[ClusterNode]:
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    client_pb2_grpc.add_ClusterMetadataServiceServicer_to_server(service, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield ClusterNode(-1, "127.0.0.1", port)
    finally:
        await server.stop(None)


class Brokers:
    """Two brokers with one cache, each with a server of its own."""

    def __init__(self, *nodes: ClusterNode, cluster: Cluster, services: list[Broker]) -> None:
        self.nodes = nodes
        self.cluster = cluster
        self.services = services
        for number, node in enumerate(nodes, 1):
            there = Endpoint(LISTENER, node.host, node.port)
            cluster.write(broker(number, LISTENER)._replace(endpoints=(there,)))

    @property
    def bootstrap(self) -> list[str]:
        return [f"{node.host}:{node.port}" for node in self.nodes]

    def create(self, name: str, partitions: int, leader: int = 1) -> None:
        states = [partition(name, number, (1, 2), leader) for number in range(partitions)]
        self.cluster.write(Topic(name, topic_id(name)), *states)


@asynccontextmanager
async def two_brokers() -> AsyncIterator[Brokers]:
    cluster = Cluster()
    services = [Broker(cluster), Broker(cluster)]
    async with (
        serving(ClusterMetadata(services[0], LISTENER)) as one,
        serving(ClusterMetadata(services[1], LISTENER)) as two,
    ):
        yield Brokers(one, two, cluster=cluster, services=services)


async def fetched(node: ClusterNode, plan: MetadataRequestPlan, page_size: int = 0) -> tuple[Any, int]:
    """The answer, and the number of its pages."""
    calls, pages = GrpcMetadataCalls(page_size=page_size), []
    try:
        return await calls.fetch(node, plan, lambda: pages.append(1)), len(pages)
    finally:
        await calls.close()


# --- pages -----------------------------------------------------------------------------------------------------------


async def test_pages_of_any_size_make_one_answer() -> None:
    """A topic that begins on one page and ends on another is whole. Too many topics for one request are asked for in parts."""
    async with two_brokers() as brokers:
        brokers.create("a", 5)
        brokers.create("b", 3)
        whole, pages = await fetched(brokers.nodes[0], ALL)
        assert pages == 1
        assert [(topic.name, len(topic.partitions)) for topic in whole.topics] == [("a", 5), ("b", 3)]
        assert whole.as_of == ViewVersion(3, brokers.cluster.image.offset)
        assert [node.node_id for node in whole.nodes] == [1, 2]
        assert await fetched(brokers.nodes[0], ALL, 2) == (whole, 4)
        named = MetadataRequestPlan(("a", "nowhere"), 0, True)
        told, pages = await fetched(brokers.nodes[0], named, 4)
        assert [(topic.name, topic.error) for topic in told.topics] == [
            ("a", ErrorCode.NONE),
            ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        many = MetadataRequestPlan(tuple(f"t{n}" for n in range(10_001)), 0, False)
        told, pages = await fetched(brokers.nodes[0], many)
        assert (len(told.topics), pages) == (10_001, 2)
        nobody, _ = await fetched(brokers.nodes[0], MetadataRequestPlan((), 0, False))
        assert (nobody.topics, len(nobody.nodes)) == ((), 2)


def page(offset: int, *topics: client_pb2.TopicMetadata, generation: int = 1) -> client_pb2.MetadataResponse:
    return client_pb2.MetadataResponse(generation=generation, as_of_offset=offset, topics=topics)


def part(name: str, letter: bytes, *partitions: int) -> client_pb2.TopicMetadata:
    told = [client_pb2.PartitionMetadata(partition=number) for number in partitions]
    return client_pb2.TopicMetadata(name=name, topic_id=letter * 16, partitions=told)


def test_a_topic_created_anew_between_two_pages_has_the_partitions_of_the_second() -> None:
    """Its version is that of the second page: an answer of a moment between both is older."""
    joined = JoinedPages()
    joined.add(page(100, part("a", b"1", 0, 1)), "b1:9092")
    joined.add(page(104, part("a", b"2", 0)), "b1:9092")
    (topic,) = joined.update().topics
    assert (topic.topic_id, [each.partition for each in topic.partitions]) == (b"2" * 16, [0])
    assert topic.as_of == ViewVersion(1, 104)
    assert joined.update().as_of == ViewVersion(1, 100)


def test_pages_of_two_generations_are_no_answer() -> None:
    """`quorum recover` came between: the client asks again."""
    joined = JoinedPages()
    joined.add(page(100, part("a", b"1", 0)), "b1:9092")
    with pytest.raises(MetadataProblem, match="b1:9092: the cluster was recovered") as caught:
        joined.add(page(90, part("b", b"2", 0), generation=2), "b1:9092")
    assert caught.value.problem.kind is ProblemKind.REFUSED


# --- problems --------------------------------------------------------------------------------------------------------


async def problem_of(node: ClusterNode) -> Any:
    with pytest.raises(MetadataProblem) as caught:
        await fetched(node, ALL)
    return caught.value.problem


async def test_each_failure_of_a_call_has_its_meaning() -> None:
    """Nobody listens; a broker whose lease has lapsed; a request that no broker would take; a controller in place of a broker."""
    async with two_brokers() as brokers:
        closed = await problem_of(ClusterNode(-1, "127.0.0.1", 1))
        assert (closed.kind, closed.code) == (ProblemKind.NOT_CONNECTED, ErrorCode.BROKER_NOT_AVAILABLE)
        brokers.services[0].serves = False
        lapsed = await problem_of(brokers.nodes[0])
        assert (lapsed.kind, lapsed.code) == (ProblemKind.REFUSED, ErrorCode.BROKER_NOT_AVAILABLE)
        with pytest.raises(MetadataProblem) as caught:
            await fetched(brokers.nodes[1], ALL, -1)
        assert (caught.value.problem.kind, caught.value.problem.code) == (ProblemKind.FATAL, ErrorCode.INVALID_REQUEST)
    async with serve(FakeNode(), IDENTITY, ANY_PORT, grace_s=0) as port:
        controller = await problem_of(ClusterNode(-1, "127.0.0.1", port))
        assert controller.kind is ProblemKind.FATAL
        assert "give the address of a broker, not of a controller" in controller.message


class Mute(client_pb2_grpc.ClusterMetadataServiceServicer):
    """Ends every call without an answer."""

    def __init__(self, code: grpc.StatusCode) -> None:
        self.code = code

    async def Metadata(self, request: Any, context: Any) -> Any:  # noqa: N802
        await context.abort(self.code, "it is so")
        raise AssertionError

    ClusterStatus = Metadata


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, ProblemKind.LOST),
        (grpc.StatusCode.CANCELLED, ProblemKind.LOST),
        (grpc.StatusCode.UNKNOWN, ProblemKind.REFUSED),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, ProblemKind.REFUSED),
        (grpc.StatusCode.PERMISSION_DENIED, ProblemKind.FATAL),
        (grpc.StatusCode.UNAUTHENTICATED, ProblemKind.FATAL),
    ],
)
async def test_a_status_without_a_broker_s_word_has_a_meaning(code: grpc.StatusCode, kind: ProblemKind) -> None:
    """A proxy, a mesh or a broken connection ends the call. The text of the status is in the message."""
    async with serving(Mute(code)) as node:
        problem = await problem_of(node)
        assert problem.kind is kind
        assert "it is so" in problem.message


# --- the whole client ------------------------------------------------------------------------------------------------


async def test_a_client_of_real_brokers_follows_topics_leaders_and_failures() -> None:
    """One broker refuses at first. A topic is created, its leader changes, a broker stops, and the topic is created anew."""
    async with two_brokers() as brokers:
        brokers.services[0].serves = False
        brokers.create("orders", 3)
        fast = ClientConfig(
            retry_backoff_ms=1, retry_backoff_max_ms=5, reconnect_backoff_ms=1, reconnect_backoff_max_ms=5
        )
        news = asyncio.Event()
        async with MetadataClient(brokers.bootstrap, config=fast) as client:
            client.subscribe(lambda _: news.set())

            async def until(leader_id: int) -> None:
                while client.cluster.partitions[TopicPartition("orders", 0)].leader_id != leader_id:
                    news.clear()
                    client.note_stale(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                    await asyncio.wait_for(news.wait(), 10)

            found = await client.wait_for("orders", 2, max_wait_s=10)
            assert found.cluster.partition_count("orders") == 3
            leader = found.cluster.leader_of(TopicPartition("orders", 0))
            assert leader is not None and (leader.host, leader.port) == brokers.nodes[0][1:3]

            change = PartitionChange(topic_id("orders"), 0, leader=2)
            brokers.cluster.write(change)
            await until(2)
            brokers.services[0].serves = True
            brokers.services[1].serves = False
            brokers.cluster.write(BrokerRegistrationChange(2, 1, True))

            brokers.cluster.write(RemoveTopic("orders", topic_id("orders")), Topic("orders", b"n" * 16))
            brokers.cluster.write(partition("orders", 0, (1, 2), 1)._replace(topic_id=b"n" * 16))
            await until(1)
            assert client.cluster.topic_ids["orders"] == b"n" * 16
            with pytest.raises(MetadataError, match="the topic has 1 partitions"):
                await client.wait_for("orders", 2, max_wait_s=0.05)


async def test_a_client_describes_the_cluster_and_configs_from_any_broker() -> None:
    """One broker refuses, and the other answers, in pages. An error of one resource is the resource's own."""
    async with two_brokers() as brokers:
        brokers.create("orders", 3)
        topic, nowhere, everybody = (TOPIC_RESOURCE, "orders"), (TOPIC_RESOURCE, "nowhere"), (BROKER_RESOURCE, "")
        brokers.cluster.write(Config(*topic, "retention.ms", "60000"), BrokerRegistrationChange(1, 0, True))
        brokers.services[0].serves = False
        calls = GrpcMetadataCalls(page_size=1)
        async with MetadataClient(brokers.bootstrap, calls=calls) as client:
            told = await client.describe_cluster()
            assert [(each.broker_id, each.state) for each in told.brokers] == [(1, "FENCED"), (2, "ONLINE")]
            assert told.brokers[0].endpoints[LISTENER].target == brokers.bootstrap[0]
            assert (told.cluster_id, told.controller_id, told.topics, told.partitions) == ("cluster", 2, 1, 3)
            found = await client.configs([topic, nowhere, everybody, topic])
            assert found == {
                topic: OwnConfigs({"retention.ms": "60000"}),
                nowhere: OwnConfigs({}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                everybody: OwnConfigs({}),
            }
            brokers.services[1].serves = False
            with pytest.raises(MetadataError, match="is online: it was told so"):
                await client.describe_cluster()


async def test_a_broker_of_an_older_release_is_passed_by() -> None:
    """Release 0.1.0 knows no ClusterStatus. The other broker does; without one the client says so."""
    old = Mute(grpc.StatusCode.UNIMPLEMENTED)
    async with two_brokers() as brokers, serving(old) as older:
        address = f"{older.host}:{older.port}"
        for _ in range(5):
            async with MetadataClient([address, *brokers.bootstrap]) as client:
                assert len((await client.describe_cluster()).brokers) == 2
        async with MetadataClient([address]) as client:
            with pytest.raises(MetadataError, match="does not know this call") as caught:
                await client.describe_cluster()
            assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


async def test_a_question_that_nobody_answers_ends_in_its_time() -> None:
    """A broker that never answers: the caller's time counts, and not the request timeout of 30 s."""

    class Silent(client_pb2_grpc.ClusterMetadataServiceServicer):
        async def ClusterStatus(self, request: Any, context: Any) -> Any:  # noqa: N802
            await asyncio.Event().wait()

    async with serving(Silent()) as node, MetadataClient([f"{node.host}:{node.port}"]) as client:
        with pytest.raises(MetadataError, match=r"no broker answered within 0\.05 s"):
            await client.describe_cluster(0.05)
