"""The wait until a cluster is well again, after everything was healed, with one generous limit.

`until_well` and `until_equal` are the liveness laws here: once nothing is wrong any more a client's write is acknowledged, and
all controllers and brokers come to hold the same.
"""

import asyncio
import random
import signal
import time
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

import grpc
from quorum_rpc.v1 import broker_pb2, client_pb2, client_pb2_grpc

from metaquorum import AdminClient, AdminError
from quorum.controller.protocol.mode_commands import Mode
from quorum.wire.words import problems_in, problems_text
from service_kit.rpc.grpc_options import channel_options
from tests.chaos.clients import KEYS, Clients, SingleAttempts
from tests.chaos.cluster import ChaosCluster
from tests.chaos.judge.history import Kind, Operation, Outcome

T = TypeVar("T")
WELL_WITHIN_S: Final = 60.0
"""Long, because the machine may be loaded; a healthy cluster needs a second or two."""
ONE_ATTEMPT_S: Final = 2.0
PATIENCE_S: Final = (0.3, 0.7, 2.0, 2.0)
REPEATED_S: Final = 6.0
"""Time for several attempts."""


class NotWell(Exception):
    """Everything was healed, and the cluster did not recover in time."""


def observer_of(cluster: ChaosCluster) -> AdminClient:
    """A client that goes straight to the controllers, past the faulty network between them, and asks once."""
    return SingleAttempts(cluster.endpoints, cluster.layout.cluster_id, ONE_ATTEMPT_S)


def client_of(cluster: ChaosCluster, number: int, dice: random.Random) -> AdminClient:
    """The odd ones ask once, and some of them lose patience soon: if all stayed with a leader that stands still, nobody would
    write behind its back, and what it says when it wakes would be true. The even ones ask until they know, and every other one
    of these asks brokers, who ask the controllers.
    """
    known = [node.endpoint for node in cluster.layout.brokers] if number % 4 == 0 else cluster.endpoints
    endpoints = dice.sample(known, len(known))
    if number % 2:
        return SingleAttempts(endpoints, cluster.layout.cluster_id, dice.choice(PATIENCE_S))
    return AdminClient(endpoints, cluster.layout.cluster_id, REPEATED_S)


def operator_of(cluster: ChaosCluster, number: int, dice: random.Random) -> AdminClient:
    """Operator 1 asks once. Operator 2 repeats. Operator 3 repeats, asks brokers, and reads their images, which may be old."""
    known = [node.endpoint for node in cluster.layout.brokers] if number % 3 == 0 else cluster.endpoints
    endpoints = dice.sample(known, len(known))
    if number % 3 == 1:
        return SingleAttempts(endpoints, cluster.layout.cluster_id, ONE_ATTEMPT_S)
    return AdminClient(endpoints, cluster.layout.cluster_id, REPEATED_S, local=number % 3 == 0)


async def leader_of(observer: AdminClient) -> int | None:
    """The leader, as the first controller says that answers."""
    try:
        status = await observer.describe_quorum()
    except AdminError:
        return None
    return int(status.leader.leader_id) if status.leader.HasField("leader_id") else None


async def until_well(cluster: ChaosCluster, clients: Clients, observer: AdminClient) -> None:
    """Until every daemon runs, a client's write is acknowledged, and each controller votes, knows the leader, holds it, and has
    nothing wrong with it: what was damaged is mended.

    Raises:
        NotWell: with what was missing last.
    """
    deadline_s = time.monotonic() + WELL_WITHIN_S
    dice = random.Random(0)
    trouble = ""
    while time.monotonic() < deadline_s and not cluster.findings:
        down = [each.node.name for each in cluster.daemons.values() if not each.runs]
        trouble = f"not running: {', '.join(down)}" if down else ""
        if not down:
            written = await _write(clients, observer, dice)
            if written.outcome is Outcome.DONE:
                trouble = await _ignorant(cluster, observer, written.offset or 0)
                if not trouble:
                    return
            else:
                trouble = f"{written} ({written.why})"
        await asyncio.sleep(0.1)
    if not cluster.findings:
        raise NotWell(f"not well within {WELL_WITHIN_S:g} s after everything was healed: {trouble}")


async def _write(clients: Clients, observer: AdminClient, dice: random.Random) -> Operation:
    """A change that only a leader with a majority acknowledges, of a topic that is there already more often than not."""
    created = await clients.operate(observer, 0, Kind.CREATE, KEYS[0], dice)
    if created.outcome is not Outcome.EXISTS:
        return created
    return await clients.operate(observer, 0, Kind.SET, KEYS[0], dice)


