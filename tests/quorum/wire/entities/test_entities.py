"""EntityService over gRPC: transactions, reads and sessions, of the leader and through a follower."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from quorum_rpc.v1 import admin_pb2, entity_pb2, entity_pb2_grpc

from metadata_log.format.errors import ErrorCode as E
from metadata_log.format.records import Endpoint
from quorum.controller.protocol.config import ControllerConfig
from quorum.runtime.protocol.requests import LeaderHint, Refused
from quorum.wire.server import serve
from service_kit.rpc.dial import Dialer
from service_kit.rpc.forwarding import STAY_HERE
from tests.quorum.controller.cluster import Cluster
from tests.quorum.wire.fake_node import ANY_PORT, IDENTITY, FakeNode
from tests.quorum.wire.refusing import refusal_of

ALICE = b"alice's session."
TASK = entity_pb2.EntityName(kind="task", name="7")


@pytest.fixture
async def leader(channel: grpc.aio.Channel) -> Any:
    """A client of the controller that leads."""
    return entity_pb2_grpc.EntityServiceStub(channel)  # type: ignore[no-untyped-call]


@pytest.fixture
async def follower(target: str) -> FakeNode:
    """Refuses everything, and knows that `node` leads."""
    host, _, port = target.rpartition(":")
    node = FakeNode()
    hint = LeaderHint(1, 1, Endpoint("CONTROLLER", host, int(port)))
    node.refuse_with = Refused(E.NOT_CONTROLLER, "node 1 leads", hint)
    return node


@pytest.fixture
async def elsewhere(follower: FakeNode) -> AsyncIterator[Any]:
    """A client of a controller that does not lead."""
    identity = IDENTITY._replace(node_id=2)
    async with (
        Dialer() as dialer,
        serve(follower, identity, ANY_PORT, grace_s=0, dial=dialer) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        yield entity_pb2_grpc.EntityServiceStub(channel)  # type: ignore[no-untyped-call]


def transaction(*operations: dict[str, Any], **context: Any) -> entity_pb2.TransactRequest:
    return entity_pb2.TransactRequest(
        context=admin_pb2.RequestContext(**context), operations=[entity_pb2.Operation(**each) for each in operations]
    )


def put(name: str, value: bytes = b"v", **how: Any) -> dict[str, Any]:
    return {"put": entity_pb2.PutEntity(entity={"kind": "task", "name": name}, value=value, **how)}


async def opened(stub: Any, session_id: bytes = ALICE, **how: Any) -> entity_pb2.SessionName:
    answer = await stub.OpenSession(entity_pb2.OpenSessionRequest(session_id=session_id, **how))
    return entity_pb2.SessionName(session_id=session_id, epoch=answer.epoch)


async def test_a_put_a_read_and_a_delete(leader: Any) -> None:
    done = await leader.Transact(transaction(put("7"), put("8", b"w")))
    assert (done.succeeded, done.generation) == (True, 1)
    first, second = done.results
    assert done.offset == second.version + 1 == first.version + 2
    got = await leader.GetEntities(
        entity_pb2.GetEntitiesRequest(entities=[{"kind": "task", "name": "9"}, TASK]),
    )
    (found,) = got.entities
    assert (found.kind, found.name, found.value, found.version, found.created) == (
        "task", "7", b"v", first.version, first.version,
    )  # fmt: skip
    assert ([*got.missing], got.generation, got.as_of_offset) == ([0], 1, done.offset)
    assert not found.HasField("owner")
    deleted = await leader.Transact(transaction({"delete": TASK}))
    assert deleted.results[0].version == first.version


async def test_a_condition_that_does_not_hold_is_told_with_the_entity_but_not_its_value(leader: Any) -> None:
    version = (await leader.Transact(transaction(put("7", b"secret")))).results[0].version
    request = transaction(put("7"))
    request.conditions.add(entity=TASK, version=version)
    request.conditions.add(entity=TASK, version=version - 1)
    answer = await leader.Transact(request)
    assert not answer.succeeded
    assert (answer.failed.index, answer.failed.entity.version, answer.failed.entity.value) == (1, version, b"")
    request.conditions[1].exists = False
    assert (await leader.Transact(request)).failed.index == 1
    request.conditions[1].value = b"secret"
    assert (await leader.Transact(request)).succeeded


async def test_a_topic_is_created_in_the_transaction(leader: Any, node: FakeNode) -> None:
    done = await leader.Transact(
        transaction(put("7"), {"create_topic": admin_pb2.NewTopic(name="orders", partitions=2, replication_factor=3)})
    )
    topic = node.cluster.image.topic("orders")
    assert topic is not None
    assert [each.topic_id for each in done.results] == [b"", topic.topic_id]
    assert done.results[1].version == -1


async def test_lists_are_read_in_pages_and_counted(leader: Any) -> None:
    await leader.Transact(transaction(*(put(f"a{number}") for number in range(5)), put("b")))
    request = entity_pb2.ListEntitiesRequest(kind="task", prefix="a", page_size=2, names_only=True)
    names: list[str] = []
    while True:
        page = await leader.ListEntities(request)
        assert page.count == 5
        assert all(not each.value for each in page.entities)
        names += [each.name for each in page.entities]
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    assert names == ["a0", "a1", "a2", "a3", "a4"]
    counted = await leader.ListEntities(entity_pb2.ListEntitiesRequest(kind="task", count_only=True))
    assert (counted.count, len(counted.entities)) == (6, 0)


async def test_kinds_are_declared_enforced_and_described(leader: Any) -> None:
    schema = '{"type": "object", "required": ["host"]}'
    kind = entity_pb2.Kind(kind="task", schema=schema, entities_max=5)
    await leader.AlterKinds(entity_pb2.AlterKindsRequest(declare=[kind]))
    refusal = await refusal_of(leader.Transact(transaction(put("7", b"{}"))))
    assert (refusal.reason, refusal.status) == ("INVALID_ENTITY", grpc.StatusCode.FAILED_PRECONDITION)
    assert refusal.message.startswith("the schema of kind task refuses the value: ")
    await leader.Transact(transaction(put("7", b'{"host": "a"}')))
    (described,) = (await leader.DescribeKinds(entity_pb2.DescribeKindsRequest())).kinds
    assert (described.kind.schema, described.kind.entities_max, described.kind.value_bytes_max) == (schema, 5, 65_536)
    assert (described.is_declared, described.entity_count, described.byte_count) == (True, 1, 14)


async def test_a_session_and_its_ephemeral_entity(leader: Any, node: FakeNode) -> None:
    alice = await opened(leader, name="worker 1")
    owner = entity_pb2.Owner(session_id=ALICE, epoch=alice.epoch)
    await leader.Transact(transaction(put("7", owner=owner)))
    (session,) = (await leader.ListSessions(entity_pb2.ListSessionsRequest())).sessions
    assert (session.name, session.principal, session.timeout_ms, session.epoch, session.entity_count) == (
        "worker 1", "anonymous", 9_000, alice.epoch, 1,
    )  # fmt: skip
    got = await leader.GetEntities(entity_pb2.GetEntitiesRequest(entities=[TASK]))
    assert got.entities[0].owner == owner
    await leader.CloseSession(entity_pb2.CloseSessionRequest(session_id=ALICE, epoch=alice.epoch))
    assert not node.cluster.image.entities


async def test_sessions_are_kept_alive_on_one_stream(leader: Any, node: FakeNode) -> None:
    alice = await opened(leader, timeout_ms=10_000)
    ended = entity_pb2.SessionName(session_id=bytes(16), epoch=1)
    stream = leader.KeepAlive()
    for number in (5, 6):
        await stream.write(entity_pb2.KeepAliveRequest(id=number, sessions=[alice, ended]))
        answer = await stream.read()
        kept, unknown = answer.sessions
        assert (answer.id, kept.session, kept.lease_ms, kept.error.code) == (number, alice, 8_000, 0)
        assert (unknown.session, unknown.lease_ms, unknown.error.code) == (ended, 0, E.UNKNOWN_SESSION)
    await stream.done_writing()
    assert await stream.read() is grpc.aio.EOF


async def test_a_stream_too_many_is_refused_until_another_ends(leader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Votes and fetches need calls of the same server."""
    monkeypatch.setattr("quorum.wire.entity.KEEP_ALIVE_STREAMS_MAX", 1)
    first = leader.KeepAlive()
    await first.write(entity_pb2.KeepAliveRequest(id=1))
    assert (await first.read()).id == 1
    assert (await refusal_of(leader.KeepAlive().read())).reason == "THROTTLING_QUOTA_EXCEEDED"
    await first.done_writing()
    assert await first.read() is grpc.aio.EOF
    third = leader.KeepAlive()
    await third.write(entity_pb2.KeepAliveRequest(id=3))
    assert (await third.read()).id == 3
    third.cancel()


