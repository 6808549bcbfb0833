"""The client sends a change again until it hears of it; the id makes that one change."""

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest
from quorum_rpc.v1 import admin_pb2, admin_pb2_grpc

from metadata_log.format.errors import ErrorCode
from metaquorum import AdminClient, AdminError, MayHaveHappened
from quorum.controller.protocol.commands import Command, CommandReply
from quorum.controller.protocol.feature_commands import FeatureResult, UpdateFeaturesReply
from quorum.controller.protocol.request_outcomes import RequestIdentity
from quorum.controller.protocol.topic_commands import CreateTopicsReply
from quorum.core.protocol.messages import (
    QuorumChangeRequest,
    QuorumChangeResponse,
    RemoveVoterRequest,
    TransferLeadershipRequest,
)
from quorum.runtime.protocol.requests import Refused
from quorum.wire.server import serve
from tests.quorum.wire.fake_node import ANY_PORT, IDENTITY, FakeNode
from tests.quorum.wire.refusing import refusal_of


def refusing(node: FakeNode, *codes: ErrorCode) -> None:
    """The node answers its next changes with `codes`, one each, and then does them."""
    submit, left = node.submit, list(codes)

    async def refuse_first(command: Command, timeout_ms: int, identity: RequestIdentity | None = None) -> CommandReply:
        if left:
            node.identities.append(identity)
            raise Refused(left.pop(0), "not now")
        return await submit(command, timeout_ms, identity)

    node.submit = refuse_first  # type: ignore[method-assign]


async def test_a_change_is_repeated_with_its_id_until_it_is_answered(client: AdminClient, node: FakeNode) -> None:
    """The leader may have done it, then there is none, then it is done: one request for whoever remembers ids."""
    refusing(node, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_READY)

    await client.create_topic("orders", 1, 3)

    first, *others = node.identities
    assert first is not None
    assert first.principal == "anonymous"
    assert first.client_high_watermark > 0, "what was forgotten before this request was made cannot be this request"
    assert others == [first] * 3


async def test_what_a_controller_has_made_a_mistake_with_is_never_repeated(client: AdminClient, node: FakeNode) -> None:
    """A mistake that the request met would meet it at the next leader too."""
    refusing(node, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR)
    with pytest.raises(AdminError) as caught:
        await client.create_topic("orders", 1, 3)
    assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert not isinstance(caught.value, MayHaveHappened), "nothing was done, and the caller may know it"
    assert len(node.identities) == 1


async def test_a_call_that_ends_in_a_servers_exception_is_never_repeated(client: AdminClient, node: FakeNode) -> None:
    """gRPC says UNKNOWN then. Whether anything was done is not known: the caller is to look, and no other controller is asked."""
    asked = []

    async def accident(command: Command, *_: object) -> CommandReply:
        asked.append(command)
        raise KeyError("nobody thought of that")

    node.submit = accident  # type: ignore[method-assign,assignment]
    with pytest.raises(MayHaveHappened) as caught:
        await client.create_topic("orders", 1, 3)
    assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert len(asked) == 1


async def test_each_change_has_an_id_of_its_own(client: AdminClient, node: FakeNode) -> None:
    """And the offset of the answer before."""
    await client.create_topic("a", 1, 3)
    created = await client.create_topics([admin_pb2.NewTopic(name="b", partitions=1, replication_factor=3)])
    await client.delete_topics(["a"])
    assert len({each.request_id for each in node.identities if each is not None}) == 3
    last = node.identities[-1]
    assert last is not None
    assert last.client_high_watermark == created.offset


async def test_what_is_asked_for_is_hashed_and_not_how(client: AdminClient, node: FakeNode) -> None:
    """A repetition has less time left, which makes it no other request."""
    for timeout_s in (2.0, 1.0):
        client.timeout_s = timeout_s
        await client.delete_topics(["x"])
    await client.delete_topics(["y"])
    one, same, other = (each.payload_hash for each in node.identities if each is not None)
    assert one == same != other


async def test_an_expired_id_that_was_sent_once_is_sent_again(client: AdminClient, node: FakeNode) -> None:
    """Nothing was done: the client had only not looked for too long. So it looks, and asks anew."""
    await client.delete_topics(["x"])
    node.cluster.register(7)
    refusing(node, ErrorCode.REQUEST_ID_EXPIRED)

    await client.delete_topics(["x"])

    _, expired, anew = node.identities
    assert expired is not None
    assert anew == expired._replace(client_high_watermark=node.cluster.image.offset)
    assert anew.client_high_watermark > expired.client_high_watermark


async def test_an_expired_id_whose_first_answer_is_missing_may_have_happened(
    client: AdminClient, node: FakeNode
) -> None:
    refusing(node, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_ID_EXPIRED)
    with pytest.raises(MayHaveHappened):
        await client.delete_topics(["x"])


