"""Translates between protobuf and the requests of brokers to the active controller. Decides nothing."""

from typing import Any

from quorum_rpc.v1 import broker_pb2, common_pb2

from metadata_log.format.ids import NO_LEADER
from metadata_log.format.records import EXTERNAL_DATA_PLANE, FROM_OFFSET, FeatureRange
from quorum.controller.brokers.contact import BrokerState
from quorum.controller.protocol.commands import (
    AllocateProducerIds,
    AllocateProducerIdsReply,
    AlterPartition,
    AlterPartitionReply,
    IsrMember,
    PartitionAlteration,
    PartitionAlterationResult,
    RegisterBrokerCommand,
    ReportDeath,
    ReportDeathReply,
)
from quorum.controller.protocol.directory_commands import (
    ASSIGNMENTS_MAX,
    AssignReplicasToDirs,
    AssignReplicasToDirsReply,
    DirectoryAssignment,
)
from quorum.runtime.protocol.requests import FetchResult, MetadataFetch, MetadataFetched
from quorum.wire.convert.errors import BadMessage, error
from quorum.wire.convert.parts import at_most, chain, from_endpoint, join, to_part, to_snapshot_id, uuid

LISTENERS_MAX = 100
FEATURES_MAX = 1_000
LOG_DIRS_MAX = 10_000
ALTERATIONS_MAX = 10_000
INCARNATIONS_MAX = 100
ISR_MEMBERS_MAX = 300_000
"""Maximum number of replicas in the ISRs of one request. A message of 4 MiB has room for 2,000,000; their translation would hold
the event loop for a second."""

_STATES: dict[BrokerState, Any] = {
    BrokerState.OFFLINE: broker_pb2.OFFLINE,
    BrokerState.FENCED: broker_pb2.FENCED,
    BrokerState.ONLINE: broker_pb2.ONLINE,
    BrokerState.STOPPING: broker_pb2.STOPPING,
}
_RESULTS: dict[FetchResult, Any] = {
    FetchResult.BATCHES: broker_pb2.MetadataFetchResponse.BATCHES,
    FetchResult.USE_SNAPSHOT: broker_pb2.MetadataFetchResponse.USE_SNAPSHOT,
    FetchResult.DIVERGED: broker_pb2.MetadataFetchResponse.DIVERGED,
    FetchResult.NOT_READY: broker_pb2.MetadataFetchResponse.NOT_READY,
}


def to_broker_state(state: BrokerState) -> Any:
    """Returns the state as generated messages take it."""
    return _STATES[state]


def from_register(message: broker_pb2.RegisterBrokerRequest) -> RegisterBrokerCommand:
    at_most(LISTENERS_MAX, len(message.endpoints), "endpoints")
    at_most(FEATURES_MAX, len(message.features), "features")
    at_most(LOG_DIRS_MAX, len(message.log_dirs), "log_dirs")
    previous = message.previous_incarnation_id
    if message.previous_broker_epoch < 0:
        raise BadMessage("previous_broker_epoch must not be negative")
    return RegisterBrokerCommand(
        broker_id=message.broker_id,
        incarnation_id=uuid(message.incarnation_id, "incarnation_id"),
        endpoints=tuple(from_endpoint(endpoint) for endpoint in message.endpoints),
        features=tuple(FeatureRange(each.name, each.min_level, each.max_level) for each in message.features),
        rack=message.rack if message.HasField("rack") else None,
        log_dirs=tuple(uuid(each, "log_dirs") for each in message.log_dirs),
        previous_incarnation_id=uuid(previous, "previous_incarnation_id") if previous else None,
        data_plane=message.data_plane or EXTERNAL_DATA_PLANE,
        previous_broker_epoch=(
            message.previous_broker_epoch if message.HasField("previous_broker_epoch") else FROM_OFFSET
        ),
    )


def from_report_death(message: broker_pb2.ReportDeathRequest) -> ReportDeath:
    at_most(INCARNATIONS_MAX, len(message.incarnation_ids), "incarnation_ids")
    if not message.incarnation_ids:
        raise BadMessage("incarnation_ids must not be empty")
    return ReportDeath(message.broker_id, tuple(uuid(each, "incarnation_ids") for each in message.incarnation_ids))


def to_report_death_response(reply: ReportDeathReply) -> broker_pb2.ReportDeathResponse:
    return broker_pb2.ReportDeathResponse(offset=reply.offset, broker_epoch=reply.broker_epoch)


def from_metadata_fetch(message: broker_pb2.MetadataFetchRequest) -> MetadataFetch:
    at_most(LOG_DIRS_MAX, len(message.offline_log_dirs), "offline_log_dirs")
    if min(message.offset, message.epoch, message.max_wait_ms, message.max_bytes, message.part_position) < 0:
        raise BadMessage("offset, epoch, max_wait_ms, max_bytes and part_position must not be negative")
    return MetadataFetch(
        broker_id=message.broker_id,
        broker_epoch=message.broker_epoch,
        incarnation_id=uuid(message.incarnation_id, "incarnation_id"),
        offset=message.offset,
        epoch=message.epoch,
        chain=chain(message.chain, "chain"),
        wants_fence=message.wants_fence,
        wants_shut_down=message.wants_shut_down,
        offline_log_dirs=tuple(uuid(each, "offline_log_dirs") for each in message.offline_log_dirs),
        max_wait_ms=message.max_wait_ms,
        max_bytes=message.max_bytes,
        part_position=message.part_position if message.HasField("part_position") else None,
    )


