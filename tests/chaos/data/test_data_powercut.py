"""A slice of `make powercut-data`; where power cannot be cut it says why."""

from pathlib import Path

import pytest

from tests.chaos.data.powercut import DataPowerCuts
from tests.chaos.volume import why_not

pytestmark = [pytest.mark.processes, pytest.mark.slow]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    reason = why_not(tmp_path)
    if reason is not None:
        pytest.skip(reason)
    return tmp_path


async def test_acknowledged_records_survive_power_cuts(directory: Path) -> None:
    """Two rounds, each of as many brokers as the seed says; after them no acknowledged record is missing anywhere."""
    cut = await DataPowerCuts(directory, seed=1).run(2, lambda text: None)
    assert not cut.judgement.problems, "\n\n".join(cut.judgement.problems[:5])
    assert (cut.judgement.lost, cut.judgement.equal) == (0, True)
    assert cut.judgement.acknowledged > 0
    assert cut.rounds.total() == 2


async def test_an_fsync_of_a_broker_that_does_nothing_is_found(directory: Path) -> None:
    """The cuts cut: with fsyncs that lie, acknowledged records are gone, and consumers have read them."""
    cut = await DataPowerCuts(directory, seed=1, lying=True).run(1, lambda text: None)
    assert cut.judgement.lost > 0
    assert {"L1", "L5"} <= {problem.split()[0] for problem in cut.judgement.problems}
