"""Sessions of clients: open while they are heard, and their entities end with them."""

import random

import pytest

from metadata_log.format.errors import ErrorCode as E
from metadata_log.format.records import EndClientSession, Owner, RemoveEntity
from quorum.controller.controller import Controller
from quorum.controller.entities import sessions
from quorum.controller.entities.entity_views import list_sessions
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.entity_commands import (
    CloseSession,
    CloseSessionReply,
    EndExpiredSessions,
    OpenSession,
    OpenSessionReply,
    PutEntity,
)
from quorum.controller.protocol.happenings import SessionClosed, SessionOpened, SessionsExpired
from tests.quorum.controller.entities.embedder import ALICE, BOB, LOCK, Embedder


def test_a_session_that_is_heard_stays_open_and_one_that_is_silent_takes_its_entities_along() -> None:
    me = Embedder()
    alice, bob = me.open(ALICE), me.open(BOB, name="bob")
    me.put(*LOCK, owner=bob)
    me.put("member", "alice", owner=alice)
    for _ in range(5):
        me.wait(3_000)
        assert me.keep(alice)
    assert me.names("member") == ["alice"]
    assert me.names("lock") == []
    assert not me.keep(bob)


def test_the_end_of_a_session_and_of_its_entities_is_one_batch() -> None:
    me = Embedder()
    owner = me.open()
    me.put("member", "b", owner=owner)
    me.put("member", "a", owner=owner)
    (end,) = me.wait(9_020)
    assert end.records == [
        RemoveEntity("member", "a"),
        RemoveEntity("member", "b"),
        EndClientSession(ALICE, owner.epoch, "expired"),
    ]
    assert end.happenings == [SessionsExpired(sessions=1, ttls=0, entities=2, first=("alice",))]


def test_a_session_ends_20_ms_after_its_timeout_at_the_latest_and_never_before() -> None:
    for offset_ms in range(0, 40, 7):
        me = Embedder()
        me.cluster.now_ms += offset_ms
        me.open(timeout_ms=1_000)
        assert me.wait(999) == []
        deadline_ms = me.cluster.controller.next_deadline_ms()
        assert deadline_ms is not None
        assert 1 <= deadline_ms - me.cluster.now_ms <= 1 + sessions.COARSE_MS
        assert len(me.wait(deadline_ms - me.cluster.now_ms)) == 1


def test_a_contact_of_an_earlier_epoch_refreshes_nothing() -> None:
    """M2: a client that was away for long, and whose id has a session anew."""
    me = Embedder()
    old = me.open()
    me.wait(9_100)
    new = me.open()
    assert new.epoch > old.epoch
    me.wait(8_000)
    assert not me.keep(old)
    assert len(me.wait(1_100)) == 1
    assert me.refused_put(*LOCK, owner=new) is E.UNKNOWN_SESSION


def test_a_session_is_opened_once_however_often_it_is_asked_for() -> None:
    me = Embedder()
    owner = me.open(timeout_ms=5_000)
    me.wait(4_000)
    again = me.cluster.run(OpenSession(ALICE, "alice", "CN=alice", 60_000))
    assert again.records == []
    assert isinstance(again.reply, OpenSessionReply)
    assert (again.reply.epoch, again.reply.timeout_ms) == (owner.epoch, 5_000)
    assert me.wait(4_000) == [], "the request was a contact, too"


def test_a_client_closes_its_session() -> None:
    me = Embedder()
    owner = me.open()
    me.put(*LOCK, owner=owner)
    stale = me.cluster.run(CloseSession(ALICE, owner.epoch + 1))
    assert stale.records == []
    closed = me.cluster.run(CloseSession(ALICE, owner.epoch))
    assert isinstance(closed.reply, CloseSessionReply)
    assert closed.happenings == [SessionClosed("alice", entities=1)]
    assert me.names("lock") == []
    assert me.cluster.run(CloseSession(ALICE, owner.epoch)).records == [], "a session that has ended is no error"
    assert me.wait(60_000) == []


def test_a_session_that_cannot_be() -> None:
    me = Embedder()
    for command in (
        OpenSession(ALICE, "n" * 257, "CN=alice", 9_000),
        OpenSession(ALICE, "two\nlines", "CN=alice", 9_000),
        OpenSession(ALICE, "", "CN=alice", 999),
        OpenSession(ALICE, "", "CN=alice", 86_400_001),
    ):
        assert me.refused(command)[0] is E.INVALID_REQUEST
    opened = me.cluster.run(OpenSession(ALICE, "", "CN=alice", 86_400_000))
    assert opened.happenings == [SessionOpened("", 86_400_000)]


def test_a_new_controller_gives_every_session_its_full_timeout() -> None:
    """M8: it did not listen before, and must not count that silence."""
    me = Embedder()
    owner = me.open()
    cluster = me.cluster
    cluster.now_ms += 8_900
    cluster.controller = Controller(ControllerConfig(), random.Random(2))
    cluster.controller.activate(cluster.image, cluster.now_ms)
    assert cluster.controller.next_deadline_ms() == 0, "it looks for the sessions at once"
    assert me.wait(8_900) == []
    assert me.keep(owner)
    assert me.wait(8_900) == []
    assert len(me.wait(200)) == 1


