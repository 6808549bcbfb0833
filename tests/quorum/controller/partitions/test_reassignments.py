"""Replicas move to other brokers: nothing is lost on the way, and each partition ends with exactly its target."""

import pytest

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NO_LEADER, NodeId
from metadata_log.format.records import TOPIC_RESOURCE, PartitionChange
from metadata_log.image.metadata_image import evolved
from quorum.controller.partitions.listing.partition_counts import PartitionCounter
from quorum.controller.partitions.listing.partition_health import partition_health
from quorum.controller.protocol.commands import (
    AlterPartition,
    AlterPartitionReply,
    IsrMember,
    PartitionAlteration,
    PartitionAlterationResult,
)
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.config_commands import (
    AlterConfigs,
    ConfigAlteration,
    ConfigOperation,
    ConfigOperationKind,
)
from quorum.controller.protocol.decision import ControllerError
from quorum.controller.protocol.election_commands import (
    ElectionType,
    ElectLeaders,
    ElectLeadersReply,
    TopicPartition,
)
from quorum.controller.protocol.happenings import ReassignmentsAltered, ReassignmentsFinished
from quorum.controller.protocol.mode_commands import DrainBroker
from quorum.controller.protocol.reassignment_commands import (
    AlterPartitionReassignments,
    AlterPartitionReassignmentsReply,
    Reassignment,
    ReassignmentResult,
)
from quorum.controller.protocol.topic_commands import CreatePartitions, NewPartitions
from quorum.controller.views import list_topics
from tests.quorum.controller.cluster import Cluster

Ids = tuple[NodeId, ...]


def reassign(cluster: Cluster, replicas: Ids | None, partition: int = 0) -> ReassignmentResult:
    """Asks for one partition of t."""
    command = AlterPartitionReassignments((Reassignment("t", partition, replicas),))
    return cluster.ask(command, AlterPartitionReassignmentsReply).results[0]


def in_sync(cluster: Cluster, *isr: NodeId, partition: int = 0) -> PartitionAlterationResult:
    """The leader of a partition of t proposes this ISR."""
    found = cluster.partitions("t")[partition]
    proposed = PartitionAlteration(
        found.topic_id, partition, found.leader_epoch, found.partition_epoch, tuple(IsrMember(each) for each in isr)
    )
    command = AlterPartition(found.leader, cluster.image.brokers[found.leader].broker_epoch, (proposed,))
    return cluster.ask(command, AlterPartitionReply).results[0]


def state(cluster: Cluster, partition: int = 0) -> tuple[Ids, Ids, Ids, Ids, NodeId]:
    """Replicas, adding, removing, ISR and leader."""
    found = cluster.partitions("t")[partition]
    return found.replicas, found.adding_replicas, found.removing_replicas, found.isr, found.leader


@pytest.fixture
def cluster() -> Cluster:
    """t-0 is on brokers 0, 1 and 2 of six."""
    cluster = Cluster(6)
    cluster.assign("t", (0, 1, 2))
    return cluster


# --- from begin to end -----------------------------------------------------------------------------------------------


def test_a_replica_moves_to_another_broker(cluster: Cluster) -> None:
    """The target comes first in the replicas, then those that are removed. All of the target in the ISR ends the reassignment."""
    result = reassign(cluster, (3, 1, 2))
    assert (result.error, result.adding, result.removing) == (ErrorCode.NONE, (3,), (0,))
    assert state(cluster) == ((3, 1, 2, 0), (3,), (0,), (0, 1, 2), 0)

    done = in_sync(cluster, 0, 1, 2, 3)
    assert done.error is ErrorCode.NEW_LEADER_ELECTED
    assert state(cluster) == ((3, 1, 2), (), (), (1, 2, 3), 3)


def test_a_removed_leader_leads_until_the_end(cluster: Cluster) -> None:
    """Nobody else has all the data for sure; and every replica of the target has to be in sync, not only a new one."""
    reassign(cluster, (3, 4, 5))
    in_sync(cluster, 0, 1, 2, 3, 4)
    assert state(cluster)[3:] == ((0, 1, 2, 3, 4), 0)
    in_sync(cluster, 0, 3, 4, 5)
    assert state(cluster) == ((3, 4, 5), (), (), (3, 4, 5), 3)


def test_a_leader_that_stays_gets_the_new_state_as_its_answer(cluster: Cluster) -> None:
    """A replica was removed: the leader epoch goes up, so that the removed broker notices (KIP-455)."""
    reassign(cluster, (0, 1, 3))
    before = cluster.partitions("t")[0].leader_epoch
    done = in_sync(cluster, 0, 1, 2, 3)
    assert (done.error, done.leader_id, done.leader_epoch, done.isr) == (ErrorCode.NONE, 0, before + 1, (0, 1, 3))


