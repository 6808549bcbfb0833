"""The happenings of brokers: registered, fenced, online, stopping, and the replicas that move because of it.

`happenings` has the theory, with an example of a broker that dies and comes back.
"""

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from metadata_log.format.ids import NodeId
from metadata_log.format.records import FROM_OFFSET
from quorum.controller.protocol.brokers.state_reason import StateReason


class Registration(Enum):
    """The kinds of a registration."""

    NEW = "new"
    """The broker id was not registered."""
    RESTARTED = "restarted"
    """Another process takes over a broker id whose last registration is fenced."""
    SUPERSEDES = "supersedes"
    """Another process takes over a broker id whose last registration is not fenced."""
    AMENDED = "amended"
    """The same process has changed its endpoints, rack, features or data plane."""


@dataclass(frozen=True, slots=True)
class BrokerRegistered:
    """A broker process has registered. `previous_epoch` is the epoch of the registration that it replaces."""

    kind: ClassVar[str] = "broker registered"
    broker_id: NodeId
    why: Registration
    broker_epoch: int = FROM_OFFSET
    previous_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class BrokerFenced:
    """A broker is fenced: it leads nothing, and is in no ISR except as the last member.

    `silent_ms` is how long the controller had not heard the broker, or, if it never heard it, how long this controller was
    active; None where silence is not the reason.
    """

    kind: ClassVar[str] = "broker fenced"
    broker_id: NodeId
    broker_epoch: int
    why: StateReason
    silent_ms: int | None = None


@dataclass(frozen=True, slots=True)
class BrokerDied:
    """The process of a broker that was fenced already has ended, as a watcher has proved: it is never unfenced again.

    For a broker that was not fenced there is `BrokerFenced(PROCESS_DEAD)` instead.
    """

    kind: ClassVar[str] = "broker process died"
    broker_id: NodeId
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class BrokerOnline:
    """A fenced broker has applied its own registration and is unfenced."""

    kind: ClassVar[str] = "broker online"
    broker_id: NodeId
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class BrokerStopping:
    """A broker has begun its controlled shutdown. `BrokerFenced(SHUT_DOWN)` follows when the broker may end its process."""

    kind: ClassVar[str] = "broker stopping"
    broker_id: NodeId
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class BrokerUnregistered:
    """An operator has removed a broker from the cluster."""

    kind: ClassVar[str] = "broker unregistered"
    broker_id: NodeId
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class BrokerModeSet:
    """An operator has fenced or drained a broker, with this reason. `remaining`: how many partitions the drained broker still
    leads, because no other active broker is in their ISRs."""

    kind: ClassVar[str] = "broker mode set"
    broker_id: NodeId
    mode: str
    reason: str
    remaining: int


@dataclass(frozen=True, slots=True)
class BrokerModeEnded:
    """An operator has ended the mode of a broker."""

    kind: ClassVar[str] = "broker mode ended"
    broker_id: NodeId
    mode: str


@dataclass(frozen=True, slots=True)
class LogDirectoriesLost:
    """A broker has reported log directories as offline: `lost` of them now, and `left` remain."""

    kind: ClassVar[str] = "log directories lost"
    broker_id: NodeId
    broker_epoch: int
    lost: int
    left: int


@dataclass(frozen=True, slots=True)
class ReplicasAssigned:
    """A broker has said in which log directories `replicas` of its replicas are."""

    kind: ClassVar[str] = "replicas assigned to directories"
    broker_id: NodeId
    replicas: int


@dataclass(frozen=True, slots=True)
class ReplicasMoved:
    """All partition changes that follow from a broker's change of state, over all their batches (`replica_moves`).

    `why` is the reason of the broker's new state. For example `CAUGHT_UP`: partitions without a leader are led by the broker.
    """

    kind: ClassVar[str] = "replicas moved"
    broker_id: NodeId
    why: StateReason
    leaders_moved: int
    """How many partitions got another leader."""
    without_leader: int
    """How many partitions lost their leader and got none."""
    isr_changed: int
    """How many partitions got another ISR."""
    unclean: int
    """How many partitions got a leader that may lack records."""
    from_elr: int = 0
    """How many partitions got a leader from their eligible leader replicas, which is safe."""
