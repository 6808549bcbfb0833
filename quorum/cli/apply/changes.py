"""Makes the changes of a plan, in batches: an apply that was cut off is finished by running it again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from quorum_rpc.v1 import admin_pb2

from metadata_log.format.records import BROKER_RESOURCE, TOPIC_RESOURCE
from quorum.cli.apply.plan import BATCH_PARTITIONS, BATCH_TOPICS, Impossible, Plan, batched, few
from quorum.cli.apply.wanted_file import WantedTopic

if TYPE_CHECKING:
    from metaquorum import AdminClient


async def apply_plan(client: AdminClient, plan: Plan) -> None:
    """Makes the changes of the plan, in batches.

    The defaults of brokers come first, so that new topics begin with them. Deletions come last.

    Raises:
        Impossible: the cluster refused some changes. The changes before them were made, and another run makes the others.
        AdminError: the cluster refused a whole request. The same holds.
    """
    for altering in batched(plan.alter_brokers, lambda each: len(each[1]), BATCH_PARTITIONS, BATCH_TOPICS):
        altered = await client.alter_configs([_alteration(BROKER_RESOURCE, name, keys) for name, keys in altering])
        _check((f"broker {each.resource.name}", each.error) for each in altered.results)
    for creating in batched(plan.create, lambda topic: topic.partitions or 1, BATCH_PARTITIONS, BATCH_TOPICS):
        created = await client.create_topics([_new_topic(topic) for topic in creating])
        _check((each.name, each.error) for each in created.results)
    for growing in batched(plan.grow, lambda each: each[2] - each[1], BATCH_PARTITIONS, BATCH_TOPICS):
        grown = await client.create_partitions(
            [admin_pb2.NewPartitions(name=name, total_count=wanted) for name, _, wanted in growing]
        )
        _check((each.name, each.error) for each in grown.results)
    for altering in batched(plan.alter, lambda each: len(each[1]), BATCH_PARTITIONS, BATCH_TOPICS):
        altered = await client.alter_configs([_alteration(TOPIC_RESOURCE, name, keys) for name, keys in altering])
        _check((each.resource.name, each.error) for each in altered.results)
    for deleting in batched(plan.delete, lambda _: 1, BATCH_TOPICS, BATCH_TOPICS):
        deleted = await client.delete_topics(deleting)
        _check((each.name, each.error) for each in deleted.results)


def _new_topic(topic: WantedTopic) -> admin_pb2.NewTopic:
    return admin_pb2.NewTopic(
        name=topic.name,
        partitions=-1 if topic.partitions is None else topic.partitions,
        replication_factor=-1 if topic.replication_factor is None else topic.replication_factor,
        configs=[admin_pb2.ConfigEntry(key=key, value=value) for key, value in topic.configs.items()],
    )


def _alteration(
    resource_type: int, name: str, keys: Mapping[str, tuple[str | None, str]]
) -> admin_pb2.ConfigAlteration:
    return admin_pb2.ConfigAlteration(
        resource=admin_pb2.ConfigResource(resource_type=resource_type, name=name),
        operations=[
            admin_pb2.ConfigOperation(kind=admin_pb2.ConfigOperation.SET, key=key, value=wanted)
            for key, (_, wanted) in keys.items()
        ],
    )


def _check(results: Iterable[tuple[str, Any]]) -> None:
    """Raises Impossible for refused changes. For example, another client has created the topic meanwhile."""
    refused = [f"{name}: {error.message}" for name, error in results if error.code]
    if refused:
        raise Impossible(f"the cluster refused {len(refused)} of the changes: {few(refused)}. Run it again to go on")
