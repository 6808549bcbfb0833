"""The end of some runs: leaderships go back to the preferred replicas by themselves (L10).

The brokers are back, and their leaders take them into the ISRs, one proposal after the other. So at any moment a partition may
become one that its preferred replica could lead. The law is about time: no broker leads too little for longer than one interval,
plus the time of a check.
"""

from collections import Counter
from typing import TYPE_CHECKING

from metadata_log.format.ids import NodeId
from metadata_log.format.partition_state import DIRECTORIES, ISR, LEADER, REPLICAS
from metadata_log.image.log_directories import offline_replicas
from metadata_log.image.metadata_image import MetadataImage
from tests.sim.laws import hold

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster

WATCH_MS = 5_000
CHECK_MS = 1_500
"""How long a check and the commit of its last batch may take."""
LOOK_EVERY_MS = 100


class Balance:
    """Watches one healed cluster."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._since_ms: dict[NodeId, float] = {}
        """For each broker that leads too little, since when. The active controller must be the same all that time."""
        self._active: tuple[int, int] | None = None

    def run(self) -> None:
        """Raises LawBroken if a broker leads too little for too long."""
        cluster = self._cluster
        until_ms = cluster.now_ms + WATCH_MS
        look_ms = cluster.now_ms
        while cluster.now_ms < until_ms:
            cluster.next()
            if cluster.now_ms >= look_ms:
                look_ms = cluster.now_ms + LOOK_EVERY_MS
                self._look()

    def _look(self) -> None:
        options, now_ms = self._cluster.options, self._cluster.now_ms
        active = [each for each in self._cluster.controllers if each.node is not None and each.node.active.on]
        identity = (active[0].node_id, active[0].core.epoch) if len(active) == 1 else None
        if identity is None or identity != self._active:
            self._active = identity
            self._since_ms.clear()
            return
        node = active[0].node
        assert node is not None
        behind = leading_too_little(node.state.committed, options.imbalance_percentage)
        self._since_ms = {each: self._since_ms.get(each, now_ms) for each in behind}
        limit_ms = options.balance_every_ms + CHECK_MS
        for broker_id, since_ms in self._since_ms.items():
            text = f"b{broker_id} leads too little for {now_ms - since_ms:.0f} ms; a check is due every {limit_ms} ms"
            hold(now_ms - since_ms <= limit_ms, "L10 Balanced", text)


def leading_too_little(image: MetadataImage, percentage: int) -> list[NodeId]:
    """The brokers that lead too few of the partitions that prefer them, and that could lead more."""
    preferring: Counter[NodeId] = Counter()
    could_lead: Counter[NodeId] = Counter()
    for topic in image.topics_by_id.values():
        for state in topic.states():
            preferred = state[REPLICAS][0]
            broker = image.brokers[preferred]
            offline = offline_replicas(image.brokers, state[REPLICAS], state[DIRECTORIES])
            is_online = not broker.fenced and not broker.in_controlled_shutdown and preferred not in offline
            preferring[preferred] += 1
            could_lead[preferred] += is_online and preferred != state[LEADER] and preferred in state[ISR]
    return [each for each, count in could_lead.items() if 100 * count > percentage * preferring[each]]
