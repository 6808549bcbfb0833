"""Translates the image and the node's status to the answers of AdminService's reads. Decides nothing.

The answers are made from `quorum.controller.views` and from the node's status; both are plain values. `convert_admin` has the
changes.
"""

from collections.abc import Iterable, Sequence

from quorum_rpc.v1 import admin_pb2

from metadata_log.format.ids import NO_LEADER
from quorum.controller.partitions.listing.partition_conditions import PartitionCondition
from quorum.controller.partitions.listing.partition_health import Named, PartitionHealth
from quorum.controller.partitions.listing.partition_listing import PartitionDescription, PartitionFilter, PartitionPage
from quorum.controller.protocol.mode_commands import Mode
from quorum.controller.topics.described_configs import DescribedConfig, DescribedResource
from quorum.controller.views import (
    BrokerListing,
    BrokerPage,
    ClusterSummary,
    DescribedTopics,
    TopicDescription,
    TopicPage,
)
from quorum.core.protocol.problem import texts
from quorum.runtime.protocol.requests import NodeStatus, ReplicaView
from quorum.wire.convert.convert_broker import to_broker_state
from quorum.wire.convert.convert_labels import to_labels
from quorum.wire.convert.convert_membership import to_voter
from quorum.wire.convert.errors import BadMessage, item_error, leader_hint
from quorum.wire.convert.pages import number_token, place_token
from quorum.wire.convert.parts import to_endpoint, to_snapshot_id
from snapshots.store import SnapshotInfo


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
        next_page_token=page.last.encode() if page.more else b"",
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
        labels=to_labels(topic.labels),
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
        last_known_elr=partition.last_known_elr,
        offline_replicas=description.offline_replicas,
        leader_recovery_state=partition.leader_recovery_state,
        labels=to_labels(description.labels),
    )


def from_partition_filter(message: admin_pb2.ListPartitionsRequest) -> PartitionFilter:
    conditions: list[PartitionCondition] = []
    for number in dict.fromkeys(message.conditions):
        try:
            conditions.append(PartitionCondition(number))
        except ValueError:
            known = ", ".join(f"{each.name} ({each.value})" for each in PartitionCondition)
            raise BadMessage(f"condition {number}: this release knows {known}") from None
    return PartitionFilter(
        tuple(conditions),
        replica_on=message.replica_on if message.HasField("replica_on") else None,
        led_by=message.led_by if message.HasField("led_by") else None,
        topics=frozenset(message.topics) if message.topics else None,
    )


def to_list_partitions_response(page: PartitionPage, as_of_offset: int) -> admin_pb2.ListPartitionsResponse:
    return admin_pb2.ListPartitionsResponse(
        as_of_offset=as_of_offset,
        partitions=[
            admin_pb2.PartitionListing(topic=each.topic, topic_id=each.topic_id, partition=_partition(each.description))
            for each in page.partitions
        ],
        next_page_token=place_token(page.next_place),
    )


def to_describe_configs_response(
    described: Sequence[DescribedResource], next_page_token: bytes, as_of_offset: int, *, with_defaults: bool = False
) -> admin_pb2.DescribeConfigsResponse:
    return admin_pb2.DescribeConfigsResponse(
        as_of_offset=as_of_offset,
        next_page_token=next_page_token,
        resources=[
            admin_pb2.DescribedResource(
                resource=admin_pb2.ConfigResource(resource_type=each.resource_type, name=each.resource_name),
                error=item_error(each.error, each.message, len(described)),
                configs=[
                    admin_pb2.ConfigEntry(key=config.key, value=config.value)
                    for config in each.configs
                    if config.is_set_here
                ],
                effective_configs=[_effective(config) for config in each.configs] if with_defaults else [],
            )
            for each in described
        ],
    )


def _effective(config: DescribedConfig) -> admin_pb2.EffectiveConfig:
    levels = [
        admin_pb2.ConfigLevel(
            key=level.key, value=level.value, source=admin_pb2.ConfigLevel.Source.Name(level.source.value)
        )
        for level in config.levels
    ]
    return admin_pb2.EffectiveConfig(key=config.key, levels=levels, meaning=config.meaning)


def to_list_brokers_response(page: BrokerPage, as_of_offset: int, now_ms: int) -> admin_pb2.ListBrokersResponse:
    return admin_pb2.ListBrokersResponse(
        as_of_offset=as_of_offset,
        brokers=[_broker_listing(each, now_ms) for each in page.brokers],
        next_page_token=number_token(page.brokers[-1].registration.broker_id) if page.more else b"",
    )


def _broker_listing(listing: BrokerListing, now_ms: int) -> admin_pb2.BrokerListing:
    registration, last_contact_ms = listing.registration, listing.last_contact_ms
    session_ends_ms, mode = listing.session_deadline_ms, listing.mode
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
        mode="" if mode is None else Mode(mode.mode).word,
        mode_reason="" if mode is None else mode.reason,
        mode_since_ms=None if mode is None else mode.since_ms or None,
        log_dirs=[
            admin_pb2.LogDirectory(directory_id=each.directory_id, is_online=each.is_online, replicas=each.replicas)
            for each in listing.log_dirs
        ],
        labels=to_labels(listing.labels),
    )


def to_describe_cluster_response(found: ClusterSummary, as_of_offset: int) -> admin_pb2.DescribeClusterResponse:
    return admin_pb2.DescribeClusterResponse(
        as_of_offset=as_of_offset,
        metadata_version=found.metadata_version,
        topics=found.topics,
        partitions=found.partitions,
        brokers=[
            admin_pb2.BrokerStateCount(state=to_broker_state(state), brokers=count) for state, count in found.brokers
        ],
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
