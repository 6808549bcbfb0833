"""Leaderships go back to preferred replicas by themselves: seldom, only above a limit, never to a replica that may not lead."""

import sys

import pytest

from metadata_log.format.ids import NodeId
from metadata_log.format.records import PartitionChange
from quorum.controller.protocol.commands import ElectLeaderless, FollowUpReply
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.decision import Decision
from quorum.controller.protocol.election_commands import BalanceLeaders
from quorum.controller.protocol.happenings import Happening, LeadersBalanced
from quorum.controller.protocol.topic_commands import CreateTopics, NewTopic
from tests.quorum.controller.cluster import Cluster
from tests.quorum.controller.test_elections import back_in_sync

MINUTE_MS = 60_000
CONFIG = ControllerConfig(session_timeout_ms=1_000 * MINUTE_MS, leader_imbalance_check_interval_ms=5 * MINUTE_MS)
"""A session that does not end here: only the check is due."""


def checked(cluster: Cluster, after_ms: int = 5 * MINUTE_MS) -> list[Happening]:
    """Lets time pass, and does all that is due then. Returns the story."""
    cluster.now_ms += after_ms
    told: list[Happening] = []
    while (due := cluster.controller.due(cluster.image, cluster.now_ms)) is not None:
        assert isinstance(due, BalanceLeaders | ElectLeaderless), due
        decision = cluster.controller.decide(cluster.image, due, cluster.now_ms)
        cluster.fold(decision)
        told += decision.happenings
    return told


def lead(cluster: Cluster, partition: int, leader: NodeId) -> None:
    """Another leader, as an earlier failure of the preferred one may have left it."""
    change = PartitionChange(cluster.partitions("t")[partition].topic_id, partition, leader=leader)
    cluster.fold(Decision((change,), FollowUpReply()))


def restarted(count: int = 20, config: ControllerConfig = CONFIG) -> Cluster:
    """Three brokers, `count` partitions that prefer each of them. Broker 0 was fenced and is back, and leads nothing."""
    cluster = Cluster(3, config=config)
    cluster.assign("t", *[(0, 1, 2), (1, 2, 0), (2, 0, 1)] * count)
    cluster.contact(0, wants_fence=True)
    cluster.contact(0)
    assert cluster.leaders("t").count(0) == 0
    checked(cluster, 0)  # the look through all partitions after the begin of a leadership
    return cluster


def test_a_restarted_broker_gets_its_leaderships_back_without_a_command() -> None:
    """Broker 0 is the preferred leader of 20 of 60 partitions. Nobody asks for an election."""
    cluster = restarted()
    back_in_sync(cluster, "t")
    assert checked(cluster, 5 * MINUTE_MS - 1) == []
    assert cluster.leaders("t").count(0) == 0

    (told,) = checked(cluster, 1)
    assert cluster.leaders("t") == [0, 1, 2] * 20
    assert told == LeadersBalanced(20, 1, ("t-0: 0", "t-3: 0", "t-6: 0", "t-9: 0", "t-12: 0"))


def test_a_replica_that_is_out_of_sync_waits_for_a_later_check() -> None:
    """An election that balances is clean. When the replica is in sync, the next check finds it."""
    cluster = restarted()
    before = cluster.image.offset
    assert checked(cluster) == []
    assert cluster.image.offset == before, "a check that changes nothing writes nothing"

    back_in_sync(cluster, "t")
    checked(cluster)
    assert cluster.leaders("t") == [0, 1, 2] * 20


def test_a_broker_that_is_away_gets_nothing() -> None:
    """Broker 0 is in every ISR, and is fenced as the last member of one partition: it leads nothing until it is back (M4)."""
    cluster = Cluster(3, config=CONFIG)
    cluster.assign("alone", (0,))
    cluster.contact(0, wants_fence=True)
    checked(cluster, 0)
    assert checked(cluster) == []
    assert cluster.leaders("alone") == [-1]


@pytest.mark.parametrize(("misled", "moves"), [(2, False), (3, True)])
def test_few_partitions_at_the_wrong_leader_stay_there(misled: int, moves: bool) -> None:
    """Each move costs the clients of a partition a moment. 2 of 20 are 10 %, which is the limit; 3 of 20 are 15 %."""
    cluster = restarted(20)
    back_in_sync(cluster, "t")
    checked(cluster)
    for number in range(misled):
        lead(cluster, 3 * number, 1)
    assert cluster.leaders("t").count(0) == 20 - misled
    assert bool(checked(cluster)) is moves
    assert cluster.leaders("t").count(0) == (20 if moves else 20 - misled)


