"""Runs real daemons under faults, and judges what their clients were told.

    python -m tests.chaos --minutes 10               a fresh seed, which is printed
    python -m tests.chaos --minutes 10 --seed 7      the same schedule again
    python -m tests.chaos --mutant stale-read        with a bug, which should be found

Exit code 1 if a law broke; then the directory with logs, data and history is kept, and its place is printed.
"""

import argparse
import asyncio
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

from tests.chaos.judge.audit import Audited, audit
from tests.chaos.judge.history import TELLING, Outcome
from tests.chaos.judge.wellness import until_terminated
from tests.chaos.launch import NO_MUTANT
from tests.chaos.nemesis import FAULTS
from tests.chaos.run import Report, run


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="how long faults come (10)")
    parser.add_argument("--seed", type=int, help="of the schedule; a fresh one if it is not given")
    parser.add_argument("--clients", type=int, default=8, help="clients at work at the same time (8)")
    parser.add_argument("--operators", type=int, default=3, help="operators at work at the same time (3)")
    parser.add_argument("--no-audit", action="store_true", help="leave out the audit with Spark at the end")
    parser.add_argument("--mutant", default=NO_MUTANT, metavar="NAME", help="put in this bug of tests/sim/mutants")
    parser.add_argument(
        "--only", action="append", choices=sorted(FAULTS), metavar="FAULT", help="faults of this kind only"
    )
    parser.add_argument("--keep", action="store_true", help="keep the directory also after a good run")
    arguments = parser.parse_args()
    seed = secrets.randbits(31) if arguments.seed is None else arguments.seed
    directory = Path(tempfile.mkdtemp(prefix="metaquorum-chaos-"))
    say(f"seed {seed}, in {directory}")
    work = run(
        directory,
        seed,
        arguments.minutes * 60,
        say,
        clients=arguments.clients,
        operators=arguments.operators,
        mutant=arguments.mutant,
        only=arguments.only or (),
    )
    report = asyncio.run(until_terminated(work))
    say(table(report))
    audited = Audited("left out", [])
    if not arguments.no_audit:
        audited = audit(report.data_directories, has_rotten_snapshots=report.faults["rot in a snapshot"] > 0)
    say(f"{'audit':<26}{audited.word}")
    problems = [*report.judgement.problems, *audited.problems]
    if problems:
        say("\n" + "\n\n".join(problems))
        say(f"\neverything is kept in {directory}")
        say(f"the same schedule again: make chaos MINUTES={arguments.minutes:g} SEED={seed}")
        return 1
    if arguments.keep:
        say(f"kept: {directory}")
    else:
        shutil.rmtree(directory)
    return 0


def table(report: Report) -> str:
    """The run in figures, for people."""
    rows = [("seed", f"{report.seed}"), ("time", f"{report.seconds:.0f} s, {report.rounds} rounds")]
    rows += [(f"  {kind}", f"{count}") for kind, count in sorted(report.faults.items())]
    rows += [
        ("faults", f"{report.faults.total()}"),
        ("daemons started again", f"{report.restarts}"),
        ("operations answered", f"{sum(report.outcomes[each] for each in TELLING):,}"),
        ("  failed, nothing done", f"{report.outcomes[Outcome.FAILED]:,}"),
        ("  of unknown outcome", f"{report.outcomes[Outcome.UNKNOWN]:,}"),
    ]
    return "\n".join([*(f"{name:<26}{value}" for name, value in rows), *report.judgement.lines()])


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
