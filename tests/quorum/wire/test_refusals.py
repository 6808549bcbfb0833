"""Every RPC between controllers, of brokers and of operators, and every way in which a request of it can be bad.

Law: a bad request is refused with the code that its row names, and changes nothing: not the role, epoch, vote or log of the
controller, nor its image. (The codes of the quorum's RPCs are those of KIP-595, KIP-630, KIP-853 and KIP-996.) Every RPC of the
.proto files has rows here.
"""

from functools import cache
from typing import Any, Final

import pytest
from quorum_rpc.v1.admin_pb2 import ConfigKeyName, ConfigResource, LabelAlteration, PartitionReassignment, ReplicaList
from quorum_rpc.v1.client_pb2 import MetadataCursor
from quorum_rpc.v1.common_pb2 import FeatureRange

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import EPOCH_MAX
from service_kit.rpc.api_methods import ADMIN, API, Kind
from service_kit.rpc.refusals import STATUS
from tests.fuzz.network_targets import SERVICES, busy
from tests.quorum.runtime.lone_controller import LoneController, follower, leader, unattached
from tests.quorum.runtime.lone_node import LoneNode
from tests.quorum.wire.bad_requests import (
    CHANGES,
    FOREIGN,
    HALF,
    LEADERS,
    OTHER_ID,
    PAGES,
    WATCHES,
    Row,
    bad,
    both,
    many,
    nothing,
    of_operators,
    put,
)
from tests.quorum.wire.calling import METHODS, call, codes_of
from tests.quorum.wire.entities.bad_entity_requests import EMBEDDERS
from tests.quorum.wire.good_requests import good_requests, key, voter
from tests.quorum.wire.tree.bad_tree_requests import READ_TREE

E = ErrorCode
LONG: Final = "x" * 70_000
OF_NOBODY: Final = LabelAlteration(resource=ConfigResource(resource_type=4, name="77"), remove=["hot"])
FUTURE: Final = FeatureRange(name="metadata.version", min_level=8, max_level=9)

# --- between controllers ---------------------------------------------------------------------------------------------


def of_voters(path: str, value: Any, code: ErrorCode) -> Row:
    return bad(path, value, code, leader)


