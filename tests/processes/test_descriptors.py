"""A process may have so many files open and no more; connections of strangers never take the file for a vote away."""

import asyncio
import contextlib
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from metaquorum import AdminClient
from quorum.devcluster.layout import free_ports
from quorum.runtime.disk.format_directory import InitialController, format_directory
from tests.processes.conftest import until

pytestmark = [pytest.mark.processes, pytest.mark.slow]

FILES_MAX = 64
SILENT = 120


class Controllers:
    """Three controllers, each of which may have 64 files open, and may not ask for more."""

    def __init__(self, directory: Path) -> None:
        self.ports = dict(zip((1, 2, 3), free_ports(3), strict=True))
        self.processes: dict[int, asyncio.subprocess.Process] = {}
        self._directory = directory
        controllers = tuple(
            InitialController(node_id, "127.0.0.1", port, secrets.token_bytes(16))
            for node_id, port in self.ports.items()
        )
        for node_id in self.ports:
            path = directory / f"c{node_id}"
            format_directory(path, cluster_id="test", node_id=node_id, role="controller", controllers=controllers)

    async def connected(self) -> AdminClient:
        """A client that has spoken with each of them, and keeps its connections."""
        client = AdminClient(self.targets, timeout_s=2)
        for target in self.targets:
            await client.describe_quorum(target)
        return client

    @property
    def targets(self) -> list[str]:
        return [f"127.0.0.1:{self.ports[node_id]}" for node_id in self.processes]

    async def _start(self, node_id: int) -> None:
        config = self._directory / f"c{node_id}.yaml"
        config.write_text(
            f"node.id: {node_id}\nlisteners: CONTROLLER://127.0.0.1:{self.ports[node_id]}\n"
            f"metadata.log.dir: {self._directory / f'c{node_id}'}\nmetrics.listener: 127.0.0.1:0\nlog.format: json\n"
        )
        with (self._directory / f"c{node_id}.log").open("ab") as log:
            self.processes[node_id] = await asyncio.create_subprocess_exec(
                "/bin/sh", "-c", f'ulimit -n {FILES_MAX}; exec "$@"', "sh",
                sys.executable, "-m", "quorum", "--config", str(config), stdout=log, stderr=log,
            )  # fmt: skip

    async def listen(self) -> None:
        """All three are started, and take connections."""
        for node_id in self.ports:
            await self._start(node_id)

        async def listening() -> bool | None:
            return True if all('"listening"' in self.said(node_id) for node_id in self.processes) else None

        await until(listening, 30)

    def said(self, node_id: int) -> str:
        return (self._directory / f"c{node_id}.log").read_text()

    async def writes(self, client: AdminClient) -> int:
        """A change is committed; gives who leads."""

        async def mark() -> str | None:
            await client.create_snapshot()
            return await client.leader()

        target = await until(mark, 30)
        return next(node_id for node_id, port in self.ports.items() if target.endswith(f":{port}"))

    def assert_alive(self) -> None:
        ended = {node_id: self.said(node_id)[-3_000:] for node_id, each in self.processes.items() if each.returncode}
        assert not ended


@pytest_asyncio.fixture
async def controllers(tmp_path: Path) -> AsyncIterator[Controllers]:
    controllers = Controllers(tmp_path)
    yield controllers
    for process in controllers.processes.values():
        if process.returncode is None:
            process.kill()
        await process.wait()


@contextlib.contextmanager
def silence(ports: list[int]) -> Iterator[None]:
    """So many connections to each port, over which nothing is ever said."""
    with contextlib.ExitStack() as stack:
        for port in ports * SILENT:
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
        yield


async def test_silent_connections_take_no_descriptor_that_a_vote_needs(controllers: Controllers) -> None:
    """120 sockets at each of three controllers with 64 descriptors: nobody ends, a new leader is elected, and it writes."""
    await controllers.listen()
    async with await controllers.connected() as client:
        await controllers.writes(client)
        with silence([*controllers.ports.values()]):
            leader = await controllers.writes(client)
            controllers.assert_alive()
            process = controllers.processes.pop(leader)
            process.kill()
            await process.wait()
            with silence([controllers.ports[node_id] for node_id in controllers.processes]):
                assert await controllers.writes(client) != leader
                controllers.assert_alive()
    for process in controllers.processes.values():
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 15) == 0
