"""A slice of `make chaos-data`, short enough for every change."""

import secrets
from pathlib import Path

import pytest

from tests.chaos.data.history import Fate
from tests.chaos.data.run import run

pytestmark = [pytest.mark.processes, pytest.mark.slow]


async def test_a_few_rounds_of_faults_lose_no_acknowledged_record(tmp_path: Path) -> None:
    """Under kills, pauses and bad disks of brokers, every acknowledged record is in equal logs at its offset, and consumers
    read only what these logs have."""
    seed = secrets.randbits(31)
    said: list[str] = []
    report = await run(tmp_path, seed, 9.0, said.append)
    judgement = report.judgement
    assert not judgement.problems, f"seed {seed}, in {tmp_path}\n" + "\n\n".join(judgement.problems[:5])
    assert (judgement.lost, judgement.equal) == (0, True)
    assert report.faults.total() >= 1
    assert report.fates[Fate.ACKNOWLEDGED] >= 50, report.fates
    assert judgement.read >= judgement.acknowledged / 10
