"""The services over real gRPC: what is translated, what is refused, and how a refusal reads."""

import asyncio
import contextlib
import hashlib
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from quorum_rpc.v1 import admin_pb2, admin_pb2_grpc, broker_pb2, broker_pb2_grpc, voter_pb2, voter_pb2_grpc

from broker_agent import convert as broker_convert
from clients.errors import error_of_call
from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import FROM_OFFSET, METADATA_VERSION_MAX, Endpoint, FeatureRange
from metadata_log.image.metadata_image import MetadataImage
from metaquorum import AdminClient, AdminError, MayHaveHappened, NoLeader, NotReached, Unanswered
from quorum.cli.errors import of_admin_error
from quorum.controller import views
from quorum.controller.protocol.commands import Command, CommandReply
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.topic_commands import DeleteTopics, DeleteTopicsReply, TopicResult
from quorum.runtime.protocol.requests import LeaderHint, Refused
from quorum.wire.admin_methods import CALLS
from quorum.wire.convert import convert_raft as convert
from quorum.wire.convert import parts
from quorum.wire.convert.convert_broker import from_register
from quorum.wire.convert.errors import BadMessage
from quorum.wire.server import serve
from service_kit.process.endpoints import HostPort
from service_kit.rpc.binding import PortInUse
from tests.quorum.wire.fake_node import ANY_PORT, IDENTITY, SNAPSHOT, SNAPSHOT_BYTES, FakeNode


async def test_a_topic_is_created_listed_described_and_deleted(client: AdminClient) -> None:
    """One topic's life, each answer with its offset."""
    created = await client.create_topic("orders", partitions=5, replication_factor=3, configs={"retention.ms": "1000"})
    assert (created.name, created.partitions, created.replication_factor) == ("orders", 5, 3)
    assert [topic.name async for topic in client.topics()] == ["orders"]
    described = await client.describe_topic("orders")
    assert [each.partition for each in described.partitions] == [0, 1, 2, 3, 4]
    assert all(each.leader_id in each.isr and sorted(each.replicas) == [0, 1, 2] for each in described.partitions)
    assert [(each.key, each.value) for each in described.configs] == [("retention.ms", "1000")]
    deleted = await client.delete_topics(["orders"])
    assert deleted.offset > 0
    with pytest.raises(AdminError) as caught:
        await client.describe_topic("orders")
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_topic_that_exists_is_named_by_its_id(client: AdminClient) -> None:
    """Whoever only wants it to be there learns which it is, and asks no second time."""
    created = await client.create_topic("orders", partitions=5, replication_factor=3)
    there = await client.create_topic("orders", partitions=7, if_not_exists=True)
    assert there.error.code == ErrorCode.TOPIC_ALREADY_EXISTS.value
    assert (there.topic_id, there.partitions, there.replication_factor) == (created.topic_id, 5, 3)
    with pytest.raises(AdminError) as caught:
        await client.create_topic("orders", partitions=5)
    assert caught.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    with pytest.raises(AdminError):
        await client.create_topic("no/good", if_not_exists=True)


