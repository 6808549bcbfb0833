"""A controller that does not lead asks the one that does, and never mixes up what became of the request."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest
from quorum_rpc.v1 import admin_pb2, admin_pb2_grpc

from clients.methods import METHODS as CLIENT_METHODS
from metadata_log.format import records
from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import Endpoint
from quorum.runtime.protocol.requests import LeaderHint, Refused
from quorum.wire.server import serve
from service_kit.process.endpoints import HostPort
from service_kit.rpc.controller_channels import ControllerChannels
from service_kit.rpc.dial import Dialer
from service_kit.rpc.forwarding import PRINCIPAL_CHARS_MAX, STAY_HERE, Forwarder, NoAnswer, principal_of
from tests.quorum.wire.fake_node import ANY_PORT, IDENTITY, FakeNode
from tests.quorum.wire.refusing import code_of, refusal_of

FOLLOWER = IDENTITY._replace(node_id=2)


def hint_to(target: str) -> LeaderHint:
    host, _, port = target.rpartition(":")
    return LeaderHint(1, 1, Endpoint("CONTROLLER", host, int(port)))


@pytest.fixture
async def follower(target: str) -> AsyncIterator[FakeNode]:
    """Refuses everything, and knows that `node` leads."""
    node = FakeNode()
    node.refuse_with = Refused(ErrorCode.NOT_CONTROLLER, "node 1 leads", hint_to(target))
    yield node


@pytest.fixture
async def stub(follower: FakeNode) -> AsyncIterator[Any]:
    """A client of the follower, for one that follows no hints."""
    async with (
        Dialer() as dialer,
        serve(follower, FOLLOWER, ANY_PORT, grace_s=0, dial=dialer) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        yield admin_pb2_grpc.AdminServiceStub(channel)  # type: ignore[no-untyped-call]


def create(name: str, **context: Any) -> admin_pb2.CreateTopicsRequest:
    topic = admin_pb2.NewTopic(name=name, partitions=1, replication_factor=3)
    return admin_pb2.CreateTopicsRequest(context=admin_pb2.RequestContext(**context), topics=[topic])


async def test_changes_and_reads_are_answered_by_the_leader(stub: Any, node: FakeNode) -> None:
    """With the leader's offsets."""
    created = await stub.CreateTopics(create("orders"))
    assert created.results[0].error.code == 0
    assert created.offset == node.cluster.image.offset
    listed = await stub.ListTopics(admin_pb2.ListTopicsRequest())
    assert [each.name for each in listed.topics] == ["orders"]


async def test_the_leaders_refusal_is_the_answer(stub: Any) -> None:
    """With its status, its reason, and its words."""
    call = stub.UnregisterBroker(admin_pb2.UnregisterBrokerRequest(broker_id=77))
    refusal = await refusal_of(call)
    assert (refusal.reason, refusal.status) == ("BROKER_ID_NOT_REGISTERED", grpc.StatusCode.NOT_FOUND)
    assert "77" in refusal.message
    assert await call.details() == refusal.message


async def test_id_and_deadline_are_kept(stub: Any, node: FakeNode) -> None:
    """The leader is the one that remembers, and it gives up before who asked does."""
    timeouts: list[int] = []
    submit = node.submit

    async def noting(command: Any, timeout_ms: int, identity: Any = None) -> Any:
        timeouts.append(timeout_ms)
        return await submit(command, timeout_ms, identity)

    node.submit = noting  # type: ignore[method-assign]
    await stub.CreateTopics(create("orders", request_id=bytes([7]) * 16, timeout_ms=2_000, client_high_watermark=3))
    (identity,) = node.identities
    assert identity is not None
    assert (identity.request_id, identity.client_high_watermark) == (bytes([7]) * 16, 3)
    assert 1_000 < timeouts[0] < 2_000


async def test_submitted_calls_are_handed_on_one_by_one(stub: Any, node: FakeNode) -> None:
    stream = stub.Submit()
    calls = [admin_pb2.SubmitRequest(id=number, create_topics=create(f"t{number}")) for number in range(5)]
    await stream.write(admin_pb2.SubmitRequests(requests=calls))
    answers: dict[int, Any] = {}
    while len(answers) < 5:
        for response in (await stream.read()).responses:
            answers[response.id] = response.create_topics
    stream.cancel()
    assert [answers[number].results[0].error.code for number in range(5)] == [0] * 5
    assert node.cluster.image.topic_count == 5


