"""The log as a witness: each lie that an answer could tell is found, and the truth is not accused."""

from collections.abc import Sequence

from tests.chaos.judge.final_log import Change
from tests.chaos.judge.history import Kind, Operation, Outcome, State
from tests.chaos.judge.linearizability import check, topic_step
from tests.chaos.judge.witness import Witness, lost, problems_of, settled

LOG = [Change("k", 1, 10), Change("k", 2, 12), Change("k", None, 13), Change("k", 4, 20)]
"""Created with 1, set to 2, deleted, created anew with 4."""


def did(
    number: int,
    kind: Kind,
    offset: int | None,
    value: State = None,
    outcome: Outcome = Outcome.DONE,
    *,
    at: tuple[int, int] | None = None,
) -> Operation:
    """The `number`-th operation; by default each ends before the next begins."""
    called, returned = at or (10 * number, 10 * number + 5)
    return Operation(number, 1, "k", kind, value, outcome, called, returned, offset)


TRUE = [
    did(1, Kind.CREATE, 10, 1),
    did(2, Kind.SET, 12, 2),
    did(3, Kind.READ, 12, 2),
    did(4, Kind.CREATE, 12, 40, Outcome.EXISTS),
    did(5, Kind.DELETE, 13),
    did(6, Kind.READ, 19, None),
    did(7, Kind.SET, 19, 3, Outcome.MISSING),
    did(8, Kind.CREATE, None, 4, Outcome.UNKNOWN),
]


def said(history: Sequence[Operation]) -> list[tuple[int, str]]:
    """The witness of the log that these operations wrote."""
    written = {each.value for each in history if each.is_change} | {None}
    witness = Witness([change for change in LOG if change.state in written])
    return [(operation.number, why) for _, why, operation in problems_of(history, witness)]


def test_the_truth() -> None:
    assert said(TRUE) == []
    assert lost(TRUE, Witness(LOG)) == []


def test_an_acknowledged_change_that_is_not_there() -> None:
    history = [*TRUE, did(9, Kind.SET, 21, 9)]
    assert (9, "was acknowledged and is not in the log there") in said(history)
    assert [each.number for each in lost(history, Witness(LOG))] == [9]


def test_a_change_at_another_offset_than_was_said() -> None:
    assert (1, "was acknowledged and is not in the log there") in said([did(1, Kind.CREATE, 9, 1), *TRUE[1:3]])


def test_a_read_that_the_log_contradicts() -> None:
    assert (3, "the log up to there says 2") in said([*TRUE[:2], did(3, Kind.READ, 12, 1)])


def test_an_answer_as_of_more_than_was_committed() -> None:
    """A leader that nobody follows any more has told of its own tail; true as far as the log goes, and of nothing beyond."""
    history = [*TRUE[:5], did(6, Kind.READ, 21, None)]
    found = problems_of(history, Witness(LOG[:3], end=20))
    assert [(each.law, each.operation.number) for each in found] == [("beyond", 6)]
    assert problems_of(history, Witness(LOG[:3], end=21)) == []


def test_a_refusal_for_nothing() -> None:
    assert (5, "was refused, and the log up to there says 2") in said(
        [*TRUE[:3], did(5, Kind.SET, 12, 9, Outcome.MISSING)]
    )


def test_offsets_against_time() -> None:
    """A read that began after a write had ended, as of an offset before it: stale, though true of its offset."""
    (number, why), *_ = said([*TRUE[:2], did(3, Kind.READ, 11, 1)])
    assert number == 3
    assert "has a lower offset" in why


def test_overlapping_operations_may_have_any_offsets() -> None:
    assert said([TRUE[0], did(2, Kind.SET, 12, 2, at=(20, 40)), did(3, Kind.READ, 11, 1, at=(30, 50))]) == []


def test_what_failed_and_is_there() -> None:
    history = [TRUE[0], did(2, Kind.SET, None, 2, Outcome.FAILED)]
    assert (2, "did not happen, it was said, and is in the log") in said(history)


def test_what_is_there_twice() -> None:
    twice = Witness([Change("k", 1, 10), Change("k", 2, 12), Change("k", 2, 14)])
    history = [TRUE[0], did(2, Kind.SET, None, 2, Outcome.UNKNOWN)]
    assert "is in the log 2 times" in [each.why for each in problems_of(history, twice)]


def test_unknown_changes_are_bounded_by_the_log() -> None:
    """The unknown creation and deletion had happened when a later offset was told; one that is nowhere never did."""
    history = [
        did(1, Kind.CREATE, None, 1, Outcome.UNKNOWN, at=(1, 2)),
        did(2, Kind.SET, 12, 2, at=(3, 4)),
        did(3, Kind.DELETE, None, None, Outcome.UNKNOWN, at=(5, 6)),
        did(4, Kind.DELETE, None, None, Outcome.UNKNOWN, at=(7, 8)),
        did(5, Kind.READ, 14, None, at=(9, 10)),
        did(6, Kind.CREATE, None, 6, Outcome.UNKNOWN, at=(11, 12)),
        did(7, Kind.CREATE, None, 4, Outcome.UNKNOWN, at=(13, 14)),
    ]
    spans = {span.operation.number: (span.called, span.returned) for span in settled(history, Witness(LOG))}
    assert spans == {1: (1, 4), 2: (3, 4), 3: (5, 10), 5: (9, 10), 7: (13, None)}
    assert check(settled(history, Witness(LOG)), None, topic_step).is_linearizable


def test_where_the_beginning_is_lost_nobody_is_accused() -> None:
    """Known from 11 on: of `k` all behind its first change there, of other topics their acknowledged changes."""
    half = Witness(LOG[1:], known_from=11)
    assert not half.can_tell(TRUE[0])
    assert not half.can_tell(did(9, Kind.SET, 11, 9)), "a batch that ends there is not known any more"
    assert half.can_tell(did(9, Kind.SET, 12, 9))
    assert half.can_tell(TRUE[2])
    assert not half.can_tell(did(9, Kind.READ, 11, 1)), "as of the beginning, before any change that is known"
    assert not half.can_tell(did(9, Kind.READ, 30, 1)._replace(key="other"))
    assert half.can_tell(did(9, Kind.SET, 30, 1)._replace(key="other"))
    assert problems_of(TRUE, half) == []
    assert lost(TRUE, half) == []


def test_where_the_beginning_is_lost_lies_about_the_rest_are_found() -> None:
    half = Witness(LOG[1:], known_from=11)
    lies = [
        did(10, Kind.READ, 12, 1),
        did(11, Kind.CREATE, 14, 9, Outcome.EXISTS),
        did(12, Kind.SET, 21, 9),
        did(13, Kind.READ, 11, 1),
        did(14, Kind.READ, 10, 1),
    ]
    found = [(each.law, each.operation.number) for each in problems_of([TRUE[0], TRUE[1], TRUE[7], *lies], half)]
    assert sorted(found) == [("lost", 12), ("order", 13), ("order", 14), ("read", 10), ("refusal", 11)]
    assert [each.number for each in lost(lies, half)] == [12]


def test_with_the_whole_log_every_answer_is_judged() -> None:
    """An acknowledgement of nothing is no answer from before the beginning."""
    assert [each.law for each in problems_of([did(1, Kind.CREATE, 0, 1)], Witness([]))] == ["lost"]
