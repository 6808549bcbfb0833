"""The log as a witness against what clients were told.

A history can be linearizable and still wrong: an acknowledged write that nobody looked at again may be gone. The final log
knows better, because each change has an offset, and each answer says what offset it is as of. The laws:

  * real time never contradicts offsets: what ended before something else began has the lower offset, or the same;
  * an acknowledged change is in the log, in the batch that ends where the answer said;
  * a read saw what the log, replayed up to its offset, says; a refusal is true of that state;
  * what failed definitely is not there, and what nobody knows about is there at most once;
  * no answer is as of more than is committed.

The log is what a majority of the controllers has committed (`tests.chaos.judge.committed`): never the tail of one of them.

The log also tells what became of the unknown operations, and with that `settled` bounds them for the linearizability check:
what is in a batch that ends at 7 had happened before anything ended that is as of 7 or more. (So does etcd's robustness
test.) The history itself stays the clients' own.
"""

import sys
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, Protocol, TypeVar

from tests.chaos.judge.final_log import Change
from tests.chaos.judge.history import TELLING, Kind, Operation, Outcome, State
from tests.chaos.judge.linearizability import Span


class Called(Protocol):
    """An operation with the time of its call."""

    @property
    def number(self) -> int: ...
    @property
    def called_ns(self) -> int: ...


Acted = TypeVar("Acted", bound=Called)


class Contradiction(NamedTuple):
    """An answer, and why it cannot be true. `law` is short, and the same for all of its kind."""

    law: str
    why: str
    operation: Operation


class Witness:
    """The changes of the final log, by key and in their order.

    `known_from`: what ends there or before nobody has any more. `end`: where the log ends; None, if that is not known.
    """

    def __init__(self, changes: Iterable[Change], known_from: int = 0, end: int | None = None) -> None:
        self._known_from = known_from
        self.end = sys.maxsize if end is None else end
        self._by_key: dict[str, list[Change]] = defaultdict(list)
        self._all: set[tuple[str, State, int | None]] = set()
        for change in changes:
            self._by_key[change.key].append(change)
            self._all.add(change)
        self._ends = {key: [each.end_offset for each in found] for key, found in self._by_key.items()}

    def changes(self, key: str) -> list[Change]:
        return self._by_key.get(key, [])

    def can_tell(self, operation: Operation) -> bool:
        """Whether this answer is about what is known: a change behind the beginning, or a topic that was changed there."""
        if self._known_from == 0:
            return True
        offset = _offset(operation)
        has_changed = bisect_right(self._ends.get(operation.key, []), offset) > 0
        return offset > self._known_from and (_is_done(operation) or has_changed)

    def state(self, key: str, offset: int) -> State:
        """The topic after all batches that end at or below `offset`."""
        place = bisect_right(self._ends.get(key, []), offset)
        return self._by_key[key][place - 1].state if place else None

    def wrote(self, operation: Operation) -> bool:
        """True if the operation's change ends exactly at the answered offset."""
        expected = None if operation.kind is Kind.DELETE else operation.value
        return (operation.key, expected, operation.offset) in self._all


def problems_of(history: Sequence[Operation], witness: Witness) -> list[Contradiction]:
    """Every answer that the log contradicts, as far as it is known."""
    return [*_order(history), *_answers(history, witness), *_counts(history, witness)]


def lost(history: Sequence[Operation], witness: Witness) -> list[Operation]:
    """The acknowledged changes that are not where they were acknowledged."""
    return [each for each in history if _is_done(each) and witness.can_tell(each) and not witness.wrote(each)]


class Told(NamedTuple):
    """An answer with its offset and the time of its call; `what` was asked, and is a change that was made if `is_write`."""

    called_ns: int
    returned_ns: int
    offset: int
    is_write: bool
    what: Any


def told_of(history: Iterable[Operation]) -> list[Told]:
    """The answers that carry an offset."""
    return [
        Told(each.called_ns, each.returned_ns, _offset(each), _is_done(each), each)
        for each in history
        if each.outcome in TELLING
    ]


def out_of_order(told: Sequence[Told]) -> Iterator[tuple[str, Told]]:
    """Yields each answer whose offset is too low for what had ended before its call, with the reason."""
    ended = sorted(told, key=lambda each: each.returned_ns)
    newest: Told | None = None
    place = 0
    for each in sorted(told, key=lambda each: each.called_ns):
        while place < len(ended) and ended[place].returned_ns < each.called_ns:
            if newest is None or ended[place].offset > newest.offset:
                newest = ended[place]
            place += 1
        if newest is not None and each.offset < newest.offset:
            yield f"began after [{newest.what}] had ended, and has a lower offset", each
        if newest is not None and each.is_write and each.offset == newest.offset:
            yield f"began after [{newest.what}] had ended, and wrote at its offset", each


