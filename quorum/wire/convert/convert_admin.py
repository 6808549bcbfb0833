"""Translates between protobuf and the requests and answers of AdminService. Decides nothing.

Reading answers are made from `quorum.controller.views` and from the node's status; both are plain values.
"""

from collections.abc import Iterable, Sequence

from quorum_rpc.v1 import admin_pb2

from metadata_log.format.ids import NO_LEADER
from metadata_log.format.topic_names import TOPIC_NAME_CHARS_MAX, topic_name_problem
from quorum.controller.partitions.partition_health import Named, PartitionHealth
from quorum.controller.protocol.commands import (
    DEFAULT_COUNT,
    AlterConfigs,
    AlterConfigsReply,
    ConfigAlteration,
    ConfigOperation,
    ConfigOperationKind,
    CreatePartitions,
    CreatePartitionsReply,
    CreateTopics,
    CreateTopicsReply,
    DeleteTopics,
    DeleteTopicsReply,
    FenceBrokerReply,
    NewPartitions,
    NewTopic,
    TopicResult,
    UnregisterBrokerReply,
)
from quorum.controller.protocol.election_commands import (
    ElectPreferredLeaders,
    ElectPreferredLeadersReply,
    TopicPartition,
)
from quorum.controller.views import (
    BrokerListing,
    BrokerPage,
    DescribedResource,
    DescribedTopics,
    PartitionDescription,
    TopicDescription,
    TopicPage,
)
from quorum.core.protocol.problem import texts
from quorum.runtime.protocol.requests import NodeStatus, ReplicaView
from quorum.wire.convert.convert_broker import to_broker_state
from quorum.wire.convert.convert_membership import to_voter
from quorum.wire.convert.errors import BadMessage, item_error, leader_hint
from quorum.wire.convert.pages import number_token, place_token
from quorum.wire.convert.parts import to_endpoint, to_snapshot_id
from snapshots.store import SnapshotInfo

ENTRIES_MAX = 10_000
"""Maximum number of topics, partitions, configs, resources or operations in one request. More would not fit into one decision."""
REPLICAS_MAX = 300_000
"""Maximum number of replicas in the assignments of one request: 10,000 partitions with 30 replicas each."""

_OPERATIONS = {
    admin_pb2.ConfigOperation.SET: ConfigOperationKind.SET,
    admin_pb2.ConfigOperation.DELETE: ConfigOperationKind.DELETE,
    admin_pb2.ConfigOperation.APPEND: ConfigOperationKind.APPEND,
    admin_pb2.ConfigOperation.SUBTRACT: ConfigOperationKind.SUBTRACT,
}


def at_most(count: int, what: str) -> None:
    """Raises BadMessage if a request names more than ENTRIES_MAX."""
    if count > ENTRIES_MAX:
        raise BadMessage(f"{count} {what} in one request; at most {ENTRIES_MAX}: send several requests")


def countable(topics: Iterable[admin_pb2.NewTopic | admin_pb2.NewPartitions]) -> None:
    """Counts the lists of a request before they are translated, and raises BadMessage if they are too many.

    Example: a request of 4 MB with 1,900,000 empty replica lists. Their translation would hold the event loop for a second,
    and a leader that answers nobody for so long loses its leadership.
    """
    at_most(sum(len(each.assignment) for each in topics), "partitions in assignments")
    replicas = sum(len(replicas.broker_ids) for each in topics for replicas in each.assignment)
    if replicas > REPLICAS_MAX:
        raise BadMessage(f"{replicas} replicas in one request; at most {REPLICAS_MAX}: send several requests")


def nameable(names: Iterable[str], field: str) -> None:
    """Raises BadMessage for a name that no topic can have. An answer repeats each name, and must fit into one message."""
    for i, name in enumerate(names):
        size = len(name.encode())
        if size > TOPIC_NAME_CHARS_MAX:
            raise BadMessage(f"{field}[{i}] has {size} bytes; a topic name has at most {TOPIC_NAME_CHARS_MAX}")


def repeated(name: str) -> str:
    """Returns a request's name as the answer repeats it: whole, or cut after as many bytes as the longest topic name has.

    Example: CreateTopics with `orders` and a name of 3.9 MB. The answer says that `orders` was created, so it must fit into a
    message.
    """
    data = name.encode()
    return name if len(data) <= TOPIC_NAME_CHARS_MAX else data[:TOPIC_NAME_CHARS_MAX].decode(errors="ignore")


