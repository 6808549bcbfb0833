"""Sessions of clients on a real node: contacts write nothing, and the answer promises no more than it may."""

from typing import Any

from quorum_rpc.v1 import admin_pb2, entity_pb2

from metadata_log.format.errors import ErrorCode as E
from quorum.controller.protocol.entity_commands import CloseSession, OpenSession, OpenSessionReply
from quorum.runtime.protocol.requests import KeptSession, Refused, SessionName, SessionsKept
from quorum.runtime.protocol.world import KeepAlive, Submission
from quorum.wire.entity import EntityService
from tests.fuzz.network_targets import IDENTITY, busy
from tests.quorum.runtime.lone_controller import LoneController, leader
from tests.quorum.runtime.lone_node import LoneNode
from tests.quorum.runtime.test_inbox import active_leader, fetched
from tests.quorum.wire.calling import call

ALICE = b"alice's session."


def _open(lone: LoneNode, timeout_ms: int = 9_000) -> SessionName:
    service = EntityService(LoneController(lone), IDENTITY)
    answer = call(service, "OpenSession", entity_pb2.OpenSessionRequest(session_id=ALICE, timeout_ms=timeout_ms))
    return SessionName(ALICE, answer.epoch)


def _keep(lone: LoneNode, *sessions: SessionName) -> tuple[KeptSession, ...]:
    answer = LoneController(lone).ask(lambda reply_to: KeepAlive(sessions, reply_to))
    assert isinstance(answer, SessionsKept)
    return answer.sessions


def _wait(lone: LoneNode, ms: int) -> None:
    for _ in range(ms // 50):
        lone.now_ms += 50
        lone.turn()
        lone.run_until_idle()


def test_a_contact_writes_nothing_and_moves_the_end() -> None:
    lone = busy()
    alice = _open(lone)
    for _ in range(5):
        _wait(lone, 5_000)
        end = lone.node.log.end
        assert _keep(lone, alice)[0].is_open
        assert lone.node.log.end == end
    _wait(lone, 9_000)
    (kept,) = _keep(lone, alice)
    assert not kept.is_open
    assert len(lone.node.state.committed.client_sessions) == 0


def test_the_lease_of_a_lone_voter_is_four_fifths_of_the_timeout() -> None:
    """Node 1 is the only voter, so it confirms itself at any time, even in the future. The lease was 146 million years."""
    lone = busy()
    alice = _open(lone, 10_000)
    assert _keep(lone, alice) == (KeptSession(is_open=True, lease_ms=8_000),)


def test_a_session_whose_end_is_decided_is_neither_promised_nor_called_ended() -> None:
    """The batch that ends it is appended and not committed: a next leader may not have it."""
    lone = busy()
    alice = _open(lone)
    reply_to, kept_to = lone.new_reply_to(), lone.new_reply_to()
    lone.turn(
        Submission(CloseSession(*alice), reply_to, lone.now_ms + 1_000),
        KeepAlive((alice,), kept_to),
    )
    answer = lone.answers[kept_to]
    assert answer == SessionsKept((KeptSession(is_open=True, lease_ms=0),))
    lone.run_until_idle()
    assert _keep(lone, alice) == (KeptSession(is_open=False, lease_ms=0),)


def test_a_session_that_this_controller_cannot_know_yet_is_not_called_ended() -> None:
    """A deposed leader lacks what the next leader has opened."""
    lone = busy()
    committed = lone.node.state.committed.offset
    later, never = SessionName(ALICE, committed), SessionName(ALICE, committed - 1)
    assert _keep(lone, later, never) == (KeptSession(True, 0), KeptSession(False, 0))


def test_a_new_leader_keeps_nothing_alive_before_it_is_active() -> None:
    lone = leader()
    reply_to = lone.new_reply_to()
    lone.turn(KeepAlive((SessionName(ALICE, 1),), reply_to))
    answer = lone.answers[reply_to]
    assert isinstance(answer, Refused)
    assert answer.code is E.NOT_READY


def test_a_repeated_transaction_gets_the_first_answer() -> None:
    """The client lost the answer. Meanwhile somebody else has written the entity."""
    lone = busy()
    service = EntityService(LoneController(lone), IDENTITY)

    def put(value: bytes, request_id: bytes) -> Any:
        context = admin_pb2.RequestContext(
            request_id=request_id, client_high_watermark=lone.node.state.committed.offset
        )
        entity = entity_pb2.PutEntity(entity={"kind": "k", "name": "a"}, value=value, ttl_ms=5_000)
        return call(service, "Transact", entity_pb2.TransactRequest(context=context, operations=[{"put": entity}]))

    first = put(b"mine", bytes(16))
    put(b"theirs", bytes(range(16)))
    again = put(b"mine", bytes(16))
    assert again.results[0].version == first.results[0].version
    assert again.offset == first.offset
    assert lone.node.state.committed.entities["k", "a"].value == b"theirs"


def test_an_opening_is_repeated_after_the_session_has_ended() -> None:
    """The first epoch is the answer; the next message tells that this session is over."""
    lone = busy()
    controller = LoneController(lone)
    service = EntityService(controller, IDENTITY)
    request = entity_pb2.OpenSessionRequest(
        context=admin_pb2.RequestContext(request_id=bytes(16), client_high_watermark=lone.node.state.committed.offset),
        session_id=ALICE,
        timeout_ms=1_000,
    )
    first = call(service, "OpenSession", request)
    _wait(lone, 1_100)
    again = call(service, "OpenSession", request)
    assert (again.epoch, again.offset) == (first.epoch, first.offset)
    assert _keep(lone, SessionName(ALICE, again.epoch)) == (KeptSession(False, 0),)


def test_a_session_is_open_from_its_commit_on_whoever_asks() -> None:
    """An opening without a request id is repeated: the same session."""
    lone = busy()
    alice = _open(lone)
    reply_to = lone.new_reply_to()
    lone.turn(Submission(OpenSession(ALICE, "again", "CN=alice", 5_000), reply_to, lone.now_ms + 1_000))
    lone.run_until_idle()
    _wait(lone, 50)
    answer = lone.answers[reply_to]
    assert getattr(answer, "epoch", None) == alice.epoch


def test_the_lease_shrinks_with_the_age_of_the_last_confirmed_round() -> None:
    """Node 1 leads two others, which fall silent: the next leader may be active from then on, and counts the timeout anew."""
    lone = active_leader(2, 3)
    reply_to = lone.new_reply_to()
    lone.turn(Submission(OpenSession(ALICE, "alice", "CN=alice", 1_000), reply_to, lone.now_ms + 1_000))
    lone.run_until_idle()
    fetched(lone, 2)
    lone.turn()
    answer = lone.answers[reply_to]
    assert isinstance(answer, OpenSessionReply)
    began_ms = lone.node.core.last_quorum_round_began_ms
    assert began_ms is not None
    leases = []
    for _ in range(4):
        lone.now_ms += 250
        assert lone.node.core.is_leading
        kept_to = lone.new_reply_to()
        lone.turn(KeepAlive((SessionName(ALICE, answer.epoch),), kept_to))
        assert lone.node.core.last_quorum_round_began_ms == began_ms
        kept = lone.answers[kept_to]
        assert isinstance(kept, SessionsKept)
        (session,) = kept.sessions
        assert session == KeptSession(is_open=True, lease_ms=max(0, 800 - (lone.now_ms - began_ms)))
        leases.append(session.lease_ms)
    assert leases[0] > 0
    assert leases[-1] == 0
