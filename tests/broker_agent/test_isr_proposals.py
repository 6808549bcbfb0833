"""A leader without a data plane proposes who is active for its ISRs: once for each image, one request at a time, in parts."""

import pytest

from broker_agent.session.isr_proposals import IsrProposal, IsrProposals, ProposalLimits, ProposalResult
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import LOST_DIRECTORY, NodeId
from metadata_log.format.records import RECOVERING
from quorum.controller.protocol.commands import AlterPartition, AlterPartitionReply, IsrMember, PartitionAlteration
from quorum.controller.protocol.config_commands import (
    AlterConfigs,
    ConfigAlteration,
    ConfigOperation,
    ConfigOperationKind,
)
from quorum.controller.protocol.directory_commands import AssignReplicasToDirs, DirectoryAssignment
from quorum.controller.protocol.reassignment_commands import AlterPartitionReassignments, Reassignment
from tests.quorum.controller.cluster import Cluster


class Leader:
    """One broker's proposals, and a controller that judges them. The broker's image is the cluster's unless `image` is set."""

    def __init__(self, cluster: Cluster, broker_id: NodeId, limits: ProposalLimits | None = None) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.proposals = IsrProposals(broker_id, limits or ProposalLimits())
        self.now_ms = 0

    @property
    def epoch(self) -> int:
        return self.cluster.image.brokers[self.broker_id].broker_epoch

    def next(self, after_ms: int = 1_000) -> tuple[IsrProposal, ...]:
        self.now_ms += after_ms
        return self.proposals.next(self.cluster.image, self.epoch, self.now_ms)

    def ask(self, asked: tuple[IsrProposal, ...]) -> list[ErrorCode]:
        """The controller judges them, and the leader hears the answer."""
        alterations = tuple(
            PartitionAlteration(
                each.topic_id, each.partition, each.leader_epoch, each.partition_epoch,
                tuple(IsrMember(*member) for member in each.isr),
            )
            for each in asked
        )  # fmt: skip
        reply = self.cluster.ask(AlterPartition(self.broker_id, self.epoch, alterations), AlterPartitionReply)
        results = tuple(
            ProposalResult(each.topic_id, each.partition, each.error, each.message) for each in reply.results
        )
        self.proposals.answered(reply.offset, results, self.now_ms)
        return [each.code for each in results]

    def isrs(self, asked: tuple[IsrProposal, ...]) -> dict[int, list[NodeId]]:
        return {each.partition: [broker_id for broker_id, _ in each.isr] for each in asked}


def restarted(cluster: Cluster, broker_id: NodeId) -> None:
    """The broker leaves in order, and is back under another epoch, unfenced, outside of all ISRs."""
    for _ in range(3):
        if not cluster.image.brokers[broker_id].fenced:
            cluster.contact(broker_id, wants_shut_down=True)
        for other in cluster.image.brokers:
            if other != broker_id:
                cluster.contact(other)
    assert cluster.image.brokers[broker_id].fenced, "somebody else can lead all that it has led"
    cluster.register(broker_id, cluster.lives[broker_id] + 1)
    cluster.contact(broker_id)


@pytest.fixture
def cluster() -> Cluster:
    """Partitions 0 and 1 of t are led by 1, partition 2 by 2; broker 0 was restarted and stands in no ISR."""
    cluster = Cluster(3)
    cluster.assign("t", (0, 1, 2), (1, 0, 2), (2, 1, 0))
    restarted(cluster, 0)
    assert cluster.leaders("t") == [1, 1, 2]
    return cluster


def test_who_is_back_is_proposed_with_the_epoch_that_was_seen(cluster: Cluster) -> None:
    """For the partitions that this broker leads; in the order of the assignment, so that a whole ISR equals the replicas."""
    leader = Leader(cluster, 1)
    asked = leader.next()

    assert leader.isrs(asked) == {0: [0, 1, 2], 1: [1, 0, 2]}
    epochs = {broker_id: broker.broker_epoch for broker_id, broker in cluster.image.brokers.items()}
    assert all(epoch == epochs[broker_id] for each in asked for broker_id, epoch in each.isr)
    assert leader.ask(asked) == [ErrorCode.NONE, ErrorCode.NONE]
    assert [each.isr for each in cluster.partitions("t")] == [(0, 1, 2), (1, 0, 2), (2, 1)]
    assert leader.next() == ()


