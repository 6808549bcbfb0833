"""The effects of the records of entities, kinds and client sessions on an image; the other effects are in the neighbour files.

*An ephemeral entity never outlives its session.* A record that ends a session does not fit while the session owns entities: the
end of a client's session, and the fence, the removal and the replacement of a broker's registration. So the controller removes
the entities first, in the same batch, and every node sees both or nothing. Example, with broker 7 of epoch 30:
  1. ("shard", "4") has the owner Owner(None, 7, 30);
  2. broker 7 is silent: one batch has RemoveEntity("shard", "4"), and then the change that fences broker 7;
  3. without the RemoveEntity, replay stops at the fence, instead of keeping a shard whose owner is gone.
"""

import sys

from metadata_log.format.entity_names import EntityName, entity_name_problem, kind_problem
from metadata_log.format.ids import OFFSET_MAX, NodeId, Offset, Uuid, uuid_text
from metadata_log.format.records import (
    ENTITY_VALUE_BYTES_MAX,
    FROM_OFFSET,
    KIND_ENTITIES_MAX,
    KIND_SCHEMA_BYTES_MAX,
    OWNED_ENTITIES_MAX,
    PRINCIPAL_CHARS_MAX,
    SESSION_END_REASONS,
    SESSION_NAME_CHARS_MAX,
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
from metadata_log.image.entity_index import UNUSED, KindUsage, is_live, owner_text, size_of
from metadata_log.image.image_editor import DeltaKind, Edits, Law, Misfit
from metadata_log.image.metadata_image import MetadataImage, Provenance
from metadata_log.image.topic_delta import TopicDelta


class EntityDelta(TopicDelta):
    """Changes to the entities, kinds and client sessions of one image."""

    _entities: Edits[EntityName, Entity] = Edits("entities")
    _entity_kinds: Edits[str, EntityKind] = Edits("entity_kinds")
    _client_sessions: Edits[Uuid, ClientSession] = Edits("client_sessions")
    _kind_usage: Edits[str, KindUsage] = Edits("kind_usage")
    _owned: Edits[Owner, frozenset[EntityName]] = Edits("owned")

    def __init__(self, image: MetadataImage, *, kind: DeltaKind = DeltaKind.STRICT) -> None:
        super().__init__(image, kind=kind)
        self._open_owners: dict[Owner, set[EntityName]] = {}
        """The entities of each touched owner, which are not in `_owned` yet."""

    def finish(self, provenance: Provenance) -> MetadataImage:
        """Return the image after all replayed records."""
        for owner, names in self._open_owners.items():
            if names:
                self._owned[owner] = frozenset(names)
            elif owner in self._owned:
                del self._owned[owner]
        return super().finish(provenance)

    # --- entities ---

    def _entity(self, record: Entity, offset: Offset) -> None:
        key = (record.kind, record.name)
        problem = kind_problem(record.kind) or entity_name_problem(record.name)
        if problem is not None:
            raise Misfit(problem)
        if len(record.value) > ENTITY_VALUE_BYTES_MAX:
            raise Misfit(f"entity {key} with a value of {len(record.value)} bytes")
        old = self._entities.get(key)
        new = self._numbered(record, old, offset)
        if new.owner is not None:
            self._check_owner(new.owner, key)
        if old is not None:
            self._take_out(old)
        if new.owner is not None:
            self._names_of(new.owner).add(key)
        self._count(new, 1)
        self._exchange(old, new)
        self._entities[new.kind, new.name] = new
        self.changed.entities.add(key)

    def _numbered(self, record: Entity, old: Entity | None, offset: Offset) -> Entity:
        """Return the canonical record: with the offsets of the creation and of this write."""
        created, version, key = record.created, record.version, (record.kind, record.name)
        if version == FROM_OFFSET and self._kind is not DeltaKind.LOADING:
            if created == FROM_OFFSET and old is not None:
                raise Misfit(f"entity {key} exists since {old.created}, and is created", Law.ENTITY)
            if created != FROM_OFFSET and (old is None or old.created != created):
                found = "does not exist" if old is None else f"exists since {old.created}"
                raise Misfit(f"entity {key} {found}, and a write names the creation at {created}", Law.ENTITY)
            created, version = offset if old is None else old.created, offset
        elif self._kind is DeltaKind.STRICT or not 0 <= created <= version <= OFFSET_MAX:
            raise Misfit(f"entity {key} with the version {version}, created at {created}", Law.ENTITY)
        elif old is not None and self._kind is DeltaKind.LOADING:
            raise Misfit(f"entity {key} comes twice", Law.ENTITY)
        # Thousands of entities share one kind: one text in memory.
        return Entity(sys.intern(record.kind), record.name, record.value, record.owner, created, version)

    def _remove_entity(self, record: RemoveEntity, offset: Offset) -> None:
        key = (record.kind, record.name)
        old = self._entities.get(key)
        if old is None:
            raise Misfit(f"there is no entity {key} to remove", Law.NOTHING)
        self._take_out(old)
        self._exchange(old, None)
        del self._entities[key]
        self.changed.entities.add(key)

    def _take_out(self, old: Entity) -> None:
        """Remove an entity from the derived fields."""
        if old.owner is not None:
            self._names_of(old.owner).discard((old.kind, old.name))
        self._count(old, -1)

    def _count(self, entity: Entity, sign: int) -> None:
        used, size = self._kind_usage.get(entity.kind) or UNUSED, sign * size_of(entity)
        self._entity_bytes += size
        new = KindUsage(used.entity_count + sign, used.byte_count + size)
        if new.entity_count:
            self._kind_usage[entity.kind] = new
        else:
            del self._kind_usage[entity.kind]

    # --- owners ---

    def _names_of(self, owner: Owner) -> set[EntityName]:
        """Return the entities of the owner, to be changed."""
        names = self._open_owners.get(owner)
        if names is None:
            names = self._open_owners[owner] = set(self.image.owned.get(owner, ()))
        return names

    def _check_owner(self, owner: Owner, key: EntityName) -> None:
        if (owner.session_id is None) is (owner.broker_id is None) or not 0 <= owner.epoch <= OFFSET_MAX:
            raise Misfit(f"entity {key} with the owner {owner}: one session of a client, or of a broker")
        if self._kind is not DeltaKind.FOLDING and not is_live(owner, self._client_sessions, self._brokers):
            raise Misfit(f"entity {key} belongs to {owner_text(owner)}, which is not open", Law.OWNER)
        names = self._names_of(owner)
        if key not in names and len(names) >= OWNED_ENTITIES_MAX:
            raise Misfit(f"{owner_text(owner)} owns more than {OWNED_ENTITIES_MAX} entities")

    def _check_owns_nothing(self, owner: Owner) -> None:
        """Refuse the end of a session that owns entities still: they would outlive it."""
        names = self._open_owners.get(owner)
        count = len(self.image.owned.get(owner, ()) if names is None else names)
        if count:
            raise Misfit(f"{owner_text(owner)} ends and owns {count} entities", Law.ORPHAN)

    def _end_broker_session(self, broker_id: NodeId, broker_epoch: int) -> None:
        """Check that a broker which is fenced, removed or replaced owns nothing."""
        self._check_owns_nothing(Owner(None, broker_id, broker_epoch))

    # --- kinds and sessions ---

    def _entity_kind(self, record: EntityKind, offset: Offset) -> None:
        problem = kind_problem(record.kind)
        if problem is not None:
            raise Misfit(problem)
        if not (
            len(record.schema.encode()) <= KIND_SCHEMA_BYTES_MAX
            and 0 <= record.entities_max <= KIND_ENTITIES_MAX
            and 0 <= record.bytes_max <= OFFSET_MAX
            and 0 <= record.value_bytes_max <= ENTITY_VALUE_BYTES_MAX
        ):
            raise Misfit(f"kind {record.kind}: a field is out of its limits")
        self._put(self._entity_kinds, record.kind, record)
        self.changed.entity_kinds.add(record.kind)

    def _remove_entity_kind(self, record: RemoveEntityKind, offset: Offset) -> None:
        self._drop(self._entity_kinds, record.kind, f"kind {record.kind:.80}")
        self.changed.entity_kinds.add(record.kind)

    def _client_session(self, record: ClientSession, offset: Offset) -> None:
        if record.epoch == FROM_OFFSET and self._kind is not DeltaKind.LOADING:
            record = record._replace(epoch=offset)
        elif self._kind is DeltaKind.STRICT or not 0 <= record.epoch <= OFFSET_MAX:
            raise Misfit(f"session {uuid_text(record.session_id)} with epoch {record.epoch}", Law.SESSION)
        if not (
            len(record.name) <= SESSION_NAME_CHARS_MAX
            and len(record.principal) <= PRINCIPAL_CHARS_MAX
            and SESSION_TIMEOUT_MS_MIN <= record.timeout_ms <= SESSION_TIMEOUT_MS_MAX
        ):
            raise Misfit(f"session {uuid_text(record.session_id)}: a field is out of its limits")
        if record.session_id in self._client_sessions:
            raise Misfit(f"session {uuid_text(record.session_id)} is open already", Law.SESSION)
        self._put(self._client_sessions, record.session_id, record)
        self.changed.client_sessions.add(record.session_id)

    def _end_client_session(self, record: EndClientSession, offset: Offset) -> None:
        old = self._client_sessions.get(record.session_id)
        if old is None or old.epoch != record.epoch:
            found = "is not open" if old is None else f"has epoch {old.epoch}"
            raise Misfit(
                f"session {uuid_text(record.session_id)} {found}, and epoch {record.epoch} of it ends", Law.SESSION
            )
        if record.reason not in SESSION_END_REASONS:
            raise Misfit(f"session {uuid_text(record.session_id)} ends with the reason {record.reason!r:.80}")
        self._check_owns_nothing(Owner(record.session_id, None, record.epoch))
        self._drop(self._client_sessions, record.session_id, "session")
        self.changed.client_sessions.add(record.session_id)