async def _ignorant(cluster: ChaosCluster, observer: AdminClient, offset: int) -> str:
    """Which controller does not know yet who leads, or does not vote, or does not hold all below `offset`, or has a problem;
    empty if none.
    """
    voters: dict[int, set[bytes]] = {}
    me: dict[int, bytes] = {}
    for daemon in cluster.controllers:
        try:
            status = await observer.describe_quorum(daemon.node.endpoint)
        except AdminError as e:
            return f"{daemon.node.name}: {e}"
        if not status.leader.HasField("leader_id"):
            return f"{daemon.node.name} knows no leader"
        if status.flushed_end_offset < offset:
            return f"{daemon.node.name} holds {status.flushed_end_offset} of {offset}"
        if status.problems:
            return f"{daemon.node.name}: {problems_text(problems_in(status))}"
        me[status.node_id] = status.directory_id
        voters[status.node_id] = {each.directory_id for each in status.voters}
    strangers = [f"{node_id}" for node_id in me if any(me[node_id] not in seen for seen in voters.values())]
    return f"not a voter to everybody: {', '.join(strangers)}" if strangers else ""


async def until_equal(cluster: ChaosCluster, observer: AdminClient) -> tuple[int, bytes]:
    """Until all controllers and brokers stand at the same offset with the same digest, the controllers with the same chain.

    Gives the end of the controllers' logs, and the chain there.

    Raises:
        NotWell: with where each stands.
    """
    deadline_s = time.monotonic() + WELL_WITHIN_S
    images: dict[str, tuple[int, str]] = {}
    trouble = ""
    while time.monotonic() < deadline_s:
        trouble = ""
        chains: set[tuple[int, bytes]] = set()
        try:
            for daemon in cluster.controllers:
                status = await observer.describe_quorum(daemon.node.endpoint)
                images[daemon.node.name] = (status.applied_offset, status.digest.hex()[:16])
                chains.add((status.log_end_offset, status.chain))
            for daemon in cluster.brokers:
                images[daemon.node.name] = await _broker(daemon.node.endpoint)
        except (AdminError, grpc.aio.AioRpcError) as e:
            trouble = str(e)
        if not trouble and len(set(images.values())) == 1 and len(chains) == 1:
            return chains.pop()
        await asyncio.sleep(0.2)
    raise NotWell(f"not equal within {WELL_WITHIN_S:g} s after everything was healed: {images} {trouble}")


async def until_kept_out(observer: AdminClient) -> None:
    """Until no broker with a mode leads a partition that another broker could lead.

    Raises:
        NotWell: a broker still leads.
    """
    deadline_s = time.monotonic() + WELL_WITHIN_S
    trouble = ""
    while time.monotonic() < deadline_s:
        try:
            trouble = await _still_leading(observer)
        except AdminError as e:
            trouble = str(e)
        if not trouble:
            return
        await asyncio.sleep(0.2)
    raise NotWell(f"not kept out within {WELL_WITHIN_S:g} s after everything was healed: {trouble}")


async def _still_leading(observer: AdminClient) -> str:
    """The first partition that is led by a broker with a mode although an active broker without one is in sync."""
    listed = [each async for each in observer.brokers()]
    free = {each.broker_id for each in listed if each.state == broker_pb2.ONLINE and not each.mode}
    for broker in (each for each in listed if each.mode):
        async for led in observer.partitions(led_by=broker.broker_id):
            others = free.intersection(led.partition.isr)
            if others or broker.mode == Mode.FENCED.word:
                where = f"{led.topic}-{led.partition.partition}"
                return f"broker {broker.broker_id}, {broker.mode}, leads {where}; {sorted(others)} could"
    return ""


async def _broker(endpoint: str) -> tuple[int, str]:
    async with grpc.aio.insecure_channel(endpoint, options=channel_options()) as channel:
        stub = client_pb2_grpc.ClusterMetadataServiceStub(channel)  # type: ignore[no-untyped-call]
        status = await stub.BrokerStatus(client_pb2.BrokerStatusRequest(), timeout=2.0)
        return status.applied_offset, status.digest.hex()[:16]


async def until_terminated(work: Coroutine[Any, Any, T]) -> T:
    """`work`; a SIGTERM cancels it, so that no daemon is left behind and nothing stays mounted."""
    task = asyncio.get_running_loop().create_task(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task
