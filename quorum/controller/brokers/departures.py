"""Departures: brokers on their way to being fenced, over as many batches as that takes.

A departure takes the broker out of every ISR and from every leadership, slice by slice, before the fence record is written.
Meanwhile the broker is *barred*: the registration still says unfenced, but the controller gives the broker nothing (M3).

    1  Broker 7 holds 30,000 replicas. Its session ends. The controller bars broker 7; the first batch changes 1,000 partitions.
    2  The node asks for the next slice (`ContinueFencing`) until the walk is done.
    3  The last batch removes the entities of broker 7, and ends with the fence record, with the reason of step 1.

The departure is soft state. If the leadership is lost in step 2, every partition is in a valid state, and the next controller
begins a new departure when the broker is silent for a session.
"""

from typing import Final, NamedTuple

from metadata_log.format.ids import NodeId, Offset
from metadata_log.format.partition_state import ELR, ISR
from metadata_log.format.records import PartitionChange, RegisterBroker
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.brokers.resting_walks import next_deadline_ms, resting
from quorum.controller.partitions.broker_view import BrokerViews
from quorum.controller.partitions.election_rules import keeps_elr
from quorum.controller.partitions.walks import PartitionWalk, Visited
from quorum.controller.protocol.brokers.broker_happenings import ReplicasMoved
from quorum.controller.protocol.brokers.state_reason import StateReason
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.sessions.ephemerals import CHANGES_BESIDE_MAX, of_broker

STALLED_WALK_MS: Final = 1_000
"""How long a walk may rest. After a longer rest the last batch was never appended, and the controller continues the walk."""


class Cause(NamedTuple):
    """The reason of a fencing."""

    why: StateReason
    silent_ms: int | None = None
    """How long the broker was not heard, if its session has ended."""
    is_unclean: bool = False
    """The broker's process ended without a clean shutdown: the broker leaves the ELR too (KIP-966)."""

    @property
    def is_death(self) -> bool:
        """True if the broker's process is known to have ended."""
        return self.why is StateReason.PROCESS_DEAD


class Slice(NamedTuple):
    """The next batch of a departure."""

    changes: tuple[PartitionChange, ...]
    cause: Cause
    """The cause with which the departure began."""
    is_last: bool
    happenings: tuple[ReplicasMoved, ...]
    """The sum of all slices, with the last one."""


class _Departure(NamedTuple):
    walk: PartitionWalk
    cause: Cause


class Departures:
    """All brokers that are being fenced over several batches."""

    def __init__(self, config: ControllerConfig, views: BrokerViews) -> None:
        self._config = config
        self._views = views
        self._by_broker: dict[NodeId, _Departure] = {}
        self._left_at: dict[NodeId, Offset] = {}
        """The offset of the last slice of each broker's departure."""
        self._began_at: Offset = 0
        """The offset at which this controller became active. The controller does not know the moves before that offset."""

    def __contains__(self, broker_id: NodeId) -> bool:
        return broker_id in self._by_broker

    def begin(self, image: MetadataImage) -> None:
        """Notes that the controller is active from `image` on."""
        self._began_at = image.offset

    def clear(self) -> None:
        self._by_broker.clear()
        self._left_at.clear()

    def forget(self, broker_id: NodeId) -> None:
        """Ends the departure: the broker is fenced, registered anew or unregistered."""
        if self._by_broker.pop(broker_id, None) is not None:
            self._views.unbar(broker_id)

    def step(self, image: MetadataImage, broker_id: NodeId, cause: Cause, now_ms: int) -> Slice:
        """Makes the next slice of the broker's departure. A departure that is not under way begins with `cause`.

        A departure that was taken for a clean one begins again if `cause` says that it is unclean. A death replaces the cause
        of a departure that goes on.

        After the last slice the caller calls `forget`.
        """
        broker: RegisterBroker = image.brokers[broker_id]
        owns_entities = of_broker(broker_id, broker.broker_epoch) in image.owned
        departure = self._by_broker.get(broker_id)
        if departure is None or (cause.is_unclean and not departure.cause.is_unclean):
            self._views.bar(broker_id)
            departure = self._by_broker[broker_id] = _Departure(PartitionWalk(image, broker_id, now_ms), cause)
        elif cause.is_death:
            kept = cause._replace(is_unclean=departure.cause.is_unclean)
            departure = self._by_broker[broker_id] = departure._replace(cause=kept)
        view = self._views.of(image)
        self._left_at[broker_id] = image.offset

        def without(visited: Visited) -> PartitionChange | None:
            is_eligible = is_unclean and broker_id in visited.state[ELR]
            if broker_id not in visited.state[ISR] and not is_eligible:
                return None
            builder = visited.builder(image, view, self._config)
            return (builder.distrusting(broker_id) if is_unclean else builder.without(broker_id)).build()

        walk, cause = departure
        is_unclean = cause.is_unclean and keeps_elr(image)
        changes = walk.step(image, without, self._config, now_ms)
        # The last batch also removes the entities of the broker, and must have room for them.
        is_last = walk.is_done and (not owns_entities or len(changes) <= CHANGES_BESIDE_MAX)
        return Slice(tuple(changes), cause, is_last, walk.story(cause.why) if is_last else ())

    def cause_of(self, broker_id: NodeId) -> Cause:
        """The cause of a departure that is under way."""
        return self._by_broker[broker_id].cause

    def shows_last(self, broker_id: NodeId, offset: Offset) -> bool:
        """True if an image at `offset` (exclusive) holds the last fencing of the broker that this controller has decided.

        An older image may show an older fence. For example broker 101 registers, and so is fenced, at 226. Broker 101 is unfenced
        at 240, and its shutdown is decided at 297. In the image at 233 broker 101 is fenced too, but must not be told to end.
        """
        return offset > self._left_at.get(broker_id, -1) and offset >= self._began_at

    def stalled(self, now_ms: int) -> list[NodeId]:
        """The brokers whose walk has rested for too long."""
        return resting(self._by_broker, STALLED_WALK_MS, now_ms)

    def next_deadline_ms(self) -> int | None:
        """The time to call `stalled`."""
        return next_deadline_ms(self._by_broker, STALLED_WALK_MS)