def test_restarts_in_turn_leave_no_isr_behind() -> None:
    """Three brokers, sixty partitions: each is restarted while the leaders propose. Afterwards all ISRs are whole.

    Without proposals every ISR has one member then, and one broker leads all.
    """
    cluster = Cluster(3)
    cluster.create("t", 60, 3)
    leaders = [Leader(cluster, broker_id) for broker_id in range(3)]
    for broker_id in range(3):
        restarted(cluster, broker_id)
        leaders[broker_id] = Leader(cluster, broker_id)
        for leader in leaders:
            while asked := leader.next():
                leader.ask(asked)

    assert all(each.isr == each.replicas for each in cluster.partitions("t"))


def test_the_fenced_and_the_stopping_are_not_proposed(cluster: Cluster) -> None:
    """The controller would refuse them; and a whole proposal for their sake."""
    cluster.contact(0, wants_fence=True)
    assert Leader(cluster, 1).next() == ()

    cluster.contact(0)
    cluster.assign("held", (0,))
    cluster.assign("last", (2, 0))
    cluster.contact(0, wants_shut_down=True, offset=0)
    assert cluster.image.brokers[0].in_controlled_shutdown
    assert Leader(cluster, 1).next() == ()


def test_a_stopping_leader_goes_on_proposing() -> None:
    """It is held because it leads alone what another could lead: only its proposals let it go."""
    cluster = Cluster(2)
    cluster.assign("t", (0, 1))
    restarted(cluster, 1)
    cluster.contact(0, wants_shut_down=True)
    assert cluster.image.brokers[0].in_controlled_shutdown
    leader = Leader(cluster, 0)
    asked = leader.next()

    assert leader.isrs(asked) == {0: [0, 1]}
    assert leader.ask(asked) == [ErrorCode.NONE]
    cluster.contact(0, wants_shut_down=True)
    assert cluster.leaders("t") == [1]


def test_nothing_is_proposed_by_who_may_not_serve(cluster: Cluster) -> None:
    """Without a registration or a lease, before it has applied its registration, and while it is fenced."""
    proposals = IsrProposals(1)
    image, epoch = cluster.image, cluster.image.brokers[1].broker_epoch
    assert proposals.next(image, None, 1_000) == ()
    assert proposals.next(image, epoch + 1, 2_000) == (), "the image knows an earlier process"
    cluster.contact(1, wants_fence=True)
    assert proposals.next(cluster.image, epoch, 3_000) == ()
    assert len(proposals.next(image, epoch, 4_000)) == 2


def test_one_request_is_in_flight(cluster: Cluster) -> None:
    """Whatever comes meanwhile; the answer ends it."""
    leader = Leader(cluster, 1)
    asked = leader.next()
    cluster.assign("more", (1, 0))
    assert leader.next() == ()
    assert leader.proposals.next_deadline_ms() is None
    leader.ask(asked)
    assert leader.next() == (), "the other image was looked at, and has nothing to mend"


def test_what_was_granted_is_not_asked_for_again_by_an_older_image(cluster: Cluster) -> None:
    """The answer may come before the records do. The walk goes on when they are there."""
    leader = Leader(cluster, 1)
    before = cluster.image
    leader.ask(leader.next())
    assert leader.proposals.next(before, leader.epoch, leader.now_ms + 1_000) == ()
    assert leader.next() == ()