# --- mutations -----------------------------------------------------------------------------------------------------


def from_create_topics(message: admin_pb2.CreateTopicsRequest) -> CreateTopics:
    at_most(len(message.topics), "topics")
    at_most(sum(len(each.configs) for each in message.topics), "configs")
    countable(message.topics)
    return CreateTopics(tuple(_new_topic(each) for each in message.topics), message.validate_only)


def _new_topic(message: admin_pb2.NewTopic) -> NewTopic:
    return NewTopic(
        name=message.name,
        partitions=message.partitions if message.HasField("partitions") else DEFAULT_COUNT,
        replication_factor=message.replication_factor if message.HasField("replication_factor") else DEFAULT_COUNT,
        assignment=_assignment(message.assignment),
        configs=tuple((entry.key, entry.value) for entry in message.configs),
    )


def _assignment(lists: Iterable[admin_pb2.ReplicaList]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(each.broker_ids) for each in lists)


def to_create_topics_response(reply: CreateTopicsReply) -> admin_pb2.CreateTopicsResponse:
    return admin_pb2.CreateTopicsResponse(offset=reply.offset, results=_results(reply.results))


def from_create_partitions(message: admin_pb2.CreatePartitionsRequest) -> CreatePartitions:
    at_most(len(message.topics), "topics")
    countable(message.topics)
    topics = tuple(NewPartitions(each.name, each.total_count, _assignment(each.assignment)) for each in message.topics)
    return CreatePartitions(topics, message.validate_only)


def to_create_partitions_response(reply: CreatePartitionsReply) -> admin_pb2.CreatePartitionsResponse:
    return admin_pb2.CreatePartitionsResponse(offset=reply.offset, results=_results(reply.results))


def from_delete_topics(message: admin_pb2.DeleteTopicsRequest) -> DeleteTopics:
    at_most(len(message.names), "topics")
    nameable(message.names, "names")
    return DeleteTopics(tuple(message.names))


def to_delete_topics_response(reply: DeleteTopicsReply) -> admin_pb2.DeleteTopicsResponse:
    return admin_pb2.DeleteTopicsResponse(offset=reply.offset, results=_results(reply.results))


def _results(results: Sequence[TopicResult]) -> list[admin_pb2.TopicResult]:
    return [
        admin_pb2.TopicResult(
            name=repeated(result.name),
            error=item_error(result.error, result.message, len(results)),
            topic_id=result.topic_id,
            partitions=result.partitions,
            replication_factor=result.replication_factor,
        )
        for result in results
    ]


def from_alter_configs(message: admin_pb2.IncrementalAlterConfigsRequest) -> AlterConfigs:
    at_most(sum(len(each.operations) for each in message.alterations), "operations")
    at_most(len(message.alterations), "resources")
    return AlterConfigs(tuple(_alteration(each) for each in message.alterations), message.validate_only)


def _alteration(message: admin_pb2.ConfigAlteration) -> ConfigAlteration:
    operations: list[ConfigOperation] = []
    for each in message.operations:
        kind = _OPERATIONS.get(each.kind)
        if kind is None:
            raise BadMessage(f"config operation {each.kind}; this release knows {len(_OPERATIONS)}")
        operations.append(ConfigOperation(kind, each.key, each.value))
    return ConfigAlteration(message.resource.resource_type, message.resource.name, tuple(operations))


def to_alter_configs_response(reply: AlterConfigsReply) -> admin_pb2.IncrementalAlterConfigsResponse:
    return admin_pb2.IncrementalAlterConfigsResponse(
        offset=reply.offset,
        results=[
            admin_pb2.ConfigResult(
                resource=admin_pb2.ConfigResource(resource_type=each.resource_type, name=repeated(each.resource_name)),
                error=item_error(each.error, each.message, len(reply.results)),
            )
            for each in reply.results
        ],
    )


