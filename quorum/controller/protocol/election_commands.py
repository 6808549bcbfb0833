"""The command for elections of preferred leaders, and its reply."""

from dataclasses import dataclass
from typing import NamedTuple

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NO_LEADER, NodeId, Offset


class TopicPartition(NamedTuple):
    """One partition, by the name of its topic."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class ElectionResult:
    """The result for one partition. `leader_id` is the new leader, if `error` is NONE."""

    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    leader_id: NodeId = NO_LEADER


@dataclass(frozen=True, slots=True)
class ElectPreferredLeaders:
    """Let the first assigned replica of each partition become its leader, if it is in sync and active (Kafka's ElectLeaders)."""

    partitions: tuple[TopicPartition, ...]
    done: tuple[ElectionResult, ...] = ()
    """The results of the partitions that the same request named before these: they were decided in earlier batches."""


@dataclass(frozen=True, slots=True)
class BalanceLeaders:
    """Take the next slice of the periodic check that gives leaderships back to preferred replicas."""


@dataclass(frozen=True, slots=True)
class ElectPreferredLeadersReply:
    """The results are in the order of the partitions in the request."""

    offset: Offset = -1
    results: tuple[ElectionResult, ...] = ()
