"""Keys of entities: the names of everything that a record can change, as tuples of text.

Example: `RemoveTopic("orders", id)` changes the entities `("topic", id)`, `("config", "2", "orders")` and
`("labels", "2", "orders")`, because a topic's configs and labels are deleted with the topic. Spark groups the records of
the log by these keys (`entities`).
"""

from typing import Final, TypeAlias

from metadata_log.format.ids import Uuid, uuid_text
from metadata_log.format.records import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    ClearElr,
    ClientQuota,
    RemoveTopic,
    UnregisterBroker,
)

EntityKey: TypeAlias = tuple[str, ...]
"""The entity that a record changes, in words: `("topic", id)`, `("broker", "7")`, `("config", "2", name)` ..."""

EVERY_TOPIC: Final[EntityKey] = ("topic", "*")
"""The key of records that must be folded into every topic."""


def topic_key(topic_id: Uuid) -> EntityKey:
    return ("topic", uuid_text(topic_id))


def remove_topic_keys(record: RemoveTopic) -> tuple[EntityKey, ...]:
    return (
        topic_key(record.topic_id),
        ("config", str(TOPIC_RESOURCE), record.name),
        labels_key(TOPIC_RESOURCE, record.name),
    )


def unregister_broker_keys(record: UnregisterBroker) -> tuple[EntityKey, ...]:
    return ("broker", str(record.broker_id)), labels_key(BROKER_RESOURCE, str(record.broker_id))


def labels_key(resource_type: int, resource_name: str) -> EntityKey:
    """Return the key of all labels of a topic with its partitions, or of a broker."""
    return ("labels", str(resource_type), resource_name)


def clear_elr_keys(record: ClearElr) -> tuple[EntityKey, ...]:
    return (EVERY_TOPIC if record.topic_id is None else topic_key(record.topic_id),)


def quota_keys(record: ClientQuota) -> tuple[EntityKey, ...]:
    parts = [
        text for part in record.entity for text in (part.entity_type, "" if part.name is None else "=" + part.name)
    ]
    return (("quota", *parts, record.key),)