def to_metadata_fetched(fetched: MetadataFetched, number: int) -> broker_pb2.MetadataFetchResponse:
    response = broker_pb2.MetadataFetchResponse(
        number=number,
        result=_RESULTS[fetched.result],
        batches=join(fetched.batches),
        previous_chain=fetched.previous_chain,
        end_offset=fetched.end_offset,
        high_watermark=fetched.high_watermark,
        digest=fetched.digest,
        digest_offset=fetched.digest_offset,
        lease_ms=fetched.lease_ms,
        controller_epoch=fetched.controller_epoch,
        skips=fetched.skips,
    )
    if fetched.snapshot is not None:
        response.snapshot.CopyFrom(to_snapshot_id(fetched.snapshot))
    if fetched.diverging is not None:
        diverging = common_pb2.OffsetAndEpoch(offset=fetched.diverging.offset, epoch=fetched.diverging.epoch)
        response.diverging.CopyFrom(diverging)
    if fetched.part is not None:
        response.part.CopyFrom(to_part(fetched.part))
    standing = fetched.standing
    if standing is not None:
        response.state = _STATES[standing.state]
        response.is_caught_up = standing.is_caught_up
        response.should_shut_down = standing.should_shut_down
    return response


def from_alter_partition(message: broker_pb2.AlterPartitionRequest) -> AlterPartition:
    at_most(ALTERATIONS_MAX, len(message.partitions), "partitions")
    at_most(ISR_MEMBERS_MAX, sum(len(each.new_isr) for each in message.partitions), "replicas in ISRs")
    return AlterPartition(
        broker_id=message.broker_id,
        broker_epoch=message.broker_epoch,
        partitions=tuple(
            PartitionAlteration(
                topic_id=uuid(each.topic_id, "topic_id"),
                partition=each.partition,
                leader_epoch=each.leader_epoch,
                partition_epoch=each.partition_epoch,
                new_isr=tuple(IsrMember(member.broker_id, member.broker_epoch) for member in each.new_isr),
                leader_recovery_state=each.leader_recovery_state,
            )
            for each in message.partitions
        ),
    )


def check_isrs(command: AlterPartition) -> None:
    """Checks the ISRs of a whole request that was translated in pieces."""
    at_most(ISR_MEMBERS_MAX, sum([len(each.new_isr) for each in command.partitions]), "replicas in ISRs")


def to_alter_partition_response(reply: AlterPartitionReply) -> broker_pb2.AlterPartitionResponse:
    return broker_pb2.AlterPartitionResponse(
        offset=reply.offset, results=[_altered_partition(result) for result in reply.results]
    )


def _altered_partition(result: PartitionAlterationResult) -> broker_pb2.PartitionAlterationResult:
    return broker_pb2.PartitionAlterationResult(
        topic_id=result.topic_id,
        partition=result.partition,
        error=error(result.error, result.message),
        leader_id=None if result.leader_id == NO_LEADER else result.leader_id,
        leader_epoch=result.leader_epoch,
        partition_epoch=result.partition_epoch,
        isr=result.isr,
        leader_recovery_state=result.leader_recovery_state,
    )


def from_assign_replicas(message: broker_pb2.AssignReplicasToDirsRequest) -> AssignReplicasToDirs:
    at_most(LOG_DIRS_MAX, len(message.directories), "directories")
    at_most(ASSIGNMENTS_MAX, sum(len(each.replicas) for each in message.directories), "replicas")
    return AssignReplicasToDirs(
        message.broker_id,
        message.broker_epoch,
        tuple(
            DirectoryAssignment(uuid(replica.topic_id, "topic_id"), replica.partition, directory)
            for each in message.directories
            for directory in (uuid(each.directory_id, "directory_id"),)
            for replica in each.replicas
        ),
    )


def to_assign_replicas_response(reply: AssignReplicasToDirsReply) -> broker_pb2.AssignReplicasToDirsResponse:
    return broker_pb2.AssignReplicasToDirsResponse(
        offset=reply.offset,
        results=[
            broker_pb2.AssignedReplica(
                topic_id=each.topic_id, partition=each.partition, error=error(each.error, each.message)
            )
            for each in reply.results
        ],
    )


def from_allocate(message: broker_pb2.AllocateProducerIdsRequest) -> AllocateProducerIds:
    return AllocateProducerIds(message.broker_id, message.broker_epoch)


def to_allocate_response(reply: AllocateProducerIdsReply) -> broker_pb2.AllocateProducerIdsResponse:
    return broker_pb2.AllocateProducerIdsResponse(
        offset=reply.offset, first_producer_id=reply.first_producer_id, count=reply.count
    )