STRANGERS: Final = (
    of_voters("sender.cluster_id", "elsewhere", E.INCONSISTENT_CLUSTER_ID),
    of_voters("sender.cluster_id", "", E.INCONSISTENT_CLUSTER_ID),
    of_voters("sender.generation", 2, E.INVALID_CONTROL_GENERATION),
    of_voters("sender.generation", -1, E.INVALID_CONTROL_GENERATION),
)
SENDERS: Final = (*STRANGERS, of_voters("sender.replica.directory_id", HALF, E.INVALID_REQUEST))
EPOCHS: Final = (
    of_voters("epoch", 0, E.FENCED_LEADER_EPOCH),
    of_voters("epoch", 2, E.UNKNOWN_LEADER_EPOCH),
    of_voters("epoch", EPOCH_MAX, E.UNKNOWN_LEADER_EPOCH),
    Row("asked of a follower", follower, nothing, E.NOT_LEADER_OR_FOLLOWER),
)
RECEIVERS: Final = (
    of_voters("receiver.node_id", 3, E.INVALID_VOTER_KEY),
    of_voters("receiver.directory_id", OTHER_ID, E.INVALID_VOTER_KEY),
    of_voters("receiver.directory_id", HALF, E.INVALID_REQUEST),
)
NEW_VOTERS: Final = (
    of_voters("voter.replica.directory_id", HALF, E.INVALID_REQUEST),
    of_voters("voter.replica.node_id", -1, E.INVALID_REQUEST),
    of_voters("voter.endpoints", [], E.INVALID_REQUEST),
    of_voters("voter.endpoints.0.host", "", E.INVALID_REQUEST),
    of_voters("voter.endpoints.0.host", LONG, E.INVALID_REQUEST),
    of_voters("voter.endpoints.0.port", 0, E.INVALID_REQUEST),
    of_voters("voter.endpoints.0.port", 65_536, E.INVALID_REQUEST),
    of_voters("voter.endpoints.0.listener", LONG, E.INVALID_REQUEST),
    Row("17 endpoints", leader, many("voter.endpoints", 17), E.INVALID_REQUEST),
    of_voters("voter.kraft_version_min", 2, E.INVALID_REQUEST),
    of_voters("voter.kraft_version_min", -1, E.INVALID_REQUEST),
)
VOTERS: Final = {
    "Vote": (
        *SENDERS,
        *RECEIVERS,
        Row(
            "a pre-vote of an epoch that is over",
            leader,
            both(put("pre_vote", True), both(put("epoch", 0), put("last_epoch", 0))),
            E.FENCED_LEADER_EPOCH,
        ),
        of_voters("epoch", -1, E.INVALID_REQUEST),
        of_voters("epoch", EPOCH_MAX, E.INVALID_REQUEST),
        of_voters("last_epoch", -1, E.INVALID_REQUEST),
        of_voters("last_epoch", EPOCH_MAX, E.INVALID_REQUEST),
        of_voters("last_epoch", 2, E.INVALID_REQUEST),
        of_voters("end_offset", -1, E.INVALID_REQUEST),
    ),
    "BeginQuorumEpoch": (
        *SENDERS,
        *RECEIVERS,
        of_voters("epoch", 0, E.FENCED_LEADER_EPOCH),
        of_voters("epoch", -1, E.INVALID_REQUEST),
        of_voters("epoch", EPOCH_MAX, E.INVALID_REQUEST),
        of_voters("endpoint.port", -1, E.INVALID_REQUEST),
        of_voters("endpoint.host", LONG, E.INVALID_REQUEST),
    ),
    "EndQuorumEpoch": (
        *SENDERS,
        of_voters("epoch", 0, E.FENCED_LEADER_EPOCH),
        of_voters("epoch", -1, E.INVALID_REQUEST),
        of_voters("epoch", EPOCH_MAX, E.INVALID_REQUEST),
        of_voters("preferred_successors.0.directory_id", HALF, E.INVALID_REQUEST),
        Row("1,001 successors", leader, many("preferred_successors", 1_001), E.INVALID_REQUEST),
    ),
    "Fetch": (
        *SENDERS,
        *EPOCHS,
        of_voters("epoch", -1, E.INVALID_REQUEST),
        of_voters("fetch_offset", -1, E.INVALID_REQUEST),
        of_voters("last_fetched_epoch", -1, E.INVALID_REQUEST),
        of_voters("last_fetched_epoch", 2, E.INVALID_REQUEST),
        of_voters("max_wait_ms", -1, E.INVALID_REQUEST),
        of_voters("part_position", -1, E.INVALID_REQUEST),
        of_voters("chain", HALF, E.INVALID_REQUEST),
        of_voters("digest", HALF, E.INVALID_REQUEST),
        of_voters("chain", OTHER_ID * 2, E.CHAIN_MISMATCH),
    ),
    "FetchSnapshot": (
        *SENDERS,
        *EPOCHS,
        of_voters("snapshot.end_offset", 99, E.SNAPSHOT_NOT_FOUND),
        of_voters("snapshot.end_offset", 0, E.SNAPSHOT_NOT_FOUND),
        of_voters("snapshot.end_offset", -1, E.INVALID_REQUEST),
        of_voters("position", -1, E.POSITION_OUT_OF_RANGE),
        of_voters("max_bytes", -1, E.INVALID_REQUEST),
    ),
    "ReadLog": (
        *SENDERS,
        of_voters("offset", -1, E.OFFSET_OUT_OF_RANGE),
        of_voters("offset", 99, E.OFFSET_OUT_OF_RANGE),
        of_voters("end_offset", -1, E.OFFSET_OUT_OF_RANGE),
        of_voters("end_offset", 0, E.OFFSET_OUT_OF_RANGE),
    ),
    "ReadSnapshot": (
        *SENDERS,
        of_voters("snapshot.end_offset", 99, E.SNAPSHOT_NOT_FOUND),
        of_voters("snapshot.end_offset", 0, E.SNAPSHOT_NOT_FOUND),
        of_voters("snapshot.end_offset", -1, E.SNAPSHOT_NOT_FOUND),
        of_voters("position", -1, E.SNAPSHOT_NOT_FOUND),
    ),
    "DescribeChain": (
        *SENDERS,
        of_voters("offset", -1, E.INVALID_REQUEST),
        of_voters("epoch", -1, E.INVALID_REQUEST),
    ),
    "AddVoter": (
        *STRANGERS,
        *NEW_VOTERS,
        bad("voter", voter(1), E.DUPLICATE_VOTER, busy),
        Row("asked of a follower", follower, nothing, E.NOT_LEADER_OR_FOLLOWER),
        Row("asked without a leader", unattached, nothing, E.NOT_LEADER_OR_FOLLOWER),
        Row("asked before anything is committed", leader, nothing, E.NOT_READY),
    ),
    "RemoveVoter": (
        *STRANGERS,
        of_voters("voter.directory_id", HALF, E.INVALID_REQUEST),
        bad("voter.directory_id", OTHER_ID, E.VOTER_NOT_FOUND, busy),
        bad("voter.node_id", -1, E.VOTER_NOT_FOUND, busy),
        Row("asked before anything is committed", leader, nothing, E.NOT_READY),
        Row("asked of a follower", follower, nothing, E.NOT_LEADER_OR_FOLLOWER),
        bad("voter", key(1), E.VOTER_NOT_FOUND, busy),
    ),
    "RegisterController": (
        *SENDERS,
        of_voters("endpoints.0.port", 0, E.INVALID_REQUEST),
        of_voters("endpoints.0.host", LONG, E.INVALID_REQUEST),
        Row("17 endpoints", busy, many("endpoints", 17), E.INVALID_REQUEST),
        Row("1,001 features", busy, many("features", 1_001), E.INVALID_REQUEST),
        bad("features.0.name", LONG, E.INVALID_REGISTRATION, busy),
        bad("features.0.min_level", 4, E.INVALID_REGISTRATION, busy),
        bad("sender.replica.node_id", -1, E.INVALID_REGISTRATION, busy),
        Row("a newer release", busy, put("features", [FUTURE]), E.UNSUPPORTED_VERSION),
        Row("asked of a follower", follower, nothing, E.NOT_LEADER_OR_FOLLOWER),
        Row("asked before anything is committed", leader, nothing, E.NOT_READY),
    ),
    "UpdateVoter": (
        *STRANGERS,
        *NEW_VOTERS,
        *EPOCHS,
        of_voters("sender.replica.directory_id", HALF, E.INVALID_REQUEST),
        bad("sender.replica", key(3), E.INVALID_VOTER_KEY, busy),
        bad("sender.replica.directory_id", OTHER_ID, E.INVALID_VOTER_KEY, busy),
        bad("voter", voter(3), E.INVALID_VOTER_KEY, busy),
        bad("epoch", 3, E.VOTER_NOT_FOUND, busy),
        Row("asked before anything is committed", leader, nothing, E.NOT_READY),
    ),
}

