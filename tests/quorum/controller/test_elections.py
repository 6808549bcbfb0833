"""Leaders are elected on request, partition by partition, and no request makes a long turn."""

import pytest

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NO_LEADER, NodeId
from metadata_log.format.records import RECOVERED, RECOVERING, PartitionChange
from quorum.controller.protocol.commands import AlterPartition, Command, FenceBroker, IsrMember, PartitionAlteration
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.decision import ControllerError, Decision
from quorum.controller.protocol.election_commands import (
    ElectionResult,
    ElectionType,
    ElectLeaders,
    ElectLeadersReply,
    TopicPartition,
)
from quorum.controller.protocol.happenings import LeadersElected
from tests.quorum.controller.cluster import Cluster


def elect(cluster: Cluster, *places: tuple[str, int]) -> tuple[ElectionResult, ...]:
    command = ElectLeaders(tuple(TopicPartition(*place) for place in places))
    return cluster.ask(command, ElectLeadersReply).results


def back_in_sync(cluster: Cluster, name: str) -> None:
    """Every leader proposes all replicas of its partition for the ISR."""
    for partition in cluster.partitions(name):
        members = tuple(IsrMember(replica) for replica in partition.replicas)
        alteration = PartitionAlteration(
            partition.topic_id, partition.partition, partition.leader_epoch, partition.partition_epoch, members
        )
        cluster.run(
            AlterPartition(partition.leader, cluster.image.brokers[partition.leader].broker_epoch, (alteration,))
        )


@pytest.fixture
def cluster() -> Cluster:
    """Broker 0 was fenced and is back: partitions 0 and 1 of t, which prefer it, are led by 1; partition 2 by its own."""
    cluster = Cluster(3)
    cluster.assign("t", (0, 1, 2), (0, 1, 2), (2, 1, 0))
    cluster.contact(0, wants_fence=True)
    cluster.contact(0)
    assert cluster.leaders("t") == [1, 1, 2]
    return cluster


def test_leadership_goes_back_to_the_first_assigned_replica(cluster: Cluster) -> None:
    """The leader epoch goes up by one, as with every change of leaders; the ISR stays as it is."""
    back_in_sync(cluster, "t")
    results = elect(cluster, ("t", 0), ("t", 1))

    assert [(each.topic, each.partition, each.error, each.leader_id) for each in results] == [
        ("t", 0, ErrorCode.NONE, 0),
        ("t", 1, ErrorCode.NONE, 0),
    ]
    assert cluster.leaders("t") == [0, 0, 2]
    assert cluster.partitions("t")[0].leader_epoch == 2
    assert cluster.partitions("t")[0].isr == (0, 1, 2)


def test_each_partition_has_its_own_answer(cluster: Cluster) -> None:
    """With Kafka's codes; what is refused does not keep the rest from being done."""
    back_in_sync(cluster, "t")
    results = elect(cluster, ("t", 2), ("nobody", 0), ("t", 3), ("t", -1), ("t", 0))

    assert [(each.error.name, each.message) for each in results] == [
        ("ELECTION_NOT_NEEDED", "broker 2, the preferred replica, leads already"),
        ("UNKNOWN_TOPIC_OR_PARTITION", "there is no such topic"),
        ("UNKNOWN_TOPIC_OR_PARTITION", "the topic has 3 partitions, 0 to 2"),
        ("UNKNOWN_TOPIC_OR_PARTITION", "the topic has 3 partitions, 0 to 2"),
        ("NONE", ""),
    ]
    assert cluster.leaders("t") == [0, 1, 2]


def test_who_is_out_of_sync_or_away_is_not_elected(cluster: Cluster) -> None:
    """A preferred election is clean: it never gives a partition to a replica that may lack something of it."""
    before = cluster.image.offset
    (outside,) = elect(cluster, ("t", 0))
    assert outside.error is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert outside.message == "broker 0, the preferred replica, is not in the ISR"
    assert cluster.image.offset == before, "nothing is written for nothing"

    back_in_sync(cluster, "t")
    cluster.contact(0, wants_shut_down=True)  # it leads nothing, so it goes at once
    (gone,) = elect(cluster, ("t", 0))
    assert gone.error is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def test_who_is_being_fenced_is_not_elected() -> None:
    """Between two slices of its way out a broker looks unfenced, and stands in ISRs still; it is given nothing (M3)."""
    cluster = Cluster(3, config=ControllerConfig(slice_changes_max=1, slice_partitions_max=1))
    for name in ("a", "b"):
        cluster.assign(name, (0, 1, 2))
    cluster.contact(0, wants_fence=True)
    cluster.contact(0)
    for name in ("a", "b"):
        back_in_sync(cluster, name)
    following: Command | None = cluster.said_by(0, wants_fence=True)
    while all(0 in cluster.partitions(name)[0].isr for name in ("a", "b")):
        assert following is not None
        decision = cluster.controller.decide(cluster.image, following, cluster.now_ms)
        cluster.fold(decision)
        following = decision.then
    assert not cluster.image.brokers[0].fenced
    assert 0 in cluster.partitions("a")[0].isr + cluster.partitions("b")[0].isr

    results = elect(cluster, ("a", 0), ("b", 0))
    assert {each.error for each in results} == {ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}


