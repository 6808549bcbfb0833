"""All records of the `@metadata` log. Each record type is defined once, in the file of its concern; import it from here.

Controllers write and replay records, brokers replay them, snapshots contain them, and the Spark jobs fold them. A
record is a `NamedTuple`: frozen, compact, and easy to pack. On disk it is the MessagePack array `[type, version, field,
field, ...]` (see `codec`).

Old bytes must decode for ever, so records change only as follows:
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

Each record needs a level of the feature `metadata.version` (`levels`). A controller writes no record above the level of its
image, so that an older release in the same cluster reads everything.

Replay and snapshots support all types, but this release never writes delegation tokens and `NoOp`.
"""

from typing import TypeAlias

from metadata_log.format.records.brokers import (
    EXTERNAL_DATA_PLANE,
    FENCED_MODE,
    MAINTENANCE_MODE,
    MODE_REASON_CHARS_MAX,
    NO_DATA_PLANE,
    NO_MODE,
    STATE_REASON_CHARS_MAX,
    STATE_REASONS,
    STATE_SINCE_MS_MAX,
    BrokerMode,
    BrokerRegistrationChange,
    RegisterBroker,
    RegisterController,
    UnregisterBroker,
)
from metadata_log.format.records.clients import (
    PAYLOAD_HASH_BYTES,
    PRINCIPAL_CHARS_MAX,
    REMEMBERED_REPLY_BYTES_MAX,
    REQUEST_SLOTS_MAX,
    ClientQuota,
    ProducerIds,
    QuotaEntity,
    RequestOutcome,
)
from metadata_log.format.records.entities import (
    ENTITY_VALUE_BYTES_MAX,
    KIND_ENTITIES_MAX,
    KIND_SCHEMA_BYTES_MAX,
    OWNED_ENTITIES_MAX,
    SESSION_CLOSED,
    SESSION_END_REASONS,
    SESSION_EXPIRED,
    SESSION_NAME_CHARS_MAX,
    SESSION_REPLACED,
    SESSION_TIMEOUT_MS_MAX,
    SESSION_TIMEOUT_MS_MIN,
    ClientSession,
    EndClientSession,
    Entity,
    EntityKind,
    Owner,
    RemoveEntity,
    RemoveEntityKind,
)
from metadata_log.format.records.levels import (
    ELR_METADATA_VERSION,
    ELR_VERSION,
    ELR_VERSION_MAX,
    FEATURES,
    METADATA_VERSION,
    METADATA_VERSION_MAX,
    METADATA_VERSION_MIN,
    RECORD_LEVELS,
    SUPPORTED,
    Feature,
    level_of,
    level_problem,
)
from metadata_log.format.records.quorum import (
    KRaftVersion,
    LeaderChange,
    SkippedBatch,
    SnapshotFooter,
    SnapshotHeader,
    SnapshotMark,
    Voter,
    Voters,
)
from metadata_log.format.records.registry import (
    FIRST_CONTROL_TYPE,
    FROM_OFFSET,
    RECORD_TYPES,
    RECORD_VERSION,
    TYPE_NUMBERS,
    Endpoint,
    FeatureRange,
    Secret,
)
from metadata_log.format.records.security import (
    AccessControlEntry,
    DelegationToken,
    RemoveAccessControlEntry,
    RemoveDelegationToken,
    RemoveUserScramCredential,
    UserScramCredential,
)
from metadata_log.format.records.settings import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    WHOLE_RESOURCE,
    Config,
    ConfigDefinition,
    FeatureLevel,
    Label,
    RemoveConfigDefinition,
)
from metadata_log.format.records.topics import (
    RECOVERED,
    RECOVERING,
    ClearElr,
    EpochFloor,
    EpochsRaised,
    ListColumn,
    Partition,
    PartitionChange,
    PartitionColumns,
    RemoveTopic,
    Topic,
)
from metadata_log.format.records.transactions import AbortTransaction, BeginTransaction, EndTransaction, NoOp