# --- brokers ---------------------------------------------------------------------------------------------------------


def of_brokers(path: str, value: Any, code: ErrorCode) -> Row:
    return bad(path, value, code, busy)


BROKER_STRANGERS: Final = (
    of_brokers("generation", 2, E.INVALID_CONTROL_GENERATION),
    of_brokers("generation", -1, E.INVALID_CONTROL_GENERATION),
    of_brokers("cluster_id", "elsewhere", E.INCONSISTENT_CLUSTER_ID),
    of_brokers("cluster_id", "", E.INCONSISTENT_CLUSTER_ID),
)
CALLERS: Final = (
    *BROKER_STRANGERS,
    of_brokers("broker_epoch", 0, E.STALE_BROKER_EPOCH),
    of_brokers("broker_epoch", -1, E.STALE_BROKER_EPOCH),
    of_brokers("broker_id", 77, E.BROKER_ID_NOT_REGISTERED),
    of_brokers("broker_id", -1, E.BROKER_ID_NOT_REGISTERED),
    Row("asked of a follower", follower, nothing, E.NOT_CONTROLLER),
)
FETCHES: Final = (
    *CALLERS,
    of_brokers("incarnation_id", HALF, E.INVALID_REQUEST),
    of_brokers("incarnation_id", OTHER_ID, E.STALE_BROKER_EPOCH),
    of_brokers("offset", -1, E.INVALID_REQUEST),
    of_brokers("epoch", -1, E.INVALID_REQUEST),
    of_brokers("chain", HALF, E.INVALID_REQUEST),
    of_brokers("max_wait_ms", -1, E.INVALID_REQUEST),
    of_brokers("max_bytes", -1, E.INVALID_REQUEST),
    of_brokers("part_position", -1, E.INVALID_REQUEST),
    of_brokers("offline_log_dirs", [HALF], E.INVALID_REQUEST),
    of_brokers("offline_log_dirs", [OTHER_ID] * 10_001, E.INVALID_REQUEST),
)
BROKERS: Final = {
    "RegisterBroker": (
        *BROKER_STRANGERS,
        of_brokers("broker_id", -1, E.INVALID_REGISTRATION),
        of_brokers("incarnation_id", HALF, E.INVALID_REQUEST),
        of_brokers("previous_incarnation_id", HALF, E.INVALID_REQUEST),
        of_brokers("log_dirs", [HALF], E.INVALID_REQUEST),
        of_brokers("log_dirs", [OTHER_ID] * 10_001, E.INVALID_REQUEST),
        of_brokers("log_dirs", [OTHER_ID] * 2, E.INVALID_REGISTRATION),
        of_brokers("endpoints", [], E.INVALID_REGISTRATION),
        of_brokers("endpoints.0.port", 0, E.INVALID_REGISTRATION),
        of_brokers("endpoints.0.port", 65_536, E.INVALID_REGISTRATION),
        of_brokers("endpoints.0.host", "", E.INVALID_REGISTRATION),
        of_brokers("endpoints.0.host", LONG, E.INVALID_REGISTRATION),
        of_brokers("endpoints.0.listener", LONG, E.INVALID_REGISTRATION),
        of_brokers("rack", LONG, E.INVALID_REGISTRATION),
        of_brokers("data_plane", "sometimes", E.INVALID_REGISTRATION),
        of_brokers("data_plane", LONG, E.INVALID_REGISTRATION),
        of_brokers("features.0.name", LONG, E.INVALID_REGISTRATION),
        of_brokers("features.0.min_level", 9, E.INVALID_REGISTRATION),
        of_brokers("features.0.min_level", -1, E.INVALID_REGISTRATION),
        of_brokers("features.0.min_level", 4, E.INVALID_REGISTRATION),
        Row(
            "levels of the future",
            busy,
            put("features", [FUTURE]),
            E.UNSUPPORTED_VERSION,
        ),
        of_brokers("features", [], E.UNSUPPORTED_VERSION),
        Row("101 endpoints", busy, many("endpoints", 101), E.INVALID_REQUEST),
        Row("1,001 features", busy, many("features", 1_001), E.INVALID_REQUEST),
        Row("another one's id", busy, put("broker_id", 0), E.DUPLICATE_BROKER_REGISTRATION),
        Row("asked of a follower", follower, nothing, E.NOT_CONTROLLER),
    ),
    "ReportDeath": (
        *BROKER_STRANGERS,
        of_brokers("broker_id", 77, E.BROKER_ID_NOT_REGISTERED),
        of_brokers("incarnation_ids", [], E.INVALID_REQUEST),
        of_brokers("incarnation_ids", [HALF], E.INVALID_REQUEST),
        of_brokers("incarnation_ids", [OTHER_ID], E.STALE_BROKER_EPOCH),
        Row("101 processes", busy, many("incarnation_ids", 101), E.INVALID_REQUEST),
        Row("asked of a follower", follower, nothing, E.NOT_CONTROLLER),
    ),
    "MetadataFetch": FETCHES,
    "MetadataFetchOnce": FETCHES,
    "FetchMetadataSnapshot": (
        *BROKER_STRANGERS,
        of_brokers("snapshot.end_offset", 0, E.SNAPSHOT_NOT_FOUND),
        of_brokers("snapshot.end_offset", -1, E.SNAPSHOT_NOT_FOUND),
        of_brokers("snapshot.epoch", 9, E.SNAPSHOT_NOT_FOUND),
        of_brokers("position", -1, E.INVALID_REQUEST),
        of_brokers("max_bytes", -1, E.INVALID_REQUEST),
        of_brokers("position", 1 << 40, E.POSITION_OUT_OF_RANGE),
        of_brokers("position", (1 << 63) - 1, E.POSITION_OUT_OF_RANGE),
    ),
    "AlterPartition": (
        *CALLERS,
        of_brokers("partitions.0.topic_id", HALF, E.INVALID_REQUEST),
        of_brokers("partitions.0.topic_id", OTHER_ID, E.UNKNOWN_TOPIC_ID),
        of_brokers("partitions.0.partition", -1, E.UNKNOWN_TOPIC_OR_PARTITION),
        of_brokers("partitions.0.partition", 99, E.UNKNOWN_TOPIC_OR_PARTITION),
        of_brokers("partitions.0.leader_epoch", 9, E.NOT_CONTROLLER),
        of_brokers("partitions.0.partition_epoch", 9, E.NOT_CONTROLLER),
        of_brokers("partitions.0.new_isr", [], E.INVALID_REQUEST),
        of_brokers("partitions.0.new_isr.0.broker_id", 77, E.INVALID_REQUEST),
        of_brokers("partitions.0.leader_recovery_state", 9, E.INVALID_REQUEST),
        Row("10,001 partitions", busy, many("partitions", 10_001), E.INVALID_REQUEST),
    ),
    "AssignReplicasToDirs": (
        *CALLERS,
        of_brokers("directories.0.directory_id", HALF, E.INVALID_REQUEST),
        of_brokers("directories.0.directory_id", bytes(16), E.INVALID_REQUEST),
        of_brokers("directories.0.directory_id", OTHER_ID, E.LOG_DIR_NOT_FOUND),
        of_brokers("directories.0.replicas.0.topic_id", HALF, E.INVALID_REQUEST),
        of_brokers("directories.0.replicas.0.topic_id", OTHER_ID, E.UNKNOWN_TOPIC_ID),
        of_brokers("directories.0.replicas.0.partition", -1, E.UNKNOWN_TOPIC_OR_PARTITION),
        of_brokers("directories.0.replicas.0.partition", 99, E.UNKNOWN_TOPIC_OR_PARTITION),
        Row("2,251 replicas", busy, many("directories.0.replicas", 2_251), E.INVALID_REQUEST),
        Row("one replica in two directories", busy, many("directories", 2), E.INVALID_REQUEST),
        Row("10,001 directories", busy, many("directories", 10_001), E.INVALID_REQUEST),
    ),
    "AllocateProducerIds": CALLERS,
}

