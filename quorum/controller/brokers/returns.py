"""Returns: a broker is online again, and may lead partitions that have no leader.

    1  Broker 7 alone is in the ISR of orders-0. Broker 7 is fenced: orders-0 has no leader.
    2  Broker 7 is online again. The record that unfences broker 7 and the first slice of its partitions are one batch, so
       orders-0 is led by broker 7 from the same moment on.
    3  The node asks for the next slice (`ElectLeaderless`) until the walk is done.

The walk is soft state. If the leadership is lost in step 3, the partitions of the slices that are missing stay without a
leader until one of their replicas returns once more.
"""

from typing import NamedTuple

from metadata_log.format.ids import NO_LEADER, NodeId
from metadata_log.format.partition_state import LEADER
from metadata_log.format.records import PartitionChange
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.partitions.broker_view import BrokerViews
from quorum.controller.partitions.walks import PartitionWalk, Visited
from quorum.controller.protocol.commands import ElectLeaderless
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.happenings import ReplicasMoved, StateReason


class Elected(NamedTuple):
    """The next slice of a return."""

    changes: tuple[PartitionChange, ...] = ()
    then: ElectLeaderless | None = None
    """The command for the rest."""
    happenings: tuple[ReplicasMoved, ...] = ()
    """The sum of all slices, with the last one."""


class Returns:
    """All brokers that have returned and may still be elected."""

    def __init__(self, config: ControllerConfig, views: BrokerViews) -> None:
        self._config = config
        self._views = views
        self._by_broker: dict[NodeId, PartitionWalk] = {}

    def clear(self) -> None:
        self._by_broker.clear()

    def forget(self, broker_id: NodeId) -> None:
        self._by_broker.pop(broker_id, None)

    def begin(self, image: MetadataImage, broker_id: NodeId, now_ms: int) -> Elected:
        """Makes the first slice. In `image` the broker is still fenced."""
        self._by_broker[broker_id] = PartitionWalk(image, broker_id, now_ms)
        return self._elect(image, broker_id, now_ms)

    def go_on(self, image: MetadataImage, broker_id: NodeId, now_ms: int) -> Elected:
        """Makes the next slice; nothing if the broker is not active any more."""
        if broker_id in self._by_broker and broker_id in self._views.of(image).active:
            return self._elect(image, broker_id, now_ms)
        self.forget(broker_id)
        return Elected()

    def _elect(self, image: MetadataImage, broker_id: NodeId, now_ms: int) -> Elected:
        active = self._views.of(image).active | {broker_id}

        def elect(visited: Visited) -> PartitionChange | None:
            if visited.state[LEADER] != NO_LEADER:
                return None
            return visited.builder(image, active).build()

        walk = self._by_broker[broker_id]
        changes = tuple(walk.step(image, elect, self._config, now_ms))
        if not walk.is_done:
            return Elected(changes, ElectLeaderless(broker_id))
        self.forget(broker_id)
        return Elected(changes, happenings=walk.story(StateReason.CAUGHT_UP))
