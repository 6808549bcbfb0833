"""The committed log against the notes of clients of entities: the truth passes, and each planted mistake is found."""

import pytest
from quorum_rpc.v1 import entity_pb2

from metadata_log.format.records import ClientSession, EndClientSession, Entity, Owner, Record, RemoveEntity, Voters
from metaquorum import DeleteEntity, EntityOwner, PutEntity, absent, version_is
from tests.chaos.entities.entities import Noted
from tests.chaos.entities.judging import (
    COMPARED_DONE,
    EXPIRED,
    GUARDED_REFUSED,
    LONG_S,
    EntityJudge,
    Verdict,
    times_of,
    untried,
)
from tests.chaos.entities.recorder import ask_of
from tests.chaos.entities.scripted import did, log_of, named, refused, request_id, saw, unanswered
from tests.chaos.judge.history import Outcome
from tests.chaos.judge.operator_witness import disordered, hear
from tests.chaos.operators.calls import OperatorCall
from tests.sim.history import History

Log = list[Record | list[Record]]
SESSION = b"s" * 16
OWNER = Owner(SESSION, None, 1)


def opened(number: int, epoch: int, offset: int) -> OperatorCall:
    request = entity_pb2.OpenSessionRequest(session_id=SESSION)
    request.context.request_id = request_id(number)
    ask = ask_of(request, entity_pb2.OpenSessionResponse)
    answer = entity_pb2.OpenSessionResponse(offset=offset, epoch=epoch)
    claims = tuple(ask.claims(answer))
    at = 10 * number, 10 * number + 5
    return OperatorCall(number, "lock client 1", ask, Outcome.DONE, claims, *at, offset, may_be_unwritten=True)


def register(name: str, value: int, created: int = -1) -> Entity:
    return Entity("register", name, b"%d" % value, None, created)


def put(name: str, value: int) -> PutEntity:
    return PutEntity("register", name, b"%d" % value)


EPHEMERAL = PutEntity("lock", "m/" + "a" * 32, b"", EntityOwner(SESSION, None, 1))
PLACE = Entity("lock", "m/" + "a" * 32, b"", OWNER)
LOG: Log = [
    [ClientSession(SESSION, "a", "somebody", 3_000), named(1)],  # at 1, ends at 3
    [register("a/1", 7), named(2)],  # at 3, ends at 5
    [register("a/1", 8, created=3), register("a/2", 9), named(3)],  # ends at 8
    [PLACE, named(4)],  # at 8, ends at 10
    [RemoveEntity("register", "a/2"), named(6)],  # ends at 12
    [RemoveEntity("lock", PLACE.name), EndClientSession(SESSION, 1, "expired")],  # ends at 14
]
TRUE = [
    opened(1, 1, 3),
    did(2, [absent("register", "a/1")], [put("a/1", 7)], 5, 3),
    did(3, [version_is("register", "a/1", 3), absent("register", "a/2")], [put("a/1", 8), put("a/2", 9)], 8, 5, 6),
    did(4, [], [EPHEMERAL], 10, 8),
    refused(5, [version_is("register", "a/1", 3)], [put("a/1", 10)], 10, 0, 5),
    unanswered(6, [], [DeleteEntity("register", "a/2")]),
    did(7, [], [DeleteEntity("register", "a/2")], 14, -1),
    saw(8, 14, ("a/1", b"8", 5), "a/2"),
]


def judged(calls: list[OperatorCall], log: Log, lost: tuple[Owner, ...] = ()) -> tuple[list[str], Verdict]:
    """The laws that are broken or contradicted, and the verdict."""
    history = History(Voters(()))
    judge = EntityJudge(Noted(calls, lost=lost), history)
    heard = hear(calls, log_of(*log), history, judge.checks)
    false = [each.law for each in (*heard.answers, *disordered(calls, []))]
    return [*heard.broken, *false], judge.verdict(times_of([], calls), 1.0)


def laws(calls: list[OperatorCall], log: Log = LOG) -> list[str]:
    return judged(calls, log)[0]


def test_the_truth() -> None:
    found, verdict = judged(TRUE, LOG, lost=(OWNER,))
    assert found == []
    assert verdict.linearizable
    assert verdict.problems[:-1] == [[], [], [], []]
    assert (verdict.figures[COMPARED_DONE], verdict.figures[EXPIRED]) == (2, 1)


def broken(law: str, calls: list[OperatorCall], log: Log) -> bool:
    return any(law in each for each in laws(calls, log))


