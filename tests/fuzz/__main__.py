"""Runs the fuzzer.

    python -m tests.fuzz --inputs 1000000            so many inputs, the same number for each target, on all cores
    python -m tests.fuzz --only log-directory        one target (again for more)
    python -m tests.fuzz --only NAME --input HEX     one input, with the traceback

Ends with a table: what became of the inputs of each target. Fails if an input was answered with anything but a refusal or an
answer, took too long, or took too much memory; it is printed, minimised.
"""

import argparse
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tests.fuzz.report import table
from tests.fuzz.running import Tally, chunks, judge, run
from tests.fuzz.targets import targets
from tests.journal import opened


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--inputs", type=int, default=20_000, help="how many in all (20000)")
    parser.add_argument("--seed", type=int, default=1, help="from which they follow (1)")
    parser.add_argument("--only", action="append", choices=sorted(targets()), metavar="NAME", help="this target")
    parser.add_argument("--input", type=bytes.fromhex, metavar="HEX", help="only this input, of the target named")
    parser.add_argument(
        "--journal", type=Path, metavar="DIRECTORY", help="keep results there, and go on from them next time"
    )
    arguments = parser.parse_args()
    names = arguments.only or list(targets())
    if arguments.input is not None:
        outcome, wrong = judge(targets()[names[0]], arguments.input)
        print(wrong or outcome)
        return 1 if wrong else 0
    work = chunks(names, arguments.inputs, arguments.seed)
    console = Console(stderr=True)
    columns = (TextColumn("fuzz"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("fuzz", total=sum(chunk.inputs for chunk in work))

        def advance(tally: Tally) -> None:
            progress.advance(task, tally.outcomes.total())
            for failure in tally.failures:
                print(f"\n{failure}", flush=True)

        tallies = run(work, advance, opened(arguments.journal, "fuzz"))
    print(table(tallies))
    return 1 if any(tally.failures for tally in tallies.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