def test_a_reassignment_that_only_adds_bumps_no_leader_epoch(cluster: Cluster) -> None:
    """The replication factor grows; the leader, its epoch and all former replicas stay."""
    reassign(cluster, (0, 1, 2, 3))
    in_sync(cluster, 0, 1, 2, 3)
    assert state(cluster) == ((0, 1, 2, 3), (), (), (0, 1, 2, 3), 0)
    assert cluster.partitions("t")[0].leader_epoch == 0


def test_another_order_is_reached_at_once(cluster: Cluster) -> None:
    """The preferred leader is another one; the present leader leads on, and its epoch stays."""
    assert reassign(cluster, (2, 1, 0)).error is ErrorCode.NONE
    assert state(cluster) == ((2, 1, 0), (), (), (0, 1, 2), 0)
    assert (cluster.partitions("t")[0].leader_epoch, cluster.partitions("t")[0].partition_epoch) == (0, 1)


def test_fewer_replicas_are_reached_at_once(cluster: Cluster) -> None:
    """One replica of the target is in sync, and leads if the leader is removed."""
    assert reassign(cluster, (2, 1)).error is ErrorCode.NONE
    assert state(cluster) == ((2, 1), (), (), (1, 2), 2)
    assert cluster.partitions("t")[0].leader_epoch == 1


def test_fewer_replicas_wait_for_one_that_is_in_sync(cluster: Cluster) -> None:
    """Counter-example: 2 lacks records; if 0 and 1 were removed at once, nobody would have all."""
    in_sync(cluster, 0, 1)
    reassign(cluster, (2,))
    assert state(cluster) == ((2, 0, 1), (), (0, 1), (0, 1), 0)
    assert in_sync(cluster, 0, 1, 2).error is ErrorCode.NEW_LEADER_ELECTED
    assert state(cluster) == ((2,), (), (), (2,), 2)


def test_what_is_there_already_needs_no_record(cluster: Cluster) -> None:
    """The same replicas in the same order, and no reassignment in progress."""
    run = cluster.run(AlterPartitionReassignments((Reassignment("t", 0, (0, 1, 2)),)))
    assert (run.records, run.happenings) == ([], [])


# --- another target, or none -----------------------------------------------------------------------------------------


def test_a_cancelled_reassignment_leads_back(cluster: Cluster) -> None:
    """The former replicas; their order is that of the target, as in Kafka."""
    reassign(cluster, (3, 4, 1))
    in_sync(cluster, 0, 1, 2, 3)
    assert reassign(cluster, None).error is ErrorCode.NONE
    assert state(cluster) == ((1, 0, 2), (), (), (0, 1, 2), 0)


def test_a_new_target_replaces_the_old_one(cluster: Cluster) -> None:
    """What only the old target had is dropped at once. The former replicas are those of the first step: so a later
    cancellation leads back to them, and not to the old target."""
    reassign(cluster, (3, 4, 2))
    in_sync(cluster, 0, 1, 2, 3)
    reassign(cluster, (5, 1, 2))
    assert state(cluster) == ((5, 1, 2, 0), (5,), (0,), (0, 1, 2), 0)
    reassign(cluster, None)
    assert set(state(cluster)[0]) == {0, 1, 2}


def test_nothing_to_cancel_is_an_error(cluster: Cluster) -> None:
    """NO_REASSIGNMENT_IN_PROGRESS, also after the end."""
    assert reassign(cluster, None).error is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    reassign(cluster, (1, 0))
    assert reassign(cluster, None).error is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


@pytest.mark.parametrize("target", [None, (1, 5)])
def test_a_change_of_mind_that_would_lose_records_is_refused(cluster: Cluster, target: Ids | None) -> None:
    """The former replicas have all died, and the ISR is 3 alone: without 3 only an unclean election would give a leader."""
    reassign(cluster, (3, 4))
    in_sync(cluster, 0, 1, 2, 3)
    for broker_id in (0, 1, 2):
        cluster.contact(broker_id, wants_fence=True)
    before = state(cluster)
    assert before[3:] == ((3,), 3)
    assert reassign(cluster, target).error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert state(cluster) == before


# --- brokers that come and go ----------------------------------------------------------------------------------------


def test_a_target_that_is_fenced_keeps_the_reassignment_waiting(cluster: Cluster) -> None:
    """It ends when that broker is back and in sync."""
    reassign(cluster, (3, 4))
    in_sync(cluster, 0, 1, 2, 3)
    cluster.contact(4, wants_fence=True)
    assert in_sync(cluster, 0, 1, 2, 3, 4).error is ErrorCode.INELIGIBLE_REPLICA
    cluster.contact(4)
    assert in_sync(cluster, 0, 1, 2, 3, 4).error is ErrorCode.NEW_LEADER_ELECTED
    assert state(cluster)[0] == (3, 4)