def test_a_fenced_last_member_is_not_available(cluster: Cluster) -> None:
    """It is the whole ISR, and leads nothing until it is back (M4)."""
    cluster.assign("alone", (2,))
    cluster.contact(2, wants_fence=True)
    (result,) = elect(cluster, ("alone", 0))

    assert result.error is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert result.message == "broker 2, the preferred replica, is fenced or shutting down"


def test_a_partition_named_twice_refuses_the_request(cluster: Cluster) -> None:
    """The second election would raise the leader epoch for nothing."""
    back_in_sync(cluster, "t")
    with pytest.raises(ControllerError, match=r"partition 0 of topic 't' is named twice; nothing was done") as refused:
        elect(cluster, ("t", 0), ("t", 0))
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_more_than_a_request_may_name_is_refused() -> None:
    cluster = Cluster(1, config=ControllerConfig(partitions_per_request_max=10))
    with pytest.raises(ControllerError, match="names 11 partitions; at most 10 are allowed; nothing was done") as e:
        elect(cluster, *[("t", number) for number in range(11)])
    assert e.value.code is ErrorCode.POLICY_VIOLATION


def test_a_large_request_is_decided_in_slices() -> None:
    """Each decision looks at no more partitions than a slice has, and the last one answers for all, in the order asked."""
    cluster = Cluster(3, config=ControllerConfig(slice_changes_max=4))
    cluster.assign("t", *[(0, 1, 2)] * 10)
    cluster.contact(0, wants_fence=True)
    cluster.contact(0)
    back_in_sync(cluster, "t")
    command: ElectLeaders | None = ElectLeaders(tuple(TopicPartition("t", each) for each in range(10)))
    sizes: list[int] = []
    decision = Decision((), ElectLeadersReply())
    while command is not None:
        decision = cluster.controller.decide(cluster.image, command, cluster.now_ms)
        cluster.fold(decision)
        assert all(isinstance(record, PartitionChange) for record in decision.records)
        sizes.append(len(decision.records))
        assert decision.then is None or isinstance(decision.then, ElectLeaders)
        command = decision.then

    assert sizes == [4, 4, 2]
    assert isinstance(decision.reply, ElectLeadersReply)
    assert [each.partition for each in decision.reply.results] == list(range(10))
    assert cluster.leaders("t") == [0] * 10


# --- a given leader ----------------------------------------------------------------------------------------------------


def designate(cluster: Cluster, leader: NodeId, *places: tuple[str, int]) -> tuple[ElectionResult, ...]:
    where = tuple(TopicPartition(*place) for place in places)
    return cluster.ask(ElectLeaders(where, ElectionType.DESIGNATED, leader), ElectLeadersReply).results


def test_an_operator_names_the_leader() -> None:
    """Broker 1 is slow, so its partitions are given to broker 2, which is in sync. The ISR stays."""
    cluster = Cluster(3)
    cluster.assign("t", (1, 2, 0), (1, 0, 2))
    assert [each.leader_id for each in designate(cluster, 2, ("t", 0), ("t", 1))] == [2, 2]
    assert cluster.leaders("t") == [2, 2]
    assert {(each.isr, each.leader_recovery_state) for each in cluster.partitions("t")} == {
        ((1, 2, 0), RECOVERED),
        ((1, 0, 2), RECOVERED),
    }


def test_a_named_leader_must_be_able_to_lead(cluster: Cluster) -> None:
    """Broker 0 of the fixture is back, and not in sync. An election with a name is as clean as one without."""
    cluster.assign("other", (1, 2))
    results = [*designate(cluster, 0, ("t", 0), ("other", 0)), *designate(cluster, 1, ("t", 0))]
    assert [(each.error.name, each.message) for each in results] == [
        ("ELIGIBLE_LEADERS_NOT_AVAILABLE", "broker 0 is not in the ISR"),
        ("INVALID_REQUEST", "broker 0 has no replica of this partition; brokers 1, 2 have"),
        ("ELECTION_NOT_NEEDED", "broker 1 leads already"),
    ]
    assert cluster.leaders("t") == [1, 1, 2]


