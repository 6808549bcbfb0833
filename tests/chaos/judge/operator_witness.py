"""The committed log against what operators and clients of entities were told, and against the laws of the simulator.

The log is replayed batch by batch from its beginning. The laws:

  * each claim of an answer is true of the image at the answer's offset (`tests.chaos.operators.claims`);
  * an acknowledged change is named by its request id in the record before the answered offset, and never inside an aborted
    transaction;
  * a refused change is not in the log, and no change is there twice;
  * no answer is as of more than is committed;
  * every batch keeps the laws of `log_laws`: for example, a broker fenced by an operator leads nothing in any image, and a topic
    is there with all of its partitions or not at all.

Example.
  1. Operator 1 creates topic large-1 with 2,500 partitions in a transaction, and is told "created" at offset 4,000.
  2. Controller 1 dies after two slices, and controller 2 aborts the transaction.
  3. The record 3,999 is not the outcome of this request: the acknowledged change is lost.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from metadata_log.format.batch import Batch
from metadata_log.format.ids import Offset, Uuid
from metadata_log.format.records import RequestOutcome
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.replay import ReplayStopped
from tests.chaos.judge.history import TELLING, Operation, Outcome
from tests.chaos.judge.log_laws import LogLaws
from tests.chaos.judge.witness import Told, out_of_order, told_of
from tests.chaos.operators.calls import OperatorCall
from tests.sim.history import History, Step
from tests.sim.laws.broken import LawBroken


class FalseAnswer(NamedTuple):
    """An answer, and why it cannot be true. `law` is short, and the same for all of its kind."""

    law: str
    why: str
    call: OperatorCall

    def __str__(self) -> str:
        return f"{self.call}: {self.why}"


class Heard(NamedTuple):
    """The false answers to operators, and the laws that the log breaks."""

    answers: list[FalseAnswer]
    broken: list[str]
    """Laws that the log itself breaks."""


def hear(
    calls: Sequence[OperatorCall],
    batches: Sequence[Batch],
    history: History,
    others: Sequence[Callable[[Step], None]] = (),
) -> Heard:
    """Replays the committed log, which begins at offset 0, into an empty history, and checks each answer at its offset.

    `others`: more checks of each batch, in order. Each raises LawBroken, and is then called no more.
    """
    laws = LogLaws(history, calls)
    listener = _Listener(calls)
    broken: list[str] = []
    checks = [laws.committed, *others]
    for batch in batches:
        try:
            step = history.take(batch)
        except ReplayStopped as e:
            broken.append(f"the committed log cannot be replayed: {e}")
            break
        listener.take(step)
        for check in [*checks]:
            try:
                check(step)
            except LawBroken as e:
                broken.append(f"the committed log breaks a law at {batch.base_offset}: {e}")
                checks.remove(check)  # the laws have seen half of a batch, and would say anything of the next one
    if not broken:
        broken += _at_the_end(laws, history)
    return Heard([*listener.found, *listener.rest(history)], broken)


def _at_the_end(laws: LogLaws, history: History) -> list[str]:
    try:
        laws.at_the_end(history)
    except LawBroken as e:
        return [f"the last image breaks a law: {e}"]
    return []


def disordered(calls: Sequence[OperatorCall], history: Sequence[Operation]) -> list[FalseAnswer]:
    """The answers to operators that are older than what had ended before, whoever was told that. A local read may be old."""
    told = [
        Told(each.called_ns, each.returned_ns, _offset(each), each.is_write, each)
        for each in calls
        if each.outcome in TELLING and not each.is_local
    ]
    found = out_of_order([*told, *told_of(history)])
    return [FalseAnswer("order", why, each.what) for why, each in found if isinstance(each.what, OperatorCall)]


class _Listener:
    """The answers in the order of their offsets, next to the log."""

    def __init__(self, calls: Sequence[OperatorCall]) -> None:
        told = sorted((each for each in calls if each.outcome in TELLING), key=_offset)
        self._calls = calls
        self._changes = _Queue([each for each in told if each.is_change and each.is_done])
        self._reads = _Queue([each for each in told if not each.is_change or not each.is_done])
        self._in_log = Counter[Uuid]()
        self.found: list[FalseAnswer] = []

    def take(self, step: Step) -> None:
        """The answers as of the image before this batch, and the changes that end in it."""
        for read in self._reads.below(step.batch.end_offset):
            self.found += _claims(read, step.before)
        last = step.records[-1] if step.records else None
        named = last.request_id if isinstance(last, RequestOutcome) else b""
        if named:
            self._in_log[named] += 1
        for change in self._changes.below(step.batch.end_offset + 1):
            is_written = (change.offset, change.request_id) == (step.end, named)
            if is_written or (change.may_be_unwritten and not self._in_log[change.request_id]):
                is_below = _offset(change) < step.end
                self.found += _claims(change, step.before if is_below else step.after)
            else:
                self.found.append(FalseAnswer("lost", "was acknowledged and is not in the log there", change))

    def rest(self, history: History) -> Iterator[FalseAnswer]:
        """The answers as of the end, those beyond it, and the changes that are in the log although they must not."""
        for read in self._reads.below(history.end + 1):
            yield from _claims(read, history.image)
        for each in (*self._reads.below(None), *self._changes.below(None)):
            yield FalseAnswer("beyond", f"is as of more than was committed, which ends at {history.end}", each)
        for each in self._calls:
            times = self._in_log[each.request_id]
            if each.outcome in (Outcome.FAILED, Outcome.UNMET) and times:
                yield FalseAnswer("undone", f"was refused ({each.why}), and is in the log", each)
            if times > 1:
                yield FalseAnswer("once", f"is in the log {times} times", each)


class _Queue:
    """Calls in the order of their offsets, taken from the front."""

    def __init__(self, calls: Sequence[OperatorCall]) -> None:
        self._calls = calls
        self._next = 0

    def below(self, offset: Offset | None) -> Iterator[OperatorCall]:
        """Takes the calls with an offset below this one; None: all."""
        while self._next < len(self._calls) and (offset is None or _offset(self._calls[self._next]) < offset):
            self._next += 1
            yield self._calls[self._next - 1]


def _offset(call: OperatorCall) -> Offset:
    assert call.offset is not None, f"an answer without an offset: {call}"
    return call.offset


def _claims(call: OperatorCall, image: MetadataImage) -> Iterator[FalseAnswer]:
    for claim in call.claims:
        found = claim.contradiction(image)
        if found is not None:
            yield FalseAnswer("claim", f"{claim}, but {found}", call)
