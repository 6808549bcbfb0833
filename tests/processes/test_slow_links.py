"""Daemons behind a slow link: they catch up, and cost the others nothing meanwhile."""

import random
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import grpc
import pytest

from metaquorum import EntityClient, PutEntity
from quorum.devcluster.cluster import DevCluster
from quorum.devcluster.layout import DevNode
from tests.chaos.network import HOST, Direction, Link, free_port
from tests.processes.conftest import BROKER_SETTINGS, CONTROLLER_SETTINGS, Cluster, image_at, said, until

pytestmark = [pytest.mark.processes, pytest.mark.slow]

BYTES_PER_S = 300_000.0
"""2.4 Mbit/s: 1 MiB takes 3.5 s, where a controller's request must be answered within half a second."""
SETTINGS = {
    **CONTROLLER_SETTINGS,
    "metadata.log.segment.bytes": str(2 << 20),
    "metadata.log.max.record.bytes.between.snapshots": str(512 << 10),
    "metadata.max.retention.bytes": str(1 << 20),
}
"""A node that is 2 MiB and more behind finds that the log has moved on."""
VALUES, VALUE_BYTES = 7, 60_000
"""How many entities one request writes, and the size of the value of each."""


class SlowLinks:
    """From one node to others; what comes back over them is counted."""

    def __init__(self, near: DevNode, others: list[DevNode], stack: AsyncExitStack) -> None:
        dice, taken = random.Random(near.port), [each.port for each in [near, *others]]
        self.back = {far.node_id: Counted(bytes_per_s=BYTES_PER_S) for far in others}
        self.links: dict[int, Link] = {}
        self._stack = stack
        for far in others:
            port = free_port(dice, taken)
            taken.append(port)
            self.links[far.node_id] = Link(port, far.port, Direction(), self.back[far.node_id])

    async def start(self) -> None:
        for link in self.links.values():
            await link.start()
            self._stack.push_async_callback(link.close)

    def addresses(self) -> list[tuple[int, str]]:
        """Node id, and where it is to be reached over its link."""
        return [(node_id, f"{HOST}:{link.port}") for node_id, link in self.links.items()]

    @property
    def bytes_back(self) -> int:
        return sum(each.count for each in self.back.values())


class Counted(Direction):
    """Says how many bytes went on."""

    count = 0

    async def pass_on(self, count: int) -> None:
        self.count += count
        await super().pass_on(count)


@asynccontextmanager
async def cluster_of(directory: Path) -> AsyncIterator[Cluster]:
    """Three controllers and two brokers, healthy."""
    dev = DevCluster.create(
        directory, controllers=3, brokers=2, controller_settings=SETTINGS, broker_settings=BROKER_SETTINGS
    )
    cluster = Cluster(dev)
    try:
        await dev.up(30)
        yield cluster
    finally:
        await cluster.client.close()
        await dev.down(0)


def configure(node: DevNode, key: str, addresses: list[str]) -> None:
    """It reads that at its next start."""
    lines = [line for line in node.config_path.read_text().splitlines() if not line.startswith(key)]
    node.config_path.write_text("\n".join([*lines, f"{key}: {addresses}", ""]))


async def write(cluster: Cluster, first: int, count: int) -> None:
    """Write transactions of some 400 KB each. A batch and a snapshot cannot compress the values."""
    async with EntityClient(cluster.dev.layout.bootstrap.split(","), timeout_s=15) as client:
        for number in range(first, first + count):
            dice = random.Random(number)
            puts = [PutEntity("large", f"{number}-{place}", dice.randbytes(VALUE_BYTES)) for place in range(VALUES)]
            await client.must_transact([], puts)


async def catches_up(cluster: Cluster, node: DevNode) -> None:
    """Returns when it has applied what the leader has."""
    goal = (await cluster.client.describe_quorum((await cluster.leader()).endpoint)).applied_offset

    async def probe() -> bool | None:
        if node.role == "broker":
            try:
                offset, _ = await image_at(node.endpoint)
            except grpc.aio.AioRpcError:
                return None  # it does not listen yet
        else:
            offset = (await cluster.client.describe_quorum(node.endpoint)).applied_offset
        return True if offset >= goal else None

    await until(probe, 60)


async def test_daemons_behind_slow_links_catch_up(tmp_path: Path) -> None:
    """A controller from the log, the same one from a snapshot, and a broker; nobody is elected, and nobody campaigns."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(cluster_of(tmp_path / "cluster"))
        leader = await cluster.leader()
        follower = next(node for node in cluster.controllers.values() if node is not leader)
        broker, _ = cluster.brokers.values()
        to_follower = SlowLinks(
            follower, [each for each in cluster.controllers.values() if each is not follower], stack
        )
        to_broker = SlowLinks(broker, [leader], stack)
        await to_follower.start()
        await to_broker.start()
        configure(follower, "controller.quorum.voters", [f"{far}@{where}" for far, where in to_follower.addresses()])
        configure(broker, "controller.quorum.bootstrap.servers", [where for _, where in to_broker.addresses()])
        epoch = (await cluster.client.describe_quorum(leader.endpoint)).epoch
        await cluster.ends(broker, signal.SIGTERM)

        # What it lacks is in the log: two batches, each of which takes more than a second.
        await cluster.ends(follower, signal.SIGTERM)
        await write(cluster, 0, 2)
        lives = len(said(follower))
        cluster.dev.start(follower.name)
        await catches_up(cluster, follower)
        from_log = to_follower.bytes_back
        assert 600_000 < from_log < 1_200_000, "what came, came once"

        # What it lacks is in the log no more: a snapshot takes its place.
        await cluster.ends(follower, signal.SIGTERM)
        stood = (await cluster.client.describe_quorum(leader.endpoint)).log_end_offset
        await write(cluster, 2, 6)
        marked = (await cluster.client.create_snapshot()).offset
        await until(lambda: is_written(cluster, leader, marked))
        await until(lambda: is_dropped(cluster, leader, stood))
        cluster.dev.start(follower.name)
        cluster.dev.start(broker.name)
        await catches_up(cluster, follower)
        await catches_up(cluster, broker)
        await cluster.online(broker.node_id)
        assert 1_500_000 < to_follower.bytes_back - from_log < 4_000_000, "what came, came once"
        assert 1_500_000 < to_broker.bytes_back < 4_000_000, "all came over the slow link, once"

        assert (await cluster.client.describe_quorum(leader.endpoint)).epoch == epoch
        roles = {line["role"] for line in said(follower)[lives:] if line["event"] == "role"}
        assert roles <= {"follower", "unattached"}, "it has campaigned"


async def is_written(cluster: Cluster, leader: DevNode, end_offset: int) -> bool | None:
    """Whether the leader has its newest snapshot: a later one would take the place of that which a node downloads."""
    listed = await cluster.client.list_snapshots(leader.endpoint)
    return True if any(each.snapshot.end_offset == end_offset for each in listed.snapshots) else None


async def is_dropped(cluster: Cluster, leader: DevNode, offset: int) -> bool | None:
    """Whether the leader's log begins above `offset`."""
    now = await cluster.client.describe_quorum(leader.endpoint)
    return True if now.log_start_offset > offset else None
