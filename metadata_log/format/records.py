"""Every record that the `@metadata` log may hold, each defined once.

Controllers write and replay these, brokers replay them, snapshots are made of them and the Spark jobs fold them; they
all share this file. A record is a `NamedTuple`, so it is frozen, compact and packs as it stands: on disk it is the
MessagePack array `[type, version, field, field, ...]` (see `codec`).

How the file may change, so that old bytes decode for ever:
  * a type number is never reused;
  * fields are only ever appended, and an appended field has a default;
  * what a field means never changes.

Adding a record type touches at most four files: this one (the class, and the union at its end), `delta` (what the record
does, in `REPLAYS`), the file in `quorum/controller` that decides to write it; and, if it is canonical, as below, `image`
(the field that keeps the entity, and its place in `canonical_records`). Which of its fields are ids or secrets it says
itself, by the annotations `Uuid` and `Secret`.

*Canonical records.* The image of the cluster is a keyed set of records: the state of a broker is one `RegisterBroker`,
that of a partition one `Partition`, and so on. Records that only change or remove something (`PartitionChange`,
`RemoveTopic`) fold into those. A snapshot is the canonical records in canonical order, and the digest of an image is the
sum of their hashes; that is why every node, and the Spark job, can arrive at the same bytes.

Type numbers and meanings are those of Kafka's metadata records where Kafka has them (metadata/.../common/metadata), less
the legacy and ZooKeeper ones. From 64 on are control records: they speak to the quorum itself, not to the image.
"""

from collections.abc import Callable
from typing import Annotated, NamedTuple, TypeAlias, TypeVar

from metadata_log.format.ids import Epoch, NodeId, Offset, Uuid

FROM_OFFSET = -1
"""In `RegisterBroker.broker_epoch`: the broker's epoch is the offset of this very record (true in the log, not in snapshots).
In `RequestOutcome.offset` likewise."""

Secret: TypeAlias = Annotated[bytes, "secret"]
"""What could open a door: no tool shows it."""


class Endpoint(NamedTuple):
    """Where a node listens: the listener's name, and a host and port that others can reach."""

    listener: str
    host: str
    port: int


class FeatureRange(NamedTuple):
    """The levels of one feature that a node can work with, both inclusive."""

    name: str
    min_level: int
    max_level: int


class QuotaEntity(NamedTuple):
    """One part of what a quota is for: type is `user`, `client-id` or `ip`; a name of None is the default entity."""

    entity_type: str
    name: str | None


class Voter(NamedTuple):
    """One member of the voter set (KIP-853)."""

    node_id: NodeId
    directory_id: Uuid
    endpoints: tuple[Endpoint, ...]
    kraft_version_min: int = 0
    kraft_version_max: int = 1


T = TypeVar("T", bound=tuple[object, ...])

RECORD_TYPES: dict[int, type[tuple[object, ...]]] = {}
"""Type number -> record class."""

TYPE_NUMBERS: dict[type[tuple[object, ...]], int] = {}
"""Record class -> type number."""

FIRST_CONTROL_TYPE = 64

RECORD_VERSION = 0
"""The version that this code writes for every record type; a higher one in the log is a record from the future."""


def record(type_number: int) -> Callable[[type[T]], type[T]]:
    """Gives the class its number in the log. Each number is taken once."""

    def register(cls: type[T]) -> type[T]:
        assert type_number not in RECORD_TYPES, f"type {type_number} is taken by {RECORD_TYPES[type_number].__name__}"
        RECORD_TYPES[type_number] = cls
        TYPE_NUMBERS[cls] = type_number
        return cls

    return register


# --- brokers and controllers ---------------------------------------------------------------------------------------


EXTERNAL_DATA_PLANE = "external"
NO_DATA_PLANE = "none"
"""What moves a broker's data: something beside the agent, which then proposes ISRs; or nothing, and then the agent does."""


STATE_REASONS = "broker.state.reasons"
"""A feature in registrations. A broker that supports level 1 can read `reason` and `since_ms` in the records of brokers. A
controller writes these fields only while every registered broker supports the feature: older brokers take them for damage."""
STATE_REASON_CHARS_MAX = 64
"""Maximum length of `reason`."""


