"""The rows of `changes`: the differences that a step made in the canonical records of one entity.

    created, removed    one row for the record; `new` or `old` has all fields as JSON
    changed             one row for each differing field

The record of a single value (a config, a label, a feature level, a quota) has rows with the key as `field`, also when the
record is created or removed. A field that only counts (an epoch, a version) has a row only if no other field changed.
Example: retention.ms of topic orders goes from 1000 to 2000: kind `config`, name `topic orders`, field `retention.ms`, old 1000,
new 2000.

Secrets are redacted. A short text in an entity is shown as text, and every other value by size and hash.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, cast

from metadata_log.format.codec import field_to_json, record_to_json
from metadata_log.format.ids import uuid_text
from metadata_log.format.records import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    WHOLE_RESOURCE,
    ClientQuota,
    Config,
    Entity,
    FeatureLevel,
    Label,
    MetadataRecord,
)
from metadata_log.image.canonical_order import OrderKey
from metadata_log.image.entity_key import EntityKey
from snapshots.offline.history.folding.intervals import moment
from snapshots.offline.history.folding.steps import Step
from snapshots.offline.history.tables import Values

TEXT_BYTES_MAX: Final = 1_000
"""Maximum size of an entity's value in a row."""
COUNTERS: Final = frozenset(("leader_epoch", "partition_epoch", "broker_epoch", "version", "since_ms"))
"""Fields that change as a consequence of others."""

Records = Mapping[OrderKey, MetadataRecord]


class Described(NamedTuple):
    """A canonical record for people."""

    kind: str
    name: str
    fields: Mapping[str, str | None]
    is_value: bool
    """The record is one value, under its key."""


def described(key: EntityKey, record: MetadataRecord, topic: str = "") -> Described:
    """Describe a record of the entity `key`; a partition is named after its topic."""
    match record:
        case Config():
            return Described("config", _resource(record.resource_type, record.resource_name), _value(record), True)
        case Label():
            name = _resource(record.resource_type, record.resource_name)
            part = "" if record.partition == WHOLE_RESOURCE else f"-{record.partition}"
            return Described("label", name + part, _value(record), True)
        case FeatureLevel():
            return Described("feature", record.name, {"level": str(record.level)}, True)
        case ClientQuota():
            name = " ".join(f"{part.entity_type}={part.name or '<default>'}" for part in record.entity)
            return Described("quota", name, {record.key: str(record.value)}, True)
    kind, name = key[0], " ".join(key[1:])
    if topic:
        number = getattr(record, "partition", None)
        kind, name = ("topic", topic) if number is None else ("partition", f"{topic}-{number}")
    return Described(kind, name, _fields(record), False)


def _value(record: Config | Label) -> dict[str, str | None]:
    return {record.key: record.value}


def _resource(resource_type: int, name: str) -> str:
    words = {TOPIC_RESOURCE: "topic", BROKER_RESOURCE: "broker"}
    return "all brokers" if (resource_type, name) == (BROKER_RESOURCE, "") else f"{words[resource_type]} {name}"


def _fields(record: MetadataRecord) -> dict[str, str | None]:
    data = dict(cast(dict[str, Any], record_to_json(record)["data"]))
    if isinstance(record, Entity):
        data["value"] = _shown(record.value)
        data["owner"] = _owner(record)
    return {name: _text(value) for name, value in data.items()}


def _owner(record: Entity) -> str | None:
    owner = record.owner
    if owner is None:
        return None
    return f"broker {owner.broker_id}" if owner.session_id is None else f"session {uuid_text(owner.session_id)}"


def _shown(value: bytes) -> str:
    if len(value) <= TEXT_BYTES_MAX:
        try:
            return value.decode()
        except UnicodeDecodeError:
            pass  # the value is no text, so it is shown as other large values are
    return f"{len(value)} bytes, SHA-256 {hashlib.sha256(value).hexdigest()[:16]}"


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def change(
    step: Step, action: str, kind: str, name: str, field: str | None, old: str | None, new: str | None
) -> Values:
    """Return a row of `changes`."""
    time, day = moment(step.time_ms)
    return (step.offset, time, action, kind, name, field, old, new, step.principal, step.request_id, day)


def changes_between(key: EntityKey, before: Records, after: Records, step: Step, topic: str = "") -> Iterator[Values]:
    """Return the rows of a step that made `after` of the records `before`, in canonical order."""
    for order in sorted({*before, *after}):
        old, new = before.get(order), after.get(order)
        if old != new:
            yield from _rows(key, old, new, step, topic)


def record_changes(
    key: EntityKey, old: MetadataRecord | None, new: MetadataRecord | None, step: Step, topic: str = ""
) -> Iterator[Values]:
    """Return the rows of one record that a step created, changed or removed."""
    if old != new:
        yield from _rows(key, old, new, step, topic)


def field_text(cls: type[tuple[Any, ...]], name: str, value: object) -> str | None:
    """Return a field of a record of the type `cls` as in the columns `old` and `new`."""
    return _text(field_to_json(cls, name, value))


def _rows(
    key: EntityKey, old: MetadataRecord | None, new: MetadataRecord | None, step: Step, topic: str
) -> Iterator[Values]:
    was = None if old is None else described(key, old, topic)
    now = None if new is None else described(key, new, topic)
    one = now or was
    assert one is not None
    action = "created" if was is None else "removed" if now is None else "changed"
    if not one.is_value and (was is None or now is None):
        yield change(step, action, one.kind, one.name, None, _whole(was), _whole(now))
        return
    olds, news = {} if was is None else was.fields, {} if now is None else now.fields
    for name in _differing(olds, news):
        yield change(step, action, one.kind, one.name, name, olds.get(name), news.get(name))


def _whole(one: Described | None) -> str | None:
    return None if one is None else json.dumps(dict(one.fields), ensure_ascii=False)


def _differing(olds: Mapping[str, str | None], news: Mapping[str, str | None]) -> list[str]:
    names = [name for name in {**olds, **news} if olds.get(name) != news.get(name) or (name in olds) != (name in news)]
    return [name for name in names if name not in COUNTERS] or names
