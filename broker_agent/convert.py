"""Conversion between protobuf messages and the session's values. No decisions.

Values from the network are trusted only to have the right types. gRPC's receive limit bounds all lengths. An enum value of a
newer controller becomes the nearest known value, or None.
"""

from collections.abc import Iterable

from quorum_rpc.v1 import broker_pb2, client_pb2, common_pb2

from broker_agent.cache import Node, PartitionInfo, TopicHead
from broker_agent.session.isr_proposals import IsrProposal, ProposalResult
from broker_agent.session.lifecycle import BrokerState, FetchAnswer, FetchRequest, FetchResult, LeaderHint
from broker_agent.session.replica_directories import Assignment, AssignmentResult
from metadata_log.format.errors import ErrorCode
from metadata_log.format.fetch_size import BatchPart
from metadata_log.format.ids import NodeId, OffsetAndEpoch, Uuid
from metadata_log.format.records import RECOVERED, Endpoint, FeatureRange

_RESULTS = {
    broker_pb2.MetadataFetchResponse.BATCHES: FetchResult.BATCHES,
    broker_pb2.MetadataFetchResponse.USE_SNAPSHOT: FetchResult.USE_SNAPSHOT,
    broker_pb2.MetadataFetchResponse.DIVERGED: FetchResult.DIVERGED,
    broker_pb2.MetadataFetchResponse.NOT_READY: FetchResult.NOT_READY,
}


def leader_hint(hint: common_pb2.LeaderHint) -> LeaderHint | None:
    """The leader's address; None if the answering node did not know it."""
    if not hint.HasField("endpoint") or not hint.endpoint.host:
        return None
    leader_id = hint.leader_id if hint.HasField("leader_id") else None
    return LeaderHint(leader_id, hint.endpoint.host, hint.endpoint.port)


def register_request(
    *,
    cluster_id: str,
    broker_id: NodeId,
    incarnation: Uuid,
    endpoints: tuple[Endpoint, ...],
    features: tuple[FeatureRange, ...],
    rack: str | None,
    log_dirs: tuple[Uuid, ...],
    previous_incarnation: Uuid | None,
    generation: int,
    data_plane: str,
    previous_broker_epoch: int | None,
) -> broker_pb2.RegisterBrokerRequest:
    """The request to register this process."""
    return broker_pb2.RegisterBrokerRequest(
        cluster_id=cluster_id,
        broker_id=broker_id,
        incarnation_id=incarnation,
        endpoints=[common_pb2.Endpoint(listener=each.listener, host=each.host, port=each.port) for each in endpoints],
        features=[
            common_pb2.FeatureRange(name=each.name, min_level=each.min_level, max_level=each.max_level)
            for each in features
        ],
        rack=rack,
        log_dirs=log_dirs,
        previous_incarnation_id=previous_incarnation or b"",
        generation=generation,
        data_plane=data_plane,
        previous_broker_epoch=previous_broker_epoch,
    )


def alter_partition_request(
    proposals: Iterable[IsrProposal], *, cluster_id: str, broker_id: NodeId, broker_epoch: int, generation: int
) -> broker_pb2.AlterPartitionRequest:
    """The request with a leader's ISR proposals."""
    return broker_pb2.AlterPartitionRequest(
        cluster_id=cluster_id,
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        generation=generation,
        partitions=[
            broker_pb2.PartitionAlteration(
                topic_id=each.topic_id,
                partition=each.partition,
                leader_epoch=each.leader_epoch,
                partition_epoch=each.partition_epoch,
                new_isr=[
                    broker_pb2.IsrMember(broker_id=member.broker_id, broker_epoch=member.broker_epoch)
                    for member in each.isr
                ],
                leader_recovery_state=RECOVERED,
            )
            for each in proposals
        ],
    )


def proposal_results(response: broker_pb2.AlterPartitionResponse) -> tuple[ProposalResult, ...]:
    """The result of each proposal, from an answer without an error."""
    return tuple(
        ProposalResult(each.topic_id, each.partition, ErrorCode.of(each.error.code), each.error.message)
        for each in response.results
    )


