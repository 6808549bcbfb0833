"""A slice of `make chaos`, short enough for every change."""

import secrets
from pathlib import Path

import pytest

from tests.chaos.judge.history import Outcome
from tests.chaos.run import run

pytestmark = [pytest.mark.processes, pytest.mark.slow]


async def test_a_few_rounds_of_faults(tmp_path: Path) -> None:
    """Under all faults of three controllers and four brokers, each answer to a client or operator is true and stays true."""
    seed = secrets.randbits(31)
    said: list[str] = []
    report = await run(tmp_path, seed, 14.0, said.append, clients=4)
    judgement = report.judgement
    assert not judgement.problems, f"seed {seed}, in {tmp_path}\n" + "\n\n".join(judgement.problems[:5])
    assert (judgement.linearizable, judgement.lost, judgement.equal) == (True, 0, True)
    assert report.faults.total() >= 1
    assert report.outcomes[Outcome.DONE] >= 50, report.outcomes
    assert sum(judgement.operated.values()) >= 20, judgement.operated