async def test_the_leaders_refusal_of_a_submitted_call_is_its_answer(stub: Any, node: FakeNode) -> None:
    """The leader ends the call that it was asked with a status; in the stream the refusal is an answer like any other."""
    node.refuse_with = Refused(ErrorCode.POLICY_VIOLATION, "not on Sundays", hint_to("10.0.0.1:9001"))
    stream = stub.Submit()
    await stream.write(
        admin_pb2.SubmitRequests(requests=[admin_pb2.SubmitRequest(id=5, create_topics=create("orders"))])
    )
    (response,) = (await stream.read()).responses
    stream.cancel()
    refused = response.create_topics
    assert (response.id, refused.error.code, refused.error.message) == (5, ErrorCode.POLICY_VIOLATION, "not on Sundays")
    assert (refused.leader.leader_id, refused.leader.endpoint.port) == (1, 9_001)


async def test_a_bug_in_forwarding_a_submitted_call_leaves_no_client_waiting(
    stub: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The call is answered, with a doubt about its outcome, and the stream ends when the client ends it."""

    async def fails(*_: Any) -> Any:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr("quorum.wire.table_service.ask_leader", fails)
    stream = stub.Submit(timeout=5)
    await stream.write(
        admin_pb2.SubmitRequests(requests=[admin_pb2.SubmitRequest(id=5, create_topics=create("orders"))])
    )
    (response,) = (await stream.read()).responses
    assert (response.id, response.error.code) == (5, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert "may have been made" in response.error.message
    await stream.done_writing()
    assert await stream.read() is grpc.aio.EOF
    assert "a mistake of ours" in caplog.text


async def test_a_submitted_call_that_waited_here_has_only_the_rest_of_its_time_at_the_leader(
    stub: Any, follower: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The follower took a second of the call's ten seconds before it refused the call: it asks the leader for nine at most."""
    given_s: list[float] = []
    begin = follower.begin

    async def asked(forwarder: Any, method: str, request: Any, hint: Any, timeout_s: float, principal: str) -> Any:
        given_s.append(timeout_s)
        raise Refused(ErrorCode.NOT_CONTROLLER, "not now")

    def slow(command: Any, timeout_ms: int, settled: Any, identity: Any) -> None:
        loop = asyncio.get_running_loop()
        time = loop.time
        monkeypatch.setattr(loop, "time", lambda: time() + 1)
        begin(command, timeout_ms, settled, identity)

    monkeypatch.setattr("quorum.wire.table_service.ask_leader", asked)
    monkeypatch.setattr(follower, "begin", slow)
    stream = stub.Submit()
    call = admin_pb2.SubmitRequest(id=5, create_topics=create("orders", timeout_ms=10_000))
    await stream.write(admin_pb2.SubmitRequests(requests=[call]))
    await stream.read()
    stream.cancel()
    monkeypatch.undo()
    assert given_s and given_s[0] <= 9


async def test_nothing_is_handed_on_twice(stub: Any, node: FakeNode) -> None:
    """Two controllers that each take the other for the leader send nothing round in a circle."""
    refusal = await refusal_of(stub.CreateTopics(create("orders"), metadata=((STAY_HERE, "1"),)))
    assert (refusal.reason, refusal.status) == ("NOT_CONTROLLER", grpc.StatusCode.UNAVAILABLE)
    assert refusal.number("leader_id") == 1
    assert refusal.leader is not None
    assert node.cluster.image.topic_count == 0


async def test_a_leader_that_is_not_there_has_done_nothing(stub: Any, follower: FakeNode) -> None:
    follower.refuse_with = Refused(ErrorCode.NOT_CONTROLLER, "node 1 leads", hint_to("127.0.0.1:1"))
    assert await code_of(stub.CreateTopics(create("orders"))) is ErrorCode.NOT_CONTROLLER


async def test_a_leader_that_has_come_back_at_its_place_is_asked_again(follower: FakeNode) -> None:
    """The connection to it broke, and a call failed meanwhile; nobody has to restart who asks it."""
    leader = FakeNode()
    async with Dialer() as dialer, AsyncExitStack() as stack:
        port = await stack.enter_async_context(serve(follower, FOLLOWER, ANY_PORT, grace_s=0, dial=dialer))
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{port}"))
        stub: Any = admin_pb2_grpc.AdminServiceStub(channel)  # type: ignore[no-untyped-call]
        async with serve(leader, IDENTITY, ANY_PORT, grace_s=0) as leaders_port:
            hint = hint_to(f"127.0.0.1:{leaders_port}")
            follower.refuse_with = Refused(ErrorCode.NOT_CONTROLLER, "node 1 leads", hint)
            assert (await stub.CreateTopics(create("orders"))).results[0].error.code == 0
        async with asyncio.timeout(10):
            # The connection may not know yet that it is over: a change that was sent on it may have happened, and is called so.
            while (refusal := await refusal_of(stub.CreateTopics(create("payments")))).reason == "REQUEST_TIMED_OUT":
                assert "may have taken effect" in refusal.message
        assert refusal.reason == "NOT_CONTROLLER"
        async with (
            serve(leader, IDENTITY, HostPort("127.0.0.1", leaders_port), grace_s=0),
            asyncio.timeout(10),
        ):
            while (code := await code_of(stub.CreateTopics(create("payments")))) is not ErrorCode.NONE:
                assert code is ErrorCode.NOT_CONTROLLER
            assert leader.cluster.image.topic("payments") is not None


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (create("x", timeout_ms=300), ErrorCode.REQUEST_TIMED_OUT),
        (admin_pb2.ListTopicsRequest(context=admin_pb2.RequestContext(timeout_ms=300)), ErrorCode.NOT_READY),
    ],
)
async def test_a_missing_answer_is_no_refusal(node: FakeNode, stub: Any, request_: Any, code: ErrorCode) -> None:
    """A change that was sent may have happened; a read did nothing."""

    async def breaks_down(*_: object) -> Any:
        raise RuntimeError("the process dies here")

    node.submit = breaks_down  # type: ignore[method-assign,assignment]
    node.read = breaks_down  # type: ignore[method-assign,assignment]
    call = getattr(stub, CLIENT_METHODS[request_.DESCRIPTOR.full_name])(request_)
    assert await code_of(call) is code
    wanted = grpc.StatusCode.ABORTED if code is ErrorCode.REQUEST_TIMED_OUT else grpc.StatusCode.UNAVAILABLE
    assert await call.code() is wanted, "a mesh repeats UNAVAILABLE by itself"


