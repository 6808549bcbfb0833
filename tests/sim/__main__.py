"""Runs the simulator.

    python -m tests.sim --seeds 1000                 many seeds, on all cores, whatever they find
    python -m tests.sim --seeds 5000 --journal DIR   the same; goes on where a run of the same code was stopped
    python -m tests.sim --seeds 5000 --write docs/simulator.md
                                                     the same, and the figures of the page are written
    python -m tests.sim --hours 8                    random seeds for so long
    python -m tests.sim --seed 17                    one of them again
    python -m tests.sim --seed 3 --mutant NAME       one seed with one bug
    python -m tests.sim --mutants                    every seeded bug must be found
    python -m tests.sim --mutants --mutant NAME --write docs/simulator.md
                                                     this one must, and its row of the page is written

Prints what all the seeds together have covered. Fails if a law broke, or if something that every long run must meet was
never met.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.journal import opened
from tests.sim import hunting
from tests.sim.mutants import MUTANTS
from tests.sim.report import Report, write_figures
from tests.sim.runner import Job, run_job, seeds
from tests.sim.watching import random_jobs, watch


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.sim", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, help="how many seeds (100; with --mutants 1000 for each)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (1)")
    parser.add_argument("--seed", type=int, help="only this one, in this process")
    parser.add_argument("--hours", type=float, help="random seeds until the time is up")
    parser.add_argument("--fail-fast", action="store_true", help="stop at the first seed that breaks a law")
    parser.add_argument("--events", type=int, default=2_000, help="events a seed under faults, at least (2000)")
    parser.add_argument(
        "--mutant", choices=sorted(MUTANTS), metavar="NAME", action="append", default=[],
        help="put this bug in; with --mutants only the bugs that are named so",
    )  # fmt: skip
    parser.add_argument("--mutants", action="store_true", help="put in each bug in turn; each must be found")
    parser.add_argument(
        "--journal", type=Path, metavar="DIRECTORY", help="keep results there, and go on from them next time"
    )
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the figures, or what was found, into this page")
    arguments = parser.parse_args(words)
    if arguments.mutants:
        names = list(dict.fromkeys(arguments.mutant or MUTANTS))
        count, journal = arguments.seeds or 1_000, opened(arguments.journal, "mutants")
        return hunting.hunt_all(names, arguments.first, count, arguments.events, arguments.write, journal)
    if len(arguments.mutant) > (0 if arguments.hours is not None else 1):
        parser.error("--mutant: one bug for --seed or --seeds, several for --mutants, none for --hours")
    mutant = next(iter(arguments.mutant), None)
    if arguments.seed is not None:
        report = Report()
        report.add(run_job(Job(arguments.seed, arguments.events, mutant)))
        print("".join(f"{failure}\n\n" for failure in report.failures), end="")
    elif arguments.hours is not None:
        report = watch(random_jobs(arguments.hours, arguments.events), None, fail_fast=arguments.fail_fast)
    else:
        jobs = seeds(arguments.first, arguments.seeds or 100, arguments.events, mutant)
        journal = opened(arguments.journal, "sim")
        report = watch(jobs, len(jobs), fail_fast=arguments.fail_fast, journal=journal)
        if arguments.write is not None and report.is_good:
            write_figures(arguments.write, f"make sim SEEDS={len(jobs)}", report)
    print(report)
    return 0 if report.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
