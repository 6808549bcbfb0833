"""Eligible leader replicas (KIP-966): each rule, told as a story of topic t with partition 0 on the brokers 0, 1 and 2.

`min.insync.replicas` is 2 unless a test says otherwise, so the high watermark stands still while the ISR has one member.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NO_LEADER, NodeId
from metadata_log.format.records import (
    BROKER_RESOURCE,
    ELR_VERSION,
    RECOVERED,
    RECOVERING,
    TOPIC_RESOURCE,
)
from metadata_log.image.metadata_image import EMPTY_IMAGE
from quorum.controller.features.bootstrap import bootstrap_features
from quorum.controller.partitions.election_rules import keeps_elr
from quorum.controller.protocol.brokers.broker_happenings import ReplicasMoved
from quorum.controller.protocol.brokers.state_reason import StateReason
from quorum.controller.protocol.commands import (
    AlterPartition,
    AlterPartitionReply,
    IsrMember,
    PartitionAlteration,
    RegisterBrokerReply,
)
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.election_commands import ElectionType, ElectLeaders, ElectLeadersReply, TopicPartition
from quorum.controller.protocol.feature_commands import (
    BootstrapFeatures,
    FeatureUpdate,
    UpdateFeatures,
    UpdateFeaturesReply,
    UpgradeType,
)
from quorum.controller.protocol.happenings import ReassignmentsFinished
from quorum.controller.protocol.reassignment_commands import (
    AlterPartitionReassignments,
    AlterPartitionReassignmentsReply,
    Reassignment,
)
from tests.quorum.controller.cluster import Cluster, Run, registration
from tests.quorum.controller.leadership.test_election_rules import MIN_ISR, UNCLEAN, alter, due

SMALL_SLICES = ControllerConfig(slice_changes_max=5, slice_partitions_max=5)


class Now(NamedTuple):
    leader: NodeId
    isr: tuple[NodeId, ...]
    elr: tuple[NodeId, ...] = ()
    last_known: tuple[NodeId, ...] = ()
    recovery: int = RECOVERED


def turn_elr(cluster: Cluster, *, on: bool) -> None:
    kind = UpgradeType.UPGRADE if on else UpgradeType.SAFE_DOWNGRADE
    cluster.ask(UpdateFeatures((FeatureUpdate(ELR_VERSION, int(on), kind),)), UpdateFeaturesReply)


def keeping_elr(*, min_isr: int = 2, brokers: int = 3, config: ControllerConfig | None = None) -> Cluster:
    cluster = Cluster(brokers, config=config)
    turn_elr(cluster, on=True)
    cluster.assign("t", tuple(range(3)))
    alter(cluster, (TOPIC_RESOURCE, "t"), MIN_ISR, str(min_isr))
    return cluster


@pytest.fixture
def cluster() -> Cluster:
    return keeping_elr()


def now(cluster: Cluster, partition: int = 0) -> Now:
    state = cluster.partitions("t")[partition]
    return Now(state.leader, state.isr, state.elr, state.last_known_elr, state.leader_recovery_state)


def fence(cluster: Cluster, *broker_ids: NodeId) -> None:
    for broker_id in broker_ids:
        cluster.contact(broker_id, wants_fence=True)


def propose(cluster: Cluster, *isr: NodeId, recovery: int = RECOVERED) -> ErrorCode:
    state = cluster.partitions("t")[0]
    members = tuple(IsrMember(each) for each in isr)
    alteration = PartitionAlteration(
        state.topic_id, 0, state.leader_epoch, state.partition_epoch, members, leader_recovery_state=recovery
    )
    epoch = cluster.image.brokers[state.leader].broker_epoch
    return cluster.ask(AlterPartition(state.leader, epoch, (alteration,)), AlterPartitionReply).results[0].error


def restart(cluster: Cluster, broker_id: NodeId, *, clean: bool, **other: Any) -> Run:
    """A new process of the broker registers, with the proof of a clean shutdown or without; it is not online yet."""
    cluster.lives[broker_id] = life = cluster.lives[broker_id] + 1
    old = cluster.image.brokers[broker_id]
    fields = {"previous_incarnation_id": old.incarnation_id, **other}
    if clean:
        fields = {"previous_broker_epoch": old.broker_epoch, **fields}
    run = cluster.run(replace(registration(broker_id, life), **fields))
    assert isinstance(run.reply, RegisterBrokerReply)
    return run


# --- who is eligible -----------------------------------------------------------------------------------------------


def test_who_leaves_an_isr_that_stays_large_enough_is_not_eligible(cluster: Cluster) -> None:
    """The high watermark goes on without the member, so the member will lack records."""
    fence(cluster, 2)
    assert now(cluster) == Now(0, (0, 1))


def test_who_leaves_an_isr_below_the_minimum_is_eligible_until_the_isr_is_large_enough(cluster: Cluster) -> None:
    """Broker 1 leaves an ISR of two: the high watermark stands still, so broker 1 has all records below it. The ELR is cleared
    when broker 2 makes the ISR large enough: from then on the high watermark moves without broker 1."""
    fence(cluster, 2, 1)
    assert now(cluster) == Now(0, (0,), elr=(1,))
    cluster.contact(2)
    assert propose(cluster, 0, 2) is ErrorCode.NONE
    assert now(cluster) == Now(0, (0, 2))


def test_members_that_a_leader_takes_out_are_eligible_too(cluster: Cluster) -> None:
    """AlterPartition follows the same rule: both members leave at once, and the ISR has one member."""
    assert propose(cluster, 0) is ErrorCode.NONE
    assert now(cluster) == Now(0, (0,), elr=(1, 2))
    assert propose(cluster, 0, 1) is ErrorCode.NONE
    assert now(cluster) == Now(0, (0, 1))


def test_the_isr_may_become_empty(cluster: Cluster) -> None:
    """No fenced broker is in an ISR; the ELR says who has the data, and the last leader is known."""
    fence(cluster, 2, 1, 0)
    assert now(cluster) == Now(NO_LEADER, (), elr=(0, 1), last_known=(0,))


@pytest.mark.parametrize("min_isr", [1, 2, 3, 7])
def test_the_minimum_is_at_most_the_number_of_replicas(min_isr: int) -> None:
    """With 7 and three replicas, the effective minimum is 3: every member that leaves is eligible."""
    cluster = keeping_elr(min_isr=min_isr)
    fence(cluster, 2)
    assert now(cluster) == Now(0, (0, 1), elr=(2,) if min_isr >= 3 else ())


def test_without_the_feature_the_last_member_stays_in_the_isr() -> None:
    cluster = Cluster(3)
    cluster.assign("t", (0, 1, 2))
    alter(cluster, (TOPIC_RESOURCE, "t"), MIN_ISR, "2")
    fence(cluster, 2, 1, 0)
    assert now(cluster) == Now(NO_LEADER, (0,))
    restart(cluster, 0, clean=False)
    assert now(cluster) == Now(NO_LEADER, (0,))


# --- who is elected ------------------------------------------------------------------------------------------------


def test_an_eligible_leader_is_elected_cleanly_and_alone_in_the_isr(cluster: Cluster) -> None:
    """Broker 1 returns first. It has everything below the high watermark, so it need not wait for broker 0."""
    fence(cluster, 2, 1, 0)
    run = cluster.run(cluster.said_by(1))
    assert now(cluster) == Now(1, (1,), elr=(0,))
    moved = [each for each in run.happenings if isinstance(each, ReplicasMoved)]
    assert moved == [ReplicasMoved(1, StateReason.CAUGHT_UP, 1, 0, 1, unclean=0, from_elr=1)]
    cluster.contact(0)
    assert propose(cluster, 1, 0) is ErrorCode.NONE
    assert now(cluster) == Now(1, (1, 0))


def test_a_replica_that_is_not_eligible_waits(cluster: Cluster) -> None:
    fence(cluster, 2, 1, 0)
    cluster.contact(2)
    assert now(cluster) == Now(NO_LEADER, (), elr=(0, 1), last_known=(0,))


def test_a_member_of_the_isr_comes_before_an_eligible_replica(cluster: Cluster) -> None:
    """Broker 0 is eligible and assigned first; broker 1 is in sync, and leads."""
    fence(cluster, 2, 0)
    cluster.contact(0)
    assert now(cluster) == Now(1, (1,), elr=(0,))


def test_a_stopping_leader_gives_its_leadership_to_an_eligible_replica(cluster: Cluster) -> None:
    """Broker 0 is alone in the ISR and stops. Broker 1 is eligible and back: the partition is never without a leader."""
    fence(cluster, 2, 1)
    cluster.contact(1)
    assert now(cluster) == Now(0, (0,), elr=(1,))
    cluster.contact(0, wants_shut_down=True)
    assert now(cluster) == Now(1, (1,), elr=(0,))


# --- clean shutdowns -----------------------------------------------------------------------------------------------


def test_a_broker_with_the_proof_of_a_clean_shutdown_stays_eligible(cluster: Cluster) -> None:
    fence(cluster, 2, 1, 0)
    restart(cluster, 1, clean=True)
    assert now(cluster).elr == (0, 1)
    cluster.contact(1)
    assert now(cluster).leader == 1


def test_a_broker_without_the_proof_leaves_the_elr(cluster: Cluster) -> None:
    """The end of its log may be lost with the power, so it does not lead before it has caught up."""
    fence(cluster, 2, 1, 0)
    restart(cluster, 1, clean=False)
    assert now(cluster) == Now(NO_LEADER, (), elr=(0,), last_known=(0,))
    cluster.contact(1)
    assert now(cluster).leader == NO_LEADER
    cluster.contact(0)
    assert now(cluster) == Now(0, (0,))


def test_a_crashed_process_that_is_superseded_leaves_the_isr_and_is_not_eligible(cluster: Cluster) -> None:
    """Its session has not ended yet: broker 0 is still the leader when its next process registers."""
    fence(cluster, 2)
    restart(cluster, 0, clean=False)
    assert now(cluster) == Now(1, (1,))


def test_the_proof_is_of_the_last_process_only(cluster: Cluster) -> None:
    """An epoch of an earlier process proves nothing about the log of the last one."""
    fence(cluster, 2, 1, 0)
    earlier = cluster.image.brokers[1].broker_epoch
    restart(cluster, 1, clean=True)
    restart(cluster, 1, clean=True, previous_broker_epoch=earlier)
    assert now(cluster).elr == (0,)


def test_a_broker_that_lost_a_log_directory_leaves_the_elr(cluster: Cluster) -> None:
    """A clean shutdown does not help against a disk that is gone."""
    fence(cluster, 2, 1, 0)
    restart(cluster, 1, clean=True, log_dirs=(bytes([201] * 16),))
    assert now(cluster).elr == (0,)


def test_a_broker_without_a_data_plane_has_nothing_to_lose(cluster: Cluster) -> None:
    cluster.run(replace(registration(1), data_plane="none"))
    fence(cluster, 2, 1, 0)
    restart(cluster, 1, clean=False, data_plane="none")
    assert now(cluster).elr == (0, 1)


def test_an_unclean_registration_is_decided_in_slices() -> None:
    """The registration record comes last, so that the broker is not online before all its ELRs are clean."""
    cluster = keeping_elr(min_isr=2, config=SMALL_SLICES)
    for name in ("a", "b", "c", "d"):
        cluster.assign(name, *[(0, 1)] * 30)
        alter(cluster, (TOPIC_RESOURCE, name), MIN_ISR, "2")
    fence(cluster, 1)
    assert all(state.elr == (1,) for name in "abcd" for state in cluster.partitions(name))
    assert restart(cluster, 1, clean=False).steps > 4
    assert not any(state.elr for name in "abcd" for state in cluster.partitions(name))


# --- the last known leader -----------------------------------------------------------------------------------------


def test_the_last_known_leader_is_elected_when_nobody_is_eligible_any_more(cluster: Cluster) -> None:
    """All brokers lost power. The last leader has the longest log in all likelihood; it is alone in the ISR, and RECOVERING."""
    fence(cluster, 2, 1, 0)
    for broker_id in (0, 1, 2):
        restart(cluster, broker_id, clean=False)
    assert now(cluster) == Now(NO_LEADER, (), last_known=(0,))
    cluster.contact(1)
    assert now(cluster).leader == NO_LEADER
    run = cluster.run(cluster.said_by(0))
    assert now(cluster) == Now(0, (0,), recovery=RECOVERING)
    assert [each.unclean for each in run.happenings if isinstance(each, ReplicasMoved)] == [1]


def test_the_last_known_leader_waits_while_anybody_is_eligible(cluster: Cluster) -> None:
    fence(cluster, 2, 1, 0)
    restart(cluster, 0, clean=False)
    cluster.contact(0)
    assert now(cluster) == Now(NO_LEADER, (), elr=(1,), last_known=(0,))
    cluster.contact(1)
    assert now(cluster) == Now(1, (1,))


# --- unclean elections ---------------------------------------------------------------------------------------------


def elect_uncleanly(cluster: Cluster) -> tuple[ErrorCode, str]:
    command = ElectLeaders((TopicPartition("t", 0),), ElectionType.UNCLEAN)
    result = cluster.ask(command, ElectLeadersReply).results[0]
    return result.error, result.message


def test_an_unclean_election_clears_the_elr(cluster: Cluster) -> None:
    """The records of the eligible replicas are given up, so these replicas are not safe any more."""
    fence(cluster, 2, 1, 0)
    cluster.contact(2)
    assert elect_uncleanly(cluster) == (ErrorCode.NONE, "")
    assert now(cluster) == Now(2, (2,), recovery=RECOVERING)


def test_the_config_of_unclean_elections_comes_last(cluster: Cluster) -> None:
    alter(cluster, (TOPIC_RESOURCE, "t"), UNCLEAN, "true")
    fence(cluster, 2, 1, 0)
    cluster.contact(1)
    assert now(cluster) == Now(1, (1,), elr=(0,))
    fence(cluster, 1)
    cluster.contact(2)
    assert now(cluster) == Now(2, (2,), recovery=RECOVERING)


# --- changes of the configuration ----------------------------------------------------------------------------------


@pytest.mark.parametrize("resource", [(TOPIC_RESOURCE, "t"), (BROKER_RESOURCE, "")])
@pytest.mark.parametrize("value", ["1", "3", None])
def test_a_change_of_min_insync_replicas_clears_the_elr(
    cluster: Cluster, resource: tuple[int, str], value: str | None
) -> None:
    """With a smaller minimum the high watermark moves without the eligible replica. All changes are treated alike."""
    alter(cluster, (BROKER_RESOURCE, ""), MIN_ISR, "2")
    fence(cluster, 2, 1)
    assert now(cluster).elr == (1,)
    assert alter(cluster, resource, MIN_ISR, value).error is ErrorCode.NONE
    assert now(cluster) == Now(0, (0,))


def test_a_change_that_changes_nothing_clears_nothing(cluster: Cluster) -> None:
    fence(cluster, 2, 1)
    alter(cluster, (TOPIC_RESOURCE, "t"), MIN_ISR, "2")
    alter(cluster, (TOPIC_RESOURCE, "t"), UNCLEAN, "false")
    assert now(cluster).elr == (1,)


def test_a_partition_without_a_leader_keeps_its_safe_leaders_through_a_change(cluster: Cluster) -> None:
    """Nobody writes to the partition, so the eligible replicas are as safe as before. They wait in the ISR, and the members that
    are absent leave it when one of them leads."""
    fence(cluster, 2, 1, 0)
    alter(cluster, (TOPIC_RESOURCE, "t"), MIN_ISR, "1")
    assert now(cluster) == Now(NO_LEADER, (0, 1))
    cluster.contact(1)
    assert now(cluster) == Now(1, (1,))


def test_the_feature_is_turned_on_and_off_in_a_running_cluster() -> None:
    """On: a partition that lost its leader before keeps its last member, which may lead. Off: the ELRs are cleared, and a
    partition without a leader keeps its safe leaders in the ISR."""
    cluster = Cluster(3)
    cluster.assign("t", (0, 1, 2))
    alter(cluster, (TOPIC_RESOURCE, "t"), MIN_ISR, "2")
    fence(cluster, 2, 1, 0)
    turn_elr(cluster, on=True)
    assert now(cluster) == Now(NO_LEADER, (0,))
    cluster.contact(0)
    assert now(cluster) == Now(0, (0,))
    cluster.contact(1)
    assert propose(cluster, 0, 1) is ErrorCode.NONE
    fence(cluster, 0, 1)
    assert now(cluster) == Now(NO_LEADER, (), elr=(0, 1), last_known=(1,))

    turn_elr(cluster, on=False)
    assert now(cluster) == Now(NO_LEADER, (0, 1))
    cluster.contact(0)
    assert now(cluster) == Now(0, (0,))
    fence(cluster, 0)
    assert now(cluster) == Now(NO_LEADER, (0,))
    assert due(cluster) == []


def test_a_broker_that_crashed_before_the_feature_was_on_is_the_last_known_leader() -> None:
    cluster = Cluster(3)
    cluster.assign("t", (0, 1, 2))
    fence(cluster, 2, 1, 0)
    turn_elr(cluster, on=True)
    restart(cluster, 0, clean=False)
    assert now(cluster) == Now(NO_LEADER, (), last_known=(0,))
    cluster.contact(0)
    assert now(cluster) == Now(0, (0,), recovery=RECOVERING)


@pytest.mark.parametrize(("metadata_version", "keeps"), [(1, False), (2, True)])
def test_a_new_cluster_may_begin_with_the_feature(metadata_version: int, keeps: bool) -> None:
    """The feature needs the level of metadata.version that has ELR fields in records."""
    image = Cluster().image
    assert ELR_VERSION not in image.features
    decision = bootstrap_features(EMPTY_IMAGE, BootstrapFeatures(metadata_version, 1))
    cluster = Cluster(config=ControllerConfig(bootstrap_metadata_version=metadata_version))
    cluster.image = EMPTY_IMAGE
    cluster.fold(decision)
    assert keeps_elr(cluster.image) is keeps
    config = ControllerConfig(bootstrap_metadata_version=metadata_version, bootstrap_elr_version=1)
    assert bool(config.problems()) is not keeps


def test_an_election_from_the_elr_finishes_a_reassignment_that_waited_for_its_isr(cluster: Cluster) -> None:
    """1. The ISR is broker 0, the ELR is broker 1, and the target is broker 1 alone. 2. Broker 0 is fenced. 3. Broker 1 is back,
    and is elected from the ELR. The same record ends the reassignment, because the ISR has the target."""
    fence(cluster, 2, 1)
    moved = AlterPartitionReassignments((Reassignment("t", 0, (1,)),))
    cluster.ask(moved, AlterPartitionReassignmentsReply)
    fence(cluster, 0)
    waiting = cluster.partitions("t")[0]
    assert (waiting.replicas, waiting.removing_replicas, waiting.leader) == ((1, 0, 2), (0, 2), NO_LEADER)

    told = cluster.run(cluster.said_by(1)).happenings
    state = cluster.partitions("t")[0]
    assert (state.replicas, state.removing_replicas) == ((1,), ())
    assert now(cluster) == Now(1, (1,))
    assert ReassignmentsFinished(1, ("t-0: 1",)) in told
