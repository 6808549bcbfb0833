"""The delta: the effect of each record on an image, defined once for controllers, brokers, snapshots and Spark.

A delta is opened on an image, takes records in log order, and is finished into the next image. Each touched shard and
chunk of the image is copied once. The effects of the records of topics and partitions are in `topic_delta`, those of
brokers and controllers in `broker_delta`, those of entities and sessions in `entity_delta`, those of configs and
labels in `settings`, all others here. The table `REPLAYS`, at the end of this file, has one row for each record type: its effect,
what it changes and, for a canonical record, its place in a snapshot.

*Replay is strict.* A record that does not fit raises `InvalidRecord`: an unknown topic, a leader outside the ISR, a
stale broker epoch. A node that guessed would have another image than its peers. The record has changed nothing: a tool that lists
all misfits of a log goes on behind it.

*A record above the level of `metadata.version` does not fit* (`metadata_log.format.records.levels`): the leader that wrote the
record made a mistake, because other nodes may not be able to read it.

*Replay depends on image, record and offset only*, because nodes cut the log into deltas differently. Example:
  1. node 1 replays 0..9 in one delta; node 2 replays 0..4 and 5..9 in two deltas;
  2. the record at 3 deletes topic A, and the record at 7 creates a topic with the id of A;
  3. a rule "the id was used in this delta" would refuse the record at 7 on node 1 only.
So a topic id is compared with the live topics only. The controller that makes the ids never uses one twice.

Two kinds of delta check less. A *loading* delta takes the canonical records of a snapshot, in which a replica may be on
a broker that was unregistered since. A *folding* delta has the records of one entity only, so it cannot check
references to others.
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple, cast

from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import NodeId, Offset, Uuid, uuid_text
from metadata_log.format.partition_runs import PartitionRun
from metadata_log.format.partition_state import PartitionState
from metadata_log.format.records import (
    FROM_OFFSET,
    METADATA_VERSION,
    METADATA_VERSION_MAX,
    METADATA_VERSION_MIN,
    PAYLOAD_HASH_BYTES,
    PRINCIPAL_CHARS_MAX,
    REMEMBERED_REPLY_BYTES_MAX,
    REQUEST_SLOTS_MAX,
    AccessControlEntry,
    BrokerMode,
    BrokerRegistrationChange,
    ClearElr,
    ClientQuota,
    ClientSession,
    Config,
    ConfigDefinition,
    DelegationToken,
    EndClientSession,
    Entity,
    EntityKind,
    EpochFloor,
    EpochsRaised,
    FeatureLevel,
    Label,
    MetadataRecord,
    NoOp,
    Partition,
    PartitionChange,
    ProducerIds,
    RegisterBroker,
    RegisterController,
    RemoveAccessControlEntry,
    RemoveConfigDefinition,
    RemoveDelegationToken,
    RemoveEntity,
    RemoveEntityKind,
    RemoveTopic,
    RemoveUserScramCredential,
    RequestOutcome,
    Topic,
    UnregisterBroker,
    UserScramCredential,
    level_problem,
)
from metadata_log.format.records.levels import FIELD_LEVELS
from metadata_log.image.canonical_order import OrderKey, by_bytes, by_number, by_quota, by_text
from metadata_log.image.entity_key import (
    EntityKey,
    clear_elr_keys,
    labels_key,
    quota_keys,
    remove_topic_keys,
    topic_key,
    unregister_broker_keys,
)
from metadata_log.image.image_editor import DeltaKind, Edits, Law, Misfit
from metadata_log.image.metadata_image import MetadataImage, QuotaKey, ScramKey
from metadata_log.image.settings.settings_delta import SettingsDelta

_PARTITIONS_LEVEL: Final = max(FIELD_LEVELS[Partition].values())
"""The level of `metadata.version` from which on every partition fits."""


class InvalidRecord(LogFormatError):
    """A record does not fit the image."""

    def __init__(self, offset: Offset, reason: str, law: Law = Law.RECORD) -> None:
        super().__init__(f"the record at offset {offset} does not fit: {reason}")
        self.offset = offset
        self.reason = reason
        self.law = law


class MetadataDelta(SettingsDelta):
    """Changes to one image, collected record by record. Not usable after `finish`."""

    _features: Edits[str, int] = Edits("features")
    _quotas: Edits[QuotaKey, ClientQuota] = Edits("quotas")
    _acls: Edits[Uuid, AccessControlEntry] = Edits("acls")
    _scram: Edits[ScramKey, UserScramCredential] = Edits("scram_credentials")
    _tokens: Edits[str, DelegationToken] = Edits("delegation_tokens")
    _request_outcomes: Edits[int, RequestOutcome] = Edits("request_outcomes")
    _request_slots: Edits[Uuid, int] = Edits("request_slots")

    def __init__(self, image: MetadataImage, *, kind: DeltaKind = DeltaKind.STRICT) -> None:
        super().__init__(image, kind=kind)
        self.level = METADATA_VERSION_MAX if kind is DeltaKind.FOLDING else image.metadata_version
        """The level of `metadata.version` after the records so far. The history of one entity has no level."""

    def replay(self, record: MetadataRecord, offset: Offset) -> None:
        """Apply the record at `offset`.

        Raises:
            InvalidRecord: the record does not fit, and has changed nothing.
        """
        row = REPLAYS.get(type(record))
        if row is None:
            raise InvalidRecord(offset, f"{type(record).__name__} is not a record of the image")
        if self._kind is DeltaKind.LOADING and row.order is None:
            raise InvalidRecord(offset, f"{type(record).__name__} cannot be in a snapshot")
        self._check_level(record, offset)
        try:
            row.apply(self, record, offset)
        except Misfit as e:
            raise InvalidRecord(offset, str(e), e.law) from None

    def _check_level(self, record: MetadataRecord, offset: Offset) -> None:
        if self.level < METADATA_VERSION_MAX:  # the newest level allows every record: then there is nothing to look up
            problem = level_problem(record, self.level)
            if problem is not None:
                raise InvalidRecord(offset, problem, Law.LEVEL)

    def state_after(self, old: PartitionState, record: PartitionChange, topic: str, offset: Offset) -> PartitionState:
        """Return the state that a change would give to a partition in the state `old`; `topic` is its topic's name. Nothing
        changes: a tool that keeps states itself gives them back with `put_state`.

        Raises:
            InvalidRecord: the record does not fit.
        """
        self._check_level(record, offset)
        try:
            return self._state_after(old, record, topic)
        except Misfit as e:
            raise InvalidRecord(offset, str(e), e.law) from None

    def replay_all(self, records: Sequence[MetadataRecord], offset: Offset) -> None:
        """Apply the records from `offset` on, as `replay` does one by one. New partitions of one topic are applied together.

        Raises:
            InvalidRecord: a record does not fit, and has changed nothing. The records before it have been applied.
        """
        for topic_id, group in groupby(records, _topic_of_new):
            some = [*group]
            together = topic_id is not None and len(some) > 1 and self.level >= _PARTITIONS_LEVEL
            if not (together and self._new_partitions(cast(list[Partition], some))):
                for place, record in enumerate(some, offset):
                    self.replay(record, place)
            offset += len(some)

    def extend(self, run: PartitionRun, place: int) -> None:
        """Apply the records of partitions in a snapshot. `place` is the number of the first of these records.

        Raises:
            InvalidRecord: the records do not fit, and have changed nothing.
        """
        try:
            self._extend(run)
        except Misfit as e:
            raise InvalidRecord(place, str(e), e.law) from None

    def broker(self, broker_id: NodeId) -> RegisterBroker | None:
        """Return the registration of a broker after the records so far."""
        return self._brokers.get(broker_id)

    # --- entities that are one record each ---

    def _no_op(self, record: NoOp, offset: Offset) -> None:
        pass

    def _feature(self, record: FeatureLevel, offset: Offset) -> None:
        level = self._features.get(record.name)
        if record.level < 0 or (self._kind is DeltaKind.LOADING and not record.level):
            raise Misfit(f"feature {record.name} cannot have level {record.level}")
        if record.name == METADATA_VERSION:
            if record.level > METADATA_VERSION_MAX:
                raise Misfit(
                    f"{METADATA_VERSION} {record.level}: this release supports {METADATA_VERSION_MIN} to {METADATA_VERSION_MAX}"
                )
            if self._kind is not DeltaKind.FOLDING:
                self.level = record.level or METADATA_VERSION_MIN
        old = None if level is None else FeatureLevel(record.name, level)
        self._exchange(old, record if record.level else None)
        if record.level:
            self._features[record.name] = record.level
        elif level is not None:
            del self._features[record.name]
        self.changed.features.add(record.name)

    def _quota(self, record: ClientQuota, offset: Offset) -> None:
        key = (record.entity, record.key)
        types = [part.entity_type for part in record.entity]
        if not types or types != sorted(set(types)):
            raise Misfit(f"a quota for {record.entity}: at least one part, sorted by type, each type once")
        self.changed.others = True
        if record.value is not None:
            self._put(self._quotas, key, record)
        elif self._kind is DeltaKind.LOADING:
            raise Misfit("a quota without a value")
        elif key in self._quotas:
            self._drop(self._quotas, key, "quota")

    def _producer_id_block(self, record: ProducerIds, offset: Offset) -> None:
        old = self._single("producer_ids")
        if record.next_producer_id < 0 or (old is not None and record.next_producer_id <= old.next_producer_id):
            raise Misfit(
                f"next producer id {record.next_producer_id} is not above the one before: {old}", Law.BACKWARDS
            )
        self._put_single("producer_ids", record)
        self.changed.others = True

    def _acl(self, record: AccessControlEntry, offset: Offset) -> None:
        if record.entry_id in self._acls:
            raise Misfit(f"ACL {uuid_text(record.entry_id)} exists")
        self._put(self._acls, record.entry_id, record)
        self.changed.others = True

    def _remove_acl(self, record: RemoveAccessControlEntry, offset: Offset) -> None:
        self._drop(self._acls, record.entry_id, f"ACL {uuid_text(record.entry_id)}")
        self.changed.others = True

    def _credential(self, record: UserScramCredential, offset: Offset) -> None:
        self._put(self._scram, (record.user, record.mechanism), record)
        self.changed.others = True

    def _remove_credential(self, record: RemoveUserScramCredential, offset: Offset) -> None:
        self._drop(self._scram, (record.user, record.mechanism), f"credential of {record.user}")
        self.changed.others = True

    def _token(self, record: DelegationToken, offset: Offset) -> None:
        self._put(self._tokens, record.token_id, record)
        self.changed.others = True

    def _remove_token(self, record: RemoveDelegationToken, offset: Offset) -> None:
        self._drop(self._tokens, record.token_id, f"token {record.token_id}")
        self.changed.others = True

    def _request_outcome(self, record: RequestOutcome, offset: Offset) -> None:
        if record.offset == FROM_OFFSET and self._kind is not DeltaKind.LOADING:
            record = record._replace(offset=offset)
        elif record.offset < 0 or self._kind is DeltaKind.STRICT:
            raise Misfit(f"the outcome of a request with offset {record.offset}")
        if not (
            0 <= record.slot < REQUEST_SLOTS_MAX
            and 0 <= record.horizon <= record.offset
            and len(record.payload_hash) == PAYLOAD_HASH_BYTES
            and len(record.principal) <= PRINCIPAL_CHARS_MAX
            and len(record.reply or b"") <= REMEMBERED_REPLY_BYTES_MAX
        ):
            raise Misfit(f"the outcome of a request in slot {record.slot}: a field is out of its limits")
        if record.request_id in self._request_slots:
            raise Misfit(f"request {uuid_text(record.request_id)} was done already", Law.REQUEST)
        replaced = self._request_outcomes.get(record.slot)
        if replaced is not None:
            del self._request_slots[replaced.request_id]
        self._put(self._request_outcomes, record.slot, record)
        self._request_slots[record.request_id] = record.slot
        newest = self._single("newest_request")
        if newest is None or newest.offset < record.offset:
            # a second reference: the digest counts the record once, in its slot
            self._singles["newest_request"] = record
        self.changed.others = True


def _topic_of_new(record: MetadataRecord) -> Uuid | None:
    """Return the topic of a new partition; None for every other record."""
    return record.topic_id if type(record) is Partition else None


# --- the table -----------------------------------------------------------------------------------------------------


class Replays(NamedTuple):
    """The rules of replay for one record type."""

    apply: Callable[[MetadataDelta, Any, Offset], None]
    entities: Callable[[Any], tuple[EntityKey, ...]]
    order: Callable[[Any], OrderKey] | None = None
    """For a canonical record its sort key in a snapshot, which begins with the section (for a `Partition`, the key
    within its topic)."""


REPLAYS: Final[dict[type, Replays]] = {
    RegisterBroker: Replays(
        MetadataDelta._register_broker,
        lambda r: (("broker", str(r.broker_id)),),
        lambda r: b"\x02" + by_number(r.broker_id),
    ),
    UnregisterBroker: Replays(MetadataDelta._unregister_broker, unregister_broker_keys),
    BrokerRegistrationChange: Replays(MetadataDelta._change_registration, lambda r: (("broker", str(r.broker_id)),)),
    BrokerMode: Replays(
        MetadataDelta._broker_mode,
        lambda r: (("broker-mode", str(r.broker_id)),),
        lambda r: b"\x0b" + by_number(r.broker_id),
    ),
    RegisterController: Replays(
        MetadataDelta._register_controller,
        lambda r: (("controller", str(r.controller_id)),),
        lambda r: b"\x01" + by_number(r.controller_id),
    ),
    Topic: Replays(MetadataDelta._topic, lambda r: (topic_key(r.topic_id),), lambda r: b"\x03" + by_text(r.name)),
    RemoveTopic: Replays(MetadataDelta._remove_topic, remove_topic_keys),
    Partition: Replays(MetadataDelta._partition, lambda r: (topic_key(r.topic_id),), lambda r: by_number(r.partition)),
    PartitionChange: Replays(MetadataDelta._change_partition, lambda r: (topic_key(r.topic_id),)),
    EpochsRaised: Replays(MetadataDelta._raise_epochs, lambda r: (topic_key(r.topic_id),)),
    EpochFloor: Replays(MetadataDelta._epoch_floor, lambda r: (("epoch-floor",),), lambda r: b"\x0c"),
    ClearElr: Replays(MetadataDelta._clear_elr, clear_elr_keys),
    Config: Replays(
        MetadataDelta._config,
        lambda r: (("config", str(r.resource_type), r.resource_name),),
        lambda r: b"\x04" + by_number(r.resource_type) + by_text(r.resource_name) + by_text(r.key),
    ),
    FeatureLevel: Replays(
        MetadataDelta._feature, lambda r: (("feature", r.name),), lambda r: b"\x00" + by_text(r.name)
    ),
    ClientQuota: Replays(MetadataDelta._quota, quota_keys, lambda r: b"\x05" + by_quota((r.entity, r.key))),
    ProducerIds: Replays(MetadataDelta._producer_id_block, lambda r: (("producer-ids",),), lambda r: b"\x06"),
    AccessControlEntry: Replays(
        MetadataDelta._acl, lambda r: (("acl", uuid_text(r.entry_id)),), lambda r: b"\x07" + by_bytes(r.entry_id)
    ),
    RemoveAccessControlEntry: Replays(MetadataDelta._remove_acl, lambda r: (("acl", uuid_text(r.entry_id)),)),
    UserScramCredential: Replays(
        MetadataDelta._credential,
        lambda r: (("scram", r.user, str(r.mechanism)),),
        lambda r: b"\x08" + by_text(r.user) + by_number(r.mechanism),
    ),
    RemoveUserScramCredential: Replays(
        MetadataDelta._remove_credential, lambda r: (("scram", r.user, str(r.mechanism)),)
    ),
    DelegationToken: Replays(
        MetadataDelta._token, lambda r: (("token", r.token_id),), lambda r: b"\x09" + by_text(r.token_id)
    ),
    RemoveDelegationToken: Replays(MetadataDelta._remove_token, lambda r: (("token", r.token_id),)),
    RequestOutcome: Replays(
        MetadataDelta._request_outcome,
        lambda r: (("request", str(r.slot)),),
        lambda r: b"\x0a" + by_number(r.slot),
    ),
    EntityKind: Replays(
        MetadataDelta._entity_kind, lambda r: (("entity-kind", r.kind),), lambda r: b"\x0d" + by_text(r.kind)
    ),
    RemoveEntityKind: Replays(MetadataDelta._remove_entity_kind, lambda r: (("entity-kind", r.kind),)),
    ClientSession: Replays(
        MetadataDelta._client_session,
        lambda r: (("client-session", uuid_text(r.session_id)),),
        lambda r: b"\x0e" + by_bytes(r.session_id),
    ),
    EndClientSession: Replays(
        MetadataDelta._end_client_session, lambda r: (("client-session", uuid_text(r.session_id)),)
    ),
    Entity: Replays(
        MetadataDelta._entity,
        lambda r: (("entity", r.kind, r.name),),
        lambda r: b"\x0f" + by_text(r.kind) + by_text(r.name),
    ),
    RemoveEntity: Replays(MetadataDelta._remove_entity, lambda r: (("entity", r.kind, r.name),)),
    ConfigDefinition: Replays(
        MetadataDelta._config_definition,
        lambda r: (("config-definition", str(r.resource_type), r.name),),
        lambda r: b"\x10" + by_number(r.resource_type) + by_text(r.name),
    ),
    RemoveConfigDefinition: Replays(
        MetadataDelta._remove_config_definition, lambda r: (("config-definition", str(r.resource_type), r.name),)
    ),
    Label: Replays(
        MetadataDelta._label,
        lambda r: (labels_key(r.resource_type, r.resource_name),),
        lambda r: (
            b"\x11" + by_number(r.resource_type) + by_text(r.resource_name) + by_number(r.partition) + by_text(r.key)
        ),
    ),
    NoOp: Replays(MetadataDelta._no_op, lambda r: ()),
}
