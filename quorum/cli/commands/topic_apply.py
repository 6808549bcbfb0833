"""Compares a file of topics with the cluster, and makes the changes in batches.

The plan is the difference between the file and the cluster, so applying twice does nothing the second time, and an apply
that was cut off is finished by running it again. A file cannot remove partitions (their records would be lost), and cannot change
the number of replicas (a reassignment does that). If the file asks for one of these, nothing is done:

    1. The file says orders has 6 partitions and payments has 3. The cluster has orders with 3 and payments with 4.
    2. Payments would lose a partition, so the command refuses the file, and orders stays at 3.
    3. The operator sets payments to 4 in the file. The next run gives orders 6 partitions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from quorum_rpc.v1 import admin_pb2

from metadata_log.format.records import TOPIC_RESOURCE

if TYPE_CHECKING:
    from metaquorum import AdminClient

T = TypeVar("T")

FILE_BYTES_MAX: Final = 64 << 20
BATCH_TOPICS: Final = 200
BATCH_PARTITIONS: Final = 2_000
"""Maximum number of partitions in one request: well below the limit of a decision (10,000), so that its turn is short."""


class Impossible(Exception):
    """The cluster cannot be changed to match the file. The message says what was done."""


class WantedTopic(NamedTuple):
    """One topic of the file. None: the file does not say it; the cluster's value or default holds."""

    name: str
    partitions: int | None
    replication_factor: int | None
    configs: Mapping[str, str]


@dataclass(slots=True)
class Plan:
    """The changes to make."""

    create: list[WantedTopic] = field(default_factory=list)
    grow: list[tuple[str, int, int]] = field(default_factory=list)
    """Name, partitions now, partitions wanted."""
    alter: list[tuple[str, dict[str, tuple[str | None, str]]]] = field(default_factory=list)
    """Name, and for each key the value now (None: not set) and the value wanted."""
    unchanged: int = 0

    def changes(self) -> Iterator[dict[str, Any]]:
        """Every change as a document, its text included."""
        for topic in self.create:
            count = "default" if topic.partitions is None else topic.partitions
            text = f"create {topic.name} with {count} partitions"
            yield {"kind": "create", "topic": topic.name, "text": text, "configs": dict(topic.configs)}
        for name, now, wanted in self.grow:
            text = f"grow {name} from {now} to {wanted} partitions"
            yield {"kind": "grow", "topic": name, "text": text, "from": now, "to": wanted}
        for name, keys in self.alter:
            said = ", ".join(f"{key} from {_shown(now)} to {wanted}" for key, (now, wanted) in keys.items())
            configs = {key: {"from": now, "to": wanted} for key, (now, wanted) in keys.items()}
            yield {"kind": "alter", "topic": name, "text": f"alter {name}: {said}", "configs": configs}

    def lines(self) -> Iterator[str]:
        """The plan for people."""
        for change in self.changes():
            yield str(change["text"])

    def document(self) -> dict[str, Any]:
        counts = {"create": len(self.create), "grow": len(self.grow), "alter": len(self.alter)}
        return {"counts": counts, "unchanged": self.unchanged, "changes": list(self.changes())}


def _shown(value: str | None) -> str:
    return "unset" if value is None else value


# --- the file --------------------------------------------------------------------------------------------------------


def read_wanted(path: Path, partitions: int | None, replication_factor: int | None) -> list[WantedTopic]:
    """Returns the topics of the file. `partitions` and `replication_factor` are for topics without these in the file.

    Raises:
        ValueError: the file has a mistake; the message names the place.
    """
    with path.open("rb") as file:
        data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise ValueError(f"larger than {FILE_BYTES_MAX >> 20} MiB")
    document = _parsed(data.decode("utf-8"), path.suffix)
    entries = document.get("topics") if isinstance(document, dict) else document
    if not isinstance(entries, list):
        raise ValueError('a list under "topics" expected')
    wanted = [_wanted(index, entry, partitions, replication_factor) for index, entry in enumerate(entries)]
    names: set[str] = set()
    for topic in wanted:
        if topic.name in names:
            raise ValueError(f"topic {topic.name} is there twice")
        names.add(topic.name)
    return wanted


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
    configs = entry.get("configs") or {}
    if not isinstance(configs, dict):
        raise ValueError(f"{name}: configs are not a mapping")
    return WantedTopic(
        name,
        _count(name, entry, "partitions", partitions),
        _count(name, entry, "replication_factor", replication_factor),
        {str(key): _config_text(value) for key, value in sorted(configs.items())},
    )


def _count(name: str, entry: Mapping[str, Any], key: str, otherwise: int | None) -> int | None:
    value = entry.get(key, otherwise)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise ValueError(f"{name}: {key} is {value!r}, not a positive number")
    return value


def _config_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(str(item) for item in value) if isinstance(value, list) else str(value)


# --- the plan --------------------------------------------------------------------------------------------------------


