"""Translates between protobuf and the requests about reassignments. Decides nothing."""

from quorum_rpc.v1 import admin_pb2

from metadata_log.format.ids import Offset
from metadata_log.format.partition_state import ADDING, ISR, REMOVING, REPLICAS
from metadata_log.format.topic_names import topic_name_problem
from quorum.controller.partitions.listing.ongoing_reassignments import OngoingPage
from quorum.controller.protocol.reassignment_commands import (
    AlterPartitionReassignments,
    AlterPartitionReassignmentsReply,
    Reassignment,
)
from quorum.wire.convert import pages
from quorum.wire.convert.convert_admin import at_most, check_replicas
from quorum.wire.convert.errors import BadMessage, item_error


def from_alter_reassignments(message: admin_pb2.AlterPartitionReassignmentsRequest) -> AlterPartitionReassignments:
    at_most(len(message.partitions), "partitions")
    check_replicas(sum(len(each.target.broker_ids) for each in message.partitions))
    for each in message.partitions:
        if (problem := topic_name_problem(each.topic)) is not None:
            raise BadMessage(f"{problem}; nothing was done")
    allows = message.allow_replication_factor_change if message.HasField("allow_replication_factor_change") else True
    return AlterPartitionReassignments(
        tuple(
            Reassignment(each.topic, each.partition, tuple(each.target.broker_ids) if each.HasField("target") else None)
            for each in message.partitions
        ),
        allow_replication_factor_change=allows,
        validate_only=message.validate_only,
    )


def check_targets(command: AlterPartitionReassignments) -> None:
    """Checks the replicas of a whole request that was translated in pieces."""
    check_replicas(sum([len(each.replicas or ()) for each in command.partitions]))


def to_alter_reassignments_response(
    reply: AlterPartitionReassignmentsReply,
) -> admin_pb2.AlterPartitionReassignmentsResponse:
    return admin_pb2.AlterPartitionReassignmentsResponse(
        offset=reply.offset,
        results=[
            admin_pb2.ReassignmentResult(
                topic=each.topic,
                partition=each.partition,
                error=item_error(each.error, each.message, len(reply.results)),
                adding_replicas=each.adding,
                removing_replicas=each.removing,
            )
            for each in reply.results
        ],
    )


def to_list_reassignments_response(
    page: OngoingPage, as_of_offset: Offset
) -> admin_pb2.ListPartitionReassignmentsResponse:
    return admin_pb2.ListPartitionReassignmentsResponse(
        as_of_offset=as_of_offset,
        reassignments=[
            admin_pb2.OngoingReassignment(
                topic=each.topic,
                partition=each.partition,
                replicas=each.state[REPLICAS],
                adding_replicas=each.state[ADDING],
                removing_replicas=each.state[REMOVING],
                isr=each.state[ISR],
            )
            for each in page.partitions
        ],
        next_page_token=pages.place_token(page.next_place),
    )
