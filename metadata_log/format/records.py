"""All records of the `@metadata` log. Each record type is defined here once.

Controllers write and replay records, brokers replay them, snapshots contain them, and the Spark jobs fold them. A
record is a `NamedTuple`: frozen, compact, and easy to pack. On disk it is the MessagePack array `[type, version, field,
field, ...]` (see `codec`).

Old bytes must decode for ever, so this file changes only as follows:
  * a type number is never used again for another type;
  * fields are only appended, and an appended field has a default;
  * the meaning of a field never changes.

`docs/recipes.md` lists the files that a new record type changes. The annotations `Uuid` and `Secret` mark ids and secrets.

*Canonical records.* The image of the cluster is a set of canonical records, one for each entity: one `RegisterBroker`
for a broker, one `Partition` for a partition, and so on. Other records (`PartitionChange`, `RemoveTopic`) change or
remove canonical ones. A snapshot has the canonical records in canonical order, and the digest of an image is the sum of
their hashes. Example:
  1. the log has Partition(leader=1), PartitionChange(leader=2), PartitionChange(isr=(2, 3));
  2. the image, on every node and in the Spark job, has one record: Partition(leader=2, isr=(2, 3));
  3. so all nodes write the same bytes into their snapshots and have the same digest.

Type numbers and meanings are Kafka's, for record types that Kafka has (metadata/.../common/metadata), without the
legacy and ZooKeeper ones. Types from 64 on are control records: they are for the quorum itself, not for the image.

Replay and snapshots support all types, but this release never writes some of them: transactions, ACLs, SCRAM
credentials, delegation tokens, quotas, `ClearElr`, `NoOp`, and the ELR fields of partitions.
"""

from collections.abc import Callable
from typing import Annotated, NamedTuple, TypeAlias, TypeVar

from metadata_log.format.ids import Epoch, NodeId, Offset, Uuid

FROM_OFFSET = -1
"""In `RegisterBroker.broker_epoch`: the broker's epoch is the offset of this record. Used in the log, not in snapshots.
`RequestOutcome.offset` uses the value in the same way."""

Secret: TypeAlias = Annotated[bytes, "secret"]
"""Bytes that give access to something: no tool shows them."""


class Endpoint(NamedTuple):
    """The address of a node: a listener's name, and a host and port that others can reach."""

    listener: str
    host: str
    port: int


class FeatureRange(NamedTuple):
    """The levels of one feature that a node supports, both inclusive."""

    name: str
    min_level: int
    max_level: int


class QuotaEntity(NamedTuple):
    """One part of a quota's subject: the type is `user`, `client-id` or `ip`; the name None is the default entity."""

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
"""The version that this code writes for every record type. A record with a higher version was written by a newer
release."""


def record(type_number: int) -> Callable[[type[T]], type[T]]:
    """Register the class under its number in the log. Each number is used once."""

    def register(cls: type[T]) -> type[T]:
        assert type_number not in RECORD_TYPES, f"type {type_number} is taken by {RECORD_TYPES[type_number].__name__}"
        RECORD_TYPES[type_number] = cls
        TYPE_NUMBERS[cls] = type_number
        return cls

    return register


# --- brokers and controllers ---------------------------------------------------------------------------------------


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


@record(0)
class RegisterBroker(NamedTuple):
    """A broker process has registered. Canonical: the state of a broker. Replaces an earlier registration of the same id.

    `reason` says why the broker is fenced, online or stopping (`StateReason` in `quorum.controller`), and `since_ms` when
    that state began, in ms since 1970. Empty and 0 in records that an older release wrote.
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
    """The broker was removed for good."""

    broker_id: NodeId
    broker_epoch: int


@record(17)
class BrokerRegistrationChange(NamedTuple):
    """A part of a registration has changed; None leaves a field unchanged.

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
    """A controller's endpoints and supported features. Canonical."""

    controller_id: NodeId
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]


# --- topics and partitions -----------------------------------------------------------------------------------------


@record(2)
class Topic(NamedTuple):
    """A topic exists. Canonical. Names and live ids are one to one, and an id is never used again."""

    name: str
    topic_id: Uuid


@record(9)
class RemoveTopic(NamedTuple):
    """The topic, its partitions and its configs were deleted. The name is for the fold by entity, which needs it for
    the configs.
    """

    name: str
    topic_id: Uuid


RECOVERED = 0
RECOVERING = 1
"""Leader recovery states. After an unclean election a leader is RECOVERING until its log is consistent."""