def assign_request(
    assignments: Iterable[Assignment], *, cluster_id: str, broker_id: NodeId, broker_epoch: int, generation: int
) -> broker_pb2.AssignReplicasToDirsRequest:
    """The request that says in which directories replicas are."""
    by_directory: dict[Uuid, list[broker_pb2.ReplicaPlace]] = {}
    for topic_id, partition, directory in assignments:
        place = broker_pb2.ReplicaPlace(topic_id=topic_id, partition=partition)
        by_directory.setdefault(directory, []).append(place)
    return broker_pb2.AssignReplicasToDirsRequest(
        cluster_id=cluster_id,
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        generation=generation,
        directories=[
            broker_pb2.ReplicasInDirectory(directory_id=directory, replicas=replicas)
            for directory, replicas in by_directory.items()
        ],
    )


def assignment_results(response: broker_pb2.AssignReplicasToDirsResponse) -> tuple[AssignmentResult, ...]:
    """The result of each assignment, from an answer without an error."""
    return tuple(
        AssignmentResult(each.topic_id, each.partition, ErrorCode.of(each.error.code), each.error.message)
        for each in response.results
    )


def fetch_request(
    request: FetchRequest,
    *,
    cluster_id: str,
    broker_id: NodeId,
    incarnation: Uuid,
    generation: int,
    offline_log_dirs: tuple[Uuid, ...] = (),
) -> broker_pb2.MetadataFetchRequest:
    """The session's fetch with this node's fixed fields."""
    return broker_pb2.MetadataFetchRequest(
        cluster_id=cluster_id,
        broker_id=broker_id,
        broker_epoch=request.broker_epoch,
        incarnation_id=incarnation,
        offset=request.position.offset,
        epoch=request.position.epoch,
        chain=request.position.chain,
        wants_fence=request.wants_fence,
        wants_shut_down=request.wants_shut_down,
        max_wait_ms=request.max_wait_ms,
        max_bytes=request.max_bytes,
        number=request.number,
        generation=generation,
        part_position=request.part_position,
        offline_log_dirs=offline_log_dirs,
    )


def fetch_answer(response: broker_pb2.MetadataFetchResponse) -> FetchAnswer | None:
    """The values of an answer without an error; None if this release does not know the kind of result."""
    result = _RESULTS.get(response.result)
    if result is None:
        return None
    return FetchAnswer(
        number=response.number,
        result=result,
        state=broker_state(response.state),
        batches=response.batches,
        previous_chain=response.previous_chain,
        end_offset=response.end_offset,
        snapshot=OffsetAndEpoch(response.snapshot.end_offset, response.snapshot.epoch),
        diverging=OffsetAndEpoch(response.diverging.offset, response.diverging.epoch),
        high_watermark=response.high_watermark,
        digest=response.digest,
        digest_offset=response.digest_offset,
        is_caught_up=response.is_caught_up,
        should_shut_down=response.should_shut_down,
        lease_ms=response.lease_ms,
        controller_epoch=response.controller_epoch,
        part=_part(response.part) if response.HasField("part") else None,
        skips=tuple(response.skips),
    )


def _part(part: common_pb2.BatchPart) -> BatchPart:
    return BatchPart(part.position, part.size, part.data)


def broker_state(state: int) -> BrokerState | None:
    """The state in the controller's answer; None if unknown to this release."""
    try:
        return BrokerState(state)
    except ValueError:
        return None


# --- to clients ------------------------------------------------------------------------------------------------------


def error(code: ErrorCode, message: str = "") -> common_pb2.Error:
    return common_pb2.Error(code=code.value, message=message)  # type: ignore[arg-type]


def node(node: Node) -> client_pb2.Node:
    return client_pb2.Node(broker_id=node.broker_id, host=node.host, port=node.port, rack=node.rack)


def topic_head(topic: TopicHead) -> client_pb2.TopicMetadata:
    """An existing topic, still without its partitions."""
    return client_pb2.TopicMetadata(
        name=topic.name,
        error=error(ErrorCode.NONE),
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partition_count=topic.partition_count,
    )


def topic_error(name: str, code: ErrorCode, message: str) -> client_pb2.TopicMetadata:
    """The reason why a topic is not described."""
    return client_pb2.TopicMetadata(name=name, error=error(code, message))


def partition(info: PartitionInfo) -> client_pb2.PartitionMetadata:
    """A partition, for clients of one listener."""
    return client_pb2.PartitionMetadata(
        error=error(info.error),
        partition=info.partition,
        leader_id=info.leader_id,
        leader_epoch=info.leader_epoch,
        replicas=info.replicas,
        isr=info.isr,
        offline_replicas=info.offline_replicas,
        elr=info.elr,
        last_known_elr=info.last_known_elr,
        partition_epoch=info.partition_epoch,
    )
