"""The records that change a broker's state, with the reason and the time of the change.

An operator asks an hour later: "why is broker 7 fenced?" By then the soft state of the controller that fenced broker 7 may be
gone. So the record itself says why (`StateReason`) and since when (the time of day of the controller that decided).

A broker of an older release cannot read these two fields: it takes a record with unknown fields for damage. So a controller
writes them only while every registered broker has the feature `broker.state.reasons` in its registration. For example in an
upgrade, with brokers 101 and 102 of the new release and 103 of the old one: 101 is fenced without a reason in the record, and the
log line alone says why. After 103 has registered again with the new release, every record has its reason.
"""

from metadata_log.format.records import STATE_SINCE_MS_MAX, BrokerRegistrationChange, RegisterBroker
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.partitions.broker_view import BrokerViews, reads_reasons
from quorum.controller.protocol.brokers.state_reason import StateReason


class StateRecords:
    """Makes these records for one controller."""

    def __init__(self, views: BrokerViews) -> None:
        self._views = views
        self.wall_ms = 0
        """The time of day of the decision at hand, in ms since 1970; 0: not known."""

    def change(
        self,
        image: MetadataImage,
        broker: RegisterBroker,
        reason: StateReason,
        *,
        fenced: bool | None = None,
        in_controlled_shutdown: bool | None = None,
    ) -> BrokerRegistrationChange:
        """The record that changes the broker's state."""
        record = BrokerRegistrationChange(
            broker.broker_id, broker.broker_epoch, fenced=fenced, in_controlled_shutdown=in_controlled_shutdown
        )
        if not self._views.of(image).all_read_reasons:
            return record
        return record._replace(reason=reason.value, since_ms=self.since_ms())

    def registered(self, image: MetadataImage, record: RegisterBroker) -> RegisterBroker:
        """A new registration, with its reason."""
        if not (reads_reasons(record.features) and self._views.of(image).all_read_reasons):
            return record
        return record._replace(reason=StateReason.REGISTERED.value, since_ms=self.since_ms())

    def since_ms(self) -> int:
        """The time of day of the decision at hand, as records have it."""
        return min(max(0, self.wall_ms), STATE_SINCE_MS_MAX)
