"""What the controller may be asked to decide, and what it answers: two closed unions of plain values.

Every reply has `offset`: the end (exclusive) of the batch that the decision became, so that a reader whose view is as of
`offset` or later has seen it. The controller cannot know it when it decides; `Decision.answer` fills it in.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NO_LEADER, ZERO_UUID, Epoch, NodeId, Offset, Uuid
from metadata_log.format.records import EXTERNAL_DATA_PLANE, FROM_OFFSET, RECOVERED, Endpoint, FeatureRange
from quorum.controller.protocol.election_commands import ElectPreferredLeaders, ElectPreferredLeadersReply

NOT_APPENDED: Final[Offset] = -1
"""In a reply: the batch has no place in the log yet."""

DEFAULT_COUNT: Final = -1
"""For a number of partitions or replicas: what the controller's configuration says (or what the assignment has)."""


# --- topics --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. `assignment` names each partition's replicas, the first being preferred; empty: the controller
    places them. With an assignment, both counts are DEFAULT_COUNT or agree with it."""

    name: str
    partitions: int = DEFAULT_COUNT
    replication_factor: int = DEFAULT_COUNT
    assignment: tuple[tuple[NodeId, ...], ...] = ()
    configs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class CreateTopics:
    """Create topics; the good ones together, in one atomic batch. With `validate_only` nothing is written."""

    topics: tuple[NewTopic, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class TopicResult:
    """What became of one topic of a request. `message` is for people; the rest is set where `error` is NONE, and where it is
    TOPIC_ALREADY_EXISTS: then it is of the topic that there is."""

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
    """Let a topic have `total_count` partitions, which may only be more than it has. `assignment` is for the new ones."""

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


# --- configs and features ------------------------------------------------------------------------------------------


class ConfigOperationKind(Enum):
    """What to do to one key. APPEND and SUBTRACT are for values that are lists."""

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
    """Operations on one resource; all of them or none. The types are `records.TOPIC_RESOURCE` and `BROKER_RESOURCE`."""

    resource_type: int
    resource_name: str
    operations: tuple[ConfigOperation, ...]


@dataclass(frozen=True, slots=True)
class AlterConfigs:
    alterations: tuple[ConfigAlteration, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class ConfigResult:
    """What became of one resource's alterations."""

    resource_type: int
    resource_name: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class AlterConfigsReply:
    offset: Offset = NOT_APPENDED
    results: tuple[ConfigResult, ...] = ()


@dataclass(frozen=True, slots=True)
class BootstrapFeatures:
    """The first active controller of a cluster finalizes its features. Where they are finalized already, nothing."""

    metadata_version: int = 1


@dataclass(frozen=True, slots=True)
class BootstrapFeaturesReply:
    offset: Offset = NOT_APPENDED


# --- brokers and controllers ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RegisterBrokerCommand:
    """A broker process says that it is there. `previous_incarnation_id` is the one that last held this process's data
    directory: it must be dead, since the directory is locked, and so it is superseded at once."""

    broker_id: NodeId
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]
    rack: str | None
    log_dirs: tuple[Uuid, ...]
    previous_incarnation_id: Uuid | None = None
    data_plane: str = EXTERNAL_DATA_PLANE


@dataclass(frozen=True, slots=True)
class RegisterBrokerReply:
    """`broker_epoch` is the offset of the registration's record."""

    offset: Offset = NOT_APPENDED
    broker_epoch: int = FROM_OFFSET


@dataclass(frozen=True, slots=True)
class BrokerContact:
    """A broker's fetch, seen as its heartbeat. `offset`: it has applied all metadata below."""

    broker_id: NodeId
    broker_epoch: int
    incarnation_id: Uuid
    offset: Offset
    wants_fence: bool = False
    wants_shut_down: bool = False
    offline_log_dirs: tuple[Uuid, ...] = ()


@dataclass(frozen=True, slots=True)
class BrokerContactReply:
    """What the broker is to know stands in `Controller.standing`, once it is committed."""

    offset: Offset = NOT_APPENDED


@dataclass(frozen=True, slots=True)
class FenceExpiredBrokers:
    """Fence the broker whose session ended first; nothing where none has ended."""


@dataclass(frozen=True, slots=True)
class FenceBroker:
    """Fence a broker by hand. One that is heard is not: it would come back with its next contact."""

    broker_id: NodeId


@dataclass(frozen=True, slots=True)
class FenceBrokerReply:
    """`broker_id` is None where nobody had to be fenced."""

    offset: Offset = NOT_APPENDED
    broker_id: NodeId | None = None


@dataclass(frozen=True, slots=True)
class UnregisterBroker:
    """Forget a broker for good. One that is heard, or that has replicas, is not."""

    broker_id: NodeId


@dataclass(frozen=True, slots=True)
class UnregisterBrokerReply:
    offset: Offset = NOT_APPENDED


@dataclass(frozen=True, slots=True)
class ContinueFencing:
    """Go on with a fencing that is under way: the next of its batches."""

    broker_id: NodeId


@dataclass(frozen=True, slots=True)
class ContinueShutdown:
    """Go on with a broker's controlled shutdown: more of its leaders may move, or others have seen it go."""

    broker_id: NodeId


@dataclass(frozen=True, slots=True)
class ElectLeaderless:
    """Give leaders to the leaderless partitions that can be led by a broker which has come back."""

    broker_id: NodeId


@dataclass(frozen=True, slots=True)
class FollowUpReply:
    """The answer of a command that the controller gave itself."""

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
    """A broker asks for a block of producer ids."""

    broker_id: NodeId
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class AllocateProducerIdsReply:
    """The ids first_producer_id .. first_producer_id + count - 1 are the broker's."""

    offset: Offset = NOT_APPENDED
    first_producer_id: int = -1
    count: int = 0


# --- partitions ----------------------------------------------------------------------------------------------------

ANY_BROKER_EPOCH: Final = -1


@dataclass(frozen=True, slots=True)
class IsrMember:
    """A replica of a proposed ISR; with ANY_BROKER_EPOCH its leader doesn't know which incarnation it has seen."""

    broker_id: NodeId
    broker_epoch: int = ANY_BROKER_EPOCH


@dataclass(frozen=True, slots=True)
class PartitionAlteration:
    """A leader's proposal for its partition, made from the state with just these epochs (compare and set)."""

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
    """The partition's state after the alteration, where `error` is NONE."""

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
    | DeleteTopics
    | AlterConfigs
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
    | ElectPreferredLeaders
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
    | ElectPreferredLeadersReply
)
