"""A slice of `make powercut`; where power cannot be cut it says why."""

import os
from collections import Counter
from pathlib import Path

import pytest

from tests.chaos.judge.history import Kind, Operation, Outcome
from tests.chaos.judge.judging import Judgement
from tests.chaos.powercut import Cut, PowerCuts, table
from tests.chaos.volume import why_not

pytestmark = [pytest.mark.processes, pytest.mark.slow]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    reason = why_not(tmp_path)
    if reason is not None:
        pytest.skip(reason)
    return tmp_path


async def test_what_was_acknowledged_survives_power_cuts(directory: Path) -> None:
    """Two rounds, each of whatever the seed says; after them no acknowledged write is missing anywhere."""
    cut = await PowerCuts(directory, seed=1).run(2, lambda text: None)
    assert not cut.judgement.problems, "\n\n".join(cut.judgement.problems[:5])
    assert (cut.judgement.linearizable, cut.judgement.lost, cut.judgement.equal) == (True, 0, True)
    assert cut.rounds["all"] >= cut.telling >= 1


async def test_an_fsync_that_does_nothing_is_found(directory: Path) -> None:
    """The cuts cut: with fsyncs that lie, acknowledged writes are gone."""
    cut = await PowerCuts(directory, seed=1, lying=True).run(1, lambda text: None)
    assert cut.rounds["all"] == cut.telling == 1
    assert cut.judgement.lost > 0
    assert any("of 3 disks after their power was cut" in problem for problem in cut.judgement.problems)


def test_a_round_without_a_new_write_is_not_counted(tmp_path: Path) -> None:
    """It has looked for nothing; the table says how many have looked for something."""
    cuts = PowerCuts(tmp_path, seed=1)
    read = Operation(1, 1, "alpha", Kind.READ, None, Outcome.DONE, 1, 2, 9)
    write = Operation(2, 1, "alpha", Kind.CREATE, 2, Outcome.DONE, 3, 4, 10)
    for known in ([], [read], [read, write], [read, write]):
        cuts._check_disks(known)
    assert cuts._telling == 1
    judgement = Judgement(linearizable=True, lost=0, equal=True, log_end=0, problems=[])
    text = table(Cut(Counter(all=4), cuts._telling, 1.0, Counter(), judgement))
    assert "  of all, with new writes 1\n" in text


def test_without_root_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    assert why_not(tmp_path) == "this needs root: it mounts file systems on loop devices"
