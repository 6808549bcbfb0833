"""The claims of answers about entities and sessions: statements about the image at the answer's offset.

See `tests.chaos.operators.claims`. Example: a client puts ("register", "a/1") on condition that the version is 40.

    1. The answer "done, version 52" at offset 54 claims: the entity has the new value and the version 52.
    2. The answer "the condition failed, there is version 47" as of offset 50 claims: the version was 47, so it was not 40.
"""

from itertools import takewhile
from typing import NamedTuple

from metadata_log.format.ids import Offset, Uuid
from metadata_log.format.records import Entity
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.protocol.entity_commands import NO_VERSION, Condition
from tests.chaos.operators.claims import differs
from tests.sim.laws.entities.registers import holds


class EntityIs(NamedTuple):
    """The entity has this value and this version. None: there is no such entity."""

    kind: str
    name: str
    value: bytes | None
    version: Offset = NO_VERSION

    def contradiction(self, image: MetadataImage) -> str | None:
        found = image.entity(self.kind, self.name)
        return differs(
            (self.value, self.version), (None, NO_VERSION) if found is None else (found.value, found.version)
        )


class Deleted(NamedTuple):
    """The entity is gone, and had this version."""

    kind: str
    name: str
    version: Offset

    def contradiction(self, image: MetadataImage) -> str | None:
        return differs(None, image.entity(self.kind, self.name))


class Listed(NamedTuple):
    """These are all entities of the kind with the prefix: name, version, created."""

    kind: str
    prefix: str
    entities: tuple[tuple[str, Offset, Offset], ...]

    def contradiction(self, image: MetadataImage) -> str | None:
        from_here = image.entities.items_from((self.kind, self.prefix))
        found = takewhile(lambda item: item[0][0] == self.kind and item[0][1].startswith(self.prefix), from_here)
        return differs(self.entities, tuple((name, each.version, each.created) for (_, name), each in found))


class Unmet(NamedTuple):
    """The condition at this place did not hold, and those before did. The entity had this version."""

    conditions: tuple[Condition, ...]
    place: int
    version: Offset = NO_VERSION

    def contradiction(self, image: MetadataImage) -> str | None:
        found = [image.entity(*each.entity) for each in self.conditions]
        held = [holds(each, entity) for each, entity in zip(self.conditions, found, strict=True)]
        first = held.index(False) if False in held else None
        version = _version(found[self.place])
        return differs((self.place, self.version), (first, version))


class SessionIs(NamedTuple):
    """The session is open in this epoch; None: it has ended."""

    session_id: Uuid
    epoch: Offset | None

    def contradiction(self, image: MetadataImage) -> str | None:
        found = image.client_sessions.get(self.session_id)
        return differs(self.epoch, None if found is None else found.epoch)


def _version(entity: Entity | None) -> Offset:
    return NO_VERSION if entity is None else entity.version
