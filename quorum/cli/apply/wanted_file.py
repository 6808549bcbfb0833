"""The file of `quorumctl topics apply`: JSON or YAML.

    schema_version: 1
    cluster:                                        # the defaults of all brokers
      configs: {log.retention.ms: 604800000}
    brokers:
      - {broker: 101, configs: {num.io.threads: 16}}
    topics:
      - topic: orders
        partitions: 12
        replication_factor: 3
        configs: {retention.ms: 86400000}
    prune:                                          # the topics that `--prune` may delete, if they are not above
      prefixes: [orders, payments.]

Every part may be missing, and an empty file changes nothing. A field with another name is a mistake. Files of release 0.1.0 have
no `schema_version`, and may have notes of their own, for example `pipeline: spans`: in such a file another name is a mistake only
if the name is near to a field, as `partitons` is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NamedTuple

from quorum.cli.text_file import read_text

FILE_BYTES_MAX: Final = 64 << 20
SCHEMA_VERSION: Final = 1
_SECTIONS: Final = ("schema_version", "topics", "cluster", "brokers", "prune")
_TOPIC_FIELDS: Final = ("topic", "name", "partitions", "replication_factor", "configs")
_BROKER_FIELDS: Final = ("broker", "configs")
_NEAR: Final = 0.75
"""Minimum likeness of two names of which one is taken for the other one, misspelt; 1 is the same name."""


class WantedTopic(NamedTuple):
    """One topic of the file. None: the file does not say it; the cluster's value or default holds."""

    name: str
    partitions: int | None
    replication_factor: int | None
    configs: Mapping[str, str]


class Wanted(NamedTuple):
    """The whole file."""

    topics: tuple[WantedTopic, ...]
    broker_configs: Mapping[str, Mapping[str, str]]
    """By broker id as text; the empty text is the default of all brokers."""
    prune_prefixes: tuple[str, ...]
    """A topic that is not in the file is pruned if its name begins with one of these."""


def read_wanted(path: Path, partitions: int | None, replication_factor: int | None) -> Wanted:
    """Returns the content of the file. `partitions` and `replication_factor` are for topics without these in the file.

    Raises:
        ValueError: the file has a mistake; the message names the place.
    """
    document = _parsed(read_text(path, FILE_BYTES_MAX), path.suffix)
    if document is None:
        document = {}
    if isinstance(document, list):
        document = {"topics": document}
    if not isinstance(document, dict):
        raise ValueError(f"a mapping with the keys {', '.join(_SECTIONS)} expected, each of which may be missing")
    _check_schema(document)
    entries = _list(document, "topics")
    topics = [_wanted(index, entry, partitions, replication_factor) for index, entry in enumerate(entries)]
    for topic, entry in zip(topics, entries, strict=True):
        _check_fields(f"topic {topic.name}", entry, _TOPIC_FIELDS, document)
    _check_once("topic", [topic.name for topic in topics])
    brokers = list(_broker_configs(document))
    _check_once("broker", [broker for broker, _ in brokers])
    return Wanted(tuple(topics), dict(brokers), _prefixes(document))


def _check_schema(document: Mapping[str, Any]) -> None:
    version = document.get("schema_version", SCHEMA_VERSION)
    if version != SCHEMA_VERSION:
        raise ValueError(f"schema_version is {version!r}: this release knows {SCHEMA_VERSION}")
    _check_fields("the file", document, _SECTIONS, document)
    if document and not any(section in document for section in _SECTIONS):
        raise ValueError(f"the file has none of the keys {', '.join(_SECTIONS)}")


def _check_fields(
    owner: str, entry: Mapping[str, Any], known: Sequence[str], document: Mapping[str, Any], *, notes: bool = True
) -> None:
    """Raises ValueError for an unknown field. `notes`: a file without `schema_version` may have notes here."""
    for key in map(str, entry):
        if key in known:
            continue
        near = get_close_matches(key.lower().replace("-", "_"), known, 1, _NEAR)
        if near or not notes or "schema_version" in document:
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
            raise ValueError(f"{owner} has the unknown field {key!r}; {hint}")


def _list(document: Mapping[str, Any], section: str) -> list[Any]:
    entries = document.get(section)
    if entries is not None and not isinstance(entries, list):
        raise ValueError(f'a list under "{section}" expected')
    return entries or []


def _check_once(kind: str, names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{kind} {name} is there twice")
        seen.add(name)


def _broker_configs(document: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
    cluster = document.get("cluster")
    if cluster is not None:
        if not isinstance(cluster, dict):
            raise ValueError('"cluster" has "configs", and nothing else')
        _check_fields('"cluster"', cluster, ("configs",), document, notes=False)
        yield "", _configs_of("cluster", cluster)
    for index, entry in enumerate(_list(document, "brokers")):
        broker = entry.get("broker") if isinstance(entry, dict) else None
        if not isinstance(broker, int) or isinstance(broker, bool) or broker < 0:
            raise ValueError(f'entry {index} under "brokers" has no "broker", the id of a broker')
        _check_fields(f"broker {broker}", entry, _BROKER_FIELDS, document, notes=False)
        yield str(broker), _configs_of(f"broker {broker}", entry)


def _prefixes(document: Mapping[str, Any]) -> tuple[str, ...]:
    prune = document.get("prune")
    if prune is None:
        return ()
    if isinstance(prune, dict):
        _check_fields('"prune"', prune, ("prefixes",), document, notes=False)
    prefixes = prune.get("prefixes") if isinstance(prune, dict) else None
    if not isinstance(prefixes, list) or not prefixes or not all(isinstance(each, str) and each for each in prefixes):
        raise ValueError('"prune" has "prefixes", a list of beginnings of topic names; none is empty')
    return tuple(prefixes)


def _parsed(text: str, suffix: str) -> Any:
    if suffix == ".json":
        return json.loads(text) if text.strip() else None
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as e:
        raise ValueError(f"not YAML: {e}") from e


def _wanted(index: int, entry: Any, partitions: int | None, replication_factor: int | None) -> WantedTopic:
    name = entry.get("topic", entry.get("name")) if isinstance(entry, dict) else None
    if not isinstance(name, str) or not name:
        raise ValueError(f'entry {index} under "topics" has no "topic"')
    return WantedTopic(
        name,
        _count(name, entry, "partitions", partitions),
        _count(name, entry, "replication_factor", replication_factor),
        _configs_of(name, entry),
    )


def _configs_of(owner: str, entry: Mapping[str, Any]) -> dict[str, str]:
    configs = entry.get("configs") or {}
    if not isinstance(configs, dict):
        raise ValueError(f"{owner}: configs are not a mapping")
    return {str(key): _config_text(value) for key, value in sorted(configs.items(), key=str)}


def _count(name: str, entry: Mapping[str, Any], key: str, otherwise: int | None) -> int | None:
    value = entry.get(key, otherwise)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise ValueError(f"{name}: {key} is {value!r}, not a positive number")
    return value


def _config_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(str(item) for item in value) if isinstance(value, list) else str(value)
