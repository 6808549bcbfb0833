"""The table of what a broker's contact does, exhaustively: as data, and as records that a controller writes."""

from itertools import product

import pytest

from metadata_log.format.records import BrokerRegistrationChange
from quorum.controller.brokers.contact import RULES, BrokerState, Next, next_state
from tests.quorum.controller.cluster import Cluster

BOOLEANS = (False, True)
CASES = [
    (state, *wants)
    for state in (BrokerState.FENCED, BrokerState.ONLINE, BrokerState.STOPPING)
    for wants in product(BOOLEANS, repeat=4)
]


def told(state: BrokerState, wants_fence: bool, wants_shut_down: bool, is_caught_up: bool, is_held: bool) -> Next:
    """The same in prose, written apart from the table."""
    if state is BrokerState.STOPPING:
        return Next.STOPPING if is_held else Next.MAY_GO
    if wants_shut_down:
        can_wait = state is BrokerState.ONLINE and not wants_fence and is_held
        return Next.STOPPING if can_wait else Next.MAY_GO
    if wants_fence:
        return Next.FENCED
    if state is BrokerState.ONLINE or is_caught_up:
        return Next.ONLINE
    return Next.FENCED


@pytest.mark.parametrize("case", CASES)
def test_one_rule_fits_each_case(case: tuple[BrokerState, bool, bool, bool, bool]) -> None:
    """The table has no hole and no two answers."""
    fitting = [
        rule
        for rule in RULES
        if rule.state is case[0]
        and all(want is None or want == so for want, so in zip(rule[1:5], case[1:], strict=True))
    ]

    assert len(fitting) == 1


@pytest.mark.parametrize("case", CASES)
def test_the_table_says_what_the_prose_says(case: tuple[BrokerState, bool, bool, bool, bool]) -> None:
    """Fenced, online, stopping, may go: as KIP-631 has them."""
    state, wants_fence, wants_shut_down, is_caught_up, is_held = case
    found = next_state(
        state, wants_fence=wants_fence, wants_shut_down=wants_shut_down, is_caught_up=is_caught_up, is_held=is_held
    )

    assert found == told(*case)


def cluster_in(state: BrokerState, *, leads: bool) -> Cluster:
    """Broker 0 in `state`, among three."""
    cluster = Cluster(2 if state is BrokerState.FENCED else 3)
    if state is BrokerState.FENCED:
        cluster.register(2)
    broker = 2
    if leads and state is not BrokerState.FENCED:
        cluster.assign("led", (broker, 0))
    else:
        cluster.assign("other", (0, 1))
    if state is BrokerState.STOPPING:
        if not leads:
            cluster.assign("led", (broker, 0))
        cluster.contact(broker, wants_shut_down=True)
    return cluster


@pytest.mark.parametrize(
    ("state", "wants_fence", "wants_shut_down", "is_caught_up", "leads"),
    [
        case
        for case in CASES
        if case[0] is not BrokerState.STOPPING and not (case[0] is BrokerState.ONLINE and not case[3])
    ],
)
def test_what_a_contact_writes(
    state: BrokerState, wants_fence: bool, wants_shut_down: bool, is_caught_up: bool, leads: bool
) -> None:
    """Each row for real: the flags that the contact leaves behind, and what the broker is told."""
    cluster = cluster_in(state, leads=leads)
    epoch = cluster.image.brokers[2].broker_epoch
    records = cluster.contact(
        2, offset=None if is_caught_up else epoch, wants_fence=wants_fence, wants_shut_down=wants_shut_down
    )
    broker = cluster.image.brokers[2]
    standing = cluster.controller.standing(cluster.image, 2)
    expected = told(state, wants_fence, wants_shut_down, is_caught_up, leads)

    assert broker.fenced == (expected in (Next.FENCED, Next.MAY_GO))
    assert broker.in_controlled_shutdown == (expected is Next.STOPPING)
    assert standing.should_shut_down == (expected is Next.MAY_GO)
    assert standing.is_caught_up == is_caught_up
    if expected.value == state.value or (state is BrokerState.FENCED and expected is Next.MAY_GO):
        assert records == []
    else:
        assert any(isinstance(record, BrokerRegistrationChange) for record in records)
    cluster.check_laws()


def test_an_unchanged_contact_writes_nothing() -> None:
    """An idle cluster's log stays as it is."""
    cluster = Cluster(3)
    before = cluster.image.offset
    for _ in range(3):
        for broker_id in range(3):
            assert cluster.contact(broker_id) == []

    assert cluster.image.offset == before


def test_fenced_and_unfenced_again_takes_its_leaders_back() -> None:
    """A leaderless partition elects its last ISR member as soon as that is back; epochs go up by one each time."""
    cluster = Cluster(1)
    cluster.assign("t", (0,))
    cluster.contact(0, wants_fence=True)
    gone = cluster.partitions("t")[0]
    cluster.contact(0)
    back = cluster.partitions("t")[0]

    assert (gone.leader, gone.isr, gone.leader_epoch, gone.partition_epoch) == (-1, (0,), 1, 1)
    assert (back.leader, back.isr, back.leader_epoch, back.partition_epoch) == (0, (0,), 2, 2)
