"""The core's traces obey the table of transitions, and the judge finds a falsified trace."""

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from quorum.core.roles import TRANSITIONS, Role, Why
from tests.core import traces
from tests.core.test_chaos import live
from tests.core.traces import Line, problems, recording

SEEDS = range(100, 130)


@pytest.fixture(scope="module")
def lives() -> list[list[Line]]:
    """The traces of short random lives."""
    found = []
    for seed in SEEDS:
        trace: list[Line] = []
        with recording(trace):
            live(seed)
        found.append(trace)
    return found


def test_every_step_of_a_real_core_is_an_edge_of_the_table(lives: list[list[Line]]) -> None:
    assert [problem for trace in lives for problem in problems(trace)] == []


def test_these_lives_go_along_nearly_every_edge(lives: list[list[Line]]) -> None:
    """Otherwise the judgement would prove little. Missing edges need rarer moments than these lives have."""
    met = Counter(
        (Role[before.role], Role[after.role], Why[after.why])
        for trace in lives
        for node in {line.node for line in trace}
        for before, after in _steps([line for line in trace if line.node == node])
        if after.why is not None and after.why != traces.VOTED
    )
    assert set(met) <= TRANSITIONS
    assert len(met) >= 17, sorted((a.name, b.name, c.name) for a, b, c in TRANSITIONS - set(met))


def _steps(lines: list[Line]) -> list[tuple[Line, Line]]:
    return list(pairwise(lines))


def _gives_up(line: Line) -> bool:
    return line.why == "LEADER_SILENT" and line.role == "PROSPECTIVE" and line.voted_for is not None


@pytest.mark.parametrize(
    ("lie", "word"),
    [
        ({"epoch": 0}, "the epoch went back"),
        ({"role": "LEADER", "why": "LEADER_SILENT"}, "no such edge"),
        ({"why": "VOTE_WON"}, "no such edge"),
        ({"voted_for": "9-AAAAAAAAAAAAAAAAAAAAAA"}, "a vote was changed"),
        ({"leader_id": 9}, "another leader"),
    ],
)
def test_a_lie_in_a_trace_is_found(lives: list[list[Line]], lie: dict[str, Any], word: str) -> None:
    """Each field is falsified in a step from follower to prospective, which changes only the role."""
    trace, index = next((t, i) for t in lives for i, line in enumerate(t) if _gives_up(line))
    false = [*trace[:index], trace[index]._replace(**lie)]
    assert any(word in problem for problem in problems(false)), problems(false)


def test_two_leaders_of_one_epoch_are_found(lives: list[list[Line]]) -> None:
    trace = next(t for t in lives if any(line.role == "LEADER" for line in t) and len({line.node for line in t}) > 1)
    leader = next(line for line in trace if line.role == "LEADER")
    other = next(line.node for line in trace if line.node != leader.node)
    false = [*trace, leader._replace(node=other, voted_for=other)]
    assert any(f"epoch {leader.epoch} was led by" in problem for problem in problems(false))


def test_a_trace_can_be_kept_in_a_file(
    lives: list[list[Line]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.ndjson"
    traces.write(path, lives[0])

    assert traces.read(path) == lives[0]
    assert traces.main([str(path)]) == 0
    traces.write(path, [lives[0][0]._replace(why="VOTE_WON", role="LEADER")])
    assert traces.main([str(path)]) == 1
    assert "a change of role before any start" in capsys.readouterr().out
