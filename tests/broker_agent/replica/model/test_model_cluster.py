"""The laws of a replicated partition hold under all faults of the model cluster. `test_mutants` shows the laws' teeth."""

from itertools import pairwise

import pytest

from tests.broker_agent.replica.model.model_cluster import ModelCluster


def hunt(seeds: range, steps: int) -> list[ModelCluster]:
    return [ModelCluster(seed).run(steps) for seed in seeds]


def test_the_laws_hold() -> None:
    """A few seeds, for every change of the code. After the faults all replicas are in sync again."""
    for cluster in hunt(range(3), 500):
        cluster.heal()


@pytest.mark.slow
def test_the_laws_hold_in_many_mixtures_of_faults() -> None:
    """The seeds also meet what they are for: acknowledged writes, new leaders, growth and shrinking of the ISR."""
    runs = hunt(range(100, 140), 2_000)
    isrs = [[state.partition.isr for state in run.controller.states] for run in runs]
    steps = [(before, after) for each in isrs for before, after in pairwise(each)]
    assert sum(run.acknowledged for run in runs) > 200
    assert sum(len(run.laws.leads) for run in runs) > 80
    assert sum(len(before) < len(after) for before, after in steps) > 80
    assert sum(len(before) > len(after) for before, after in steps) > 80
    for run in runs:
        run.heal()