async def test_per_topic_errors_stand_in_the_results(client: AdminClient) -> None:
    """The good topic is created although the other one is refused."""
    topics = [admin_pb2.NewTopic(name=name, partitions=1, replication_factor=3) for name in ("good", "no/good")]
    response = await client.create_topics(topics)
    assert [result.error.code for result in response.results] == [0, ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert [topic.name async for topic in client.topics()] == ["good"]


async def test_configs_are_altered_and_described(client: AdminClient) -> None:
    """What was set on a resource is what is described."""
    await client.create_topic("orders", 1, 3)
    resource = admin_pb2.ConfigResource(resource_type=2, name="orders")
    operation = admin_pb2.ConfigOperation(kind=admin_pb2.ConfigOperation.SET, key="retention.ms", value="5")
    await client.alter_configs([admin_pb2.ConfigAlteration(resource=resource, operations=[operation])])
    described = await client.describe_configs([resource])
    assert [(each.key, each.value) for each in described.resources[0].configs] == [("retention.ms", "5")]


async def test_brokers_are_listed_with_what_the_controller_knows(client: AdminClient) -> None:
    """Endpoint, state and contact; absent where nobody knows."""
    response = await client.list_brokers()
    assert [each.broker_id for each in response.brokers] == [0, 1, 2]
    assert {each.state for each in response.brokers} == {broker_pb2.ONLINE}
    assert response.brokers[0].endpoints[0].host == "b0"
    assert not response.brokers[0].HasField("rack")


async def test_a_broker_is_forgotten_by_hand_once_it_is_gone(client: AdminClient, node: FakeNode) -> None:
    """A broker that still fetches is refused: it would register again at once."""
    with pytest.raises(AdminError) as refused:
        await client.unregister_broker(2)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    cluster = node.cluster
    cluster.now_ms += ControllerConfig().session_timeout_ms
    for broker_id in (0, 1):
        cluster.contact(broker_id)
    while (due := cluster.controller.due(cluster.image, cluster.now_ms)) is not None:
        cluster.run(due)
    assert (await client.unregister_broker(2)).offset == cluster.image.offset
    assert [broker.broker_id async for broker in client.brokers()] == [0, 1]


async def test_partitions_are_added_to_a_topic(client: AdminClient) -> None:
    """Each topic has a result of its own, and a trial changes nothing."""
    await client.create_topic("orders", partitions=2, replication_factor=3)
    wanted = [admin_pb2.NewPartitions(name=name, total_count=5) for name in ("orders", "unknown")]
    for validate_only, partitions in ((True, 2), (False, 5)):
        answer = await client.create_partitions(wanted, validate_only=validate_only)
        assert [each.error.code for each in answer.results] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert len((await client.describe_topic("orders")).partitions) == partitions


async def test_partitions_that_lack_something_are_counted_and_named(client: AdminClient, node: FakeNode) -> None:
    """All that there are, and the first few that nobody leads or that lack replicas."""
    node.cluster.assign("t", (0,), (2,))
    node.cluster.assign("u", (2, 1))
    node.cluster.contact(2, wants_fence=True)
    found = await client.partition_health(5)
    assert (found.partitions, found.leaderless, found.under_replicated) == (3, 1, 1)
    assert [(each.topic, list(each.partitions)) for each in found.first_leaderless] == [("t", [1])]
    assert [(each.topic, list(each.partitions)) for each in found.first_under_replicated] == [("u", [0])]
    assert not (await client.partition_health()).first_leaderless


async def test_the_cluster_is_described_in_numbers(client: AdminClient, node: FakeNode) -> None:
    """A state without brokers is left out."""
    node.cluster.assign("t", (0,), (2,))
    node.cluster.assign("u", (2, 1))
    node.cluster.contact(2, wants_fence=True)
    found = await client.describe_cluster()
    assert (found.topics, found.partitions, found.as_of_offset) == (2, 3, node.cluster.image.offset)
    assert found.metadata_version == node.cluster.image.metadata_version > 0
    assert {each.state: each.brokers for each in found.brokers} == {broker_pb2.ONLINE: 2, broker_pb2.FENCED: 1}


async def test_partitions_are_listed_by_filter(client: AdminClient, node: FakeNode) -> None:
    """With replicas that are offline; several conditions are one or the other, and the other filters narrow the list."""
    node.cluster.assign("t", (0,), (2,))
    node.cluster.assign("u", (2, 1), (0, 2), (1, 0))
    node.cluster.contact(2, wants_fence=True)

    async def listed(*conditions: admin_pb2.PartitionCondition, **filters: Any) -> list[str]:
        return [f"{each.topic}-{each.partition.partition}" async for each in client.partitions(*conditions, **filters)]

    assert await listed() == ["t-0", "t-1", "u-0", "u-1", "u-2"]
    assert await listed(admin_pb2.UNAVAILABLE) == ["t-1"]
    assert await listed(admin_pb2.UNDER_REPLICATED, admin_pb2.UNAVAILABLE) == ["t-1", "u-0", "u-1"]
    assert await listed(admin_pb2.UNDER_REPLICATED, topics=["u"]) == ["u-0", "u-1"]
    assert (await listed(replica_on=2), await listed(led_by=1)) == (["t-1", "u-0", "u-1"], ["u-0", "u-2"])
    page = await client.list_partitions(admin_pb2.ListPartitionsRequest(replica_on=2, page_size=1))
    (only,) = page.partitions
    assert (only.partition.HasField("leader_id"), list(only.partition.offline_replicas)) == (False, [2])
    assert page.as_of_offset == node.cluster.image.offset and page.next_page_token


async def test_the_quorum_is_described_by_any_node(client: AdminClient) -> None:
    """Voters and observers apart; an age that is not known is absent, not 0."""
    status = await client.describe_quorum()
    assert (status.cluster_id, status.node_id, status.leader.leader_id) == ("test-cluster", 1, 1)
    assert [each.node_id for each in status.voters] == [1, 2]
    assert not status.voters[0].HasField("last_fetch_age_ms")
    assert [each.status for each in status.observers] == ["observer"]


async def test_snapshots_are_listed_with_the_hash_of_their_file(client: AdminClient) -> None:
    """So that anybody can see that all nodes hold the same bytes."""
    (listed,) = (await client.list_snapshots()).snapshots
    assert (listed.snapshot.end_offset, listed.size) == (SNAPSHOT.offset, len(SNAPSHOT_BYTES))
    assert listed.sha256 == hashlib.sha256(SNAPSHOT_BYTES).digest()


async def test_a_snapshot_that_was_cut_short_is_listed_without_a_hash(client: AdminClient, node: FakeNode) -> None:
    """The file has fewer bytes than it had when it was written: a reader that waits for the others never ends."""
    whole = node.list_snapshots()[0]
    node.list_snapshots = lambda: (whole._replace(size=whole.size + 1),)  # type: ignore[method-assign]
    async with asyncio.timeout(5):
        (listed,) = (await client.list_snapshots()).snapshots
    assert (listed.snapshot.end_offset, listed.sha256) == (SNAPSHOT.offset, b"")


async def test_a_broker_that_is_heard_while_partitions_are_counted_was_heard_just_now(
    client: AdminClient, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is as of the moment before the count, and the contacts are read after the count."""
    count = views.broker_counts

    def counted(image: MetadataImage) -> views.BrokerCounts:
        node.cluster.now_ms += 200
        node.cluster.contact(1)
        return count(image)

    monkeypatch.setattr(views, "broker_counts", counted)
    listed = {broker.broker_id: broker for broker in (await client.list_brokers()).brokers}
    assert listed[1].last_contact_age_ms == 0


async def test_five_mebibytes_are_refused_with_advice(client: AdminClient) -> None:
    """gRPC's limit speaks of RESOURCE_EXHAUSTED; the user is told what to do instead."""
    with pytest.raises(AdminError, match="send it in smaller parts") as caught:
        await client.delete_topics(["x" * (5 << 20)])
    assert caught.value.code is ErrorCode.RECORD_BATCH_TOO_LARGE


async def test_an_answer_that_is_too_large_to_be_received_is_no_refusal(node: FakeNode, client: AdminClient) -> None:
    """gRPC says RESOURCE_EXHAUSTED here too, but the change was made: only its answer was lost."""

    async def verbose(*_: object) -> DeleteTopicsReply:
        return DeleteTopicsReply(7, (TopicResult("x" * 100),) * 50_000)

    node.submit = verbose  # type: ignore[method-assign, assignment]
    with pytest.raises(MayHaveHappened):
        await client.delete_topics(["x"])


def test_a_controller_with_too_many_calls_asks_nobody_for_smaller_ones() -> None:
    """RESOURCE_EXHAUSTED once more: nothing was done, and a moment later, or elsewhere, it will be."""
    busy = grpc.aio.AioRpcError(
        grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.aio.Metadata(), grpc.aio.Metadata(), "Concurrent RPC limit exceeded!"
    )
    error = error_of_call("here:1", busy, sent=True, size=100)
    assert isinstance(error, NotReached)
    assert "smaller" not in error.message


async def test_more_topics_than_a_decision_holds_are_refused(client: AdminClient) -> None:
    """Small names, too many of them."""
    with pytest.raises(AdminError, match="send several requests"):
        await client.delete_topics([f"t{number}" for number in range(10_001)])


async def test_another_clusters_client_is_refused(target: str) -> None:
    """A client that names its cluster changes nothing in another."""
    async with AdminClient([target], cluster_id="elsewhere") as client:
        with pytest.raises(AdminError) as caught:
            await client.create_topic("orders")
        assert caught.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID
        with pytest.raises(AdminError):
            await client.list_snapshots()


async def test_a_foreign_cluster_id_of_any_length_is_shown_shortened_and_quoted(target: str) -> None:
    """A stranger's bytes may not fill an answer, a log or a terminal."""
    async with AdminClient([target], cluster_id="\x1b[2J" + "x" * 1_000_000) as client:
        with pytest.raises(AdminError) as caught:
            await client.create_topic("orders")
    assert caught.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert "'\\x1b[2Jxxx" in caught.value.message and len(caught.value.message) < 200


async def test_garbage_ends_the_call_not_the_server(channel: grpc.aio.Channel, client: AdminClient) -> None:
    """Bytes that are no message: an error for their sender, and service as usual for the next."""
    call = channel.unary_unary("/quorum_rpc.v1.AdminService/CreateTopics")
    with pytest.raises(grpc.aio.AioRpcError):
        await call(b"\xff" * 100)
    assert (await client.create_topic("orders", 1, 3)).name == "orders"


async def test_a_timeout_is_not_mistaken_for_a_refusal(node: FakeNode, client: AdminClient) -> None:
    """A change of which nothing is heard until the deadline, however often it was sent, may have happened."""
    client.timeout_s = 0.2
    await client.list_topics()
    node.refuse_with = Refused(ErrorCode.REQUEST_TIMED_OUT, "it may have taken effect")
    with pytest.raises(MayHaveHappened):
        await client.create_topic("orders")


def broken(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details)


@pytest.mark.parametrize(
    ("details", "why"),
    [
        (
            "last error: UNKNOWN: ipv4:127.0.0.1:1: Socket closed",
            "as many connections as its limit of open files allows",
        ),
        ("INTERNAL: ipv4:127.0.0.1:1: socket: Too many open files", "this process has as many files open as its limit"),
    ],
)
def test_a_lack_of_files_is_named_where_no_connection_came_about(details: str, why: str) -> None:
    """A node without a free file closes a connection just as a node does that misses a certificate."""
    lost = broken(grpc.StatusCode.UNAVAILABLE, f"failed to connect to all addresses; {details}")
    assert why in error_of_call("127.0.0.1:1", lost, sent=False, size=10).message


@pytest.mark.parametrize(
    "lost",
    [
        broken(grpc.StatusCode.UNAVAILABLE, "Socket closed"),
        broken(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded"),
        broken(grpc.StatusCode.CANCELLED, "CANCELLED"),
        broken(grpc.StatusCode.RESOURCE_EXHAUSTED, "CLIENT: Received message larger than max"),
        broken(grpc.StatusCode.UNKNOWN, "Unexpected RuntimeError"),
    ],
)
def test_a_read_without_an_answer_has_changed_nothing(lost: grpc.aio.AioRpcError) -> None:
    """Whichever way the answer of a change is lost, the change may have happened; the answer of a read is only missing."""
    change = error_of_call("here:1", lost, sent=True, size=10)
    assert type(change) is MayHaveHappened
    read = error_of_call("here:1", lost, sent=True, size=10, is_read=True)
    assert type(read) is Unanswered
    assert "nothing was changed" in of_admin_error(read).message
    assert of_admin_error(read).exit_code == of_admin_error(change).exit_code == 5


async def test_no_read_says_that_something_may_have_happened(node: FakeNode, client: AdminClient) -> None:
    """Also where the controller stops while it waits to answer, and where a change is only tried out."""
    await client.list_topics()
    node.refuse_with = Refused(
        ErrorCode.REQUEST_TIMED_OUT, "this controller has stopped: the request may have taken effect"
    )
    client.timeout_s = 0.2
    with pytest.raises(NoLeader) as caught:
        await client.list_topics()
    assert "taken effect" not in caught.value.message
    with pytest.raises(AdminError) as tried:
        await client.create_topics([_topic("orders")], validate_only=True)
    assert not isinstance(tried.value, MayHaveHappened)


@pytest.mark.parametrize("endpoints", [[], [""], ["localhost"], ["http://c:1"], ["c:1", "c:99999"], "127.0.0.1:9001"])
def test_a_client_takes_only_addresses(endpoints: list[str]) -> None:
    """gRPC would say that the server failed, ask port 443, or look for a host named 1."""
    with pytest.raises(ValueError, match=r"host:port|not a host name|not a port"):
        AdminClient(endpoints)


async def test_a_name_that_cannot_be_resolved_was_never_asked() -> None:
    """Nothing was sent to anybody, be it a read or a change; the line says what is wrong with the name."""
    async with AdminClient(["nohost.invalid:9001"], timeout_s=0.5) as client:
        with pytest.raises(NotReached, match="its name cannot be resolved"):
            await client.describe_quorum()
        with pytest.raises(NoLeader, match="its name cannot be resolved"):
            await client.create_topic("orders")


async def test_two_controllers_that_name_each_other_are_not_asked_in_a_busy_loop() -> None:
    """Only one hint in a row is followed at once. Otherwise the client asks hundreds of times in this quarter of a second."""
    asked = 0

    class Deposed(FakeNode):
        def _maybe_refuse(self) -> None:
            nonlocal asked
            asked += 1
            super()._maybe_refuse()

    one, two = Deposed(), Deposed()
    async with serve(one, IDENTITY, ANY_PORT, grace_s=0) as first, serve(two, IDENTITY, ANY_PORT, grace_s=0) as second:
        for node, other in ((one, second), (two, first)):
            hint = LeaderHint(1, 1, Endpoint("CONTROLLER", "127.0.0.1", other))
            node.refuse_with = Refused(ErrorCode.NOT_CONTROLLER, "the other one leads", hint)
        async with AdminClient([f"127.0.0.1:{first}"], timeout_s=0.25) as client:
            with pytest.raises(NoLeader):
                await client.list_topics()
    assert asked < 20


async def test_the_client_follows_the_hint(node: FakeNode, target: str) -> None:
    """A follower says who leads; the client asks there, and from then on at once."""
    follower = FakeNode()
    host, port = target.split(":")
    hint = LeaderHint(1, 1, Endpoint("CONTROLLER", host, int(port)))
    follower.refuse_with = Refused(ErrorCode.NOT_CONTROLLER, "node 1 leads", hint)
    async with (
        serve(follower, IDENTITY, ANY_PORT, grace_s=0) as other_port,
        AdminClient([f"127.0.0.1:{other_port}"], timeout_s=2.0) as client,
    ):
        assert await client.leader() == target
        assert (await client.create_topic("orders", 1, 3)).partitions == 1
    assert node.cluster.image.topic_count == 1


async def test_without_a_leader_the_client_waits_no_longer_than_its_timeout(node: FakeNode, target: str) -> None:
    """What was heard last is in the error."""
    node.refuse_with = Refused(ErrorCode.NOT_CONTROLLER, "an election is under way")
    async with AdminClient([target], timeout_s=0.2) as client:
        with pytest.raises(NoLeader, match="an election is under way"):
            await client.list_topics()


async def test_a_dead_endpoint_is_passed_over(target: str) -> None:
    """The first address refuses, the second one answers."""
    async with AdminClient(["127.0.0.1:1", target], timeout_s=2.0) as client:
        assert [topic.name async for topic in client.topics()] == []
        assert (await client.describe_quorum()).node_id == 1
        with pytest.raises(NotReached):
            await client.describe_quorum("127.0.0.1:1")


async def test_submitted_calls_are_answered_by_id(client: AdminClient) -> None:
    """Many changes on one stream; an error in one of them is that one's alone."""
    async with await client.submit() as stream:
        requests = [admin_pb2.CreateTopicsRequest(topics=[_topic(f"t{number}")]) for number in range(20)]
        waiting = list(await asyncio.gather(*[stream.send(create_topics=request) for request in requests]))
        waiting.append(await stream.send(create_topics=admin_pb2.CreateTopicsRequest(topics=[_topic("t0")])))
        answers = await asyncio.gather(*waiting)
    assert [answer.results[0].name for answer in answers[:20]] == [f"t{number}" for number in range(20)]
    assert answers[20].results[0].error.code == ErrorCode.TOPIC_ALREADY_EXISTS.value


async def test_a_mistake_in_the_answer_to_a_submitted_call_leaves_its_outcome_open(
    client: AdminClient, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. The controller commits the topic.  2. It fails to make the answer.  3. "Nothing was done" would be a lie."""

    def fails(_: Any) -> Any:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setitem(CALLS, "create_topics", CALLS["create_topics"]._replace(to_response=fails))
    async with await client.submit() as stream:
        waiting = await stream.send(create_topics=admin_pb2.CreateTopicsRequest(topics=[_topic("orders")]))
        with pytest.raises(MayHaveHappened) as failed:
            await waiting
    assert failed.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert node.cluster.image.topic_count == 1


async def test_a_broken_submit_stream_leaves_nobody_waiting(node: FakeNode) -> None:
    """What was not answered may have happened, and its sender hears so."""
    entered = asyncio.Event()

    async def never(*_: object) -> Any:
        entered.set()
        await asyncio.Event().wait()

    async with contextlib.AsyncExitStack() as stack:
        async with serve(node, IDENTITY, ANY_PORT, grace_s=0) as port:
            client = await stack.enter_async_context(AdminClient([f"127.0.0.1:{port}"], timeout_s=2.0))
            stream = await stack.enter_async_context(await client.submit())
            node.submit = never  # type: ignore[method-assign, assignment]
            waiting = await stream.send(delete_topics=admin_pb2.DeleteTopicsRequest(names=["x"]))
            await entered.wait()
        with pytest.raises(MayHaveHappened):
            await waiting
        with pytest.raises(NotReached):  # this one surely has not
            await stream.send(delete_topics=admin_pb2.DeleteTopicsRequest(names=["y"]))


def _topic(name: str) -> admin_pb2.NewTopic:
    return admin_pb2.NewTopic(name=name, partitions=1, replication_factor=3)


# --- brokers ---------------------------------------------------------------------------------------------------------


async def test_a_broker_registers_and_fetches_on_a_stream(channel: grpc.aio.Channel, node: FakeNode) -> None:
    """The agent's words in, the controller's answer out; each answer bears its request's number."""
    stub: Any = broker_pb2_grpc.BrokerServiceStub(channel)  # type: ignore[no-untyped-call]
    registered = await stub.RegisterBroker(
        broker_convert.register_request(
            cluster_id="test-cluster",
            broker_id=7,
            incarnation=bytes([7]) * 16,
            endpoints=(Endpoint("PLAINTEXT", "127.0.0.1", 9092),),
            features=(FeatureRange("metadata.version", 1, METADATA_VERSION_MAX),),
            rack="r1",
            log_dirs=(bytes([8]) * 16,),
            previous_broker_epoch=None,
            previous_incarnation=None,
            generation=1,
            data_plane="none",
        )
    )
    assert registered.error.code == 0
    assert node.cluster.image.brokers[7].broker_epoch == registered.broker_epoch
    assert node.cluster.image.brokers[7].data_plane == "none"
    stream = stub.MetadataFetch()
    for number in (1, 2):
        request = broker_pb2.MetadataFetchRequest(
            cluster_id="test-cluster",
            broker_id=7,
            broker_epoch=registered.broker_epoch,
            incarnation_id=bytes([7]) * 16,
            number=number,
        )
        await stream.write(request)
        answer = broker_convert.fetch_answer(await stream.read())
        assert answer is not None
        assert (answer.number, answer.lease_ms) == (number, 5_000)
        assert answer.state is not None and answer.state.name == "FENCED"
    await stream.done_writing()
    assert await stream.read() is grpc.aio.EOF


async def test_a_broker_of_another_generation_is_refused_and_told(channel: grpc.aio.Channel, node: FakeNode) -> None:
    """Whatever it asks for; whoever does not say is of the first. Nothing of it reaches the node."""
    stub: Any = broker_pb2_grpc.BrokerServiceStub(channel)  # type: ignore[no-untyped-call]
    named: dict[str, Any] = {"cluster_id": "test-cluster", "broker_id": 7, "generation": 2}
    registered = await stub.RegisterBroker(broker_pb2.RegisterBrokerRequest(**named))
    fetched = await stub.MetadataFetchOnce(broker_pb2.MetadataFetchRequest(**named))
    died = await stub.ReportDeath(broker_pb2.ReportDeathRequest(**named))
    for answer in (registered, fetched, died):
        assert (answer.error.code, answer.generation) == (ErrorCode.INVALID_CONTROL_GENERATION, IDENTITY.generation)
    altered = await stub.AlterPartition(broker_pb2.AlterPartitionRequest(**named))
    assigned = await stub.AssignReplicasToDirs(broker_pb2.AssignReplicasToDirsRequest(**named))
    allocated = await stub.AllocateProducerIds(broker_pb2.AllocateProducerIdsRequest(**named))
    (chunk,) = [each async for each in stub.FetchMetadataSnapshot(broker_pb2.FetchMetadataSnapshotRequest(**named))]
    for answer in (altered, assigned, allocated, chunk):
        assert answer.error.code == ErrorCode.INVALID_CONTROL_GENERATION.value
    assert node.fetches == [] and 7 not in node.cluster.image.brokers
    named["generation"] = 0
    unsaid = await stub.MetadataFetchOnce(broker_pb2.MetadataFetchRequest(**named))
    assert unsaid.generation == 0 and unsaid.error.code != ErrorCode.INVALID_CONTROL_GENERATION


async def test_a_snapshot_comes_in_chunks_from_any_position(channel: grpc.aio.Channel) -> None:
    """Chunks join to the file's bytes; what is not there is an error in the stream."""
    stub: Any = broker_pb2_grpc.BrokerServiceStub(channel)  # type: ignore[no-untyped-call]
    request = broker_pb2.FetchMetadataSnapshotRequest(
        cluster_id="test-cluster", snapshot=parts.to_snapshot_id(SNAPSHOT), position=1_000
    )
    chunks = [chunk async for chunk in stub.FetchMetadataSnapshot(request)]
    assert b"".join(chunk.data for chunk in chunks) == SNAPSHOT_BYTES[1_000:]
    request.max_bytes = 100
    (chunk,) = [chunk async for chunk in stub.FetchMetadataSnapshot(request)]
    assert (chunk.position, chunk.data, chunk.size) == (1_000, SNAPSHOT_BYTES[1_000:1_100], len(SNAPSHOT_BYTES))
    request.snapshot.end_offset = 99
    (chunk,) = [chunk async for chunk in stub.FetchMetadataSnapshot(request)]
    assert chunk.error.code == ErrorCode.SNAPSHOT_NOT_FOUND.value


async def test_a_broker_of_another_cluster_is_refused(channel: grpc.aio.Channel) -> None:
    """Also one that names none: a broker knows its cluster from its directory."""
    stub: Any = broker_pb2_grpc.BrokerServiceStub(channel)  # type: ignore[no-untyped-call]
    for cluster_id in ("", "elsewhere"):
        response = await stub.MetadataFetchOnce(broker_pb2.MetadataFetchRequest(cluster_id=cluster_id, number=4))
        assert (response.error.code, response.number) == (ErrorCode.INCONSISTENT_CLUSTER_ID, 4)


async def test_a_half_incarnation_is_refused(channel: grpc.aio.Channel, node: FakeNode) -> None:
    """The message names the field."""
    stub: Any = broker_pb2_grpc.BrokerServiceStub(channel)  # type: ignore[no-untyped-call]
    request = broker_pb2.MetadataFetchRequest(cluster_id="test-cluster", incarnation_id=b"half")
    response = await stub.MetadataFetchOnce(request)
    assert response.error.code == ErrorCode.INVALID_REQUEST.value
    assert "incarnation_id" in response.error.message
    assert node.fetches == []


# --- voters ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cluster_id", "generation", "code"),
    [("elsewhere", 1, ErrorCode.INCONSISTENT_CLUSTER_ID), ("test-cluster", 2, ErrorCode.INVALID_CONTROL_GENERATION)],
)
async def test_strangers_never_reach_the_core(
    channel: grpc.aio.Channel, node: FakeNode, cluster_id: str, generation: int, code: ErrorCode
) -> None:
    """Another cluster's node, or one of a generation that was given up, votes for nobody here."""
    stub: Any = voter_pb2_grpc.VoterServiceStub(channel)  # type: ignore[no-untyped-call]
    sender = convert.sender(IDENTITY._replace(cluster_id=cluster_id, generation=generation, node_id=2))
    response = await stub.Vote(voter_pb2.VoteRequest(sender=sender, epoch=9))
    assert response.standing.error == code
    assert not response.vote_granted
    assert node.asked == []


async def test_health_and_reflection_answer(channel: grpc.aio.Channel) -> None:
    """Standard probes work without knowing this service; a load balancer asks for the service that it balances."""
    stub: Any = health_pb2_grpc.HealthStub(channel)
    for service in ("", "quorum_rpc.v1.VoterService"):
        response = await stub.Check(health_pb2.HealthCheckRequest(service=service))
        assert response.status == health_pb2.HealthCheckResponse.SERVING
    for service in ("admin", "quorum_rpc.v1.AdminService", "quorum_rpc.v1.BrokerService"):
        response = await stub.Check(health_pb2.HealthCheckRequest(service=service))
        assert response.status == health_pb2.HealthCheckResponse.NOT_SERVING, "starting"
    with pytest.raises(grpc.aio.AioRpcError) as elsewhere:
        await stub.Check(health_pb2.HealthCheckRequest(service="quorum_rpc.v1.ClusterMetadataService"))
    assert elsewhere.value.code() is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_reflection_is_answered_for_old_tools_and_new_ones(channel: grpc.aio.Channel, version: str) -> None:
    """The messages of both versions are the same."""
    call = channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )
    stream = call()
    await stream.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    listed = await stream.read()
    assert "quorum_rpc.v1.AdminService" in [each.name for each in listed.list_services_response.service]
    await stream.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol="quorum_rpc.v1.AdminService"))
    assert (await stream.read()).file_descriptor_response.file_descriptor_proto
    stream.cancel()


