"""Reassignments of more partitions than a slice has: one transaction, with the records and results of a small request."""

from metadata_log.format.errors import ErrorCode
from quorum.controller.controller import ControllerConfig
from quorum.controller.protocol.happenings import ReassignmentsAltered
from quorum.controller.protocol.reassignment_commands import (
    AlterPartitionReassignments,
    AlterPartitionReassignmentsReply,
    Reassignment,
)
from tests.quorum.controller.cluster import Cluster, records_of

SLICE = 4
"""How many partitions a slice has, at seven records each."""


def of_slices(*, is_sliced: bool = True, moves_max: int = 100) -> Cluster:
    """Ten partitions of t on brokers 0 and 1 of four. Partition 3 is on its way to 0 and 2."""
    records = 7 * SLICE if is_sliced else 500
    config = ControllerConfig(transaction_slice_records=records, reassignment_moves_per_broker_max=moves_max)
    cluster = Cluster(4, config=config)
    cluster.assign("t", *[(0, 1)] * 10)
    cluster.run(AlterPartitionReassignments((Reassignment("t", 3, (0, 2)),)))
    return cluster


LARGE = AlterPartitionReassignments(
    (
        *(Reassignment("t", each, (1, 2)) for each in range(3)),
        Reassignment("t", 3, None),
        Reassignment("t", 4, None),
        Reassignment("t", 11, (1, 2)),
        *(Reassignment("t", each, (1, 0)) for each in range(5, 10)),
        Reassignment("none", 0, (1, 2)),
    )
)


def test_a_large_request_leads_to_the_records_of_a_small_one() -> None:
    """The division into slices changes no record and no result; the last slice tells the story of all of them."""
    whole, sliced = of_slices(is_sliced=False), of_slices()
    (one,), many = whole.decisions(LARGE), sliced.decisions(LARGE)

    assert one.transaction == "" and {each.transaction for each in many} == {"AlterPartitionReassignments"}
    assert [len(each.records) for each in many] == [0, 4, 2, 3]
    assert records_of(many) == list(one.records)
    assert many[-1].reply == one.reply
    assert [each.happenings for each in many[:-1]] == [(), (), ()]
    assert many[-1].happenings == one.happenings
    (told,) = many[-1].happenings
    assert isinstance(told, ReassignmentsAltered)
    assert (told.begun, told.finished, told.cancelled) == (8, 5, 1)
    assert sliced.image.digest == whole.image.digest


def test_a_slice_has_few_partitions_even_if_none_changes() -> None:
    """A refused partition, and one that has its replicas already, cost a look each."""
    cluster = of_slices()
    same = AlterPartitionReassignments(tuple(Reassignment("t", each, (0, 1)) for each in range(4, 10)))
    many = cluster.decisions(same)
    assert len(many) == 3
    assert records_of(many) == [] and many[-1].happenings == ()
    assert isinstance(many[-1].reply, AlterPartitionReassignmentsReply)
    assert [each.error for each in many[-1].reply.results] == [ErrorCode.NONE] * 6


def test_the_bound_of_a_broker_holds_for_the_whole_request() -> None:
    """A later slice counts what earlier slices have begun, and what was being added before: 2 may get two more."""
    cluster = of_slices(moves_max=3)
    command = AlterPartitionReassignments(tuple(Reassignment("t", each, (1, 2)) for each in range(4, 10)))
    reply = cluster.decisions(command)[-1].reply
    assert isinstance(reply, AlterPartitionReassignmentsReply)
    throttled = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert [each.error for each in reply.results] == [ErrorCode.NONE] * 2 + [throttled] * 4


def test_a_large_validation_writes_nothing() -> None:
    """It is no transaction, so other requests are decided between its slices."""
    command = AlterPartitionReassignments(LARGE.partitions, validate_only=True)
    whole, sliced = of_slices(is_sliced=False), of_slices()
    many = sliced.decisions(command)
    assert len(many) == 4
    assert records_of(many) == [] and {(each.transaction, each.happenings) for each in many} == {("", ())}
    assert many[-1].reply == whole.decisions(LARGE)[-1].reply
