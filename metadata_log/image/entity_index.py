"""What an image derives from its entities: the use of each kind, and the entities of each owner.

The digest does not count these, because they follow from the entities. `check_entities` recomputes them. Example: the image has
("lock", "a") with a value of 3 bytes and the owner Owner(A, None, 40), and ("lock", "b") with 5 bytes and no owner. So the kind
"lock" has KindUsage(entity_count=2, byte_count=10), and Owner(A, None, 40) owns {("lock", "a")}.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from metadata_log.format.entity_names import EntityName
from metadata_log.format.ids import NodeId, Uuid, uuid_text
from metadata_log.format.records import OWNED_ENTITIES_MAX, ClientSession, Entity, Owner, RegisterBroker

if TYPE_CHECKING:
    from metadata_log.image.metadata_image import MetadataImage


class KindUsage(NamedTuple):
    """The entities of one kind: how many, and the size of their names (in UTF-8) and values, in bytes."""

    entity_count: int
    byte_count: int


UNUSED: Final = KindUsage(0, 0)


def size_of(entity: Entity) -> int:
    """Return the size of an entity as limits count it, in bytes: its name in UTF-8 and its value."""
    return len(entity.name.encode()) + len(entity.value)


def by_owner(owner: Owner) -> tuple[bytes, NodeId, int]:
    """Sort owners: brokers by id, then the sessions of clients."""
    return owner.session_id or b"", -1 if owner.broker_id is None else owner.broker_id, owner.epoch


def owner_text(owner: Owner) -> str:
    """Name the session of an owner for people."""
    who = f"broker {owner.broker_id}" if owner.session_id is None else f"session {uuid_text(owner.session_id)}"
    return f"{who} of epoch {owner.epoch}"


def is_live(owner: Owner, sessions: Any, brokers: Any) -> bool:
    """Return True if the session of the owner has not ended. A fenced broker has no session."""
    if owner.session_id is not None:
        session: ClientSession | None = sessions.get(owner.session_id)
        return session is not None and session.epoch == owner.epoch
    broker: RegisterBroker | None = brokers.get(owner.broker_id)
    return broker is not None and broker.broker_epoch == owner.epoch and not broker.fenced


def check_entities(image: "MetadataImage") -> None:
    """Recompute the derived fields of `image`, and assert the laws of entities and sessions. O(entities)."""
    usage: dict[str, KindUsage] = {}
    owned: dict[Owner, set[EntityName]] = {}
    last: EntityName = ("", "")
    for key, entity in image.entities.items():
        assert key == (entity.kind, entity.name), entity
        assert key > last, (last, key)
        last = key
        assert 0 <= entity.created <= entity.version, entity
        used = usage.get(entity.kind, UNUSED)
        usage[entity.kind] = KindUsage(used.entity_count + 1, used.byte_count + size_of(entity))
        if entity.owner is not None:
            assert is_live(entity.owner, image.client_sessions, image.brokers), entity
            owned.setdefault(entity.owner, set()).add(key)
    assert len({entity.version for entity in image.entities.values()}) == len(image.entities), image
    assert _as_dict(image.kind_usage) == usage, (image, "kind usage")
    assert _as_dict(image.owned) == owned, (image, "owned entities")
    assert all(len(names) <= OWNED_ENTITIES_MAX for names in owned.values()), image
    assert image.entity_bytes == sum(used.byte_count for used in usage.values()), image
    assert all(kind == declared.kind for kind, declared in image.entity_kinds.items()), image
    sessions: Mapping[Uuid, ClientSession] = image.client_sessions
    assert all(session_id == session.session_id and session.epoch >= 0 for session_id, session in sessions.items()), (
        image
    )


def _as_dict(some: Mapping[Any, Any]) -> dict[Any, Any]:
    return dict(some.items())