# --- operators -------------------------------------------------------------------------------------------------------


OPERATORS: Final = {
    "CreateTopics": (
        *CHANGES,
        of_operators("topics.0.name", "", E.INVALID_TOPIC_EXCEPTION),
        of_operators("topics.0.name", "a/b", E.INVALID_TOPIC_EXCEPTION),
        of_operators("topics.0.name", LONG, E.INVALID_TOPIC_EXCEPTION),
        of_operators("topics.0.name", "orders", E.TOPIC_ALREADY_EXISTS),
        of_operators("topics.0.partitions", 0, E.INVALID_PARTITIONS),
        of_operators("topics.0.partitions", -2, E.INVALID_PARTITIONS),
        of_operators("topics.0.partitions", (1 << 31) - 1, E.POLICY_VIOLATION),
        of_operators("topics.0.replication_factor", 0, E.INVALID_REPLICATION_FACTOR),
        of_operators("topics.0.replication_factor", 99, E.INVALID_REPLICATION_FACTOR),
        of_operators("topics.0.assignment", [ReplicaList(broker_ids=[77])], E.INVALID_REPLICA_ASSIGNMENT),
        of_operators("topics.0.configs.0.key", "no.such.key", E.INVALID_CONFIG),
        of_operators("topics.0.configs.0.value", "many", E.INVALID_CONFIG),
        Row("10,001 topics", busy, many("topics", 10_001), E.INVALID_REQUEST),
        Row("twice the same", busy, many("topics", 2), E.INVALID_REQUEST),
    ),
    "CreatePartitions": (
        *CHANGES,
        of_operators("topics.0.name", "nobody", E.UNKNOWN_TOPIC_OR_PARTITION),
        of_operators("topics.0.assignment", [ReplicaList(broker_ids=[77])], E.INVALID_REPLICA_ASSIGNMENT),
        of_operators("topics.0.total_count", 1, E.INVALID_PARTITIONS),
        of_operators("topics.0.total_count", -1, E.INVALID_PARTITIONS),
        of_operators("topics.0.total_count", (1 << 31) - 1, E.POLICY_VIOLATION),
        Row("10,001 topics", busy, many("topics", 10_001), E.INVALID_REQUEST),
    ),
    "DeleteTopics": (
        *CHANGES,
        of_operators("names", ["nobody"], E.UNKNOWN_TOPIC_OR_PARTITION),
        of_operators("names", [LONG], E.INVALID_REQUEST),
        Row("10,001 topics", busy, many("names", 10_001), E.INVALID_REQUEST),
    ),
    "IncrementalAlterConfigs": (
        *CHANGES,
        of_operators("alterations.0.resource.resource_type", 99, E.INVALID_REQUEST),
        of_operators("alterations.0.resource.name", "nobody", E.UNKNOWN_TOPIC_OR_PARTITION),
        of_operators("alterations.0.resource", ConfigResource(resource_type=4, name="77"), E.BROKER_ID_NOT_REGISTERED),
        of_operators("alterations.0.operations.0.kind", 99, E.INVALID_REQUEST),
        of_operators("alterations.0.operations.0.key", "no.such.key", E.INVALID_CONFIG),
        of_operators("alterations.0.operations.0.value", "many", E.INVALID_CONFIG),
        Row("10,001 operations", busy, many("alterations.0.operations", 10_001), E.INVALID_REQUEST),
        Row("10,001 resources", busy, many("alterations", 10_001), E.INVALID_REQUEST),
    ),
    "AlterConfigKeys": (
        *CHANGES,
        of_operators("definitions", [], E.INVALID_REQUEST),
        of_operators("definitions.0.resource_type", 0, E.INVALID_CONFIG),
        of_operators("definitions.0.name", "retention.ms", E.INVALID_CONFIG),
        of_operators("definitions.0.name", LONG, E.INVALID_CONFIG),
        of_operators("definitions.0.is_prefix", True, E.INVALID_CONFIG),
        of_operators("definitions.0.value_type", "float", E.INVALID_CONFIG),
        of_operators("definitions.0.default_value", "10", E.INVALID_CONFIG),
        of_operators("definitions.0.default_value", LONG, E.INVALID_CONFIG),
        of_operators("definitions.0.minimum", 10, E.INVALID_CONFIG),
        of_operators("definitions.0.choices", ["1"], E.INVALID_CONFIG),
        of_operators("definitions.0.documentation", LONG, E.INVALID_CONFIG),
        of_operators("removals", [ConfigKeyName(resource_type=2, name="no.such.key")], E.INVALID_CONFIG),
        Row("twice the same", busy, many("definitions", 2), E.INVALID_REQUEST),
        Row("101 definitions", busy, many("definitions", 101), E.INVALID_REQUEST),
    ),
    "DescribeConfigKeys": (
        *PAGES,
        of_operators("page_token", b"acme.share", E.INVALID_REQUEST),
        of_operators("page_token", b"x acme.share", E.INVALID_REQUEST),
    ),
    "AlterLabels": (
        *CHANGES,
        of_operators("alterations", [], E.INVALID_REQUEST),
        of_operators("alterations.0.resource.name", "nobody", E.UNKNOWN_TOPIC_OR_PARTITION),
        of_operators("alterations.0.resource.resource_type", 4, E.INVALID_REQUEST),
        of_operators("alterations.0.partition", 1 << 30, E.UNKNOWN_TOPIC_OR_PARTITION),
        of_operators("alterations.0.partition", -1, E.INVALID_REQUEST),
        of_operators("alterations.0.set.0.key", "Team", E.INVALID_REQUEST),
        of_operators("alterations.0.set.0.key", "hot", E.INVALID_REQUEST),
        of_operators("alterations.0.set.0.value", LONG, E.INVALID_REQUEST),
        of_operators("alterations.0.set.0.value", "a\nb", E.INVALID_REQUEST),
        of_operators("alterations.0.remove", [LONG], E.INVALID_REQUEST),
        Row("twice the same", busy, many("alterations", 2), E.INVALID_REQUEST),
        Row("501 alterations", busy, many("alterations", 501), E.INVALID_REQUEST),
        Row("501 labels", busy, many("alterations.0.remove", 501), E.INVALID_REQUEST),
        of_operators("alterations", [OF_NOBODY], E.BROKER_ID_NOT_REGISTERED),
    ),
    "ListLabels": (
        *PAGES,
        of_operators("label", "Team", E.INVALID_REQUEST),
        of_operators("label", "=a", E.INVALID_REQUEST),
        of_operators("label", "team=" + LONG, E.INVALID_REQUEST),
        of_operators("page_token", b"orders", E.INVALID_REQUEST),
    ),
    "ListTopics": (*PAGES, of_operators("label", "Team", E.INVALID_REQUEST)),
    "DescribeTopics": (
        *PAGES,
        of_operators("first_partition", -1, E.INVALID_REQUEST),
        of_operators("page_token", MetadataCursor(topic="orders", partition=-1).SerializeToString(), E.INVALID_REQUEST),
        of_operators("page_token", MetadataCursor(topic="moved").SerializeToString(), E.INVALID_REQUEST),
        of_operators("names", ["nobody"], E.UNKNOWN_TOPIC_OR_PARTITION),
        Row("10,001 topics", busy, many("names", 10_001), E.INVALID_REQUEST),
    ),
    "DescribeConfigs": (
        *PAGES,
        of_operators("page_token", b"12345678901", E.INVALID_REQUEST),
        of_operators("resources.0.resource_type", 99, E.INVALID_REQUEST),
        of_operators("resources.0.name", "nobody", E.UNKNOWN_TOPIC_OR_PARTITION),
        of_operators("resources", [ConfigResource(resource_type=4, name="77")], E.BROKER_ID_NOT_REGISTERED),
        Row("10,001 resources", busy, many("resources", 10_001), E.INVALID_REQUEST),
    ),
    "ListBrokers": (*PAGES, of_operators("page_token", b"-1", E.INVALID_REQUEST)),
    "DescribePartitionHealth": (*LEADERS, of_operators("limit", -1, E.INVALID_REQUEST)),
    "DescribeCluster": LEADERS,
    "ListPartitions": (
        *PAGES,
        of_operators("page_token", MetadataCursor(topic="orders", partition=-1).SerializeToString(), E.INVALID_REQUEST),
        of_operators("conditions", [99], E.INVALID_REQUEST),
        of_operators("topics", ["nobody"], E.UNKNOWN_TOPIC_OR_PARTITION),
        of_operators("replica_on", 77, E.BROKER_ID_NOT_REGISTERED),
        of_operators("led_by", 77, E.BROKER_ID_NOT_REGISTERED),
        Row("10,001 topics", busy, many("topics", 10_001), E.INVALID_REQUEST),
    ),
    "ElectLeaders": (
        *CHANGES,
        of_operators("election_type", 1, E.ELECTION_NOT_NEEDED),
        of_operators("election_type", 2, E.INVALID_REQUEST),
        of_operators("election_type", 99, E.INVALID_REQUEST),
        of_operators("leader_id", 1, E.INVALID_REQUEST),
        of_operators("topics.0.topic", "nobody", E.UNKNOWN_TOPIC_OR_PARTITION),
        of_operators("topics.0.topic", "orders", E.ELECTION_NOT_NEEDED),
        of_operators("topics.0.topic", LONG, E.INVALID_REQUEST),
        of_operators("topics.0.partitions", [-1], E.UNKNOWN_TOPIC_OR_PARTITION),
        of_operators("topics.0.partitions", [1], E.UNKNOWN_TOPIC_OR_PARTITION),
        of_operators("topics.0.partitions", [0, 0], E.INVALID_REQUEST),
        of_operators("topics.0.partitions", [0] * 10_001, E.INVALID_REQUEST),
        Row("10,001 topics", busy, many("topics", 10_001), E.INVALID_REQUEST),
    ),
    "AlterPartitionReassignments": (
        *CHANGES,
        of_operators("partitions.0.topic", "nobody", E.UNKNOWN_TOPIC_OR_PARTITION),
        of_operators("partitions.0.topic", LONG, E.INVALID_REQUEST),
        of_operators("partitions.0.partition", -1, E.UNKNOWN_TOPIC_OR_PARTITION),
        of_operators("partitions.0.target.broker_ids", [77], E.INVALID_REPLICA_ASSIGNMENT),
        of_operators("partitions.0.target.broker_ids", [1, 1], E.INVALID_REPLICA_ASSIGNMENT),
        of_operators("partitions.0.target.broker_ids", [], E.INVALID_REPLICA_ASSIGNMENT),
        of_operators("partitions", [PartitionReassignment(topic="moved")], E.NO_REASSIGNMENT_IN_PROGRESS),
        Row("twice the same", busy, many("partitions", 2), E.INVALID_REQUEST),
        Row("10,001 partitions", busy, many("partitions", 10_001), E.INVALID_REQUEST),
        of_operators("partitions.0.target.broker_ids", [1] * 300_001, E.INVALID_REQUEST),
    ),
    "ListPartitionReassignments": (
        *PAGES,
        of_operators("page_token", MetadataCursor(topic="orders", partition=-1).SerializeToString(), E.INVALID_REQUEST),
    ),
    "DescribeFeatures": LEADERS,
    "UpdateFeatures": (
        *CHANGES,
        of_operators("updates.0.upgrade_type", 0, E.INVALID_REQUEST),
        of_operators("updates.0.upgrade_type", 9, E.INVALID_REQUEST),
        of_operators("updates.0.upgrade_type", 1, E.INVALID_UPDATE_VERSION),
        of_operators("updates.0.upgrade_type", 3, E.INVALID_UPDATE_VERSION),
        of_operators("updates.0.name", LONG, E.INVALID_UPDATE_VERSION),
        of_operators("updates.0.level", -1, E.INVALID_UPDATE_VERSION),
        of_operators("updates.0.level", 4, E.INVALID_UPDATE_VERSION),
        of_operators("updates", [], E.INVALID_REQUEST),
        Row("twice the same", busy, many("updates", 2), E.INVALID_REQUEST),
        Row("10,001 updates", busy, many("updates", 10_001), E.INVALID_REQUEST),
    ),
    "DescribeUserScramCredentials": PAGES,
    "AlterUserScramCredentials": (
        *CHANGES,
        of_operators("alterations.0.user", "", E.INVALID_REQUEST),
        of_operators("alterations.0.user", LONG, E.INVALID_REQUEST),
        of_operators("alterations.0.mechanism", 0, E.INVALID_REQUEST),
        of_operators("alterations.0.mechanism", 2, E.INVALID_REQUEST),
        of_operators("alterations.0.credential.iterations", 4_095, E.INVALID_REQUEST),
        of_operators("alterations.0.credential.iterations", 16_385, E.INVALID_REQUEST),
        of_operators("alterations.0.credential.salt", b"", E.INVALID_REQUEST),
        of_operators("alterations.0.credential.salt", bytes(65), E.INVALID_REQUEST),
        of_operators("alterations.0.credential.stored_key", bytes(31), E.INVALID_REQUEST),
        of_operators("alterations.0.credential.server_key", bytes(70_000), E.INVALID_REQUEST),
        Row("twice the same", busy, many("alterations", 2), E.INVALID_REQUEST),
        Row("1,001 alterations", busy, many("alterations", 1_001), E.INVALID_REQUEST),
    ),
    "DescribeAcls": (
        *PAGES,
        of_operators("filter.resource_type", 99, E.INVALID_REQUEST),
        of_operators("filter.operation", -1, E.INVALID_REQUEST),
        of_operators("filter.resource_name", "", E.INVALID_REQUEST),
        of_operators("filter.principal", LONG, E.INVALID_REQUEST),
    ),
    "CreateAcls": (
        *CHANGES,
        of_operators("acls.0.resource_type", 0, E.INVALID_REQUEST),
        of_operators("acls.0.resource_type", 1, E.INVALID_REQUEST),
        of_operators("acls.0.resource_type", 4, E.INVALID_REQUEST),
        of_operators("acls.0.resource_type", 99, E.INVALID_REQUEST),
        of_operators("acls.0.pattern_type", 2, E.INVALID_REQUEST),
        of_operators("acls.0.operation", 1, E.INVALID_REQUEST),
        of_operators("acls.0.operation", -1, E.INVALID_REQUEST),
        of_operators("acls.0.permission_type", 1, E.INVALID_REQUEST),
        of_operators("acls.0.resource_name", "", E.INVALID_REQUEST),
        of_operators("acls.0.resource_name", LONG, E.INVALID_REQUEST),
        of_operators("acls.0.principal", "alice", E.INVALID_REQUEST),
        of_operators("acls.0.principal", LONG, E.INVALID_REQUEST),
        of_operators("acls.0.host", "", E.INVALID_REQUEST),
        of_operators("acls.0.host", "example.org", E.INVALID_REQUEST),
        Row("1,001 ACLs", busy, many("acls", 1_001), E.INVALID_REQUEST),
    ),
    "DeleteAcls": (
        *CHANGES,
        of_operators("filters.0.resource_type", 99, E.INVALID_REQUEST),
        of_operators("filters.0.pattern_type", 99, E.INVALID_REQUEST),
        of_operators("filters.0.permission_type", 99, E.INVALID_REQUEST),
        of_operators("filters.0.host", "", E.INVALID_REQUEST),
        of_operators("filters.0.resource_name", LONG, E.INVALID_REQUEST),
        Row("1,001 filters", busy, many("filters", 1_001), E.INVALID_REQUEST),
    ),
    "DescribeClientQuotas": (
        *PAGES,
        of_operators("components.0.entity_type", "group", E.INVALID_REQUEST),
        of_operators("components.0.match", 7, E.INVALID_REQUEST),
        of_operators("components.0.name", LONG, E.INVALID_REQUEST),
        Row("a type twice", busy, many("components", 2), E.INVALID_REQUEST),
    ),
    "AlterClientQuotas": (
        *CHANGES,
        of_operators("alterations.0.entity.parts", [], E.INVALID_REQUEST),
        of_operators("alterations.0.entity.parts.0.entity_type", "ip", E.INVALID_REQUEST),
        of_operators("alterations.0.entity.parts.0.entity_type", LONG, E.INVALID_REQUEST),
        of_operators("alterations.0.entity.parts.0.name", "", E.INVALID_REQUEST),
        of_operators("alterations.0.entity.parts.0.name", LONG, E.INVALID_REQUEST),
        of_operators("alterations.0.operations.0.key", LONG, E.INVALID_REQUEST),
        of_operators("alterations.0.operations.0.key", "connection_creation_rate", E.INVALID_REQUEST),
        of_operators("alterations.0.operations.0.value", 0.0, E.INVALID_REQUEST),
        of_operators("alterations.0.operations.0.value", float("nan"), E.INVALID_REQUEST),
        of_operators("alterations.0.operations.0.value", 0.5, E.INVALID_REQUEST),
        of_operators("alterations.0.operations.0.value", 1e300, E.INVALID_REQUEST),
        Row("twice the same key", busy, many("alterations.0.operations", 2), E.INVALID_REQUEST),
        Row("twice the same", busy, many("alterations", 2), E.INVALID_REQUEST),
        Row("three parts", busy, many("alterations.0.entity.parts", 3), E.INVALID_REQUEST),
        Row("1,001 entities", busy, many("alterations", 1_001), E.INVALID_REQUEST),
        Row("1,001 operations", busy, many("alterations.0.operations", 1_001), E.INVALID_REQUEST),
    ),
    "FenceBroker": (
        *CHANGES,
        of_operators("broker_id", 77, E.BROKER_ID_NOT_REGISTERED),
        of_operators("reason", "x" * 201, E.INVALID_REQUEST),
        of_operators("reason", "two\nlines", E.INVALID_REQUEST),
    ),
    "UnfenceBroker": (*CHANGES, of_operators("broker_id", 77, E.BROKER_ID_NOT_REGISTERED)),
    "DrainBroker": (
        *CHANGES,
        of_operators("broker_id", 77, E.BROKER_ID_NOT_REGISTERED),
        of_operators("reason", "x" * 201, E.INVALID_REQUEST),
    ),
    "UndrainBroker": (*CHANGES, of_operators("broker_id", 77, E.BROKER_ID_NOT_REGISTERED)),
    "UnregisterBroker": (
        *CHANGES,
        of_operators("broker_id", 0, E.POLICY_VIOLATION),
        of_operators("broker_id", 77, E.BROKER_ID_NOT_REGISTERED),
        of_operators("broker_id", -1, E.BROKER_ID_NOT_REGISTERED),
    ),
    "DescribeQuorum": (FOREIGN,),
    "AddVoter": (
        *CHANGES,
        *(row._replace(asked=busy) for row in NEW_VOTERS),
        of_operators("voter", voter(1), E.DUPLICATE_VOTER),
        of_operators("voter", voter(4), E.NOT_READY),
    ),
    "RemoveVoter": (
        *CHANGES,
        of_operators("voter.directory_id", HALF, E.INVALID_REQUEST),
        of_operators("voter.directory_id", OTHER_ID, E.VOTER_NOT_FOUND),
        of_operators("voter", key(1), E.VOTER_NOT_FOUND),
    ),
    "TransferLeadership": (*CHANGES, of_operators("target_id", 77, E.VOTER_NOT_FOUND)),
    "CanRestart": (*LEADERS, of_operators("node_id", 77, E.VOTER_NOT_FOUND)),
    "CreateSnapshot": CHANGES,
    "SkipBatch": (
        *CHANGES,
        of_operators("offset", 1 << 40, E.OFFSET_OUT_OF_RANGE),
        of_operators("offset", -1, E.INVALID_REQUEST),
        of_operators("epoch", 1 << 40, E.CHAIN_MISMATCH),
        of_operators("chain", HALF, E.INVALID_REQUEST),
    ),
    "ListSnapshots": (FOREIGN,),
    "ReadTree": READ_TREE,
    "Submit": (
        of_operators("requests.0.create_topics.context.cluster_id", "elsewhere", E.INCONSISTENT_CLUSTER_ID),
        of_operators("requests.0.create_topics.context.request_id", HALF, E.INVALID_REQUEST),
        of_operators("requests.0.create_topics.topics.0.name", "a/b", E.INVALID_TOPIC_EXCEPTION),
        Row("no call", busy, lambda asked: asked.requests[0].ClearField("create_topics"), E.UNSUPPORTED_VERSION),
        Row("asked of a follower", follower, nothing, E.NOT_CONTROLLER),
    ),
}

