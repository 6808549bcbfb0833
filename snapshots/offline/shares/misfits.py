"""The misfits of one share: each fault once, and its followers counted.

A record that does not fit is left out, and the replay goes on. The effect of the record is missing from now on, so more records
may not fit. Example:
  1. at 40, a leader with a bug creates topic orders a second time, with the id B: the record is left out, and reported;
  2. at 41..140 the 100 partitions of B come, and there is no topic B: these records name the same entity, and are counted;
  3. the report has one finding: topic orders exists, "and 100 more records do not fit, which name this entity".
So the first misfit makes its entities *suspect*, and each later misfit of a record that names a suspect is a follower.
"""

from collections import Counter
from typing import Final, NamedTuple

from metadata_log.format.ids import Offset, uuid_text
from metadata_log.format.records import (
    BROKER_RESOURCE,
    METADATA_VERSION,
    TOPIC_RESOURCE,
    BrokerMode,
    ClearElr,
    Config,
    Entity,
    Label,
    Owner,
    Partition,
    PartitionChange,
    Record,
    RemoveTopic,
    Topic,
)
from metadata_log.image.entities import entity_keys
from metadata_log.image.entity_key import EntityKey
from metadata_log.image.image_editor import Law

MISFITS_MAX: Final = 1_000
"""Maximum number of misfits of each rule in one share. Further misfits are counted."""

_LEVEL: Final[EntityKey] = ("feature", METADATA_VERSION)


class Found(NamedTuple):
    """One misfit. The fields go from task to driver as JSON."""

    offset: Offset
    rule: str
    entity: EntityKey
    reason: str
    followers: int = 0
    """How many later records do not fit because of this record, as far as names tell."""
    because: EntityKey | None = None
    """Another entity. An earlier misfit of the other entity explains this misfit."""
    is_told: bool = True
    """False for a misfit that share 0 reports: then only the followers count."""


def broker_key(broker_id: int) -> EntityKey:
    return ("broker", str(broker_id))


def own_keys(record: Record) -> list[EntityKey]:
    """Return the entities that the record changes. The name of a topic counts as an entity of its own."""
    keys = [*entity_keys(record)]
    if isinstance(record, Topic | RemoveTopic):
        keys.append(("topic-name", record.name))
    return keys


def named_keys(record: Record, rule: str) -> list[EntityKey]:
    """Return the entities that the record changes, and the entities to which the record refers."""
    keys = own_keys(record)
    if rule == Law.LEVEL:
        keys.append(_LEVEL)
    match record:
        case Partition(replicas=replicas) | PartitionChange(replicas=tuple(replicas)):
            keys += map(broker_key, replicas)
        case Config(resource_type, name) | Label(resource_type, name):
            keys += [("topic-name", name)] if resource_type == TOPIC_RESOURCE else []
            keys += [("broker", name)] if resource_type == BROKER_RESOURCE else []
        case ClearElr(topic_name=str(name)):
            keys.append(("topic-name", name))
        case BrokerMode(broker_id):
            keys.append(broker_key(broker_id))
        case Entity(owner=Owner(session_id, broker_id)):
            keys.append(broker_key(broker_id or 0) if session_id is None else ("client-session", uuid_text(session_id)))
    return keys


class Misfits:
    """The misfits of one share."""

    def __init__(self) -> None:
        self.found: list[Found] = []
        self.more: Counter[str] = Counter()
        """How many misfits of a rule are not in `found`, because there are too many."""
        self._told: Counter[str] = Counter()
        self._suspects: dict[EntityKey, int] = {}
        """Entity -> index in `found` of the misfit that made the entity suspect."""

    def add(self, record: Record, offset: Offset, rule: str, reason: str, *, is_told: bool = True) -> None:
        """Take a record that does not fit: a follower of an earlier misfit, or a new misfit."""
        named = named_keys(record, rule)
        for key in named:
            if key in self._suspects:
                self.follow(self._suspects[key])
                return
        place = self.tell(Found(offset, rule, named[0] if named else ("record",), reason, is_told=is_told))
        if place is not None:
            self._suspects.update(dict.fromkeys(own_keys(record), place))

    def follow(self, place: int) -> None:
        found = self.found[place]
        self.found[place] = found._replace(followers=found.followers + 1)

    def tell(self, found: Found) -> int | None:
        """Note a new misfit; return its index, or None if there are too many of its rule."""
        if self._told[found.rule] >= MISFITS_MAX:
            if found.is_told:
                self.more[found.rule] += 1
            return None
        self._told[found.rule] += 1
        self.found.append(found)
        return len(self.found) - 1
