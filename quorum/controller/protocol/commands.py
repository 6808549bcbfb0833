"""The commands that the controller decides, and their replies: two closed unions of plain values.

Every reply has `offset`: the end (exclusive) of the decision's batch. A reader whose view is as of `offset` or later sees the
change. The controller does not know the offset when it decides; `Decision.answer` fills it in.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NO_LEADER, ZERO_UUID, Epoch, NodeId, Offset, Uuid
from metadata_log.format.records import (
    EXTERNAL_DATA_PLANE,
    FROM_OFFSET,
    METADATA_VERSION_MAX,
    RECOVERED,
    Config,
    Endpoint,
    FeatureRange,
    MetadataRecord,
)
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.protocol.election_commands import (
    BalanceLeaders,
    ElectLeaders,
    ElectLeadersReply,
)
from quorum.controller.protocol.feature_commands import UpdateFeatures, UpdateFeaturesReply
from quorum.controller.protocol.mode_commands import BrokerModeReply, DrainBroker, EndBrokerMode
from quorum.controller.protocol.reassignment_commands import (
    AlterPartitionReassignments,
    AlterPartitionReassignmentsReply,
)

NOT_APPENDED: Final[Offset] = -1
"""The `offset` of a reply whose batch is not in the log yet."""

DEFAULT_COUNT: Final = -1
"""Number of partitions or replicas that stands for the controller's default, or for the number in the assignment."""


# --- topics --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create.

    `assignment` names the replicas of each partition, the preferred leader first. Empty: the controller places the replicas.
    With an assignment, each count is DEFAULT_COUNT or agrees with the assignment.
    """

    name: str
    partitions: int = DEFAULT_COUNT
    replication_factor: int = DEFAULT_COUNT
    assignment: tuple[tuple[NodeId, ...], ...] = ()
    configs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class CreateTopics:
    """Create topics. The topics without an error are one atomic batch. With `validate_only` nothing is written."""

    topics: tuple[NewTopic, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class TopicResult:
    """The result for one topic of a request. `message` is for people. The other fields are set if `error` is NONE, or if it is
    TOPIC_ALREADY_EXISTS: then they describe the existing topic."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    topic_id: Uuid = ZERO_UUID
    partitions: int = -1
    replication_factor: int = -1