def from_elect_leaders(message: admin_pb2.ElectLeadersRequest) -> ElectPreferredLeaders:
    if message.election_type != admin_pb2.ElectLeadersRequest.PREFERRED:
        text = (
            f"election type {message.election_type}: this release elects preferred leaders (0) only; nothing was done"
        )
        raise BadMessage(text)
    at_most(len(message.topics), "topics")
    at_most(sum(len(each.partitions) for each in message.topics), "partitions")
    for each in message.topics:
        if (problem := topic_name_problem(each.topic)) is not None:
            raise BadMessage(f"{problem}; nothing was done")
    return ElectPreferredLeaders(
        tuple(TopicPartition(each.topic, partition) for each in message.topics for partition in each.partitions)
    )


def to_elect_leaders_response(reply: ElectPreferredLeadersReply) -> admin_pb2.ElectLeadersResponse:
    return admin_pb2.ElectLeadersResponse(
        offset=reply.offset,
        results=[
            admin_pb2.ElectionResult(
                topic=each.topic,
                partition=each.partition,
                error=item_error(each.error, each.message, len(reply.results)),
                leader_id=None if each.leader_id == NO_LEADER else each.leader_id,
            )
            for each in reply.results
        ],
    )


def to_mutation_response(reply: FenceBrokerReply | UnregisterBrokerReply) -> admin_pb2.MutationResponse:
    return admin_pb2.MutationResponse(offset=reply.offset)


# --- reads ---------------------------------------------------------------------------------------------------------


def to_list_topics_response(page: TopicPage, as_of_offset: int) -> admin_pb2.ListTopicsResponse:
    return admin_pb2.ListTopicsResponse(
        as_of_offset=as_of_offset,
        topics=[
            admin_pb2.TopicListing(
                name=each.name,
                topic_id=each.topic_id,
                partitions=each.partitions,
                replication_factor=each.replication_factor,
            )
            for each in page.topics
        ],
        more=page.more,
        next_page_token=page.topics[-1].name.encode() if page.more else b"",
    )


def to_describe_topics_response(page: DescribedTopics, as_of_offset: int) -> admin_pb2.DescribeTopicsResponse:
    return admin_pb2.DescribeTopicsResponse(
        as_of_offset=as_of_offset,
        topics=[_topic(each, len(page.topics)) for each in page.topics],
        next_page_token=place_token(page.next_place),
    )


def _topic(topic: TopicDescription, items: int) -> admin_pb2.TopicDescription:
    return admin_pb2.TopicDescription(
        name=topic.name,
        error=item_error(topic.error, topic.message, items),
        topic_id=topic.topic_id,
        partitions=[_partition(each) for each in topic.partitions],
        configs=[admin_pb2.ConfigEntry(key=key, value=value) for key, value in topic.configs],
        partition_count=topic.partition_count,
    )


def _partition(description: PartitionDescription) -> admin_pb2.PartitionDescription:
    partition = description.record
    return admin_pb2.PartitionDescription(
        partition=partition.partition,
        leader_id=None if partition.leader == NO_LEADER else partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        replicas=partition.replicas,
        isr=partition.isr,
        adding_replicas=partition.adding_replicas,
        removing_replicas=partition.removing_replicas,
        elr=partition.elr,
        offline_replicas=description.offline_replicas,
    )


def to_describe_configs_response(
    described: Sequence[DescribedResource], next_page_token: bytes, as_of_offset: int
) -> admin_pb2.DescribeConfigsResponse:
    return admin_pb2.DescribeConfigsResponse(
        as_of_offset=as_of_offset,
        next_page_token=next_page_token,
        resources=[
            admin_pb2.DescribedResource(
                resource=admin_pb2.ConfigResource(resource_type=each.resource_type, name=each.resource_name),
                error=item_error(each.error, each.message, len(described)),
                configs=[admin_pb2.ConfigEntry(key=config.key, value=config.value) for config in each.configs],
            )
            for each in described
        ],
    )


def to_list_brokers_response(page: BrokerPage, as_of_offset: int, now_ms: int) -> admin_pb2.ListBrokersResponse:
    return admin_pb2.ListBrokersResponse(
        as_of_offset=as_of_offset,
        brokers=[_broker_listing(each, now_ms) for each in page.brokers],
        next_page_token=number_token(page.brokers[-1].registration.broker_id) if page.more else b"",
    )


