"""Clusters of real daemons, and the few things that all stories about them need.

No test sleeps and hopes: a condition is polled until a deadline, and a failure shows the last value. Sessions are short (2 s), so
that a test of a fenced broker does not take ten seconds.
"""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import grpc
import pytest
import pytest_asyncio
from quorum_rpc.v1 import broker_pb2, client_pb2, client_pb2_grpc

from metaquorum import AdminClient, AdminError
from quorum.devcluster.cluster import DevCluster, DevNode
from quorum.devcluster.process import exit_code, log_tail
from tests import forked

T = TypeVar("T")
POLL_S = 0.02
CONTROLLER_SETTINGS = {"log.format": "json", "broker.session.timeout.ms": "2000"}
BROKER_SETTINGS = {**CONTROLLER_SETTINGS, "metadata.fetch.max.wait.ms": "300"}
STATE_NAMES = {number: name.lower() for name, number in broker_pb2.BrokerState.items()}


async def until(probe: Callable[[], Awaitable[T | None]], within_s: float = 15.0) -> T:
    """Calls `probe` until it returns a value, also False, and returns the value.

    A refusal is no failure, for example while no controller leads.
    """
    deadline_s = time.monotonic() + within_s
    last: object = None
    while time.monotonic() < deadline_s:
        try:
            found = await probe()
        except AdminError as e:
            last, found = e, None
        if found is not None:
            return found
        await asyncio.sleep(POLL_S)
    raise AssertionError(f"not within {within_s:g} s; last: {last!r}")


@pytest.fixture(scope="session", autouse=True)
def forked_daemons() -> Iterator[None]:
    """The daemons of all clusters here are forked from a server that has imported them."""
    with forked.daemons():
        yield


class Cluster:
    """A cluster of this machine, and a client of it."""

    def __init__(self, dev: DevCluster) -> None:
        self.dev = dev
        self.client = dev.client(timeout_s=15)
        self.controllers = {node.node_id: node for node in dev.layout.controllers}
        self.brokers = {node.node_id: node for node in dev.layout.brokers}

    async def states(self, client: AdminClient | None = None) -> dict[int, str]:
        """Broker id -> state as the active controller sees it. `client`: where controllers are no longer where they were."""
        listed = await (client or self.client).list_brokers()
        return {each.broker_id: STATE_NAMES[each.state] for each in listed.brokers}

    async def online(self, *ids: int, client: AdminClient | None = None) -> None:
        """Returns once these brokers (all of them, if none is named) are online."""
        wanted = set(ids or self.brokers)

        async def probe() -> bool | None:
            states = await self.states(client)
            return True if {i for i, state in states.items() if state == "online"} >= wanted else None

        await until(probe, 30)

    async def in_state(self, broker_id: int, state: str) -> None:
        async def probe() -> bool | None:
            return True if (await self.states()).get(broker_id) == state else None

        await until(probe)

    async def leader(self) -> DevNode:
        """The active controller."""
        target = await self.client.leader()
        return next(node for node in self.controllers.values() if node.endpoint == target)

    async def topic_names(self) -> set[str]:
        return {topic.name async for topic in self.client.topics()}

    async def ends(self, node: DevNode, number: signal.Signals = signal.SIGKILL) -> int | None:
        """Sends the signal, waits for the end; gives the exit code."""
        pid = self.dev.pid(node.name)
        assert pid is not None, f"{node.name} does not run"
        self.dev.kill(node.name, number)
        await self.dev.wait_until_gone(node.name, 15)
        return exit_code(pid)

    def assert_alive(self) -> None:
        """No daemon has gone."""
        running = self.dev.running()
        assert len(running) == len(self.dev.nodes), [log_tail(each) for each in self.dev.nodes if each not in running]

    async def quorumctl(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command as an operator types it."""
        return await asyncio.to_thread(quorumctl, "-C", self.dev.layout.bootstrap, *words)


async def status_of(broker: str) -> client_pb2.BrokerStatusResponse:
    """Asks the broker for its own status."""
    async with grpc.aio.insecure_channel(broker) as channel:
        stub = client_pb2_grpc.ClusterMetadataServiceStub(channel)  # type: ignore[no-untyped-call]
        status: client_pb2.BrokerStatusResponse = await stub.BrokerStatus(client_pb2.BrokerStatusRequest(), timeout=5)
    return status


async def image_at(broker: str) -> tuple[int, bytes]:
    """Returns the offset that the broker has applied, and the digest of its image."""
    status = await status_of(broker)
    return status.applied_offset, status.digest


def said(node: DevNode) -> list[dict[str, Any]]:
    """Returns the daemon's log lines, the oldest first."""
    return [json.loads(line) for line in node.log_path.read_text().splitlines() if line.startswith("{")]


def quorumctl(*words: str) -> subprocess.CompletedProcess[str]:
    """Runs `quorumctl`; it must end by itself within 30 s."""
    return forked.quorumctl(*words, timeout_s=30)


def run(module: str, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a module as a command to its end. `env` None: this process's."""
    command = [sys.executable, "-m", module, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, env=env)


@asynccontextmanager
async def running(
    directory: Path,
    brokers: int = 3,
    *,
    data_plane: str = "none",
    controller_settings: Mapping[str, str] = CONTROLLER_SETTINGS,
) -> AsyncIterator[Cluster]:
    """Runs three healthy controllers and so many brokers; stops all of them at the end of the block."""
    dev = DevCluster.create(
        directory,
        controllers=3,
        brokers=brokers,
        data_plane=data_plane,
        controller_settings=controller_settings,
        broker_settings=BROKER_SETTINGS,
    )
    cluster = Cluster(dev)
    try:
        await dev.up(30)
        yield cluster
    finally:
        try:
            await cluster.client.close()
        finally:
            await dev.down(0)


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """A cluster of this test's own."""
    async with running(tmp_path / "cluster") as cluster:
        yield cluster


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """One cluster for all tests that stop no node and leave no topic behind."""
    async with running(tmp_path_factory.mktemp("shared") / "cluster") as cluster:
        yield cluster
