"""Log directories of brokers (KIP-858): which replica is where, and what a lost directory takes with it."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import LOST_DIRECTORY, NO_LEADER, UNASSIGNED_DIRECTORY, NodeId, Uuid
from metadata_log.format.records import (
    RECOVERING,
    TOPIC_RESOURCE,
    BrokerRegistrationChange,
    FeatureLevel,
    MetadataRecord,
    PartitionChange,
)
from quorum.controller.brokers.departures import STALLED_WALK_MS
from quorum.controller.protocol.brokers.broker_happenings import LogDirectoriesLost, ReplicasAssigned, ReplicasMoved
from quorum.controller.protocol.brokers.state_reason import StateReason
from quorum.controller.protocol.commands import (
    AlterPartition,
    AlterPartitionReply,
    IsrMember,
    PartitionAlteration,
    PartitionAlterationResult,
)
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.decision import ControllerError
from quorum.controller.protocol.directory_commands import (
    ASSIGNMENTS_MAX,
    AssignReplicasToDirs,
    AssignReplicasToDirsReply,
    ContinueDirectoryLoss,
    DirectoryAssignment,
    DirectoryAssignmentResult,
)
from quorum.controller.protocol.election_commands import ElectionType, ElectLeaders, ElectLeadersReply, TopicPartition
from quorum.controller.protocol.reassignment_commands import AlterPartitionReassignments, Reassignment
from tests.quorum.controller.cluster import Cluster, registration
from tests.quorum.controller.leadership.test_election_rules import MIN_ISR, UNCLEAN, alter
from tests.quorum.controller.leadership.test_eligible_leaders import turn_elr


def directory(broker_id: NodeId, name: str) -> Uuid:
    return bytes([ord(name), *broker_id.to_bytes(4, "big"), *bytes(11)])


def with_two_directories(brokers: int = 3, *, config: ControllerConfig | None = None) -> Cluster:
    """Brokers that are online, each with the directories A and B."""
    cluster = Cluster(config=config)
    for broker_id in range(brokers):
        register(cluster, broker_id, "AB")
        cluster.contact(broker_id)
    return cluster


def register(cluster: Cluster, broker_id: NodeId, names: Iterable[str], *, proof: bool = False) -> None:
    """The next process of the broker registers with these directories."""
    old = cluster.image.brokers.get(broker_id)
    life = cluster.lives.get(broker_id, 0) + 1
    command = replace(registration(broker_id, life), log_dirs=tuple(directory(broker_id, name) for name in names))
    if old is not None:
        command = replace(command, previous_incarnation_id=old.incarnation_id)
        command = replace(command, previous_broker_epoch=old.broker_epoch) if proof else command
    cluster.run(command)
    cluster.lives[broker_id] = life


def put(
    cluster: Cluster, broker_id: NodeId, in_directory: Uuid, *partitions: int, topic: str = "t"
) -> tuple[DirectoryAssignmentResult, ...]:
    """The broker says that its replicas of the partitions are in the directory."""
    found = cluster.image.topic(topic)
    assert found is not None
    return ask(cluster, broker_id, *[DirectoryAssignment(found.topic_id, each, in_directory) for each in partitions])


def ask(
    cluster: Cluster, broker_id: NodeId, *assignments: DirectoryAssignment
) -> tuple[DirectoryAssignmentResult, ...]:
    epoch = cluster.image.brokers[broker_id].broker_epoch
    reply = cluster.ask(AssignReplicasToDirs(broker_id, epoch, assignments), AssignReplicasToDirsReply)
    cluster.check_laws()
    return reply.results


def lose(cluster: Cluster, broker_id: NodeId, *names: str) -> list[MetadataRecord]:
    """The broker reports that its directories have failed."""
    records = cluster.contact(broker_id, offline_log_dirs=tuple(directory(broker_id, name) for name in names))
    cluster.check_laws()
    return records


def propose(cluster: Cluster, leader: NodeId, *isr: NodeId) -> PartitionAlterationResult:
    """The leader of t-0 proposes an ISR."""
    state = cluster.partitions("t")[0]
    members = tuple(IsrMember(each) for each in isr)
    alteration = PartitionAlteration(state.topic_id, 0, state.leader_epoch, state.partition_epoch, members)
    epoch = cluster.image.brokers[leader].broker_epoch
    return cluster.ask(AlterPartition(leader, epoch, (alteration,)), AlterPartitionReply).results[0]


# --- assignments -----------------------------------------------------------------------------------------------------


def test_a_broker_says_where_its_replica_is() -> None:
    """The directories are parallel to the replicas. A partition of which nobody has said anything has none."""
    cluster = with_two_directories()
    cluster.assign("t", (0, 1, 2), (0, 1, 2))
    assert put(cluster, 1, directory(1, "A"), 0)[0].error is ErrorCode.NONE
    put(cluster, 2, directory(2, "B"), 0)
    first, second = cluster.partitions("t")
    assert first.directories == (UNASSIGNED_DIRECTORY, directory(1, "A"), directory(2, "B"))
    assert (first.leader, first.leader_epoch, first.partition_epoch) == (0, 0, 2)
    assert second.directories == ()


def test_a_repeated_assignment_writes_nothing() -> None:
    """Brokers assign again after a restart, or after an answer that was lost."""
    cluster = with_two_directories()
    cluster.assign("t", (0, 1))
    put(cluster, 0, directory(0, "A"), 0)
    before = cluster.image.offset
    assert put(cluster, 0, directory(0, "A"), 0)[0].error is ErrorCode.NONE
    assert cluster.image.offset == before


def test_each_replica_is_judged_by_itself() -> None:
    """A bad assignment in a request does not keep the others from being recorded."""
    cluster = with_two_directories()
    cluster.assign("t", (0, 1), (1, 2))
    topic = cluster.image.topic("t")
    assert topic is not None
    good, other = directory(0, "A"), directory(1, "A")
    results = ask(
        cluster,
        0,
        DirectoryAssignment(bytes(16), 0, good),
        DirectoryAssignment(topic.topic_id, 7, good),
        DirectoryAssignment(topic.topic_id, 1, good),
        DirectoryAssignment(topic.topic_id, 0, good),
    )
    assert [each.error for each in results] == [
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NONE,
    ]
    assert put(cluster, 0, other, 0)[0].error is ErrorCode.LOG_DIR_NOT_FOUND
    assert put(cluster, 0, UNASSIGNED_DIRECTORY, 0)[0].error is ErrorCode.INVALID_REQUEST
    assert cluster.partitions("t")[0].directories == (good, UNASSIGNED_DIRECTORY)


def test_a_bad_request_is_refused_as_a_whole() -> None:
    """A stale epoch, too many replicas, a partition named twice, and a cluster at the first level."""
    cluster = with_two_directories()
    cluster.assign("t", (0, 1))
    epoch = cluster.image.brokers[0].broker_epoch
    good = DirectoryAssignment(cluster.partitions("t")[0].topic_id, 0, directory(0, "A"))
    many = tuple(good._replace(partition=each) for each in range(ASSIGNMENTS_MAX + 1))
    for command, code in (
        (AssignReplicasToDirs(0, epoch + 1, (good,)), ErrorCode.STALE_BROKER_EPOCH),
        (AssignReplicasToDirs(9, epoch, (good,)), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (AssignReplicasToDirs(0, epoch, many), ErrorCode.POLICY_VIOLATION),
        (AssignReplicasToDirs(0, epoch, (good, good)), ErrorCode.INVALID_REQUEST),
    ):
        with pytest.raises(ControllerError) as refused:
            cluster.run(command)
        assert refused.value.code is code
    assert len(ask(cluster, 0, *many[:-1])) == ASSIGNMENTS_MAX
    old = Cluster(1, config=ControllerConfig(bootstrap_metadata_version=1))
    with pytest.raises(ControllerError, match=r"needs metadata.version 2") as refused:
        old.run(AssignReplicasToDirs(0, old.image.brokers[0].broker_epoch, ()))
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert FeatureLevel("metadata.version", 1).level == old.image.metadata_version


def test_a_large_request_takes_several_short_turns() -> None:
    """The reply of the last batch has all results, in order, and the story is told batch by batch."""
    cluster = with_two_directories(config=ControllerConfig(slice_changes_max=10))
    cluster.assign("t", *[(0, 1)] * 25)
    topic_id = cluster.partitions("t")[0].topic_id
    wanted = tuple(DirectoryAssignment(topic_id, each, directory(0, "A")) for each in range(26))
    run = cluster.run(AssignReplicasToDirs(0, cluster.image.brokers[0].broker_epoch, wanted))
    assert run.steps == 3
    assert isinstance(run.reply, AssignReplicasToDirsReply)
    assert [each.partition for each in run.reply.results] == list(range(26))
    assert [each.error for each in run.reply.results][-2:] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert run.happenings == [ReplicasAssigned(0, 10), ReplicasAssigned(0, 10), ReplicasAssigned(0, 5)]


def test_a_reassignment_moves_the_directories_with_their_replicas() -> None:
    """A new replica has no directory, and the others keep theirs, also when the reassignment ends or is cancelled."""
    cluster = with_two_directories(4)
    cluster.assign("t", (0, 1, 2))
    for broker_id in (0, 1, 2):
        put(cluster, broker_id, directory(broker_id, "A"), 0)
    cluster.run(AlterPartitionReassignments((Reassignment("t", 0, (3, 1)),)))
    state = cluster.partitions("t")[0]
    assert (state.replicas, state.directories[0]) == ((3, 1, 0, 2), UNASSIGNED_DIRECTORY)
    put(cluster, 3, directory(3, "B"), 0)
    propose(cluster, 0, 3, 1, 0, 2)
    state = cluster.partitions("t")[0]
    assert (state.replicas, state.directories) == ((3, 1), (directory(3, "B"), directory(1, "A")))


# --- losses ----------------------------------------------------------------------------------------------------------


def test_a_lost_directory_takes_only_its_own_replicas_out() -> None:
    """Broker 0 has t-0 in A, t-1 in B, and has said nothing of t-2. It loses A, and stays online."""
    cluster = with_two_directories()
    cluster.assign("t", *[(0, 1, 2)] * 3)
    put(cluster, 0, directory(0, "A"), 0)
    put(cluster, 0, directory(0, "B"), 1)
    run = cluster.run(cluster.said_by(0, offline_log_dirs=(directory(0, "A"),)))
    assert [state.isr for state in cluster.partitions("t")] == [(1, 2), (0, 1, 2), (0, 1, 2)]
    assert cluster.leaders("t") == [1, 0, 0]
    broker = cluster.image.brokers[0]
    assert (broker.log_dirs, broker.fenced) == ((directory(0, "B"),), False)
    assert run.happenings == [
        LogDirectoriesLost(0, broker.broker_epoch, lost=1, left=1),
        ReplicasMoved(0, StateReason.LOG_DIRECTORIES_LOST, 1, 0, 1, 0),
    ]
    assert cluster.run(cluster.said_by(0, offline_log_dirs=(directory(0, "A"),))).records == []


def test_the_registration_loses_the_directory_in_the_last_batch() -> None:
    """No image has a leader in a directory that its broker's registration lacks.

    1. Broker 0 leads 200 partitions in A, and loses A. The first slice moves some of them.
    2. The next controller knows nothing of that. The broker repeats its report, and the controller begins again.
    """
    cluster = with_two_directories(config=ControllerConfig(slice_changes_max=40, slice_partitions_max=64))
    cluster.assign("t", *[(0, 1)] * 200)
    put(cluster, 0, directory(0, "A"), *range(200))
    said = cluster.said_by(0, offline_log_dirs=(directory(0, "A"),))
    decision = cluster.controller.decide(cluster.image, said, cluster.now_ms)
    cluster.fold(decision)
    assert decision.then == ContinueDirectoryLoss(0)
    assert len(cluster.image.brokers[0].log_dirs) == 2
    cluster.check_laws()
    assert cluster.controller.decide(cluster.image, said, cluster.now_ms).records == (), "the walk goes on by itself"

    cluster.controller.activate(cluster.image, cluster.now_ms)
    assert cluster.run(ContinueDirectoryLoss(0)).records == []
    records = cluster.run(said).records
    assert isinstance(records[-1], BrokerRegistrationChange)
    assert records[-1].log_dirs == (directory(0, "B"),)
    assert cluster.leaders("t") == [1] * 200
    cluster.check_laws()


def test_a_loss_that_stands_still_is_due() -> None:
    """A batch that was never appended does not end the walk."""
    cluster = with_two_directories(config=ControllerConfig(slice_changes_max=40, slice_partitions_max=64))
    cluster.assign("t", *[(0, 1)] * 200)
    put(cluster, 0, directory(0, "A"), *range(200))
    said = cluster.said_by(0, offline_log_dirs=(directory(0, "A"),))
    cluster.fold(cluster.controller.decide(cluster.image, said, cluster.now_ms))
    cluster.now_ms += STALLED_WALK_MS
    deadline_ms = cluster.controller.next_deadline_ms()
    assert deadline_ms is not None and deadline_ms <= cluster.now_ms
    assert cluster.controller.due(cluster.image, cluster.now_ms) == ContinueDirectoryLoss(0)
    cluster.run(ContinueDirectoryLoss(0))
    assert cluster.leaders("t") == [1] * 200


def test_meanwhile_no_replica_in_the_directory_enters_an_isr() -> None:
    """Broker 1 leads t-0, and proposes broker 0, whose directory is being lost; or broker 0 assigns a replica there."""
    cluster = with_two_directories(config=ControllerConfig(slice_changes_max=40, slice_partitions_max=64))
    cluster.assign("t", *[(0, 1)] * 200)
    put(cluster, 0, directory(0, "A"), *range(200))
    said = cluster.said_by(0, offline_log_dirs=(directory(0, "A"),))
    cluster.fold(cluster.controller.decide(cluster.image, said, cluster.now_ms))
    assert cluster.partitions("t")[0].isr == (1,)
    assert propose(cluster, 1, 1, 0).error is ErrorCode.INELIGIBLE_REPLICA
    topic_id = cluster.partitions("t")[0].topic_id
    (result,) = ask(cluster, 0, DirectoryAssignment(topic_id, 0, directory(0, "A")))
    assert result.error is ErrorCode.LOG_DIR_NOT_FOUND


def test_a_second_directory_is_lost_while_the_first_loss_is_under_way() -> None:
    """The walk begins again for both; a broker that has none left is fenced."""
    config = ControllerConfig(slice_changes_max=40, slice_partitions_max=64)
    cluster = with_two_directories(config=config)
    register(cluster, 0, "ABC")
    cluster.contact(0)
    cluster.assign("t", *[(0, 1)] * 200)
    put(cluster, 0, directory(0, "A"), *range(0, 200, 2))
    put(cluster, 0, directory(0, "B"), *range(1, 200, 2))
    cluster.fold(
        cluster.controller.decide(
            cluster.image, cluster.said_by(0, offline_log_dirs=(directory(0, "A"),)), cluster.now_ms
        )
    )
    lose(cluster, 0, "A", "B")
    assert cluster.image.brokers[0].log_dirs == (directory(0, "C"),)
    assert cluster.leaders("t") == [1] * 200
    lose(cluster, 0, "A", "B", "C")
    broker = cluster.image.brokers[0]
    assert (len(broker.log_dirs), broker.fenced) == (0, True)


# --- offline replicas ------------------------------------------------------------------------------------------------


def without_a() -> Cluster:
    """t-0 has the replicas 0,1,2, and that of the online broker 0 is in a directory that has failed."""
    cluster = with_two_directories()
    cluster.assign("t", (0, 1, 2))
    put(cluster, 0, directory(0, "A"), 0)
    lose(cluster, 0, "A")
    return cluster


def test_an_offline_replica_enters_no_isr() -> None:
    """INELIGIBLE_REPLICA, until the replica is in an online directory."""
    cluster = without_a()
    refused = propose(cluster, 1, 0, 1, 2)
    assert (refused.error, refused.message) == (
        ErrorCode.INELIGIBLE_REPLICA,
        "broker 0 can't be in the ISR: it has its replica in a log directory that is offline",
    )
    put(cluster, 0, directory(0, "B"), 0)
    assert propose(cluster, 1, 0, 1, 2).error is ErrorCode.NONE
    assert cluster.partitions("t")[0].isr == (0, 1, 2)


def elect(cluster: Cluster, kind: ElectionType, leader: NodeId = NO_LEADER) -> ErrorCode:
    command = ElectLeaders((TopicPartition("t", 0),), kind, leader)
    return cluster.ask(command, ElectLeadersReply).results[0].error


def test_an_offline_replica_is_not_elected() -> None:
    """Not by a return, not on request, not even uncleanly. Once the replica is in an online directory, it is."""
    cluster = with_two_directories()
    cluster.assign("t", (0, 1))
    put(cluster, 0, directory(0, "A"), 0)
    propose(cluster, 0, 0)
    lose(cluster, 0, "A")
    assert (cluster.leaders("t"), cluster.partitions("t")[0].isr) == ([NO_LEADER], (0,)), "the last member stays"
    cluster.contact(1, wants_fence=True)
    assert elect(cluster, ElectionType.UNCLEAN) is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert elect(cluster, ElectionType.PREFERRED) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert elect(cluster, ElectionType.DESIGNATED, 0) is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    put(cluster, 0, directory(0, "B"), 0)
    assert cluster.leaders("t") == [0]


def test_an_unclean_election_passes_the_offline_replica_over() -> None:
    """Broker 0 is the first active replica of the assignment, and its directory has failed: broker 1 leads."""
    cluster = with_two_directories()
    cluster.assign("t", (0, 1))
    put(cluster, 0, directory(0, "A"), 0)
    propose(cluster, 0, 0)
    alter(cluster, (TOPIC_RESOURCE, "t"), UNCLEAN, "true")
    lose(cluster, 0, "A")
    state = cluster.partitions("t")[0]
    assert (state.leader, state.isr, state.leader_recovery_state) == (1, (1,), RECOVERING)


def test_a_process_with_the_directory_brings_its_replicas_back() -> None:
    """The disk is mended, and broker 0 registers with A again: its replicas there may lead. Without A they may not."""
    cluster = with_two_directories()
    cluster.assign("t", (0,), (0,))
    put(cluster, 0, directory(0, "A"), 0)
    put(cluster, 0, directory(0, "B"), 1)
    lose(cluster, 0, "A")
    assert cluster.leaders("t") == [NO_LEADER, 0]
    register(cluster, 0, "B")
    cluster.contact(0)
    cluster.check_laws()
    assert cluster.leaders("t") == [NO_LEADER, 0]
    register(cluster, 0, "AB")
    cluster.contact(0)
    assert cluster.leaders("t") == [0, 0]


def test_a_controlled_shutdown_is_not_held_by_an_offline_replica() -> None:
    """Broker 1 leads t-0, and only the offline replica of broker 0 is left: nobody could take the leadership over."""
    cluster = with_two_directories(2)
    cluster.assign("t", (0, 1))
    put(cluster, 0, directory(0, "A"), 0)
    lose(cluster, 0, "A")
    assert cluster.leaders("t") == [1]
    cluster.contact(1, wants_shut_down=True)
    cluster.contact(0)
    cluster.contact(1, wants_shut_down=True)
    assert cluster.image.brokers[1].fenced


def test_a_replica_that_was_lost_before_it_was_assigned_is_taken_out() -> None:
    """The broker could not say in time that t-0 was in A. It says that the replica is lost."""
    cluster = with_two_directories()
    cluster.assign("t", (0, 1), (0, 1))
    lose(cluster, 0, "A")
    assert cluster.leaders("t") == [0, 0]
    assert put(cluster, 0, LOST_DIRECTORY, 0)[0].error is ErrorCode.NONE
    assert cluster.leaders("t") == [1, 0]
    assert cluster.partitions("t")[0].isr == (1,)


def test_a_lost_replica_of_another_broker_is_no_reason() -> None:
    """The replica of broker 0 is in LOST_DIRECTORY. Broker 1 puts its own replica into an online directory, and leads: the story
    does not say that broker 1 has lost a directory.
    """
    cluster = with_two_directories()
    cluster.assign("t", (0, 1))
    put(cluster, 1, directory(1, "A"), 0)
    propose(cluster, 0, 0)
    lose(cluster, 1, "A")
    put(cluster, 0, LOST_DIRECTORY, 0)
    assert cluster.leaders("t") == [NO_LEADER]
    alter(cluster, (TOPIC_RESOURCE, "t"), UNCLEAN, "true")
    state = cluster.partitions("t")[0]
    assignment = DirectoryAssignment(state.topic_id, 0, directory(1, "B"))
    run = cluster.run(AssignReplicasToDirs(1, cluster.image.brokers[1].broker_epoch, (assignment,)))
    assert (cluster.leaders("t"), cluster.partitions("t")[0].isr) == ([1], (1,))
    told = [each for each in run.happenings if isinstance(each, ReplicasMoved)]
    assert told and {each.why for each in told} == {StateReason.CAUGHT_UP}


# --- eligible leader replicas ----------------------------------------------------------------------------------------


def test_a_lost_replica_is_no_eligible_leader() -> None:
    """With ELR a member that leaves a small ISR is remembered (KIP-966), but not if its disk has failed. A fenced broker reports
    the loss, too."""
    cluster = with_two_directories()
    turn_elr(cluster, on=True)
    cluster.assign("t", (0, 1))
    alter(cluster, (TOPIC_RESOURCE, "t"), MIN_ISR, "2")
    put(cluster, 0, directory(0, "A"), 0)
    put(cluster, 1, directory(1, "A"), 0)
    cluster.contact(1, wants_fence=True)
    assert (cluster.partitions("t")[0].isr, cluster.partitions("t")[0].elr) == ((0,), (1,))
    lose(cluster, 1, "A")
    assert cluster.partitions("t")[0].elr == ()
    assert cluster.image.brokers[1].fenced
    lose(cluster, 0, "A")
    state = cluster.partitions("t")[0]
    assert (state.isr, state.elr, state.leader, state.last_known_elr) == ((), (), NO_LEADER, (0,))
    put(cluster, 0, directory(0, "B"), 0)
    state = cluster.partitions("t")[0]
    assert (state.leader, state.leader_recovery_state) == (0, RECOVERING), "the last known leader is the best guess"


def test_a_fenced_broker_that_loses_all_directories_is_no_eligible_leader_anywhere() -> None:
    """Without directories the broker has no replica, whether it has said where each one was or not."""
    cluster = with_two_directories()
    turn_elr(cluster, on=True)
    cluster.assign("t", (0, 1))
    alter(cluster, (TOPIC_RESOURCE, "t"), MIN_ISR, "2")
    cluster.contact(1, wants_fence=True)
    assert cluster.partitions("t")[0].elr == (1,)
    lose(cluster, 1, "A", "B")
    assert (cluster.partitions("t")[0].elr, cluster.image.brokers[1].log_dirs) == ((), ())


def test_the_change_names_what_it_must_and_no_more() -> None:
    """An assignment that moves no leader names the directories alone: the leader's epoch stays."""
    cluster = with_two_directories()
    cluster.assign("t", (0, 1))
    epoch = cluster.image.brokers[1].broker_epoch
    topic_id = cluster.partitions("t")[0].topic_id
    wanted = DirectoryAssignment(topic_id, 0, directory(1, "B"))
    (record,) = cluster.run(AssignReplicasToDirs(1, epoch, (wanted,))).records
    directories = (UNASSIGNED_DIRECTORY, directory(1, "B"))
    assert record == PartitionChange(topic_id, 0, directories=directories)