async def test_a_bad_message_leaves_the_stream_open(leader: Any) -> None:
    stream = leader.KeepAlive()
    await stream.write(entity_pb2.KeepAliveRequest(id=1, cluster_id="elsewhere"))
    assert (await stream.read()).error.code == E.INCONSISTENT_CLUSTER_ID
    await stream.write(entity_pb2.KeepAliveRequest(id=2))
    assert (await stream.read()).error.code == 0
    stream.cancel()


async def test_a_follower_hands_everything_on_to_the_leader(elsewhere: Any, node: FakeNode) -> None:
    """Unary calls, and each message of the stream."""
    alice = await opened(elsewhere)
    done = await elsewhere.Transact(transaction(put("7")))
    assert done.results[0].version == node.cluster.image.entities["task", "7"].version
    stream = elsewhere.KeepAlive()
    for number in (1, 2):
        await stream.write(entity_pb2.KeepAliveRequest(id=number, sessions=[alice]))
        answer = await stream.read()
        assert (answer.id, answer.error.code, answer.sessions[0].error.code) == (number, 0, 0)
        assert answer.sessions[0].lease_ms > 0
    stream.cancel()


async def test_a_message_that_must_stay_or_finds_no_leader_is_answered_with_the_hint(
    elsewhere: Any, follower: FakeNode
) -> None:
    """No session was kept alive; the client sends again, here or to the leader."""
    stream = elsewhere.KeepAlive(metadata=((STAY_HERE, "1"),))
    await stream.write(entity_pb2.KeepAliveRequest(id=1))
    answer = await stream.read()
    assert (answer.error.code, answer.leader.leader_id) == (E.NOT_CONTROLLER, 1)
    stream.cancel()
    follower.refuse_with = Refused(E.NOT_CONTROLLER, "gone", LeaderHint(3, 1, Endpoint("C", "127.0.0.1", 1)))
    stream = elsewhere.KeepAlive()
    await stream.write(entity_pb2.KeepAliveRequest(id=2))
    answer = await stream.read()
    assert (answer.id, answer.error.code, answer.leader.leader_id) == (2, E.NOT_CONTROLLER, 3)
    stream.cancel()


