"""The checker of linearizability says the same as trying all orders, and knows the classic mistakes when it sees them."""

from collections.abc import Iterator, Sequence
from itertools import combinations, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.chaos.judge.history import Kind, Operation, Outcome, State, drawn
from tests.chaos.judge.linearizability import Span, check, spans_of, topic_step


def at(
    called: int,
    returned: int,
    kind: Kind,
    value: State = None,
    outcome: Outcome = Outcome.DONE,
) -> Operation:
    """An operation from `called` to `returned`; its number is when it began."""
    return Operation(called, 1, "k", kind, value, outcome, called, returned)


def is_linearizable(*history: Operation) -> bool:
    return check(spans_of(history), None, topic_step).is_linearizable


def brute_force(spans: Sequence[Span[Operation]]) -> bool:
    """Tries every order of the operations with every choice of the unknown ones."""
    certain = [span for span in spans if span.returned is not None]
    unknown = [span for span in spans if span.returned is None]
    return any(
        _explains(order)
        for count in range(len(unknown) + 1)
        for chosen in combinations(unknown, count)
        for order in permutations([*certain, *chosen])
    )


def _explains(order: Sequence[Span[Operation]]) -> bool:
    state: State = None
    for index, span in enumerate(order):
        if any(later.returned is not None and later.returned < span.called for later in order[index + 1 :]):
            return False
        after = topic_step(state, span.operation)
        if after is None:
            return False
        (state,) = after
    return True


@st.composite
def histories(draw: st.DrawFn) -> list[Operation]:
    """Up to six operations that overlap in all ways, with outcomes out of the blue."""
    count = draw(st.integers(1, 6))
    times = draw(st.permutations(range(2 * count)))
    found = []
    for number in range(count):
        called, returned = sorted(times[2 * number : 2 * number + 2])
        kind = draw(st.sampled_from(Kind))
        outcome = draw(st.sampled_from(_POSSIBLE[kind]))
        value = draw(st.sampled_from([None, 1, 2])) if kind is Kind.READ else draw(st.sampled_from([1, 2]))
        found.append(at(called, returned, kind, None if kind is Kind.DELETE else value, outcome))
    return found


_POSSIBLE = {
    Kind.CREATE: [Outcome.DONE, Outcome.DONE, Outcome.EXISTS, Outcome.UNKNOWN, Outcome.FAILED],
    Kind.SET: [Outcome.DONE, Outcome.DONE, Outcome.MISSING, Outcome.UNKNOWN],
    Kind.DELETE: [Outcome.DONE, Outcome.MISSING, Outcome.UNKNOWN],
    Kind.READ: [Outcome.DONE, Outcome.DONE, Outcome.DONE, Outcome.UNKNOWN],
}


@pytest.mark.slow
@settings(max_examples=1_500, deadline=None)
@given(histories())
def test_says_the_same_as_trying_all_orders(history: list[Operation]) -> None:
    spans = spans_of(history)
    assert check(spans, None, topic_step).is_linearizable is brute_force(spans), drawn(history)


def truthful(seed_values: Sequence[int]) -> Iterator[Operation]:
    """Sequential and right: created, set to each value and read."""
    yield at(0, 1, Kind.CREATE, 0)
    for index, value in enumerate(seed_values, 1):
        yield at(4 * index, 4 * index + 1, Kind.SET, value)
        yield at(4 * index + 2, 4 * index + 3, Kind.READ, value)


@given(st.lists(st.integers(1, 1_000), max_size=30, unique=True), st.data())
def test_one_wrong_answer_is_found(values: list[int], data: st.DataObject) -> None:
    """In a history that is right, a read that tells anything else than what was written last is found."""
    history = list(truthful(values))
    assert is_linearizable(*history)
    reads = [index for index, each in enumerate(history) if each.kind is Kind.READ]
    if reads:
        wrong = data.draw(st.sampled_from(reads))
        history[wrong] = history[wrong]._replace(value=2_000)
        assert not is_linearizable(*history)


def test_a_stale_read() -> None:
    """The write had ended before the read began."""
    history = [at(0, 1, Kind.CREATE, 1), at(2, 3, Kind.SET, 2), at(4, 5, Kind.READ, 1)]
    verdict = check(spans_of(history), None, topic_step)
    assert not verdict.is_linearizable
    assert verdict.order == (0, 2)
    assert verdict.blocked == history[2]


def test_a_read_beside_a_write_may_see_either() -> None:
    """Until somebody has seen the new value: then nobody sees the old one any more."""
    create, write = at(0, 1, Kind.CREATE, 1), at(2, 9, Kind.SET, 2)
    assert is_linearizable(create, write, at(3, 4, Kind.READ, 1), at(5, 6, Kind.READ, 2))
    assert not is_linearizable(create, write, at(3, 4, Kind.READ, 2), at(5, 6, Kind.READ, 1))


def test_a_lost_write() -> None:
    """It was acknowledged, and nobody ever sees it."""
    assert not is_linearizable(at(0, 1, Kind.CREATE, 1), at(2, 3, Kind.DELETE), at(4, 5, Kind.READ, 1))


def test_an_unknown_write_may_come_late_or_never() -> None:
    """But it comes once, and not before it was asked for."""
    create, lost = at(0, 1, Kind.CREATE, 1), at(2, 3, Kind.SET, 2, Outcome.UNKNOWN)
    assert is_linearizable(create, lost, at(4, 5, Kind.READ, 1))
    assert is_linearizable(create, lost, at(4, 5, Kind.READ, 1), at(6, 7, Kind.READ, 2))
    assert not is_linearizable(create, lost, at(4, 5, Kind.READ, 2), at(6, 7, Kind.READ, 1))
    assert not is_linearizable(create, at(4, 5, Kind.SET, 2, Outcome.UNKNOWN), at(2, 3, Kind.READ, 2))


def test_a_failed_write_that_somebody_sees() -> None:
    """ "Definitely failed" was a lie."""
    create, failed = at(0, 1, Kind.CREATE, 1), at(2, 3, Kind.SET, 2, Outcome.FAILED)
    assert not is_linearizable(create, failed, at(4, 5, Kind.READ, 2))


def test_refusals_tell_what_is_there() -> None:
    """Created twice, the second is refused; and refused for nothing is a violation."""
    create = at(0, 1, Kind.CREATE, 1)
    assert is_linearizable(create, at(2, 3, Kind.CREATE, 2, Outcome.EXISTS))
    assert not is_linearizable(at(2, 3, Kind.CREATE, 2, Outcome.EXISTS))
    assert not is_linearizable(create, at(2, 3, Kind.SET, 2, Outcome.MISSING))
    assert is_linearizable(create, at(2, 4, Kind.DELETE), at(3, 5, Kind.SET, 2, Outcome.MISSING))


def test_a_long_history_with_many_at_once() -> None:
    """Ten clients, each always under way: the search does not get lost."""
    history = [at(0, 1, Kind.CREATE, -1)]
    history += [at(2 + 10 * index, 2 + 10 * index + 95, Kind.SET, index) for index in range(2_000)]
    history.append(at(30_000, 30_001, Kind.READ, 1_999))
    assert is_linearizable(*history)
