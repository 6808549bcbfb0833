"""`make bench`: the product beside its peer, in one run on this machine; ratios count, absolute times do not.

    P1  one write at a time: median latency
    P2  64 writes in flight: writes a second, unary calls and the pipelined stream
    P3  partitions created a second, in batched requests (the peer: keys in transactions of 128)
    P4  kill -9 of the leader until the next acknowledged write
    P5  the leader paused (SIGSTOP) until the next acknowledged write

For P1 to P3 both clusters are up, and measured in short rounds in turn (`benchmarks.rounds`): the table has the median of the
rounds' ratios with its quartiles, and the CPU time of an operation in each process. Every server writes with fsync; the servers
and the client share the machine. Both are asked by the same kind of client: Python, grpc.aio, uvloop.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks.failover import killed_s, paused_s
from benchmarks.load import Call
from benchmarks.ours import OurCluster
from benchmarks.peer_etcd import EtcdCluster, EtcdNotFound
from benchmarks.rounds import Load, Rounds, Side

TUNED = ("--heartbeat-interval", "20", "--election-timeout", "200")
PARTITIONS, TXN_KEYS = 1_000, 128
PARTITION_ROUNDS_MAX = 3
"""Maximum number of rounds of P3. Each round creates some 100,000 partitions, and they stay."""
UNCOUNTED = 2
"""How many rounds of each load go before the rounds that count. After another load, a process is slow for some seconds."""
console = Console(stderr=True)


class Row(NamedTuple):
    what: str
    peer: str
    ours: str
    ratio: str
    cpu: str
    aim: str
    reached: bool


class Aim(NamedTuple):
    """The bound of a ratio: a latency has to stay below, a rate above."""

    ratio: float

    def text(self, *, is_latency: bool) -> str:
        return f"{'<=' if is_latency else '>='} {self.ratio:g} x"

    def is_reached(self, ratio: float, *, is_latency: bool) -> bool:
        return ratio <= self.ratio if is_latency else ratio >= self.ratio


AIMS = {"P1 one write, p50": Aim(0.9), "P2 unary": Aim(0.7), "P2 Submit": Aim(1.5), "P3 partitions": Aim(2)}


def loads(etcd: EtcdCluster, ours: OurCluster) -> list[Load]:
    def side(cluster: EtcdCluster | OurCluster, make: Callable[[], Awaitable[Call]], each: int = 1) -> Side:
        async def nothing() -> None:
            return None

        async def begin() -> tuple[Call, Callable[[], Awaitable[None]]]:
            return await make(), nothing

        return Side(cluster.pids, begin, each)

    puts = {"etcd": side(etcd, etcd.put_call), "ours": side(ours, ours.put_call)}
    stream: Any = ours.submit_call
    partitions = {
        "etcd": side(etcd, lambda: etcd.txn_call(TXN_KEYS), TXN_KEYS),
        "ours": side(ours, lambda: ours.partitions_call(PARTITIONS), PARTITIONS),
    }
    return [
        Load("P1 one write, p50", 1, True, puts),
        Load("P2 unary", 64, False, puts),
        Load("P2 Submit", 64, False, {"etcd": puts["etcd"], "ours": Side(ours.pids, stream)}),
        Load("P3 partitions", 4, False, partitions),
    ]


async def measure_loads(directory: Path, rounds: int, seconds: float) -> list[Row]:
    rows: list[Row] = []
    directory.joinpath("etcd").mkdir()
    async with EtcdCluster(directory / "etcd") as etcd, OurCluster(directory / "ours") as ours:
        for load in loads(etcd, ours):
            count = min(rounds, PARTITION_ROUNDS_MAX) if load.name.startswith("P3") else rounds
            console.print(f"{load.name}: {count} rounds of etcd and metaquorum in turn")
            await _uncounted(load, seconds)
            measured = Rounds(load)
            for _ in range(count):
                await measured.one(seconds)
            rows.append(_row(measured, AIMS[load.name]))
    return rows


async def _uncounted(load: Load, seconds: float) -> None:
    for _ in range(0 if load.name.startswith("P3") else UNCOUNTED):
        await Rounds(load).one(seconds)


def _row(measured: Rounds, aim: Aim) -> Row:
    load = measured.load
    ratio = measured.ratio("ours", "etcd")
    unit, digits = (" ms", 2) if load.is_latency else ("/s", 0)
    peer, own = (f"{measured.figure(side):,.{digits}f}{unit}" for side in ("etcd", "ours"))
    return Row(
        load.name,
        peer,
        own,
        f"{ratio.median:.2f} x ({ratio.low:.2f} to {ratio.high:.2f})",
        f"{_cpu(measured, 'etcd')}; {_cpu(measured, 'ours')}",
        aim.text(is_latency=load.is_latency),
        aim.is_reached(ratio.median, is_latency=load.is_latency),
    )


def _cpu(measured: Rounds, side: str) -> str:
    """The leader's and the followers' CPU time of an operation, in microseconds."""
    leader_us, *followers_us = measured.cpu_us(side).values()
    return " ".join([f"{leader_us:,.0f}", *(f"{us:,.0f}" for us in followers_us)])


async def measure_failures(directory: Path, trials: int) -> list[Row]:
    directory.joinpath("default").mkdir()
    async with EtcdCluster(directory / "default") as cluster:
        console.print(f"etcd: the leader killed, then paused, {trials} times each")
        etcd_s, etcd_paused_s = await killed_s(cluster, trials), await paused_s(cluster, trials)
    directory.joinpath("tuned").mkdir()
    async with EtcdCluster(directory / "tuned", base_port=23_890, flags=TUNED) as cluster:
        console.print(f"etcd with {' '.join(TUNED)}: the leader killed {trials} times")
        tuned_s = await killed_s(cluster, trials)
    async with OurCluster(directory / "ours") as own:
        console.print(f"metaquorum: the active controller killed, then paused, {trials} times each")
        ours_s, ours_paused_s = await killed_s(own, trials), await paused_s(own, trials)

    def row(what: str, peer_s: float, own_s: float, most_s: float | None = None) -> Row:
        aim, reached = ("<= 0.9 x", own_s <= 0.9 * peer_s) if most_s is None else (f"<= {most_s} s", own_s <= most_s)
        return Row(what, f"{peer_s:.3f} s", f"{own_s:.3f} s", f"{own_s / peer_s:.2f} x", "", aim, reached)

    own_s = statistics.median(ours_s)
    return [
        row("P4 failover, p50 (etcd default)", statistics.median(etcd_s), own_s, 0.15),
        row("P4 failover, p50 (etcd tuned)", statistics.median(tuned_s), own_s, 0.15),
        row("P4 failover, worst (etcd default)", max(etcd_s), max(ours_s), 0.5),
        row("P5 leader paused, p50", statistics.median(etcd_paused_s), statistics.median(ours_paused_s)),
    ]


def show(rows: list[Row], rounds: int, seconds: float, trials: int) -> None:
    title = f"metaquorum beside etcd, one run on this machine ({rounds} rounds of {seconds:g} s a load, {trials} kills)"
    table = Table(title=title)
    headings = (
        "what",
        "etcd",
        "metaquorum",
        "ratio (quartiles)",
        "us of CPU: leader, followers; ours",
        "aim",
        "reached",
    )
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for row in rows:
        table.add_row(*row[:-1], "yes" if row.reached else "no")
    Console().print(table)


async def run(rounds: int, seconds: float, trials: int) -> None:
    with tempfile.TemporaryDirectory(prefix="metaquorum-bench-") as directory:
        rows = await measure_loads(Path(directory), rounds, seconds)
    with tempfile.TemporaryDirectory(prefix="metaquorum-bench-") as directory:
        rows += await measure_failures(Path(directory), trials) if trials else []
    show(rows, rounds, seconds, trials)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=10, help="how often each load of P1 to P3 is measured on each side"
    )
    parser.add_argument("--seconds", type=float, default=1.0, help="how long each load lasts in a round")
    parser.add_argument(
        "--trials", type=int, default=20, help="how many leaders are killed, and paused; 0: P1 to P3 only"
    )
    arguments = parser.parse_args()
    try:
        uvloop.run(run(arguments.rounds, arguments.seconds, arguments.trials))
    except EtcdNotFound as e:
        print(e, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