async def test_a_stream_goes_on_with_the_next_leader(
    elsewhere: Any, follower: FakeNode, node: FakeNode, leader: Any
) -> None:
    """While nobody leads, the client hears so; then the same stream works again."""
    alice = await opened(leader)
    stream = elsewhere.KeepAlive()
    good, follower.refuse_with = follower.refuse_with, Refused(E.NOT_CONTROLLER, "nobody", LeaderHint(None, 1, None))
    await stream.write(entity_pb2.KeepAliveRequest(id=1, sessions=[alice]))
    assert (await stream.read()).error.code == E.NOT_CONTROLLER
    follower.refuse_with = good
    await stream.write(entity_pb2.KeepAliveRequest(id=2, sessions=[alice]))
    assert (await stream.read()).error.code == 0
    stream.cancel()


async def test_before_there_were_entities_there_were_none(leader: Any, node: FakeNode) -> None:
    """A read of the past at a level without entities shows nothing, and gives no advice: the cluster has the level today."""
    node.images.append(Cluster(config=ControllerConfig(bootstrap_metadata_version=1)).image)
    await leader.Transact(transaction(put("7")))
    await opened(leader)
    then: dict[str, Any] = {"context": admin_pb2.RequestContext(at_offset=node.images[0].offset)}
    got = await leader.GetEntities(entity_pb2.GetEntitiesRequest(entities=[TASK], **then))
    assert (len(got.entities), list(got.missing)) == (0, [0])
    listed = await leader.ListEntities(entity_pb2.ListEntitiesRequest(kind="task", **then))
    assert (listed.count, len(listed.entities)) == (0, 0)
    assert not (await leader.DescribeKinds(entity_pb2.DescribeKindsRequest(**then))).kinds
    assert not (await leader.ListSessions(entity_pb2.ListSessionsRequest(**then))).sessions
    at_time = admin_pb2.RequestContext(at_time_ms=node.images[0].provenance.timestamp_ms)
    assert not (await leader.DescribeKinds(entity_pb2.DescribeKindsRequest(context=at_time))).kinds


async def test_a_cluster_below_the_level_refuses_reads_of_the_present(leader: Any, node: FakeNode) -> None:
    node.cluster = Cluster(config=ControllerConfig(bootstrap_metadata_version=1))
    refusal = await refusal_of(leader.GetEntities(entity_pb2.GetEntitiesRequest(entities=[TASK])))
    assert (refusal.reason, "quorumctl features upgrade" in refusal.message) == ("UNSUPPORTED_VERSION", True)


async def test_an_operation_is_named_by_its_place_only_among_several(leader: Any) -> None:
    wrong = put("7", ttl_ms=-1)
    alone = await refusal_of(leader.Transact(transaction(wrong)))
    assert alone.message.startswith("ttl_ms is ")
    second = await refusal_of(leader.Transact(transaction(put("8"), wrong)))
    assert second.message.startswith("operation 1: ttl_ms is ")
    nameless = await refusal_of(leader.Transact(transaction(put(""))))
    assert not nameless.message.startswith("operation")
    owner = entity_pb2.Owner(session_id=b"short", epoch=1)
    for operations, begin in (
        ((put("7", owner=owner),), "session_id"),
        ((put("8"), put("7", owner=owner)), "operation 1: "),
    ):
        refusal = await refusal_of(leader.Transact(transaction(*operations)))
        assert refusal.message.startswith(begin)
