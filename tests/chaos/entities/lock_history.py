"""Locks in the committed log, and what their holders have believed.

A lock is a queue of places in the log, and the place that was created first holds. The laws:

  * each write of a guarded entity is made under the token of the place that is the first one then (E5 OneHolder);
  * a client that was told to hold has the first place as of the answer that told it;
  * tokens grow from holder to holder, in the order of the log and in time, and no two holders have the same one (E5 TokensGrow);
  * as of offsets of the log, no two clients hold at once: each holder's place is gone before the next one is told to hold;
  * acquisitions and releases have an order in time in which a lock is free whenever it is taken (linearizability);
  * no client believes that it surely holds when somebody was told of more than the end of its place (E4).
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from metadata_log.format.ids import Offset
from metadata_log.format.records import Entity, RemoveEntity
from tests.chaos.entities.locks import GUARDED, KIND, LOCKS, Hold, lock_of, token_in
from tests.chaos.judge.linearizability import Possible, Span, check
from tests.chaos.judge.witness import Bounds
from tests.sim.history import Step
from tests.sim.laws.broken import hold

FREE: Final = -1


class Place(NamedTuple):
    """A place in the queue of a lock."""

    lock: str
    token: Offset


class LockLog:
    """The queues and the guarded writes of the committed log. Raises LawBroken."""

    def __init__(self) -> None:
        self.first_from: dict[Place, Offset] = {}
        """From where on a place is the first one. A place that is not there never was."""
        self.gone_at: dict[Place, Offset] = {}
        """The end of the batch that has removed a place."""
        self.seen: Offset = 0
        """The laws hold below."""
        self.writes = 0
        """How many writes of guarded entities are in the log."""
        self._queue: dict[str, Place] = {}
        """The places that are there, by name."""

    def take(self, step: Step) -> None:
        """Checks a committed batch."""
        for record in step.records:
            if isinstance(record, Entity) and record.kind == GUARDED:
                self._guarded(record, step)
        has_changed = False
        for offset, record in enumerate(step.records, step.batch.base_offset):
            if isinstance(record, Entity) and record.kind == KIND and (lock := lock_of(record.name)) is not None:
                self._queue.setdefault(record.name, Place(lock, offset))
                has_changed = True
            elif isinstance(record, RemoveEntity) and record.kind == KIND and record.name in self._queue:
                self.gone_at[self._queue.pop(record.name)] = step.end
                has_changed = True
        if has_changed:
            for lock in LOCKS:
                first = self._first(lock)
                if first is not None:
                    self.first_from.setdefault(first, step.end)
        self.seen = step.batch.end_offset

    def _first(self, lock: str) -> Place | None:
        return min((each for each in self._queue.values() if each.lock == lock), default=None)

    def _guarded(self, record: Entity, step: Step) -> None:
        place, first = Place(*token_in(record.value)), self._first(record.name)
        text = f"{record.value.decode()!r} is written up to {step.end}; the first place of {record.name} is {first}"
        hold(place == first, "E5 OneHolder", text)
        self.writes += 1


class LockOperation(NamedTuple):
    """A lock is taken under a token, or given up."""

    number: int
    called_ns: int
    token: Offset
    takes: bool


def lock_step(state: tuple[Offset, bool], operation: LockOperation) -> Possible[tuple[Offset, bool]]:
    """The state: the newest token, and whether it is held."""
    newest, is_held = state
    if operation.takes:
        return None if is_held or operation.token <= newest else ((operation.token, True),)
    return ((newest, False),) if is_held and operation.token == newest else None


def false_holds(holds: Sequence[Hold], log: LockLog, bounds: Bounds) -> list[str]:
    """A text for each holder that should not have been one."""
    found: list[str] = []
    for each in holds:
        found += _untrue(each, log, bounds)
    for lock in LOCKS:
        of_lock = [each for each in holds if each.lock == lock]
        found += _overlaps(of_lock, log)
        blocked = check(_spans(of_lock, log, bounds), (FREE, False), lock_step).blocked
        if blocked is not None:
            found.append(f"the lock {lock} is not linearizable: nothing explains {blocked}")
    return found


def _untrue(each: Hold, log: LockLog, bounds: Bounds) -> Iterator[str]:
    """What the log says against one holder alone."""
    place = Place(each.lock, each.token)
    first, gone = log.first_from.get(place), log.gone_at.get(place)
    if first is None or first > each.as_of:
        yield f"{each}; the log says that this place was the first one from {first} on"
    if gone is None:
        return
    if gone <= each.as_of:
        yield f"{each}; the log says that this place was gone at {gone}"
    end_ns = bounds.of(gone)
    if end_ns is not None and each.trusted_ns > end_ns:
        late_ms = (each.trusted_ns - end_ns) / 1_000_000
        yield f"{each}; its client trusted that {late_ms:.0f} ms after somebody was told of {gone}, where the place ended"


def _overlaps(of_lock: Sequence[Hold], log: LockLog) -> Iterator[str]:
    for before, after in pairwise(sorted(of_lock, key=lambda each: each.as_of)):
        if after.token <= before.token:
            yield f"{after}, and before {before}: tokens must grow"
        gone = log.gone_at.get(Place(before.lock, before.token))
        if gone is None or gone > after.as_of:
            yield f"{after}, and before {before}, whose place was gone at {gone}: both held"
    for before, after in pairwise(sorted(of_lock, key=lambda each: each.token)):
        if after.returned_ns < before.called_ns:
            yield f"{after} and had been told so before {before} asked: tokens must grow"


def _spans(of_lock: Sequence[Hold], log: LockLog, bounds: Bounds) -> list[Span[LockOperation]]:
    """Each acquisition as its client knows it, and each end where the log has it, whoever made it."""
    spans = []
    for each in of_lock:
        taken = LockOperation(2 * each.number, each.called_ns, each.token, takes=True)
        spans.append(Span(taken, each.called_ns, each.returned_ns))
        gone = log.gone_at.get(Place(each.lock, each.token))
        if gone is not None:
            spans.append(bounds.span(taken._replace(number=taken.number + 1, takes=False), gone))
    return spans
