"""Controlled shutdowns: the controller moves a broker's leaderships, and then the process of the broker may end.

    1  Broker 7 asks to shut down. The controller sets the flag `in_controlled_shutdown`: broker 7 is not active any more, so it
       gets no new leadership.
    2  Slice by slice the controller gives its leaderships to active members of the ISRs, and takes broker 7 out of the ISRs.
    3  Broker 7 is the last active member of the ISR of orders-0. Another replica of orders-0 is active and may still enter the
       ISR. So orders-0 *holds* broker 7: the broker keeps this leadership and has to wait. (The broker itself stops waiting after
       `controlled.shutdown.deadline.ms`.)
    4  Every active broker applies the records of step 2, and so does broker 7. Until then broker 7 answers "not leader" to
       clients with old metadata, and names the next leader.
    5  The controller fences broker 7, and its process may end.

For a broker that leads no partition the controller continues with step 5 at once. The progress is soft state: after a failover
the new controller begins again at step 2.
"""

from metadata_log.format.ids import NodeId, Offset, Uuid
from metadata_log.format.partition_state import ELR, ISR, LEADER, REPLICAS
from metadata_log.format.records import MetadataRecord, PartitionChange, RegisterBroker
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.brokers.contact import BrokerState, Next, next_state, state_of
from quorum.controller.brokers.sessions import Sessions
from quorum.controller.brokers.state_records import StateRecords
from quorum.controller.partitions.broker_view import BrokerViews
from quorum.controller.partitions.walks import PartitionWalk, Visited
from quorum.controller.protocol.brokers.broker_happenings import BrokerStopping
from quorum.controller.protocol.brokers.state_reason import StateReason
from quorum.controller.protocol.commands import BrokerContactReply, ContinueShutdown
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.decision import Decision
from quorum.controller.protocol.happenings import Happening


class _Shutdown:
    """One broker's shutdown under way."""

    __slots__ = ("done_offset", "held_by", "walk")

    def __init__(self, walk: PartitionWalk) -> None:
        self.walk = walk
        self.held_by: list[tuple[Uuid, int]] = []
        """Partitions that the broker still leads: no other ISR member is active, but another active replica could catch up."""
        self.done_offset: Offset | None = None
        """The end of the records that moved the last leaderships; set once."""

    @property
    def is_settled(self) -> bool:
        """True if all leaderships that can move have moved."""
        return self.walk.is_done and not self.held_by


class Shutdowns:
    """All controlled shutdowns that are under way."""

    def __init__(
        self, config: ControllerConfig, sessions: Sessions, views: BrokerViews, state_records: StateRecords
    ) -> None:
        self._config = config
        self._state_records = state_records
        self._sessions = sessions
        self._views = views
        self._by_broker: dict[NodeId, _Shutdown] = {}

    @property
    def any(self) -> bool:
        return bool(self._by_broker)

    def __contains__(self, broker_id: NodeId) -> bool:
        return broker_id in self._by_broker

    def clear(self) -> None:
        self._by_broker.clear()

    def forget(self, broker_id: NodeId) -> None:
        self._by_broker.pop(broker_id, None)

    def advance(self, image: MetadataImage, broker: RegisterBroker, now_ms: int) -> Decision | None:
        """Decides the next step, the first one included; None if nothing holds the broker any more."""
        broker_id = broker.broker_id
        shutdown = self._by_broker.get(broker_id)
        if shutdown is None:
            shutdown = self._by_broker[broker_id] = _Shutdown(PartitionWalk(image, broker_id, now_ms))
        moves, leads = self._move_leaders(image, broker_id, shutdown, now_ms)
        state = state_of(broker)
        if state is BrokerState.ONLINE:
            is_held = leads or not shutdown.walk.is_done
        else:
            is_held = not self._is_seen(image, broker_id, shutdown)
        next_one = next_state(state, wants_fence=False, wants_shut_down=True, is_caught_up=True, is_held=is_held)
        if next_one is Next.MAY_GO:
            return None
        records: tuple[MetadataRecord, ...] = tuple(moves)
        happenings: tuple[Happening, ...] = shutdown.walk.story(StateReason.STOPPING)
        if state is BrokerState.ONLINE:
            flag = self._state_records.change(image, broker, StateReason.STOPPING, in_controlled_shutdown=True)
            records = (flag, *moves)
            happenings = (BrokerStopping(broker_id, broker.broker_epoch), *happenings)
        if shutdown.is_settled and shutdown.done_offset is None:
            shutdown.done_offset = image.offset + len(records)
        then = None if shutdown.walk.is_done else ContinueShutdown(broker_id)
        return Decision(records, BrokerContactReply(), then=then, happenings=happenings)

    def _move_leaders(
        self, image: MetadataImage, broker_id: NodeId, shutdown: _Shutdown, now_ms: int
    ) -> tuple[list[PartitionChange], bool]:
        """Moves the leaderships that can move now. Returns the changes, and True if the broker led any partition of this slice.

        A partition without another active member of its ISR or ELR keeps its leader until the broker is fenced. Such a partition
        holds the broker only while another replica of the partition is active.
        """
        view = self._views.of(image)
        active = view.active - {broker_id}
        leads = False
        held_before, shutdown.held_by = shutdown.held_by, []

        def move(visited: Visited) -> PartitionChange | None:
            nonlocal leads
            state = visited.state
            if broker_id not in state[ISR]:
                return None
            if state[LEADER] == broker_id:
                leads = True
                others = view.present(state, active)
                if others.isdisjoint(state[ISR]) and others.isdisjoint(state[ELR]):
                    if not others.isdisjoint(state[REPLICAS]):
                        shutdown.held_by.append((visited.topic.topic_id, visited.partition))
                    return None
            return visited.builder(image, view, self._config, active).without(broker_id).build()

        changes: list[PartitionChange] = []
        for index, (topic_id, partition) in enumerate(held_before):
            if index >= self._config.slice_partitions_max or len(changes) >= self._config.slice_changes_max:
                shutdown.held_by = held_before[index:] + shutdown.held_by
                leads = True
                break
            topic = image.topic_by_id(topic_id)
            state = None if topic is None else topic.state(partition)
            change = None if topic is None or state is None else move(Visited(topic, partition, state))
            if change is not None:
                changes.append(change)
        shutdown.walk.moves.add(image, changes)
        return changes + shutdown.walk.step(image, move, self._config, now_ms), leads

    def _is_seen(self, image: MetadataImage, broker_id: NodeId, shutdown: _Shutdown) -> bool:
        """True if every active broker has applied the records that moved the last leaderships, and the stopping broker itself.

        A broker that has not applied the moves serves as leader of an old epoch: its writes wait for followers that have left.
        """
        if shutdown.done_offset is None:
            return False
        lowest = self._sessions.lowest_offset(self._views.of(image).active | {broker_id}, image)
        return lowest is None or lowest >= shutdown.done_offset

    def first_let_go(self, image: MetadataImage) -> NodeId | None:
        """A stopping broker that may go now, because it and all active brokers have applied its moves; None if none may go."""
        for broker_id, shutdown in self._by_broker.items():
            if self._is_seen(image, broker_id, shutdown):
                return broker_id
        return None