async def test_a_follower_that_stops_says_what_became_of_what_it_has_handed_on(
    node: FakeNode, follower: FakeNode
) -> None:
    """The leader has not answered yet. A change may have happened, a read has not; and what comes while the follower stops was
    never handed on. Nobody is told of a channel that is closed."""
    entered = asyncio.Queue[None]()

    async def thinks(*_: object) -> Any:
        entered.put_nowait(None)
        await asyncio.Event().wait()

    node.submit = thinks  # type: ignore[method-assign, assignment]
    node.read = thinks  # type: ignore[method-assign, assignment]
    async with AsyncExitStack() as stack:
        async with Dialer() as dialer, serve(follower, FOLLOWER, ANY_PORT, dial=dialer) as port:
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{port}"))
            stub: Any = admin_pb2_grpc.AdminServiceStub(channel)  # type: ignore[no-untyped-call]
            change, read = stub.CreateTopics(create("orders")), stub.ListTopics(admin_pb2.ListTopicsRequest())
            await entered.get()
            await entered.get()
        refusals = [await refusal_of(change), await refusal_of(read)]
        assert [refusal.reason for refusal in refusals] == ["REQUEST_TIMED_OUT", "NOT_READY"]
        assert all("this node is shutting down" in refusal.message for refusal in refusals)
        with pytest.raises(grpc.aio.AioRpcError) as gone:
            await stub.CreateTopics(create("orders"))
        assert gone.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_forwarder_that_was_stopped_sends_nothing() -> None:
    """Not even to a leader that would answer: the request was never sent, and says so."""
    async with Dialer() as dialer:
        forwarder = Forwarder(ControllerChannels(dialer), admin_pb2_grpc.AdminServiceStub)
        await forwarder.stop(0)
        with pytest.raises(NoAnswer, match="shutting down; nothing was done") as refused:
            await forwarder.ask("127.0.0.1:1", "CreateTopics", create("orders"), 5, "anonymous")
    assert refused.value.never_sent


async def test_an_address_that_is_not_reached_in_time_is_told_in_words() -> None:
    """Python's TimeoutError has no text of its own, and "1.2.3.4:9001 was to be asked: ;" helps nobody."""

    async def never(target: str, node_id: int | None = None) -> grpc.aio.Channel:
        return await asyncio.get_running_loop().create_future()

    forwarder = Forwarder(never, admin_pb2_grpc.AdminServiceStub)
    with pytest.raises(NoAnswer, match=r"1\.2\.3\.4:9001 cannot be reached: no connection in time; nothing was done"):
        await forwarder.ask("1.2.3.4:9001", "CreateTopics", create("orders"), 0.01, "CN=alice")


async def test_a_node_that_stops_waits_for_no_connection() -> None:
    """The controller that is to be asked is paused, and its handshake hangs: nothing was sent, and that is what the client hears
    before the server stops."""

    async def never(target: str, node_id: int | None = None) -> grpc.aio.Channel:
        return await asyncio.get_running_loop().create_future()

    forwarder = Forwarder(never, admin_pb2_grpc.AdminServiceStub)
    asking = asyncio.ensure_future(forwarder.ask("1.2.3.4:9001", "CreateTopics", create("orders"), 30, "CN=alice"))
    await asyncio.sleep(0)
    await forwarder.stop(0)
    with pytest.raises(
        NoAnswer, match="was not asked, because this node is shutting down; nothing was done"
    ) as refused:
        await asyncio.wait_for(asking, 1)
    assert refused.value.never_sent