def test_a_leader_that_is_shutting_down_leads_on(cluster: Cluster) -> None:
    """1. Broker 0 alone is in sync, and wants to shut down; no other can lead. 2. The operator adds a replica. 3. Broker 0 leads
    on, also when the new broker comes online and unclean elections are allowed: it may still take that broker into the ISR."""
    operations = (ConfigOperation(ConfigOperationKind.SET, "unclean.leader.election.enable", "true"),)
    cluster.run(AlterConfigs((ConfigAlteration(TOPIC_RESOURCE, "t", operations),)))
    in_sync(cluster, 0)
    cluster.contact(0, wants_shut_down=True)
    assert state(cluster)[3:] == ((0,), 0)
    cluster.contact(3, wants_fence=True)
    reassign(cluster, (3, 0))
    assert state(cluster)[3:] == ((0,), 0)
    cluster.contact(3)
    assert state(cluster)[3:] == ((0,), 0)


def test_an_unclean_election_prefers_a_replica_that_is_not_new(cluster: Cluster) -> None:
    """A replica that is being added may have no records at all."""
    in_sync(cluster, 0)
    reassign(cluster, (3, 0, 1))
    cluster.contact(0, wants_fence=True)
    assert state(cluster)[3:] == ((0,), NO_LEADER)
    elect = ElectLeaders((TopicPartition("t", 0),), ElectionType.UNCLEAN)
    assert cluster.ask(elect, ElectLeadersReply).results[0].leader_id == 1
    assert state(cluster)[3:] == ((1,), 1)


def test_a_proposal_that_finishes_a_reassignment_may_leave_the_isr_as_it_was(cluster: Cluster) -> None:
    """1. The target is broker 1 alone, and the ISR is broker 0. 2. Broker 0 is fenced, and broker 1 is elected uncleanly. The
    reassignment waits. 3. Broker 1 proposes the ISR 1,2. 4. Now the target is in sync, so broker 2 is removed. The ISR is 1, as
    before: the record has no ISR, and the answer has the new epochs."""
    in_sync(cluster, 0)
    reassign(cluster, (1,))
    cluster.contact(0, wants_fence=True)
    cluster.ask(ElectLeaders((TopicPartition("t", 0),), ElectionType.UNCLEAN), ElectLeadersReply)
    assert state(cluster) == ((1, 0, 2), (), (0, 2), (1,), 1)
    before = cluster.partitions("t")[0]
    done = in_sync(cluster, 1, 2)
    assert (done.error, done.isr, done.leader_id) == (ErrorCode.NONE, (1,), 1)
    assert (done.leader_epoch, done.partition_epoch) == (before.leader_epoch + 1, before.partition_epoch + 1)
    assert state(cluster) == ((1,), (), (), (1,), 1)


def test_a_new_controller_finishes_what_waits_for_an_active_replica(cluster: Cluster) -> None:
    """1. Broker 2 is being fenced, and the target is 2 alone: nobody of the target may lead. 2. The controller is replaced before
    the fencing is done, and broker 2 stays. 3. The new controller's look over all partitions finishes the reassignment."""
    cluster.controller._brokers.views.bar(2)
    reassign(cluster, (2,))
    assert state(cluster)[1:] == ((), (0, 1), (0, 1, 2), 0)
    cluster.controller.deactivate()
    cluster.controller.activate(cluster.image, cluster.now_ms)
    due = cluster.controller.due(cluster.image, cluster.now_ms)
    assert due is not None
    told = cluster.run(due).happenings
    assert state(cluster) == ((2,), (), (), (2,), 2)
    assert ReassignmentsFinished(1, ("t-0: 2",)) in told


# --- what sees a partition in reassignment ---------------------------------------------------------------------------


def test_a_reassignment_makes_no_partition_under_replicated(cluster: Cluster) -> None:
    """An alert would come with every move. What is missing beside it still counts."""
    reassign(cluster, (3, 4, 5))
    assert PartitionCounter().count(cluster.image).reassigning == 1
    assert partition_health(cluster.image, 9).under_replicated == 0
    assert PartitionCounter().count(cluster.image).under_replicated == 0
    in_sync(cluster, 0, 1)
    assert partition_health(cluster.image, 9).under_replicated == 1
    assert PartitionCounter().count(cluster.image).under_replicated == 1


