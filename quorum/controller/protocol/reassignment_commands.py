"""The command that moves replicas of partitions to other brokers, and its reply (Kafka's AlterPartitionReassignments,
KIP-455)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId, Offset
from metadata_log.format.records import PartitionChange
from quorum.controller.protocol.replies import NOT_APPENDED


class Reassignment(NamedTuple):
    """The replicas that a partition shall have, the preferred leader first. None cancels the reassignment in progress."""

    topic: str
    partition: int
    replicas: tuple[NodeId, ...] | None


@dataclass(frozen=True, slots=True)
class ReassignmentResult:
    """The result for one partition: what is being added and removed now. Both are empty if nothing is in progress any more."""

    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    adding: tuple[NodeId, ...] = ()
    removing: tuple[NodeId, ...] = ()


@dataclass(frozen=True, slots=True)
class AlterPartitionReassignments:
    """Begin, replace or cancel the reassignments of these partitions."""

    partitions: tuple[Reassignment, ...]
    allow_replication_factor_change: bool = True
    """False: a target with another number of replicas than the partition had is refused."""
    validate_only: bool = False


@dataclass(slots=True)
class AlteredSoFar:
    """The sums over the decided partitions of a request."""

    begun: int = 0
    finished: int = 0
    """How many of the begun reassignments needed no new replica, and are finished already."""
    cancelled: int = 0
    first: list[str] = field(default_factory=list)
    """Some of the changes, as an operator reads them."""


@dataclass(frozen=True, slots=True, eq=False)
class ContinueReassignments:
    """Decide the next slice of a large request."""

    command: AlterPartitionReassignments = field(repr=False)
    changes: Iterator[PartitionChange | None] = field(repr=False)
    """The changes of the partitions that are not decided yet; None for a partition without a change, and for other work."""
    results: list[ReassignmentResult] = field(repr=False)
    """The results of the partitions that are decided."""
    altered: AlteredSoFar


@dataclass(frozen=True, slots=True)
class AlterPartitionReassignmentsReply:
    """The results are in the order of the partitions in the request."""

    offset: Offset = NOT_APPENDED
    results: tuple[ReassignmentResult, ...] = ()