async def make_plan(client: AdminClient, wanted: Sequence[WantedTopic]) -> Plan:
    """The difference between the file and the cluster.

    Raises:
        Impossible: the cluster cannot be changed to match the file; the message names every difference.
    """
    there = {topic.name: topic async for topic in client.topics()}
    configs = await _configs(client, [topic.name for topic in wanted if topic.name in there])
    plan, problems = Plan(), []
    for topic in wanted:
        found = there.get(topic.name)
        if found is None:
            plan.create.append(topic)
            continue
        problems += _problems(topic, found)
        is_grown = topic.partitions is not None and topic.partitions > found.partitions
        if is_grown:
            assert topic.partitions is not None
            plan.grow.append((topic.name, found.partitions, topic.partitions))
        now = configs.get(topic.name, {})
        altered = {key: (now.get(key), value) for key, value in topic.configs.items() if now.get(key) != value}
        if altered:
            plan.alter.append((topic.name, altered))
        plan.unchanged += not is_grown and not altered
    if problems:
        raise Impossible(
            f"nothing was done, because of {len(problems)} differences that a file can't close: {_few(problems)}"
        )
    return plan


def _problems(wanted: WantedTopic, found: admin_pb2.TopicListing) -> list[str]:
    problems = []
    if wanted.partitions is not None and wanted.partitions < found.partitions:
        problems.append(
            f"{wanted.name} has {found.partitions} partitions, and partitions never become fewer (the file says "
            f"{wanted.partitions}); make a new topic"
        )
    if wanted.replication_factor is not None and wanted.replication_factor != found.replication_factor:
        problems.append(
            f"{wanted.name} has {found.replication_factor} replicas, and the file says {wanted.replication_factor}; "
            "that takes a reassignment"
        )
    return problems


async def _configs(client: AdminClient, names: Sequence[str]) -> dict[str, dict[str, str]]:
    configs: dict[str, dict[str, str]] = {}
    for some in batched(names, lambda name: 1, BATCH_PARTITIONS, BATCH_TOPICS):
        resources = [admin_pb2.ConfigResource(resource_type=TOPIC_RESOURCE, name=name) for name in some]
        async for each in client.described_configs(resources):
            configs[each.resource.name] = {entry.key: entry.value for entry in each.configs}
    return configs


# --- the changes -----------------------------------------------------------------------------------------------------


async def apply_plan(client: AdminClient, plan: Plan) -> None:
    """Makes the changes of the plan, in batches.

    Raises:
        Impossible: the cluster refused some changes. The changes before them were made, and another run makes the others.
        AdminError: the cluster refused a whole request. The same holds.
    """
    for creating in batched(plan.create, lambda topic: topic.partitions or 1, BATCH_PARTITIONS, BATCH_TOPICS):
        created = await client.create_topics([_new_topic(topic) for topic in creating])
        _check((each.name, each.error) for each in created.results)
    for growing in batched(plan.grow, lambda each: each[2] - each[1], BATCH_PARTITIONS, BATCH_TOPICS):
        grown = await client.create_partitions(
            [admin_pb2.NewPartitions(name=name, total_count=wanted) for name, _, wanted in growing]
        )
        _check((each.name, each.error) for each in grown.results)
    for altering in batched(plan.alter, lambda each: len(each[1]), BATCH_PARTITIONS, BATCH_TOPICS):
        altered = await client.alter_configs([_alteration(name, keys) for name, keys in altering])
        _check((each.resource.name, each.error) for each in altered.results)


def _new_topic(topic: WantedTopic) -> admin_pb2.NewTopic:
    return admin_pb2.NewTopic(
        name=topic.name,
        partitions=-1 if topic.partitions is None else topic.partitions,
        replication_factor=-1 if topic.replication_factor is None else topic.replication_factor,
        configs=[admin_pb2.ConfigEntry(key=key, value=value) for key, value in topic.configs.items()],
    )


def _alteration(name: str, keys: Mapping[str, tuple[str | None, str]]) -> admin_pb2.ConfigAlteration:
    return admin_pb2.ConfigAlteration(
        resource=admin_pb2.ConfigResource(resource_type=TOPIC_RESOURCE, name=name),
        operations=[
            admin_pb2.ConfigOperation(kind=admin_pb2.ConfigOperation.SET, key=key, value=wanted)
            for key, (_, wanted) in keys.items()
        ],
    )


def _check(results: Iterable[tuple[str, Any]]) -> None:
    """Raises Impossible for refused changes. For example, another client has created the topic meanwhile."""
    refused = [f"{name}: {error.message}" for name, error in results if error.code]
    if refused:
        raise Impossible(f"the cluster refused {len(refused)} of the changes: {_few(refused)}. Run it again to go on")


def _few(texts: Sequence[str]) -> str:
    """The first three, and how many more there are."""
    more = f" (and {len(texts) - 3} more)" if len(texts) > 3 else ""
    return "; ".join(texts[:3]) + more


def batched(items: Iterable[T], weight: Any, weight_max: int, count_max: int) -> Iterator[list[T]]:
    """Cuts `items` into batches of at most `count_max` items and `weight_max` together; a heavier item is a batch of its own."""
    batch: list[T] = []
    total = 0
    for item in items:
        cost = weight(item)
        if batch and (total + cost > weight_max or len(batch) >= count_max):
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += cost
    if batch:
        yield batch
