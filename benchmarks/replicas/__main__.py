"""`python -m benchmarks.replicas`: replicated partitions beside Apache Kafka, in one run on this machine; ratios count.

    appends   batches of 100 records, at full speed: records/s and MB/s
    paced     single records of 1 kB at a fixed rate, each sent at once: latency
    recovery  kill -9 of the leader of 1,000 partitions, until each has acknowledged another append

Both sides have three replicas of each partition, `min.insync.replicas` 2 and acks=all, and two producer processes. The promises
of an acknowledgement differ. A broker of metaquorum acknowledges records that every replica in sync has flushed. Kafka by
default acknowledges records in page caches. So Kafka is measured twice: as it comes, and with `flush.messages` 1, which flushes
each batch before the acknowledgement.

The sides are measured in turn, and the table has the medians of the rounds. Other work on the machine changes all figures, so the
title of the table has the load. Without Maven or Java the benchmark says so, and measures metaquorum alone.
"""

import argparse
import asyncio
import json
import math
import os
import signal
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.replicas.figures import Latency, Recovery, Throughput
from benchmarks.replicas.kafka_jars import VERSION, KafkaNotFound, find_jars
from benchmarks.replicas.our_brokers import OurBrokers
from benchmarks.replicas.peer_kafka import BROKERS, PRODUCERS, WINDOW_S, KafkaCluster

PARTITIONS, BATCH_RECORDS = 12, 100
SIZES = (100, 1_000)
PACED_PER_SECOND, PACED_BYTES = 200, 1_000
OURS, CACHED, FLUSHED = "metaquorum", "Kafka", "Kafka, flush.messages=1"
PROMISES = {OURS: "flushed", CACHED: "in page caches", FLUSHED: "flushed"}
TOPICS = {CACHED: "cached", FLUSHED: "flushed"}
Figures = Throughput | Latency
Measure = Callable[[], Awaitable[Figures]]
console = Console(stderr=True)


def full_speed(size: int, seconds: float, ours: OurBrokers, kafka: KafkaCluster | None) -> dict[str, Measure]:
    """By side, a function that measures it once. Kafka's tool measures in whole windows."""
    windows = math.ceil(seconds / WINDOW_S)
    found: dict[str, Measure] = {
        OURS: partial(ours.throughput, "load", size, batch_records=BATCH_RECORDS, seconds=seconds)
    }
    for name, topic in TOPICS.items() if kafka else ():
        assert kafka is not None
        found[name] = partial(kafka.throughput, topic, size, batch_records=BATCH_RECORDS, windows=windows)
    return found


def fixed_rate(seconds: float, ours: OurBrokers, kafka: KafkaCluster | None) -> dict[str, Measure]:
    """As `full_speed`, for latencies."""
    rate = PACED_PER_SECOND
    found: dict[str, Measure] = {OURS: partial(ours.paced, "load", PACED_BYTES, per_second=rate, seconds=seconds)}
    for name, topic in TOPICS.items() if kafka else ():
        assert kafka is not None
        found[name] = partial(kafka.paced, topic, PARTITIONS, PACED_BYTES, per_second=rate, seconds=seconds)
    return found


async def in_turn(sides: dict[str, Measure], rounds: int) -> dict[str, dict[str, float]]:
    """The medians of the rounds, by side and figure. Each round begins with another side. A first round is not counted: a Java
    process needs some time to become fast."""
    samples: dict[str, list[Figures]] = {name: [] for name in sides}
    names = list(sides)
    for number in range(-1, rounds):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            found = await sides[name]()
            if number >= 0:
                samples[name].append(found)
    return {name: _medians(several) for name, several in samples.items()}


def _medians(several: list[Figures]) -> dict[str, float]:
    columns = zip(*several, strict=True)
    return {key: statistics.median(values) for key, values in zip(several[0]._fields, columns, strict=True)}


