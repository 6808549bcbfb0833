"""Plans keep every rule of placement, and are no longer than they must be: compared with a twin that tries everything."""

from collections import Counter, deque
from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metadata_log.format.ids import NodeId
from quorum.controller.partitions.reassignment.rebalancing import Impossible, Place, PlannedBroker, Replicas, plan

Cluster = tuple[tuple[PlannedBroker, ...], dict[Place, Replicas]]


def brokers(count: int, racks: int = 0) -> tuple[PlannedBroker, ...]:
    return tuple(PlannedBroker(each, f"r{each % racks}" if racks else None) for each in range(count))


def after(before: Mapping[Place, Replicas], planned: Mapping[Place, Replicas]) -> dict[Place, Replicas]:
    return {**before, **planned}


def counts(known: tuple[PlannedBroker, ...], partitions: Mapping[Place, Replicas]) -> dict[NodeId, int]:
    held = Counter(each for replicas in partitions.values() for each in replicas)
    return {broker.broker_id: held[broker.broker_id] for broker in known}


def moves(before: Mapping[Place, Replicas], planned: Mapping[Place, Replicas]) -> int:
    return sum(len(set(replicas) - set(before[place])) for place, replicas in planned.items())


def spread(known: tuple[PlannedBroker, ...], replicas: Replicas) -> list[int]:
    """How many replicas each rack has, the fullest first: a smaller list is a better spread."""
    racks = {broker.broker_id: broker.rack for broker in known}
    return sorted(Counter(racks[each] for each in replicas).values(), reverse=True)


# --- stories ---------------------------------------------------------------------------------------------------------


def test_a_new_broker_gets_its_share_and_no_others_move() -> None:
    """The example of the file: 40, 40, 40 and 0 become 30 each with 30 moves, all onto the new broker."""
    before = {("t", each): (each % 3, (each + 1) % 3) for each in range(60)}
    planned = plan(brokers(4), before)
    assert list(counts(brokers(4), after(before, planned)).values()) == [30] * 4
    assert moves(before, planned) == 30
    assert plan(brokers(4), before, onto={3}) == planned


def test_a_broker_is_emptied_and_no_others_move() -> None:
    """Its replicas go evenly to the others, in their places: who takes the first replica's place is preferred."""
    before = {("t", each): (0, 1 + each % 3) for each in range(9)}
    planned = plan(brokers(4), before, off={0})
    assert counts(brokers(4), after(before, planned)) == {0: 0, 1: 6, 2: 6, 3: 6}
    assert moves(before, planned) == 9
    assert sorted(Counter(replicas[0] for replicas in planned.values()).values()) == [3, 3, 3]
    assert all(replicas[0] not in before[place] for place, replicas in planned.items())


def test_a_broker_that_is_off_gets_nothing_and_one_that_is_not_usable_too() -> None:
    """An emptied broker has its replicas replaced; a broker that is only fenced keeps its own."""
    known = (*brokers(3), PlannedBroker(3, None, is_usable=False))
    before: dict[Place, Replicas] = {("t", 0): (3, 0), ("t", 1): (3, 1), ("t", 2): (0, 1), ("t", 3): (0, 1)}
    result = after(before, plan(known, before))
    assert counts(known, result)[3] == 2


def test_a_plan_that_cannot_be_is_refused_with_the_partition() -> None:
    """Three replicas need three brokers."""
    with pytest.raises(Impossible, match="t-0 has 3 replicas, and no other broker may get the one of broker 0"):
        plan(brokers(3), {("t", 0): (0, 1, 2)}, off={0})


def test_preferred_leaders_are_spread_without_a_move_of_data() -> None:
    """The replicas are even already, and one broker is the first of all."""
    before = {("t", each): (0, 1, 2) for each in range(6)}
    planned = plan(brokers(3), before)
    assert moves(before, planned) == 0
    assert Counter(replicas[0] for replicas in after(before, planned).values()) == {0: 2, 1: 2, 2: 2}


def test_a_broker_that_is_not_online_becomes_preferred_nowhere() -> None:
    """Broker 2 is fenced, and is preferred by no partition: it cannot lead, so the leaderships spread over 0 and 1 only."""
    known = (*brokers(2), PlannedBroker(2, None, is_usable=False))
    before: dict[Place, Replicas] = {("t", each): (0, 1, 2) for each in range(6)}
    result = after(before, plan(known, before))
    assert Counter(replicas[0] for replicas in result.values()) == {0: 3, 1: 3}


def test_what_is_even_needs_no_plan() -> None:
    assert plan(brokers(3), {("t", each): (each % 3, (each + 1) % 3) for each in range(9)}) == {}


