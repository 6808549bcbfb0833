"""A broker takes admin calls, and asks the controllers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from quorum_rpc.v1 import admin_pb2, admin_pb2_grpc, entity_pb2, entity_pb2_grpc

from broker_agent.admin import SERVICE, AdminForwarding
from broker_agent.process import serving_clients
from metadata_log.format.errors import ErrorCode
from metadata_log.image.metadata_image import EMPTY_IMAGE
from metaquorum import AdminClient, AdminError, MayHaveHappened, NoLeader, SubmitStream
from quorum.controller.protocol.entity_commands import OpenSession
from quorum.runtime.protocol.requests import Refused
from quorum.wire.server import serve
from service_kit.rpc.controller_channels import ControllerChannels
from service_kit.rpc.dial import Dialer
from service_kit.rpc.doors import Caller, Doors, NotAuthorized
from service_kit.rpc.health import Health
from service_kit.rpc.malformed_messages import STOPPING
from service_kit.rpc.server import serving
from tests.broker_agent.test_config import loaded
from tests.quorum.wire.fake_node import ANY_PORT, IDENTITY, FakeNode
from tests.quorum.wire.refusing import code_of, refusal_of


class Cluster:
    """Two controllers, and a client that reaches only a broker."""

    def __init__(self) -> None:
        self.first, self.second = FakeNode(), FakeNode()
        self.targets: list[str] = []


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with AsyncExitStack() as stack:
        cluster = Cluster()
        for node in (cluster.first, cluster.second):
            port = await stack.enter_async_context(serve(node, IDENTITY, ANY_PORT, grace_s=0))
            cluster.targets.append(f"127.0.0.1:{port}")
        yield cluster


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[AdminClient]:
    async with Dialer() as dialer:
        controllers = AdminForwarding(lambda: cluster.targets, ControllerChannels(dialer))

        def add(server: Any) -> None:
            server.add_generic_rpc_handlers((controllers,))

        async with (
            serving(ANY_PORT, add, grace_s=0) as port,
            AdminClient([f"127.0.0.1:{port}"], timeout_s=1.0) as client,
        ):
            yield client


async def test_a_topics_life_through_a_broker(client: AdminClient, cluster: Cluster) -> None:
    """The calls of people, and the stream of tools."""
    await client.create_topic("orders", 2, 3)
    assert (await client.describe_topic("orders")).partition_count == 2
    async with await client.submit() as stream:
        names = [await stream.send(delete_topics=admin_pb2.DeleteTopicsRequest(names=[name])) for name in ("orders",)]
        assert [(await each).results[0].error.code for each in names] == [0]
    assert cluster.first.cluster.image.topic_count == 0


async def test_the_next_controller_is_asked_where_nothing_was_done(client: AdminClient, cluster: Cluster) -> None:
    """One has just gone, the other two disagree about who leads."""
    cluster.first.refuse_with = Refused(ErrorCode.NOT_CONTROLLER, "somebody else leads")
    cluster.targets.insert(0, "127.0.0.1:1")
    await client.create_topic("orders", 2, 3)
    assert cluster.second.cluster.image.topic_count == 1


async def test_what_may_have_happened_is_not_sent_again_by_the_broker(client: AdminClient, cluster: Cluster) -> None:
    """Its client may do that, for it has given the request an id."""
    await client.list_topics()

    async def breaks_down(*_: object) -> Any:
        raise RuntimeError("the process dies here")

    cluster.first.submit = breaks_down  # type: ignore[method-assign,assignment]
    client.timeout_s = 0.3
    with pytest.raises(MayHaveHappened):
        await client.create_topic("orders", 2, 3)
    assert cluster.second.identities == []


async def test_a_read_is_asked_of_the_next_one(client: AdminClient, cluster: Cluster) -> None:
    async def breaks_down(*_: object) -> Any:
        raise RuntimeError("the process dies here")

    cluster.first.read = breaks_down  # type: ignore[method-assign,assignment]
    assert (await client.list_topics()).error.code == 0


async def test_nobody_who_leads_is_told_by_the_deadline(client: AdminClient, cluster: Cluster) -> None:
    client.timeout_s = 0.3
    for node in (cluster.first, cluster.second):
        node.refuse_with = Refused(ErrorCode.NOT_CONTROLLER, "nobody leads")
    with pytest.raises(NoLeader):
        await client.list_topics()


async def test_a_broker_that_stops_says_what_became_of_each_call(cluster: Cluster) -> None:
    """A change that a controller has not answered may have happened; what nobody could take yet was not done. Neither waits for
    its own deadline, nor ends with UNKNOWN."""
    entered = asyncio.Event()

    async def thinks(*_: object) -> Any:
        entered.set()
        await asyncio.Event().wait()

    cluster.first.submit = thinks  # type: ignore[method-assign, assignment]
    for node in (cluster.first, cluster.second):
        node.refuse_with = Refused(ErrorCode.NOT_CONTROLLER, "nobody leads")
    async with asyncio.timeout(5), Dialer() as dialer, AsyncExitStack() as stack:
        controllers = AdminForwarding(lambda: cluster.targets, ControllerChannels(dialer))
        added = serving(ANY_PORT, lambda server: server.add_generic_rpc_handlers((controllers,)))
        port = await stack.enter_async_context(added)
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{port}"))
        stub: Any = admin_pb2_grpc.AdminServiceStub(channel)  # type: ignore[no-untyped-call]
        change, read = (
            stub.DeleteTopics(admin_pb2.DeleteTopicsRequest(names=["x"])),
            stub.ListTopics(admin_pb2.ListTopicsRequest()),
        )
        await entered.wait()
        await controllers.stop()
        later = stub.DeleteTopics(admin_pb2.DeleteTopicsRequest(names=["y"]))
        assert await code_of(change) is ErrorCode.REQUEST_TIMED_OUT
        assert await code_of(read) is ErrorCode.BROKER_NOT_AVAILABLE
        refusal = await refusal_of(later)
        assert refusal.reason == "BROKER_NOT_AVAILABLE"
        assert "this node is shutting down; nothing was done" in refusal.message


async def test_a_broker_stops_handing_on_before_it_closes_what_it_hands_on_over() -> None:
    """Its listeners end what is under way in words; after them the channels to the controllers go."""
    config = loaded(listeners="A://127.0.0.1:0")
    cache = SimpleNamespace(current=SimpleNamespace(image=EMPTY_IMAGE))
    agent: Any = SimpleNamespace(cluster_id="test-cluster", cache=cache, changed=asyncio.Event().wait)
    async with Dialer() as dialer:
        controllers = AdminForwarding(lambda: (), ControllerChannels(dialer))
        async with serving_clients(agent, config, Health(), controllers):
            assert not controllers._admin.forwarder.is_stopping()
        assert controllers._admin.forwarder.is_stopping()


def place(pattern: str) -> admin_pb2.ReadTreeRequest:
    return admin_pb2.ReadTreeRequest(place=admin_pb2.TreePlace(pattern=pattern))


async def test_a_query_of_the_tree_is_answered_through_a_broker(client: AdminClient, cluster: Cluster) -> None:
    """By the first controller that has an answer; and its refusal is the answer, too."""
    cluster.first.refuse_with = Refused(ErrorCode.NOT_CONTROLLER, "somebody else leads")
    cluster.targets.insert(0, "127.0.0.1:1")
    messages = [message async for message in client.read_tree(place("/topics"))]
    assert [row.named.path for message in messages for row in message.rows] == ["/topics"]
    with pytest.raises(AdminError, match="there is no /nothing") as refused:
        assert not [row async for message in client.read_tree(place("/nothing")) for row in message.rows]
    assert refused.value.code is ErrorCode.RESOURCE_NOT_FOUND


async def test_a_stream_that_breaks_behind_the_broker_breaks_before_it(client: AdminClient, cluster: Cluster) -> None:
    """Its client hears of it, and knows that what was not answered may have happened."""

    async def breaks_down(*_: object) -> Any:
        raise RuntimeError("the process dies here")

    await client.list_topics()
    cluster.targets[:] = ["127.0.0.1:1"]
    call = client.stub(client.target).Submit()
    with pytest.raises(grpc.aio.AioRpcError) as broken:
        await call.read()
    assert broken.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_broker_that_stops_ends_a_submit_stream_with_a_reason(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The client learns that the broker stops, and the stream to the controller ends with it."""
    async with Dialer() as dialer:
        controllers = AdminForwarding(lambda: cluster.targets, ControllerChannels(dialer))
        added = serving(ANY_PORT, lambda server: server.add_generic_rpc_handlers((controllers,)), grace_s=0.1)
        async with AsyncExitStack() as stack:
            target = f"127.0.0.1:{await stack.enter_async_context(added)}"
            async with AdminClient([target]) as client, await client.submit() as stream:
                await (await stream.send(delete_topics=admin_pb2.DeleteTopicsRequest(names=["orders"])))
                await stack.aclose()
                # gRPC forgets the reason if a message is written between the stream's end and the news of it.
                await asyncio.wait([stream._reader])
                with pytest.raises(AdminError, match=STOPPING):
                    await (await stream.send(delete_topics=admin_pb2.DeleteTopicsRequest(names=["orders"])))
    assert "Traceback" not in caplog.text


