"""The daemon itself: real processes, exit codes, and what is said on stderr."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from quorum_rpc.v1 import client_pb2, client_pb2_grpc

from metadata_log.disk.files import RealDirectory
from metadata_log.disk.identity import Identity, write_identity
from service_kit.rpc.dial import Dialer
from tests.broker_agent.controllers import CLUSTER_ID, FakeController, History

pytestmark = [pytest.mark.processes, pytest.mark.slow]


class Daemon:
    """A `brokerd` process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def ends(self) -> tuple[int, str]:
        """Its exit code and all that it has said."""
        _, said = await asyncio.wait_for(self.process.communicate(), 30)
        assert self.process.returncode is not None
        return self.process.returncode, said.decode()


Start = Callable[..., "asyncio.Future[Daemon]"]


@pytest_asyncio.fixture
async def controller(tmp_path: Path) -> AsyncIterator[FakeController]:
    controller = await FakeController(History(tmp_path / "controller")).start()
    yield controller
    await controller.stop()


@pytest_asyncio.fixture
async def start(tmp_path: Path, controller: FakeController) -> AsyncIterator[Start]:
    daemons: list[Daemon] = []
    file = tmp_path / "broker.yaml"
    file.write_text(
        f"node.id: 4\nlisteners: PLAINTEXT://127.0.0.1:0\nmetadata.log.dir: {tmp_path / 'broker'}\n"
        f"controller.quorum.bootstrap.servers: 127.0.0.1:{controller.port}\n"
    )

    async def begin(*overrides: str) -> Daemon:
        options = [word for override in overrides for word in ("--set", override)]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "broker_agent", "--config", str(file), *options,
            stderr=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        daemons.append(Daemon(process))
        return daemons[-1]

    yield begin  # type: ignore[misc]
    for daemon in daemons:
        if daemon.process.returncode is None:
            daemon.process.kill()
            await daemon.process.communicate()


@pytest.fixture
def formatted(tmp_path: Path) -> Path:
    path = tmp_path / "broker"
    write_identity(RealDirectory(path), Identity(CLUSTER_ID, 4, b"d" * 16, 1, "broker"))
    return path


def is_online(controller: FakeController) -> bool:
    """Unfenced, and it has fetched since it applied that."""
    known = controller.history.image.brokers.get(4)
    has_seen = bool(controller.fetches) and controller.fetches[-1].offset == controller.history.end
    return known is not None and not known.fenced and has_seen


async def test_a_broker_starts_serves_and_leaves_at_sigterm(
    controller: FakeController, start: Start, formatted: Path
) -> None:
    """Registered with the port that was bound; exit code 0; the directory is free again."""
    daemon = await start()
    await controller.pulse.until(lambda: is_online(controller))
    (endpoint,) = controller.registrations[-1].endpoints
    async with Dialer() as dialer:
        stub = client_pb2_grpc.ClusterMetadataServiceStub(dialer(f"{endpoint.host}:{endpoint.port}"))  # type: ignore[no-untyped-call]
        told = await stub.Metadata(client_pb2.MetadataRequest(), timeout=10)
    assert [(node.broker_id, node.port) for node in told.nodes] == [(4, endpoint.port)]

    second = await start()
    code, said = await second.ends()
    assert code == 1
    assert "in use by process" in said

    daemon.process.send_signal(signal.SIGTERM)
    code, said = await daemon.ends()
    assert code == 0, said
    assert "the controller allows the shutdown" in said
    assert controller.history.image.brokers[4].fenced


async def test_a_killed_broker_comes_back_at_once(controller: FakeController, start: Start, formatted: Path) -> None:
    """kill -9: the next process names the dead one, and goes on from disk."""
    first = await start()
    await controller.pulse.until(lambda: is_online(controller))
    killed = controller.registrations[-1].incarnation_id
    first.process.kill()
    await first.process.communicate()

    await start()
    registered = len(controller.registrations)
    await controller.pulse.until(lambda: len(controller.registrations) > registered and is_online(controller))
    assert controller.registrations[-1].previous_incarnation_id == killed


async def test_an_unformatted_directory_is_not_made_into_one(start: Start, tmp_path: Path) -> None:
    """Exit code 78, and the command that formats it."""
    code, said = await (await start()).ends()

    assert code == 78
    assert "quorumctl storage format" in said
    assert not (tmp_path / "broker").exists()


async def test_mistakes_end_it_with_78_and_all_of_them(start: Start, formatted: Path) -> None:
    """One a line."""
    code, said = await (await start("node.id=x", "lease.mode=loose", "nonsense=1")).ends()

    assert code == 78
    assert said.startswith("3 mistakes in the configuration:\n")


async def test_a_used_port_is_named(controller: FakeController, start: Start, formatted: Path) -> None:
    """Two servers never share one silently."""
    code, said = await (await start(f"listeners=PLAINTEXT://127.0.0.1:{controller.port}")).ends()

    assert code == 1
    assert f"127.0.0.1:{controller.port}" in said
    assert "in use" in said
