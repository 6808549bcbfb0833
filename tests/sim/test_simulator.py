"""A fixed slice of the simulator's seeds; `make sim SEEDS=20000` runs as many as you have time for."""

import pytest

from tests.sim.cluster import Cluster
from tests.sim.runner import run, run_seed


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_slice_of_seeds_keeps_every_law() -> None:
    """Whatever crashes, is cut off, lost, repeated or paused: the laws hold after every event."""
    outcomes = run(1, 60, 2_000)

    assert [outcome.failure for outcome in outcomes if outcome.failure] == []
    assert min(outcome.events for outcome in outcomes) >= 2_000
    assert sum(outcome.coverage["acknowledged write"] for outcome in outcomes) > 1_000


@pytest.mark.slow
def test_one_seed_is_one_history() -> None:
    """The same seed gives the same run, event by event; without that no failure could be seen again."""
    first, second = Cluster(7), Cluster(7)
    first.run(500)
    second.run(500)

    assert (first.now_ms, first.events, first.coverage) == (second.now_ms, second.events, second.coverage)
    assert str(first.picture) == str(second.picture)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", ["flush-skipped", "commit-of-older-epoch"])
def test_a_seeded_bug_is_found(mutant: str) -> None:
    """The laws have teeth: a bug that was put in on purpose breaks one of them."""
    outcomes = run(1, 200, 2_000, mutant=mutant)

    assert any(outcome.failure for outcome in outcomes)


def test_a_failure_says_how_to_see_it_again() -> None:
    """A report names the seed, the command, and draws the last events."""
    outcome = run_seed(3, 50)

    assert outcome.seed == 3
    assert outcome.events >= 50