async def test_a_port_is_never_shared(target: str, node: FakeNode) -> None:
    """A second server on the port is an error, not half of the connections."""
    host, port = target.split(":")
    with pytest.raises(PortInUse, match="in use"):
        async with serve(node, IDENTITY, HostPort(host, int(port))):
            raise AssertionError("two servers on one port")


async def test_an_unknown_submitted_call_is_named_unsupported(channel: grpc.aio.Channel) -> None:
    """A newer client's call: an answer, so that it doesn't wait."""
    stub: Any = admin_pb2_grpc.AdminServiceStub(channel)  # type: ignore[no-untyped-call]
    stream = stub.Submit()
    await stream.write(admin_pb2.SubmitRequests(requests=[admin_pb2.SubmitRequest(id=3)]))
    (response,) = (await stream.read()).responses
    assert (response.id, response.error.code) == (3, ErrorCode.UNSUPPORTED_VERSION)
    stream.cancel()


async def test_the_calls_of_one_message_are_answered_each_by_itself(
    channel: grpc.aio.Channel, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bad message, another cluster's call, an accident and more calls than may wait at once: nobody else notices."""
    begin = node.begin

    def accident(
        command: Command, timeout_ms: int, on_outcome: Callable[[CommandReply | Refused], None], *_: object
    ) -> None:
        assert not (isinstance(command, DeleteTopics) and command.names == ("doom",))
        begin(command, timeout_ms, on_outcome)

    monkeypatch.setattr(node, "begin", accident)
    calls: dict[int, dict[str, Any]] = {
        1: {"delete_topics": admin_pb2.DeleteTopicsRequest(names=["doom"])},
        2: {"delete_topics": admin_pb2.DeleteTopicsRequest(context=admin_pb2.RequestContext(cluster_id="elsewhere"))},
        3: {"create_topics": admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic()] * 10_001)},
    }
    calls |= {n: {"create_topics": admin_pb2.CreateTopicsRequest(topics=[_topic(f"t{n}")])} for n in range(4, 400)}
    requests = [admin_pb2.SubmitRequest(id=number, **call) for number, call in calls.items()]
    stream = admin_pb2_grpc.AdminServiceStub(channel).Submit()  # type: ignore[no-untyped-call]
    await stream.write(admin_pb2.SubmitRequests(requests=requests))
    await stream.done_writing()
    answers: dict[int, admin_pb2.SubmitResponse] = {}
    while (message := await stream.read()) is not grpc.aio.EOF:
        answers.update((answer.id, answer) for answer in message.responses)

    assert answers.keys() == calls.keys()
    assert answers[1].error.code == ErrorCode.UNKNOWN_SERVER_ERROR.value
    assert answers[2].delete_topics.error.code == ErrorCode.INCONSISTENT_CLUSTER_ID.value
    assert answers[3].create_topics.error.code == ErrorCode.INVALID_REQUEST.value
    assert all(answers[n].create_topics.results[0].error.code == ErrorCode.NONE.value for n in range(4, 400))


