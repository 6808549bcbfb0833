"""`python -m benchmarks.entities`: entities, watches and sessions beside etcd, in one run on this machine; ratios count.

    writes    puts one at a time and 64 in flight, compare-and-set, transactions of 16 and 128 puts
    watches   1 to 1,000 watchers of one prefix at a fixed rate of writes: latency of a delivery, CPU of the servers; and the
              highest rate with 1,000 watchers at which 99 of 100 deliveries take less than 250 ms (`benchmarks.entities.fan_out`)
    sessions  how exactly a session of 3 s ends (`benchmarks.entities.expiry`)

Both clusters have three servers with fsync, and are up all the time. They are measured in short rounds in turn. Servers, writer
and watchers share the machine, so absolute figures are of this machine, and the title has the load average at the end. Both sides
are asked by the same clients. Watches are opened at the leader, and with the most watchers also at the followers, and at a broker
(metaquorum only).
"""

import argparse
import json
import os
import random
import sys
import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import uvloop
from rich.console import Console

from benchmarks.entities.etcd_side import EtcdSide
from benchmarks.entities.expiry import lateness
from benchmarks.entities.fan_out import LADDER, FanOut, fan_out, highest_rate
from benchmarks.entities.our_side import OurSide
from benchmarks.entities.sides import BROKER, FOLLOWERS, LEADER, EntitySide, side_of
from benchmarks.entities.tables import ETCD, OURS, Found, as_json, show
from benchmarks.ours import OurCluster
from benchmarks.peer_etcd import EtcdCluster, EtcdNotFound
from benchmarks.rounds import Load, Rounds

CAS_KEYS = 128
WATCHERS = (1, 10, 100, 1_000)
console = Console(stderr=True)
Sides = Mapping[str, EntitySide]


def loads(sides: Sides) -> list[Load]:
    def load(name: str, callers: int, method: str, *arguments: int, is_latency: bool = False) -> Load:
        made = {
            side: side_of(cluster, partial(getattr(cluster, method), *arguments)) for side, cluster in sides.items()
        }
        return Load(name, callers, is_latency, made)

    return [
        load("one put, p50", 1, "put", is_latency=True),
        load("puts, 64 in flight", 64, "put"),
        load("compare-and-set, 64 in flight", 64, "compare_and_set", CAS_KEYS),
        load("transactions of 16 puts, 16 in flight", 16, "transaction", 16),
        load("transactions of 128 puts, 4 in flight", 4, "transaction", 128),
    ]


async def measure_loads(sides: Sides, rounds: int, seconds: float, uncounted: int) -> list[Rounds]:
    found = []
    for load in loads(sides):
        console.print(f"{load.name}: {rounds} rounds")
        for _ in range(uncounted):
            await Rounds(load).one(seconds)
        measured = Rounds(load)
        for _ in range(rounds):
            await measured.one(seconds)
        found.append(measured)
    return found


async def measure_fans(sides: Sides, arguments: argparse.Namespace) -> dict[tuple[str, int], dict[str, list[FanOut]]]:
    found: dict[tuple[str, int], dict[str, list[FanOut]]] = {}
    most = max(arguments.watchers)
    places = [(LEADER, count) for count in arguments.watchers] + [(FOLLOWERS, most), (BROKER, most)]
    for place, count in places:
        by_side: dict[str, list[FanOut]] = {}
        found[place, count] = by_side
        for number in range(arguments.watch_rounds):
            for name, side in _in_turn(sides, number):
                window = partial(fan_out, side, place, count, arguments.rate, arguments.watch_seconds)
                if place != BROKER:
                    figures = await window()
                elif isinstance(side, OurSide):
                    async with side.with_broker() as pid:
                        figures = await window(pid)
                else:
                    continue
                by_side.setdefault(name, []).append(figures)
                console.print(
                    f"{name}, {count:,} watchers at the {place}: p50 {figures.p50_ms:.1f} ms, p99 {figures.p99_ms:.1f} ms,"
                    f" leader {figures.leader_cpu:.0%}, missing {figures.missing:,}",
                    highlight=False,
                )
    return found


