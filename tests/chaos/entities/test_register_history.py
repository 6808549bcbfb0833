"""The search for an order of registers: a true history has one, and each planted mistake has none."""

import pytest

from metaquorum import Condition, DeleteEntity, PutEntity, absent, version_is
from tests.chaos.entities.register_history import disorders
from tests.chaos.entities.registers import KIND
from tests.chaos.entities.scripted import did, refused, request_id, saw, unanswered
from tests.chaos.judge.history import Outcome
from tests.chaos.judge.witness import Bounds
from tests.chaos.operators.calls import OperatorCall


def put(value: int, name: str = "a/1") -> PutEntity:
    return PutEntity(KIND, name, b"%d" % value)


def is_at(version: int, name: str = "a/1") -> Condition:
    return version_is(KIND, name, version)


def no(name: str = "a/1") -> Condition:
    return absent(KIND, name)


TRUE = [
    saw(1, 10, "a/1", "a/2"),
    did(2, [no()], [put(7)], 12, 10),
    did(3, [is_at(10)], [put(8)], 14, 12),
    refused(4, [is_at(10)], [put(9)], 14, 0, 12),
    saw(5, 14, ("a/1", b"8", 12)),
    did(6, [is_at(12), no("a/2")], [put(10), put(11, "a/2")], 17, 14, 15),
    saw(7, 17, ("a/1", b"10", 14), ("a/2", b"11", 15)),
    did(8, [], [DeleteEntity(KIND, "a/1")], 19, 14),
    refused(9, [is_at(15, "a/2"), is_at(14)], [put(12)], 19, 1, None),
    did(10, [], [DeleteEntity(KIND, "a/1")], 19, -1),
    saw(11, 19, "a/1", ("a/2", b"11", 15)),
]


def found(*calls: OperatorCall, ends: dict[bytes, int] | None = None) -> list[str]:
    told = [(each.offset or 0, each.returned_ns) for each in calls if each.outcome in (Outcome.DONE, Outcome.UNMET)]
    return disorders(calls, ends or {}, Bounds(told))


def test_the_truth() -> None:
    assert found(*TRUE) == []


@pytest.mark.parametrize(
    "lie",
    [
        saw(6, 14, ("a/1", b"7", 10)),  # stale: client 3 had overwritten it, and was told so
        saw(6, 14, "a/1"),  # a lost write
        did(6, [is_at(10)], [put(9)], 16, 14),  # a success on condition of a version that was overwritten
        did(6, [no()], [put(9)], 16, 14),
        refused(6, [is_at(12)], [put(9)], 14, 0, 13),  # refused, although the version is the newest
        refused(6, [is_at(10)], [put(9)], 14, 0, 10),  # refused with a version that is not there
        refused(6, [is_at(10)], [put(9)], 14, 0, None),
        did(6, [], [DeleteEntity(KIND, "a/1")], 16, -1),  # a deletion of nothing
        did(6, [], [DeleteEntity(KIND, "a/1")], 16, 10),  # a deletion of an old version
    ],
)
def test_an_answer_that_no_order_explains(lie: OperatorCall) -> None:
    (text,) = found(*TRUE[:5], lie)
    assert "the registers a/1, a/2 are not linearizable" in text
    assert "->" in text


def test_two_writers_that_both_had_the_newest_version() -> None:
    """They overlap, so each order is tried: there is none."""
    both = [did(6, [is_at(12)], [put(20)], 16, 14, at=(60, 80)), did(7, [is_at(12)], [put(21)], 18, 16, at=(61, 79))]
    assert found(*TRUE[:5], *both)
    assert not found(*TRUE[:5], both[0])


def test_a_read_between_the_two_writes_of_one_transaction() -> None:
    """The read overlaps the transaction, and has seen one of its writes without the other one."""
    torn = saw(7, 17, ("a/1", b"10", 14), "a/2", at=(60, 99))
    assert found(*TRUE[:6], torn)
    assert not found(*TRUE[:6], saw(7, 14, ("a/1", b"8", 12), "a/2", at=(60, 99)))


def test_a_transaction_of_unknown_outcome_is_where_the_log_has_it() -> None:
    """It ends at 16 in the log, so it had happened when somebody was told of 17."""
    unknown = unanswered(6, [is_at(12)], [put(20)], at=(60, 61))
    seen, not_seen = saw(7, 16, ("a/1", b"20", 14)), saw(7, 16, ("a/1", b"8", 12))
    ends = {request_id(6): 16}
    assert not found(*TRUE[:5], unknown, seen, ends=ends)
    assert not found(*TRUE[:5], unknown, not_seen)
    assert found(*TRUE[:5], unknown, seen, not_seen._replace(called_ns=90, returned_ns=95), ends=ends)
    assert found(*TRUE[:5], unknown, saw(7, 17, "b/1", at=(70, 75)), saw(8, 17, ("a/1", b"8", 12)), ends=ends)


def test_a_transaction_that_is_not_in_the_log_was_never_done() -> None:
    never = unanswered(6, [], [put(20)], Outcome.UNKNOWN)
    failed = unanswered(7, [], [put(21)], Outcome.FAILED)
    assert not found(*TRUE[:5], never, failed, saw(8, 14, ("a/1", b"8", 12)))
    assert found(*TRUE[:5], failed, saw(8, 16, ("a/1", b"21", 14)))
