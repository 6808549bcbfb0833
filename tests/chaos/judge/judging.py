"""Every checker over what a run has left: the clients' history, and the controllers' directories."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from metadata_log.format.errors import LogFormatError
from tests.chaos.clients import KEYS
from tests.chaos.cluster import ChaosCluster, first_voters
from tests.chaos.entities.entities import Noted
from tests.chaos.entities.judging import EntityJudge, times_of
from tests.chaos.judge import history as histories
from tests.chaos.judge import witness as witnesses
from tests.chaos.judge.committed import NOTHING_KNOWN, Committed, committed
from tests.chaos.judge.final_log import read_final_log
from tests.chaos.judge.history import TELLING, Operation, Outcome
from tests.chaos.judge.linearizability import check, topic_step
from tests.chaos.judge.operator_witness import disordered, hear
from tests.chaos.judge.witness import Witness
from tests.chaos.operators.calls import OperatorCall
from tests.sim.history import History

SHOWN_BEFORE: Final = 14
SHOWN_AFTER: Final = 7
"""Operations drawn around a violation."""
RECORDED: Final = "recorded"
TEXTS_MAX: Final = 10
"""Of one kind. A thousand lost writes are one bug, and must not hide the stale read that is another."""
DRAWN_MAX: Final = 3
"""Of one kind."""


class Judgement(NamedTuple):
    """`problems` are whole texts; none means that every law held."""

    linearizable: bool | None
    """None: it was not judged, because the log is not known from its beginning."""
    lost: int
    equal: bool
    log_end: int
    problems: list[str]
    tails: tuple[str, ...] = ()
    """The records of single logs that are not committed, for people."""
    operated: Mapping[str, int] = MappingProxyType({})
    """How many calls of operators were answered, by kind."""
    entities: Mapping[str, int] = MappingProxyType({})
    """The figures of the clients of entities."""

    def lines(self) -> list[str]:
        """For the end of a table."""
        rows = [
            ("end of the log", f"{self.log_end:,}"),
            ("linearizable", {True: "yes", False: "NO", None: "not judged"}[self.linearizable]),
            ("acknowledged writes lost", f"{self.lost}"),
            ("logs and digests equal", "yes" if self.equal else "NO"),
            ("operators' calls answered", f"{sum(self.operated.values()):,}"),
            *((f"  {kind}", f"{count:,}") for kind, count in sorted(self.operated.items())),
            *([("clients of entities", "")] if self.entities else []),
            *((f"  {kind}", f"{count:,}") for kind, count in self.entities.items()),
            *(("not committed", tail) for tail in self.tails),
            ("problems", f"{len(self.problems)}"),
        ]
        return [f"{name:<26}{value}" for name, value in rows]


class Hearing(NamedTuple):
    """The verdict of the log about the clients' answers."""

    linearizable: bool | None
    lost: int
    problems: list[str]


def at_most(texts: Sequence[str]) -> list[str]:
    """The first of several texts of one kind."""
    more = len(texts) - TEXTS_MAX
    return [*texts[:TEXTS_MAX], f"and {more} more like these"] if more > 0 else list(texts)


def judge(
    cluster: ChaosCluster,
    directory: Path,
    history: list[Operation],
    problems: list[str],
    *,
    equal_at: tuple[int, bytes] | None = None,
    broken: str | None = None,
    calls: Sequence[OperatorCall] = (),
    entities: Noted | None = None,
    seconds: float = 0.0,
) -> Judgement:
    """Reads the directories, which nobody may have open. `problems` are those that are known already.

    `equal_at`: where all controllers ended when they were last seen equal, with which chain; None if the run ended before that.
    `broken`: the controller that the nemesis had damaged, and that was not whole again: its directory accuses nobody. `calls`:
    those of the operators. `entities`: the notes of the clients of entities. `seconds`: how long the run was.
    """
    found = [*map(str, cluster.findings), *problems]
    nodes = cluster.layout.controllers
    logs = []
    for node in nodes:
        try:
            logs.append(read_final_log(node, directory / "scratch"))
        except LogFormatError as e:
            if node.name != broken:
                found.append(f"{node.name} is not what a controller can start from: {e}")
    joined = committed(logs, directory / RECORDED, unread=len(nodes) - len(logs), equal_at=equal_at)
    heard = against(history, joined)
    operated = _operated(cluster, calls, entities, history, joined, seconds)
    is_linearizable = None if heard.linearizable is None else heard.linearizable and operated.linearizable
    return Judgement(
        is_linearizable,
        heard.lost + operated.lost,
        equal_at is not None and len(logs) == len(nodes) and not joined.problems,
        joined.end or 0,
        [*found, *joined.problems, *heard.problems, *operated.problems],
        joined.tails,
        Counter(each.ask.kind for each in calls if each.is_done),
        operated.figures,
    )