async def test_a_topic_that_is_refused_after_an_answer_was_lost_is_no_refusal(
    client: AdminClient, node: FakeNode
) -> None:
    """A refusal is not remembered, so the first attempt, if it still stands in some queue, may yet be judged otherwise."""
    await client.create_topic("taken", 1, 3)
    refusing(node, ErrorCode.REQUEST_TIMED_OUT)
    with pytest.raises(MayHaveHappened, match="'taken' exists already"):
        await client.create_topic("taken", 1, 3)


async def test_what_was_done_in_part_after_an_answer_was_lost_is_final(client: AdminClient, node: FakeNode) -> None:
    """It is remembered, refusals and all: the first attempt gets the same answer, whenever it arrives."""
    await client.create_topic("taken", 1, 3)
    refusing(node, ErrorCode.REQUEST_TIMED_OUT)
    topics = [admin_pb2.NewTopic(name=name, partitions=1, replication_factor=3) for name in ("taken", "new")]
    answer = await client.create_topics(topics)
    assert [ErrorCode(result.error.code) for result in answer.results] == [
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.NONE,
    ]


async def test_a_repeated_request_whose_parts_have_no_errors_is_answered(client: AdminClient, node: FakeNode) -> None:
    """Levels of features are changed all or none, so no result has an error; the client fell over the missing field."""
    lost = [Refused(ErrorCode.REQUEST_TIMED_OUT, "not now")]

    async def raise_the_level(*_: object) -> CommandReply:
        if lost:
            raise lost.pop()
        return UpdateFeaturesReply(offset=41, results=(FeatureResult("metadata.version", level=2),))

    node.submit = raise_the_level  # type: ignore[method-assign,assignment]
    answer = await client.update_features({"metadata.version": 2})
    assert (answer.offset, [(each.name, each.level) for each in answer.results]) == (41, [("metadata.version", 2)])


async def test_a_remembered_answer_without_its_results_is_no_success(client: AdminClient, node: FakeNode) -> None:
    """The first answer was too long to be kept: what became of each topic is not known, and some may have been refused."""
    lost = [Refused(ErrorCode.REQUEST_TIMED_OUT, "not now")]

    async def remember_the_offset_alone(*_: object) -> CommandReply:
        if lost:
            raise lost.pop()
        return CreateTopicsReply(offset=41)

    node.submit = remember_the_offset_alone  # type: ignore[method-assign,assignment]
    topics = [admin_pb2.NewTopic(name=name, partitions=1, replication_factor=3) for name in ("a", "b")]
    with pytest.raises(MayHaveHappened, match="the change was made below offset 41"):
        await client.create_topics(topics)


async def test_a_topic_that_is_refused_at_once_is_refused(client: AdminClient, node: FakeNode) -> None:
    """And so is one that is only tried out: there is nothing that a lost attempt could do."""
    await client.create_topic("taken", 1, 3)
    with pytest.raises(AdminError) as caught:
        await client.create_topic("taken", 1, 3)
    assert caught.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    refusing(node, ErrorCode.REQUEST_TIMED_OUT)
    taken = admin_pb2.NewTopic(name="taken", partitions=1, replication_factor=3)
    answer = await client.create_topics([taken], validate_only=True)
    assert answer.results[0].error.code == ErrorCode.TOPIC_ALREADY_EXISTS.value


async def test_nobody_who_leads_after_an_answer_was_lost_is_no_refusal(target: str, node: FakeNode) -> None:
    """The deadline comes while there is no leader, and the lost attempt may have been the last leader's last deed."""
    async with AdminClient([target], timeout_s=0.3) as client:
        await client.list_topics()
        refusing(node, ErrorCode.REQUEST_TIMED_OUT, *[ErrorCode.NOT_CONTROLLER] * 1_000)
        with pytest.raises(MayHaveHappened):
            await client.delete_topics(["x"])


@pytest.mark.parametrize(
    ("context", "field"),
    [({"request_id": b"short"}, "request_id"), ({"request_id": bytes(16), "client_high_watermark": -1}, "watermark")],
)
async def test_a_bad_id_is_refused(
    channel: grpc.aio.Channel, node: FakeNode, context: dict[str, Any], field: str
) -> None:
    stub: Any = admin_pb2_grpc.AdminServiceStub(channel)  # type: ignore[no-untyped-call]
    asked = admin_pb2.RequestContext(**context)
    refusal = await refusal_of(stub.DeleteTopics(admin_pb2.DeleteTopicsRequest(context=asked, names=["x"])))
    assert refusal.reason == "INVALID_REQUEST"
    assert field in refusal.message
    assert node.identities == []


async def test_a_request_without_an_id_has_none(channel: grpc.aio.Channel, node: FakeNode) -> None:
    """And costs nothing more than before there were ids."""
    stub: Any = admin_pb2_grpc.AdminServiceStub(channel)  # type: ignore[no-untyped-call]
    await stub.DeleteTopics(admin_pb2.DeleteTopicsRequest(names=["x"]))
    assert node.identities == [None]


