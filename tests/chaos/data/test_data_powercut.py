"""A slice of `make powercut-data`; where power cannot be cut it says why."""

from pathlib import Path

import pytest

from tests.chaos.data.powercut import DataPowerCuts
from tests.chaos.volume import why_not

pytestmark = [pytest.mark.processes, pytest.mark.slow]


async def test_acknowledged_records_survive_power_cuts(tmp_path: Path) -> None:
    """Two rounds, each of as many brokers as the seed says; after them no acknowledged record is missing anywhere."""
    reason = why_not(tmp_path)
    if reason is not None:
        pytest.skip(reason)
    cut = await DataPowerCuts(tmp_path, seed=1).run(2, lambda text: None)
    assert not cut.judgement.problems, "\n\n".join(cut.judgement.problems[:5])
    assert (cut.judgement.lost, cut.judgement.equal) == (0, True)
    assert cut.judgement.acknowledged > 0
    assert cut.rounds.total() == 2
