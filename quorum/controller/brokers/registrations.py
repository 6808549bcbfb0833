"""Registrations: a broker's process registers, changes its registration, and is unregistered.

A registration that takes the place of a live one fences the former process first, in slices. Example:

    1  Incarnation A of broker 7 leads 3,000 partitions, and dies. Incarnation B registers, and names A as its predecessor.
    2  The first decisions move the leaderships of A, slice by slice. Each of them names the same command as the next one.
    3  The last batch ends with the registration of B. Broker 7 is fenced, and has a new epoch.

The rules of a single registration are in `registration_rules`.
"""

from collections.abc import Callable

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId, uuid_text
from metadata_log.format.records import NO_MODE, BrokerMode, MetadataRecord, RegisterBroker
from metadata_log.format.records import UnregisterBroker as UnregisterBrokerRecord
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.brokers.admission import check_may_be_unregistered
from quorum.controller.brokers.departures import Cause, Departures
from quorum.controller.brokers.registration_rules import check_registration, may_have_lost_records, registration_record
from quorum.controller.brokers.sessions import Sessions
from quorum.controller.brokers.state_records import StateRecords
from quorum.controller.partitions.election_rules import keeps_elr
from quorum.controller.protocol.brokers.broker_happenings import (
    BrokerFenced,
    BrokerRegistered,
    BrokerUnregistered,
    Registration,
)
from quorum.controller.protocol.brokers.state_reason import StateReason
from quorum.controller.protocol.commands import (
    RegisterBrokerCommand,
    RegisterBrokerReply,
    UnregisterBroker,
    UnregisterBrokerReply,
)
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.decision import ControllerError, Decision
from quorum.controller.protocol.happenings import Happening
from quorum.controller.sessions.ephemerals import of_broker, removals


def registered(image: MetadataImage, broker_id: NodeId) -> RegisterBroker:
    """Returns the broker's registration. Raises ControllerError: BROKER_ID_NOT_REGISTERED."""
    broker: RegisterBroker | None = image.brokers.get(broker_id)
    if broker is None:
        raise ControllerError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")
    return broker


def identified(image: MetadataImage, broker_id: NodeId, broker_epoch: int) -> RegisterBroker:
    """Returns the registration with this epoch. Raises ControllerError; then the request has no effect (M2)."""
    broker = registered(image, broker_id)
    if broker.broker_epoch != broker_epoch:
        raise ControllerError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {broker_id} is registered with epoch {broker.broker_epoch}; the request has {broker_epoch}",
        )
    return broker


class Registrations:
    """Decides the commands about registrations."""

    def __init__(
        self,
        config: ControllerConfig,
        sessions: Sessions,
        departures: Departures,
        state_records: StateRecords,
        *,
        forget: Callable[[NodeId], None],
    ) -> None:
        """`forget` ends all work about a broker that is under way: the broker has another registration, or none."""
        self._config = config
        self._sessions = sessions
        self._departures = departures
        self._state_records = state_records
        self._forget = forget

    def register(self, image: MetadataImage, command: RegisterBrokerCommand, now_ms: int) -> Decision:
        """Raises ControllerError: INVALID_REGISTRATION, UNSUPPORTED_VERSION, DUPLICATE_BROKER_REGISTRATION."""
        check_registration(image, command)
        old: RegisterBroker | None = image.brokers.get(command.broker_id)
        if old is not None and old.incarnation_id == command.incarnation_id:
            self._check_not_dead(old)
            return self._amend(command, old)
        if old is not None and not old.dead and old.incarnation_id != command.previous_incarnation_id:
            self._check_not_live(old, now_ms)
        moves: tuple[MetadataRecord, ...] = ()
        told: tuple[Happening, ...] = ()
        kind = Registration.NEW if old is None else Registration.RESTARTED
        is_unclean = old is not None and keeps_elr(image) and may_have_lost_records(old, command)
        if old is not None and (not old.fenced or is_unclean):
            why = StateReason.REGISTERED if old.fenced else StateReason.SUPERSEDED
            left = self._departures.step(image, old.broker_id, Cause(why, is_unclean=is_unclean), now_ms)
            if not left.is_last:
                return Decision(left.changes, RegisterBrokerReply(), command, left.happenings)
            moves = (*left.changes, *removals(image, of_broker(old.broker_id, old.broker_epoch)))
            told = left.happenings
            if not old.fenced:
                kind = Registration.SUPERSEDES
                told = (BrokerFenced(old.broker_id, old.broker_epoch, *left.cause[:2]), *told)
        self._forget(command.broker_id)
        record = self._state_records.registered(image, registration_record(command, None))
        registered = BrokerRegistered(command.broker_id, kind, previous_epoch=None if old is None else old.broker_epoch)
        return Decision((*moves, record), RegisterBrokerReply(), happenings=(*told, registered))

    def _amend(self, command: RegisterBrokerCommand, old: RegisterBroker) -> Decision:
        """Replaces the registration of the same process, for example with other endpoints; nothing if nothing has changed."""
        reply = RegisterBrokerReply(broker_epoch=old.broker_epoch)
        record = registration_record(command, old)
        if record == old:
            return Decision((), reply)
        amended = BrokerRegistered(old.broker_id, Registration.AMENDED, old.broker_epoch, old.broker_epoch)
        return Decision((record,), reply, happenings=(amended,))

    def _check_not_dead(self, broker: RegisterBroker) -> None:
        if broker.dead:
            raise ControllerError(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                f"broker {broker.broker_id}: this very process was reported as dead, and may not come back; nothing was done. "
                "Restart it: a new process is welcome at once",
            )

    def _check_not_live(self, broker: RegisterBroker, now_ms: int) -> None:
        if self._sessions.is_live(broker.broker_id, broker.broker_epoch, now_ms):
            raise ControllerError(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                f"broker {broker.broker_id} is registered as incarnation {uuid_text(broker.incarnation_id)}, which was "
                f"heard within the session timeout of {self._config.session_timeout_ms} ms: is another process running "
                f"with this id? If that one is dead, try again when its session is over",
            )

    def unregister(self, image: MetadataImage, command: UnregisterBroker, now_ms: int) -> Decision:
        """Raises ControllerError: BROKER_ID_NOT_REGISTERED, POLICY_VIOLATION."""
        broker = registered(image, command.broker_id)
        check_may_be_unregistered(image, broker, self._sessions, now_ms)
        self._forget(broker.broker_id)
        mode = (BrokerMode(broker.broker_id, NO_MODE),) if broker.broker_id in image.broker_modes else ()
        entities = removals(image, of_broker(broker.broker_id, broker.broker_epoch))
        record = UnregisterBrokerRecord(broker.broker_id, broker.broker_epoch)
        gone = BrokerUnregistered(broker.broker_id, broker.broker_epoch)
        return Decision((*entities, *mode, record), UnregisterBrokerReply(), happenings=(gone,))
