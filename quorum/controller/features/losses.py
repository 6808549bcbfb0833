"""The metadata that needs a level: a downgrade below the level would lose it, and is refused.

    partitions   those with a field that needs the level (`OWN_FIELDS`)
    others       records of a type or with a field that needs the level: `ENTITIES`

*The search takes slices, and misses nothing.* A million partitions take 0.12 s, so no turn looks at all of them. Between two
slices other requests change partitions that the search has passed. But an image is immutable: a topic without a change is the
same object.
So the search remembers each topic object in which it found nothing. Example, with topics A, B and C:
  1. the first slice looks at A and B, and remembers both objects;
  2. a reassignment of A begins: the image has another object for A;
  3. the second slice finds B as remembered, and looks at C and at A again: A needs level 2, and the downgrade is refused.
The level falls in the turn in which every topic is as remembered. The search remembers whole shards of the map of topics, too: an
unchanged shard is one comparison.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from operator import itemgetter
from typing import Final, NamedTuple

from metadata_log.format.records import (
    METADATA_VERSION,
    BrokerMode,
    ClientSession,
    ConfigDefinition,
    Entity,
    EntityKind,
    EpochFloor,
    Label,
    Partition,
    RegisterBroker,
)
from metadata_log.format.records.levels import FIELD_LEVELS, RECORD_LEVELS
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.topic_image import CHUNK_PARTITIONS
from quorum.controller.protocol.feature_commands import LookedAt
from quorum.controller.topics.config_keys import RESOURCE_WORDS

NAMED_MAX: Final = 5
"""How many things a refusal names at most; it says only the number of the others."""

OWN_FIELDS: Final[Mapping[str, Mapping[str, int]]] = {
    METADATA_VERSION: FIELD_LEVELS[Partition],
}
"""Feature -> field of partitions -> the level below which the field would be lost."""

ENTITIES: Final[Mapping[type, Callable[[MetadataImage], Iterable[str]]]] = {
    BrokerMode: lambda image: (f"the mode of broker {broker_id}" for broker_id in image.broker_modes),
    EpochFloor: lambda image: () if image.epoch_floor is None else ("the epochs of partitions since the recovery",),
    RegisterBroker: lambda image: (
        f"the death of broker {broker.broker_id} (until its next start)"
        for broker in image.brokers.values()
        if broker.dead
    ),
    EntityKind: lambda image: (f"the kind {kind}" for kind in image.entity_kinds),
    ClientSession: lambda image: (
        (f"the sessions of {len(image.client_sessions):,} clients",) if image.client_sessions else ()
    ),
    ConfigDefinition: lambda image: (
        f"the definition of {RESOURCE_WORDS[resource_type]} config {name}"
        for resource_type, name in image.config_definitions
    ),
    Label: lambda image: (f"{image.label_count:,} labels",) if image.label_count else (),
    Entity: lambda image: (f"{used.entity_count:,} entities of kind {kind}" for kind, used in image.kind_usage.items()),
}
"""Canonical record type -> the names of all things in an image that need the level of the type, or of its one newer field."""


class Found(NamedTuple):
    """The result of a slice. With `names` the downgrade is refused; without, and `is_complete`, nothing needs the level."""

    names: tuple[str, ...] = ()
    total: int = 0
    is_complete: bool = False

    def __str__(self) -> str:
        others = f" and {self.total - len(self.names):,} more" if self.total > len(self.names) else ""
        return f"{', '.join(self.names)}{others}"


def find_losses(image: MetadataImage, lowered: Mapping[str, int], looked_at: LookedAt, partitions_max: int) -> Found:
    """Looks at the next topics, and adds those in which nothing needs more than the `lowered` levels to `looked_at`."""
    entities = _entities(image, lowered)
    if entities:
        return _found(entities)
    positions = sorted({position for name, level in lowered.items() for position in _positions(name, level)})
    if not positions:
        return Found(is_complete=True)
    fields = itemgetter(*positions)  # one call for all fields: millions of partitions are looked at
    nothing = fields(((),) * len(Partition._fields))
    seen = 0
    for shard in image.topics_by_id.shards():
        if id(shard) in looked_at.shards:
            continue
        for topic_id, topic in shard.items():
            if looked_at.topics.get(topic_id) is topic:
                continue
            first = looked_at.chunks if looked_at.partly is topic else 0
            end = min(len(topic.chunks), first + (partitions_max - seen + CHUNK_PARTITIONS - 1) // CHUNK_PARTITIONS)
            states = enumerate(chain.from_iterable(topic.chunks[first:end]), first * CHUNK_PARTITIONS)
            found = [number for number, state in states if fields(state) != nothing]
            if found:
                return _found([f"{topic.name}-{number}" for number in found])
            seen += (end - first) * CHUNK_PARTITIONS
            if end < len(topic.chunks):
                looked_at.partly, looked_at.chunks = topic, end
                return Found()
            looked_at.topics[topic_id] = topic
        looked_at.shards[id(shard)] = shard
    return Found(is_complete=True)


def _found(names: list[str]) -> Found:
    return Found(tuple(names[:NAMED_MAX]), len(names))


def _positions(name: str, level: int) -> list[int]:
    """The places of the fields in the state of a partition, which has all fields of `Partition` but topic id and number."""
    return [Partition._fields.index(field) - 2 for field, needed in OWN_FIELDS.get(name, {}).items() if needed > level]


def _entities(image: MetadataImage, lowered: Mapping[str, int]) -> list[str]:
    if METADATA_VERSION not in lowered:
        return []
    needing = (kind for kind in ENTITIES if _level_of(kind) > lowered[METADATA_VERSION])
    return [name for kind in needing for name in ENTITIES[kind](image)]


def _level_of(kind: type) -> int:
    return RECORD_LEVELS[kind] if kind in RECORD_LEVELS else max(FIELD_LEVELS[kind].values())
