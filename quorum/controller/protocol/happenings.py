"""Happenings: the story of a decision, in values that say what changed, for which broker, and why.

A decision carries its happenings beside its records. The node tells them once the decision's batch is committed, and never else:
one line in the controller's log and one step of a counter each (`quorum/wire/reporting/happening_lines.py`).

Example. Broker 7 leads 400 partitions. Its process dies at 12:00:00.
    1  At 12:00:09 its session ends. The active controller decides `FenceExpiredBrokers`. The decision has 401 records and two
       happenings: `BrokerFenced(7, SESSION_ENDED, silent_ms=9000)` and `ReplicasMoved(7, SESSION_ENDED, leaders_moved=400, ...)`.
    2  The batch is committed. The controller writes two log lines, not 401.
    3  At 12:30 the process runs again and registers: `BrokerRegistered(7, RESTARTED)`, then `BrokerOnline(7)`.

*The number of happenings does not grow with the number of records.* A happening about many things has counts, and names at most
NAMED_MAX of them. A config's key is named, its value never: the value may be a secret.

The happenings of brokers are in `brokers.broker_happenings`; all others, and the union of all, are here.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice
from typing import ClassVar, Final, TypeAlias, get_args

from metadata_log.format.ids import NodeId
from metadata_log.format.records import FROM_OFFSET
from quorum.controller.protocol.brokers.broker_happenings import (
    BrokerDied,
    BrokerFenced,
    BrokerModeEnded,
    BrokerModeSet,
    BrokerOnline,
    BrokerRegistered,
    BrokerStopping,
    BrokerUnregistered,
    LogDirectoriesLost,
    ReplicasAssigned,
    ReplicasMoved,
)

NAMED_MAX: Final = 5
"""How many topics, partitions or keys one happening names at most."""


# --- partitions ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IsrShrunk:
    """A leader has taken replicas out of the ISR of its partitions. `first` shows some: `orders-0: 101,102,103 -> 101,103`."""

    kind: ClassVar[str] = "isr shrunk"
    broker_id: NodeId
    """The leader."""
    partitions: int
    first: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IsrGrown:
    """A leader has added replicas to the ISR of its partitions."""

    kind: ClassVar[str] = "isr grown"
    broker_id: NodeId
    """The leader."""
    partitions: int
    first: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LeadersElected:
    """Partitions have got their preferred leaders, as an operator asked, or partitions without a leader have got one.

    The second happens when a controller that becomes active, or a changed config, makes the controller look at all partitions
    (`brokers.returns`). `first` shows some: `orders-0: 101`.
    """

    kind: ClassVar[str] = "leaders elected"
    partitions: int
    first: tuple[str, ...]
    unclean: int = 0
    """How many partitions got a leader that may lack records."""
    from_elr: int = 0
    """How many partitions got a leader from their eligible leader replicas, which is safe."""


@dataclass(frozen=True, slots=True)
class LeadersBalanced:
    """A periodic check has given partitions back to their preferred leaders (`partitions.balancing`).

    `brokers` is how many brokers led too few of the partitions that prefer them. `first` shows some: `orders-0: 101`.
    """

    kind: ClassVar[str] = "leaders balanced"
    partitions: int
    brokers: int
    first: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReassignmentsAltered:
    """A client has begun, replaced or cancelled reassignments. `first` shows some: `orders-0: 101,102 -> 104,102`.

    `finished` of the `begun` ones needed no new replica, and are finished already.
    """

    kind: ClassVar[str] = "reassignments altered"
    begun: int
    finished: int
    cancelled: int
    first: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReassignmentsFinished:
    """So many partitions have exactly the replicas that a reassignment has asked for. `first` shows some: `orders-0: 104,102`."""

    kind: ClassVar[str] = "reassignments finished"
    partitions: int
    first: tuple[str, ...]


# --- topics and configs --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopicsCreated:
    """Topics were created, with so many partitions in all."""

    kind: ClassVar[str] = "topics created"
    topics: int
    partitions: int
    first: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PartitionsAdded:
    """Topics got so many new partitions in all."""

    kind: ClassVar[str] = "partitions added"
    topics: int
    partitions: int
    first: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicsDeleted:
    """Topics were deleted, with so many partitions in all."""

    kind: ClassVar[str] = "topics deleted"
    topics: int
    partitions: int
    first: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConfigsChanged:
    """Config keys were set or removed. `first` shows some keys without their values: `topic orders: retention.ms`."""

    kind: ClassVar[str] = "configs changed"
    keys: int
    first: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConfigKeysChanged:
    """Definitions of config keys were written or removed. `first` shows some: `topic config 'acme.shard.count'`."""

    kind: ClassVar[str] = "config keys changed"
    defined: int
    removed: int
    first: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LabelsChanged:
    """Labels were attached, changed or removed. `first` shows some without their values: `topic 'orders': team`."""

    kind: ClassVar[str] = "labels changed"
    labels: int
    first: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClientQuotasChanged:
    """Quotas of clients were set or removed. `first` shows some without their values: `user alice: producer_byte_rate`."""

    kind: ClassVar[str] = "client quotas changed"
    quotas: int
    first: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AclsCreated:
    """ACLs were created. `first` shows some: `allow User:alice read on literal topic orders`."""

    kind: ClassVar[str] = "acls created"
    acls: int
    first: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AclsDeleted:
    """ACLs were deleted. `first` shows some."""

    kind: ClassVar[str] = "acls deleted"
    acls: int
    first: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UsersChanged:
    """SCRAM credentials of users were set or removed. `first` names some of the users."""

    kind: ClassVar[str] = "users changed"
    credentials: int
    first: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FeatureFinalized:
    """The cluster has agreed on the level of a feature."""

    kind: ClassVar[str] = "feature finalized"
    feature: str
    feature_level: int


@dataclass(frozen=True, slots=True)
class PartitionEpochsRaised:
    """The epochs of all partitions were raised, because `quorum recover` has begun a new generation."""

    kind: ClassVar[str] = "partition epochs raised"
    generation: int
    partitions: int


@dataclass(frozen=True, slots=True)
class ControllerRegistered:
    """A controller has said where it is reached and which features it supports."""

    kind: ClassVar[str] = "controller registered"
    controller_id: NodeId


# --- sessions of clients -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """A client has opened a session."""

    kind: ClassVar[str] = "session opened"
    name: str
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class SessionClosed:
    """A client has closed its session; `entities` of the session were removed."""

    kind: ClassVar[str] = "session closed"
    name: str
    entities: int


@dataclass(frozen=True, slots=True)
class SessionsExpired:
    """Sessions of clients, and entities with a TTL, were not heard in time; `entities` were removed."""

    kind: ClassVar[str] = "sessions expired"
    sessions: int
    ttls: int
    """How many entities with a TTL are among the removed."""
    entities: int
    first: tuple[str, ...]
    """The names of the first few sessions."""


Happening: TypeAlias = (
    BrokerRegistered
    | BrokerFenced
    | BrokerDied
    | BrokerOnline
    | BrokerStopping
    | BrokerUnregistered
    | BrokerModeSet
    | BrokerModeEnded
    | LogDirectoriesLost
    | ReplicasAssigned
    | ReplicasMoved
    | IsrShrunk
    | IsrGrown
    | LeadersElected
    | LeadersBalanced
    | ReassignmentsAltered
    | ReassignmentsFinished
    | TopicsCreated
    | PartitionsAdded
    | TopicsDeleted
    | ConfigsChanged
    | ConfigKeysChanged
    | LabelsChanged
    | ClientQuotasChanged
    | AclsCreated
    | AclsDeleted
    | UsersChanged
    | FeatureFinalized
    | PartitionEpochsRaised
    | ControllerRegistered
    | SessionOpened
    | SessionClosed
    | SessionsExpired
)

FREQUENT: Final = (
    TopicsCreated, PartitionsAdded, TopicsDeleted, ConfigsChanged, LabelsChanged, ClientQuotasChanged, AclsCreated,
    AclsDeleted, UsersChanged, IsrShrunk, IsrGrown, LeadersElected, ReassignmentsAltered, ReassignmentsFinished,
    ReplicasAssigned, SessionOpened, SessionClosed, SessionsExpired,
)  # fmt: skip
"""The kinds of which a client or a broker may cause any number."""

KINDS: Final[tuple[str, ...]] = tuple([happening.kind for happening in get_args(Happening)])
"""The kinds of all happenings."""


def first_few(names: Iterable[str]) -> tuple[str, ...]:
    """At most NAMED_MAX of `names`."""
    return tuple(islice(names, NAMED_MAX))


def appended_at(happening: Happening, broker_epoch: int) -> Happening:
    """The happening as it is told: a new registration has the epoch that its place in the log gives it."""
    if isinstance(happening, BrokerRegistered) and happening.broker_epoch == FROM_OFFSET:
        return replace(happening, broker_epoch=broker_epoch)
    return happening
