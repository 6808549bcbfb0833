"""Three real controllers on one event loop: real gRPC on loopback, real disk, real clock."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import grpc.aio

from metadata_log.disk.files import RealDirectory
from metadata_log.disk.identity import Identity, write_identity
from metadata_log.format.ids import uuid_text
from metadata_log.format.records import Endpoint, Voter, Voters
from metaquorum import AdminClient
from quorum.runtime.disk.open_directory import LOG_DIRECTORY, open_directory
from quorum.runtime.facade import ControllerNode
from quorum.runtime.loop import NodeLoop
from quorum.runtime.protocol.node_config import NodeConfig
from quorum.wire.peers.peers import Peers
from quorum.wire.server import serve
from service_kit.process.clock import RealClock
from service_kit.process.endpoints import HostPort
from service_kit.rpc.dial import open_channel
from service_kit.rpc.grpc_options import channel_options
from service_kit.security.node_identity import CONTROLLER, Node, NodeNames
from service_kit.security.tls import TlsFiles, channel_credentials
from snapshots.store import SnapshotStore


async def until(condition: Callable[[], bool]) -> None:
    """Looks again and again, because the controllers run by the real clock, and a condition may concern any of them. Fails after
    20 s.
    """
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


def peers_of(identity: Identity, tls: TlsFiles | None = None) -> Peers:
    """How that controller reaches the others: over TLS each has to show its own certificate, as quorumd wants it."""
    credentials, names = channel_credentials(tls), NodeNames(identity.cluster_id)

    def dial(node_id: int, endpoint: Endpoint) -> grpc.aio.Channel:
        target, name = f"{endpoint.host}:{endpoint.port}", names.demanded(Node(CONTROLLER, node_id))
        return open_channel(target, credentials, channel_options(), name)

    return Peers(identity, dial)


class Later:
    """A controller that is served before it is there: the voters' ports have to be known, and held, before anybody starts."""

    loop: NodeLoop

    @property
    def watched(self) -> "LaterLog":
        return LaterLog(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loop, name)


class LaterLog:
    """The log of a controller that is served before it is there."""

    def __init__(self, node: Later) -> None:
        self._node = node

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node.loop.watched, name)


class Quorum:
    """The loops by node id, and where they listen."""

    def __init__(self, path: Path, config: NodeConfig) -> None:
        self._path = path
        self._config = config
        self._rng = random.Random(7)
        self.cluster_id = uuid_text(self._rng.randbytes(16))
        self.loops: dict[int, NodeLoop] = {}
        self._served: dict[int, Later] = {}
        self._servers: dict[int, AsyncExitStack] = {}
        self.endpoints: dict[int, Endpoint] = {}
        self._identities: dict[int, Identity] = {}

    async def start(self) -> None:
        for node_id in (1, 2, 3):
            identity = Identity(self.cluster_id, node_id, self._rng.randbytes(16), 1, "controller")
            self._identities[node_id] = identity
            self._served[node_id], self._servers[node_id] = Later(), AsyncExitStack()
            port = await self._servers[node_id].enter_async_context(
                serve(cast(ControllerNode, self._served[node_id]), identity, HostPort("127.0.0.1", 0))
            )
            self.endpoints[node_id] = Endpoint("CONTROLLER", "127.0.0.1", port)
        voters = Voters(tuple(Voter(i, self._identities[i].directory_id, (self.endpoints[i],)) for i in (1, 2, 3)))
        for node_id, identity in self._identities.items():
            directory = RealDirectory(self._path / str(node_id))
            write_identity(directory, identity)
            SnapshotStore(directory.subdirectory(LOG_DIRECTORY)).write_bootstrap(voters)
            await self._start_one(node_id, directory)

    async def _start_one(self, node_id: int, directory: RealDirectory) -> None:
        identity = self._identities[node_id]
        directory.lock()
        peers = peers_of(identity)
        opened = open_directory(directory, identity, self._config)
        loop = NodeLoop(opened, self._config, peers, RealClock(), self._rng)
        self.loops[node_id] = self._served[node_id].loop = loop
        await loop.start()

    async def stop_one(self, node_id: int) -> None:
        try:
            if (loop := self.loops.pop(node_id, None)) is not None:
                await loop.stop()
        finally:
            await self._servers.pop(node_id).aclose()

    async def stop(self) -> None:
        for node_id in list(self._servers):
            await self.stop_one(node_id)

    def client(self) -> AdminClient:
        return AdminClient([f"127.0.0.1:{endpoint.port}" for endpoint in self.endpoints.values()])


@asynccontextmanager
async def quorum_of_three(path: Path, config: NodeConfig | None = None) -> AsyncIterator[Quorum]:
    """Up inside of the block, stopped after it."""
    quorum = Quorum(path, config or NodeConfig())
    try:
        await quorum.start()
        yield quorum
    finally:
        await quorum.stop()
