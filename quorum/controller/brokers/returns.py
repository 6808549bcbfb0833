"""Returns: a broker is online again, and may lead partitions that have no leader.

    1  Broker 7 alone is in the ISR of orders-0. Broker 7 is fenced: orders-0 has no leader.
    2  Broker 7 is online again. The record that unfences broker 7 and the first slice of its partitions are one batch, so
       orders-0 is led by broker 7 from the same moment on.
    3  The node asks for the next slice (`ElectLeaderless`) until the walk is done.

The walk is soft state. Counter-example without a look of the next controller:
    1  Broker 7 returns to 30,000 partitions. Controller 1 dies after the first of the three slices.
    2  Controller 2 becomes active. It finds broker 7 online, and does not know that broker 7 has just returned.
    3  The partitions of the other two slices have no leader, although broker 7 could lead them, until broker 7 returns once more.
So a controller that becomes active looks through all partitions once, in slices too. The controller looks once more when an
operator sets `unclean.leader.election.enable`: a partition without a leader may have one then. And the controller looks when an
operator ends a broker's maintenance: another broker in maintenance may lead a partition that this broker can lead now.

Both walks also finish reassignments that only wait for an active replica of the target (`target_replicas`).
"""

from collections.abc import Sequence
from typing import NamedTuple

from metadata_log.format.ids import NO_LEADER, NodeId
from metadata_log.format.partition_state import LEADER
from metadata_log.format.records import RECOVERING, PartitionChange
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.partitions.broker_view import BrokerViews
from quorum.controller.partitions.reassignment.reassignments import finished_story
from quorum.controller.partitions.replica_moves import elected_from_elr
from quorum.controller.partitions.target_replicas import is_reassigning
from quorum.controller.partitions.walks import PartitionWalk, Visited
from quorum.controller.protocol.brokers.state_reason import StateReason
from quorum.controller.protocol.commands import ElectLeaderless
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.happenings import Happening, LeadersElected, first_few


class Elected(NamedTuple):
    """The next slice of a return."""

    changes: tuple[PartitionChange, ...] = ()
    then: ElectLeaderless | None = None
    """The command for the rest."""
    happenings: tuple[Happening, ...] = ()


class Returns:
    """All brokers that have returned and may still be elected."""

    def __init__(self, config: ControllerConfig, views: BrokerViews) -> None:
        self._config = config
        self._views = views
        self._by_broker: dict[NodeId, PartitionWalk] = {}
        self._look: PartitionWalk | None = None
        """The look through all partitions. None: it is done."""

    def begin_look(self, image: MetadataImage, now_ms: int) -> None:
        """Begins a look through all partitions. `due` asks for its slices."""
        self._look = PartitionWalk(image, None, now_ms) if len(image.topics_by_id) else None

    @property
    def looks(self) -> bool:
        """True until the look through all partitions is done."""
        return self._look is not None

    def clear(self) -> None:
        self._by_broker.clear()
        self._look = None

    def forget(self, broker_id: NodeId) -> None:
        self._by_broker.pop(broker_id, None)

    def returned(self, image: MetadataImage, broker_id: NodeId, now_ms: int) -> Elected:
        """Makes the first slice of a return. In `image` the broker is still fenced."""
        self._by_broker[broker_id] = PartitionWalk(image, broker_id, now_ms)
        return self._elect(image, broker_id, now_ms)

    def go_on(self, image: MetadataImage, broker_id: NodeId, now_ms: int) -> Elected:
        """Makes the next slice of a return; nothing if the broker is not active any more."""
        if broker_id in self._by_broker and broker_id in self._views.of(image).active:
            return self._elect(image, broker_id, now_ms)
        self.forget(broker_id)
        return Elected()

    def _elect(self, image: MetadataImage, broker_id: NodeId, now_ms: int) -> Elected:
        walk = self._by_broker[broker_id]
        changes = self._slice(walk, image, self._views.of(image).active | {broker_id}, now_ms)
        finished = finished_story(image, changes)
        if not walk.is_done:
            return Elected(changes, ElectLeaderless(broker_id), finished)
        self.forget(broker_id)
        return Elected(changes, happenings=(*walk.story(StateReason.CAUGHT_UP), *finished))

    def look(self, image: MetadataImage, now_ms: int) -> Elected:
        """Makes the next slice of the look through all partitions; nothing if the look is done."""
        walk = self._look
        if walk is None:
            return Elected()
        changes = self._slice(walk, image, self._views.of(image).active, now_ms)
        if walk.is_done:
            self._look = None
        return Elected(changes, ElectLeaderless() if self.looks else None, _story(image, changes))

    def _slice(
        self, walk: PartitionWalk, image: MetadataImage, active: frozenset[NodeId], now_ms: int
    ) -> tuple[PartitionChange, ...]:
        view = self._views.of(image)

        def elect(visited: Visited) -> PartitionChange | None:
            leader = visited.state[LEADER]
            if leader == NO_LEADER:
                return visited.builder(image, view, self._config, active).build()
            if leader not in view.resting and not is_reassigning(visited.state):
                return None
            # A leader that is shutting down leads on until another can (`shutdowns`).
            return visited.builder(image, view, self._config, active | {leader}).build()

        return tuple(walk.step(image, elect, self._config, now_ms))


def _story(image: MetadataImage, changes: Sequence[PartitionChange]) -> tuple[LeadersElected, ...]:
    names = {change.topic_id: topic.name for change in changes if (topic := image.topic_by_id(change.topic_id))}
    elected = [change for change in changes if change.leader is not None]
    named = first_few(f"{names[change.topic_id]}-{change.partition}: {change.leader}" for change in elected)
    unclean = sum(change.leader_recovery_state == RECOVERING for change in elected)
    told = (LeadersElected(len(elected), named, unclean, elected_from_elr(image, changes)),) if elected else ()
    return (*told, *finished_story(image, changes))
