"""Runs seeds, on all cores: what `python -m tests.sim` and the tests have in common."""

import multiprocessing
import os
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tests.sim.cluster import Cluster, SimulationFailed
from tests.sim.coverage import Coverage
from tests.sim.mutants import put_in


class Outcome(NamedTuple):
    """What one seed came to."""

    seed: int
    events: int
    virtual_ms: float
    coverage: Coverage
    failure: str | None


def run_seed(seed: int, events: int) -> Outcome:
    """One seed, from its first event to the end of quiet."""
    cluster = Cluster(seed)
    failure = None
    try:
        cluster.run(events)
    except SimulationFailed as e:
        failure = str(e)
    return Outcome(seed, cluster.events, cluster.now_ms, cluster.coverage, failure)


def run_job(job: tuple[int, int, str | None]) -> Outcome:
    seed, events, mutant = job
    with put_in(mutant):
        return run_seed(seed, events)


def run(first: int, seeds: int, events: int, *, mutant: str | None = None, title: str = "sim") -> list[Outcome]:
    """Runs `seeds` seeds on all cores; stops at the first failure."""
    outcomes: list[Outcome] = []
    jobs = [(seed, events, mutant) for seed in range(first, first + seeds)]
    console = Console(stderr=True)
    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with (
        Progress(*columns, console=console, disable=not console.is_terminal) as progress,
        multiprocessing.get_context("forkserver").Pool(os.cpu_count()) as pool,
    ):
        task = progress.add_task(title, total=seeds)
        for outcome in pool.imap_unordered(run_job, jobs, chunksize=1):
            outcomes.append(outcome)
            progress.advance(task)
            if outcome.failure is not None:
                pool.terminate()
                break
    return outcomes
