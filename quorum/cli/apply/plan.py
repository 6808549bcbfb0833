"""Compares a file with the cluster: the difference is the plan.

The plan is the difference between the file and the cluster, so applying twice does nothing the second time, and an apply
that was cut off is finished by running it again. A file cannot remove partitions (their records would be lost), and cannot change
the number of replicas (a reassignment does that). If the file asks for one of these, the plan has a problem, and nothing is done:

    1. The file says orders has 6 partitions and payments has 3. The cluster has orders with 3 and payments with 4.
    2. Payments would lose a partition, so the command refuses the file, and orders stays at 3.
    3. The operator sets payments to 4 in the file. The next run gives orders 6 partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

from quorum_rpc.v1 import admin_pb2

from metadata_log.format.records import BROKER_RESOURCE, TOPIC_RESOURCE
from quorum.cli.apply.wanted_file import Wanted, WantedTopic

if TYPE_CHECKING:
    from metaquorum import AdminClient

T = TypeVar("T")

BATCH_TOPICS: Final = 200
BATCH_PARTITIONS: Final = 2_000
"""Maximum number of partitions in one request: well below the limit of a decision (10,000), so that its turn is short."""


Alterations: TypeAlias = dict[str, tuple[str | None, str]]
"""For each config key the value now (None: not set) and the value wanted."""


class Problem(NamedTuple):
    """A difference that no apply can close."""

    kind: str
    """topic or broker."""
    name: str
    text: str


@dataclass(slots=True)
class Plan:
    """The changes to make."""

    create: list[WantedTopic] = field(default_factory=list)
    grow: list[tuple[str, int, int]] = field(default_factory=list)
    """Name, partitions now, partitions wanted."""
    alter: list[tuple[str, Alterations]] = field(default_factory=list)
    alter_brokers: list[tuple[str, Alterations]] = field(default_factory=list)
    """As `alter`; the name is a broker's id, or the empty text for the default of all brokers."""
    delete: list[str] = field(default_factory=list)
    unchanged: int = 0
    problems: list[Problem] = field(default_factory=list)

    def changes(self) -> Iterator[dict[str, Any]]:
        """Every change as a document, its text included."""
        for topic in self.create:
            count = "default" if topic.partitions is None else topic.partitions
            text = f"create {topic.name} with {count} partitions"
            yield {
                "kind": "create",
                "topic": topic.name,
                "text": text,
                "configs": dict(topic.configs),
                "partitions": topic.partitions,
                "replication_factor": topic.replication_factor,
            }
        for name, now, wanted in self.grow:
            text = f"grow {name} from {now} to {wanted} partitions"
            yield {"kind": "grow", "topic": name, "text": text, "from": now, "to": wanted}
        for name, keys in self.alter:
            yield _altered("alter", "topic", name, name, keys)
        for name, keys in self.alter_brokers:
            yield _altered("alter_broker", "broker", name, shown_broker(name), keys)
        for name in self.delete:
            yield {"kind": "delete", "topic": name, "text": f"delete {name}"}

    def diff(self) -> Iterator[str]:
        """The difference between the cluster (-) and the file (+), line by line. A changed thing has a line without a sign."""
        for topic in self.create:
            yield f"+ topic {topic.name}"
            if topic.partitions is not None:
                yield f"+   partitions {topic.partitions}"
            if topic.replication_factor is not None:
                yield f"+   replication_factor {topic.replication_factor}"
            yield from (f"+   {key}={value}" for key, value in topic.configs.items())
        for name, now, wanted in self.grow:
            yield from (f"  topic {name}", f"-   partitions {now}", f"+   partitions {wanted}")
        for name, keys in self.alter:
            yield f"  topic {name}"
            yield from _config_diff(keys)
        for name, keys in self.alter_brokers:
            yield f"  {shown_broker(name)}"
            yield from _config_diff(keys)
        yield from (f"- topic {name}" for name in self.delete)
        yield from (f"! {problem.text}" for problem in self.problems)

    def document(self) -> dict[str, Any]:
        counts = {
            "create": len(self.create),
            "grow": len(self.grow),
            "alter": len(self.alter),
            "alter_broker": len(self.alter_brokers),
            "delete": len(self.delete),
        }
        problems = [{problem.kind: problem.name, "text": problem.text} for problem in self.problems]
        return {
            "counts": counts,
            "unchanged": self.unchanged,
            "changes": list(self.changes()),
            "problems": problems,
        }