def against(history: list[Operation], joined: Committed) -> Hearing:
    """The answers, held against the log as far as it is known, and topic by topic against each other."""
    witness = Witness(joined.changes, joined.known_from, joined.end)
    found = _untried(history) + _unknown(history, witness, joined.known_from)
    by_law: dict[str, list[str]] = {}
    for law, why, operation in witnesses.problems_of(history, witness):
        same = by_law.setdefault(law, [])
        picture = f"\n{_around(history, operation)}" if len(same) < DRAWN_MAX else ""
        same.append(f"{operation} {why}{picture}")
    for same in by_law.values():
        found += at_most(same)
    linearizable = None
    if joined.known_from == 0:
        blocked = _blocked(history, witness)
        linearizable = not blocked
        found += blocked
    return Hearing(linearizable, len(witnesses.lost(history, witness)), found)


class Operated(NamedTuple):
    """The verdict of the log about the answers to operators and clients of entities, and about the laws that the log itself must
    keep."""

    lost: int
    problems: list[str]
    linearizable: bool = True
    """Of the registers and locks."""
    figures: Mapping[str, int] = MappingProxyType({})


def _operated(
    cluster: ChaosCluster,
    calls: Sequence[OperatorCall],
    entities: Noted | None,
    history: list[Operation],
    joined: Committed,
    seconds: float,
) -> Operated:
    """The log is judged only from its beginning on: the image before a later offset is not known."""
    if joined.known_from != 0 or not calls:
        return Operated(0, [])
    noted = Noted() if entities is None else entities
    log, everybody = History(first_voters(cluster.layout)), [*calls, *noted.calls]
    judge_of_entities = EntityJudge(noted, log)
    heard = hear(everybody, joined.batches, log, judge_of_entities.checks)
    by_law: dict[str, list[str]] = {}
    for each in (*heard.answers, *disordered(everybody, history)):
        by_law.setdefault(each.law, []).append(str(each))
    texts = [text for same in by_law.values() for text in at_most(same)]
    if not any(each.is_done and each.is_change for each in calls):
        texts.append("no change of any operator was acknowledged: nothing was tried")
    operated = Operated(len(by_law.get("lost", ())), [*heard.broken, *texts])
    if entities is None or log.end != joined.end:
        return operated
    verdict = judge_of_entities.verdict(times_of(history, everybody), seconds)
    more = [text for same in verdict.problems for text in at_most(same)]
    return operated._replace(
        problems=[*operated.problems, *more], linearizable=verdict.linearizable, figures=verdict.figures
    )


def _untried(history: list[Operation]) -> list[str]:
    """Client 0 is the harness, which asks whether the cluster is well."""
    if any(each.client >= 1 and each.is_change and each.outcome is Outcome.DONE for each in history):
        return []
    return ["no change of any client at work was acknowledged: nothing was tried"]


def _unknown(history: list[Operation], witness: Witness, known_from: int) -> list[str]:
    """One line, however much it is: that the log's beginning is lost says nothing against an answer, and nothing for it."""
    dark = [each.offset or 0 for each in history if each.outcome in TELLING and not witness.can_tell(each)]
    if not dark:
        return []
    known = f"the log is known from {known_from:,} on" if known_from < NOTHING_KNOWN.known_from else "no log is known"
    return [f"{len(dark):,} answers up to {max(dark):,} cannot be judged: {known}"]


def _blocked(history: list[Operation], witness: Witness) -> list[str]:
    found = []
    for key in KEYS:
        part = [each for each in history if each.key == key]
        verdict = check(witnesses.settled(part, witness), None, topic_step)
        if verdict.blocked is not None:
            text = f"{key} is not linearizable: nothing explains {verdict.blocked}"
            found.append(f"{text}\n{_around(part, verdict.blocked)}")
    return found


def _around(history: list[Operation], operation: Operation) -> str:
    """The operations of the same key that were under way about then, drawn."""
    same = sorted((each for each in history if each.key == operation.key), key=lambda each: each.called_ns)
    place = next(index for index, each in enumerate(same) if each.number == operation.number)
    near = same[max(0, place - SHOWN_BEFORE) : place + SHOWN_AFTER]
    return histories.drawn(near, frozenset({operation.number}))