async def test_a_refusal_is_raised_at_once(client: AdminClient, node: FakeNode) -> None:
    node.refuse_with = Refused(ErrorCode.POLICY_VIOLATION, "too much")
    with pytest.raises(AdminError) as caught:
        await client.delete_topics(["x"])
    assert caught.value.code is ErrorCode.POLICY_VIOLATION


async def test_a_submitted_call_may_have_an_id_too(client: AdminClient, node: FakeNode) -> None:
    """Its sender gives it one, to send it again on another stream when this one breaks."""
    asked = admin_pb2.RequestContext(request_id=bytes([7]) * 16, client_high_watermark=5)
    async with await client.submit() as stream:
        waiting = await stream.send(delete_topics=admin_pb2.DeleteTopicsRequest(context=asked, names=["x"]))
        await waiting
    (identity,) = node.identities
    assert identity is not None
    assert (identity.request_id, identity.client_high_watermark) == (bytes([7]) * 16, 5)


# --- goals ---------------------------------------------------------------------------------------------------------------


def answering(node: FakeNode, *codes: ErrorCode) -> None:
    """The quorum answers its next changes with these codes, one each; REQUEST_TIMED_OUT with an offset may have happened."""
    left = list(codes)

    def answer(_: QuorumChangeRequest) -> QuorumChangeResponse:
        code = left.pop(0) if left else ErrorCode.NONE
        return QuorumChangeResponse(code, 1, 1, "not now", 42 if code is ErrorCode.REQUEST_TIMED_OUT else None)

    node.answer_change = answer


@pytest.mark.parametrize("change", [lambda c: c.remove_voter(3, bytes(16)), lambda c: c.transfer_leadership()])
async def test_a_change_of_the_quorum_is_repeated_until_it_is_answered(
    client: AdminClient, node: FakeNode, change: Callable[[AdminClient], Awaitable[object]]
) -> None:
    """Each attempt names the same offset, at or above which the leader looks for the first one."""
    answering(node, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_READY)
    await change(client)
    seen = {each.since for each in node.asked if isinstance(each, RemoveVoterRequest | TransferLeadershipRequest)}
    assert (len(node.asked), seen) == (3, {node.cluster.image.offset})


async def test_a_change_of_the_quorum_is_repeated_at_another_controller(client: AdminClient, node: FakeNode) -> None:
    """The first one dies with the answer; the client has seen the same offset before both attempts."""
    other = FakeNode()
    async with serve(other, IDENTITY, ANY_PORT, grace_s=0) as port:
        client.endpoints = (*client.endpoints, f"127.0.0.1:{port}")
        answering(node, *[ErrorCode.REQUEST_TIMED_OUT] * 100)
        await client.remove_voter(3, bytes(16))
    (first,), (second,) = node.asked, other.asked
    assert isinstance(first, RemoveVoterRequest) and isinstance(second, RemoveVoterRequest)
    assert (first.voter, first.since) == (second.voter, second.since)


async def test_a_refused_change_of_the_quorum_after_a_lost_answer_may_have_happened(
    client: AdminClient, node: FakeNode
) -> None:
    """The lost attempt may still be on its way."""
    answering(node, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.VOTER_NOT_FOUND)
    with pytest.raises(MayHaveHappened):
        await client.remove_voter(3, bytes(16))


async def test_the_client_looks_before_each_change_of_the_quorum(client: AdminClient, node: FakeNode) -> None:
    """An hour ago it saw a log in which controller 3 was not added and removed again; its next addition is another one."""
    node.answer_change = lambda _: QuorumChangeResponse(ErrorCode.NONE, 1, 1, "done", 2)
    await client.remove_voter(3, bytes(16))
    node.cluster.register(7)
    await client.remove_voter(3, bytes(16))
    one, other = (each.since for each in node.asked if isinstance(each, RemoveVoterRequest))
    assert one is not None and one < node.cluster.image.offset == other


async def test_a_change_of_the_quorum_without_an_id_is_not_compared_with_the_log(
    channel: grpc.aio.Channel, node: FakeNode
) -> None:
    """An offset without an id says nothing about repetitions."""
    stub: Any = admin_pb2_grpc.AdminServiceStub(channel)  # type: ignore[no-untyped-call]
    context = admin_pb2.RequestContext(client_high_watermark=7)
    await stub.TransferLeadership(admin_pb2.TransferLeadershipRequest(context=context))
    (asked,) = node.asked
    assert isinstance(asked, TransferLeadershipRequest) and asked.since is None


async def test_a_snapshot_is_asked_for_again_when_the_answer_is_missing(client: AdminClient, node: FakeNode) -> None:
    """A second mark does no harm."""
    marked = []

    async def lose_the_first_answer(reason: str, timeout_ms: int) -> int:
        marked.append(reason)
        if len(marked) == 1:
            raise Refused(ErrorCode.REQUEST_TIMED_OUT, "this controller stops")
        return 7

    node.create_snapshot = lose_the_first_answer  # type: ignore[method-assign]
    assert (await client.create_snapshot("before the upgrade")).offset == 7
    assert marked == ["before the upgrade"] * 2