TABLE: Final = {
    f"{service}.{method}": rows
    for service, methods in (
        ("VoterService", VOTERS),
        ("BrokerService", BROKERS),
        ("AdminService", OPERATORS),
        ("EntityService", EMBEDDERS),
        ("WatchService", WATCHES),
    )
    for method, rows in methods.items()
}


FAILED_PRECONDITION: Final = {
    E.INCONSISTENT_CLUSTER_ID,
    E.POLICY_VIOLATION,
    E.INVALID_UPDATE_VERSION,
    E.OFFSET_OUT_OF_RANGE,
    E.CHAIN_MISMATCH,
    E.UNKNOWN_SESSION,
}
"""The reasons whose gRPC status is meant to be FAILED_PRECONDITION: the state of the cluster or a policy forbids the call."""


def test_every_rpc_has_its_rows() -> None:
    assert not (missing := METHODS.keys() - TABLE.keys()), f"no rows in this file for {missing}"
    assert not (extra := TABLE.keys() - METHODS.keys()), f"no method in the .proto files for {extra}"
    assert not (empty := {rpc for rpc, rows in TABLE.items() if not rows}), f"no row for {empty}"


def test_every_change_is_refused_with_a_bad_request_id() -> None:
    """A method that takes no notice of the id would make the client's repetition a second change."""
    for service, methods in (("AdminService", ADMIN), ("EntityService", API["EntityService"])):
        for method, kind in methods.items():
            if kind is not Kind.READ and method not in ("Submit", "KeepAlive"):
                assert set(CHANGES) <= set(TABLE[f"{service}.{method}"]), method