async def test_what_a_connection_takes_is_taken_from_the_deadline() -> None:
    """Of half a second a tenth has gone before the leader is asked: it has four tenths, and less by the way back."""
    loop, given_s = asyncio.get_running_loop(), []

    async def slow(target: str, node_id: int | None = None) -> Any:
        reached = loop.create_future()
        loop.call_later(0.1, reached.set_result, "a channel")
        return await reached

    class Stub:
        def __init__(self, channel: object) -> None:
            assert channel == "a channel"

        async def CreateTopics(self, request: Any, timeout: float, metadata: Any) -> Any:  # noqa: N802
            given_s.append((timeout, request.context.timeout_ms / 1_000))
            return admin_pb2.CreateTopicsResponse()

    await Forwarder(slow, Stub).ask("1.2.3.4:9001", "CreateTopics", create("orders"), 0.5, "CN=alice")
    ((timeout_s, asked_s),) = given_s
    assert asked_s < timeout_s <= 0.4


async def test_what_a_node_knows_of_itself_is_not_asked_elsewhere(stub: Any, follower: FakeNode) -> None:
    follower.leader_id = 2
    assert (await stub.DescribeQuorum(admin_pb2.DescribeQuorumRequest())).leader.leader_id == 2


async def test_the_leader_describes_the_quorum_if_the_client_wants_the_leaders_word(
    stub: Any, node: FakeNode, follower: FakeNode, target: str
) -> None:
    """Only the leader knows silent voters and lags. A client that cannot reach the leader asks a follower for them."""
    follower.role, follower.leader = "follower", hint_to(target).endpoint
    follower.refuse_with = None
    assert (await stub.DescribeQuorum(admin_pb2.DescribeQuorumRequest())).role == "follower"
    assert (await stub.DescribeQuorum(admin_pb2.DescribeQuorumRequest(of_leader=True))).role == "leader"
    node.role = "resigned"
    assert (
        await code_of(stub.DescribeQuorum(admin_pb2.DescribeQuorumRequest(of_leader=True))) is ErrorCode.NOT_CONTROLLER
    )


# --- local reads -------------------------------------------------------------------------------------------------------


async def test_a_local_read_is_answered_by_the_node_that_was_asked(stub: Any, follower: FakeNode) -> None:
    """Marked, with its age; it does not lead, and asks nobody."""
    follower.leader_id = 2
    asked = admin_pb2.RequestContext(consistency=admin_pb2.RequestContext.LOCAL)
    for response in (
        await stub.ListTopics(admin_pb2.ListTopicsRequest(context=asked)),
        await stub.DescribeTopics(admin_pb2.DescribeTopicsRequest(context=asked, names=["x"])),
        await stub.DescribeConfigs(admin_pb2.DescribeConfigsRequest(context=asked)),
        await stub.ListBrokers(admin_pb2.ListBrokersRequest(context=asked)),
    ):
        assert response.error.code == 0
        assert (response.local.node_id, response.local.leader_heard_age_ms) == (2, 7)
        assert response.as_of_offset == follower.cluster.image.offset


async def test_a_local_read_never_goes_back_behind_what_its_client_has_seen(stub: Any) -> None:
    asked = admin_pb2.RequestContext(consistency=admin_pb2.RequestContext.LOCAL, client_high_watermark=1_000)
    assert await code_of(stub.ListTopics(admin_pb2.ListTopicsRequest(context=asked))) is ErrorCode.NOT_READY


def test_a_principal_that_fits_the_wire_fits_the_log() -> None:
    assert PRINCIPAL_CHARS_MAX == records.PRINCIPAL_CHARS_MAX


@pytest.mark.parametrize(
    ("shown", "principal"),
    [
        (
            {"x509_subject": [b"CN=alice,O=Example"], "x509_subject_alternative_name": [b"a.example"]},
            "CN=alice,O=Example",
        ),
        (
            {"x509_subject_alternative_name": [b"spiffe://example.org/alice", b"a.example"]},
            "SAN=spiffe://example.org/alice",
        ),
        ({"x509_subject": [b""], "x509_subject_alternative_name": [b"CN=alice,O=Example"]}, "SAN=CN=alice,O=Example"),
        ({}, "anonymous"),
    ],
)
def test_an_alternative_name_is_nobodys_subject(shown: dict[str, list[bytes]], principal: str) -> None:
    """A certificate may have no subject. The names that it has instead, perhaps chosen by whoever asked for it, are never taken
    for a subject that `admin.principals` lists."""

    class Context:
        def auth_context(self) -> dict[str, list[bytes]]:
            return shown

    assert principal_of(Context()) == principal