async def measure(directory: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """All figures, as `-o json` prints them."""
    peer = None if arguments.no_peer else _peer(directory)
    async with AsyncExitStack() as stack:
        kafka = await stack.enter_async_context(peer) if peer else None
        ours = await stack.enter_async_context(OurBrokers(directory / "ours"))
        loads = await _loads(arguments.rounds, arguments.seconds, ours, kafka) if arguments.rounds else []
        recoveries = await _recoveries(arguments.partitions, ours, kafka) if arguments.partitions else {}
    return {
        "kafka": VERSION if peer else None,
        "load_average": os.getloadavg()[0],
        "rounds": arguments.rounds,
        "seconds": arguments.seconds,
        "appends": loads,
        "recovery": [{"side": name, **each._asdict()} for name, each in recoveries.items()],
    }


async def _loads(rounds: int, seconds: float, ours: OurBrokers, kafka: KafkaCluster | None) -> list[dict[str, Any]]:
    if kafka is not None:
        await kafka.create_topic(TOPICS[CACHED], PARTITIONS, flushes=False)
        await kafka.create_topic(TOPICS[FLUSHED], PARTITIONS, flushes=True)
    await ours.create_topic("load", PARTITIONS)
    rows: list[dict[str, Any]] = []
    for size in SIZES:
        console.print(f"appends of {size} bytes: {rounds} rounds of each side in turn")
        found = await in_turn(full_speed(size, seconds, ours, kafka), rounds)
        rows += _rows(f"batches of {BATCH_RECORDS} records of {size:,} B", found)
    console.print("single records at a fixed rate")
    found = await in_turn(fixed_rate(seconds, ours, kafka), rounds)
    return rows + _rows(f"{PACED_PER_SECOND} single records of {PACED_BYTES:,} B a second", found)


async def until_terminated(work: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    """`work`; a SIGTERM cancels it, so that no server is left behind."""
    task = asyncio.get_running_loop().create_task(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


def _peer(directory: Path) -> KafkaCluster | None:
    try:
        find_jars()
    except KafkaNotFound as e:
        console.print(f"{e}. metaquorum is measured alone")
        return None
    return KafkaCluster(directory / "kafka")


def _rows(load: str, found: dict[str, dict[str, float]]) -> list[dict[str, Any]]:
    """`ratio`: ours to this side's; of the rate, or of the median latency."""
    own = found[OURS]
    key = "p50_ms" if "p50_ms" in own else "records_per_s"
    return [
        {"load": load, "side": name, "acknowledged": PROMISES[name], **each, "ratio": own[key] / each[key]}
        for name, each in found.items()
    ]


async def _recoveries(partitions: int, ours: OurBrokers, kafka: KafkaCluster | None) -> dict[str, Recovery]:
    found = {}
    if kafka is not None:
        console.print(f"Kafka: kill -9 of the leader of {partitions:,} partitions")
        await kafka.create_led_by("recovery", partitions, BROKERS[0], flushes=False)
        found[CACHED] = await kafka.recovery("recovery", partitions, BROKERS[0])
    console.print(f"metaquorum: kill -9 of the leader of {partitions:,} partitions")
    await ours.create_led_by("recovery", partitions, ours.brokers[0])
    return {OURS: await ours.recovery("recovery", partitions, ours.brokers[0]), **found}


def show(found: dict[str, Any]) -> None:
    peer = f"Apache Kafka {found['kafka']}" if found["kafka"] else "no peer"
    title = (
        f"replicated partitions beside {peer}: RF 3, acks=all, {PARTITIONS} partitions, {PRODUCERS} producers, "
        f"{found['rounds']} rounds of {found['seconds']:g} s; load average {found['load_average']:.1f}"
    )
    table = Table(title=title)
    columns = {"records_per_s": "records/s", "mb_per_s": "MB/s", "p50_ms": "p50 ms", "p99_ms": "p99 ms"}
    for heading in ("load", "side", "acknowledged", *columns.values(), "metaquorum to it"):
        table.add_column(heading, justify="left" if heading in ("load", "side", "acknowledged") else "right")
    for row in found["appends"]:
        figures = [f"{row[key]:,.{0 if key == 'records_per_s' else 1}f}" if key in row else "" for key in columns]
        ratio = "" if row["side"] == OURS else f"{row['ratio']:.2f} x"
        table.add_row(row["load"], row["side"], row["acknowledged"], *figures, ratio)
    if found["appends"]:
        Console(width=150).print(table)
    if not found["recovery"]:
        return
    table = Table(title="kill -9 of the leader of all partitions, until each acknowledges an append again")
    for heading in ("side", "partitions", "first s", "p50 s", "last s"):
        table.add_column(heading, justify="left" if heading == "side" else "right")
    for row in found["recovery"]:
        table.add_row(
            row["side"], f"{row['partitions']:,}", *(f"{row[key]:.2f}" for key in ("first_s", "p50_s", "last_s"))
        )
    Console(width=150).print(table)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.replicas", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="how often each load is measured on each side; 0: recovery only (3)"
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each load lasts in a round (5)")
    parser.add_argument("--partitions", type=int, default=1_000, help="led by the killed broker; 0: kill none (1,000)")
    parser.add_argument("--no-peer", action="store_true", help="metaquorum alone")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    arguments = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="metaquorum-bench-") as directory:
        found = asyncio.run(until_terminated(measure(Path(directory), arguments)))
    if arguments.output == "json":
        print(json.dumps(found, indent=2))
    else:
        show(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
