"""Long runs, and what they tell while they last: a failure at once, and how far they are.

One failure is no reason to stop: hours later there may be others, and the seeds in between are worth as much.
"""

import random
import sys
import time
from collections.abc import Iterable, Iterator

from tests.journal import Journal
from tests.sim.report import Report
from tests.sim.runner import Job, on_all_cores, progress_bar, run_job

LINE_EVERY_SECONDS = 60.0


def watch(jobs: Iterable[Job], total: int | None, *, fail_fast: bool, journal: Journal | None = None) -> Report:
    """What these jobs, `total` of them if anybody knows, came to. On a terminal a bar tells how far they are, else lines do."""
    report = Report()
    started = told = time.monotonic()
    with progress_bar("sim") as bar:
        task = bar.add_task("sim", total=total)
        for outcome in on_all_cores(run_job, jobs, journal):
            report.add(outcome)
            bar.advance(task)
            if outcome.failure is not None:
                bar.console.print(f"\n{outcome.failure}", highlight=False, markup=False, soft_wrap=True)
                if fail_fast:
                    break
            if bar.disable and time.monotonic() - told >= LINE_EVERY_SECONDS:
                told = time.monotonic()
                print(f"{(told - started) / 60:6.1f} min: {report.figures()}", file=sys.stderr, flush=True)
    return report


def random_jobs(hours: float, events: int) -> Iterator[Job]:
    """Seeds that nobody has chosen, for `hours`."""
    dice, until = random.SystemRandom(), time.monotonic() + hours * 3_600
    while time.monotonic() < until:
        yield Job(dice.randrange(1 << 40), events)
