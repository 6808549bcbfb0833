"""The laws of replica placement, for any cluster."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorum.controller.partitions.placement import Placer, UsableBroker


@st.composite
def clusters(draw: st.DrawFn) -> list[UsableBroker]:
    """Up to 12 brokers in up to 4 racks (None is one of them), at least one online."""
    racks = draw(st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=12))
    online = draw(st.lists(st.booleans(), min_size=len(racks), max_size=len(racks)))
    online[draw(st.integers(0, len(racks) - 1))] = True
    return [UsableBroker(number * 7, rack, up) for number, (rack, up) in enumerate(zip(racks, online, strict=True))]


@given(clusters(), st.integers(1, 30), st.data())
def test_the_laws_of_placement(brokers: list[UsableBroker], partitions: int, data: st.DataObject) -> None:
    """No broker twice; the leader online; racks within one of each other unless used up; online before fenced in a rack."""
    replication_factor = data.draw(st.integers(1, len(brokers)))
    by_id = {broker.broker_id: broker for broker in brokers}
    sizes = Counter(broker.rack for broker in brokers)
    placed = Placer(brokers, random.Random(data.draw(st.integers(0, 99)))).place(partitions, replication_factor)

    assert len(placed) == partitions
    for replicas in placed:
        assert len(replicas) == replication_factor == len(set(replicas))
        assert set(replicas) <= by_id.keys()
        assert by_id[replicas[0]].is_online
        spread = Counter(by_id[replica].rack for replica in replicas)
        most = max(spread.values())
        for rack, size in sizes.items():
            assert spread[rack] >= min(size, most - 1), (replicas, rack)
        for rack in sizes:
            given_here = [by_id[replica].is_online for replica in replicas if by_id[replica].rack == rack]
            left_online = sum(broker.rack == rack and broker.is_online for broker in brokers) - sum(given_here)
            assert left_online == 0 or all(given_here), (replicas, rack)


@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 60), st.integers(0, 99))
def test_equal_racks_lead_equally(rack_count: int, per_rack: int, partitions: int, seed: int) -> None:
    """With racks of one size, no broker leads more than one partition more than another."""
    brokers = [UsableBroker(i, f"r{i % rack_count}", True) for i in range(rack_count * per_rack)]
    placer = Placer(brokers, random.Random(seed))
    # From wherever the striping starts to the end of that round:
    placer.place(len(brokers) - placer._placed, 1)
    leaders = Counter(replicas[0] for replicas in placer.place(partitions, min(3, len(brokers))))
    counts = [leaders[broker.broker_id] for broker in brokers]

    assert max(counts) - min(counts) <= 1


@given(st.integers(1, 4), st.integers(1, 5), st.integers(0, 4), st.integers(1, 60), st.integers(0, 99))
def test_a_rack_that_is_down_leaves_its_turn_to_all_others(
    rack_count: int, per_rack: int, down: int, partitions: int, seed: int
) -> None:
    """Where all brokers of some racks are fenced, those of the other racks lead equally often, one more or less."""
    brokers = [UsableBroker(i, f"r{i % rack_count}", True) for i in range(rack_count * per_rack)]
    fenced = [UsableBroker(100 + i, f"down{i % 2}", False) for i in range(down)]
    placer = Placer(brokers + fenced, random.Random(seed))
    placer.place(len(brokers) - placer._placed, 1)
    leaders = Counter(replicas[0] for replicas in placer.place(partitions, min(3, len(brokers) + down)))
    counts = [leaders[broker.broker_id] for broker in brokers]

    assert max(counts) - min(counts) <= 1
    assert sum(counts) == partitions


@st.composite
def equal_racks(draw: st.DrawFn) -> tuple[int, int, int]:
    """Racks, brokers in each, and a replication factor that neither uses up the racks nor a rack's brokers."""
    rack_count, per_rack = draw(st.integers(2, 6)), draw(st.integers(2, 9))
    return rack_count, per_rack, draw(st.integers(2, min(rack_count, per_rack)))


@given(equal_racks(), st.integers(0, 99), st.data())
def test_partitions_with_leaders_side_by_side_share_no_broker(
    racks: tuple[int, int, int], seed: int, data: st.DataObject
) -> None:
    """The i-th replica stands i brokers further on. So one row of the striping, a partition led from each rack, uses no broker
    twice; and after m rows no broker has more than m replicas more than another.

    Three racks of four, three replicas: A0 B1 C2, B0 C1 A2, C0 A1 B2 are a row. Were the i-th replica not further on, the row
    would be A0 B0 C0 three times over; and were it 2 i brokers further on, A0 would be met again at the third replica, A4.
    """
    rack_count, per_rack, replication_factor = racks
    brokers = [UsableBroker(i, f"r{i % rack_count}", True) for i in range(rack_count * per_rack)]
    placer = Placer(brokers, random.Random(seed))
    placer.place(len(brokers) - placer._placed, 1)
    rows = data.draw(st.integers(1, per_rack))
    placed = [placer.place(rack_count, replication_factor) for _ in range(rows)]

    for row in placed:
        used = [replica for replicas in row for replica in replicas]
        assert len(set(used)) == len(used) == rack_count * replication_factor
    held = Counter(replica for row in placed for replicas in row for replica in replicas)
    counts = [held[broker.broker_id] for broker in brokers]
    assert max(counts) - min(counts) <= min(rows, replication_factor)


@given(st.integers(2, 5), st.integers(2, 5), st.integers(1, 4), st.integers(0, 99))
def test_who_takes_over_from_a_lost_broker_is_not_always_the_same(
    rack_count: int, per_rack: int, rounds: int, seed: int
) -> None:
    """In a whole round each broker is the second replica of one partition: nobody inherits the leaderships of two."""
    brokers = [UsableBroker(i, f"r{i % rack_count}", True) for i in range(rack_count * per_rack)]
    placer = Placer(brokers, random.Random(seed))
    placer.place(len(brokers) - placer._placed, 1)
    for _ in range(rounds):
        heirs = Counter(replicas[1] for replicas in placer.place(len(brokers), 2))
        assert set(heirs.values()) == {1} and len(heirs) == len(brokers)


@pytest.mark.parametrize(("rack_count", "per_rack"), [(1, 5), (3, 3), (2, 6), (4, 4)])
def test_whole_rounds_are_exactly_even(rack_count: int, per_rack: int) -> None:
    """After whole rounds, each broker has the same number of replicas, too."""
    brokers = [UsableBroker(i, f"r{i % rack_count}", True) for i in range(rack_count * per_rack)]
    placer = Placer(brokers, random.Random(3))
    placer.place(len(brokers) - placer._placed, 1)
    replicas = Counter(replica for replicas in placer.place(len(brokers) * 4, 3) for replica in replicas)

    assert set(replicas.values()) == {12}


def test_one_partition_topics_are_spread_as_one_large_topic_is() -> None:
    """The striping goes on from request to request."""
    brokers = [UsableBroker(i, None, True) for i in range(5)]
    placer = Placer(brokers, random.Random(0))
    placer.place(5 - placer._placed, 1)
    leaders = Counter(placer.place(1, 3)[0][0] for _ in range(50))

    assert set(leaders.values()) == {10}


def test_rack_spread_beats_broker_balance() -> None:
    """A rack with one broker has a replica of everything, however many brokers the other rack has."""
    brokers = [UsableBroker(0, "small", True), *(UsableBroker(i, "large", True) for i in range(1, 9))]

    assert all(0 in replicas for replicas in Placer(brokers, random.Random(5)).place(40, 2))
