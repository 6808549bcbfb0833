"""A quorum that is lost is reported at once, by every signal that somebody may watch; and nobody is killed for it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
import pytest_asyncio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from quorum.devcluster.cluster import DevNode
from tests.processes.conftest import CONTROLLER_SETTINGS, Cluster, quorumctl, running, said, until

pytestmark = [pytest.mark.processes, pytest.mark.slow]

SETTINGS = {**CONTROLLER_SETTINGS, "metrics.listener": "127.0.0.1:0"}


@pytest_asyncio.fixture
async def three(tmp_path: Path) -> AsyncIterator[Cluster]:
    """Three controllers with a page for their health."""
    async with running(tmp_path / "cluster", brokers=0, controller_settings=SETTINGS) as cluster:
        yield cluster


async def page(node: DevNode, path: str) -> tuple[int, str]:
    """Status and body of one page of the node's."""
    port = next(line["port"] for line in reversed(said(node)) if line["event"] == "metrics")
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        text = (await asyncio.wait_for(reader.read(), 5)).decode()
    finally:
        writer.close()
    head, _, body = text.partition("\r\n\r\n")
    return int(head.split()[1]), body


async def ready(node: DevNode) -> bool | None:
    return True if (await page(node, "/readyz"))[0] == 200 else None


async def grpc_health(node: DevNode, service: str) -> str:
    async with grpc.aio.insecure_channel(node.endpoint) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=5)
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


async def test_the_last_of_three_says_at_once_that_nobody_leads(three: Cluster) -> None:
    """kill -9 of a follower, then of the leader. The survivor tells nobody of the leader that it remembers."""
    leader = await three.leader()
    follower, survivor = (node for node in three.controllers.values() if node != leader)
    await until(lambda: ready(survivor))
    assert (await three.quorumctl("quorum", "status")).returncode == 0

    await three.ends(follower)
    await three.ends(leader)

    async def not_ready() -> str | None:
        status, body = await page(survivor, "/readyz")
        return body if status == 503 else None

    assert f"controller {leader.node_id}" in await until(not_ready, 3)
    assert (await page(survivor, "/livez"))[0] == 200
    for service, wanted in (("quorum", "NOT_SERVING"), ("admin", "NOT_SERVING"), ("", "SERVING")):
        assert await grpc_health(survivor, service) == wanted

    async def shows_no_leader() -> bool | None:
        metrics = (await page(survivor, "/metrics"))[1].splitlines()
        line = next(line for line in metrics if line.startswith("metaquorum_current_leader "))
        return True if line.endswith("NaN") else None

    # A refused connection counts at once. The survivor may go back to the leader that it heard less than a fetch timeout ago.
    assert await until(shows_no_leader, 3)

    for _ in range(2):  # whichever role it is in when it is asked
        for command, words in (
            (("quorum", "status"), "NoLeader: for "),
            (("quorum", "replication"), "no leader for "),
            (("health",), "no controller leads, for "),
        ):
            ran = await asyncio.to_thread(quorumctl, "-C", survivor.endpoint, *command)
            assert ran.returncode == 10, ran
            assert words in ran.stderr + ran.stdout, ran
            assert f"controller {leader.node_id}" in ran.stderr + ran.stdout

    lines = [line for line in said(survivor) if line["event"] == "role"]
    lost = next(index for index, line in enumerate(lines) if line["was"] == "follower" and "leader" in line["reason"])
    assert 0 < len(lines) - lost <= 6, "it goes on asking for votes, and that is no news"