def _order(history: Sequence[Operation]) -> Iterator[Contradiction]:
    for why, each in out_of_order(told_of(history)):
        yield Contradiction("order", why, each.what)


def _answers(history: Sequence[Operation], witness: Witness) -> Iterator[Contradiction]:
    for each in lost(history, witness):
        yield Contradiction("lost", "was acknowledged and is not in the log there", each)
    for each in history:
        if each.outcome not in TELLING or _is_done(each) or not witness.can_tell(each):
            continue
        if _offset(each) > witness.end:
            yield Contradiction("beyond", f"is as of more than was committed, which ends at {witness.end}", each)
        state = witness.state(each.key, _offset(each))
        if each.kind is Kind.READ and state != each.value:
            yield Contradiction("read", f"the log up to there says {state}", each)
        if each.is_change and (state is not None) != (each.outcome is Outcome.EXISTS):
            yield Contradiction("refusal", f"was refused, and the log up to there says {state}", each)


def _counts(history: Sequence[Operation], witness: Witness) -> Iterator[Contradiction]:
    by_value = {each.value: each for each in history if each.kind in (Kind.CREATE, Kind.SET)}
    for key in {each.key for each in history}:
        written = Counter(each.state for each in witness.changes(key) if each.state is not None)
        for value, times in written.items():
            assert value in by_value, f"nobody has ever asked to set {key} to {value}"
            operation = by_value[value]
            if operation.outcome not in (Outcome.DONE, Outcome.UNKNOWN):
                yield Contradiction("undone", "did not happen, it was said, and is in the log", operation)
            if times > 1:
                yield Contradiction("once", f"is in the log {times} times", operation)
            if operation.key != key:
                yield Contradiction("key", f"is in the log under {key}", operation)


class Bounds:
    """The times at which what the log has had surely happened: the end of the first answer as of there, or of more."""

    def __init__(self, told: Iterable[tuple[int, int]]) -> None:
        """`told`: the offset of each answer, and when the answer came."""
        answers = sorted(told)
        self._offsets = [offset for offset, _ in answers]
        earliest = accumulate((returned_ns for _, returned_ns in reversed(answers)), min)
        self._earliest_ends = [*earliest][::-1]

    def of(self, end_offset: int) -> int | None:
        """The time at which the batch that ends there had happened; None: nobody was told."""
        place = bisect_left(self._offsets, end_offset)
        return self._earliest_ends[place] if place < len(self._offsets) else None

    def span(self, operation: Acted, end_offset: int) -> Span[Acted]:
        """The span of an operation of unknown outcome that the log has."""
        bound_ns = self.of(end_offset)
        return Span(operation, operation.called_ns, None if bound_ns is None else max(operation.called_ns, bound_ns))


def settled(history: Sequence[Operation], witness: Witness) -> list[Span[Operation]]:
    """One key's history for `linearizability.check`, the unknown changes bounded by where the log has them."""
    told = sorted((each for each in history if each.outcome in TELLING), key=_offset)
    bounds = Bounds((_offset(each), each.returned_ns) for each in told)

    spans = [Span(each, each.called_ns, each.returned_ns) for each in told]
    unknown = [each for each in history if each.outcome is Outcome.UNKNOWN and each.is_change]
    changes = witness.changes(history[0].key) if history else []
    where = {each.state: each.end_offset for each in changes if each.state is not None}
    spans += [bounds.span(each, where[each.value]) for each in unknown if each.value in where]
    # Deletions have no name in the log. Those that nobody was told of are the unknown ones' doing: matched in the order of
    # both, each is at most as late as the one that it really was.
    acknowledged = {_offset(each) for each in told if each.kind is Kind.DELETE and each.outcome is Outcome.DONE}
    gone = [each.end_offset for each in changes if each.state is None and each.end_offset not in acknowledged]
    deletions = sorted((each for each in unknown if each.kind is Kind.DELETE), key=lambda each: each.called_ns)
    return spans + [bounds.span(each, end_offset) for each, end_offset in zip(deletions, gone, strict=False)]


def _is_done(operation: Operation) -> bool:
    """An acknowledged change. (The one other answer that is DONE is a read's.)"""
    return operation.is_change and operation.outcome is Outcome.DONE


def _offset(operation: Operation) -> int:
    assert operation.offset is not None, f"an answer without an offset: {operation}"
    return operation.offset
