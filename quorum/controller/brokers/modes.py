"""Modes: an operator keeps a broker out, or takes it out of work for maintenance, for as long as the operator wants.

    fenced         `FenceBroker`   the broker leads nothing, is in no ISR except as the last member, and stays fenced
    maintenance    `DrainBroker`   the broker stays online and in sync; it leads only where no other active broker is in the ISR

Both modes are records of the broker *id* (`BrokerMode`). So a mode survives a restart of the broker, a new active controller and
a snapshot, and ends only by `EndBrokerMode` or when the broker is unregistered. The meaning of a mode is in `broker_view`.

The mode is the last record of the change. Example. Broker 7 leads 30,000 partitions, and an operator drains it.
    1  The controller rests broker 7: elections choose others. The first batch moves 1,000 leaderships, and the answer waits.
    2  The node asks for the next slice (the same command) until the walk is done.
    3  The last batch has the mode. Now 4 partitions are led by broker 7, because no other member of their ISRs is active.
    4  Broker 8 enters the ISR of one of these four: the record of this change makes broker 8 the leader.

If controller 1 loses the leadership in step 2, the operator's request has an unknown outcome, every partition is in a valid
state, and the same request begins the drain again at controller 2.

Counter-example with the mode as the first record: brokers replay it, tools show broker 7 as drained, and the operator stops the
process while it leads 29,000 partitions.
"""

from dataclasses import replace
from typing import Final

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId
from metadata_log.format.partition_state import LEADER
from metadata_log.format.records import (
    MODE_REASON_CHARS_MAX,
    NO_MODE,
    BrokerMode,
    PartitionChange,
    RegisterBroker,
)
from metadata_log.format.records.levels import RECORD_LEVELS
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.brokers.resting_walks import next_deadline_ms, resting
from quorum.controller.brokers.returns import Returns
from quorum.controller.brokers.state_records import StateRecords
from quorum.controller.partitions.broker_view import BrokerViews
from quorum.controller.partitions.walks import PartitionWalk, Visited
from quorum.controller.protocol.brokers.broker_happenings import BrokerModeEnded, BrokerModeSet
from quorum.controller.protocol.brokers.state_reason import StateReason
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.decision import ControllerError, Decision
from quorum.controller.protocol.feature_gate import has_level, require_level
from quorum.controller.protocol.mode_commands import BrokerModeReply, DrainBroker, EndBrokerMode, Mode

_LEVEL: Final = RECORD_LEVELS[BrokerMode]
ABANDONED_MS: Final = 10_000
"""How long a drain may rest between two slices. After a longer rest the drain is abandoned."""


def knows_modes(image: MetadataImage) -> bool:
    """Tells whether all nodes of the cluster can read the record of a mode."""
    return has_level(image, _LEVEL)


def check_reason(reason: str) -> None:
    """Raises ControllerError(INVALID_REQUEST) for an operator's reason that is too long, or that a terminal would obey."""
    problem = None
    if len(reason) > MODE_REASON_CHARS_MAX:
        problem = f"the reason has {len(reason):,} characters; at most {MODE_REASON_CHARS_MAX} are allowed"
    elif not reason.isprintable():
        problem = "the reason has a character that cannot be printed"
    if problem is not None:
        raise ControllerError(ErrorCode.INVALID_REQUEST, f"{problem}; nothing was done")


def mode_of(image: MetadataImage, broker_id: NodeId) -> Mode | None:
    """The mode that an operator has given to the broker; None: none."""
    record: BrokerMode | None = image.broker_modes.get(broker_id)
    return None if record is None else Mode(record.mode)


class _Drain:
    """One broker's drain under way."""

    __slots__ = ("remaining", "walk")

    def __init__(self, walk: PartitionWalk) -> None:
        self.walk = walk
        self.remaining = 0
        """How many partitions the broker still leads, because no other member of their ISRs can lead."""


