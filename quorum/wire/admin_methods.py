"""The methods of AdminService: one row each.

`quorum.wire.table` explains the rows. Any function of a row may raise `Refused`, or `BadMessage` for a field with an
impossible value. To add a method, follow *An admin RPC* in `docs/recipes.md`.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from quorum_rpc.v1 import admin_pb2

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Offset
from quorum.controller import views
from quorum.controller.partitions.listing.ongoing_reassignments import ongoing_reassignments
from quorum.controller.partitions.listing.partition_health import partition_health
from quorum.controller.partitions.listing.partition_listing import PartitionFilter, TopicPlace, list_partitions
from quorum.controller.protocol.commands import FenceBroker, UnregisterBroker
from quorum.controller.protocol.mode_commands import DrainBroker, EndBrokerMode, Mode
from quorum.controller.topics.described_configs import (
    EFFECTIVE_PAGE_MAX,
    KEYS_PAGE_MAX,
    RESOURCES_PAGE_MAX,
    DescribedResource,
    describe_configs,
)
from quorum.core.protocol.messages import QuorumChangeRequest, QuorumChangeResponse
from quorum.runtime.protocol.requests import ReadView, Refused
from quorum.wire.convert import convert_acls as acls
from quorum.wire.convert import convert_admin as convert
from quorum.wire.convert import convert_config_keys as keys
from quorum.wire.convert import convert_features as features
from quorum.wire.convert import convert_labels as labels
from quorum.wire.convert import convert_membership as membership
from quorum.wire.convert import convert_quotas as quotas
from quorum.wire.convert import convert_reads as reads
from quorum.wire.convert import convert_reassignments as moves
from quorum.wire.convert import convert_scram as scram
from quorum.wire.convert import pages
from quorum.wire.convert.convert_skips import from_skip_request, to_skip_response
from quorum.wire.table import Asked, Controller, Counted, Goal, Submitted, Table, Viewed

SERVICE: Final = admin_pb2.DESCRIPTOR.services_by_name["AdminService"]


# --- reads -----------------------------------------------------------------------------------------------------------


def _list_topics(request: admin_pb2.ListTopicsRequest, view: ReadView) -> admin_pb2.ListTopicsResponse:
    label = labels.wanted_label(request.label)
    page = views.list_topics(
        view.image, pages.name_after(request.page_token), pages.page_size(request.page_size), label
    )
    return reads.to_list_topics_response(page, view.as_of_offset)


def _describe_topics(request: admin_pb2.DescribeTopicsRequest, view: ReadView) -> admin_pb2.DescribeTopicsResponse:
    convert.at_most(len(request.names), "topics")
    convert.nameable(request.names, "names")
    names, first = tuple(request.names), pages.page_size(request.first_partition, "first_partition")
    place = pages.place_of(request.page_token, names)
    if place is None and first and names:
        place = TopicPlace(names[0], first)
    page = views.describe_topics(view.image, names, place, pages.page_size(request.page_size))
    return reads.to_describe_topics_response(page, view.as_of_offset)


def _list_partitions(request: admin_pb2.ListPartitionsRequest, view: ReadView) -> admin_pb2.ListPartitionsResponse:
    place, limit = pages.any_place_of(request.page_token), pages.page_size(request.page_size)
    convert.at_most(len(request.topics), "topics")
    convert.nameable(request.topics, "topics")
    wanted = reads.from_partition_filter(request)
    if place is None:
        _check_filter(wanted, view)
    return reads.to_list_partitions_response(list_partitions(view.image, wanted, place, limit), view.as_of_offset)


def _check_filter(wanted: PartitionFilter, view: ReadView) -> None:
    """Refuses a filter that names something that does not exist: an empty list would look like good news."""
    for name in sorted(wanted.topics or ()):
        if name not in view.image.topic_ids:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    for broker_id in (wanted.replica_on, wanted.led_by):
        if broker_id is not None and broker_id not in view.image.brokers:
            raise Refused(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")


def _describe_configs(request: admin_pb2.DescribeConfigsRequest, view: ReadView) -> admin_pb2.DescribeConfigsResponse:
    convert.at_most(len(request.resources), "resources")
    convert.nameable([each.name for each in request.resources], "resources.name")
    begin, wanted = pages.number_of(request.page_token, first=0), pages.page_size(request.page_size)
    most = EFFECTIVE_PAGE_MAX if request.with_defaults else RESOURCES_PAGE_MAX
    config = None if view.controller is None else view.controller.config
    described: list[DescribedResource] = []
    key_count = 0
    for each in request.resources[begin : begin + min(wanted or most, most)]:
        if key_count >= KEYS_PAGE_MAX:
            break
        described.append(
            describe_configs(view.image, each.resource_type, each.name, config, with_defaults=request.with_defaults)
        )
        key_count += len(described[-1].configs)
    end = begin + len(described)
    token = pages.number_token(end) if end < len(request.resources) else b""
    return reads.to_describe_configs_response(described, token, view.as_of_offset, with_defaults=request.with_defaults)


def _list_reassignments(
    request: admin_pb2.ListPartitionReassignmentsRequest, view: ReadView
) -> admin_pb2.ListPartitionReassignmentsResponse:
    place = pages.any_place_of(request.page_token)
    page = ongoing_reassignments(view.image, place, pages.page_size(request.page_size))
    return moves.to_list_reassignments_response(page, view.as_of_offset)


def _count_partitions(request: admin_pb2.ListBrokersRequest, view: ReadView) -> views.BrokerCounts:
    _brokers_wanted(request)  # a bad request is refused before the count
    return views.broker_counts(view.image)


def _list_brokers(request: admin_pb2.ListBrokersRequest, view: ReadView, counts: Any) -> admin_pb2.ListBrokersResponse:
    after, limit = _brokers_wanted(request)
    page = views.list_brokers(view.image, view.controller, counts, after=after, limit=limit, label=request.label)
    return reads.to_list_brokers_response(page, view.as_of_offset, view.now_ms)


def _brokers_wanted(request: admin_pb2.ListBrokersRequest) -> tuple[int, int]:
    labels.wanted_label(request.label)
    return pages.number_of(request.page_token, first=-1), pages.page_size(request.page_size)


# --- answers of the node itself -----------------------------------------------------------------------------------------


async def _describe_quorum(
    controller: Controller, request: admin_pb2.DescribeQuorumRequest, _: int
) -> admin_pb2.DescribeQuorumResponse:
    status = controller.node.status()
    if request.of_leader and status.role != "leader":
        raise Refused(ErrorCode.NOT_CONTROLLER, "this controller does not lead; nothing was asked", status.leader)
    return reads.to_describe_quorum_response(status)


async def _can_restart(
    controller: Controller, request: admin_pb2.CanRestartRequest, _: int
) -> admin_pb2.CanRestartResponse:
    advice = await controller.node.restart_advice(request.node_id)
    return admin_pb2.CanRestartResponse(can_restart=advice.can_restart, reason=advice.reason)


async def _list_snapshots(controller: Controller, _: Any, __: int) -> admin_pb2.ListSnapshotsResponse:
    listed = controller.node.list_snapshots()
    hashes = [await controller.hashes.hash_of(info) for info in listed]
    return reads.to_list_snapshots_response(controller.node_id, zip(listed, hashes, strict=True))


# --- goals ---------------------------------------------------------------------------------------------------------------


async def _create_snapshot(
    controller: Controller, request: admin_pb2.CreateSnapshotRequest, timeout_ms: int, _: Offset | None
) -> admin_pb2.MutationResponse:
    offset = await controller.node.create_snapshot(request.reason or "asked for by an operator", timeout_ms)
    return admin_pb2.MutationResponse(offset=offset)


async def _skip_batch(
    controller: Controller, request: admin_pb2.SkipBatchRequest, timeout_ms: int, _: Offset | None
) -> admin_pb2.SkipBatchResponse:
    return to_skip_response(await controller.node.skip_batch(from_skip_request(request), timeout_ms))


def _quorum_change(
    translate: Callable[[Any, int, Offset | None], QuorumChangeRequest],
) -> Callable[..., Awaitable[Any]]:
    """Asks the quorum itself: the voter set and the leadership are Raft's, not the controller's (KIP-853)."""

    async def change(
        controller: Controller, request: Any, timeout_ms: int, since: Offset | None
    ) -> admin_pb2.MutationResponse:
        response = await controller.node.raft(translate(request, timeout_ms, since))
        assert isinstance(response, QuorumChangeResponse), response
        return membership.to_mutation_response(response, controller.node.leader_hint())

    return change


# --- the table -------------------------------------------------------------------------------------------------------

TABLE: Final = Table(
    SERVICE,
    (
        Submitted(
            "CreateTopics",
            convert.from_create_topics,
            convert.to_create_topics_response,
            "topics",
            convert.check_new_topics,
        ),
        Submitted(
            "CreatePartitions",
            convert.from_create_partitions,
            convert.to_create_partitions_response,
            "topics",
            convert.check_assignments,
        ),
        Submitted("DeleteTopics", convert.from_delete_topics, convert.to_delete_topics_response),
        Submitted(
            "IncrementalAlterConfigs",
            convert.from_alter_configs,
            convert.to_alter_configs_response,
            "alterations",
            convert.check_alterations,
        ),
        Submitted("AlterConfigKeys", keys.from_alter_config_keys, keys.to_alter_config_keys_response),
        Submitted("AlterLabels", labels.from_alter_labels, labels.to_alter_labels_response),
        Submitted("ElectLeaders", convert.from_elect_leaders, convert.to_elect_leaders_response),
        Submitted(
            "AlterPartitionReassignments",
            moves.from_alter_reassignments,
            moves.to_alter_reassignments_response,
            "partitions",
            moves.check_targets,
        ),
        Submitted("UpdateFeatures", features.from_update_features, features.to_update_features_response),
        Submitted("CreateAcls", acls.from_create_acls, acls.to_create_acls_response),
        Submitted("DeleteAcls", acls.from_delete_acls, acls.to_delete_acls_response),
        Submitted("AlterUserScramCredentials", scram.from_alter_credentials, scram.to_alter_credentials_response),
        Submitted("AlterClientQuotas", quotas.from_alter_quotas, quotas.to_alter_quotas_response),
        Submitted(
            "FenceBroker",
            lambda request: FenceBroker(request.broker_id, request.reason, request.validate_only),
            convert.to_mutation_response,
        ),
        Submitted(
            "UnfenceBroker",
            lambda request: EndBrokerMode(request.broker_id, Mode.FENCED, request.validate_only),
            convert.to_mutation_response,
        ),
        Submitted(
            "DrainBroker",
            lambda request: DrainBroker(request.broker_id, request.reason, request.validate_only),
            convert.to_mutation_response,
        ),
        Submitted(
            "UndrainBroker",
            lambda request: EndBrokerMode(request.broker_id, Mode.MAINTENANCE, request.validate_only),
            convert.to_mutation_response,
        ),
        Submitted(
            "UnregisterBroker", lambda request: UnregisterBroker(request.broker_id), convert.to_mutation_response
        ),
        Viewed("ListTopics", _list_topics),
        Viewed("DescribeTopics", _describe_topics),
        Viewed("ListPartitions", _list_partitions),
        Viewed(
            "DescribeCluster",
            lambda _, view: reads.to_describe_cluster_response(views.summarize_cluster(view.image), view.as_of_offset),
        ),
        Viewed("DescribeConfigs", _describe_configs),
        Viewed("DescribeConfigKeys", keys.describe_config_keys),
        Viewed("ListPartitionReassignments", _list_reassignments),
        Viewed("DescribeFeatures", features.describe_features),
        Counted("ListLabels", labels.find_labels, labels.list_labels_page),
        Counted("DescribeAcls", acls.find_acls, acls.describe_acls_page),
        Counted("DescribeUserScramCredentials", scram.find_users, scram.describe_users_page),
        Counted("DescribeClientQuotas", quotas.find_quotas, quotas.describe_quotas_page),
        Counted("ListBrokers", _count_partitions, _list_brokers),
        Counted(
            "DescribePartitionHealth",
            lambda request, view: partition_health(view.image, pages.page_size(request.limit, "limit")),
            lambda _, view, found: reads.to_partition_health_response(found, view.as_of_offset),
        ),
        Asked("DescribeQuorum", _describe_quorum),
        Asked("CanRestart", _can_restart),
        Asked("ListSnapshots", _list_snapshots),
        Goal("CreateSnapshot", _create_snapshot),
        Goal("SkipBatch", _skip_batch),
        Goal("AddVoter", _quorum_change(membership.from_admin_add)),
        Goal("RemoveVoter", _quorum_change(membership.from_admin_remove)),
        Goal("TransferLeadership", _quorum_change(membership.from_transfer)),
    ),
)
"""All methods but the stream `Submit`, which carries the requests of some `Submitted` rows."""

CALLS: Final = {
    field.name: next(
        row
        for row in TABLE.rows
        if isinstance(row, Submitted) and TABLE.request_type(row).DESCRIPTOR is field.message_type
    )
    for field in admin_pb2.SubmitRequest.DESCRIPTOR.oneofs_by_name["call"].fields
}
"""The rows of what a `Submit` stream may carry. The keys are names of fields, the same in SubmitRequest and SubmitResponse."""