@cache
def _good() -> dict[str, Any]:
    node = busy().node
    image = node.state.committed
    topic = image.topic("orders")
    assert topic is not None
    snapshot = node.snapshotter.store.list()[0].end
    return good_requests(image.brokers[0].broker_epoch, topic.topic_id, image.offset, snapshot)


@pytest.mark.parametrize(
    ("rpc", "row"), [pytest.param(rpc, row, id=f"{rpc}: {row.what}") for rpc, rows in TABLE.items() for row in rows]
)
def test_a_bad_request_is_refused_and_changes_nothing(rpc: str, row: Row) -> None:
    service, method = rpc.split(".")
    request = METHODS[rpc].input_type._concrete_class()
    request.CopyFrom(_good()[rpc])
    row.change(request)
    lone = row.asked()
    before = _state(lone)
    answer = call(SERVICES[service](LoneController(lone)), method, request)
    assert codes_of(answer)[:1] == [row.code], answer
    if service in ("AdminService", "EntityService") and answer.DESCRIPTOR.name == "Error":
        assert row.code.name in STATUS or row.code in FAILED_PRECONDITION, (
            f"{row.code.name} refuses a whole call: give it a gRPC status in STATUS of service_kit/rpc/refusals.py, "
            "or name it in FAILED_PRECONDITION of this file"
        )
    assert _state(lone) == before
    assert lone.stopped is None


def _state(lone: LoneNode) -> object:
    node = lone.node
    return node.core.describe(), node.core.voters, node.log.shape, node.state.committed.digest_bytes
