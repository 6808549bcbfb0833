"""The judgement of the clients of entities: every checker over what they have noted and what the log has."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from quorum_rpc.v1 import entity_pb2

from metadata_log.format.ids import Offset, Uuid
from metadata_log.format.records import RequestOutcome
from tests.chaos.entities import locks, registers
from tests.chaos.entities.entities import Noted
from tests.chaos.entities.entity_laws import EntityLaws
from tests.chaos.entities.lock_history import LockLog, false_holds
from tests.chaos.entities.register_history import disorders
from tests.chaos.entities.watch_history import false_watches, filter_of_kind, states_at
from tests.chaos.judge.history import TELLING, Operation, Outcome
from tests.chaos.judge.witness import Bounds
from tests.chaos.operators.calls import OperatorCall
from tests.sim.history import History, Step
from tests.sim.laws.entities.watches import WatchLaws

LONG_S: Final = 120.0
"""In a run of so long each kind of event must have happened."""


class Verdict(NamedTuple):
    """The problems, and how much was tried, by kind."""

    linearizable: bool
    problems: list[list[str]]
    """One list for each kind of problem."""
    figures: dict[str, int]


class EntityJudge:
    """Hears the committed log batch by batch, and judges when it has heard all of it."""

    def __init__(self, noted: Noted, history: History) -> None:
        """`history`: of the committed log; whoever calls the checks extends it."""
        self._noted = noted
        self._history = history
        self._laws = EntityLaws(noted.calls)
        self._locks = LockLog()
        self._watches = WatchLaws(history, states_at(noted.episodes, noted.views), filter_of_kind(""))
        self._ends: dict[Uuid, Offset] = {}
        """Where the batch of each request ends."""

    @property
    def checks(self) -> Sequence[Callable[[Step], None]]:
        """Each takes every committed batch, in order, until it raises LawBroken."""
        return self._note, self._laws.take, self._locks.take, self._watches.committed

    def _note(self, step: Step) -> None:
        last = step.records[-1] if step.records else None
        if isinstance(last, RequestOutcome):
            self._ends[last.request_id] = step.end

    def verdict(self, told: Iterable[tuple[Offset, int]], seconds: float) -> Verdict:
        """`told`: the offset of every answer of the run, with the time at which it came. `seconds`: how long the run was.

        Laws that are broken have not seen the rest of the log, and judge no answers.
        """
        noted, bounds, end = self._noted, Bounds(told), self._history.end
        disordered = disorders(noted.calls, self._ends, bounds)
        held = false_holds(noted.holds, self._locks, bounds) if self._locks.seen == end else []
        figures = self._figures()
        return Verdict(
            not disordered and not held,
            [
                disordered,
                held,
                self._still_open() if self._laws.seen == end else [],
                false_watches(noted.episodes, noted.views, self._watches),
                untried(figures, seconds),
            ],
            figures,
        )

    def _still_open(self) -> list[str]:
        """The sessions whose clients were told that they had ended, although they had not (E3)."""
        open_still = [owner for owner in self._noted.lost if owner not in self._laws.ended]
        return [f"{owner} has not ended in the log; its client was told so" for owner in open_still]

    def _figures(self) -> dict[str, int]:
        noted = self._noted
        compared = [each for each in noted.calls if _writes(each, registers.KIND) and each.ask.request.conditions]
        guarded = [each for each in noted.calls if _writes(each, locks.GUARDED) and each.ask.request.conditions]
        batches = [batch for each in noted.episodes for batch in each.batches]
        return {
            "reads": sum(each.is_done and not each.is_change for each in noted.calls),
            COMPARED_DONE: sum(each.is_done for each in compared),
            COMPARED_UNMET: sum(each.outcome is Outcome.UNMET for each in compared),
            "unknown outcome": sum(each.outcome is Outcome.UNKNOWN for each in noted.calls),
            HELD: len(noted.holds),
            GUARDED_DONE: self._locks.writes,
            GUARDED_REFUSED: sum(each.outcome is Outcome.UNMET for each in guarded),
            EXPIRED: self._laws.expired,
            WATCHED: sum(len(batch.events) for batch in batches),
            "states of watches": sum(batch.is_state for batch in batches) + len(noted.views),
        }


COMPARED_DONE: Final = "CAS done"
COMPARED_UNMET: Final = "CAS refused"
HELD: Final = "locks acquired"
GUARDED_DONE: Final = "writes by holders"
GUARDED_REFUSED: Final = "late writes refused"
EXPIRED: Final = "sessions expired"
WATCHED: Final = "events of watches"
_ALWAYS: Final = (COMPARED_DONE, COMPARED_UNMET, HELD, GUARDED_DONE, WATCHED)
_IN_LONG_RUNS: Final = (GUARDED_REFUSED, EXPIRED)


def untried(figures: dict[str, int], seconds: float) -> list[str]:
    """A text for each kind of event that has not happened, and had to."""
    wanted = (*_ALWAYS, *(_IN_LONG_RUNS if seconds >= LONG_S else ()))
    return [f"{kind}: none in {seconds:.0f} s, so nothing was tried" for kind in wanted if not figures[kind]]


def _writes(call: OperatorCall, kind: str) -> bool:
    """True if the call is a transaction on entities of this kind."""
    request = call.ask.request
    if not isinstance(request, entity_pb2.TransactRequest):
        return False
    return any((each.put.entity if each.HasField("put") else each.delete).kind == kind for each in request.operations)


def times_of(history: Iterable[Operation], calls: Iterable[OperatorCall]) -> list[tuple[Offset, int]]:
    """The offset of every answer of a run, with the time at which it came."""
    answers = [(each.outcome, each.offset, each.returned_ns) for each in history]
    answers += [(each.outcome, each.offset, each.returned_ns) for each in calls]
    return [(offset, ns) for outcome, offset, ns in answers if outcome in TELLING and offset is not None]
