"""Every checker over what a run has left: the clients' history, and the controllers' directories."""

from pathlib import Path
from typing import Final, NamedTuple

from metadata_log.errors import LogFormatError
from tests.chaos import history as histories
from tests.chaos import witness as witnesses
from tests.chaos.clients import KEYS
from tests.chaos.cluster import ChaosCluster
from tests.chaos.final_log import Change, merged, read_final_log
from tests.chaos.history import Operation
from tests.chaos.linearizability import check, topic_step
from tests.chaos.witness import Witness

SHOWN_BEFORE: Final = 14
SHOWN_AFTER: Final = 7
"""Operations drawn around a violation."""


RECORDED: Final = "recorded"
DRAWN_MAX: Final = 10


class Judgement(NamedTuple):
    """`problems` are whole texts; none means that every law held."""

    linearizable: bool
    lost: int
    equal: bool
    log_end: int
    problems: list[str]

    def lines(self) -> list[str]:
        """For the end of a table."""
        rows = [
            ("end of the log", f"{self.log_end:,}"),
            ("linearizable", "yes" if self.linearizable else "NO"),
            ("acknowledged writes lost", f"{self.lost}"),
            ("logs and digests equal", "yes" if self.equal else "NO"),
            ("problems", f"{len(self.problems)}"),
        ]
        return [f"{name:<26}{value}" for name, value in rows]


def judge(cluster: ChaosCluster, directory: Path, history: list[Operation], problems: list[str]) -> Judgement:
    """Reads the directories, which nobody may have open. `problems` are those that are known already."""
    found = [*map(str, cluster.findings), *problems]
    logs = []
    for node in cluster.layout.controllers:
        try:
            logs.append(read_final_log(node, directory / "scratch"))
        except LogFormatError as e:
            found.append(f"{node.name} is not what a controller can start from: {e}")
    changes: list[Change] = []
    contradictions = ["no log can be read"]
    if logs:
        changes, contradictions = merged(logs, directory / RECORDED)
    found += contradictions
    witness = Witness(changes)
    for number, (why, operation) in enumerate(witnesses.problems_of(history, witness)):
        picture = f"\n{_around(history, operation)}" if number < DRAWN_MAX else ""
        found.append(f"{operation} {why}{picture}")
    linearizable = True
    for key in KEYS:
        part = [each for each in history if each.key == key]
        verdict = check(witnesses.settled(part, witness), None, topic_step)
        if verdict.blocked is not None:
            linearizable = False
            text = f"{key} is not linearizable: nothing explains {verdict.blocked}"
            found.append(f"{text}\n{_around(part, verdict.blocked)}")
    return Judgement(
        linearizable,
        len(witnesses.lost(history, witness)),
        len(logs) == len(cluster.layout.controllers) and not contradictions,
        max((log.end for log in logs), default=0),
        found,
    )


def _around(history: list[Operation], operation: Operation) -> str:
    """The operations of the same key that were under way about then, drawn."""
    same = sorted((each for each in history if each.key == operation.key), key=lambda each: each.called_ns)
    place = next(index for index, each in enumerate(same) if each.number == operation.number)
    near = same[max(0, place - SHOWN_BEFORE) : place + SHOWN_AFTER]
    return histories.drawn(near, frozenset({operation.number}))
