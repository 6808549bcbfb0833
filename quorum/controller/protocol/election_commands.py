"""The part of `commands` that `elections` decides: which partitions are to be led by their preferred replicas."""

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
    """What became of one partition: `leader_id` leads it from now on, where `error` is NONE."""

    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    leader_id: NodeId = NO_LEADER


@dataclass(frozen=True, slots=True)
class ElectPreferredLeaders:
    """Let the first assigned replica of each partition lead it, where that is in sync and active (Kafka's ElectLeaders)."""

    partitions: tuple[TopicPartition, ...]
    done: tuple[ElectionResult, ...] = ()
    """What became of those that the same request named before them: they were decided in earlier batches."""


@dataclass(frozen=True, slots=True)
class ElectPreferredLeadersReply:
    """The results stand in the order in which the partitions were named."""

    offset: Offset = -1
    results: tuple[ElectionResult, ...] = ()
