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

Every part may be missing, and an empty file changes nothing. A file without `schema_version` may have other keys, which do not
count: files of release 0.1.0 are such.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from quorum.cli.text_file import read_text

FILE_BYTES_MAX: Final = 64 << 20
SCHEMA_VERSION: Final = 1
_SECTIONS: Final = ("schema_version", "topics", "cluster", "brokers", "prune")


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
    if isinstance(document, list):
        document = {"topics": document}
    if not isinstance(document, dict) or not any(section in document for section in _SECTIONS):
        raise ValueError('a list under "topics" expected')
    _check_schema(document)
    entries = _list(document, "topics")
    topics = [_wanted(index, entry, partitions, replication_factor) for index, entry in enumerate(entries)]
    _check_once("topic", [topic.name for topic in topics])
    brokers = list(_broker_configs(document))
    _check_once("broker", [broker for broker, _ in brokers])
    return Wanted(tuple(topics), dict(brokers), _prefixes(document))


def _check_schema(document: Mapping[str, Any]) -> None:
    if "schema_version" not in document:
        return
    if document["schema_version"] != SCHEMA_VERSION:
        raise ValueError(f"schema_version is {document['schema_version']!r}: this release knows {SCHEMA_VERSION}")
    unknown = sorted(str(key) for key in document if key not in _SECTIONS)
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}: a file has the keys {', '.join(_SECTIONS)}")


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
        yield "", _configs_of("cluster", cluster)
    for index, entry in enumerate(_list(document, "brokers")):
        broker = entry.get("broker") if isinstance(entry, dict) else None
        if not isinstance(broker, int) or isinstance(broker, bool) or broker < 0:
            raise ValueError(f'entry {index} under "brokers" has no "broker", the id of a broker')
        yield str(broker), _configs_of(f"broker {broker}", entry)


def _prefixes(document: Mapping[str, Any]) -> tuple[str, ...]:
    prune = document.get("prune")
    if prune is None:
        return ()
    prefixes = prune.get("prefixes") if isinstance(prune, dict) else None
    if not isinstance(prefixes, list) or not prefixes or not all(isinstance(each, str) and each for each in prefixes):
        raise ValueError('"prune" has "prefixes", a list of beginnings of topic names; none is empty')
    return tuple(prefixes)


def _parsed(text: str, suffix: str) -> Any:
    if suffix == ".json":
        return json.loads(text)
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
