"""Records of embedders: entities, their kinds, and the sessions of clients.

An *entity* is a value with a kind and a name: `("shard", "7") -> bytes`. The cluster keeps entities for the programs that are
built on it, and gives them no meaning. A *session* is the life of a client (`ClientSession`) or of a broker (its registration).
An *ephemeral* entity has an owner: one session. The session cannot end while it owns entities, so the batch that ends the session
first removes them. Example:
  1. at 40, worker A opens a session: its epoch is 40;
  2. at 41, A writes ("lock", "backup") with the owner Owner(A, None, 40): created 41, version 41;
  3. A dies, and its session expires: one batch has RemoveEntity("lock", "backup") and EndClientSession(A, 40, "expired").

The *version* of an entity is the offset of its last write; `created` is the offset of the write that created it.
"""

from typing import Final, NamedTuple

from metadata_log.format.ids import NodeId, Offset, Uuid
from metadata_log.format.records.registry import FROM_OFFSET, record

ENTITY_VALUE_BYTES_MAX: Final = 256 << 10
"""Maximum size of the value of an entity."""
KIND_SCHEMA_BYTES_MAX: Final = 16 << 10
"""Maximum size of the schema of a kind, in UTF-8."""
KIND_ENTITIES_MAX: Final = (1 << 31) - 1
"""Maximum of `EntityKind.entities_max`, which has signed 32 bits on the wire."""
OWNED_ENTITIES_MAX: Final = 1_000
"""Maximum number of entities of one owner: the batch that ends the session removes them all."""
SESSION_NAME_CHARS_MAX: Final = 256
"""Maximum length of the name of a session."""
SESSION_TIMEOUT_MS_MIN: Final = 1_000
SESSION_TIMEOUT_MS_MAX: Final = 86_400_000
"""The bounds of the timeout of a session, both inclusive."""

SESSION_EXPIRED: Final = "expired"
SESSION_CLOSED: Final = "closed"
SESSION_REPLACED: Final = "replaced"
"""The reasons why the session of a client ends (`EndClientSession`)."""
SESSION_END_REASONS: Final = frozenset((SESSION_EXPIRED, SESSION_CLOSED, SESSION_REPLACED))


class Owner(NamedTuple):
    """The session that owns an ephemeral entity. Exactly one of `session_id` and `broker_id` is set.

    `epoch` is the epoch of the client's session, or the broker epoch. So an owner is one session, and never a later session of
    the same client or broker.
    """

    session_id: Uuid | None
    broker_id: NodeId | None
    epoch: Offset


@record(40)
class EntityKind(NamedTuple):
    """A kind of entities was declared, or declared anew. Canonical.

    `schema` is the JSON schema of the values; empty: values are any bytes. A limit of 0 is the default limit of the controller.
    """

    kind: str
    schema: str
    entities_max: int
    bytes_max: int
    value_bytes_max: int


@record(41)
class RemoveEntityKind(NamedTuple):
    """The declaration of the kind was removed. The entities of the kind stay."""

    kind: str


@record(42)
class Entity(NamedTuple):
    """An entity was written. Canonical.

    In the log, `created` is FROM_OFFSET for a new entity, and the offset of the creation for an entity that exists; `version` is
    always FROM_OFFSET. Replay fills in both.
    """

    kind: str
    name: str
    value: bytes
    owner: Owner | None
    created: Offset = FROM_OFFSET
    version: Offset = FROM_OFFSET


@record(43)
class RemoveEntity(NamedTuple):
    """The entity was deleted, by a client or because the session of its owner ends."""

    kind: str
    name: str


@record(44)
class ClientSession(NamedTuple):
    """A client opened a session. Canonical.

    `epoch` is the offset of this record: FROM_OFFSET in the log, filled in by replay.
    """

    session_id: Uuid
    name: str
    principal: str
    timeout_ms: int
    epoch: Offset = FROM_OFFSET


@record(45)
class EndClientSession(NamedTuple):
    """The session of a client ended. `reason` is one of `SESSION_END_REASONS`."""

    session_id: Uuid
    epoch: Offset
    reason: str
