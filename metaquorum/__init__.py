"""The front door of metaquorum: everything that a program of yours may import.

    import asyncio
    from metaquorum import AdminClient

    async def main() -> None:
        async with AdminClient(["127.0.0.1:9001"]) as client:
            await client.create_topic("orders", partitions=12, replication_factor=3)

    asyncio.run(main())

A server that is a broker itself embeds the agent: `async with Agent(load_broker_config(path)) as agent` (docs/embedding.md).

This package only re-exports. `quorumctl`, the tests and the examples import from here too; a server imports the room that has
the thing. A name that is not in `__all__` may change with any release.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from quorum_rpc.v1 import admin_pb2

from clients.admin import AdminClient
from clients.blocking.client import BlockingClient, BlockingLock, BlockingSession, BlockingWatch
from clients.consumer.config import ConsumerConfig
from clients.consumer.errors import (
    ConsumerError,
    CorruptRecords,
    LogTruncated,
    NoPosition,
    OffsetOutOfRange,
    PartitionMissing,
    PositionsUnusable,
)
from clients.consumer.positions import PositionStore, StoredPosition
from clients.consumer.records import ConsumerRecord
from clients.consumer_client import Consumer
from clients.entities.client import EntityClient
from clients.entities.core.transactions import (
    AlterConfigs,
    Condition,
    CreateTopic,
    DeleteEntity,
    DeleteTopic,
    FailedCondition,
    Operation,
    OperationResult,
    PutEntity,
    Transacted,
    absent,
    exists,
    value_is,
    version_at_most,
    version_is,
)
from clients.entities.core.values import DescribedKind, Entity, EntityOwner, KindLimits, SessionListing, Token
from clients.entities.core.watch_values import (
    EntityDeleted,
    EntityWritten,
    RecordWritten,
    ResetReason,
    WatchBatch,
    WatchPosition,
)
from clients.entities.errors import ConditionFailed, NotHeld, SessionLost
from clients.entities.live_view import LiveView
from clients.entities.session import Session
from clients.entities.watch import Watch
from clients.errors import AdminError, Incomplete, MayHaveHappened, MetadataError, NoLeader, NotReached, Unanswered
from clients.file_positions import FilePositions
from clients.metadata.client_metadata import ClientMetadata, NotThere
from clients.metadata.cluster import (
    Cluster,
    ClusterNode,
    ClusterResource,
    PartitionNodes,
    PartitionView,
    TopicPartition,
    least_loaded_node,
)
from clients.metadata.refresher import ClientConfig
from clients.metadata.seen import ViewVersion
from clients.metadata.updates import MetadataRequestPlan, MetadataUpdate, TopicUpdate
from clients.metadata.waiting import Waited, WaitOnMetadata
from clients.metadata_calls import BrokerDescription, ClusterDescription, OwnConfigs
from clients.metadata_client import MetadataClient
from clients.producer.config import ProducerConfig
from clients.producer.errors import (
    BufferExhausted,
    MayHaveBeenWritten,
    NotWritten,
    ProducerClosed,
    RecordTooLarge,
    SendError,
    TopicNotKnown,
)
from clients.producer.record_metadata import RecordMetadata
from clients.producer_client import Producer
from clients.recipes.barrier import Barrier
from clients.recipes.config import Config
from clients.recipes.election import Election, Leader, leader_of, observe_leaders
from clients.recipes.lock import Lock
from clients.recipes.members import Joined, Left, MemberChange, Members, Membership, Updated
from clients.recipes.program import run
from clients.streams.submit_stream import SubmitStream
from metadata_log.format.acl_words import AclOperation, PatternType, PermissionType, ResourceType
from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import BROKER_RESOURCE, TOPIC_RESOURCE
from service_kit.process.release import release
from service_kit.rpc.dial import Dialer
from service_kit.security.tls import TlsFiles

if TYPE_CHECKING:
    from broker_agent.cache import MetadataView
    from broker_agent.config import BrokerConfig
    from broker_agent.config import load as load_broker_config
    from broker_agent.embedding.agent import Agent, LeaseStatus
    from broker_agent.embedding.errors import (
        AgentEnded,
        AgentError,
        CannotStart,
        DiskFailed,
        NotAnswered,
        NotRegistered,
        NotRunning,
        ProposalInFlight,
        ProposalRefused,
    )
    from broker_agent.embedding.isr_requests import IsrGranted
    from broker_agent.publishing.assignment_feed import AssignmentStream
    from broker_agent.publishing.assignments import (
        Delete,
        Follow,
        Lead,
        ResumePoint,
        Stop,
        TopicIdPartition,
        WholeSet,
    )
    from broker_agent.publishing.publishers import ImageUpdate, PublisherProblem
    from broker_agent.session.lifecycle import BrokerState
    from metadata_log.format.records import Endpoint
    from service_kit.process.config import ConfigErrors

__all__ = [
    "BROKER_RESOURCE",
    "TOPIC_RESOURCE",
    "AclOperation",
    "AdminClient",
    "AdminError",
    "Agent",
    "AgentEnded",
    "AgentError",
    "AlterConfigs",
    "AssignmentStream",
    "Barrier",
    "BlockingClient",
    "BlockingLock",
    "BlockingSession",
    "BlockingWatch",
    "BrokerConfig",
    "BrokerDescription",
    "BrokerState",
    "BufferExhausted",
    "CannotStart",
    "ClientConfig",
    "ClientMetadata",
    "Cluster",
    "ClusterDescription",
    "ClusterNode",
    "ClusterResource",
    "Condition",
    "ConditionFailed",
    "Config",
    "ConfigErrors",
    "Consumer",
    "ConsumerConfig",
    "ConsumerError",
    "ConsumerRecord",
    "CorruptRecords",
    "CreateTopic",
    "Delete",
    "DeleteEntity",
    "DeleteTopic",
    "DescribedKind",
    "Dialer",
    "DiskFailed",
    "Election",
    "Endpoint",
    "Entity",
    "EntityClient",
    "EntityDeleted",
    "EntityOwner",
    "EntityWritten",
    "ErrorCode",
    "FailedCondition",
    "FilePositions",
    "Follow",
    "ImageUpdate",
    "Incomplete",
    "IsrGranted",
    "Joined",
    "KindLimits",
    "Lead",
    "Leader",
    "LeaseStatus",
    "Left",
    "LiveView",
    "Lock",
    "LogTruncated",
    "MayHaveBeenWritten",
    "MayHaveHappened",
    "MemberChange",
    "Members",
    "Membership",
    "MetadataClient",
    "MetadataError",
    "MetadataRequestPlan",
    "MetadataUpdate",
    "MetadataView",
    "NoLeader",
    "NoPosition",
    "NotAnswered",
    "NotHeld",
    "NotReached",
    "NotRegistered",
    "NotRunning",
    "NotThere",
    "NotWritten",
    "OffsetOutOfRange",
    "Operation",
    "OperationResult",
    "OwnConfigs",
    "PartitionMissing",
    "PartitionNodes",
    "PartitionView",
    "PatternType",
    "PermissionType",
    "PositionStore",
    "PositionsUnusable",
    "Producer",
    "ProducerClosed",
    "ProducerConfig",
    "ProposalInFlight",
    "ProposalRefused",
    "PublisherProblem",
    "PutEntity",
    "RecordMetadata",
    "RecordTooLarge",
    "RecordWritten",
    "ResetReason",
    "ResourceType",
    "ResumePoint",
    "SendError",
    "Session",
    "SessionListing",
    "SessionLost",
    "Stop",
    "StoredPosition",
    "SubmitStream",
    "TlsFiles",
    "Token",
    "TopicIdPartition",
    "TopicNotKnown",
    "TopicPartition",
    "TopicUpdate",
    "Transacted",
    "Unanswered",
    "Updated",
    "ViewVersion",
    "WaitOnMetadata",
    "Waited",
    "Watch",
    "WatchBatch",
    "WatchPosition",
    "WholeSet",
    "__version__",
    "absent",
    "admin_pb2",
    "exists",
    "leader_of",
    "least_loaded_node",
    "load_broker_config",
    "observe_leaders",
    "run",
    "value_is",
    "version_at_most",
    "version_is",
]

__version__: str

_ROOMS: Final = {
    "broker_agent.cache": ("MetadataView",),
    "broker_agent.config": ("BrokerConfig",),
    "broker_agent.embedding.agent": ("Agent", "LeaseStatus"),
    "broker_agent.embedding.errors": (
        "AgentEnded",
        "AgentError",
        "CannotStart",
        "DiskFailed",
        "NotAnswered",
        "NotRegistered",
        "NotRunning",
        "ProposalInFlight",
        "ProposalRefused",
    ),
    "broker_agent.embedding.isr_requests": ("IsrGranted",),
    "broker_agent.publishing.assignment_feed": ("AssignmentStream",),
    "broker_agent.publishing.assignments": (
        "Delete",
        "Follow",
        "Lead",
        "ResumePoint",
        "Stop",
        "TopicIdPartition",
        "WholeSet",
    ),
    "broker_agent.publishing.publishers": ("ImageUpdate", "PublisherProblem"),
    "broker_agent.session.lifecycle": ("BrokerState",),
    "metadata_log.format.records": ("Endpoint",),
    "service_kit.process.config": ("ConfigErrors",),
}
"""The names of the agent, by room. A client does not need them, so they are imported when a program first names one."""
_LATE: Final = {name: room for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> object:
    """The version of the installed package, as pip knows it, or a name of the agent: both take too long for each import."""
    if name == "__version__":
        return release()
    if name == "load_broker_config":
        return import_module("broker_agent.config").load
    if name in _LATE:
        return getattr(import_module(_LATE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
