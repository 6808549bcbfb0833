"""The laws of replicated partitions hold for whole brokers on fake disks. `test_mutants` shows the laws' teeth."""

import pytest

from broker_agent.replica.purgatory import Acks
from tests.broker_agent.partitions.model.toy_cluster import ToyCluster


@pytest.mark.parametrize("seed", range(3))
def test_the_laws_hold(seed: int) -> None:
    cluster = ToyCluster(seed).run(500)
    cluster.heal()
    cluster.check_sequences()


@pytest.mark.slow
def test_the_laws_hold_in_many_mixtures_of_faults() -> None:
    """The seeds also meet what they are for: acknowledged writes, and leaderships that move."""
    runs = [ToyCluster(seed).run(1_500) for seed in range(100, 130)]
    assert sum(run.acknowledged for run in runs) > 300
    assert sum(len(laws.leads) for run in runs for laws in run.laws.values()) > 200
    for run in runs:
        run.heal()
        run.check_sequences()


@pytest.mark.slow
def test_a_write_with_acks_1_is_on_the_leaders_disk() -> None:
    runs = [ToyCluster(seed, Acks.LEADER).run(800) for seed in range(20)]
    assert sum(run.acknowledged for run in runs) > 200
    for run in runs:
        run.heal()
