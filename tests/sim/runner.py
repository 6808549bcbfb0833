"""Runs seeds, on all cores: what `python -m tests.sim` and the tests have in common."""

import multiprocessing
import os
from collections.abc import Iterable
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tests.sim.cluster import Cluster, SimulationFailed
from tests.sim.coverage import Coverage
from tests.sim.mutants import put_in


class Job(NamedTuple):
    """One seed to run, with a bug put in first if `mutant` names one."""

    seed: int
    events: int
    mutant: str | None = None

    @property
    def command(self) -> str:
        """What a person types to run it again."""
        bug = f" --mutant {self.mutant}" if self.mutant else ""
        return f"python -m tests.sim --seed {self.seed} --events {self.events}{bug}"


class Outcome(NamedTuple):
    """What one seed came to."""

    seed: int
    events: int
    virtual_ms: float
    coverage: Coverage
    failure: str | None
    """The broken law, how to see it again, and the last events; None: every law held."""


def run_job(job: Job) -> Outcome:
    """One seed, from its first event until everybody agrees."""
    with put_in(job.mutant):
        cluster = Cluster(job.seed)
        failure = None
        try:
            cluster.run(job.events)
        except SimulationFailed as e:
            failure = f"{e.law}\n\nTo see it again:\n\n    {job.command}\n\n{e.story}"
    return Outcome(job.seed, cluster.events, cluster.now_ms, cluster.coverage, failure)


def run(jobs: Iterable[Job], *, title: str = "sim") -> list[Outcome]:
    """Runs `jobs` on all cores; stops at the first failure, which is then the last outcome."""
    outcomes: list[Outcome] = []
    jobs = list(jobs)
    console = Console(stderr=True)
    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with (
        Progress(*columns, console=console, disable=not console.is_terminal) as progress,
        multiprocessing.get_context("forkserver").Pool(os.cpu_count()) as pool,
    ):
        task = progress.add_task(title, total=len(jobs))
        for outcome in pool.imap_unordered(run_job, jobs):
            outcomes.append(outcome)
            progress.advance(task)
            if outcome.failure is not None:
                pool.terminate()
                break
    return outcomes


def seeds(first: int, count: int, events: int, mutant: str | None = None) -> list[Job]:
    """`count` seeds from `first` on."""
    return [Job(seed, events, mutant) for seed in range(first, first + count)]
