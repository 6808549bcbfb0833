"""The laws of locks over a log and over what holders believed: each planted mistake is found."""

import pytest

from metadata_log.format.records import ClientSession, EndClientSession, Entity, Owner, Record, RemoveEntity, Voters
from tests.chaos.entities.lock_history import LockLog, false_holds
from tests.chaos.entities.locks import GUARDED, KIND, Hold, guarded_value
from tests.chaos.entities.scripted import log_of, named, replayed
from tests.chaos.judge.witness import Bounds
from tests.sim.history import History
from tests.sim.laws.broken import LawBroken

A, B = Owner(b"a" * 16, None, 1), Owner(b"b" * 16, None, 2)
BEGIN: list[Record | list[Record]] = [
    ClientSession(b"a" * 16, "a", "somebody", 3_000),  # at 1
    ClientSession(b"b" * 16, "b", "somebody", 3_000),
]


def place(letter: str, owner: Owner) -> Entity:
    return Entity(KIND, f"m/{letter * 32}", b"", owner)


def gone(letter: str) -> RemoveEntity:
    return RemoveEntity(KIND, f"m/{letter * 32}")


def write(token: int, number: int, created: int = -1) -> Entity:
    return Entity(GUARDED, "m", guarded_value("m", token, number), None, created)


LOG: list[Record | list[Record]] = [
    *BEGIN,
    [place("a", A), named(1)],  # at 3, ends at 5
    [place("b", B), named(2)],  # at 5, ends at 7
    [write(3, 1), named(3)],  # ends at 9
    [gone("a"), EndClientSession(b"a" * 16, 1, "expired")],  # ends at 11
    [write(5, 2, created=7), named(4)],  # ends at 13
    [gone("b"), named(5)],  # ends at 15
]
FIRST = Hold(1, 1, "m", 3, A, 10, 20, 5, 30)
SECOND = Hold(2, 2, "m", 5, B, 15, 60, 11, 65)
TOLD = [(5, 20), (7, 22), (9, 35), (11, 58), (13, 70), (15, 80)]


def found(*holds: Hold, told: list[tuple[int, int]] = TOLD) -> list[str]:
    log = LockLog()
    replayed(History(Voters(())), log.take, batches=log_of(*LOG))
    return false_holds(holds, log, Bounds(told))


def test_the_truth() -> None:
    assert found(FIRST, SECOND) == []


@pytest.mark.parametrize(
    ("lie", "text"),
    [
        (SECOND._replace(as_of=7), "was the first one from 11 on"),
        (SECOND._replace(token=4), "was the first one from None on"),
        (FIRST._replace(as_of=12), "was gone at 11"),
        (SECOND._replace(as_of=10), "both held"),
    ],
)
def test_a_client_that_does_not_hold_what_it_was_told(lie: Hold, text: str) -> None:
    truth = SECOND if lie.lock == "m" and lie.client == 1 else FIRST
    assert any(text in each for each in found(truth, lie))


def test_two_holders_under_one_token() -> None:
    assert any("tokens must grow" in each for each in found(FIRST, SECOND, SECOND._replace(number=3, client=3)))


def test_a_token_that_is_lower_than_one_before() -> None:
    """In time: the holder of 5 had its answer before the holder of 3 asked, whatever the log says."""
    late = FIRST._replace(called_ns=61, returned_ns=62, trusted_ns=-1)
    assert any("tokens must grow" in each for each in found(late, SECOND))


def test_a_lock_that_is_taken_while_it_is_held() -> None:
    """The second holder was told at 40. Nobody can have been told of the first one's end at 11 before, so there is no order
    if the end happened behind an answer that came later and was asked for later."""
    early = SECOND._replace(returned_ns=40)
    assert found(FIRST._replace(called_ns=45, returned_ns=50, trusted_ns=-1), early)


def test_a_holder_that_trusts_its_lease_too_long() -> None:
    """Somebody was told of 11 at 58. The first holder believed at 59 that it surely held."""
    (text,) = found(FIRST._replace(trusted_ns=59), SECOND)
    assert "its client trusted that 0 ms after somebody was told of 11" in text


@pytest.mark.parametrize(
    "wrong",
    [
        [[write(5, 1), named(3)]],  # the second place writes before it is the first
        [[write(3, 1), named(3)], [gone("a"), named(4)], [write(3, 2, created=7), named(5)]],  # a former holder
        [[write(9, 1), named(3)]],  # a token of nobody
    ],
)
def test_a_write_under_a_token_that_does_not_hold(wrong: list[Record | list[Record]]) -> None:
    with pytest.raises(LawBroken, match="E5 OneHolder"):
        replayed(History(Voters(())), LockLog().take, batches=log_of(*LOG[:4], *wrong))