@record(0)
class RegisterBroker(NamedTuple):
    """A broker process has registered; canonical state of a broker. Replaces any earlier registration of the id.

    `reason` is a word for why the broker is fenced, online or stopping (`StateReason` in `quorum.controller`), and `since_ms` the
    time of day, in ms since 1970, of the change to that state. Empty and 0: not known, an older release has written the change.
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


@record(1)
class UnregisterBroker(NamedTuple):
    """The broker is gone for good."""

    broker_id: NodeId
    broker_epoch: int


@record(17)
class BrokerRegistrationChange(NamedTuple):
    """Part of a registration has changed; None leaves a field as it is.

    `reason` and `since_ms` belong to a change of `fenced` or `in_controlled_shutdown`, and replace those of the registration.
    """

    broker_id: NodeId
    broker_epoch: int
    fenced: bool | None = None
    in_controlled_shutdown: bool | None = None
    log_dirs: tuple[Uuid, ...] | None = None
    reason: str = ""
    since_ms: int = 0


@record(27)
class RegisterController(NamedTuple):
    """A controller says where it is reached and what it supports; canonical."""

    controller_id: NodeId
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]


# --- topics and partitions -----------------------------------------------------------------------------------------


@record(2)
class Topic(NamedTuple):
    """A topic exists; canonical. Names and live ids are one to one, and an id is never used again."""

    name: str
    topic_id: Uuid


@record(9)
class RemoveTopic(NamedTuple):
    """The topic, its partitions and its configs are gone. Carries the name too, so that a fold by entity can follow it."""

    name: str
    topic_id: Uuid


RECOVERED = 0
RECOVERING = 1
"""Leader recovery states: after an unclean election a leader is RECOVERING until it has made its log consistent."""


@record(3)
class Partition(NamedTuple):
    """A partition as a whole; canonical. `leader` is NO_LEADER or a member of `isr`; `isr` is a subset of `replicas`."""

    topic_id: Uuid
    partition: int
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    removing_replicas: tuple[NodeId, ...]
    adding_replicas: tuple[NodeId, ...]
    leader: NodeId
    leader_recovery_state: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[Uuid, ...] = ()
    elr: tuple[NodeId, ...] = ()
    last_known_elr: tuple[NodeId, ...] = ()


@record(5)
class PartitionChange(NamedTuple):
    """Some fields of a partition have changed; None leaves a field as it is.

    Replay adds 1 to the partition epoch, and 1 to the leader epoch where `leader` is not None (also when it names the
    same leader again).
    """

    topic_id: Uuid
    partition: int
    isr: tuple[NodeId, ...] | None = None
    leader: NodeId | None = None
    replicas: tuple[NodeId, ...] | None = None
    removing_replicas: tuple[NodeId, ...] | None = None
    adding_replicas: tuple[NodeId, ...] | None = None
    leader_recovery_state: int | None = None
    directories: tuple[Uuid, ...] | None = None
    elr: tuple[NodeId, ...] | None = None
    last_known_elr: tuple[NodeId, ...] | None = None


@record(28)
class ClearElr(NamedTuple):
    """Eligible leader replicas are forgotten: of one topic, or of all where name and id are None (KIP-966)."""

    topic_name: str | None
    topic_id: Uuid | None


# --- configs, features, quotas, security ---------------------------------------------------------------------------

BROKER_RESOURCE = 4
TOPIC_RESOURCE = 2
"""Config resource types, with Kafka's numbers. The name of the cluster-wide broker default is the empty string."""


@record(4)
class Config(NamedTuple):
    """One config key of one resource; canonical. A value of None removes the key."""

    resource_type: int
    resource_name: str
    key: str
    value: str | None


@record(12)
class FeatureLevel(NamedTuple):
    """The finalized level of a feature such as `metadata.version`; canonical. Level 0 removes it."""

    name: str
    level: int


@record(14)
class ClientQuota(NamedTuple):
    """One quota of one client entity; canonical. A value of None removes it. `entity` is sorted by type."""

    entity: tuple[QuotaEntity, ...]
    key: str
    value: float | None


@record(15)
class ProducerIds(NamedTuple):
    """A block of producer ids was given out; `next_producer_id` is the first that was not. Canonical, one in all."""

    broker_id: NodeId
    broker_epoch: int
    next_producer_id: int


@record(18)
class AccessControlEntry(NamedTuple):
    """One ACL; canonical."""

    entry_id: Uuid
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


@record(19)
class RemoveAccessControlEntry(NamedTuple):
    """The ACL is gone."""

    entry_id: Uuid


