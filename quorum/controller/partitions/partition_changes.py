"""The change of one partition: the new ISR, and the new leader.

The first rule that fits decides. *Active* means registered, unfenced, not shutting down, and not being fenced now.

    1  The leader is active and in the ISR: it stays leader.
    2  The first replica of the assignment that is active and in the ISR becomes leader.
    3  If the topic allows unclean elections, the first active replica of the assignment becomes leader, alone in the ISR.
    4  The partition has no leader.

Example:

    orders-0, replicas 101,102,103, ISR 101,102, leader 101
    101 is fenced                        ISR 102, leader 102
    102 is fenced too                    ISR 102, no leader: 103 may lack records, and only 102 is known to have all
    ... and the topic allows unclean     ISR 103, leader 103, RECOVERING: records may be lost

The last member of an ISR stays in the ISR, even when it is fenced; only an unclean election replaces it (M3, M4).
"""

from collections.abc import Callable, Set
from typing import Final

from metadata_log.format.ids import NO_LEADER, NodeId, Uuid
from metadata_log.format.partition_state import ISR, LEADER, RECOVERY_STATE, REPLICAS, NodeIds, PartitionState
from metadata_log.format.records import (
    BROKER_RESOURCE,
    RECOVERING,
    TOPIC_RESOURCE,
    PartitionChange,
)
from metadata_log.image.metadata_image import MetadataImage

UNCLEAN_KEY: Final = "unclean.leader.election.enable"


def allows_unclean_election(image: MetadataImage, topic_name: str) -> bool:
    """True if the topic's config allows unclean elections. A topic without this config follows the default of all brokers."""
    value = image.config(TOPIC_RESOURCE, topic_name).get(UNCLEAN_KEY)
    if value is None:
        value = image.config(BROKER_RESOURCE, "").get(UNCLEAN_KEY)
    return value == "true"


class PartitionChangeBuilder:
    """Collects the wanted changes of one partition; `build` makes the record."""

    __slots__ = ("_active", "_isr", "_partition", "_recovery_state", "_state", "_topic_id", "_unclean")

    def __init__(
        self,
        topic_id: Uuid,
        partition: int,
        state: PartitionState,
        active: Set[NodeId],
        allows_unclean: Callable[[], bool] = lambda: False,
    ) -> None:
        """`active`: the brokers that may lead. `allows_unclean` is called only if no clean election is possible."""
        self._topic_id = topic_id
        self._partition = partition
        self._state = state
        self._active = active
        self._unclean = allows_unclean
        self._isr = state[ISR]
        self._recovery_state: int = state[RECOVERY_STATE]

    def without(self, broker_id: NodeId) -> "PartitionChangeBuilder":
        """Takes the broker out of the ISR, unless it is the last member."""
        rest = tuple(member for member in self._isr if member != broker_id)
        if rest:
            self._isr = rest
        return self

    def with_isr(self, isr: NodeIds, recovery_state: int) -> "PartitionChangeBuilder":
        """Takes the ISR that the leader proposes."""
        self._isr = isr
        self._recovery_state = recovery_state
        return self

    def _elected(self) -> NodeId:
        leader = self._state[LEADER]
        isr, active = self._isr, self._active
        if leader in active and leader in isr:
            return leader
        replicas = self._state[REPLICAS]
        for replica in replicas:
            if replica in isr and replica in active:
                return replica
        if self._unclean():
            for replica in replicas:
                if replica in active:
                    self._isr = (replica,)
                    self._recovery_state = RECOVERING
                    return replica
        return NO_LEADER

    def build(self) -> PartitionChange | None:
        """Makes the change; None if nothing changes."""
        state = self._state
        leader = self._elected()
        isr = None if self._isr == state[ISR] else self._isr
        recovery = None if self._recovery_state == state[RECOVERY_STATE] else self._recovery_state
        new_leader = None if leader == state[LEADER] else leader
        if isr is None and recovery is None and new_leader is None:
            return None
        return PartitionChange(
            self._topic_id, self._partition, isr=isr, leader=new_leader, leader_recovery_state=recovery
        )
