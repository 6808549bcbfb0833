"""`python -m benchmarks.offline`: how fast the offline jobs read a simulated year, beside a plain reader of the same files.

    plain reader   one Python process: reads one node's log, checks each CRC and the chain, and decodes each record
    integrity      the audit's checks of all batches, of all nodes and between nodes
    compaction     one node's log to the snapshot at its last mark; the bytes must equal the controllers' snapshot
    audit          the whole audit of all nodes; it must find nothing
    history        one node's log to the tables of its history; they must end where the log does

All of it in one run, on `local[2]`, once for a log of half the records, and once for the whole log. Spark's start does not count.
Example of a reading: a job needs as much memory for the whole log as for the half, and twice the time. So a log of any length
can be read.

The rate counts the records that a job reads: those of all nodes for integrity and audit. The ratio to the plain reader is the
figure to compare, because rates are of this machine. On a busy machine, read the CPU time of a record.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.offline.process_tree import watched
from benchmarks.offline.year import make_with_bar, partitions_of
from metadata_log.format.codec import decode_batch
from snapshots.offline.audit.run import audit, read_all_batches
from snapshots.offline.compaction import compact
from snapshots.offline.history.run import make_history
from snapshots.offline.inputs import find_log
from snapshots.offline.java import JavaNotFound
from snapshots.offline.scan import FileRange, scan
from snapshots.offline.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "local[2]"
console = Console(stderr=True)


class Figure(NamedTuple):
    """One job over one log."""

    job: str
    records: int
    """How many records the job has read."""
    seconds: float
    cpu_s: float
    peak_mb: int
    python_mb: int
    """The peak without the JVM, whose heap grows until it is full."""

    @property
    def rate(self) -> float:
        return self.records / self.seconds


class WrongResult(Exception):
    """A job was fast, and its result is wrong. The text says how."""


def plain_reader(path: Path) -> int:
    """Read one node's log in this process. Return the number of records."""
    log = find_log(str(path))
    count = 0
    for segment in log.segments:
        file = log.directory.open(segment.name)
        for each in scan(file, FileRange(segment.name, 0, segment.size, None, None), log.durable_end):
            if each.batch is None or not each.chain_ok:
                raise WrongResult(f"{segment.name}, position {each.position}: {each.error}")
            count += len(decode_batch(each.batch))
        file.close()
    return count


def integrity(spark: "SparkSession", paths: Sequence[Path]) -> int:
    nodes, findings = read_all_batches(spark, [str(path) for path in paths])
    if findings or len(nodes) < len(paths):
        raise WrongResult(f"the integrity check has findings: {findings[:1]}")
    return sum(numbers.records for numbers in nodes.values())


def compaction(spark: "SparkSession", path: Path) -> int:
    with tempfile.TemporaryDirectory(prefix="metaquorum-compacted-") as out:
        result = compact(spark, str(path), None, out)
    if result.same_as_source is not True:
        raise WrongResult(f"the compacted file at {result.end} is not the controllers' file")
    return result.end.offset


def whole_audit(spark: "SparkSession", paths: Sequence[Path]) -> int:
    result = audit(spark, [str(path) for path in paths])
    if not result.is_clean:
        raise WrongResult(f"the audit has findings: {result.findings[:1]}")
    return sum(numbers.records for numbers in result.nodes.values())


def history(spark: "SparkSession", path: Path) -> int:
    with tempfile.TemporaryDirectory(prefix="metaquorum-history-") as out:
        made = make_history(spark, str(path), out, uncommitted=True)
    end = made.baseline.end.offset
    if made.waiting or not made.rows["leadership"][0]:
        raise WrongResult(f"the history ends at {end}, and leaves {made.waiting} records behind")
    return end


def measure(job: str, run: Callable[[], int]) -> Figure:
    with watched() as watch:
        began = time.perf_counter()
        records = run()
        seconds = time.perf_counter() - began
    figure = Figure(job, records, seconds, *watch.usage)
    console.print(f"{job}: {figure.rate:,.0f} records/s")
    return figure


