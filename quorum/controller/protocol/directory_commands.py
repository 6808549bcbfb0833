"""The commands about log directories, and their reply (Kafka's AssignReplicasToDirs, KIP-858)."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId, Offset, Uuid
from quorum.controller.protocol.replies import NOT_APPENDED

ASSIGNMENTS_MAX: Final = 2_250
"""Maximum number of replicas in one request, as many as Kafka's brokers send."""


class DirectoryAssignment(NamedTuple):
    """The broker's replica of a partition is in this log directory, or was in one that failed (LOST_DIRECTORY)."""

    topic_id: Uuid
    partition: int
    directory: Uuid


class DirectoryAssignmentResult(NamedTuple):
    """The result for one replica. `message` is for people."""

    topic_id: Uuid
    partition: int
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class AssignReplicasToDirs:
    """Record in which log directories the broker's replicas are."""

    broker_id: NodeId
    broker_epoch: int
    assignments: tuple[DirectoryAssignment, ...]
    done: tuple[DirectoryAssignmentResult, ...] = field(default=(), repr=False)
    """The results of the replicas that the same request named before these: they were decided in earlier batches."""


@dataclass(frozen=True, slots=True)
class AssignReplicasToDirsReply:
    """The results are in the order of the request."""

    offset: Offset = NOT_APPENDED
    results: tuple[DirectoryAssignmentResult, ...] = ()


@dataclass(frozen=True, slots=True)
class ContinueDirectoryLoss:
    """Write the next batch of the consequences of a broker's loss of log directories."""

    broker_id: NodeId
