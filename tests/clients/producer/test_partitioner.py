"""Partitions of records: the hash of a key, and sticky partitions without a key."""

import random
from itertools import pairwise

import pytest

from clients.producer.config import ProducerConfig
from clients.producer.partitioner import StickyPartitions, murmur2, partition_of_key
from clients.producer.producer_core import ProducerCore
from metadata_log.format.data_batch import DataRecord, pack_record
from tests.clients.producer.driving import Driver


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_that_of_kafkas_java_client(key: bytes, expected: int) -> None:
    """The values are those of Kafka's own test of `Utils.murmur2`."""
    assert murmur2(key) == expected & 0xFFFFFFFF


def test_a_key_always_has_the_same_partition_and_keys_spread() -> None:
    found = {number: partition_of_key(b"user-%d" % number, 12) for number in range(1_200)}
    assert all(partition_of_key(b"user-%d" % number, 12) == partition for number, partition in found.items())
    counts = [list(found.values()).count(partition) for partition in range(12)]
    assert min(counts) > 60 and max(counts) < 140
    assert partition_of_key(b"x" * 1_000, 12) == (murmur2(b"x" * 1_000) & 0x7FFFFFFF) % 12


def choose(core: ProducerCore, driver: Driver, key: bytes | None = None) -> int:
    packed = pack_record(DataRecord(0, key, b"v"))
    return core.partition_for("orders", key, len(packed), driver.view)


def test_without_a_key_the_partition_stays_until_its_batch_ends() -> None:
    """KIP-480. The batch ends when it is full, or when it is sent."""
    driver = Driver(ProducerConfig(linger_ms=5, batch_size=30), partitions=6)
    core = driver.core
    first = choose(core, driver)
    driver.send("one", partition=first)
    assert {choose(core, driver) for _ in range(20)} == {first}
    driver.send("x" * 20, partition=first)
    second = choose(core, driver)
    assert second != first, "the batch there is full"
    driver.send("two", partition=second)
    assert choose(core, driver) == second
    driver.step(5)
    assert choose(core, driver) != second, "the batch there was sent"


def test_sticky_partitions_spread_over_many_batches_and_leave_out_partitions_without_a_leader() -> None:
    sticky = StickyPartitions(random.Random(3))
    moves = [sticky.move("orders", 6, (0, 2, 5)) for _ in range(300)]
    assert set(moves) == {0, 2, 5} and all(a != b for a, b in pairwise(moves))
    assert sticky.present("orders", 6, (1,)) == 1, "the present partition has lost its leader"
    assert sticky.present("orders", 6, ()) == 1, "no partition has a leader: the present one is as good as any"
    assert sticky.present("payments", 1, ()) == 0


def test_a_record_with_a_key_does_not_move_the_sticky_partition() -> None:
    driver = Driver(ProducerConfig(linger_ms=5), partitions=6)
    first = choose(driver.core, driver)
    driver.send("one", partition=first)
    assert choose(driver.core, driver, b"user-7") == partition_of_key(b"user-7", 6)
    assert choose(driver.core, driver) == first
