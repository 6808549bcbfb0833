"""How one partition changes: who stays in its ISR, who leads it, and how a leader's own proposals are judged.

Elections are clean: the leader stays if it may; else it is the first replica, in the order of the assignment, that stands
in the ISR and is active (registered, unfenced, not shutting down); else nobody. Only where the topic allows unclean
elections may an active replica outside the ISR take over: it becomes the whole ISR, and RECOVERING.

The last member of an ISR never leaves it, also when it is fenced: it is the only one known to have everything (M4).
"""

from collections.abc import Callable, Iterator, Set
from typing import Final, NamedTuple

from metadata_log.ids import NO_LEADER, NodeId, Uuid
from metadata_log.image import MetadataImage
from metadata_log.partition_state import ISR, LEADER, REPLICAS, NodeIds, PartitionState
from metadata_log.records import (
    BROKER_RESOURCE,
    RECOVERING,
    TOPIC_RESOURCE,
    PartitionChange,
)
from metadata_log.topic_image import CHUNK_PARTITIONS, TopicImage

RECOVERY_STATE: Final = 5
LEADER_EPOCH: Final = 6
PARTITION_EPOCH: Final = 7

UNCLEAN_KEY: Final = "unclean.leader.election.enable"

_CHUNK_COST: Final = 4
"""Coming to a chunk costs about as much as looking at so many partitions."""


def allows_unclean_election(image: MetadataImage, topic_name: str) -> bool:
    """Whether the topic's config says so, or else the cluster-wide default."""
    value = image.config(TOPIC_RESOURCE, topic_name).get(UNCLEAN_KEY)
    if value is None:
        value = image.config(BROKER_RESOURCE, "").get(UNCLEAN_KEY)
    return value == "true"


class PartitionChangeBuilder:
    """Collects what is wanted of one partition; `build` says what that makes of it. Pure."""

    __slots__ = ("_active", "_isr", "_partition", "_recovery_state", "_state", "_topic_id", "_unclean")

    def __init__(
        self,
        topic_id: Uuid,
        partition: int,
        state: PartitionState,
        active: Set[NodeId],
        allows_unclean: Callable[[], bool] = lambda: False,
    ) -> None:
        """`active`: who may lead. `allows_unclean` is asked only where no clean election is possible."""
        self._topic_id = topic_id
        self._partition = partition
        self._state = state
        self._active = active
        self._unclean = allows_unclean
        self._isr = state[ISR]
        self._recovery_state: int = state[RECOVERY_STATE]

    def without(self, broker_id: NodeId) -> "PartitionChangeBuilder":
        """The broker leaves the ISR, unless it is the last member."""
        rest = tuple(member for member in self._isr if member != broker_id)
        if rest:
            self._isr = rest
        return self

    def with_isr(self, isr: NodeIds, recovery_state: int) -> "PartitionChangeBuilder":
        """The ISR that the leader proposes."""
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
        """The change, or None where nothing changes."""
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


class Visited(NamedTuple):
    """A partition on a walk."""

    topic: TopicImage
    partition: int
    state: PartitionState


class PartitionWalk:
    """A walk over all partitions that have a replica on one broker, in slices over several decisions.

    Which topics those are is settled at the start. That is sound for who makes sure first that the broker can enter no
    further ISR: what is created meanwhile, or was passed already, can't come to concern the walk.
    """

    __slots__ = ("_next_chunk", "_topic_ids", "broker_id", "last_step_ms")

    def __init__(self, image: MetadataImage, broker_id: NodeId, now_ms: int) -> None:
        self.broker_id = broker_id
        self.last_step_ms = now_ms
        self._topic_ids = list(reversed(image.topics_of_broker(broker_id)))
        self._next_chunk = 0

    @property
    def is_done(self) -> bool:
        return not self._topic_ids

    def step(
        self,
        image: MetadataImage,
        visit: Callable[[Visited], PartitionChange | None],
        *,
        changes_max: int,
        partitions_max: int,
    ) -> list[PartitionChange]:
        """The next slice: what `visit` makes of the partitions; exceeds neither limit by more than a chunk's 64."""
        changes: list[PartitionChange] = []
        seen = 0
        while self._topic_ids and len(changes) < changes_max and seen < partitions_max:
            topic = image.topic_by_id(self._topic_ids[-1])
            if topic is None or self._next_chunk >= len(topic.chunks):
                self._topic_ids.pop()
                self._next_chunk = 0
                continue
            for visited in self._chunk(topic):
                change = visit(visited)
                if change is not None:
                    changes.append(change)
            seen += _CHUNK_COST + len(topic.chunks[self._next_chunk])
            self._next_chunk += 1
        return changes

    def _chunk(self, topic: TopicImage) -> Iterator[Visited]:
        first = self._next_chunk * CHUNK_PARTITIONS
        for number, state in enumerate(topic.chunks[self._next_chunk], first):
            if self.broker_id in state[REPLICAS]:
                yield Visited(topic, number, state)
