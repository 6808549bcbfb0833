"""A slice of `make powercut`; where power cannot be cut it says why."""

import os
from pathlib import Path

import pytest

from tests.chaos.powercut import PowerCuts
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
    assert cut.rounds["all"] >= 1


async def test_an_fsync_that_does_nothing_is_found(directory: Path) -> None:
    """The cuts cut: with fsyncs that lie, acknowledged writes are gone."""
    cut = await PowerCuts(directory, seed=1, lying=True).run(1, lambda text: None)
    assert cut.rounds["all"] == 1
    assert cut.judgement.lost > 0
    assert any("of 3 disks after their power was cut" in problem for problem in cut.judgement.problems)


def test_without_root_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    assert why_not(tmp_path) == "this needs root: it mounts file systems on loop devices"