def test_a_refused_proposal_is_judged_again_by_the_next_image(cluster: Cluster) -> None:
    """And not before: the same image would only bring the same refusal."""
    leader = Leader(cluster, 1)
    stale = cluster.image
    asked = leader.next()
    cluster.contact(0, wants_fence=True)
    assert set(leader.ask(asked)) == {ErrorCode.INELIGIBLE_REPLICA}
    assert leader.proposals.next(stale, leader.epoch, leader.now_ms + 60_000) == ()
    assert leader.next() == (), "0 is fenced now"

    cluster.contact(0)
    assert leader.ask(leader.next()) == [ErrorCode.NONE, ErrorCode.NONE]


def test_after_a_failure_all_is_judged_again_ever_more_rarely(cluster: Cluster) -> None:
    """No answer: the request may have been granted or not. Pauses of 100, 200, 400 ... 5,000 ms."""
    leader = Leader(cluster, 1)
    pauses: list[int] = []
    first = leader.next()
    asked = first
    for _ in range(8):
        assert asked == first
        leader.proposals.failed(leader.now_ms)
        deadline_ms = leader.proposals.next_deadline_ms()
        assert deadline_ms is not None
        pauses.append(deadline_ms - leader.now_ms)
        assert leader.next(pauses[-1] - 1) == ()
        asked = leader.next(1)
    assert pauses == [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]


def test_a_controller_that_is_behind_is_asked_again(cluster: Cluster) -> None:
    """It says NOT_CONTROLLER of a partition whose state it does not have yet. No other image would come, so time brings it up."""
    leader = Leader(cluster, 1)
    asked = leader.next()
    results = tuple(ProposalResult(each.topic_id, each.partition, ErrorCode.NOT_CONTROLLER, "") for each in asked)
    leader.proposals.answered(cluster.image.offset, results, leader.now_ms)
    assert leader.next(99) == ()
    assert leader.next(1) == asked


def test_many_partitions_are_walked_and_asked_in_parts() -> None:
    """No step looks at more than its limit, no request has more, and every partition comes up once."""
    cluster = Cluster(2)
    cluster.assign("t", *[(1, 0)] * 25)
    restarted(cluster, 0)
    leader = Leader(cluster, 1, ProposalLimits(proposals_max=4, looked_at_max=10))
    sizes: list[int] = []
    seen: set[int] = set()
    while asked := leader.next(100):
        sizes.append(len(asked))
        seen |= {each.partition for each in asked}
        assert leader.ask(asked) == [ErrorCode.NONE] * len(asked)

    assert sizes == [4] * 6 + [1]
    assert seen == set(range(25))
    assert all(each.isr == (1, 0) for each in cluster.partitions("t"))


def test_a_walk_that_finds_nothing_goes_on_by_itself_and_ends() -> None:
    """Steps are 100 ms apart; when it is over nothing is due until there is another image."""
    cluster = Cluster(2)
    cluster.assign("t", *[(1, 0)] * 25)
    leader = Leader(cluster, 1, ProposalLimits(looked_at_max=10))
    for _ in range(2):
        assert leader.next(100) == ()
        assert leader.proposals.next_deadline_ms() == leader.now_ms + 100
    assert leader.next(100) == ()
    assert leader.proposals.next_deadline_ms() is None


def test_a_broker_that_becomes_active_during_a_walk_is_proposed_for_every_partition() -> None:
    """The walk takes four steps of five partitions. Broker 1 is active from the second step on, and then the cluster is idle.

    No further image comes. The end of the walk starts another walk, for the partitions of the first step.
    """
    cluster = Cluster(2)
    cluster.create("t", 20, 2)
    for _ in range(3):
        if not cluster.image.brokers[1].fenced:
            cluster.contact(1, wants_shut_down=True)
        cluster.contact(0)
    leader = Leader(cluster, 0, ProposalLimits(looked_at_max=5))
    assert leader.next() == ()
    cluster.register(1, cluster.lives[1] + 1)
    cluster.contact(1)
    while (asked := leader.next()) or leader.proposals.next_deadline_ms() is not None:
        if asked:
            leader.ask(asked)
    assert all(each.isr == each.replicas for each in cluster.partitions("t"))


