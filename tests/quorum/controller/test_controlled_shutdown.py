"""The orderly stop of a broker: its leaderships move first, then the broker may go."""

import random

from metadata_log.format.ids import NO_LEADER
from metadata_log.format.records import (
    BrokerRegistrationChange,
    MetadataRecord,
    PartitionChange,
)
from quorum.controller.controller import BrokerState, Controller
from quorum.controller.protocol.commands import (
    AlterPartition,
    AlterPartitionReply,
    FenceExpiredBrokers,
    IsrMember,
    PartitionAlteration,
)
from quorum.controller.protocol.config import ControllerConfig
from tests.quorum.controller.cluster import Cluster

SESSION_MS = ControllerConfig().session_timeout_ms


def stopping(cluster: Cluster, broker_id: int) -> list[MetadataRecord]:
    return cluster.contact(broker_id, wants_shut_down=True)


def test_leaders_move_then_the_others_see_it_then_it_may_go() -> None:
    """The flag comes first, then the moves; it is let go when each active broker has applied them."""
    cluster = Cluster(3)
    cluster.assign("t", (0, 1), (0, 2), (1, 0))
    records = stopping(cluster, 0)
    moved_at = cluster.image.offset

    assert records[0] == BrokerRegistrationChange(0, cluster.image.brokers[0].broker_epoch, in_controlled_shutdown=True)
    assert cluster.leaders("t") == [1, 2, 1]
    assert all(0 not in partition.isr for partition in cluster.partitions("t"))
    assert stopping(cluster, 0) == []
    cluster.contact(1, offset=moved_at)
    assert cluster.contact(2, offset=moved_at - 1) == []
    standing = cluster.controller.standing(cluster.image, 0)
    assert (standing.state, standing.should_shut_down) == (BrokerState.STOPPING, False)

    cluster.contact(2, offset=moved_at)
    standing = cluster.controller.standing(cluster.image, 0)
    assert (standing.state, standing.should_shut_down) == (BrokerState.OFFLINE, True)
    cluster.check_laws()


def test_a_broker_that_has_not_applied_its_own_moves_may_not_go() -> None:
    """The others know the next leaders. The stopping broker still holds writes of producers, and could not say who leads now."""
    cluster = Cluster(3)
    cluster.assign("t", (0, 1), (0, 2), (1, 0))
    stopping(cluster, 0)
    moved_at = cluster.image.offset
    for other in (1, 2):
        cluster.contact(other, offset=moved_at)
    cluster.contact(0, wants_shut_down=True, offset=moved_at - 1)
    assert not cluster.controller.standing(cluster.image, 0).should_shut_down

    cluster.contact(0, wants_shut_down=True, offset=moved_at)
    assert cluster.controller.standing(cluster.image, 0).should_shut_down


def test_the_farewell_is_told_only_once_it_is_in_the_image() -> None:
    """`standing` of the committed image says nothing of a fence that is only proposed."""
    cluster = Cluster(1)
    committed = cluster.image
    stopping(cluster, 0)

    assert not cluster.controller.standing(committed, 0).should_shut_down
    assert cluster.controller.standing(cluster.image, 0).should_shut_down


def test_an_older_fence_lets_nobody_go() -> None:
    """A leader's own disk is slow, so the image that is told to brokers is old.

    1. Broker 0 is fenced. 2. It is unfenced, and leads. 3. It wants to shut down, and that is decided. In the
    image of 1 it is fenced, and now it may go; it is told so by an image that holds the fence of 3, and by no older one.
    """
    cluster = Cluster(2)
    cluster.contact(0, wants_fence=True)
    old = cluster.image
    assert old.brokers[0].fenced
    cluster.contact(0)
    cluster.assign("t", (0, 1))
    cluster.contact(1)
    while not cluster.image.brokers[0].fenced:
        cluster.contact(0, wants_shut_down=True)
        cluster.contact(1)

    assert cluster.controller.standing(cluster.image, 0).should_shut_down
    assert not cluster.controller.standing(old, 0).should_shut_down


def test_a_broker_that_leads_nothing_goes_at_once() -> None:
    """It only leaves its ISRs."""
    cluster = Cluster(2)
    cluster.assign("t", (1, 0))
    records = stopping(cluster, 0)

    assert isinstance(records[0], PartitionChange)
    assert records[0].isr == (1,)
    assert cluster.controller.standing(cluster.image, 0).should_shut_down