def test_new_partitions_get_as_many_replicas_as_the_target_has(cluster: Cluster) -> None:
    """And a list of topics shows that number."""
    reassign(cluster, (3, 4))
    cluster.run(CreatePartitions((NewPartitions("t", 2),)))
    assert len(cluster.partitions("t")[1].replicas) == 2
    assert list_topics(cluster.image).topics[0].replication_factor == 2


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "error", "text"),
    [
        ((), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "has 0 replicas"),
        ((1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "names a broker twice"),
        ((1, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "names broker 9, which is not registered"),
    ],
)
def test_a_target_that_cannot_be_is_refused(cluster: Cluster, target: Ids, error: ErrorCode, text: str) -> None:
    """The partition stays as it is, and the others of the request are decided."""
    wanted = (Reassignment("t", 0, target), Reassignment("t", 7, (1,)), Reassignment("nobody", 0, (1,)))
    results = cluster.ask(AlterPartitionReassignments(wanted), AlterPartitionReassignmentsReply).results
    assert results[0].error is error
    assert text in results[0].message
    assert [each.error for each in results[1:]] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    assert state(cluster)[0] == (0, 1, 2)


def test_nothing_is_moved_onto_a_broker_in_maintenance(cluster: Cluster) -> None:
    """A replica that is there already may stay; and a drained broker may be emptied."""
    cluster.run(DrainBroker(2))
    cluster.run(DrainBroker(3))
    assert reassign(cluster, (3, 1)).error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(cluster, (2, 1)).error is ErrorCode.NONE
    assert reassign(cluster, (4, 1)).error is ErrorCode.NONE


def test_a_client_may_forbid_another_replication_factor(cluster: Cluster) -> None:
    """Compared is the number of former replicas, also while a reassignment is in progress."""
    reassign(cluster, (3, 4, 5))
    for target, error in (((3, 4), ErrorCode.INVALID_REPLICATION_FACTOR), ((3, 4, 1), ErrorCode.NONE)):
        command = AlterPartitionReassignments((Reassignment("t", 0, target),), allow_replication_factor_change=False)
        assert cluster.ask(command, AlterPartitionReassignmentsReply).results[0].error is error


def test_a_cluster_at_the_first_level_reassigns_nothing(cluster: Cluster) -> None:
    """A node of release 0.1.0 would not follow (UNSUPPORTED_VERSION); the image would not take the record either."""
    cluster.image = evolved(cluster.image, {"features": {}})
    with pytest.raises(ControllerError, match=r"a reassignment needs metadata\.version 2") as refused:
        reassign(cluster, (3, 1))
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_a_partition_is_named_once(cluster: Cluster) -> None:
    """Else the request contradicts itself: INVALID_REQUEST, and nothing is done."""
    wanted = (Reassignment("t", 0, (1,)), Reassignment("t", 0, (2,)))
    with pytest.raises(ControllerError, match="named twice") as refused:
        cluster.run(AlterPartitionReassignments(wanted))
    assert refused.value.code is ErrorCode.INVALID_REQUEST


# --- many at a time --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("validate_only", [False, True])
def test_a_broker_gets_only_so_many_replicas_at_a_time(validate_only: bool) -> None:
    """The others are refused until some are in sync; what adds nothing is never refused. A dry run says the same, over slices."""
    cluster = Cluster(4, config=ControllerConfig(reassignment_moves_per_broker_max=2, transaction_slice_records=1))
    cluster.assign("t", *[(0, 1)] * 5)
    targets = ((0, 3), (3, 1), (0, 3), (1, 0), (0, 2))
    command = AlterPartitionReassignments(
        tuple(Reassignment("t", number, target) for number, target in enumerate(targets)), validate_only=validate_only
    )
    run = cluster.run(command)
    assert isinstance(run.reply, AlterPartitionReassignmentsReply)
    errors = [each.error for each in run.reply.results]
    throttled = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert errors == [ErrorCode.NONE, ErrorCode.NONE, throttled, ErrorCode.NONE, ErrorCode.NONE]
    if validate_only:
        assert (run.records, run.happenings) == ([], [])
        return
    assert reassign(cluster, (3, 0), 2).error is throttled
    in_sync(cluster, 0, 1, 3, partition=1)
    assert reassign(cluster, (3, 0), 2).error is ErrorCode.NONE
    assert reassign(cluster, (2, 3), 0).error is ErrorCode.NONE, "a replica that is being added already counts once"


def test_the_story_tells_what_was_begun_and_what_is_finished(cluster: Cluster) -> None:
    """One line for a request, one for what a leader's proposal completes."""
    run = cluster.run(AlterPartitionReassignments((Reassignment("t", 0, (3, 1)),)))
    assert run.happenings == [ReassignmentsAltered(1, 0, 0, ("t-0: 0,1,2 -> 3,1",))]
    found = cluster.partitions("t")[0]
    proposed = PartitionAlteration(
        found.topic_id, 0, found.leader_epoch, found.partition_epoch, tuple(map(IsrMember, (0, 1, 3)))
    )
    done = cluster.run(AlterPartition(0, cluster.image.brokers[0].broker_epoch, (proposed,)))
    assert done.happenings[-1] == ReassignmentsFinished(1, ("t-0: 3,1",))
    (change,) = done.records
    assert isinstance(change, PartitionChange)
    assert (change.replicas, change.isr, change.leader) == ((3, 1), (1, 3), 3)