async def measure_ladder(sides: Sides, arguments: argparse.Namespace) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number in range(arguments.ladder_rounds):
        for name, side in _in_turn(sides, number):

            async def measure(rate: float, side: EntitySide = side) -> FanOut:
                return await fan_out(side, LEADER, max(arguments.watchers), rate, arguments.watch_seconds)

            best, steps = await highest_rate(measure, arguments.ladder)
            found.setdefault(name, []).append(best)
            shown = ", ".join(f"{step.rate:g}/s: {step.p99_ms:.0f} ms" for step in steps)
            console.print(f"{name}, p99 by rate: {shown}", highlight=False)
    return found


async def measure_expiry(sides: Sides, arguments: argparse.Namespace) -> dict[str, list[list[float]]]:
    found: dict[str, list[list[float]]] = {}
    dice = random.Random(1)
    for number in range(arguments.session_rounds):
        for name, side in _in_turn(sides, number):
            late = await lateness(side, arguments.sessions, dice)
            found.setdefault(name, []).append(late)
            console.print(f"{name}, sessions end {late[0]:.3f} to {late[-1]:.3f} s late", highlight=False)
    return found


def _in_turn(sides: Sides, number: int) -> list[tuple[str, EntitySide]]:
    """The sides; another one begins in each round."""
    items = list(sides.items())
    shift = number % len(items)
    return items[shift:] + items[:shift]


async def run(arguments: argparse.Namespace) -> Found:
    """Measures everything that the arguments ask for."""
    with tempfile.TemporaryDirectory(prefix="metaquorum-bench-") as name:
        async with AsyncExitStack() as stack:
            sides: dict[str, EntitySide] = {}
            directory = Path(name)
            if arguments.side != OURS:
                directory.joinpath("etcd").mkdir()
                etcd = await stack.enter_async_context(EtcdCluster(directory / "etcd"))
                sides[ETCD] = await stack.enter_async_context(EtcdSide(etcd))
            if arguments.side != ETCD:
                cluster = OurCluster(directory / "ours", 0, daemons=1, data_plane="none", topics=0)
                ours = await stack.enter_async_context(cluster)
                sides[OURS] = await stack.enter_async_context(OurSide(ours))
            return Found(
                await measure_loads(sides, arguments.rounds, arguments.seconds, arguments.uncounted)
                if arguments.rounds
                else [],
                await measure_fans(sides, arguments) if arguments.watch_rounds else {},
                await measure_ladder(sides, arguments) if arguments.ladder_rounds else {},
                await measure_expiry(sides, arguments) if arguments.session_rounds else {},
                os.getloadavg()[0],
            )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.entities", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="how often each write load is measured; 0: not (5)")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long each write load lasts in a round (1)")
    parser.add_argument("--watch-rounds", type=int, default=3, help="how often each number of watchers; 0: none (3)")
    parser.add_argument("--watch-seconds", type=float, default=3.0, help="how long the writes for watchers last (3)")
    parser.add_argument("--rate", type=float, default=200.0, help="writes a second for the watchers (200)")
    parser.add_argument("--watchers", type=int, nargs="+", default=list(WATCHERS))
    parser.add_argument("--ladder", type=int, nargs="+", default=list(LADDER), help="rates to try with most watchers")
    parser.add_argument("--ladder-rounds", type=int, default=1, help="0: no ladder (1)")
    parser.add_argument("--sessions", type=int, default=100, help="how many sessions end at the same time (100)")
    parser.add_argument("--session-rounds", type=int, default=3, help="0: no sessions (3)")
    parser.add_argument("--quick", action="store_true", help="one short round of everything, in less than a minute")
    parser.add_argument(
        "--side", choices=("both", ETCD, OURS), default="both", help="both, unless it is being profiled"
    )
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    arguments.uncounted = 1
    if arguments.quick:
        arguments.uncounted = 0
        for what in ("rounds", "watch_rounds", "ladder_rounds", "session_rounds"):
            setattr(arguments, what, min(1, getattr(arguments, what)))
        arguments.seconds, arguments.watch_seconds, arguments.ladder = 0.5, 1.0, [50, 200]
    return arguments


def main() -> int:
    arguments = parse()
    try:
        found = uvloop.run(run(arguments))
    except EtcdNotFound as e:
        print(e, file=sys.stderr)
        return 1
    if arguments.output == "json":
        print(json.dumps(as_json(found)))
    else:
        show(
            found,
            f"entities beside etcd, one run on this machine ({arguments.rounds} rounds of {arguments.seconds:g} s)",
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