# --- laws ------------------------------------------------------------------------------------------------------------


@st.composite
def clusters(draw: st.DrawFn, brokers_max: int = 7, partitions_max: int = 30, racks_max: int = 3) -> Cluster:
    known = brokers(draw(st.integers(1, brokers_max)), draw(st.integers(0, racks_max)))
    ids = [broker.broker_id for broker in known]
    factor = draw(st.integers(1, min(3, len(ids))))
    placed = draw(st.lists(st.permutations(ids), max_size=partitions_max))
    return known, {("t", number): tuple(order[:factor]) for number, order in enumerate(placed)}


def unspread(known: tuple[PlannedBroker, ...], before: Replicas, now: Replicas, takers: set[NodeId]) -> bool:
    """True if the racks are worse than before, and another choice of one taker would have been better."""
    if spread(known, now) <= spread(known, before):
        return False
    kept = [each for each in now if each in before]
    gone, come = set(before) - set(now), set(now) - set(before)
    assert len(gone) == len(come)
    best = min(spread(known, (*kept, *(come - {each}), other)) for each in come for other in takers - set(kept))
    return spread(known, now) > best


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_every_plan_keeps_the_rules(data: st.DataObject) -> None:
    """Same replication factor, never two replicas on a broker, nothing on brokers that are off, moves onto takers only, and a
    spread over racks that is not worse where another choice was left."""
    known, before = data.draw(clusters())
    ids = [broker.broker_id for broker in known]
    off = data.draw(st.sets(st.sampled_from(ids), max_size=1))
    onto = data.draw(st.sets(st.sampled_from(ids), max_size=2)) - off
    takers = (onto or set(ids)) - off
    try:
        planned = plan(known, before, off=off, onto=onto)
    except Impossible:
        assert any(off & set(replicas) and takers <= set(replicas) for replicas in before.values())
        return
    for place, replicas in planned.items():
        assert len(replicas) == len(set(replicas)) == len(before[place])
        assert set(replicas) - set(before[place]) <= takers
        assert replicas != before[place]
        if not off:
            assert spread(known, replicas) <= spread(known, before[place])
        assert not unspread(known, before[place], replicas, takers)
    result = after(before, planned)
    assert not any(off & set(replicas) for replicas in result.values())
    if off and not onto:
        assert moves(before, planned) == sum(counts(known, before)[each] for each in off)


@settings(max_examples=200, deadline=None)
@given(clusters(racks_max=0))
def test_without_racks_replicas_are_even_within_one(cluster: Cluster) -> None:
    """And the moves are as few as the sums demand: what is above the upper average, or lacks to the lower one."""
    known, before = cluster
    planned = plan(known, before)
    held = counts(known, before)
    total = sum(held.values())
    low, high = total // len(known), -(-total // len(known))
    result = counts(known, after(before, planned)).values()
    assert max(result) - min(result) <= 1
    excess, lack = (
        sum(max(0, each - high) for each in held.values()),
        sum(max(0, low - each) for each in held.values()),
    )
    assert moves(before, planned) == max(excess, lack)


def neighbours(
    known: tuple[PlannedBroker, ...], now: tuple[frozenset[NodeId], ...]
) -> Iterator[tuple[frozenset[NodeId], ...]]:
    for index, replicas in enumerate(now):
        for giver in replicas:
            for broker in known:
                moved = (replicas - {giver}) | {broker.broker_id}
                if broker.broker_id not in replicas and spread(known, tuple(moved)) <= spread(known, tuple(replicas)):
                    yield (*now[:index], moved, *now[index + 1 :])


def fewest_moves(known: tuple[PlannedBroker, ...], before: Mapping[Place, Replicas], unevenness: int) -> int:
    """The dumb twin: all ways of moving one replica after the other, the shortest first."""
    start = tuple(frozenset(replicas) for replicas in before.values())
    seen, queue = {start}, deque([(start, 0)])
    while queue:
        now, steps = queue.popleft()
        held = counts(known, dict(zip(before, map(tuple, now), strict=True))).values()
        if max(held) - min(held) <= unevenness:
            return steps
        for other in neighbours(known, now):
            if other not in seen:
                seen.add(other)
                queue.append((other, steps + 1))
    raise AssertionError("the plan has reached what the twin has not")


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(clusters(brokers_max=4, partitions_max=4, racks_max=2))
def test_no_other_plan_needs_fewer_moves(cluster: Cluster) -> None:
    """For an end that is as even, over any way that keeps the racks as good at each step."""
    known, before = cluster
    planned = plan(known, before)
    held = counts(known, after(before, planned)).values()
    assert moves(before, planned) <= fewest_moves(known, before, max(held) - min(held))
