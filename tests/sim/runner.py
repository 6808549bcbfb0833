"""Runs seeds, on all cores: what `python -m tests.sim` and the tests have in common."""

import gc
import logging
import multiprocessing
import os
import threading
import traceback
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tests.journal import Journal
from tests.sim.cluster import Cluster, SimulationFailed
from tests.sim.coverage import Coverage
from tests.sim.laws import LawBroken
from tests.sim.memory import remembered
from tests.sim.mutants import put_in

By: TypeAlias = Literal["law", "assert", "error"]
"""The failure that has ended a run: a broken law, an assert of production code, or any other exception."""
TESTS = Path(__file__).parents[1]

_Task = TypeVar("_Task", bound=Hashable)
_Result = TypeVar("_Result")


class Job(NamedTuple):
    """One seed to run, with a bug put in first if `mutant` names one."""

    seed: int
    events: int
    mutant: str | None = None

    @property
    def command(self) -> str:
        """The command that runs it again."""
        bug = f" --mutant {self.mutant}" if self.mutant else ""
        return f"python -m tests.sim --seed {self.seed} --events {self.events}{bug}"


class Outcome(NamedTuple):
    """The outcome of one seed."""

    seed: int
    events: int
    virtual_ms: float
    coverage: Coverage
    failure: str | None
    """The broken law, how to see it again, and the last events; None: every law held."""
    by: By | None
    """None as well."""


def run_job(job: Job) -> Outcome:
    """One seed, from its first event until everybody agrees."""
    logging.disable()  # nodes complain of what is done to them
    gc.disable()  # a run is short, and looking for cycles in it again and again costs a twentieth of its time
    try:
        with remembered(), put_in(job.mutant):
            return _run(job)
    finally:
        logging.disable(logging.NOTSET)
        gc.enable()
        gc.collect()


def _run(job: Job) -> Outcome:
    cluster = Cluster(job.seed)
    failure, by = None, None
    try:
        cluster.run(job.events)
    except SimulationFailed as e:
        failure = f"{e.law}\n\nTo see it again:\n\n    {job.command}\n\n{e.story}"
        by = _ended_by(e.__cause__)
    return Outcome(job.seed, cluster.events, cluster.now_ms, cluster.coverage, failure, by)


def _ended_by(cause: BaseException | None) -> By:
    """An assert counts where it stands: one in the tests says that a mutant, or a fake, is not used as it was meant to be."""
    if isinstance(cause, LawBroken):
        return "law"
    if not isinstance(cause, AssertionError):
        return "error"
    (last,) = traceback.extract_tb(cause.__traceback__, limit=-1)
    return "error" if Path(last.filename).is_relative_to(TESTS) else "assert"


class Hunt(NamedTuple):
    """One bug to be found, by the seeds from `first` on, one after the other."""

    mutant: str
    first: int
    seeds: int
    events: int


def run_hunt(hunt: Hunt) -> tuple[Hunt, Outcome]:
    """Ends with the seed that finds the bug, or with the last one."""
    assert hunt.seeds > 0
    for job in seeds(hunt.first, hunt.seeds, hunt.events, hunt.mutant):
        outcome = run_job(job)
        if outcome.failure is not None:
            break
    return hunt, outcome


def _settle_in() -> None:
    """A worker that is alone goes, too: whoever is killed cannot tell it to. And what it has imported by now it keeps, so
    that the look for cycles after each run need not go through that.
    """
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    gc.freeze()


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def on_all_cores(
    work: Callable[[_Task], _Result], tasks: Iterable[_Task], journal: Journal | None = None
) -> Iterator[_Result]:
    """The results as they come. `tasks` may be endless: only a few are taken ahead. Closing the iterator ends the work.

    A task that is in the journal is not run again; a result that is new is noted there.
    """
    cores = os.cpu_count() or 1
    pool = ProcessPoolExecutor(cores, mp_context=multiprocessing.get_context("forkserver"), initializer=_settle_in)
    running: dict[Future[_Result], _Task] = {}
    try:
        for task in tasks:
            if journal is not None and task in journal:
                yield journal.result_of(task)
                continue
            running[pool.submit(work, task)] = task
            if len(running) == 2 * cores:
                yield from _ended(running, journal)
        while running:
            yield from _ended(running, journal)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _ended(running: dict[Future[_Result], _Task], journal: Journal | None) -> Iterator[_Result]:
    """Waits until some tasks have ended; takes them out of `running`, and notes their results."""
    for future in wait(running, return_when=FIRST_COMPLETED).done:
        task, result = running.pop(future), future.result()
        if journal is not None:
            journal.note(task, result)
        yield result


def progress_bar(title: str) -> Progress:
    """On a terminal, else none."""
    console = Console(stderr=True)
    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal)


def run(jobs: Iterable[Job]) -> list[Outcome]:
    """Runs `jobs` on all cores; stops at the first failure, which is then the last outcome."""
    outcomes: list[Outcome] = []
    for outcome in on_all_cores(run_job, jobs):
        outcomes.append(outcome)
        if outcome.failure is not None:
            break
    return outcomes


def seeds(first: int, count: int, events: int, mutant: str | None = None) -> list[Job]:
    """`count` seeds from `first` on."""
    return [Job(seed, events, mutant) for seed in range(first, first + count)]