async def test_a_refused_stream_is_a_refusal(cluster: Cluster) -> None:
    """A broker refuses a Submit stream before it reads a change, so the client knows that nothing was done."""

    class Intern(Caller):
        def check_operator(self) -> None:
            raise NotAuthorized("CN=intern is not in admin.principals; nothing was done")

    class Closed(Doors):
        def caller(self, context: Any) -> Caller:
            return Intern(self, context, frozenset(), "CN=intern")

    async with Dialer() as dialer:
        controllers = AdminForwarding(lambda: cluster.targets, ControllerChannels(dialer), Closed())
        async with serving(ANY_PORT, lambda server: server.add_generic_rpc_handlers((controllers,)), grace_s=0) as port:
            target = f"127.0.0.1:{port}"
            async with grpc.aio.insecure_channel(target) as channel:
                call: Any = admin_pb2_grpc.AdminServiceStub(channel).Submit()  # type: ignore[no-untyped-call]
                async with SubmitStream(call, target, "test-cluster", 1.0) as stream:
                    sent = await stream.send(delete_topics=admin_pb2.DeleteTopicsRequest(names=["orders"]))
                    for attempt in (sent, stream.send(delete_topics=admin_pb2.DeleteTopicsRequest(names=["orders"]))):
                        with pytest.raises(AdminError, match="CN=intern is not in") as refused:
                            await attempt
                        assert type(refused.value) is AdminError
                        assert refused.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def test_a_stream_of_bytes_that_are_no_message_is_ended_at_once(
    client: AdminClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither the client nor the controller waits for the rest of it."""
    await client.list_topics()
    channel = client._channels[client.target]
    call = channel.stream_stream(f"/{SERVICE.full_name}/Submit")(timeout=5)
    await call.write(b"\xff" * 20)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call.read()
    assert refused.value.code() is grpc.StatusCode.INTERNAL
    assert "Traceback" not in caplog.text


# --- entities --------------------------------------------------------------------------------------------------------


@pytest.fixture
async def entities(cluster: Cluster) -> AsyncIterator[Any]:
    """A client of EntityService that reaches only a broker."""
    async with Dialer() as dialer:
        controllers = AdminForwarding(lambda: cluster.targets, ControllerChannels(dialer))

        def add(server: Any) -> None:
            server.add_generic_rpc_handlers((controllers,))

        async with (
            serving(ANY_PORT, add, grace_s=0) as port,
            grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
        ):
            yield entity_pb2_grpc.EntityServiceStub(channel)  # type: ignore[no-untyped-call]


def _put(name: str) -> entity_pb2.TransactRequest:
    entity = entity_pb2.PutEntity(entity={"kind": "task", "name": name}, value=b"v")
    return entity_pb2.TransactRequest(operations=[entity_pb2.Operation(put=entity)])


async def test_entities_are_written_and_read_through_a_broker(entities: Any, cluster: Cluster) -> None:
    done = await entities.Transact(_put("7"))
    found = await entities.ListEntities(entity_pb2.ListEntitiesRequest(kind="task"))
    assert [(each.name, each.version) for each in found.entities] == [("7", done.results[0].version)]
    refusal = await refusal_of(entities.Transact(_put("")))
    assert refusal.reason == "INVALID_REQUEST"
    assert ("task", "7") in cluster.first.cluster.image.entities


async def test_a_session_is_kept_alive_through_a_broker_whichever_controller_leads(
    entities: Any, cluster: Cluster
) -> None:
    """One stream of the client, over a change of the leader and a dead controller."""
    session_id = bytes(range(16))
    for node in (cluster.first, cluster.second):
        node.cluster.run(OpenSession(session_id, "worker", "CN=worker", 10_000))
    epoch = cluster.first.cluster.image.client_sessions[session_id].epoch
    stream = entities.KeepAlive()

    async def kept() -> Any:
        session = entity_pb2.SessionName(session_id=session_id, epoch=epoch)
        await stream.write(entity_pb2.KeepAliveRequest(id=1, sessions=[session]))
        return await stream.read()

    assert (await kept()).sessions[0].lease_ms == 8_000
    cluster.first.refuse_with = Refused(ErrorCode.NOT_CONTROLLER, "somebody else leads")
    cluster.targets.insert(0, "127.0.0.1:1")
    assert (await kept()).sessions[0].lease_ms == 8_000
    cluster.second.refuse_with = Refused(ErrorCode.NOT_CONTROLLER, "somebody else leads")
    assert (await kept()).error.code == ErrorCode.NOT_CONTROLLER
    cluster.targets[:] = ["127.0.0.1:1"]
    assert (await kept()).error.code == ErrorCode.BROKER_NOT_AVAILABLE
    stream.cancel()