class Modes:
    """Decides the commands about modes, and owns the drains that are under way."""

    def __init__(
        self, config: ControllerConfig, views: BrokerViews, state_records: StateRecords, returns: Returns
    ) -> None:
        self._config = config
        self._views = views
        self._state_records = state_records
        self._returns = returns
        self._drains: dict[NodeId, _Drain] = {}

    def clear(self) -> None:
        self._drains.clear()

    # --- fencing ---------------------------------------------------------------------------------------------------

    def with_fence(self, image: MetadataImage, broker_id: NodeId, reason: str, fencing: Decision) -> Decision:
        """Adds the mode to the decision that fences the broker; `fencing` is empty if the broker is fenced already."""
        record, told = self._set(image, broker_id, Mode.FENCED, reason)
        return replace(fencing, records=(*fencing.records, *record), happenings=(*fencing.happenings, *told))

    def _set(
        self, image: MetadataImage, broker_id: NodeId, mode: Mode, reason: str, remaining: int = 0
    ) -> tuple[tuple[BrokerMode, ...], tuple[BrokerModeSet, ...]]:
        """The record and its story; nothing if the broker has this mode for this reason. Another reason keeps the time."""
        old: BrokerMode | None = image.broker_modes.get(broker_id)
        is_same_mode = old is not None and old.mode == mode.value
        if is_same_mode and old is not None and old.reason == reason:
            return (), ()
        since_ms = old.since_ms if is_same_mode and old is not None else self._state_records.since_ms()
        told = BrokerModeSet(broker_id, mode.word, reason, remaining)
        return (BrokerMode(broker_id, mode.value, reason, since_ms),), (told,)

    # --- maintenance -----------------------------------------------------------------------------------------------

    def drain(self, image: MetadataImage, broker: RegisterBroker, command: DrainBroker, now_ms: int) -> Decision:
        """Decides the next slice of a drain, the first one included. The last slice has the mode.

        Raises:
            ControllerError: UNSUPPORTED_VERSION, INVALID_REQUEST, or POLICY_VIOLATION for a broker that an operator has fenced.
        """
        require_level(image, _LEVEL, "a mode of a broker")
        check_reason(command.reason)
        broker_id, reply = broker.broker_id, BrokerModeReply(broker.broker_id)
        mode = mode_of(image, broker_id)
        if mode is Mode.FENCED:
            raise ControllerError(
                ErrorCode.POLICY_VIOLATION,
                f"broker {broker_id} is fenced by an operator: it leads nothing; nothing was done. "
                f"Unfence it first (`quorumctl brokers unfence {broker_id}`) if it is to be online in maintenance",
            )
        if command.validate_only:
            return Decision((), reply)
        if mode is Mode.MAINTENANCE:
            record, told = self._set(image, broker_id, Mode.MAINTENANCE, command.reason)
            return Decision(record, reply, happenings=told)
        drain = self._drains.get(broker_id)
        if drain is None:
            self._views.rest(broker_id)
            drain = self._drains[broker_id] = _Drain(PartitionWalk(image, broker_id, now_ms))
        changes = self._slice(image, broker_id, drain, now_ms)
        if not drain.walk.is_done:
            return Decision(changes, reply, then=command)
        self._forget(broker_id)
        record, told = self._set(image, broker_id, Mode.MAINTENANCE, command.reason, drain.remaining)
        moved = drain.walk.story(StateReason.MAINTENANCE)
        return Decision((*changes, *record), reply, happenings=(*told, *moved))

    def _slice(
        self, image: MetadataImage, broker_id: NodeId, drain: _Drain, now_ms: int
    ) -> tuple[PartitionChange, ...]:
        view = self._views.of(image)

        def give_up(visited: Visited) -> PartitionChange | None:
            if visited.state[LEADER] != broker_id:
                return None
            change = visited.builder(image, view, self._config).build()
            drain.remaining += change is None
            return change

        return tuple(drain.walk.step(image, give_up, self._config, now_ms))

    def _forget(self, broker_id: NodeId) -> None:
        del self._drains[broker_id]
        self._views.unrest(broker_id)

    def drop_abandoned(self, image: MetadataImage, now_ms: int) -> None:
        """Ends the drains whose last slice was never appended: the operator has heard of an unknown outcome.

        The broker may lead again, perhaps instead of another broker in maintenance, so the controller looks at all partitions.
        """
        for broker_id in resting(self._drains, ABANDONED_MS, now_ms):
            self._forget(broker_id)
            self._returns.begin_look(image, now_ms)

    def next_deadline_ms(self) -> int | None:
        """The time to call `drop_abandoned`."""
        return next_deadline_ms(self._drains, ABANDONED_MS)

    # --- the end ---------------------------------------------------------------------------------------------------

    def end(self, image: MetadataImage, broker: RegisterBroker, command: EndBrokerMode, now_ms: int) -> Decision:
        """Ends the mode. A fenced broker is back with its next fetch; a drained broker may be elected again.

        Raises:
            ControllerError: UNSUPPORTED_VERSION, or POLICY_VIOLATION for a broker in the other mode.
        """
        require_level(image, _LEVEL, "a mode of a broker")
        broker_id, reply = broker.broker_id, BrokerModeReply(broker.broker_id)
        mode = mode_of(image, broker_id)
        if mode is not None and mode is not command.mode:
            state, verb = ("fenced by an operator", "unfence") if mode is Mode.FENCED else ("in maintenance", "undrain")
            raise ControllerError(
                ErrorCode.POLICY_VIOLATION,
                f"broker {broker_id} is {state}; nothing was done: `quorumctl brokers {verb} {broker_id}` ends that",
            )
        if mode is None or command.validate_only:
            return Decision((), reply)
        others = self._views.of(image).resting - {broker_id}
        if mode is Mode.MAINTENANCE and others:  # another broker may lead what this broker can lead again
            self._returns.begin_look(image, now_ms)
        record = BrokerMode(broker_id, NO_MODE)
        return Decision((record,), reply, happenings=(BrokerModeEnded(broker_id, mode.word),))
