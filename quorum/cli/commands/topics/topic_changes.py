"""Changes of existing topics, for `quorumctl topics alter`: requests for configs and partitions, one result for each topic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from quorum_rpc.v1 import admin_pb2

from metadata_log.format.records import TOPIC_RESOURCE

if TYPE_CHECKING:
    from metaquorum import AdminClient


class TopicChanges(NamedTuple):
    """The changes of each topic."""

    partitions: int | None
    """How many partitions the topic shall have in all; None: no more than it has."""
    assignment: Sequence[admin_pb2.ReplicaList]
    """The brokers of the new partitions; empty: the controller places them."""
    configs: Sequence[tuple[str, str]]
    deleted_configs: Sequence[str]


async def alter_topics(
    client: AdminClient, names: Sequence[str], changes: TopicChanges, dry_run: bool
) -> admin_pb2.CreatePartitionsResponse:
    """Changes the configs, and then the number of partitions of the topics whose configs were not refused.

    Returns one result for each topic, with the error of the request that refused it.
    """
    results = {name: admin_pb2.TopicResult(name=name) for name in names}
    offset = -1
    operations = _operations(changes)
    if operations:
        resources = [admin_pb2.ConfigResource(resource_type=TOPIC_RESOURCE, name=name) for name in names]
        alterations = [admin_pb2.ConfigAlteration(resource=each, operations=operations) for each in resources]
        altered = await client.alter_configs(alterations, validate_only=dry_run)
        offset = altered.offset
        for each in altered.results:
            results[each.resource.name].error.CopyFrom(each.error)
    growing = [name for name in names if not results[name].error.code]
    if changes.partitions is not None and growing:
        new = [
            admin_pb2.NewPartitions(name=name, total_count=changes.partitions, assignment=changes.assignment)
            for name in growing
        ]
        grown = await client.create_partitions(new, validate_only=dry_run)
        offset = max(offset, grown.offset)
        results |= {each.name: each for each in grown.results}
    return admin_pb2.CreatePartitionsResponse(offset=offset, results=[results[name] for name in names])


def _operations(changes: TopicChanges) -> list[admin_pb2.ConfigOperation]:
    kinds = admin_pb2.ConfigOperation
    return [
        *[kinds(kind=kinds.SET, key=key, value=value) for key, value in changes.configs],
        *[kinds(kind=kinds.DELETE, key=key) for key in changes.deleted_configs],
    ]
