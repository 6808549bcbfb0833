"""The end of some runs: reassignments are finished (L12).

The brokers are back, and their leaders take replicas into the ISRs, one proposal after the other. A reassignment whose target is
online must end within the time of a few proposals. Clients begin, replace and cancel others meanwhile: the law watches each
reassignment by its own replicas.
"""

from typing import TYPE_CHECKING, TypeAlias

from metadata_log.format.ids import NO_LEADER, NodeId, Uuid
from metadata_log.format.partition_state import ADDING, DIRECTORIES, LEADER, REMOVING, REPLICAS, PartitionState
from metadata_log.image.log_directories import offline_replicas
from metadata_log.image.metadata_image import MetadataImage
from tests.sim.laws import hold

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster

WATCH_MS = 12_000
LIMIT_MS = 8_000
"""How long a reassignment may take: a proposal for each of three replicas, of which some are late, wrong or lost."""
LOOK_EVERY_MS = 100

Move: TypeAlias = tuple[Uuid, int, tuple[NodeId, ...], tuple[NodeId, ...]]
"""One reassignment: topic, partition, and the replicas that it adds and removes."""


class Moves:
    """Watches one healed cluster."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._since_ms: dict[Move, float] = {}
        """The reassignments that could be finished, and since when."""

    def run(self) -> None:
        """Raises LawBroken if a reassignment that could be finished goes on for too long."""
        cluster = self._cluster
        until_ms = cluster.now_ms + WATCH_MS
        look_ms = cluster.now_ms
        while cluster.now_ms < until_ms:
            cluster.next()
            if cluster.now_ms >= look_ms:
                look_ms = cluster.now_ms + LOOK_EVERY_MS
                self._look()

    def _look(self) -> None:
        cluster = self._cluster
        active = [each.node for each in cluster.controllers if each.node is not None and each.node.active.on]
        if len(active) != 1:
            self._since_ms.clear()
            return
        now_ms = cluster.now_ms
        waiting = [] if active[0] is None else list(_could_finish(active[0].state.committed))
        self._since_ms = {move: self._since_ms.get(move, now_ms) for move in waiting}
        for (_, partition, adding, removing), since_ms in self._since_ms.items():
            text = f"partition {partition} adds {adding} and removes {removing} for {now_ms - since_ms:.0f} ms"
            hold(now_ms - since_ms <= LIMIT_MS, "L12 Reassigned", text)


def _could_finish(image: MetadataImage) -> list[Move]:
    return [
        (topic.topic_id, number, state[ADDING], state[REMOVING])
        for topic in image.topics_by_id.unordered_values()
        for number in topic.reassigning
        for state in (topic.state(number),)
        if state is not None and state[LEADER] != NO_LEADER and _is_online(image, state)
    ]


def _is_online(image: MetadataImage, state: PartitionState) -> bool:
    """True if the leader and all replicas of the target may be in the ISR."""
    needed = {state[LEADER], *state[REPLICAS]} - set(state[REMOVING])
    if not needed.isdisjoint(offline_replicas(image.brokers, state[REPLICAS], state[DIRECTORIES])):
        return False
    brokers = [image.brokers.get(each) for each in (*needed, state[LEADER])]
    return not any(each is None or each.fenced or each.in_controlled_shutdown for each in brokers)