def test_a_compare_and_set_that_was_done_on_an_old_version() -> None:
    """The batch [14, 16) writes a/1 on condition of the version 3, which was overwritten at 5."""
    log: Log = [*LOG, [register("a/1", 11, created=3), named(9)]]
    late = did(9, [version_is("register", "a/1", 3)], [put("a/1", 11)], 16, 14)
    assert broken("E1 CompareAndSet", [*TRUE, late], log)
    assert laws([*TRUE, did(9, [version_is("register", "a/1", 5)], [put("a/1", 11)], 16, 14)], log) == []


def test_a_transaction_that_was_done_in_part() -> None:
    log: Log = [*LOG[:2], [register("a/1", 8, created=3), named(3)]]
    assert broken("E1 Whole", TRUE[:3], log)


def test_an_acknowledged_write_that_is_not_there() -> None:
    assert laws([*TRUE, did(9, [], [put("b/1", 11)], 14, 13, at=(60, 99))]) == ["lost"]
    assert "lost" in laws([*TRUE[:1], TRUE[1]._replace(offset=8), *TRUE[2:]])


def test_an_answer_with_another_version() -> None:
    assert laws([*TRUE[:1], did(2, [absent("register", "a/1")], [put("a/1", 7)], 5, 4), *TRUE[2:]]) == ["claim"]


def test_a_refused_transaction_that_was_done() -> None:
    log: Log = [*LOG, [register("a/1", 11, created=3), named(9)]]
    assert "undone" in laws([*TRUE, refused(9, [absent("register", "a/1")], [put("a/1", 11)], 14, 0, 5)], log)
    assert "undone" in laws([*TRUE, unanswered(9, [], [put("a/1", 11)], Outcome.FAILED)], log)


def test_a_transaction_that_was_done_twice() -> None:
    """The log had forgotten the request, because another one took its slot, and the repetition was done again."""
    first: Log = [[register("b/1", 11), named(9)], [register("c/1", 12), named(10)._replace(slot=9, horizon=15)]]
    log: Log = [*LOG, *first, [register("b/1", 11, created=14), named(9)._replace(slot=11, horizon=16)]]
    calls = [*TRUE, unanswered(9, [], [put("b/1", 11)]), unanswered(10, [], [put("c/1", 12)])]
    found = laws(calls, log)
    assert "once" in found
    assert any("C3 AtMostOnce" in each for each in found)


@pytest.mark.parametrize(
    "lie",
    [
        saw(9, 8, ("a/1", b"7", 3)),
        saw(9, 14, ("a/2", b"9", 6)),
        saw(9, 14, "a/1"),
        refused(9, [version_is("register", "a/1", 5)], [put("a/1", 10)], 14, 0, 6),
        refused(9, [version_is("register", "a/1", 3)], [put("a/1", 10)], 14, 0, 3),
        did(9, [], [DeleteEntity("register", "a/1")], 14, -1),
    ],
)
def test_an_answer_that_the_log_contradicts(lie: OperatorCall) -> None:
    assert "claim" in laws([*TRUE, lie])


def test_an_answer_that_is_older_than_what_had_ended() -> None:
    assert laws([*TRUE, saw(9, 7, ("a/1", b"7", 3))]) == ["order"]


@pytest.mark.parametrize(
    ("records", "law"),
    [
        ([register("b/1", 11)], "C2 NoPhantom"),
        ([register("b/1", 11), named(9)], "C2 NoPhantom"),
        ([ClientSession(b"x" * 16, "a", "somebody", 3_000)], "C2 NoPhantom"),
        ([RemoveEntity("register", "a/1")], "E2 NoneVanishes"),
        ([RemoveEntity("register", "a/1"), named(9)], "E2 NoneVanishes"),
    ],
)
def test_a_batch_that_nobody_has_asked_for(records: list[Record], law: str) -> None:
    assert broken(law, TRUE, [*LOG, records])


def test_an_ephemeral_entity_that_outlives_its_session() -> None:
    """The session ends, and its place in the queue is still there: no image can be that."""
    log: Log = [*LOG[:5], [EndClientSession(SESSION, 1, "expired")]]
    assert broken("cannot be replayed", TRUE[:6], log)


def test_a_client_that_was_told_the_end_of_a_session_that_goes_on() -> None:
    _, verdict = judged(TRUE[:6], LOG[:5], lost=(OWNER,))
    assert any("has not ended in the log" in text for same in verdict.problems for text in same)


def test_a_run_in_which_nothing_happened_is_a_problem() -> None:
    _, verdict = judged([], [])
    assert any(COMPARED_DONE in text for text in verdict.problems[-1])
    short = dict.fromkeys(verdict.figures, 1) | {EXPIRED: 0, GUARDED_REFUSED: 0}
    assert untried(short, LONG_S - 1) == []
    assert len(untried(short, LONG_S)) == 2
