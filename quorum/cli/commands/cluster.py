"""`quorumctl cluster`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from quorum.cli.options import Options, ask, command
from quorum.cli.output import UNKNOWN, Column, emit
from quorum.cli.replicas import best_answer
from quorum.wire.words import endpoint_text, optional, state_text

if TYPE_CHECKING:
    from quorum_rpc.v1 import admin_pb2

    from metaquorum import AdminClient

_CONTROLLERS = (Column("CONTROLLER", "node_id"), Column("ENDPOINT", "endpoint"), Column("STATUS", "status"))
_ENDPOINTS = (
    Column("ID", "node_id"),
    Column("TYPE", "type"),
    Column("LISTENER", "listener"),
    Column("ENDPOINT", "endpoint"),
    Column("RACK", "rack"),
    Column("STATE", "state"),
)


@click.group()
def cluster() -> None:
    """See the cluster as a whole."""


@cluster.command()
@command
def describe(options: Options) -> None:
    """Shows the cluster's id, its controllers, and counts of brokers, topics and partitions.

    \b
    $ quorumctl cluster describe
    """

    async def work(client: AdminClient) -> dict[str, Any]:
        found, quorum = await client.describe_cluster(), await best_answer(client)
        return {
            "as_of_offset": found.as_of_offset,
            "cluster_id": quorum.cluster_id,
            "active_controller_id": optional(quorum.leader, "leader_id"),
            "controllers": [_controller(each) for each in (*quorum.voters, *quorum.observers)],
            "brokers": {state_text(each.state): each.brokers for each in found.brokers},
            "topics": found.topics,
            "partitions": found.partitions,
            "metadata_version": found.metadata_version,
        }

    document = ask(options, work)
    brokers = ", ".join(f"{count} {state}" for state, count in document["brokers"].items())
    heading = [
        f"ClusterId: {document['cluster_id']}",
        f"ActiveController: {UNKNOWN if document['active_controller_id'] is None else document['active_controller_id']}",
        f"Brokers: {brokers or 0}",
        f"Topics: {document['topics']:,}",
        f"Partitions: {document['partitions']:,}",
        f"MetadataVersion: {document['metadata_version']}",
    ]
    emit(options.output, document, rows="controllers", columns=_CONTROLLERS, heading=heading)


@cluster.command("list-endpoints")
@click.option("--include-fenced-brokers", is_flag=True, help="Also the brokers that are not online.")
@command
def list_endpoints(options: Options, include_fenced_brokers: bool) -> None:
    """Lists the addresses of controllers and brokers.

    \b
    $ quorumctl cluster list-endpoints --include-fenced-brokers
    """

    async def work(client: AdminClient) -> list[dict[str, Any]]:
        brokers, quorum = [each async for each in client.brokers()], await best_answer(client)
        rows = [
            {**_endpoint(each.node_id, "controller", each.endpoint), "rack": None, "state": each.status}
            for each in (*quorum.voters, *quorum.observers)
            if each.HasField("endpoint")
        ]
        for broker in brokers:
            state = state_text(broker.state)
            if include_fenced_brokers or state == "online":
                rest = {"rack": optional(broker, "rack"), "state": state}
                rows += [{**_endpoint(broker.broker_id, "broker", each), **rest} for each in broker.endpoints]
        return rows

    emit(options.output, {"endpoints": ask(options, work)}, rows="endpoints", columns=_ENDPOINTS)


def _endpoint(node_id: int, kind: str, endpoint: Any) -> dict[str, Any]:
    return {
        "node_id": node_id,
        "type": kind,
        "listener": endpoint.listener or None,
        "endpoint": endpoint_text(endpoint),
    }


def _controller(replica: admin_pb2.ReplicaStatus) -> dict[str, Any]:
    endpoint = endpoint_text(replica.endpoint) if replica.HasField("endpoint") else None
    return {"node_id": replica.node_id, "endpoint": endpoint, "status": replica.status}
