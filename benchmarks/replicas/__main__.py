"""`python -m benchmarks.replicas`: replicated partitions beside Apache Kafka, in one run on this machine; ratios count.

    appends   batches of 100 records, at full speed: records/s, MB/s, and the latency of a request or record
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
import os
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.replicas.figures import Recovery, Throughput
from benchmarks.replicas.kafka_jars import VERSION, KafkaNotFound, find_jars
from benchmarks.replicas.our_brokers import OurBrokers
from benchmarks.replicas.peer_kafka import BROKERS, KafkaCluster

PARTITIONS, PRODUCERS, BATCH_RECORDS = 12, 2, 100
SIZES = (100, 1_000)
PACED_PER_SECOND = 200
TRIAL_RECORDS = 10_000
OURS, CACHED, FLUSHED = "metaquorum", "Kafka", "Kafka, flush.messages=1"
PROMISES = {OURS: "flushed", CACHED: "in page caches", FLUSHED: "flushed"}
Measure = Callable[[], Awaitable[Throughput]]
console = Console(stderr=True)


async def sides_of(size: int, seconds: float, ours: OurBrokers, kafka: KafkaCluster | None) -> dict[str, Measure]:
    """By side, a function that measures it once at full speed. Kafka's producers take a number of records, found by a trial."""

    def own() -> Awaitable[Throughput]:
        return ours.throughput("load", size, batch_records=BATCH_RECORDS, seconds=seconds, producers=PRODUCERS)

    found: dict[str, Measure] = {OURS: own}
    for name, topic in {CACHED: "cached", FLUSHED: "flushed"}.items() if kafka else ():
        assert kafka is not None
        trial = await _kafka_load(kafka, topic, size, TRIAL_RECORDS)
        records = max(TRIAL_RECORDS, int(trial.records_per_s * seconds))
        found[name] = lambda kafka=kafka, topic=topic, records=records: _kafka_load(kafka, topic, size, records)  # type: ignore[misc]
    return found


def _kafka_load(kafka: KafkaCluster, topic: str, size: int, records: int) -> Awaitable[Throughput]:
    return kafka.throughput(topic, size, batch_records=BATCH_RECORDS, records=records, producers=PRODUCERS)


def paced_sides(seconds: float, ours: OurBrokers, kafka: KafkaCluster | None) -> dict[str, Measure]:
    """As `sides_of`, at a fixed rate."""
    found: dict[str, Measure] = {
        OURS: lambda: ours.paced("load", 1_000, per_second=PACED_PER_SECOND, seconds=seconds, producers=PRODUCERS)
    }
    for name, topic in {CACHED: "cached", FLUSHED: "flushed"}.items() if kafka else ():
        assert kafka is not None
        found[name] = lambda kafka=kafka, topic=topic: kafka.paced(  # type: ignore[misc]
            topic, 1_000, per_second=PACED_PER_SECOND, seconds=seconds, producers=PRODUCERS
        )
    return found


async def in_turn(sides: dict[str, Measure], rounds: int) -> dict[str, Throughput]:
    """The medians of the rounds, by side. Each round begins with another side."""
    samples: dict[str, list[Throughput]] = {name: [] for name in sides}
    names = list(sides)
    for number in range(rounds):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            samples[name].append(await sides[name]())
    return {
        name: Throughput(*(statistics.median(values) for values in zip(*several, strict=True)))
        for name, several in samples.items()
    }


async def measure(directory: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """All figures, as `-o json` prints them."""
    peer = None if arguments.no_peer else _peer(directory)
    loads: list[dict[str, Any]] = []
    async with AsyncExitStack() as stack:
        kafka = await stack.enter_async_context(peer) if peer else None
        ours = await stack.enter_async_context(OurBrokers(directory / "ours"))
        if kafka is not None:
            await kafka.create_topic("cached", PARTITIONS, flushes=False)
            await kafka.create_topic("flushed", PARTITIONS, flushes=True)
        await ours.create_topic("load", PARTITIONS)
        for size in SIZES:
            console.print(f"appends of {size} bytes: {arguments.rounds} rounds of each side in turn")
            sides = await sides_of(size, arguments.seconds, ours, kafka)
            loads += _rows(f"batches of {BATCH_RECORDS} records of {size:,} B", await in_turn(sides, arguments.rounds))
        console.print("single records at a fixed rate")
        paced = await in_turn(paced_sides(arguments.seconds, ours, kafka), arguments.rounds)
        loads += _rows(f"{PACED_PER_SECOND} single records of 1,000 B a second", paced)
        recoveries = await _recoveries(arguments.partitions, ours, kafka) if arguments.partitions else {}
    return {
        "kafka": VERSION if peer else None,
        "load_average": os.getloadavg()[0],
        "rounds": arguments.rounds,
        "seconds": arguments.seconds,
        "appends": loads,
        "recovery": [{"side": name, **each._asdict()} for name, each in recoveries.items()],
    }


def _peer(directory: Path) -> KafkaCluster | None:
    try:
        find_jars()
    except KafkaNotFound as e:
        console.print(f"{e}. metaquorum is measured alone")
        return None
    return KafkaCluster(directory / "kafka")


def _rows(load: str, found: dict[str, Throughput]) -> list[dict[str, Any]]:
    return [
        {"load": load, "side": name, "acknowledged": PROMISES[name], **each._asdict()} for name, each in found.items()
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
    for heading in ("load", "side", "acknowledged", "records/s", "MB/s", "p50 ms", "p99 ms"):
        table.add_column(heading, justify="left" if heading in ("load", "side", "acknowledged") else "right")
    for row in found["appends"]:
        figures = (
            f"{row['records_per_s']:,.0f}",
            f"{row['mb_per_s']:.1f}",
            f"{row['p50_ms']:.0f}",
            f"{row['p99_ms']:.0f}",
        )
        table.add_row(row["load"], row["side"], row["acknowledged"], *figures)
    Console().print(table)
    if not found["recovery"]:
        return
    table = Table(title="kill -9 of the leader of all partitions, until each acknowledges an append again")
    for heading in ("side", "partitions", "first s", "p50 s", "last s"):
        table.add_column(heading, justify="left" if heading == "side" else "right")
    for row in found["recovery"]:
        table.add_row(
            row["side"], f"{row['partitions']:,}", *(f"{row[key]:.2f}" for key in ("first_s", "p50_s", "last_s"))
        )
    Console().print(table)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.replicas", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3, help="how often each load is measured on each side (3)")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each load lasts in a round (5)")
    parser.add_argument("--partitions", type=int, default=1_000, help="led by the killed broker; 0: kill none (1,000)")
    parser.add_argument("--no-peer", action="store_true", help="metaquorum alone")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    arguments = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="metaquorum-bench-") as directory:
        found = asyncio.run(measure(Path(directory), arguments))
    if arguments.output == "json":
        print(json.dumps(found, indent=2))
    else:
        show(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