__all__ = [
    "BROKER_RESOURCE",
    "ELR_METADATA_VERSION",
    "ELR_VERSION",
    "ELR_VERSION_MAX",
    "ENTITY_VALUE_BYTES_MAX",
    "EXTERNAL_DATA_PLANE",
    "FEATURES",
    "FENCED_MODE",
    "FIRST_CONTROL_TYPE",
    "FROM_OFFSET",
    "KIND_ENTITIES_MAX",
    "KIND_SCHEMA_BYTES_MAX",
    "MAINTENANCE_MODE",
    "METADATA_VERSION",
    "METADATA_VERSION_MAX",
    "METADATA_VERSION_MIN",
    "MODE_REASON_CHARS_MAX",
    "NO_DATA_PLANE",
    "NO_MODE",
    "OWNED_ENTITIES_MAX",
    "PAYLOAD_HASH_BYTES",
    "PRINCIPAL_CHARS_MAX",
    "RECORD_LEVELS",
    "RECORD_TYPES",
    "RECORD_VERSION",
    "RECOVERED",
    "RECOVERING",
    "REMEMBERED_REPLY_BYTES_MAX",
    "REQUEST_SLOTS_MAX",
    "SESSION_CLOSED",
    "SESSION_END_REASONS",
    "SESSION_EXPIRED",
    "SESSION_NAME_CHARS_MAX",
    "SESSION_REPLACED",
    "SESSION_TIMEOUT_MS_MAX",
    "SESSION_TIMEOUT_MS_MIN",
    "STATE_REASONS",
    "STATE_REASON_CHARS_MAX",
    "STATE_SINCE_MS_MAX",
    "SUPPORTED",
    "TOPIC_RESOURCE",
    "TYPE_NUMBERS",
    "WHOLE_RESOURCE",
    "AbortTransaction",
    "AccessControlEntry",
    "BeginTransaction",
    "BrokerMode",
    "BrokerRegistrationChange",
    "ClearElr",
    "ClientQuota",
    "ClientSession",
    "Config",
    "ConfigDefinition",
    "ControlRecord",
    "DelegationToken",
    "EndClientSession",
    "EndTransaction",
    "Endpoint",
    "Entity",
    "EntityKind",
    "EpochFloor",
    "EpochsRaised",
    "Feature",
    "FeatureLevel",
    "FeatureRange",
    "KRaftVersion",
    "Label",
    "LeaderChange",
    "ListColumn",
    "MetadataRecord",
    "NoOp",
    "Owner",
    "Partition",
    "PartitionChange",
    "PartitionColumns",
    "ProducerIds",
    "QuotaEntity",
    "Record",
    "RegisterBroker",
    "RegisterController",
    "RemoveAccessControlEntry",
    "RemoveConfigDefinition",
    "RemoveDelegationToken",
    "RemoveEntity",
    "RemoveEntityKind",
    "RemoveTopic",
    "RemoveUserScramCredential",
    "RequestOutcome",
    "Secret",
    "SkippedBatch",
    "SnapshotFooter",
    "SnapshotHeader",
    "SnapshotMark",
    "Topic",
    "UnregisterBroker",
    "UserScramCredential",
    "Voter",
    "Voters",
    "level_of",
    "level_problem",
]

ControlRecord: TypeAlias = (
    LeaderChange | SnapshotHeader | SnapshotFooter | KRaftVersion | Voters | SnapshotMark | SkippedBatch
)

MetadataRecord: TypeAlias = (
    RegisterBroker
    | UnregisterBroker
    | BrokerRegistrationChange
    | BrokerMode
    | RegisterController
    | Topic
    | RemoveTopic
    | Partition
    | PartitionChange
    | PartitionColumns
    | EpochFloor
    | EpochsRaised
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
    | EntityKind
    | RemoveEntityKind
    | Entity
    | RemoveEntity
    | ClientSession
    | EndClientSession
    | ConfigDefinition
    | RemoveConfigDefinition
    | Label
    | NoOp
    | BeginTransaction
    | EndTransaction
    | AbortTransaction
)

Record: TypeAlias = MetadataRecord | ControlRecord
