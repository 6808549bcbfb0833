"""Controllers that have moved while another one was away, on one event loop: what its log says of them is over.

In the clear, and over TLS: there a node's identity is in its certificate, so that no address in an old log, and none that is
new, makes a controller another's or nobody's.
"""

import random
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import cast

import pytest
import pytest_asyncio

from metadata_log.disk.files import RealDirectory
from metadata_log.disk.identity import Identity, write_identity
from metadata_log.format.ids import uuid_text
from metadata_log.format.records import Endpoint, Voter, Voters
from quorum.core.protocol.config import RaftConfig
from quorum.core.protocol.messages import TransferLeadershipRequest
from quorum.runtime.disk.open_directory import LOG_DIRECTORY, open_directory
from quorum.runtime.facade import ControllerNode
from quorum.runtime.loop import NodeLoop
from quorum.runtime.protocol.node_config import NodeConfig
from quorum.wire.peers.peers import Peers
from quorum.wire.server import serve
from service_kit.process.clock import RealClock
from service_kit.process.endpoints import HostPort
from snapshots.store import SnapshotStore
from tests.processes.certificates import Authority
from tests.quorum.runtime.quorum_of_three import Later, peers_of, until

CLUSTER_ID = uuid_text(bytes(range(16)))
RAFT = RaftConfig()
WITH_TLS = (
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed: no certificates can be made"),
)
GONE = Endpoint("CONTROLLER", "127.0.0.1", 1)


class Moved:
    """Voters 1, 2, 3, formatted when 2 and 3 were elsewhere; and 4, an observer."""

    def __init__(self, path: Path, stack: AsyncExitStack, authority: Authority | None = None) -> None:
        self._path = path
        self._tls = {i: authority.sign_node("controller", i, CLUSTER_ID) if authority else None for i in (1, 2, 3, 4)}
        self._stack = stack
        self._identities = {i: Identity(CLUSTER_ID, i, bytes([i]) * 16, 1, "controller") for i in (1, 2, 3, 4)}
        self._served = {i: Later() for i in self._identities}
        self._peers: dict[int, Peers] = {}
        self.loops: dict[int, NodeLoop] = {}
        self.endpoints: dict[int, Endpoint] = {}

    async def serve(self) -> None:
        for node_id, identity in self._identities.items():
            node = cast(ControllerNode, self._served[node_id])
            anywhere, tls = HostPort("127.0.0.1", 0), self._tls[node_id]
            serving = serve(node, identity, anywhere, grace_s=0, learn=self._told(node_id), tls=tls)
            port = await self._stack.enter_async_context(serving)
            self.endpoints[node_id] = Endpoint("CONTROLLER", "127.0.0.1", port)

    def _told(self, node_id: int) -> Callable[[int, Endpoint], None]:
        return lambda leader_id, endpoint: self._peers[node_id].told_by(leader_id, endpoint)

    async def start(self, node_id: int, raft: RaftConfig = RAFT) -> None:
        identity, directory = self._identities[node_id], RealDirectory(self._path / str(node_id))
        write_identity(directory, identity)
        formatted = ((1, self.endpoints[1]), (2, GONE), (3, GONE))
        voters = Voters(tuple(Voter(each, self._identities[each].directory_id, (at,)) for each, at in formatted))
        SnapshotStore(directory.subdirectory(LOG_DIRECTORY)).write_bootstrap(voters)
        directory.lock()
        config = NodeConfig(endpoints=(self.endpoints[node_id],), raft=raft)
        opened = open_directory(directory, identity, config)
        peers = peers_of(identity, self._tls[node_id])
        loop = NodeLoop(opened, config, peers, RealClock(), random.Random(node_id))
        self._peers[node_id], self._served[node_id].loop, self.loops[node_id] = peers, loop, loop
        self._stack.push_async_callback(loop.stop)
        await loop.start()

    def knows(self, node_id: int, of: int) -> bool:
        voters = self.loops[node_id].node.core.voters.voters
        return any(voter.node_id == of and voter.endpoints[0] == self.endpoints[of] for voter in voters)


@pytest_asyncio.fixture(params=[pytest.param(False, id="clear"), pytest.param(True, id="tls", marks=WITH_TLS)])
async def moved(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Moved]:
    """1 and 2 run, know where the other one is now, and 2 leads."""
    async with AsyncExitStack() as stack:
        moved = Moved(tmp_path, stack, Authority(tmp_path / "ca") if request.param else None)
        await moved.serve()
        for node_id in (1, 2):
            await moved.start(node_id)
        await until(lambda: moved.knows(1, of=2) and any(loop.node.active.on for loop in moved.loops.values()))
        if not moved.loops[2].node.core.is_leading:
            await moved.loops[1].raft(TransferLeadershipRequest(2, timeout_ms=5_000))
        await until(lambda: moved.loops[2].node.active.on)
        yield moved


@pytest.mark.parametrize("node_id", [3, 4])
async def test_who_the_leader_does_not_reach_hears_of_it_from_others(moved: Moved, node_id: int) -> None:
    """
    Both 2, the leader, and 3 have moved: each has only the other's old address. And an observer is called by nobody. What
    1 says of the leader counts more than what the first voter set says.
    """
    await moved.start(node_id)
    await until(lambda: moved.loops[node_id].node.log.shape.end == moved.loops[2].node.log.shape.end > 1)
    assert moved.loops[2].node.core.is_leading


async def test_a_controller_that_joins_by_itself_is_let_in_for_its_own_id(moved: Moved) -> None:
    """Auto-join: 4 follows the two that have moved, asks the leader to be added, and votes from then on."""
    await moved.start(4, RaftConfig(auto_join=True))
    await until(lambda: moved.knows(2, of=4) and moved.knows(4, of=4))
    assert moved.loops[2].node.core.is_leading
