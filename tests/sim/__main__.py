"""Runs the simulator.

    python -m tests.sim --seeds 1000                 many seeds, on all cores, until one breaks a law
    python -m tests.sim --seed 17                    one of them again
    python -m tests.sim --mutants --seeds 1000       every seeded bug must be found within so many seeds
    python -m tests.sim --seed 3 --mutant NAME       one seed with one bug

Prints what all the seeds together have covered. Fails if a law broke, or if something that every long run must meet was
never met.
"""

import argparse
import sys
import time

from tests.sim.coverage import Coverage
from tests.sim.mutants import MUTANTS
from tests.sim.runner import Job, Outcome, run, run_job, seeds

MANY_SEEDS = 200
"""So many seeds must have met everything."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.sim", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds (100)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (1)")
    parser.add_argument("--seed", type=int, help="only this one, in this process")
    parser.add_argument("--events", type=int, default=2_000, help="events a seed under faults, at least (2000)")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), metavar="NAME", help="put this bug in")
    parser.add_argument("--mutants", action="store_true", help="put in each bug in turn; each must be found")
    arguments = parser.parse_args()
    if arguments.mutants:
        return _hunt(arguments.first, arguments.seeds, arguments.events)
    if arguments.seed is not None:
        outcomes = [run_job(Job(arguments.seed, arguments.events, arguments.mutant))]
    else:
        outcomes = run(seeds(arguments.first, arguments.seeds, arguments.events, arguments.mutant))
    return _report(outcomes)


def _report(outcomes: list[Outcome]) -> int:
    coverage = Coverage()
    for outcome in outcomes:
        coverage.update(outcome.coverage)
    events = sum(outcome.events for outcome in outcomes)
    hours = sum(outcome.virtual_ms for outcome in outcomes) / 3_600_000
    least = min(outcome.events for outcome in outcomes)
    print(coverage.table())
    print(f"{len(outcomes):,} seeds, {events:,} events (at least {least:,} a seed), {hours:,.1f} simulated hours")
    failures = [outcome.failure for outcome in outcomes if outcome.failure is not None]
    missing = coverage.missing() if len(outcomes) >= MANY_SEEDS else []
    for failure in failures:
        print(f"\n{failure}")
    if missing:
        print(f"never met: {', '.join(missing)}")
    print(f"{len(outcomes) - len(failures)} passed, {len(failures)} failed")
    return 1 if failures or missing else 0


def _hunt(first: int, count: int, events: int) -> int:
    """Every mutant, one after the other, each until it is found."""
    survivors = 0
    for name, mutant in MUTANTS.items():
        started = time.perf_counter()
        outcomes = run(seeds(first, count, events, name), title=name)
        failure = outcomes[-1].failure
        seconds = time.perf_counter() - started
        if failure is None:
            survivors += 1
            verdict, law = "NOT FOUND", "-"
        else:
            verdict, law = f"after {len(outcomes)} seeds", failure.splitlines()[0]
        print(f"{name:<36} {verdict:<16} {seconds:6.1f} s  {law[:100]}")
        print(f"    {mutant.what}")
    print(f"{len(MUTANTS) - survivors} passed, {survivors} failed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
