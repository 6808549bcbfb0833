"""Shows each node of a cluster on this machine: process, state and problem.

A node is well when its process runs and is not paused, and
  * a controller answers, follows a leader, reports no problem, and, if its node id votes, votes with its present directory;
  * a broker reports that it is online and may serve. (The controllers still report online for a broker killed a moment ago.)
"""

from __future__ import annotations

import asyncio
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

from quorum.devcluster.layout import DevNode, Layout, repair, unusable
from quorum.devcluster.process import is_paused, pid_of
from quorum.wire.words import id_text, problems_in, problems_text, state_text

if TYPE_CHECKING:
    import grpc.aio
    from quorum_rpc.v1 import admin_pb2, client_pb2

    from metaquorum import AdminClient
    from service_kit.rpc.dial import Dialer

ASK_S = 1.0


class NodeView(NamedTuple):
    """A node at one moment. `state` is a controller's role, a broker's state, or `stopped`, `paused`, `silent`."""

    node: DevNode
    pid: int | None
    state: str
    applied_offset: int | None = None
    problem: str | None = None
    """The node's problem in one sentence; None for a node that is well."""


async def views(layout: Layout, client: AdminClient) -> list[NodeView]:
    """Asks all nodes at once, about a second at most; returns them in the layout's order."""
    from service_kit.rpc.dial import Dialer

    async with Dialer() as dial:
        return await asyncio.gather(*(_view(layout, node, client, dial) for node in layout.nodes))


async def _view(layout: Layout, node: DevNode, client: AdminClient, dial: Dialer) -> NodeView:
    pid = pid_of(node)
    if pid is None:
        why = unusable(node)
        text = "it does not run" if why is None else f"it counts as stopped: {why}. {repair(layout)}"
        return NodeView(node, None, "stopped", problem=text)
    if is_paused(pid):
        go_on = f"quorumctl dev kill --dir {quote(str(layout.directory))} {node.name} --signal CONT"
        text = f"it is paused; `{go_on}` lets it go on"
        return NodeView(node, pid, "paused", problem=text)
    return await (_controller(node, pid, client) if node.role == "controller" else _broker(node, pid, dial))


async def _controller(node: DevNode, pid: int, client: AdminClient) -> NodeView:
    from clients.errors import target_of
    from metaquorum import AdminError

    try:
        status = await client.describe_quorum(node.endpoint)
    except AdminError as e:
        return NodeView(node, pid, "silent", problem=f"it does not answer: {' '.join(e.message.split())}")
    problem = problems_text(problems_in(status))
    if not status.leader.HasField("leader_id"):
        problem = f"it follows no leader: {status.no_leader_reason}"
    elif not status.HasField("high_watermark"):
        problem = "it does not know yet what is committed"
    elif _has_lost_its_vote(status):
        again = f"`quorumctl -C {target_of(status.leader)} quorum remove-voter --node-id {node.node_id}`"
        problem = (
            f"it does not vote: its directory {id_text(status.directory_id)} is not the one that voted. {again}, and when its "
            f"lag is 0, `quorumctl -C {target_of(status.leader)} quorum add-voter --config {quote(str(node.config_path))}` let "
            "it vote again"
        )
    return NodeView(node, pid, status.role, status.applied_offset, problem or None)


def _has_lost_its_vote(status: admin_pb2.DescribeQuorumResponse) -> bool:
    """True if the node id votes with other directories only: its own directory was replaced, or has lost its vote."""
    directories = {each.directory_id for each in status.voters if each.node_id == status.node_id}
    return bool(directories) and status.directory_id not in directories


async def _broker(node: DevNode, pid: int, dial: Dialer) -> NodeView:
    status = await ask_broker(dial(node.endpoint))
    if status is None:
        return NodeView(node, pid, "silent", problem="it does not answer")
    state = state_text(status.state)
    problem = None
    if not is_serving(status):
        why = f": {status.reason}" if status.reason else ""
        problem = "its lease has lapsed: it hears no controller" if status.lease_lapsed else f"it is {state}{why}"
    elif status.problems:
        problem = "; ".join(each.text for each in status.problems)
    return NodeView(node, pid, state, status.applied_offset, problem)


async def ask_broker(channel: grpc.aio.Channel) -> client_pb2.BrokerStatusResponse | None:
    """The state that the broker at the other end reports; None if the broker does not answer."""
    import grpc
    from quorum_rpc.v1 import client_pb2, client_pb2_grpc

    stub = client_pb2_grpc.ClusterMetadataServiceStub(channel)  # type: ignore[no-untyped-call]
    try:
        status: client_pb2.BrokerStatusResponse = await stub.BrokerStatus(
            client_pb2.BrokerStatusRequest(), timeout=ASK_S
        )
    except grpc.aio.AioRpcError:
        return None
    return status


def is_serving(status: client_pb2.BrokerStatusResponse | None) -> bool:
    """True if the broker reports that it serves clients."""
    from quorum_rpc.v1 import broker_pb2

    return status is not None and status.state == broker_pb2.ONLINE and not status.lease_lapsed
