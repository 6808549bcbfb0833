"""A leader's proposals: the order of the checks, compare and set, and retries (KIP-497)."""

from dataclasses import replace

import pytest

from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import RECOVERING, PartitionChange
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
from tests.quorum.controller.cluster import Cluster


def members(*broker_ids: int) -> tuple[IsrMember, ...]:
    return tuple(IsrMember(broker_id) for broker_id in broker_ids)


@pytest.fixture
def cluster() -> Cluster:
    """Topic t with one partition, replicas 0, 1, 2; broker 2 was fenced and is back, outside the ISR."""
    cluster = Cluster(4)
    cluster.assign("t", (0, 1, 2))
    cluster.contact(2, wants_fence=True)
    cluster.contact(2)
    return cluster


def proposal(cluster: Cluster, *isr: int) -> PartitionAlteration:
    now = cluster.partitions("t")[0]
    return PartitionAlteration(now.topic_id, 0, now.leader_epoch, now.partition_epoch, members(*isr))


def alter(cluster: Cluster, alteration: PartitionAlteration, broker_id: int = 0) -> PartitionAlterationResult:
    command = AlterPartition(broker_id, cluster.image.brokers[broker_id].broker_epoch, (alteration,))
    return cluster.ask(command, AlterPartitionReply).results[0]


def test_an_isr_grows_and_shrinks(cluster: Cluster) -> None:
    """The partition epoch goes up by one each time; the leader and its epoch stay (M5)."""
    grown = alter(cluster, proposal(cluster, 0, 1, 2))
    assert (grown.error, grown.isr, grown.leader_id) == (ErrorCode.NONE, (0, 1, 2), 0)
    assert (grown.leader_epoch, grown.partition_epoch) == (0, 2)
    shrunk = alter(cluster, proposal(cluster, 0))
    assert (shrunk.isr, shrunk.leader_epoch, shrunk.partition_epoch) == ((0,), 0, 3)
    assert cluster.partitions("t")[0].isr == (0,)


def test_a_retry_is_granted_again_and_writes_nothing(cluster: Cluster) -> None:
    """The first answer was lost; the leader asks the very same (KAFKA-14144)."""
    first = proposal(cluster, 0, 1, 2)
    answer = alter(cluster, first)
    before = cluster.image.offset

    assert alter(cluster, first) == answer
    assert cluster.image.offset == before


def test_a_late_proposal_for_an_earlier_life_is_no_retry(cluster: Cluster) -> None:
    """A proposal that holds already is granted again only for the processes that it names (KIP-903).

    1. Leader 0 proposes (0, 1, 2) and has seen an earlier process of broker 2; the request is late. 2. The leader sees the
    present process, and proposes the same ISR again: granted. 3. The first request arrives, and is refused.
    """
    late = proposal(cluster, 0, 1, 2)
    present = cluster.image.brokers[2].broker_epoch
    late = replace(late, new_isr=(*members(0, 1), IsrMember(2, present - 1)))
    assert alter(cluster, replace(late, new_isr=(*members(0, 1), IsrMember(2, present)))).error is ErrorCode.NONE

    assert alter(cluster, late).error is ErrorCode.INVALID_UPDATE_VERSION


def test_proposing_what_is_writes_nothing(cluster: Cluster) -> None:
    """No record for no change."""
    before = cluster.image.offset
    assert alter(cluster, proposal(cluster, 0, 1)).error is ErrorCode.NONE
    assert cluster.image.offset == before