def test_a_leader_that_cannot_move_holds_the_broker() -> None:
    """While another replica may still catch up, its leader stays; once it has joined the ISR, it takes over."""
    cluster = Cluster(2)
    cluster.contact(1, wants_fence=True)
    cluster.assign("t", (0, 1))
    cluster.contact(1)
    stopping(cluster, 0)
    cluster.contact(1)
    stopping(cluster, 0)
    assert cluster.leaders("t") == [0]
    assert cluster.controller.standing(cluster.image, 0).state is BrokerState.STOPPING

    before = cluster.partitions("t")[0]
    joined = PartitionAlteration(
        before.topic_id, 0, before.leader_epoch, before.partition_epoch, (IsrMember(0), IsrMember(1))
    )
    reply = cluster.ask(AlterPartition(0, cluster.image.brokers[0].broker_epoch, (joined,)), AlterPartitionReply)
    assert reply.results[0].isr == (0, 1)
    stopping(cluster, 0)
    assert cluster.leaders("t") == [1]
    stopping(cluster, 0)
    cluster.contact(1)
    assert cluster.controller.standing(cluster.image, 0).should_shut_down


def test_many_held_leaders_move_in_slices() -> None:
    """However many partitions hold a stopping broker, no decision moves more than a slice of them."""
    cluster = Cluster(2, config=ControllerConfig(slice_changes_max=10, slice_partitions_max=10))
    cluster.contact(1, wants_fence=True)
    cluster.assign("t", *[(0, 1)] * 50)
    cluster.contact(1)
    stopping(cluster, 0)
    epoch = cluster.image.brokers[0].broker_epoch
    for partition in cluster.partitions("t"):
        joined = PartitionAlteration(partition.topic_id, partition.partition, 0, 0, (IsrMember(0), IsrMember(1)))
        cluster.run(AlterPartition(0, epoch, (joined,)))
    moved = []
    while 0 in cluster.leaders("t"):
        moved.append(len(stopping(cluster, 0)))
    assert moved == [10] * 5
    stopping(cluster, 0)
    cluster.contact(1)
    assert cluster.controller.standing(cluster.image, 0).should_shut_down


def test_nobody_waits_for_what_cannot_come() -> None:
    """A partition without another active replica stays led until the broker goes, and doesn't hold it."""
    cluster = Cluster(2)
    cluster.assign("alone", (0,))
    stopping(cluster, 0)
    assert cluster.leaders("alone") == [0]
    stopping(cluster, 0)
    cluster.contact(1)

    assert cluster.controller.standing(cluster.image, 0).should_shut_down
    assert cluster.leaders("alone") == [NO_LEADER]
    assert cluster.partitions("alone")[0].isr == (0,)
    cluster.check_laws()


def test_a_new_controller_takes_a_shutdown_over() -> None:
    """The flag is in the log; what was seen by whom is asked again."""
    cluster = Cluster(3, config=ControllerConfig(slice_changes_max=2, slice_partitions_max=2))
    for name in "abcdef":
        cluster.assign(name, (0, 1), (0, 2))
    asked = cluster.said_by(0, wants_shut_down=True)
    cluster.fold(cluster.controller.decide(cluster.image, asked, cluster.now_ms))
    assert cluster.image.brokers[0].in_controlled_shutdown
    assert any(0 in cluster.leaders(name) for name in "abcdef")

    cluster.controller = Controller(ControllerConfig(), random.Random(2))
    cluster.controller.activate(cluster.image, cluster.now_ms)
    stopping(cluster, 0)
    assert all(0 not in cluster.leaders(name) for name in "abcdef")
    stopping(cluster, 0)
    cluster.contact(1)
    assert not cluster.controller.standing(cluster.image, 0).should_shut_down
    cluster.contact(2)
    assert cluster.controller.standing(cluster.image, 0).should_shut_down


def test_a_stopping_broker_whose_session_ends_is_fenced() -> None:
    """And if it comes back in the same life without wanting to go, it is online again, without the flag."""
    cluster = Cluster(2)
    cluster.assign("t", (0,))
    stopping(cluster, 0)
    cluster.now_ms += SESSION_MS - 1
    cluster.contact(1, offset=1)
    cluster.now_ms += 1
    cluster.run(FenceExpiredBrokers())
    assert cluster.image.brokers[0].fenced
    cluster.contact(0)

    assert (cluster.image.brokers[0].fenced, cluster.image.brokers[0].in_controlled_shutdown) == (False, False)
    assert cluster.leaders("t") == [0]