def test_a_new_controller_finds_many_sessions_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look adds some; a session that is heard meanwhile keeps its own deadline."""
    me = Embedder()
    for number in range(25):
        me.open(number.to_bytes(16, "big"), timeout_ms=1_000)
    cluster = me.cluster
    monkeypatch.setattr(sessions, "LOADED_PER_LOOK", 10)
    cluster.controller = Controller(ControllerConfig(), random.Random(2))
    cluster.controller.activate(cluster.image, cluster.now_ms)
    seventh = (7).to_bytes(16, "big")
    cluster.now_ms += 500
    assert me.keep(Owner(seventh, None, cluster.image.client_sessions[seventh].epoch))
    looks = 0
    while cluster.controller.next_deadline_ms() == 0:
        assert cluster.controller.due(cluster.image, cluster.now_ms) is None
        looks += 1
    assert looks == 3
    me.wait(520)
    assert [*cluster.image.client_sessions] == [seventh]


def test_a_stall_of_the_controller_lengthens_every_session() -> None:
    me = Embedder()
    me.open()
    me.cluster.now_ms += 60_000
    me.cluster.controller.credit(60_000)
    assert me.wait(8_900) == []
    assert len(me.wait(200)) == 1


def test_many_sessions_that_end_at_once_are_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """25 sessions, five of them with an entity, in batches of 20 records at most."""
    monkeypatch.setattr(sessions, "ENDED_RECORDS_MAX", 20)
    me = Embedder()
    for number in range(25):
        owner = me.open(number.to_bytes(16, "big"))
        if number % 5 == 0:
            me.put("k", str(number), owner=owner)
    sizes = [len(end.records) for end in me.wait(9_100)]
    assert sum(sizes) == 30
    assert len(sizes) == 2
    assert max(sizes) <= 20
    assert len(me.cluster.image.client_sessions) == 0


def test_sessions_with_long_names_end_in_batches_that_fit() -> None:
    """600 KiB of names each: one session a batch."""
    me = Embedder()
    for session_id in (ALICE, BOB):
        owner = me.open(session_id)
        for begin in range(0, 1_000, 100):
            names = [f"{session_id[0]}{begin + n:04}".ljust(512, "x") for n in range(100)]
            me.transact(*(PutEntity(("k", name), b"", owner=owner) for name in names))
    ends = me.wait(9_100)
    assert [len(end.records) for end in ends] == [1_001, 1_001]


def test_an_end_that_was_never_written_is_decided_again() -> None:
    me = Embedder()
    me.open()
    cluster = me.cluster
    cluster.now_ms += 9_100
    assert cluster.controller.due(cluster.image, cluster.now_ms) == EndExpiredSessions()
    lost = cluster.controller.decide(cluster.image, EndExpiredSessions(), cluster.now_ms)
    assert len(lost.records) == 1
    assert cluster.controller.due(cluster.image, cluster.now_ms) is None, "not in the same moment"
    assert len(me.wait(1_100)) == 1


def test_a_session_that_has_ended_has_no_deadline_any_more() -> None:
    """A TTL of a day, written anew all the time: each put ends the session of the put before."""
    me = Embedder()
    sessions_of_clients = me.cluster.controller._entities.sessions
    for _ in range(50):
        me.put(*LOCK, ttl_ms=86_400_000)
        assert len(sessions_of_clients) <= 2
    owner = me.open()
    me.cluster.run(CloseSession(ALICE, owner.epoch))
    me.open()
    assert len(sessions_of_clients) == 2
    me.wait(9_100)
    me.delete(*LOCK)
    me.open(BOB)
    assert len(sessions_of_clients) == 1


def test_an_end_that_was_never_written_leaves_the_deadline() -> None:
    me = Embedder()
    owner = me.open()
    cluster = me.cluster
    lost = cluster.controller.decide(cluster.image, CloseSession(ALICE, owner.epoch), cluster.now_ms)
    assert len(lost.records) == 1
    me.put("a", "b")
    assert len(me.wait(9_100)) == 1


def test_sessions_are_listed_in_pages() -> None:
    me = Embedder()
    for number in range(5):
        me.open(number.to_bytes(16, "big"))
    me.put(*LOCK, owner=Owner(bytes(16), None, me.cluster.image.client_sessions[bytes(16)].epoch))
    image = me.cluster.image
    ids = image.client_sessions.sorted_keys()
    first = list_sessions(image, ids, b"", 3)
    rest = list_sessions(image, ids, first.next or b"", 3)
    assert [each.session.session_id[15] for each in (*first.items, *rest.items)] == [0, 1, 2, 3, 4]
    assert [each.entity_count for each in first.items] == [1, 0, 0]
    assert rest.next is None
