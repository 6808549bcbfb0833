"""The difference between two images. A broker's cache uses it to find deleted topics and changed brokers.

`Changes` names entities, not values; readers look up values in the image before or after. `add` joins the changes of two
steps. Example: one delta creates topic A, and a later delta deletes A again. The sum of the two changes does not name A.

A delta fills in its `Changes` during replay. After a snapshot was loaded, `between` compares two whole images field by
field. An image field without a place of its own here is one of the `others`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from itertools import zip_longest
from typing import Any, Final, TypeVar

from metadata_log.format.entity_names import EntityName
from metadata_log.format.ids import NodeId, Uuid
from metadata_log.format.records import Entity
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.ordered_map import OrderedMap

K = TypeVar("K")

_SUMS: Final = {
    "provenance",
    "digest",
    "record_count",
    "partition_count",
    "entity_bytes",
    "label_count",
    "kind_usage",
    "owned",
}
_NAMED: Final = {
    "topics_by_id", "topic_ids", "brokers", "controllers", "configs", "features", "entities", "entity_kinds", "client_sessions",
    "config_definitions", "labels",
}  # fmt: skip
"""Fields of the image whose changes are listed by entity."""
_OTHERS: Final = tuple({each.name for each in fields(MetadataImage)} - _SUMS - _NAMED)


def _differing(before: Mapping[K, Any], after: Mapping[K, Any]) -> set[K]:
    return {key for key in {*before, *after} if before.get(key) != after.get(key)}


def _differing_entities(
    before: OrderedMap[EntityName, Entity], after: OrderedMap[EntityName, Entity]
) -> set[EntityName]:
    """Compare without a search for each entity. Chunks that both maps share are left out."""
    shared = {id(chunk) for chunk in before.chunks()} & {id(chunk) for chunk in after.chunks()}
    old: dict[EntityName, Entity] = {}
    for chunk in before.chunks():
        if id(chunk) not in shared:
            old.update(zip(chunk.keys, chunk.values, strict=True))
    differing: set[EntityName] = set()
    for chunk in after.chunks():
        if id(chunk) not in shared:
            pairs = zip(chunk.keys, chunk.values, strict=True)
            differing.update(key for key, value in pairs if old.pop(key, None) != value)
    differing.update(old)
    return differing


@dataclass(slots=True)
class Changes:
    """The entities that differ. Filled during replay, and read-only afterwards."""

    created_topics: set[Uuid] = field(default_factory=set)
    """Topics that exist now and did not before. All their partitions are new, and are not listed below."""
    deleted_topics: dict[Uuid, str] = field(default_factory=dict)
    """Topics that existed before and do not now: id -> name."""
    partitions: dict[Uuid, set[int]] = field(default_factory=dict)
    """Topics that exist before and now -> numbers of the partitions that changed or are new."""
    brokers: set[NodeId] = field(default_factory=set)
    """Brokers whose registration was added, removed or changed."""
    controllers: set[NodeId] = field(default_factory=set)
    config_resources: set[tuple[int, str]] = field(default_factory=set)
    """Resources with a key that was set or removed."""
    features: set[str] = field(default_factory=set)
    entities: set[EntityName] = field(default_factory=set)
    """Entities, by kind and name, that were written or removed."""
    entity_kinds: set[str] = field(default_factory=set)
    """Kinds whose declaration was added, removed or changed."""
    client_sessions: set[Uuid] = field(default_factory=set)
    """Sessions of clients that were opened or have ended."""
    config_definitions: set[tuple[int, str]] = field(default_factory=set)
    """Definitions of config keys, by resource type and name, that were written or removed."""
    labels: set[tuple[int, str]] = field(default_factory=set)
    """Resources with a label that was attached, changed or removed; a topic also for the labels of its partitions."""
    others: bool = False
    """Something else changed: quotas, producer ids, ACLs, SCRAM credentials, delegation tokens, request outcomes, modes
    of brokers, the floor of epochs."""

    def topic_created(self, topic_id: Uuid) -> None:
        self.created_topics.add(topic_id)

    def topic_deleted(self, topic_id: Uuid, name: str) -> None:
        if topic_id in self.created_topics:
            self.created_topics.discard(topic_id)
        else:
            self.deleted_topics[topic_id] = name
            self.partitions.pop(topic_id, None)

    def partitions_changed(self, topic_id: Uuid, partitions: set[int]) -> None:
        """Note changed partitions of a topic. The set belongs to these changes from now on."""
        if topic_id not in self.created_topics and partitions:
            known = self.partitions.setdefault(topic_id, partitions)
            if known is not partitions:
                known |= partitions

    def add(self, later: "Changes") -> None:
        """Add the changes that directly follow these."""
        for topic_id, name in later.deleted_topics.items():
            self.topic_deleted(topic_id, name)
        self.created_topics |= later.created_topics
        for topic_id, partitions in later.partitions.items():
            self.partitions_changed(topic_id, partitions if topic_id in self.partitions else set(partitions))
        self.brokers |= later.brokers
        self.controllers |= later.controllers
        self.config_resources |= later.config_resources
        self.features |= later.features
        self.entities |= later.entities
        self.entity_kinds |= later.entity_kinds
        self.client_sessions |= later.client_sessions
        self.config_definitions |= later.config_definitions
        self.labels |= later.labels
        self.others = self.others or later.others

    @classmethod
    def between(cls, before: MetadataImage, after: MetadataImage) -> "Changes":
        """Compare two images without a delta between them, after a snapshot was loaded. O(images)."""
        changes = cls()
        for topic in before.topics_by_id.unordered_values():
            later = after.topic_by_id(topic.topic_id)
            if later is None:
                changes.deleted_topics[topic.topic_id] = topic.name
            elif later.digest != topic.digest:
                states = zip_longest(topic.states(), later.states())
                changes.partitions[topic.topic_id] = {n for n, (old, new) in enumerate(states) if old != new}
        changes.created_topics = {
            topic.topic_id
            for topic in after.topics_by_id.unordered_values()
            if topic.topic_id not in before.topics_by_id
        }
        changes.brokers = _differing(before.brokers, after.brokers)
        changes.controllers = _differing(before.controllers, after.controllers)
        changes.config_resources = _differing(before.configs, after.configs)
        changes.features = _differing(before.features, after.features)
        changes.entities = _differing_entities(before.entities, after.entities)
        changes.entity_kinds = _differing(before.entity_kinds, after.entity_kinds)
        changes.client_sessions = _differing(before.client_sessions, after.client_sessions)
        changes.config_definitions = _differing(before.config_definitions, after.config_definitions)
        changes.labels = _differing(before.labels, after.labels)
        changes.others = any(getattr(before, name) != getattr(after, name) for name in _OTHERS)
        return changes

    def __bool__(self) -> bool:
        return bool(
            self.created_topics or self.deleted_topics or self.partitions or self.brokers or self.controllers
            or self.config_resources or self.features or self.entities or self.entity_kinds or self.client_sessions
            or self.config_definitions or self.labels or self.others
        )  # fmt: skip
