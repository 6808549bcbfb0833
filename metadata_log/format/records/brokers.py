"""Records of brokers and controllers: registrations and their changes."""

from typing import NamedTuple

from metadata_log.format.ids import NodeId, Uuid
from metadata_log.format.records.registry import FROM_OFFSET, Endpoint, FeatureRange, record

EXTERNAL_DATA_PLANE = "external"
NO_DATA_PLANE = "none"
"""The mover of a broker's data. `external`: a data plane beside the agent, which proposes ISRs. `none`: nothing, so the
agent proposes ISRs."""

STATE_REASONS = "broker.state.reasons"
"""A feature in registrations. A broker that supports level 1 can read `reason` and `since_ms` in the records of brokers. A
controller writes these fields only while every registered broker supports the feature: older brokers take them for damage."""
STATE_REASON_CHARS_MAX = 64
"""Maximum length of `reason`."""
STATE_SINCE_MS_MAX = 253_402_300_799_999
"""Maximum of `since_ms`: the end of the year 9999, the last that tools can show."""

NO_MODE = 0
FENCED_MODE = 1
MAINTENANCE_MODE = 2
"""The modes of brokers that an operator sets (`BrokerMode`)."""
MODE_REASON_CHARS_MAX = 200
"""Maximum length of an operator's reason for a mode."""


@record(0)
class RegisterBroker(NamedTuple):
    """A broker process has registered. Canonical: the state of a broker. Replaces an earlier registration of the same id.

    `reason` says why the broker is fenced, online or stopping (`StateReason` in `quorum.controller`), and `since_ms` when
    that state began, in ms since 1970. Empty and 0 in records that an older release wrote. `dead`: a watcher has proved that the
    process has ended, so this registration stays fenced for ever.
    """

    broker_id: NodeId
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[Uuid, ...]
    broker_epoch: int = FROM_OFFSET
    data_plane: str = EXTERNAL_DATA_PLANE
    reason: str = ""
    since_ms: int = 0
    dead: bool = False


@record(1)
class UnregisterBroker(NamedTuple):
    """The broker was removed for good."""

    broker_id: NodeId
    broker_epoch: int


@record(17)
class BrokerRegistrationChange(NamedTuple):
    """A part of a registration has changed; None leaves a field unchanged.

    `reason` and `since_ms` belong to a change of `fenced` or `in_controlled_shutdown`, and replace those of the registration.
    `dead` is true in the record of a death; no record takes it back.
    """

    broker_id: NodeId
    broker_epoch: int
    fenced: bool | None = None
    in_controlled_shutdown: bool | None = None
    log_dirs: tuple[Uuid, ...] | None = None
    reason: str = ""
    since_ms: int = 0
    dead: bool = False


@record(61)
class BrokerMode(NamedTuple):
    """An operator has set the mode of a broker id. Canonical. NO_MODE ends the mode.

    FENCED_MODE        the broker stays fenced, whatever the broker says
    MAINTENANCE_MODE   the broker leads only where no other active broker is in the ISR, and gets no new replicas

    The mode belongs to the broker id, and not to a registration: the mode survives the registration of another process.
    `reason` is the operator's text. `since_ms` is the time of day of the controller that decided, in ms since 1970.
    """

    broker_id: NodeId
    mode: int
    reason: str = ""
    since_ms: int = 0


@record(27)
class RegisterController(NamedTuple):
    """A controller's endpoints and supported features. Canonical."""

    controller_id: NodeId
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]
