"""The effects of the records of brokers and controllers on an image; the other effects are in the neighbour files.

A broker is one record of the image: its registration, with the changes that came after it. The mode that an operator gave to the
broker's id is another record, because it survives a new registration.
"""

from metadata_log.format.ids import NODE_ID_MAX, NodeId, Offset
from metadata_log.format.records import (
    BROKER_RESOURCE,
    FROM_OFFSET,
    MAINTENANCE_MODE,
    MODE_REASON_CHARS_MAX,
    NO_MODE,
    STATE_REASON_CHARS_MAX,
    STATE_SINCE_MS_MAX,
    BrokerMode,
    BrokerRegistrationChange,
    RegisterBroker,
    RegisterController,
    UnregisterBroker,
)
from metadata_log.image.entity_delta import EntityDelta
from metadata_log.image.image_editor import DeltaKind, Edits, Law, Misfit


def _kept_epoch(old: RegisterBroker | None, new: RegisterBroker) -> int | None:
    """Return the epoch that the same incarnation keeps when it registers again."""
    return old.broker_epoch if old is not None and old.incarnation_id == new.incarnation_id else None


class BrokerDelta(EntityDelta):
    """Changes to the brokers and controllers of one image."""

    _controllers: Edits[NodeId, RegisterController] = Edits("controllers")
    _broker_modes: Edits[NodeId, BrokerMode] = Edits("broker_modes")

    def _register_broker(self, record: RegisterBroker, offset: Offset) -> None:
        """Set the broker epoch to the offset of the registration (M1). The same incarnation may register again and keep
        its epoch.
        """
        old = self._brokers.get(record.broker_id)
        if not 0 <= record.broker_id <= NODE_ID_MAX:
            raise Misfit(f"broker id {record.broker_id}")
        self._check_reason(record)
        if record.broker_epoch == FROM_OFFSET and self._kind is not DeltaKind.LOADING:
            record = record._replace(broker_epoch=offset)
        elif record.broker_epoch < 0:
            raise Misfit(f"broker {record.broker_id} without an epoch")
        elif self._kind is DeltaKind.STRICT and record.broker_epoch not in (offset, _kept_epoch(old, record)):
            raise Misfit(
                f"broker {record.broker_id} registers with epoch {record.broker_epoch}, neither a new one nor its own",
                Law.BROKER_EPOCH,
            )
        is_revived = old is not None and old.dead and old.incarnation_id == record.incarnation_id and not record.dead
        if is_revived and self._kind is DeltaKind.STRICT:
            raise Misfit(f"broker {record.broker_id} registers with a process that is dead", Law.DEATH)
        self._check_death(record)
        if old is not None and (record.fenced or record.broker_epoch != old.broker_epoch):
            self._end_broker_session(record.broker_id, old.broker_epoch)
        self._put(self._brokers, record.broker_id, record)
        self.changed.brokers.add(record.broker_id)

    @staticmethod
    def _check_death(broker: RegisterBroker) -> None:
        """Refuse a dead process that is not fenced: a process that is dead once never serves again."""
        if broker.dead and not broker.fenced:
            raise Misfit(f"broker {broker.broker_id} is dead and not fenced", Law.DEATH)

    @staticmethod
    def _check_reason(record: RegisterBroker | BrokerRegistrationChange) -> None:
        if len(record.reason) > STATE_REASON_CHARS_MAX or not 0 <= record.since_ms <= STATE_SINCE_MS_MAX:
            raise Misfit(f"broker {record.broker_id} with the reason {record.reason:.80} since {record.since_ms}")

    def _registration(self, broker_id: NodeId, broker_epoch: int) -> RegisterBroker:
        found = self._brokers.get(broker_id)
        if found is None:
            raise Misfit(f"broker {broker_id} is not registered", Law.NOTHING)
        if found.broker_epoch != broker_epoch:
            raise Misfit(f"broker {broker_id} has epoch {found.broker_epoch}, not {broker_epoch}", Law.STALE_EPOCH)
        return found

    def _change_registration(self, record: BrokerRegistrationChange, offset: Offset) -> None:
        old = self._registration(record.broker_id, record.broker_epoch)
        is_other_state = record.fenced is not None or record.in_controlled_shutdown is not None
        self._check_reason(record)
        new = old._replace(
            fenced=old.fenced if record.fenced is None else record.fenced,
            in_controlled_shutdown=old.in_controlled_shutdown
            if record.in_controlled_shutdown is None
            else record.in_controlled_shutdown,
            log_dirs=old.log_dirs if record.log_dirs is None else record.log_dirs,
            reason=record.reason if is_other_state else old.reason,
            since_ms=record.since_ms if is_other_state else old.since_ms,
            dead=old.dead or record.dead,
        )
        self._check_death(new)
        if new.fenced:
            self._end_broker_session(record.broker_id, record.broker_epoch)
        self._put(self._brokers, record.broker_id, new)
        self.changed.brokers.add(record.broker_id)

    def _unregister_broker(self, record: UnregisterBroker, offset: Offset) -> None:
        """Remove the broker with its labels. Its configs stay."""
        labels = (BROKER_RESOURCE, str(record.broker_id))
        if self._kind is DeltaKind.FOLDING and record.broker_id not in self._brokers:
            self._drop_labels(labels)
            return
        self._registration(record.broker_id, record.broker_epoch)
        self._end_broker_session(record.broker_id, record.broker_epoch)
        if record.broker_id in self._broker_modes:
            raise Misfit(f"broker {record.broker_id} has a mode that an operator has set")
        self._drop_labels(labels)
        self._drop(self._brokers, record.broker_id, "broker")
        self._registered.clear()
        self.changed.brokers.add(record.broker_id)

    def _broker_mode(self, record: BrokerMode, offset: Offset) -> None:
        broker_id = record.broker_id
        if not (
            NO_MODE <= record.mode <= MAINTENANCE_MODE
            and len(record.reason) <= MODE_REASON_CHARS_MAX
            and 0 <= record.since_ms <= STATE_SINCE_MS_MAX
        ):
            raise Misfit(f"mode {record.mode} of broker {broker_id}: a field is out of its limits")
        if self._kind is not DeltaKind.FOLDING and broker_id not in self._brokers:
            raise Misfit(f"a mode of broker {broker_id}, which is not registered", Law.NOTHING)
        self.changed.others = True
        if record.mode != NO_MODE:
            self._put(self._broker_modes, broker_id, record)
        elif self._kind is DeltaKind.LOADING:
            raise Misfit(f"broker {broker_id} without a mode")
        elif broker_id in self._broker_modes:
            self._drop(self._broker_modes, broker_id, "mode")

    def _register_controller(self, record: RegisterController, offset: Offset) -> None:
        self._put(self._controllers, record.controller_id, record)
        self.changed.controllers.add(record.controller_id)