@pytest.mark.parametrize(
    "method",
    [
        "quorum_rpc.v1.VoterService/Fetch",
        "quorum_rpc.v1.BrokerService/MetadataFetch",
        "quorum_rpc.v1.AdminService/Submit",
    ],
)
async def test_garbage_on_a_stream_ends_that_stream_alone(
    channel: grpc.aio.Channel, client: AdminClient, method: str
) -> None:
    """Whoever sends nonsense loses the stream; everybody else is served."""
    stream = channel.stream_stream(f"/{method}")()
    await stream.write(b"\xff" * 50)
    with pytest.raises(grpc.aio.AioRpcError):
        await stream.read()
    assert (await client.describe_quorum()).node_id == 1


async def test_a_stopping_node_is_not_available_to_voters(channel: grpc.aio.Channel, node: FakeNode) -> None:
    """Whatever it is that the node says about itself: the core knows BROKER_NOT_AVAILABLE, and asks again later."""
    node.refuse_with = Refused(ErrorCode.REQUEST_TIMED_OUT, "the node stops")
    stub: Any = voter_pb2_grpc.VoterServiceStub(channel)  # type: ignore[no-untyped-call]
    sender = convert.sender(IDENTITY._replace(node_id=2, directory_id=bytes([2]) * 16))
    request = voter_pb2.VoteRequest(sender=sender, receiver=sender.replica, epoch=9)
    assert (await stub.Vote(request)).standing.error == ErrorCode.BROKER_NOT_AVAILABLE


@pytest.mark.parametrize("epoch", [None, 0, 57])
def test_the_proof_of_a_clean_shutdown_reaches_the_controller(epoch: int | None) -> None:
    """The epoch 0 is an epoch like any other; without the field there is no proof (KIP-966)."""
    message = broker_convert.register_request(
        cluster_id="c",
        broker_id=7,
        incarnation=bytes([7]) * 16,
        endpoints=(),
        features=(),
        rack=None,
        log_dirs=(),
        previous_incarnation=None,
        generation=1,
        data_plane="external",
        previous_broker_epoch=epoch,
    )
    assert from_register(message).previous_broker_epoch == (FROM_OFFSET if epoch is None else epoch)
    message.previous_broker_epoch = -5
    with pytest.raises(BadMessage):
        from_register(message)
