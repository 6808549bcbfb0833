"""The laws of replica placement, for any cluster."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorum.controller.placement import Placer, UsableBroker


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