def _altered(kind: str, field_name: str, name: str, shown: str, keys: Alterations) -> dict[str, Any]:
    said = ", ".join(f"{key} from {_shown(now)} to {wanted}" for key, (now, wanted) in keys.items())
    configs = {key: {"from": now, "to": wanted} for key, (now, wanted) in keys.items()}
    return {"kind": kind, field_name: name, "text": f"alter {shown}: {said}", "configs": configs}


def _config_diff(keys: Alterations) -> Iterator[str]:
    for key, (now, wanted) in keys.items():
        if now is not None:
            yield f"-   {key}={now}"
        yield f"+   {key}={wanted}"


def shown_broker(name: str) -> str:
    """A broker's name as people read it. The empty name is the default of all brokers."""
    return f"broker {name}" if name else "all brokers"


def _shown(value: str | None) -> str:
    return "unset" if value is None else value


# --- the plan --------------------------------------------------------------------------------------------------------


async def make_plan(client: AdminClient, wanted: Wanted, *, prune: bool = False) -> Plan:
    """The difference between the file and the cluster. With `prune` also the deletions that the file allows."""
    there = {topic.name: topic async for topic in client.topics()}
    names = [topic.name for topic in wanted.topics if topic.name in there]
    plan = Plan()
    configs, _ = await _configs(client, TOPIC_RESOURCE, names)
    for topic in wanted.topics:
        found = there.get(topic.name)
        if found is None:
            plan.create.append(topic)
            continue
        plan.problems += _problems(topic, found)
        is_grown = topic.partitions is not None and topic.partitions > found.partitions
        if is_grown:
            assert topic.partitions is not None
            plan.grow.append((topic.name, found.partitions, topic.partitions))
        altered = _alterations(configs.get(topic.name, {}), topic.configs)
        if altered:
            plan.alter.append((topic.name, altered))
        plan.unchanged += not is_grown and not altered
    configs, missing = await _configs(client, BROKER_RESOURCE, list(wanted.broker_configs))
    plan.problems += [Problem("broker", name, text) for name, text in missing.items()]
    for name, keys in wanted.broker_configs.items():
        altered = _alterations(configs.get(name, {}), keys)
        if altered and name not in missing:
            plan.alter_brokers.append((name, altered))
    if prune:
        named = {topic.name for topic in wanted.topics}
        plan.delete += [name for name in there if name not in named and name.startswith(wanted.prune_prefixes)]
    return plan


def _alterations(now: Mapping[str, str], wanted: Mapping[str, str]) -> Alterations:
    return {key: (now.get(key), value) for key, value in wanted.items() if now.get(key) != value}


def _problems(wanted: WantedTopic, found: admin_pb2.TopicListing) -> list[Problem]:
    texts = []
    if wanted.partitions is not None and wanted.partitions < found.partitions:
        texts.append(
            f"{wanted.name} has {found.partitions} partitions, and partitions never become fewer (the file says "
            f"{wanted.partitions}); make a new topic"
        )
    if wanted.replication_factor is not None and wanted.replication_factor != found.replication_factor:
        texts.append(
            f"{wanted.name} has {found.replication_factor} replicas, and the file says {wanted.replication_factor}; "
            "that takes a reassignment"
        )
    return [Problem("topic", wanted.name, text) for text in texts]


async def _configs(
    client: AdminClient, resource_type: int, names: Sequence[str]
) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """The configs that were set on each resource, and a text for each broker that is not registered."""
    configs: dict[str, dict[str, str]] = {}
    missing: dict[str, str] = {}
    for some in batched(names, lambda name: 1, BATCH_PARTITIONS, BATCH_TOPICS):
        resources = [admin_pb2.ConfigResource(resource_type=resource_type, name=name) for name in some]
        async for each in client.described_configs(resources):
            configs[each.resource.name] = {entry.key: entry.value for entry in each.configs}
            if each.error.code and resource_type == BROKER_RESOURCE:
                missing[each.resource.name] = each.error.message
    return configs, missing


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
