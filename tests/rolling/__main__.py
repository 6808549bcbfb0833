"""The rolling restart of the runbook, on real daemons under load: `make rolling`.

Three controllers, some brokers with records, and one topic with three replicas are processes and logs of this machine. Producers
append at a steady rate with acks=all, and a consumer reads all. Then each controller and each broker is restarted, one after the
other, with the commands of `deploy/runbook.md`. The claims:

    records     each acknowledged record was read once, at its offset, in order; no record failed
    replicas    all ISRs are full at the end
    leaders     of the partitions that prefer a broker, others lead at most 10 % afterwards, and nobody gave a command

Exit code 1: a claim is false, and the cluster's directory is kept. The times of appends are shown, and are no claim.
"""

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

import uvloop
from rich.console import Console

from quorum.devcluster.cluster import DevCluster, DevClusterError
from tests.chaos.judge.wellness import until_terminated
from tests.rolling.figures import Phase, PhaseFigures, figures, figures_of, json_of, table_of
from tests.rolling.load import Load
from tests.rolling.notes import Totals
from tests.rolling.restarts import Balance, Restarts, StepFailed, balance_of
from tests.sim.runner import progress_bar

TOPIC: Final = "orders"
CONTROLLERS: Final = 3
COPIES: Final = 3
FIRST_RECORDS: Final = 100
INTERVAL_KEY: Final = "leader.imbalance.check.interval.seconds"
BALANCED_WITHIN_S: Final = 30.0
"""How long the leaders may take to be balanced, beside the interval of the checks."""
stdout, stderr = Console(width=130, highlight=False), Console(stderr=True, highlight=False)


class Report(NamedTuple):
    """The outcome of a run. `problems` are whole sentences; none means that every claim holds."""

    rows: list[PhaseFigures]
    totals: Totals
    balance: dict[int, Balance]
    balanced_s: float | None
    problems: list[str]


class Phases:
    """Notes the phases as they begin, and shows them on a bar."""

    def __init__(self, count: int) -> None:
        self.all: list[Phase] = []
        self._bar = progress_bar("rolling restart")
        self._task = self._bar.add_task("restarts", total=count)

    def __enter__(self) -> "Phases":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def begin(self, name: str) -> None:
        if self.all:
            self._bar.advance(self._task)
        self.all.append(Phase(name, time.monotonic_ns()))
        stderr.print(f"{(self.all[-1].began_ns - self.all[0].began_ns) / 1e9:7.1f} s  {name}")


async def run(directory: Path, arguments: argparse.Namespace) -> Report:
    """See the file's head. Leaves the stopped cluster in `directory`."""
    cluster = DevCluster.create(
        directory / "cluster",
        controllers=CONTROLLERS,
        brokers=arguments.brokers,
        data_plane="partitions",
        controller_settings={INTERVAL_KEY: arguments.check_interval},
    )
    try:
        await cluster.up()
        return await _restarted(cluster, arguments)
    finally:
        await cluster.down()


async def _restarted(cluster: DevCluster, arguments: argparse.Namespace) -> Report:
    brokers = [node.endpoint for node in cluster.layout.brokers]
    load = Load(brokers, TOPIC, arguments.partitions, arguments.rate, arguments.producers)
    problems: list[str] = []
    balanced_s: float | None = None
    async with cluster.client() as client:
        await client.create_topic(TOPIC, arguments.partitions, COPIES, configs={"min.insync.replicas": "2"})
        load.start()
        try:
            await load.goes_on(FIRST_RECORDS)
            with Phases(CONTROLLERS + 2 * len(brokers) + 3) as phases:
                restarts = Restarts(cluster, client, phases.begin)
                phases.begin("before")
                await asyncio.sleep(arguments.seconds)
                try:
                    await restarts.controllers()
                    await restarts.brokers()
                    phases.begin("balancing")
                    balanced_s = await restarts.balanced(TOPIC, arguments.check_interval + BALANCED_WITHIN_S)
                    phases.begin("after")
                    await asyncio.sleep(arguments.seconds)
                except StepFailed as e:
                    problems.append(str(e))
                end_ns = time.monotonic_ns()
            await load.stop()
        finally:
            await load.abandon()
        partitions = (await client.describe_topic(TOPIC)).partitions
    thin = {each.partition: list(each.isr) for each in partitions if len(each.isr) < COPIES}
    problems += [f"ISRs that are not full at the end: {thin}"] if thin else []
    problems += load.notes.judge()
    appends = load.notes.appends
    rows = figures_of(phases.all, end_ns, appends)
    during = [each.took_ns / 1e6 for each in appends if phases.all[1].began_ns <= each.due_ns < phases.all[-1].began_ns]
    if during:
        rows.append(figures("all restarts", sum(row.seconds for row in rows[1:-1]), during))
    return Report(rows, load.notes.totals, balance_of(partitions), balanced_s, problems)


def show(report: Report, interval_s: int) -> None:
    """Prints the report for people."""
    stdout.print(table_of(report.rows))
    totals = report.totals
    stdout.print(f"records: {totals.sent:,} sent, {totals.acknowledged:,} acknowledged, {totals.read:,} read")
    for broker, each in report.balance.items():
        away = f"{each.led_by_others} of the {each.preferring} partitions that prefer it are led by others"
        stdout.print(f"broker {broker}: leads {each.led}; {away}")
    if report.balanced_s is not None:
        asked = f"{INTERVAL_KEY} is {interval_s} here, and 300 by default"
        stdout.print(f"leaders balanced without a command, {report.balanced_s:.1f} s after the last restart ({asked})")
    for problem in report.problems:
        stdout.print(f"FALSE: {problem}", markup=False)
    if not report.problems:
        stdout.print("every acknowledged record was read once, at its offset and in order; all ISRs are full")


def as_json(report: Report) -> dict[str, Any]:
    """The report for programs."""
    return {
        "phases": json_of(report.rows),
        "records": report.totals._asdict(),
        "leaders": {f"{broker}": each._asdict() for broker, each in report.balance.items()},
        "balanced_s": report.balanced_s,
        "problems": report.problems,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.rolling", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--brokers", type=int, default=4)
    parser.add_argument("--partitions", type=int, default=48)
    parser.add_argument("--rate", type=float, default=100.0, help="records a second, of all producers together (100)")
    parser.add_argument("--producers", type=int, default=2)
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="how long the times before and after are measured (10)"
    )
    parser.add_argument("--check-interval", type=int, default=10, metavar="SECONDS", help=f"{INTERVAL_KEY} (10)")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument("--keep", action="store_true", help="keep the cluster's directory also after a good run")
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="metaquorum-rolling-"))
    try:
        report = uvloop.run(until_terminated(run(directory, arguments)))
    except (DevClusterError, TimeoutError) as e:
        stderr.print(f"the run ended early: {e!r}; kept: {directory}", markup=False)
        return 1
    if arguments.output == "json":
        sys.stdout.write(json.dumps(as_json(report)) + "\n")
    else:
        show(report, arguments.check_interval)
    if report.problems or arguments.keep:
        stderr.print(f"kept: {directory}")
    else:
        shutil.rmtree(directory)
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
