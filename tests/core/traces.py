"""Traces of real cores, and a judge who knows only the table of transitions.

A trace is one JSON object per line: a node's state at each start, and after each change of role, with the reason given
by the code. `problems` compares each line of a node with the node's previous line, and reports contradictions: an edge
outside `TRANSITIONS`, or an edge whose reason does not fit the change (a timer which moved the epoch, a vote which
vanished within its epoch, a leader without an election).

    python -m tests.core.traces FILE...
"""

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from metadata_log.format.ids import ReplicaKey, uuid_text
from quorum.core.protocol.effects import ElectionState
from quorum.core.quorum_state import QuorumState
from quorum.core.roles import TRANSITIONS, Role, RoleState, Why

VOTED = "VOTED"
"""The only change of state without a change of role: a vote for another node."""


class Line(NamedTuple):
    """One node's state from here on. `why` is the name of a `Why`, or VOTED, or None after a start."""

    node: str
    role: str
    why: str | None
    epoch: int
    voted_for: str | None
    leader_id: int | None
    end_offset: int
    high_watermark: int | None

    @property
    def node_id(self) -> int:
        return int(self.node.split("-", 1)[0])


def _name(key: ReplicaKey | None) -> str | None:
    return None if key is None else f"{key.node_id}-{uuid_text(key.directory_id)}"


def line_of(state: QuorumState, why: str | None) -> Line:
    name = _name(state.me)
    assert name is not None
    election = state.election
    return Line(
        name,
        state.role.role.name,
        why,
        election.epoch,
        _name(election.voted_for),
        election.leader_id,
        state.shape.end,
        state.known_high_watermark,
    )


@contextmanager
def recording(trace: list[Line]) -> Iterator[None]:
    """Lets every core created in the block write into `trace`."""
    start, become, vote_for = QuorumState.__init__, QuorumState.become, QuorumState.vote_for

    def started(self: QuorumState, **arguments: object) -> None:
        start(self, **arguments)  # type: ignore[arg-type]
        trace.append(line_of(self, None))

    def became(self: QuorumState, role: RoleState, why: Why, election: ElectionState) -> None:
        become(self, role, why, election)
        trace.append(line_of(self, why.name))

    def voted(self: QuorumState, candidate: ReplicaKey) -> None:
        vote_for(self, candidate)
        trace.append(line_of(self, VOTED))

    with mock.patch.multiple(QuorumState, __init__=started, become=became, vote_for=voted):
        yield


def problems(trace: Iterable[Line]) -> list[str]:
    """The contradictions between `trace` and the table; empty if the trace obeys the table."""
    found: list[str] = []
    last: dict[str, Line] = {}
    led: dict[int, str] = {}
    for number, line in enumerate(trace, start=1):
        before = last.get(line.node)
        wrong = (*_of_step(before, line), *_of_leading(line, led))
        found.extend(f"line {number}: {problem}: {before} -> {line}" for problem in wrong)
        last[line.node] = line
    return found


def _of_leading(line: Line, led: dict[int, str]) -> Iterator[str]:
    if line.role == Role.LEADER.name and led.setdefault(line.epoch, line.node) != line.node:
        yield f"epoch {line.epoch} was led by {led[line.epoch]}"


def _of_step(before: Line | None, after: Line) -> Iterator[str]:
    if before is not None:
        if after.epoch < before.epoch:
            yield "the epoch went back"
        if after.epoch == before.epoch and before.voted_for is not None and after.voted_for != before.voted_for:
            yield "a vote was changed within its epoch"
        if after.epoch == before.epoch and before.leader_id is not None and after.leader_id != before.leader_id:
            yield "the epoch has another leader"
    if after.why is None:
        if after.role in (Role.LEADER.name, Role.CANDIDATE.name, Role.PROSPECTIVE.name):
            yield f"starts as {after.role}"
        return
    if before is None:
        yield "a change of role before any start"
        return
    if after.why == VOTED:
        if after != before._replace(why=VOTED, voted_for=after.voted_for) or after.voted_for is None:
            yield "more than a vote was given"
        if before.role not in (Role.UNATTACHED.name, Role.PROSPECTIVE.name) or before.leader_id is not None:
            yield f"votes as {before.role}, its leader being {before.leader_id}"
        return
    if (Role[before.role], Role[after.role], Why[after.why]) not in TRANSITIONS:
        yield "no such edge in the table"
    if not _fits(Why[after.why], before, after):
        yield "the reason does not fit the change"


def _fits(why: Why, before: Line, after: Line) -> bool:
    same_epoch = after.epoch == before.epoch
    kept = same_epoch and (after.voted_for, after.leader_id) == (before.voted_for, before.leader_id)
    match why:
        case Why.HIGHER_EPOCH:
            return after.epoch > before.epoch and after.voted_for is None and after.leader_id is None
        case Why.LEARNED_LEADER:
            return after.leader_id is not None and after.leader_id != after.node_id
        case Why.PRE_VOTE_WON:
            return after.epoch == before.epoch + 1 and after.voted_for == after.node and after.leader_id is None
        case Why.VOTE_WON:
            return same_epoch and before.voted_for == after.voted_for == after.node and after.leader_id == after.node_id
        case Why.REST_IS_OVER:
            return after.epoch == before.epoch + 1 and after.voted_for is None and after.leader_id is None
        case _:
            # A timer, a lost round, or a resignation writes nothing to disk.
            return kept


def read(path: Path) -> list[Line]:
    """Reads a trace from a file of JSON lines."""
    return [Line(**json.loads(text)) for text in path.read_text().splitlines()]


def write(path: Path, trace: Iterable[Line]) -> None:
    path.write_text("".join(json.dumps(line._asdict()) + "\n" for line in trace))


def main(arguments: list[str]) -> int:
    found = [f"{name}: {problem}" for name in arguments for problem in problems(read(Path(name)))]
    sys.stdout.write("".join(f"{problem}\n" for problem in found) or f"{len(arguments)} traces obey the table\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