def test_a_type_that_needs_a_name_has_one_and_the_default_has_none(cluster: Cluster) -> None:
    """Else a client that forgot the type would believe that its broker was elected."""
    with pytest.raises(ControllerError, match="PREFERRED takes no leader_id") as refused:
        cluster.run(ElectLeaders((TopicPartition("t", 0),), leader_id=1))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    with pytest.raises(ControllerError, match="DESIGNATED needs leader_id"):
        cluster.run(ElectLeaders((TopicPartition("t", 0),), ElectionType.DESIGNATED))


# --- unclean elections -------------------------------------------------------------------------------------------------


@pytest.fixture
def leaderless() -> Cluster:
    """t-0 has lost its last replica in sync, broker 0. Brokers 1 and 2 are back from an earlier outage, and lack records."""
    cluster = Cluster(3)
    cluster.assign("t", (0, 1, 2))
    for broker_id in (1, 2, 0):
        cluster.contact(broker_id, wants_fence=True)
    cluster.contact(1)
    cluster.contact(2)
    (partition,) = cluster.partitions("t")
    assert (partition.leader, partition.isr) == (NO_LEADER, (0,))
    return cluster


def unclean(cluster: Cluster, leader: NodeId = NO_LEADER) -> tuple[ElectionResult, list[object]]:
    run = cluster.run(ElectLeaders((TopicPartition("t", 0),), ElectionType.UNCLEAN, leader))
    assert isinstance(run.reply, ElectLeadersReply)
    (result,) = run.reply.results
    return result, list(run.happenings)


@pytest.mark.parametrize(("wanted", "elected"), [(NO_LEADER, 1), (2, 2)])
def test_an_unclean_election_gives_a_partition_a_leader_that_may_lack_records(
    leaderless: Cluster, wanted: NodeId, elected: NodeId
) -> None:
    """The first active replica of the assignment, or the one that the operator names. It is alone in the ISR, and the story
    says that records may be lost."""
    result, told = unclean(leaderless, wanted)
    (partition,) = leaderless.partitions("t")
    assert result.leader_id == elected
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (elected, (elected,), RECOVERING)
    assert told == [LeadersElected(1, (f"t-0: {elected}",), unclean=1)]


def test_nothing_is_lost_where_a_replica_leads_or_can_lead() -> None:
    """An operator who elects uncleanly all over a cluster loses no record of a partition that is well."""
    cluster = Cluster(3)
    cluster.assign("t", (0, 1, 2))
    result, _ = unclean(cluster)
    assert result.error is ErrorCode.ELECTION_NOT_NEEDED
    assert result.message == "broker 0 leads; an unclean election is for partitions without a leader"
    assert cluster.partitions("t")[0].isr == (0, 1, 2)


def test_an_unclean_election_needs_an_active_replica(leaderless: Cluster) -> None:
    """The error names the brokers to start."""
    result, _ = unclean(leaderless, 0)
    assert result.error is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert result.message == "of the brokers that may lead, 0, none is active; start one"
    leaderless.contact(1, wants_fence=True)
    leaderless.contact(2, wants_fence=True)
    result, _ = unclean(leaderless)
    assert result.message == "of the brokers that may lead, 0, 1, 2, none is active; start one"


def test_an_unclean_election_names_the_fence_of_an_operator(leaderless: Cluster) -> None:
    """Brokers that run, and that an operator keeps out, need no start: the operator ends the fence."""
    leaderless.run(FenceBroker(1, "slow disk"))
    result, _ = unclean(leaderless, 1)
    unfence = "`quorumctl brokers unfence 1` lets broker 1, which an operator has fenced, in"
    assert result.message == f"of the brokers that may lead, 1, none is active; {unfence}"
    leaderless.contact(2, wants_fence=True)
    result, _ = unclean(leaderless)
    assert result.message.endswith(f"none is active; start one, or {unfence}")


def test_a_refused_election_names_the_leader_that_stays(cluster: Cluster) -> None:
    """The partition has a leader, although the election was refused."""
    (refused, missing) = elect(cluster, ("t", 0), ("t", 77))
    assert (refused.error, refused.leader_id) == (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, 1)
    assert (missing.error, missing.leader_id) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_LEADER)
