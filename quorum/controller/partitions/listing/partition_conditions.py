"""The conditions of a partition that an operator counts, lists and watches: one definition of each, under Kafka's names.

    t-0   replicas 101,102,103   ISR 101,102,103   leader 101   min.insync.replicas 2   none
    t-1   replicas 101,102,103   ISR 101,103       leader 101                           under-replicated, at min ISR
    t-2   replicas 101,102,103   ISR 103           leader 103                           under-replicated, under min ISR, not led
                                                                                        by the preferred replica 101
    t-3   replicas 102           ISR 102           leader -                             unavailable, at min ISR, not led by 102

A reassignment under way makes no partition under-replicated (`target_replicas`). More replicas than a partition has cannot be in
sync, so a partition with two replicas has enough with two where `min.insync.replicas` demands three.
"""

from collections.abc import Callable
from enum import Enum
from typing import Final, TypeAlias

from metadata_log.format.ids import NO_LEADER
from metadata_log.format.partition_state import ISR, LEADER, REPLICAS, PartitionState
from quorum.controller.partitions.target_replicas import in_sync_wanted


class PartitionCondition(Enum):
    """The conditions that a list of partitions can be filtered by."""

    UNDER_REPLICATED = 1
    """Fewer replicas are in sync than were assigned."""
    UNAVAILABLE = 2
    """No replica leads the partition."""
    UNDER_MIN_ISR = 3
    """Fewer replicas are in sync than `min.insync.replicas` demands."""
    AT_MIN_ISR = 4
    """As many replicas are in sync as `min.insync.replicas` demands: the loss of one more is a loss of service."""
    NOT_PREFERRED_LEADER = 5
    """The first assigned replica does not lead."""


def is_unavailable(state: PartitionState) -> bool:
    return state[LEADER] == NO_LEADER


def is_under_replicated(state: PartitionState) -> bool:
    return state[ISR] is not state[REPLICAS] and len(state[ISR]) < in_sync_wanted(state)


def is_under_min_isr(state: PartitionState, min_isr: int) -> bool:
    return state[ISR] is not state[REPLICAS] and len(state[ISR]) < min(min_isr, len(state[REPLICAS]))


def is_at_min_isr(state: PartitionState, min_isr: int) -> bool:
    return len(state[ISR]) == min(min_isr, len(state[REPLICAS]))


def is_led_by_preferred(state: PartitionState) -> bool:
    return state[LEADER] == state[REPLICAS][0]


Holds: TypeAlias = Callable[[PartitionState, int], bool]
"""The test of a condition: a partition's state, and the topic's `min.insync.replicas`."""

CONDITIONS: Final[dict[PartitionCondition, Holds]] = {
    PartitionCondition.UNDER_REPLICATED: lambda state, _: is_under_replicated(state),
    PartitionCondition.UNAVAILABLE: lambda state, _: is_unavailable(state),
    PartitionCondition.UNDER_MIN_ISR: is_under_min_isr,
    PartitionCondition.AT_MIN_ISR: is_at_min_isr,
    PartitionCondition.NOT_PREFERRED_LEADER: lambda state, _: not is_led_by_preferred(state),
}
"""The test of each condition."""
