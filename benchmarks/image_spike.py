"""Measures an image of millions of partitions: bytes a partition, microseconds a change, seconds to load and to iterate.

    python benchmarks/image_spike.py                         2,000,000 partitions in six shapes
    python benchmarks/image_spike.py --partitions 100000     the same shapes, smaller

Each shape runs in a separate process, so the resident memory belongs to one shape. The output has one
Markdown line for each shape.
"""

import argparse
import gc
import multiprocessing
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from metadata_log.format.records import Endpoint, MetadataRecord, Partition, PartitionChange, RegisterBroker, Topic
from metadata_log.image.delta import MetadataDelta
from metadata_log.image.digest import record_hash
from metadata_log.image.metadata_image import MetadataImage, Provenance
from metadata_log.image.replay import loading_delta

CHANGES = 2_000


class Shape(NamedTuple):
    """The spread of the partitions."""

    partitions: int
    partitions_per_topic: int
    brokers: int
    with_directories: bool

    def __str__(self) -> str:
        directories = ", directories" if self.with_directories else ""
        topics = self.partitions // self.partitions_per_topic
        return f"{topics:,} x {self.partitions_per_topic:,}, {self.brokers:,} brokers{directories}"


def records(shape: Shape) -> Iterator[MetadataRecord]:
    """A snapshot's worth: every topic starts at a random broker, and every fourth partition has lived."""
    dice = random.Random(7)
    directories = [dice.randbytes(16) for _ in range(shape.brokers)]
    for broker in range(shape.brokers):
        endpoints = (Endpoint("PLAINTEXT", f"broker-{broker}", 9092),)
        yield RegisterBroker(broker, dice.randbytes(16), endpoints, (), f"rack-{broker % 3}", False, False, (), broker)
    for topic in range(shape.partitions // shape.partitions_per_topic):
        topic_id = dice.randbytes(16)
        yield Topic(f"topic-{topic:08}", topic_id)
        for number in range(shape.partitions_per_topic):
            replicas = tuple(dice.sample(range(shape.brokers), 3))
            # ids as they come from the wire: no two the same object
            ids = tuple(bytes(bytearray(directories[r])) for r in replicas) if shape.with_directories else ()
            lived = number % 4 == 0
            epochs = (dice.randrange(50), dice.randrange(400)) if lived else (0, 0)
            yield Partition(topic_id, number, replicas, (*replicas,), (), (), replicas[0], 0, *epochs, ids)


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def change_us(image: MetadataImage, partitions_a_commit: int) -> tuple[float, MetadataImage]:
    """Microseconds a commit of that many changes: leader elections of random partitions, digest included."""
    dice = random.Random(3)
    topics = list(image.topics())
    commits: list[list[PartitionChange]] = []
    for _ in range(CHANGES // partitions_a_commit):
        changes = []
        for _ in range(partitions_a_commit):
            topic = dice.choice(topics)
            partition = topic.partition(dice.randrange(topic.partition_count))
            assert partition is not None
            changes.append(
                PartitionChange(
                    topic.topic_id, partition.partition, isr=partition.replicas[1:], leader=partition.replicas[1]
                )
            )
        commits.append(changes)
    offset = image.offset
    start = time.perf_counter()
    for changes in commits:
        delta = MetadataDelta(image)
        for change in changes:
            delta.replay(change, offset)
            offset += 1
        image = delta.finish(Provenance(offset, 1, 0))
    return (time.perf_counter() - start) / len(commits) * 1e6, image


def measure(shape: Shape) -> None:
    gc.disable()
    made = 0.0
    before = resident_bytes()
    start = time.perf_counter()
    delta = loading_delta()
    source = records(shape)
    place = 0
    while True:
        pause = time.perf_counter()
        slice_ = [record for _, record in zip(range(10_000), source, strict=False)]
        made += time.perf_counter() - pause
        if not slice_:
            break
        for record in slice_:
            delta.replay(record, place)
            place += 1
    image = delta.finish(Provenance(place, 1, 0))
    load_s = time.perf_counter() - start - made
    del delta, slice_
    for _ in range(3):  # each pass lets go of one more layer of tuples: lists, states, chunks
        gc.collect()
    resident = resident_bytes() - before
    tracked = len(gc.get_objects())
    gc.freeze()
    one_us, image_after = change_us(image, 1)
    hundred_us, image_after = change_us(image_after, 100)
    start = time.perf_counter()
    count = sum(1 for _ in image.canonical_records())
    iterate_s = time.perf_counter() - start
    start = time.perf_counter()
    digest = sum(map(record_hash, image.canonical_records())) % (1 << 256)
    digest_s = time.perf_counter() - start
    assert (count, digest) == (image.record_count, image.digest)
    start = time.perf_counter()
    topics = image.topics_of_broker(1)
    index_ms = (time.perf_counter() - start) * 1e3
    print(
        f"| {shape} | {resident / image.partition_count:.0f} | {one_us:.1f} | {hundred_us:.0f} | {load_s:.1f} "
        f"| {iterate_s:.1f} | {digest_s:.1f} | {index_ms:.1f} ({len(topics):,}) | {tracked:,} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures the image at scale.")
    parser.add_argument("--partitions", type=int, default=2_000_000)
    count = parser.parse_args().partitions
    print(
        "| topics x partitions | bytes a partition | us a commit of 1 change | of 100 changes | s load "
        "| s iterate | s iterate + digest | ms topics of a broker (found) | objects the GC tracks |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|", flush=True)
    for per_topic, brokers, with_directories in (
        (100, 12, False), (100, 1_000, False), (1_000, 12, False), (1_000, 1_000, False), (100, 12, True), (100, 1_000, True),
    ):  # fmt: skip
        process = multiprocessing.Process(target=measure, args=(Shape(count, per_topic, brokers, with_directories),))
        process.start()
        process.join()
        assert process.exitcode == 0


if __name__ == "__main__":
    main()