def _broker_listing(listing: BrokerListing, now_ms: int) -> admin_pb2.BrokerListing:
    registration, last_contact_ms = listing.registration, listing.last_contact_ms
    session_ends_ms = listing.session_deadline_ms
    return admin_pb2.BrokerListing(
        broker_id=registration.broker_id,
        broker_epoch=registration.broker_epoch,
        incarnation_id=registration.incarnation_id,
        endpoints=[to_endpoint(endpoint) for endpoint in registration.endpoints],
        rack=registration.rack,
        state=to_broker_state(listing.state),
        # The broker may have been heard after `now_ms`, while its partitions were counted.
        last_contact_age_ms=None if last_contact_ms is None else max(0, now_ms - last_contact_ms),
        metadata_offset=listing.metadata_offset,
        led_partitions=listing.led_partitions,
        replicas=listing.replicas,
        data_plane=registration.data_plane,
        state_reason=registration.reason,
        state_since_ms=registration.since_ms or None,
        session_left_ms=None if session_ends_ms is None or session_ends_ms < now_ms else session_ends_ms - now_ms,
    )


def to_partition_health_response(
    found: PartitionHealth, as_of_offset: int
) -> admin_pb2.DescribePartitionHealthResponse:
    def named(topics: Named) -> list[admin_pb2.TopicPartitions]:
        return [admin_pb2.TopicPartitions(topic=name, partitions=numbers) for name, numbers in topics]

    return admin_pb2.DescribePartitionHealthResponse(
        as_of_offset=as_of_offset,
        partitions=found.partitions,
        leaderless=found.leaderless,
        under_replicated=found.under_replicated,
        first_leaderless=named(found.first_leaderless),
        first_under_replicated=named(found.first_under_replicated),
    )


def to_describe_quorum_response(status: NodeStatus) -> admin_pb2.DescribeQuorumResponse:
    snapshot = status.snapshot
    return admin_pb2.DescribeQuorumResponse(
        leader=leader_hint(status.leader),
        cluster_id=status.cluster_id,
        node_id=status.node_id,
        directory_id=status.directory_id,
        role=status.role,
        epoch=status.epoch,
        high_watermark=status.high_watermark,
        log_start_offset=status.log_start_offset,
        log_end_offset=status.log_end_offset,
        flushed_end_offset=status.flushed_end_offset,
        applied_offset=status.applied_offset,
        chain=status.chain,
        digest=status.digest,
        snapshot=None if snapshot is None else to_snapshot_id(snapshot),
        voters=[_replica(each) for each in status.replicas if each.is_voter],
        observers=[_replica(each) for each in status.replicas if not each.is_voter],
        generation=status.generation,
        bootstrap_voters=[to_voter(each) for each in status.bootstrap.voters],
        concern=texts(status.problems),
        no_leader_reason=status.no_leader_reason,
        no_leader_for_ms=status.no_leader_for_ms,
        problems=[
            admin_pb2.Problem(code=each.code.value, text=each.text, blocks_ready=each.blocks_ready)
            for each in status.problems
        ],
    )


def _replica(replica: ReplicaView) -> admin_pb2.ReplicaStatus:
    return admin_pb2.ReplicaStatus(
        node_id=replica.node_id,
        directory_id=replica.directory_id,
        log_end_offset=replica.log_end_offset,
        last_fetch_age_ms=replica.last_fetch_age_ms,
        last_caught_up_age_ms=replica.last_caught_up_age_ms,
        status=replica.status,
        endpoint=None if replica.endpoint is None else to_endpoint(replica.endpoint),
        lag=replica.lag,
        behind_for_ms=replica.behind_for_ms,
    )


def to_list_snapshots_response(
    node_id: int, snapshots: Iterable[tuple[SnapshotInfo, bytes]]
) -> admin_pb2.ListSnapshotsResponse:
    """Translates snapshots, each with its SHA-256; an empty SHA-256 means that none was computed."""
    return admin_pb2.ListSnapshotsResponse(
        node_id=node_id, snapshots=[_snapshot(info, sha256) for info, sha256 in snapshots]
    )


def _snapshot(info: SnapshotInfo, sha256: bytes) -> admin_pb2.SnapshotListing:
    return admin_pb2.SnapshotListing(
        snapshot=to_snapshot_id(info.end), size=info.size, timestamp_ms=info.timestamp_ms, sha256=sha256
    )
