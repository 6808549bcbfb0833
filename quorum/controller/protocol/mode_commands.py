"""The commands for the modes that operators give to brokers, and their reply. `FenceBroker` is in `commands`.

    FenceBroker    the broker is fenced, and stays fenced until `EndBrokerMode`
    DrainBroker    maintenance: the leaderships move away, and nothing new is placed on the broker, until `EndBrokerMode`

The decisions are in `quorum.controller.brokers.modes`.
"""

from dataclasses import dataclass
from enum import Enum

from metadata_log.format.ids import NodeId, Offset
from metadata_log.format.records import FENCED_MODE, MAINTENANCE_MODE
from quorum.controller.protocol.replies import NOT_APPENDED


class Mode(Enum):
    """The modes, with the numbers of the record `BrokerMode`."""

    FENCED = FENCED_MODE
    """The operator keeps the broker out."""
    MAINTENANCE = MAINTENANCE_MODE
    """The broker leads only where no other active broker is in the ISR, and gets no new replicas."""

    @property
    def word(self) -> str:
        """The mode in log lines, in the API and in tables."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class DrainBroker:
    """Begin the maintenance of a broker. With `validate_only` nothing is written."""

    broker_id: NodeId
    reason: str = ""
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class EndBrokerMode:
    """End this mode of a broker; nothing if the broker has no mode. With `validate_only` nothing is written."""

    broker_id: NodeId
    mode: Mode
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class BrokerModeReply:
    """The reply to `DrainBroker` and `EndBrokerMode`."""

    broker_id: NodeId
    offset: Offset = NOT_APPENDED
