"""The commands that the controller decides, and their replies: two closed unions of plain values.

The commands of brokers and controllers, and of leaders about their partitions, are here; the others have files of their own.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NO_LEADER, Epoch, NodeId, Offset, Uuid
from metadata_log.format.records import (
    EXTERNAL_DATA_PLANE,
    FROM_OFFSET,
    RECOVERED,
    Endpoint,
    FeatureRange,
)
from quorum.controller.protocol.config_commands import (
    AlterConfigKeys,
    AlterConfigKeysReply,
    AlterConfigs,
    AlterConfigsReply,
    ContinueConfigs,
)
from quorum.controller.protocol.directory_commands import (
    AssignReplicasToDirs,
    AssignReplicasToDirsReply,
    ContinueDirectoryLoss,
)
from quorum.controller.protocol.election_commands import (
    BalanceLeaders,
    ElectLeaders,
    ElectLeadersReply,
)
from quorum.controller.protocol.entity_commands import (
    AlterKinds,
    AlterKindsReply,
    CloseSession,
    CloseSessionReply,
    EndExpiredSessions,
    OpenSession,
    OpenSessionReply,
    Transact,
    TransactReply,
)
from quorum.controller.protocol.epoch_commands import ContinueRaise, RaiseEpochs
from quorum.controller.protocol.feature_commands import (
    BootstrapFeatures,
    BootstrapFeaturesReply,
    UpdateFeatures,
    UpdateFeaturesReply,
)
from quorum.controller.protocol.label_commands import AlterLabels, AlterLabelsReply
from quorum.controller.protocol.mode_commands import BrokerModeReply, DrainBroker, EndBrokerMode
from quorum.controller.protocol.reassignment_commands import (
    AlterPartitionReassignments,
    AlterPartitionReassignmentsReply,
    ContinueReassignments,
)
from quorum.controller.protocol.replies import NOT_APPENDED
from quorum.controller.protocol.rights.acl_commands import CreateAcls, CreateAclsReply, DeleteAcls, DeleteAclsReply
from quorum.controller.protocol.rights.quota_commands import AlterClientQuotas, AlterClientQuotasReply
from quorum.controller.protocol.rights.scram_commands import AlterUserScramCredentials, AlterUserScramCredentialsReply
from quorum.controller.protocol.topic_commands import (
    ContinueTopics,
    CreatePartitions,
    CreatePartitionsReply,
    CreateTopics,
    CreateTopicsReply,
    DeleteTopics,
    DeleteTopicsReply,
)

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
class ReportDeath:
    """Fence the broker at once: a watcher has proved that these processes of the broker have ended."""

    broker_id: NodeId
    incarnation_ids: tuple[Uuid, ...]


@dataclass(frozen=True, slots=True)
class ReportDeathReply:
    """`broker_epoch` is the epoch of the dead process. NOT_APPENDED: its death was in the log already."""

    offset: Offset = NOT_APPENDED
    broker_epoch: int = FROM_OFFSET


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
    done: tuple["PartitionAlterationResult", ...] = ()
    """The results of the first proposals, which were decided in earlier batches."""


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
    | AlterConfigKeys
    | AlterLabels
    | RaiseEpochs
    | ContinueRaise
    | BootstrapFeatures
    | RegisterBrokerCommand
    | BrokerContact
    | ReportDeath
    | FenceExpiredBrokers
    | FenceBroker
    | UnregisterBroker
    | ContinueFencing
    | ContinueShutdown
    | ContinueDirectoryLoss
    | ElectLeaderless
    | RegisterControllerCommand
    | AllocateProducerIds
    | AlterPartition
    | AssignReplicasToDirs
    | ElectLeaders
    | AlterPartitionReassignments
    | ContinueReassignments
    | BalanceLeaders
    | UpdateFeatures
    | AlterClientQuotas
    | CreateAcls
    | DeleteAcls
    | AlterUserScramCredentials
    | DrainBroker
    | EndBrokerMode
    | Transact
    | AlterKinds
    | OpenSession
    | CloseSession
    | EndExpiredSessions
)

CommandReply: TypeAlias = (
    CreateTopicsReply
    | CreatePartitionsReply
    | DeleteTopicsReply
    | AlterConfigsReply
    | AlterConfigKeysReply
    | AlterLabelsReply
    | BootstrapFeaturesReply
    | RegisterBrokerReply
    | BrokerContactReply
    | ReportDeathReply
    | FenceBrokerReply
    | UnregisterBrokerReply
    | FollowUpReply
    | RegisterControllerReply
    | AllocateProducerIdsReply
    | AlterPartitionReply
    | AssignReplicasToDirsReply
    | ElectLeadersReply
    | AlterPartitionReassignmentsReply
    | UpdateFeaturesReply
    | AlterClientQuotasReply
    | CreateAclsReply
    | DeleteAclsReply
    | AlterUserScramCredentialsReply
    | BrokerModeReply
    | TransactReply
    | AlterKindsReply
    | OpenSessionReply
    | CloseSessionReply
)
