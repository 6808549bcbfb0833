"""`make bench`: the product beside its peer, in one run on this machine; ratios count, absolute times do not.

    P1  one write at a time: median latency
    P2  64 writes in flight: writes a second, unary calls and the pipelined stream
    P3  partitions created a second, in batched requests (the peer: keys in transactions of 128)
    P4  kill -9 of the leader until the next acknowledged write
    P5  the leader paused (SIGSTOP) until the next acknowledged write

Every server writes with fsync; three server processes and the client share the machine. Both are asked by the same kind of
client: Python, grpc.aio, uvloop.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks.load import closed_loop, until_acknowledged
from benchmarks.ours import OurCluster
from benchmarks.peer_etcd import EtcdCluster, EtcdNotFound

TUNED = ("--heartbeat-interval", "20", "--election-timeout", "200")
console = Console(stderr=True)


class Measured(NamedTuple):
    """One side's figures."""

    p1_ms: float
    p2_per_s: float
    submit_per_s: float | None
    p3_per_s: float
    p4_s: list[float]
    p5_s: list[float]


class Row(NamedTuple):
    what: str
    peer: str
    ours: str
    ratio: float
    aim: str
    reached: bool


async def measure_etcd(directory: Path, seconds: float, trials: int) -> tuple[Measured, list[float]]:
    directory.joinpath("default").mkdir()
    async with EtcdCluster(directory / "default") as cluster:
        console.print("etcd: one at a time, 64 in flight, transactions")
        p1 = await closed_loop(await cluster.put_call(), callers=1, seconds=seconds)
        p2 = await closed_loop(await cluster.put_call(), callers=64, seconds=seconds)
        p3 = max(
            [await closed_loop(await cluster.txn_call(), callers=callers, seconds=seconds) for callers in (1, 8)],
            key=lambda figures: figures.per_second,
        )
        console.print(f"etcd: kill -9 of the leader, {trials} times")
        default = await _fail_over(cluster, trials)
        console.print(f"etcd: the leader paused, {trials} times")
        paused = await _pause(cluster, trials)
    directory.joinpath("tuned").mkdir()
    async with EtcdCluster(directory / "tuned", base_port=23_890, flags=TUNED) as cluster:
        console.print(f"etcd with {' '.join(TUNED)}: kill -9 of the leader, {trials} times")
        tuned = await _fail_over(cluster, trials)
    return Measured(p1.p50_ms, p2.per_second, None, p3.per_second * 128, default, paused), tuned


async def measure_ours(directory: Path, seconds: float, trials: int) -> Measured:
    async with OurCluster(directory) as cluster:
        console.print("metaquorum: one at a time, 64 in flight, the stream, partitions")
        p1 = await closed_loop(await cluster.put_call(), callers=1, seconds=seconds)
        p2 = await closed_loop(await cluster.put_call(), callers=64, seconds=seconds)
        call, end = await cluster.submit_call()
        submit = await closed_loop(call, callers=64, seconds=seconds)
        await end()
        p3 = await closed_loop(await cluster.partitions_call(), callers=4, seconds=seconds)
        console.print(f"metaquorum: kill -9 of the active controller, {trials} times")
        failures = await _fail_over(cluster, trials)
        console.print(f"metaquorum: the active controller paused, {trials} times")
        paused = await _pause(cluster, trials)
    return Measured(p1.p50_ms, p2.per_second, submit.per_second, p3.per_second * 1_000, failures, paused)


async def _fail_over(cluster: EtcdCluster | OurCluster, trials: int) -> list[float]:
    seconds: list[float] = []
    for _ in range(trials):
        killed = await cluster.kill_leader()
        seconds.append(await until_acknowledged(cluster.any_put_call()))
        await cluster.bring_back(killed)
        await asyncio.sleep(0.5)
    return seconds


async def _pause(cluster: EtcdCluster | OurCluster, trials: int) -> list[float]:
    seconds: list[float] = []
    for _ in range(trials):
        paused = await cluster.pause_leader()
        seconds.append(await until_acknowledged(cluster.any_put_call()))
        await cluster.resume(paused)
        await asyncio.sleep(0.5)
    return seconds


def rows(etcd: Measured, tuned_s: list[float], ours: Measured) -> list[Row]:
    assert ours.submit_per_s is not None

    def row(
        what: str, unit: str, peer: float, own: float, aim: str, *, most: float | None = None, least: float = 0
    ) -> Row:
        """`most` and `least` bound the ratio."""
        digits = {" ms": 2, " s": 3}.get(unit, 0)
        ratio = own / peer
        reached = ratio <= most if most is not None else ratio >= least
        return Row(what, f"{peer:,.{digits}f}{unit}", f"{own:,.{digits}f}{unit}", ratio, aim, reached)

    def failover(what: str, peer_s: float, own_s: float, most_s: float) -> Row:
        return Row(what, f"{peer_s:.3f} s", f"{own_s:.3f} s", own_s / peer_s, f"<= {most_s} s", own_s <= most_s)

    p4 = statistics.median(ours.p4_s)
    p5 = [statistics.median(side.p5_s) for side in (etcd, ours)]
    return [
        row("P1 one write, p50", " ms", etcd.p1_ms, ours.p1_ms, "<= 0.9 x", most=0.9),
        row("P2 64 in flight, unary", "/s", etcd.p2_per_s, ours.p2_per_s, ">= 0.7 x", least=0.7),
        row("P2 64 in flight, Submit", "/s", etcd.p2_per_s, ours.submit_per_s, ">= 1.5 x", least=1.5),
        row("P3 partitions a second", "/s", etcd.p3_per_s, ours.p3_per_s, ">= 2 x", least=2),
        failover("P4 failover, p50 (etcd default)", statistics.median(etcd.p4_s), p4, 0.15),
        failover("P4 failover, p50 (etcd tuned)", statistics.median(tuned_s), p4, 0.15),
        failover("P4 failover, worst (etcd default)", max(etcd.p4_s), max(ours.p4_s), 0.5),
        row("P5 leader paused, p50", " s", p5[0], p5[1], "<= 0.9 x", most=0.9),
    ]


def show(table_rows: list[Row], seconds: float, trials: int) -> None:
    table = Table(title=f"metaquorum beside etcd, one run on this machine ({seconds:g} s a load, {trials} kills)")
    for heading in ("what", "etcd", "metaquorum", "ratio", "aim", "reached"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for row in table_rows:
        table.add_row(row.what, row.peer, row.ours, f"{row.ratio:.2f} x", row.aim, "yes" if row.reached else "no")
    Console().print(table)


async def run(seconds: float, trials: int) -> None:
    with tempfile.TemporaryDirectory(prefix="metaquorum-bench-") as directory:
        base = Path(directory)
        (base / "etcd").mkdir()
        etcd, tuned = await measure_etcd(base / "etcd", seconds, trials)
        ours = await measure_ours(base / "ours", seconds, trials)
    show(rows(etcd, tuned, ours), seconds, trials)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each load lasts")
    parser.add_argument("--trials", type=int, default=20, help="how many leaders are killed, and paused, on each side")
    arguments = parser.parse_args()
    try:
        uvloop.run(run(arguments.seconds, arguments.trials))
    except EtcdNotFound as e:
        print(e, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
