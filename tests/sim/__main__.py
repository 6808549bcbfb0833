"""Runs the simulator: `python -m tests.sim --seeds 1000`, or one seed again: `--seed 17`.

Prints what all the seeds together have covered; fails if a law broke, or if something that every long run must meet was
never met. With `--mutant NAME` a seeded bug is put in first, and the run succeeds when it is *found*.
"""

import argparse
import sys
import time

from tests.sim.coverage import Coverage
from tests.sim.mutants import MUTANTS
from tests.sim.runner import Outcome, run, run_job


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seed", type=int, help="only this one, in this process")
    parser.add_argument("--events", type=int, default=2_000, help="events a seed, at least")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="put this bug in; success is finding it")
    parser.add_argument("--mutants", action="store_true", help="every mutant must be found within --seeds")
    arguments = parser.parse_args()
    if arguments.mutants:
        return _hunt(arguments.first, arguments.seeds, arguments.events)
    if arguments.seed is not None:
        outcomes = [run_job((arguments.seed, arguments.events, arguments.mutant))]
    else:
        outcomes = run(arguments.first, arguments.seeds, arguments.events, mutant=arguments.mutant)
    return _report(outcomes, whole=arguments.seed is None, mutant=arguments.mutant)


def _report(outcomes: list[Outcome], *, whole: bool, mutant: str | None) -> int:
    coverage = Coverage()
    for outcome in outcomes:
        coverage.update(outcome.coverage)
    events = sum(outcome.events for outcome in outcomes)
    hours = sum(outcome.virtual_ms for outcome in outcomes) / 3_600_000
    least = min(outcome.events for outcome in outcomes)
    print(coverage.table())
    print(f"{len(outcomes):,} seeds, {events:,} events (at least {least:,} a seed), {hours:,.1f} simulated hours")
    failures = [outcome for outcome in outcomes if outcome.failure is not None]
    if mutant is not None:
        print(f"mutant {mutant!r}: {'found by seed ' + str(failures[0].seed) if failures else 'NOT FOUND'}")
        return 0 if failures else 1
    for outcome in failures:
        print(outcome.failure)
        return 1
    if whole and len(outcomes) >= 100 and coverage.missing():
        print(f"never met: {', '.join(coverage.missing())}")
        return 1
    print(f"{len(outcomes)} passed, 0 failed")
    return 0


def _hunt(first: int, seeds: int, events: int) -> int:
    """Every mutant, one after the other, each until it is found."""
    lost = 0
    for name, mutant in MUTANTS.items():
        started = time.perf_counter()
        outcomes = run(first, seeds, events, mutant=name, title=name)
        found = next((outcome for outcome in outcomes if outcome.failure is not None), None)
        law = "-" if found is None or found.failure is None else found.failure.strip().splitlines()[0]
        verdict = f"found after {len(outcomes)} seeds" if found else "NOT FOUND"
        lost += found is None
        print(f"{name:<36} {verdict:<24} {time.perf_counter() - started:6.1f} s  {law[:110]}")
        print(f"{'':<36} {mutant.what}")
    print(f"{len(MUTANTS) - lost} passed, {lost} failed")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