def test_an_image_that_comes_during_a_pause_is_looked_at_after_it(cluster: Cluster) -> None:
    """Nothing else may come any more: time has to bring it up."""
    leader = Leader(cluster, 2)
    assert leader.isrs(leader.next()) == {2: [2, 1, 0]}
    leader = Leader(cluster, 0)
    assert leader.next() == ()
    assert leader.proposals.next_deadline_ms() is None
    cluster.assign("u", (0, 1))
    restarted(cluster, 1)
    assert leader.next(50) == ()
    assert leader.proposals.next_deadline_ms() == leader.now_ms + 50
    assert leader.isrs(leader.next(50)) == {0: [0, 1]}


def test_another_registration_begins_anew(cluster: Cluster) -> None:
    """After a recovery of the cluster offsets mean something else: nobody waits for those of another history."""
    leader = Leader(cluster, 1)
    results = tuple(ProposalResult(each.topic_id, each.partition, ErrorCode.NONE, "") for each in leader.next())
    leader.proposals.answered(1 << 40, results, leader.now_ms)
    assert leader.next() == ()
    restarted(cluster, 1)
    cluster.assign("u", (1, 0))
    restarted(cluster, 0)
    assert leader.isrs(leader.next()) == {0: [1, 0]}


def test_a_leader_after_an_unclean_election_has_recovered() -> None:
    """There is no log to make consistent: it says so, together with whom it takes in (KIP-704)."""
    cluster = Cluster(2)
    cluster.assign("t", (0, 1))
    operations = (ConfigOperation(ConfigOperationKind.SET, "unclean.leader.election.enable", "true"),)
    cluster.run(AlterConfigs((ConfigAlteration(2, "t", operations),)))
    cluster.contact(1, wants_fence=True)
    cluster.contact(0, wants_fence=True)
    cluster.contact(1)
    assert (cluster.leaders("t"), cluster.partitions("t")[0].leader_recovery_state) == ([1], RECOVERING)
    leader = Leader(cluster, 1)
    assert leader.ask(leader.next()) == [ErrorCode.NONE]
    assert cluster.partitions("t")[0].leader_recovery_state == 0

    cluster.contact(0)
    assert leader.isrs(leader.next()) == {0: [0, 1]}


def test_added_replicas_are_proposed_at_once_and_the_reassignment_ends() -> None:
    """1. Partition 0 of t shall move from 1 and 2 to 0 and 2. 2. Its leader, broker 1, proposes all active replicas, the added
    one too. 3. The controller completes the reassignment, and broker 2 or 0 leads: broker 1 has nothing more to propose."""
    cluster = Cluster(3)
    cluster.assign("t", (1, 2))
    leader = Leader(cluster, 1)
    assert leader.next() == ()
    cluster.run(AlterPartitionReassignments((Reassignment("t", 0, (0, 2)),)))
    asked = leader.next()
    assert leader.isrs(asked) == {0: [0, 2, 1]}
    assert leader.ask(asked) == [ErrorCode.NEW_LEADER_ELECTED]
    (partition,) = cluster.partitions("t")
    assert (partition.replicas, set(partition.isr), partition.leader) == ((0, 2), {0, 2}, 0)
    assert leader.next() == leader.next() == ()


def test_a_replica_in_an_offline_directory_is_not_proposed(cluster: Cluster) -> None:
    """The controller would refuse the whole proposal (INELIGIBLE_REPLICA), and the other replicas would wait, too."""
    leader = Leader(cluster, 1)
    place = DirectoryAssignment(cluster.partitions("t")[0].topic_id, 0, LOST_DIRECTORY)
    cluster.run(AssignReplicasToDirs(0, cluster.image.brokers[0].broker_epoch, (place,)))

    asked = leader.next()
    assert leader.isrs(asked) == {1: [1, 0, 2]}
    assert leader.ask(asked) == [ErrorCode.NONE]
    assert leader.next() == ()