@record(11)
class UserScramCredential(NamedTuple):
    """What is needed to check a user's password without knowing it (RFC 5802); canonical."""

    user: str
    mechanism: int
    salt: Secret
    stored_key: Secret
    server_key: Secret
    iterations: int


@record(22)
class RemoveUserScramCredential(NamedTuple):
    """The credential is gone."""

    user: str
    mechanism: int


@record(10)
class DelegationToken(NamedTuple):
    """A delegation token was issued or renewed; canonical."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    expiration_timestamp_ms: int
    max_timestamp_ms: int


@record(26)
class RemoveDelegationToken(NamedTuple):
    """The token is gone."""

    token_id: str


# --- requests that were done ---------------------------------------------------------------------------------------

REQUEST_SLOTS_MAX = 1 << 20
REMEMBERED_REPLY_BYTES_MAX = 2 << 10
PRINCIPAL_CHARS_MAX = 256
PAYLOAD_HASH_BYTES = 32
"""Limits of a `RequestOutcome`, whatever those of who decides."""


@record(60)
class RequestOutcome(NamedTuple):
    """A client's request with an id was done, in the batch that this record closes; canonical.

    The outcomes stand in a ring of slots, and each replaces the one that was in its slot before, so that the number of
    those remembered is bounded and each slot's history can be folded alone. Every outcome at or above offset `horizon` is
    still remembered. `reply` is the answer less its offset; None: it was too large. `offset` is that of this very record
    (FROM_OFFSET in the log, filled in by replay), so the batch ended one above it.
    """

    slot: int
    request_id: Uuid
    payload_hash: bytes
    principal: str
    horizon: Offset
    reply: bytes | None
    offset: Offset = FROM_OFFSET


# --- the log's own punctuation -------------------------------------------------------------------------------------


@record(20)
class NoOp(NamedTuple):
    """Says nothing. An idle cluster writes none of these; replay accepts them."""


@record(23)
class BeginTransaction(NamedTuple):
    """What follows takes effect together, at `EndTransaction` (KIP-868)."""

    name: str


@record(24)
class EndTransaction(NamedTuple):
    """The open transaction takes effect."""


@record(25)
class AbortTransaction(NamedTuple):
    """The open transaction never was."""

    reason: str


# --- control records: to the quorum, not to the image --------------------------------------------------------------


@record(64)
class LeaderChange(NamedTuple):
    """The first record of an epoch: who leads it, and who voted for that."""

    leader_id: NodeId
    voters: tuple[NodeId, ...]
    granting_voters: tuple[NodeId, ...]


@record(65)
class SnapshotHeader(NamedTuple):
    """Opens a snapshot. The timestamp is that of the last batch below the snapshot's end."""

    format_version: int
    end_offset: Offset
    epoch: Epoch
    last_contained_log_timestamp_ms: int


@record(66)
class SnapshotFooter(NamedTuple):
    """Closes a snapshot: the log's chain at its end, and the digest and number of the records inside."""

    chain: bytes
    digest: bytes
    record_count: int


@record(67)
class KRaftVersion(NamedTuple):
    """The level of the quorum's own protocol: 1 means that the voter set lives in the log."""

    level: int


@record(68)
class Voters(NamedTuple):
    """The voter set, in force as soon as it is appended (KIP-853). Sorted by node id."""

    voters: tuple[Voter, ...]


@record(69)
class SnapshotMark(NamedTuple):
    """Once this is committed, every node writes its snapshot at the offset just after it."""

    reason: str


ControlRecord: TypeAlias = LeaderChange | SnapshotHeader | SnapshotFooter | KRaftVersion | Voters | SnapshotMark

MetadataRecord: TypeAlias = (
    RegisterBroker
    | UnregisterBroker
    | BrokerRegistrationChange
    | RegisterController
    | Topic
    | RemoveTopic
    | Partition
    | PartitionChange
    | ClearElr
    | Config
    | FeatureLevel
    | ClientQuota
    | ProducerIds
    | AccessControlEntry
    | RemoveAccessControlEntry
    | UserScramCredential
    | RemoveUserScramCredential
    | DelegationToken
    | RemoveDelegationToken
    | RequestOutcome
    | NoOp
    | BeginTransaction
    | EndTransaction
    | AbortTransaction
)

Record: TypeAlias = MetadataRecord | ControlRecord
