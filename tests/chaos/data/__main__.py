"""Runs brokers with records under faults, and judges what their producers and consumers were told.

    python -m tests.chaos.data --minutes 10               a fresh seed, which is printed
    python -m tests.chaos.data --minutes 10 --seed 7      the same schedule again

Exit code 1 if a law broke; then the directory with logs, data and history is kept, and its place is printed.
"""

import argparse
import asyncio
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

from tests.chaos.data.faults import DATA_FAULTS
from tests.chaos.data.history import Fate
from tests.chaos.data.run import DataReport, run
from tests.chaos.judge.wellness import until_terminated


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.data", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="how long faults come (10)")
    parser.add_argument("--seed", type=int, help="of the schedule; a fresh one if it is not given")
    parser.add_argument(
        "--only", action="append", choices=sorted(DATA_FAULTS), metavar="FAULT", help="faults of this kind only"
    )
    parser.add_argument("--keep", action="store_true", help="keep the directory also after a good run")
    arguments = parser.parse_args()
    seed = secrets.randbits(31) if arguments.seed is None else arguments.seed
    directory = Path(tempfile.mkdtemp(prefix="metaquorum-chaos-"))
    say(f"seed {seed}, in {directory}")
    work = run(directory, seed, arguments.minutes * 60, say, only=arguments.only or ())
    report = asyncio.run(until_terminated(work))
    say(table(report))
    if report.judgement.problems:
        say("\n" + "\n\n".join(report.judgement.problems))
        say(f"\neverything is kept in {directory}")
        say(f"the same schedule again: make chaos-data MINUTES={arguments.minutes:g} SEED={seed}")
        return 1
    if arguments.keep:
        say(f"kept: {directory}")
    else:
        shutil.rmtree(directory)
    return 0


def table(report: DataReport) -> str:
    """The run in figures, for people."""
    rows = [("seed", f"{report.seed}"), ("time", f"{report.seconds:.0f} s, {report.rounds} rounds")]
    rows += [(f"  {kind}", f"{count}") for kind, count in sorted(report.faults.items())]
    rows += [("faults", f"{report.faults.total()}"), ("daemons started again", f"{report.restarts}")]
    rows += [(f"batches {fate}", f"{report.fates[fate]:,}") for fate in Fate]
    rows += [(f"  {code}", f"{count:,}") for code, count in report.codes.most_common(8)]
    return "\n".join([*(f"{name:<34}{value}" for name, value in rows), *report.judgement.lines()])


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
