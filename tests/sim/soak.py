"""Soaking: random seeds until the time is up, on all cores; whatever breaks a law is told at once, and the search goes on."""

import random
import sys
import time
from collections.abc import Iterator

from tests.sim.report import Report
from tests.sim.runner import Job, on_all_cores, run_job

LINE_EVERY_SECONDS = 60.0


def soak(hours: float, events: int, *, fail_fast: bool) -> Report:
    """What `hours` of seeds that nobody has chosen came to."""
    started = time.monotonic()
    report, told = Report(), started
    for outcome in on_all_cores(run_job, _random_jobs(events, until=started + hours * 3_600)):
        report.add(outcome)
        if outcome.failure is not None:
            print(f"\n{outcome.failure}", flush=True)
            if fail_fast:
                break
        if time.monotonic() - told >= LINE_EVERY_SECONDS:
            told = time.monotonic()
            print(f"{(told - started) / 60:6.1f} min: {report.figures()}", file=sys.stderr, flush=True)
    return report


def _random_jobs(events: int, until: float) -> Iterator[Job]:
    dice = random.SystemRandom()
    while time.monotonic() < until:
        yield Job(dice.randrange(1 << 40), events)