def measure_log(spark: "SparkSession", paths: Sequence[Path], jobs: Sequence[str]) -> list[Figure]:
    runs: dict[str, Callable[[], int]] = {
        "plain reader": lambda: plain_reader(paths[0]),
        "integrity": lambda: integrity(spark, paths),
        "compaction": lambda: compaction(spark, paths[0]),
        "audit": lambda: whole_audit(spark, paths),
        "history": lambda: history(spark, paths[0]),
    }
    return [measure(job, runs[job]) for job in ("plain reader", *jobs)]


def rows_of(half: Sequence[Figure], whole: Sequence[Figure]) -> list[dict[str, Any]]:
    """Return the figures as documents: each job with its ratios to the plain reader, and to itself at half the size."""
    plain = whole[0]
    return [
        {
            "job": big.job,
            "records": big.records,
            "records_per_second": round(big.rate),
            "ratio_to_plain_reader": round(big.rate / plain.rate, 2),
            "cpu_us_per_record": round(big.cpu_s / big.records * 1e6, 2),
            "seconds": round(big.seconds, 1),
            "time_to_half": round(big.seconds / small.seconds, 2),
            "cpu_to_half": round(big.cpu_s / max(small.cpu_s, 0.01), 2),
            "peak_mb": big.peak_mb,
            "peak_mb_at_half": small.peak_mb,
            "python_mb": big.python_mb,
            "python_mb_at_half": small.python_mb,
        }
        for small, big in zip(half, whole, strict=True)
    ]


def show(rows: Sequence[dict[str, Any]], title: str) -> None:
    table = Table(title=title, caption="memory in MB; at half: the same job over a log of half the records")
    for heading in rows[0]:
        table.add_column(heading.replace("_", " "), justify="left" if heading == "job" else "right")
    for row in rows:
        table.add_row(*(f"{value:,}" if isinstance(value, int) else str(value) for value in row.values()))
    Console(width=170).print(table)


def run(records: int, directory: Path, nodes: int, seed: int, jobs: Sequence[str]) -> list[dict[str, Any]]:
    """Make both logs unless they are there, and measure all jobs."""
    partitions = partitions_of(records)
    half = make_with_bar(directory / f"half-of-{records}", records // 2, nodes, seed, partitions)
    whole = make_with_bar(directory / f"year-of-{records}", records, nodes, seed, partitions)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spark = start_session(MASTER, app_name="metaquorum benchmark", shuffle_partitions=8)  # as the commands do
        try:
            integrity(spark, half[:1])  # not counted: starts Spark's Python workers
            figures = [measure_log(spark, paths, jobs) for paths in (half, whole)]
        finally:
            spark.stop()
    return rows_of(*figures)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.offline", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000, help="about how many records the log has")
    parser.add_argument(
        "--dir", type=Path, help="where the logs are kept for the next run; default: a temporary directory"
    )
    parser.add_argument("--nodes", type=int, default=3, choices=(1, 2, 3), help="how many controllers")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", default="integrity,compaction,audit,history", help="which jobs, comma-separated")
    parser.add_argument("-o", dest="output", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    directory = arguments.dir or Path(tempfile.mkdtemp(prefix="metaquorum-year-"))
    try:
        rows = run(arguments.records, directory, arguments.nodes, arguments.seed, arguments.jobs.split(","))
    except (WrongResult, JavaNotFound, FileExistsError) as e:
        print(e, file=sys.stderr)
        return 1
    finally:
        if arguments.dir is None:
            shutil.rmtree(directory)
    title = f"a year of {arguments.records:,} records on {arguments.nodes} nodes, {MASTER}"
    load = round(os.getloadavg()[0], 1)
    if arguments.output == "json":
        print(json.dumps({"title": title, "load_average": load, "jobs": rows}, indent=2))
    else:
        show(rows, f"{title}; load average {load}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
