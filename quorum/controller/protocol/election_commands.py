"""The commands for elections of partitions' leaders, on request and by itself, and their reply."""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NO_LEADER, NodeId, Offset
from quorum.controller.protocol.replies import NOT_APPENDED


class TopicPartition(NamedTuple):
    """One partition, by the name of its topic."""

    topic: str
    partition: int


class ElectionType(Enum):
    """The rule that chooses the next leader. The numbers of the first two are Kafka's."""

    PREFERRED = 0
    """The first assigned replica, if it is in sync and active."""
    UNCLEAN = 1
    """For a partition without a leader: an active replica, even if it is out of sync. Records may be lost."""
    DESIGNATED = 2
    """The replica that the request names, if it is in sync and active."""


@dataclass(frozen=True, slots=True)
class ElectionResult:
    """The result for one partition. `leader_id` is the broker that leads now: the new leader, if `error` is NONE."""

    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    leader_id: NodeId = NO_LEADER


@dataclass(frozen=True, slots=True)
class ElectLeaders:
    """Elect the leaders of these partitions (Kafka's ElectLeaders, KIP-183, KIP-460).

    `leader_id` is the replica of a DESIGNATED election. An UNCLEAN election may name one, too; NO_LEADER: it names none.
    """

    partitions: tuple[TopicPartition, ...]
    election_type: ElectionType = ElectionType.PREFERRED
    leader_id: NodeId = NO_LEADER
    done: tuple[ElectionResult, ...] = ()
    """The results of the partitions that the same request named before these: they were decided in earlier batches."""


@dataclass(frozen=True, slots=True)
class BalanceLeaders:
    """Take the next slice of the periodic check that gives leaderships back to preferred replicas."""


@dataclass(frozen=True, slots=True)
class ElectLeadersReply:
    """The results are in the order of the partitions in the request."""

    offset: Offset = NOT_APPENDED
    results: tuple[ElectionResult, ...] = ()
