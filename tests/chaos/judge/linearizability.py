"""Whether a history of one object is linearizable: is there *one* order of its operations that explains every answer and
never puts an operation before one that had ended when it began?

The search is Wing and Gong's ("Testing and Verifying Concurrent Objects", 1993) with Lowe's memory ("Testing for
linearizability", 2017), the same that Porcupine runs: take any operation that nobody has to precede, apply it, go on; come
to the end of an operation that could not be placed yet, go back. A pair (set of placed operations, state) that was reached
before is not tried again, by whatever order it was reached. Objects are checked one by one: a history is linearizable if
each object's part of it is (Herlihy and Wing, locality).

An operation with unknown outcome may take effect at any time after its call, or never. Without a bound it stays in
everybody's way until the end; `tests.chaos.judge.witness` gives it one where the log tells.
"""

from collections.abc import Callable, Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from tests.chaos.judge.history import Kind, Operation, Outcome, State


class Numbered(Protocol):
    """An operation of any object."""

    @property
    def number(self) -> int: ...


S = TypeVar("S")
Op = TypeVar("Op", bound=Numbered)
Possible: TypeAlias = tuple[S] | None
"""The state after an operation, in a tuple; None if the operation cannot have had its answer in this state."""


class Span(NamedTuple, Generic[Op]):
    """When an operation took effect: after `called`, before `returned`; None: at any time after, or never."""

    operation: Op
    called: int
    returned: int | None


class Verdict(NamedTuple, Generic[Op]):
    """`order`: the numbers of the operations as placed; if the history is not linearizable, the longest that was found,
    and `blocked`, the operation that none of the attempts of that length could place before its end.
    """

    is_linearizable: bool
    order: tuple[int, ...]
    blocked: Op | None = None


def topic_step(state: State, operation: Operation) -> Possible[State]:
    """One topic, as `tests.chaos.judge.history` describes it. An unknown change that would change nothing is as good as none."""
    exists = state is not None
    match operation.outcome:
        case Outcome.EXISTS:
            return (state,) if exists else None
        case Outcome.MISSING:
            return None if exists else (state,)
        case Outcome.DONE | Outcome.UNKNOWN:
            pass
        case Outcome.FAILED | Outcome.UNMET:
            raise AssertionError("what was not done has no place in the order")
    match operation.kind:
        case Kind.READ:
            return (state,) if operation.value == state else None
        case Kind.CREATE:
            return None if exists else (operation.value,)
        case Kind.SET:
            return (operation.value,) if exists else None
        case Kind.DELETE:
            return (None,) if exists else None


def spans_of(history: Sequence[Operation]) -> list[Span[Operation]]:
    """The history as its clients know it. Changes that were not done, and reads that saw nothing, are left out."""
    return [
        Span(each, each.called_ns, None if each.outcome is Outcome.UNKNOWN else each.returned_ns)
        for each in history
        if each.outcome is not Outcome.FAILED and (each.is_change or each.outcome is not Outcome.UNKNOWN)
    ]


def check(spans: Sequence[Span[Op]], initial: S, step: Callable[[S, Op], Possible[S]]) -> Verdict[Op]:
    """See the file's head."""
    return _Search(spans, initial, step).run()


_END: Final = 0
"""The place before the first event and after the last."""


class _Search(Generic[S, Op]):
    """Events in the order of time, in a list that lets placed operations be taken out and put back in the same places."""

    def __init__(self, spans: Sequence[Span[Op]], initial: S, step: Callable[[S, Op], Possible[S]]) -> None:
        self._spans = spans
        self._state = initial
        self._step = step
        # At one and the same time calls come before returns: those operations overlap.
        events = sorted(
            [(span.called, 0, index) for index, span in enumerate(spans)]
            + [(span.returned, 1, index) for index, span in enumerate(spans) if span.returned is not None]
        )
        self._next = [(place + 1) % (len(events) + 1) for place in range(len(events) + 1)]
        self._previous = [(place - 1) % (len(events) + 1) for place in range(len(events) + 1)]
        self._event = [(-1, False)] + [(index, is_return == 1) for _, is_return, index in events]
        self._call_place = [0] * len(spans)
        self._return_place: list[int | None] = [None] * len(spans)
        for place, (index, is_return) in enumerate(self._event[1:], 1):
            if is_return:
                self._return_place[index] = place
            else:
                self._call_place[index] = place
        self._left = sum(1 for span in spans if span.returned is not None)

    def run(self) -> Verdict[Op]:
        placed = 0
        stack: list[tuple[int, S]] = []
        seen: set[tuple[int, S]] = set()
        longest: tuple[int, ...] = ()
        blocked: Op | None = None
        place = self._next[_END]
        while self._left:
            index, is_return = self._event[place]
            if place != _END and not is_return:
                after = self._step(self._state, self._spans[index].operation)
                now = placed | 1 << index
                if after is None or (now, after[0]) in seen:
                    place = self._next[place]
                    continue
                seen.add((now, after[0]))
                stack.append((index, self._state))
                placed, self._state = now, after[0]
                self._take_out(index)
                place = self._next[_END]
                continue
            if len(stack) >= len(longest):
                longest = tuple(self._spans[each].operation.number for each, _ in stack)
                blocked = self._spans[index].operation
            if not stack:
                return Verdict(False, longest, blocked)
            index, self._state = stack.pop()
            placed &= ~(1 << index)
            self._put_back(index)
            place = self._next[self._call_place[index]]
        return Verdict(True, tuple(self._spans[each].operation.number for each, _ in stack))

    def _take_out(self, index: int) -> None:
        self._unlink(self._call_place[index])
        place = self._return_place[index]
        if place is not None:
            self._unlink(place)
            self._left -= 1

    def _put_back(self, index: int) -> None:
        place = self._return_place[index]
        if place is not None:
            self._link(place)
            self._left += 1
        self._link(self._call_place[index])

    def _unlink(self, place: int) -> None:
        before, after = self._previous[place], self._next[place]
        self._next[before], self._previous[after] = after, before

    def _link(self, place: int) -> None:
        before, after = self._previous[place], self._next[place]
        self._next[before] = self._previous[after] = place
