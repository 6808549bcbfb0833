"""The conditions of a partition that an operator counts, lists and watches: one definition of each, under Kafka's names.

    t-0   replicas 101,102,103   ISR 101,102,103   leader 101   min.insync.replicas 2   none
    t-1   replicas 101,102,103   ISR 101,103       leader 101                           under-replicated, at min ISR
    t-2   replicas 101,102,103   ISR 103           leader 103                           under-replicated, under min ISR, not led
                                                                                        by the preferred replica 101
    t-3   replicas 102           ISR 102           leader -                             unavailable, at min ISR, not led by 102

A reassignment under way makes no partition under-replicated (`target_replicas`). More replicas than a partition has cannot be in
sync, so a partition with two replicas has enough with two where `min.insync.replicas` demands three.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, TypeAlias

from metadata_log.format.ids import NO_LEADER, NodeId
from metadata_log.format.partition_state import DIRECTORIES, ISR, LEADER, REPLICAS, PartitionState
from metadata_log.format.records import RegisterBroker
from metadata_log.image.log_directories import offline_replicas
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.partitions.target_replicas import in_sync_wanted

AliveBrokers: TypeAlias = Mapping[NodeId, RegisterBroker]
"""The brokers that are not fenced, by id."""


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
    OFFLINE_REPLICAS = 6
    """A replica is on a broker that is fenced or not registered, or in an offline log directory."""


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


def has_offline_replicas(state: PartitionState, alive: AliveBrokers) -> bool:
    return bool(offline_replicas(alive, state[REPLICAS], state[DIRECTORIES]))


def alive_brokers(image: MetadataImage) -> AliveBrokers:
    """Returns the brokers that are not fenced. O(brokers)."""
    return {broker.broker_id: broker for broker in image.brokers.unordered_values() if not broker.fenced}


Holds: TypeAlias = Callable[[PartitionState, int, AliveBrokers], bool]
"""The test of a condition: a partition's state, the topic's `min.insync.replicas`, and the brokers that are not fenced."""

CONDITIONS: Final[dict[PartitionCondition, Holds]] = {
    PartitionCondition.UNDER_REPLICATED: lambda state, _, __: is_under_replicated(state),
    PartitionCondition.UNAVAILABLE: lambda state, _, __: is_unavailable(state),
    PartitionCondition.UNDER_MIN_ISR: lambda state, min_isr, _: is_under_min_isr(state, min_isr),
    PartitionCondition.AT_MIN_ISR: lambda state, min_isr, _: is_at_min_isr(state, min_isr),
    PartitionCondition.NOT_PREFERRED_LEADER: lambda state, _, __: not is_led_by_preferred(state),
    PartitionCondition.OFFLINE_REPLICAS: lambda state, _, alive: has_offline_replicas(state, alive),
}
"""The test of each condition."""