def test_brokers_below_the_limit_keep_their_leaders_while_another_one_is_balanced() -> None:
    """The limit is of each broker by itself."""
    cluster = restarted(20)
    back_in_sync(cluster, "t")
    lead(cluster, 1, 2)  # the partition prefers broker 1: 1 of 20 is below the limit
    (told,) = checked(cluster)
    assert isinstance(told, LeadersBalanced)
    assert (told.partitions, told.brokers) == (20, 1)
    assert cluster.leaders("t")[1] == 2


def test_a_check_takes_no_long_turn() -> None:
    """Each slice looks at few partitions, and the story is told once, with the last slice."""
    cluster = restarted(50, CONFIG._replace(slice_changes_max=4, slice_partitions_max=64))
    back_in_sync(cluster, "t")
    cluster.now_ms += 5 * MINUTE_MS
    sizes, told = [], []
    while (due := cluster.controller.due(cluster.image, cluster.now_ms)) is not None:
        decision = cluster.controller.decide(cluster.image, due, cluster.now_ms)
        cluster.fold(decision)
        assert cluster.controller.next_deadline_ms() is not None
        sizes.append(len(decision.records))
        told.append(len(decision.happenings))
    assert sum(sizes) == 50
    assert max(sizes) <= 4 + 64
    assert len(sizes) > 4
    assert told == [*[0] * (len(sizes) - 1), 1]


def test_an_image_that_was_found_balanced_is_not_walked_again() -> None:
    """Two million partitions cost a second of the controller's time; an idle cluster pays it once."""
    cluster = restarted()
    back_in_sync(cluster, "t")
    checked(cluster)  # gives the leaderships back
    cluster.now_ms += 5 * MINUTE_MS
    assert cluster.controller.due(cluster.image, cluster.now_ms) == BalanceLeaders()
    cluster.run(BalanceLeaders())
    cluster.now_ms += 5 * MINUTE_MS
    assert cluster.controller.due(cluster.image, cluster.now_ms) is None

    cluster.run(CreateTopics((NewTopic("u", 1, 1),)))
    cluster.now_ms += 5 * MINUTE_MS
    assert cluster.controller.due(cluster.image, cluster.now_ms) == BalanceLeaders()


def test_a_broker_that_is_fenced_between_counting_and_electing_gets_nothing() -> None:
    """The first walk counted broker 0 as a leader to be. Then it is fenced, and the second walk passes it by."""
    cluster = restarted()
    back_in_sync(cluster, "t")
    cluster.now_ms += 5 * MINUTE_MS
    cluster.run(BalanceLeaders())
    cluster.contact(0, wants_fence=True)
    assert checked(cluster, 0) == []
    assert cluster.leaders("t").count(0) == 0


def test_balancing_can_be_switched_off() -> None:
    cluster = restarted(config=CONFIG._replace(auto_leader_rebalance=False))
    back_in_sync(cluster, "t")
    assert checked(cluster, 100 * MINUTE_MS) == []
    assert cluster.leaders("t").count(0) == 0


def test_the_next_active_controller_begins_after_an_interval() -> None:
    """The progress is soft state, and a half walk of the controller before is dropped."""
    cluster = restarted()
    back_in_sync(cluster, "t")
    cluster.now_ms += 5 * MINUTE_MS
    cluster.run(BalanceLeaders())
    cluster.controller.deactivate()
    assert cluster.controller.next_deadline_ms() is None
    cluster.controller.activate(cluster.image, cluster.now_ms)
    assert checked(cluster, 0) == []
    assert cluster.leaders("t").count(0) == 0
    checked(cluster)
    assert cluster.leaders("t") == [0, 1, 2] * 20


def test_a_check_that_found_nothing_keeps_no_topics_in_memory() -> None:
    """The next check compares versions. Counter-example with the maps of the image: the turn that drops a map frees all that has
    changed since, at once."""
    cluster = restarted(5)
    checked(cluster)
    topic = cluster.image.topic("t")
    assert topic is not None
    before = sys.getrefcount(topic)
    cluster.run(CreateTopics((NewTopic("other", 1, 1),)))
    lead(cluster, 1, 2)
    assert sys.getrefcount(topic) < before, "the image without these changes is gone"