@pytest.mark.parametrize(
    ("changes", "broker_id", "error", "text"),
    [
        ({"topic_id": b"?" * 16}, 0, ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with id"),
        ({"topic_id": b"?"}, 0, ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with id b'?'"),
        ({"partition": 1}, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic 't' has no partition 1: it has 1"),
        ({"partition": -1}, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic 't' has no partition -1"),
        ({"leader_epoch": 1}, 0, ErrorCode.NOT_CONTROLLER, "a later controller must have written them"),
        ({"partition_epoch": 9}, 0, ErrorCode.NOT_CONTROLLER, "a later controller must have written them"),
        ({"leader_epoch": -1}, 0, ErrorCode.FENCED_LEADER_EPOCH, "another leadership now"),
        ({}, 1, ErrorCode.INVALID_REQUEST, "broker 1 does not lead the partition; 0 does"),
        ({"partition_epoch": -1}, 0, ErrorCode.INVALID_UPDATE_VERSION, "has changed meanwhile"),
        ({"partition_epoch": 0, "new_isr": members(0)}, 0, ErrorCode.INVALID_UPDATE_VERSION, "has changed meanwhile"),
        ({"new_isr": members(0, 0)}, 0, ErrorCode.INVALID_REQUEST, "the ISR [0, 0] names a broker twice"),
        ({"new_isr": members(0, 3)}, 0, ErrorCode.INVALID_REQUEST, "[0, 3] is not a subset of the replicas [0, 1, 2]"),
        ({"new_isr": members(1, 2)}, 0, ErrorCode.INVALID_REQUEST, "the ISR [1, 2] lacks the leader 0"),
        ({"new_isr": ()}, 0, ErrorCode.INVALID_REQUEST, "the ISR [] lacks the leader 0"),
        ({"leader_recovery_state": 7}, 0, ErrorCode.INVALID_REQUEST, "there is no leader recovery state 7"),
        ({"leader_recovery_state": 1}, 0, ErrorCode.INVALID_REQUEST, "can't go back to recovering"),
        (
            {"new_isr": (IsrMember(0), IsrMember(2, 1))},
            0,
            ErrorCode.INELIGIBLE_REPLICA,
            "broker 2 can't be in the ISR: it is registered with epoch",
        ),
        # Where several things are wrong, the first check in the protocol's order answers.
        ({"partition": 1, "leader_epoch": 9}, 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "has no partition 1"),
        ({"leader_epoch": -1, "partition_epoch": 9}, 1, ErrorCode.NOT_CONTROLLER, "later controller"),
        ({"leader_epoch": -1, "partition_epoch": 0}, 1, ErrorCode.FENCED_LEADER_EPOCH, "another leadership"),
        ({"partition_epoch": 0, "new_isr": ()}, 1, ErrorCode.INVALID_REQUEST, "does not lead"),
        ({"partition_epoch": 0, "new_isr": ()}, 0, ErrorCode.INVALID_UPDATE_VERSION, "changed meanwhile"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_bad_proposal_is_told_why(
    cluster: Cluster, changes: dict[str, object], broker_id: int, error: ErrorCode, text: str
) -> None:
    """In the protocol's order, and without effect."""
    before = cluster.image
    alteration: PartitionAlteration = replace(proposal(cluster, 0, 1), **changes)  # type: ignore[arg-type]
    result = alter(cluster, alteration, broker_id)

    assert result.error is error
    assert text in result.message
    assert cluster.partitions("t")[0] == before.partition(cluster.partitions("t")[0].topic_id, 0)


def test_who_is_fenced_or_stopping_joins_no_isr(cluster: Cluster) -> None:
    """M3; a leader that is stopping may stay until its leadership has moved."""
    cluster.contact(2, wants_fence=True)
    refused = alter(cluster, proposal(cluster, 0, 1, 2))

    assert refused.error is ErrorCode.INELIGIBLE_REPLICA
    assert refused.message == "broker 2 can't be in the ISR: it is fenced or shutting down"


def test_a_stale_broker_epoch_refuses_the_whole_request(cluster: Cluster) -> None:
    """Before anything else is looked at (M2)."""
    command = AlterPartition(0, 0, (proposal(cluster, 0, 1, 2),))
    with pytest.raises(ControllerError) as refused:
        cluster.run(command)

    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_a_partition_twice_in_one_request(cluster: Cluster) -> None:
    """The second is refused: it was made from a state that the first has changed."""
    alteration = proposal(cluster, 0, 1, 2)
    command = AlterPartition(0, cluster.image.brokers[0].broker_epoch, (alteration, alteration))
    results = cluster.ask(command, AlterPartitionReply).results

    assert [result.error for result in results] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]


def test_many_proposals_are_judged_in_slices() -> None:
    """Each slice is one batch; the last answer has all results, and a partition that is named again far below is refused."""
    cluster = Cluster(3, config=ControllerConfig(slice_changes_max=9))
    cluster.assign("t", *[(0, 1, 2)] * 10)
    found = cluster.partitions("t")
    proposals = [PartitionAlteration(each.topic_id, each.partition, 0, 0, (IsrMember(0),)) for each in found]
    run = cluster.run(AlterPartition(0, cluster.image.brokers[0].broker_epoch, (*proposals, proposals[1])))
    assert (run.steps, len(run.records)) == (4, 10)
    assert isinstance(run.reply, AlterPartitionReply)
    assert [result.partition for result in run.reply.results] == [*range(10), 1]
    assert [result.error for result in run.reply.results] == [ErrorCode.NONE] * 10 + [ErrorCode.INVALID_REQUEST]
    assert {partition.isr for partition in cluster.partitions("t")} == {(0,)}


def test_a_recovering_leader_recovers_and_only_then_has_company() -> None:
    """After an unclean election the leader says itself when its log is consistent (KIP-704)."""
    cluster = Cluster(2)
    cluster.assign("t", (0, 1))
    operations = (ConfigOperation(ConfigOperationKind.SET, "unclean.leader.election.enable", "true"),)
    cluster.run(AlterConfigs((ConfigAlteration(2, "t", operations),)))
    cluster.contact(1, wants_fence=True)
    cluster.contact(0, wants_fence=True)
    cluster.contact(1)
    cluster.contact(0)
    assert cluster.partitions("t")[0].leader_recovery_state == RECOVERING
    early = alter(cluster, replace(proposal(cluster, 1, 0), leader_recovery_state=RECOVERING), 1)
    assert early.message == "the ISR [1, 0] has more than the leader while that is recovering"

    recovered = alter(cluster, proposal(cluster, 1), 1)
    assert (recovered.error, recovered.leader_recovery_state, recovered.leader_epoch) == (ErrorCode.NONE, 0, 2)
    assert alter(cluster, proposal(cluster, 1, 0), 1).isr == (1, 0)


def test_the_record_names_only_what_changes(cluster: Cluster) -> None:
    """So that replay bumps no leader epoch for an ISR change."""
    command = AlterPartition(0, cluster.image.brokers[0].broker_epoch, (proposal(cluster, 0),))
    topic = cluster.image.topic("t")
    assert topic is not None

    assert cluster.run(command).records == [PartitionChange(topic.topic_id, 0, isr=(0,))]
