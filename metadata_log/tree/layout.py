"""The places of all things in the tree. This file is the only definition; `docs/time-travel.md` shows it to operators.

    /topics/NAME/{id, configs/KEY, partitions/NUMBER}      /users/NAME/MECHANISM       /entities/KIND/NAME
    /brokers/ID                                            /acls/ID                    /kinds/KIND
    /controllers/ID                                        /quotas/ENTITY/KEY          /sessions/ID
    /configs/TYPE/NAME/KEY                                 /features/NAME              /config-definitions/TYPE/NAME
    /log/{offset, epoch, time_ms, digest, records}         /producer-ids

Example: the image has topic `orders` with one partition and the config `retention.ms`, and broker 101.
  1. `/topics/orders/partitions/0` is a leaf with leader, ISR, replicas and epochs;
  2. `/topics/orders/configs/retention.ms` and `/configs/topics/orders/retention.ms` are the same config;
  3. `/log/offset` says after how many records this is so. Two images of different offsets differ in `/log` at least.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, cast

from metadata_log.format.acl_words import AclOperation, PatternType, PermissionType, ResourceType
from metadata_log.format.codec import record_to_json
from metadata_log.format.ids import parse_uuid, uuid_text
from metadata_log.format.partition_state import PartitionState
from metadata_log.format.records import (
    BROKER_RESOURCE,
    FENCED_MODE,
    MAINTENANCE_MODE,
    TOPIC_RESOURCE,
    AccessControlEntry,
    ClientQuota,
    Entity,
    Record,
)
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.sharded_map import ShardedMap
from metadata_log.image.topic_image import TopicImage
from metadata_log.tree.nodes import Branch, Leaf, Node, fixed, mapped, plain

DEFAULT: Final = "<default>"
"""The name of the default of all brokers, and of the default entity of a quota."""
_DIGITS_MAX: Final = 10
"""How many digits the number of a broker or a partition may have: it has 32 bits."""
_RESOURCES: Final = {TOPIC_RESOURCE: "topics", BROKER_RESOURCE: "brokers"}
_MODES: Final = {FENCED_MODE: "fenced", MAINTENANCE_MODE: "maintenance"}
_ACL_WORDS: Final = {
    "resource_type": ResourceType,
    "pattern_type": PatternType,
    "operation": AclOperation,
    "permission_type": PermissionType,
}


def tree_of(image: MetadataImage) -> Branch:
    """Return the root of the tree of `image`."""
    return fixed(
        {
            "acls": _by_key(image.acls, uuid_text, parse_uuid, _acl),
            "brokers": _brokers(image),
            "config-definitions": _definitions(image),
            "configs": _configs(image),
            "controllers": _by_key(image.controllers, str, int, _of_record),
            "entities": _entities(image),
            "features": _by_key(image.features, str, str, plain),
            "kinds": _by_key(image.entity_kinds, str, str, _of_record),
            "log": _log(image),
            "producer-ids": plain(None) if image.producer_ids is None else _of_record(image.producer_ids),
            "quotas": mapped(lambda: _quotas(image), (image.quotas,)),
            "sessions": _by_key(image.client_sessions, uuid_text, parse_uuid, _of_record),
            "topics": _topics(image),
            "users": mapped(lambda: _users(image), (image.scram_credentials,)),
        }
    )


def _of_record(record: Record) -> Leaf:
    return Leaf(record, lambda: record_to_json(record)["data"])


def _by_key(
    entries: ShardedMap[Any, Any], text: Callable[[Any], str], key: Callable[[str], Any], leaf: Callable[[Any], Node]
) -> Branch:
    """Return a branch over a map: `text` makes a name of a key, and `key` a key of a name (or raises ValueError)."""

    def child(name: str) -> Node | None:
        try:
            found = entries.get(key(name))
        except ValueError:
            return None
        return None if found is None else leaf(found)

    return Branch(lambda: map(text, entries.sorted_keys()), child, (entries,))


# --- topics ------------------------------------------------------------------------------------------------------------


def _topics(image: MetadataImage) -> Branch:
    def child(name: str) -> Node | None:
        topic = image.topic(name)
        return None if topic is None else _topic(image, topic)

    return Branch(image.topic_ids.sorted_keys, child, (image.topics_by_id, image.configs))


def _topic(image: MetadataImage, topic: TopicImage) -> Branch:
    configs = image.configs.get((TOPIC_RESOURCE, topic.name))
    return fixed(
        {
            "id": plain(uuid_text(topic.topic_id)),
            "configs": _values(configs or {}),
            "partitions": Branch(
                lambda: map(str, range(topic.partition_count)), lambda name: _partition(topic, name), (topic,)
            ),
        }
    )


def _partition(topic: TopicImage, name: str) -> Leaf | None:
    number = _number(name)
    state: PartitionState | None = None if number is None else topic.state(number)
    return None if number is None or state is None else Leaf(state, lambda: _shown_partition(topic, number))


def _number(name: str) -> int | None:
    """Return the number of a broker or a partition; None if the name is not written as a number is."""
    is_number = name.isascii() and name.isdecimal() and len(name) <= _DIGITS_MAX
    return int(name) if is_number and str(int(name)) == name else None


def _shown_partition(topic: TopicImage, number: int) -> dict[str, Any]:
    data = cast(dict[str, Any], record_to_json(cast(Record, topic.partition(number)))["data"])
    return {key: value for key, value in data.items() if key not in ("topic_id", "partition")}


def _values(config: Mapping[str, str]) -> Branch:
    return Branch(lambda: sorted(config), lambda key: plain(config[key]) if key in config else None, (config,))


# --- brokers, configs --------------------------------------------------------------------------------------------------


def _brokers(image: MetadataImage) -> Branch:
    def leaf(name: str) -> Leaf | None:
        broker_id = _number(name)
        broker = None if broker_id is None else image.brokers.get(broker_id)
        if broker_id is None or broker is None:
            return None
        mode = image.broker_modes.get(broker_id)
        modes = (
            {"mode": None} if mode is None else {"mode": _MODES.get(mode.mode, mode.mode), "mode_reason": mode.reason}
        )
        return Leaf((broker, mode), lambda: {**cast(dict[str, Any], record_to_json(broker)["data"]), **modes})

    return Branch(lambda: map(str, image.brokers.sorted_keys()), leaf, (image.brokers, image.broker_modes))


def _configs(image: MetadataImage) -> Branch:
    def of_type(resource_type: int) -> Branch:
        def child(name: str) -> Node | None:
            config = image.configs.get((resource_type, "" if name == DEFAULT else name))
            return None if config is None else _values(config)

        def names() -> list[str]:
            return [name or DEFAULT for of, name in image.config_resources() if of == resource_type]

        return Branch(names, child, (image.configs,))

    def children() -> dict[str, Node]:
        types = dict.fromkeys([*_RESOURCES, *(resource_type for resource_type, _ in image.config_resources())])
        return {_RESOURCES.get(each, str(each)): of_type(each) for each in types}

    return mapped(children, (image.configs,))


def _definitions(image: MetadataImage) -> Branch:
    definitions = image.config_definitions

    def children() -> dict[str, Node]:
        found: dict[str, dict[str, Node]] = {}
        for (resource_type, name), definition in definitions.items():
            found.setdefault(_RESOURCES.get(resource_type, str(resource_type)), {})[name] = _of_record(definition)
        return {name: fixed(each) for name, each in found.items()}

    return mapped(children, (definitions,))


# --- rights ------------------------------------------------------------------------------------------------------------


def _quotas(image: MetadataImage) -> dict[str, Node]:
    found: dict[str, dict[str, Node]] = {}
    for quota in cast(Iterable[ClientQuota], image.quotas.values()):
        name = ",".join(f"{part.entity_type}={DEFAULT if part.name is None else part.name}" for part in quota.entity)
        found.setdefault(name, {})[quota.key] = plain(quota.value)
    return {name: fixed(keys) for name, keys in found.items()}


def _users(image: MetadataImage) -> dict[str, Node]:
    found: dict[str, dict[str, Node]] = {}
    for (user, mechanism), credential in image.scram_credentials.items():
        name = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}.get(mechanism, str(mechanism))
        found.setdefault(user, {})[name] = _of_record(credential)
    return {name: fixed(each) for name, each in found.items()}


def _acl(entry: AccessControlEntry) -> Leaf:
    def show() -> dict[str, Any]:
        data = cast(dict[str, Any], record_to_json(entry)["data"])
        return {key: _word(_ACL_WORDS.get(key), value) for key, value in data.items() if key != "entry_id"}

    return Leaf(entry, show)


def _word(words: Any, value: Any) -> Any:
    return words(value).name if words is not None and value in [each.value for each in words] else value


# --- entities, log -----------------------------------------------------------------------------------------------------


def _entities(image: MetadataImage) -> Branch:
    def of_kind(kind: str) -> Node | None:
        if kind not in image.kind_usage:
            return None

        def child(name: str) -> Node | None:
            found = image.entity(kind, name)
            return None if found is None else Leaf(found, lambda: _shown_entity(found))

        # A kind is followed by the kinds that sort behind the same text with a zero.
        return Branch(
            lambda: (name for (_, name), _ in image.entities.items_from((kind, ""), (kind + "\x00", ""))),
            child,
            (image.entities,),
        )

    return Branch(image.kind_usage.sorted_keys, of_kind, (image.entities,))


def _shown_entity(entity: Entity) -> dict[str, Any]:
    data = cast(dict[str, Any], record_to_json(entity)["data"])
    try:
        value: dict[str, Any] = {"value": entity.value.decode()}
    except UnicodeDecodeError:
        value = {"value_hex": entity.value.hex()}
    return {**value, **{key: each for key, each in data.items() if key not in ("kind", "name", "value")}}


def _log(image: MetadataImage) -> Branch:
    offset, epoch, time_ms = image.provenance
    return fixed(
        {
            "offset": plain(offset),
            "epoch": plain(epoch),
            "time_ms": plain(time_ms),
            "digest": plain(image.digest_bytes.hex()),
            "records": plain(image.record_count),
        }
    )