@record(3)
class Partition(NamedTuple):
    """A whole partition. Canonical. `leader` is NO_LEADER or a member of `isr`; `isr` is a subset of `replicas`."""

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
    """Some fields of a partition have changed; None leaves a field unchanged.

    Replay adds 1 to the partition epoch, and 1 to the leader epoch if `leader` is not None, even if the leader is the
    same.
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
    """Eligible leader replicas were cleared: of one topic, or of all topics if name and id are None (KIP-966)."""

    topic_name: str | None
    topic_id: Uuid | None


# --- configs, features, quotas, security ---------------------------------------------------------------------------

BROKER_RESOURCE = 4
TOPIC_RESOURCE = 2
"""Config resource types, with Kafka's numbers. The cluster-wide default for brokers has the empty string as its
name."""


@record(4)
class Config(NamedTuple):
    """One config key of one resource. Canonical. The value None removes the key."""

    resource_type: int
    resource_name: str
    key: str
    value: str | None


@record(12)
class FeatureLevel(NamedTuple):
    """The finalized level of a feature such as `metadata.version`. Canonical. Level 0 removes the feature."""

    name: str
    level: int


@record(14)
class ClientQuota(NamedTuple):
    """One quota of one client entity. Canonical. The value None removes the quota. `entity` is sorted by type."""

    entity: tuple[QuotaEntity, ...]
    key: str
    value: float | None


@record(15)
class ProducerIds(NamedTuple):
    """A block of producer ids was allocated; `next_producer_id` is the first free id. Canonical; the image has at most
    one.
    """

    broker_id: NodeId
    broker_epoch: int
    next_producer_id: int


@record(18)
class AccessControlEntry(NamedTuple):
    """One ACL. Canonical."""

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
    """The ACL was removed."""

    entry_id: Uuid


@record(11)
class UserScramCredential(NamedTuple):
    """The data that checks a user's password without storing the password (RFC 5802). Canonical."""

    user: str
    mechanism: int
    salt: Secret
    stored_key: Secret
    server_key: Secret
    iterations: int


@record(22)
class RemoveUserScramCredential(NamedTuple):
    """The credential was removed."""

    user: str
    mechanism: int


@record(10)
class DelegationToken(NamedTuple):
    """A delegation token was issued or renewed. Canonical."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    expiration_timestamp_ms: int
    max_timestamp_ms: int


@record(26)
class RemoveDelegationToken(NamedTuple):
    """The token was removed."""

    token_id: str


# --- requests that were done ---------------------------------------------------------------------------------------

REQUEST_SLOTS_MAX = 1 << 20
REMEMBERED_REPLY_BYTES_MAX = 2 << 10
PRINCIPAL_CHARS_MAX = 256
PAYLOAD_HASH_BYTES = 32
"""Limits of a `RequestOutcome`, which replay checks. The controller may have lower limits."""


@record(60)
class RequestOutcome(NamedTuple):
    """A client's request with an id was done, in the batch that ends with this record. Canonical.

    Outcomes are stored in a ring of slots, and a new outcome replaces the old one in its slot. So the number of
    remembered outcomes is bounded, and the history of each slot can be folded alone. Every outcome at or above offset
    `horizon` is still remembered. `reply` is the answer without its offset; None if the answer was too large. `offset`
    is the offset of this record (FROM_OFFSET in the log, filled in by replay), so the batch ended one above.
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
    """A record without effect. An idle cluster writes none; replay accepts the type."""


@record(23)
class BeginTransaction(NamedTuple):
    """The following records take effect together, at `EndTransaction` (KIP-868)."""

    name: str


@record(24)
class EndTransaction(NamedTuple):
    """The open transaction takes effect."""


@record(25)
class AbortTransaction(NamedTuple):
    """The open transaction is discarded."""

    reason: str


# --- control records: to the quorum, not to the image --------------------------------------------------------------


@record(64)
class LeaderChange(NamedTuple):
    """The first record of an epoch: its leader, and the voters that voted for the leader."""

    leader_id: NodeId
    voters: tuple[NodeId, ...]
    granting_voters: tuple[NodeId, ...]


@record(65)
class SnapshotHeader(NamedTuple):
    """The first record of a snapshot. The timestamp is that of the last batch below the snapshot's end."""

    format_version: int
    end_offset: Offset
    epoch: Epoch
    last_contained_log_timestamp_ms: int


@record(66)
class SnapshotFooter(NamedTuple):
    """The last record of a snapshot: the log's chain at its end, and the digest and number of the records inside."""

    chain: bytes
    digest: bytes
    record_count: int


@record(67)
class KRaftVersion(NamedTuple):
    """The level of the quorum's own protocol. Level 1 means that the voter set is in the log."""

    level: int


@record(68)
class Voters(NamedTuple):
    """The voter set. Takes effect as soon as it is appended (KIP-853). Sorted by node id."""

    voters: tuple[Voter, ...]


@record(69)
class SnapshotMark(NamedTuple):
    """When this record is committed, every node writes its snapshot at the offset just after this record."""

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
