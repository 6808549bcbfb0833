"""Audits many healthy logs. Any finding is a false alarm, and its logs are kept.

python -m tests.snapshots.healthy_logs --logs 200
python -m tests.snapshots.healthy_logs --logs 1 --first 17      seed 17 again
python -m tests.snapshots.healthy_logs --logs 50 --only compacted
"""

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from snapshots.offline.session import start_session
from tests.snapshots.healthy_logs.rounds import KINDS, rounds


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.snapshots.healthy_logs", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--logs", type=int, default=200, help="how many logs, at least (200)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (1)")
    parser.add_argument("--only", choices=[*KINDS], help="logs of one kind only")
    arguments = parser.parse_args(words)
    root = Path(tempfile.mkdtemp(prefix="healthy-logs-"))
    spark = start_session("local[2]", shuffle_partitions=2)
    logs, alarms = Counter[str](), 0
    try:
        for each in rounds(spark, arguments.logs, root, first=arguments.first, only=arguments.only):
            logs[each.kind] += each.logs
            alarms += len(each.alarms)
            told = "clean" if not each.alarms else f"{len(each.alarms)} false alarms, logs kept in {root}"
            print(f"seed {each.seed:4}  {each.kind:10}  {each.logs} logs  {told}", flush=True)
            for alarm in each.alarms:
                print(f"    {alarm}", flush=True)
    finally:
        spark.stop()
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(logs.items()))
    print(f"{logs.total()} healthy logs ({kinds}): {alarms or 'no'} false alarms")
    return 1 if alarms else 0


if __name__ == "__main__":
    sys.exit(main())