@dataclass(frozen=True, slots=True)
class CreateTopicsReply:
    offset: Offset = NOT_APPENDED
    results: tuple[TopicResult, ...] = ()


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """Let a topic have `total_count` partitions, more than it has. `assignment` is for the new partitions."""

    name: str
    total_count: int
    assignment: tuple[tuple[NodeId, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class CreatePartitions:
    topics: tuple[NewPartitions, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class CreatePartitionsReply:
    offset: Offset = NOT_APPENDED
    results: tuple[TopicResult, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteTopics:
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeleteTopicsReply:
    offset: Offset = NOT_APPENDED
    results: tuple[TopicResult, ...] = ()


class Piece(NamedTuple):
    """Some records of a request, and the cost of deciding them. A piece without records has only checked something."""

    records: list[MetadataRecord]
    cost: int


@dataclass(frozen=True, slots=True, eq=False)
class ContinueTopics:
    """Decide the next slice of a large request about topics."""

    command: CreateTopics | CreatePartitions | DeleteTopics
    before: MetadataImage = field(repr=False)
    """The image before the request."""
    pieces: Iterator[Piece] = field(repr=False)
    """The pieces that are not decided yet."""
    results: list[TopicResult] = field(repr=False)
    """The results of the topics that are decided."""


# --- configs and features ------------------------------------------------------------------------------------------


class ConfigOperationKind(Enum):
    """The kinds of operations on one key. APPEND and SUBTRACT are for values that are lists."""

    SET = "set"
    DELETE = "delete"
    APPEND = "append"
    SUBTRACT = "subtract"


@dataclass(frozen=True, slots=True)
class ConfigOperation:
    kind: ConfigOperationKind
    key: str
    value: str = ""


@dataclass(frozen=True, slots=True)
class ConfigAlteration:
    """Operations on one resource, done together or not at all. The types are `records.TOPIC_RESOURCE` and `BROKER_RESOURCE`."""

    resource_type: int
    resource_name: str
    operations: tuple[ConfigOperation, ...]


@dataclass(frozen=True, slots=True)
class AlterConfigs:
    alterations: tuple[ConfigAlteration, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class ConfigResult:
    """The result for one resource."""

    resource_type: int
    resource_name: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class ContinueConfigs:
    """Decide the next slice of a large AlterConfigs."""

    command: AlterConfigs = field(repr=False)
    repeated: frozenset[tuple[int, str]]
    """The resources that the request names more than once."""
    results: tuple[ConfigResult, ...] = field(default=(), repr=False)
    """The results of the resources that are decided: the first of the request."""
    changed: tuple[Config, ...] = field(default=(), repr=False)
    """The changes that are decided."""


@dataclass(frozen=True, slots=True)
class AlterConfigsReply:
    offset: Offset = NOT_APPENDED
    results: tuple[ConfigResult, ...] = ()


@dataclass(frozen=True, slots=True)
class BootstrapFeatures:
    """Finalize the features of a new cluster; nothing if they are finalized already. The first active controller decides this."""

    metadata_version: int = METADATA_VERSION_MAX
    elr_version: int = 0
    """The level of the feature `eligible.leader.replicas.version`."""


@dataclass(frozen=True, slots=True)
class BootstrapFeaturesReply:
    offset: Offset = NOT_APPENDED


# --- brokers and controllers ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RegisterBrokerCommand:
    """Register a broker process.

    `previous_incarnation_id` is the process that held the same data directory before: that process is dead, because the directory
    is locked, so the new process replaces it at once. `previous_broker_epoch` proves that the last process of this broker ended
    with a clean shutdown: it is the epoch that the process had then (KIP-966).
    """

    broker_id: NodeId
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]
    rack: str | None
    log_dirs: tuple[Uuid, ...]
    previous_incarnation_id: Uuid | None = None
    data_plane: str = EXTERNAL_DATA_PLANE
    previous_broker_epoch: int = FROM_OFFSET
    """FROM_OFFSET: the broker has no proof."""


@dataclass(frozen=True, slots=True)
class RegisterBrokerReply:
    """`broker_epoch` is the offset of the registration record."""

    offset: Offset = NOT_APPENDED
    broker_epoch: int = FROM_OFFSET


@dataclass(frozen=True, slots=True)
class BrokerContact:
    """A broker's fetch as its heartbeat. `offset`: the broker has applied all metadata below this offset."""

    broker_id: NodeId
    broker_epoch: int
    incarnation_id: Uuid
    offset: Offset
    wants_fence: bool = False
    wants_shut_down: bool = False
    offline_log_dirs: tuple[Uuid, ...] = ()


@dataclass(frozen=True, slots=True)
class BrokerContactReply:
    """Nothing but the offset: the answer to the broker takes its state from `Controller.standing`."""

    offset: Offset = NOT_APPENDED


@dataclass(frozen=True, slots=True)
class FenceExpiredBrokers:
    """Fence the broker whose session ended first; nothing if no session has ended."""


@dataclass(frozen=True, slots=True)
class FenceBroker:
    """Fence a broker until `EndBrokerMode`. Below metadata.version 2 refused for a live broker: the fence would not last."""

    broker_id: NodeId
    reason: str = ""
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class FenceBrokerReply:
    """`broker_id` is None if there was no broker to fence."""

    offset: Offset = NOT_APPENDED
    broker_id: NodeId | None = None


@dataclass(frozen=True, slots=True)
class UnregisterBroker:
    """Remove a broker for good. Refused for a live broker, and for a broker with replicas."""

    broker_id: NodeId


@dataclass(frozen=True, slots=True)
class UnregisterBrokerReply:
    offset: Offset = NOT_APPENDED


@dataclass(frozen=True, slots=True)
class ContinueFencing:
    """Write the next batch of a fencing that is under way."""

    broker_id: NodeId


@dataclass(frozen=True, slots=True)
class ContinueShutdown:
    """Continue a broker's controlled shutdown: more leaderships may move, or the other brokers have applied the moves."""

    broker_id: NodeId


@dataclass(frozen=True, slots=True)
class ElectLeaderless:
    """Elect leaders for partitions without a leader that a returned broker can lead.

    Without a `broker_id`: for all partitions, because the controller before may not have finished this work.
    """

    broker_id: NodeId | None = None


@dataclass(frozen=True, slots=True)
class FollowUpReply:
    """The reply to a command that the controller itself has issued."""

    offset: Offset = NOT_APPENDED


@dataclass(frozen=True, slots=True)
class RegisterControllerCommand:
    controller_id: NodeId
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]


@dataclass(frozen=True, slots=True)
class RegisterControllerReply:
    offset: Offset = NOT_APPENDED


@dataclass(frozen=True, slots=True)
class AllocateProducerIds:
    """Give a broker a block of producer ids."""

    broker_id: NodeId
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class AllocateProducerIdsReply:
    """The broker gets the ids first_producer_id .. first_producer_id + count - 1."""

    offset: Offset = NOT_APPENDED
    first_producer_id: int = -1
    count: int = 0


# --- partitions ----------------------------------------------------------------------------------------------------

ANY_BROKER_EPOCH: Final = -1


@dataclass(frozen=True, slots=True)
class IsrMember:
    """A replica of a proposed ISR. ANY_BROKER_EPOCH: the leader does not know which incarnation of the replica it has seen."""

    broker_id: NodeId
    broker_epoch: int = ANY_BROKER_EPOCH


@dataclass(frozen=True, slots=True)
class PartitionAlteration:
    """A leader's proposal for its partition, made from the state with these epochs (compare and set)."""

    topic_id: Uuid
    partition: int
    leader_epoch: Epoch
    partition_epoch: int
    new_isr: tuple[IsrMember, ...]
    leader_recovery_state: int = RECOVERED


@dataclass(frozen=True, slots=True)
class AlterPartition:
    broker_id: NodeId
    broker_epoch: int
    partitions: tuple[PartitionAlteration, ...]


@dataclass(frozen=True, slots=True)
class PartitionAlterationResult:
    """The partition's state after the alteration, if `error` is NONE."""

    topic_id: Uuid
    partition: int
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    leader_id: NodeId = NO_LEADER
    leader_epoch: Epoch = -1
    partition_epoch: int = -1
    isr: tuple[NodeId, ...] = ()
    leader_recovery_state: int = RECOVERED


@dataclass(frozen=True, slots=True)
class AlterPartitionReply:
    offset: Offset = NOT_APPENDED
    results: tuple[PartitionAlterationResult, ...] = ()


Command: TypeAlias = (
    CreateTopics
    | CreatePartitions
    | ContinueTopics
    | DeleteTopics
    | AlterConfigs
    | ContinueConfigs
    | BootstrapFeatures
    | RegisterBrokerCommand
    | BrokerContact
    | FenceExpiredBrokers
    | FenceBroker
    | UnregisterBroker
    | ContinueFencing
    | ContinueShutdown
    | ElectLeaderless
    | RegisterControllerCommand
    | AllocateProducerIds
    | AlterPartition
    | ElectLeaders
    | AlterPartitionReassignments
    | BalanceLeaders
    | UpdateFeatures
    | DrainBroker
    | EndBrokerMode
)

CommandReply: TypeAlias = (
    CreateTopicsReply
    | CreatePartitionsReply
    | DeleteTopicsReply
    | AlterConfigsReply
    | BootstrapFeaturesReply
    | RegisterBrokerReply
    | BrokerContactReply
    | FenceBrokerReply
    | UnregisterBrokerReply
    | FollowUpReply
    | RegisterControllerReply
    | AllocateProducerIdsReply
    | AlterPartitionReply
    | ElectLeadersReply
    | AlterPartitionReassignmentsReply
    | UpdateFeaturesReply
    | BrokerModeReply
)
