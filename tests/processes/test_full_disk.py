"""A disk that is full, for real: a controller whose directory is a file system of its own (which needs root) runs out of room.

The fakes have it from the inside (`tests/quorum/runtime/disk/test_full_disk.py`); here it is what people see of it.
"""

import asyncio
import json
import signal
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from metadata_log.disk.ballast import BALLAST_NAME
from quorum.devcluster.cluster import DevCluster
from quorum.devcluster.layout import free_ports
from quorum.devcluster.process import spawn
from tests.chaos.volume import Volume, why_not
from tests.processes.conftest import CONTROLLER_SETTINGS, Cluster, said, until

pytestmark = [pytest.mark.processes, pytest.mark.slow]

VOLUME_BYTES = 24 << 20
FULL = "the disk is full"


class Story:
    """Three controllers, of which number 1 has the small disk."""

    def __init__(self, cluster: Cluster, volume: Volume, metrics_port: int) -> None:
        self.cluster = cluster
        self.volume = volume
        self.node = cluster.dev.node("controller-1")
        self._metrics = f"http://127.0.0.1:{metrics_port}"
        self._topics = 0

    async def write(self) -> None:
        """About 100 KiB of log."""
        self._topics += 1
        await self.cluster.client.create_topic(f"topic-{self._topics}", partitions=1_000, replication_factor=1)

    async def write_until_full(self) -> None:
        """A segment has some room in advance, which has to be used up first."""

        async def probe() -> bool | None:
            await self.write()
            return True if "disk_full" in await self.problems() else None

        await until(probe, 60)

    async def problems(self) -> list[str]:
        """The codes of what is wrong with it."""
        return [each.code for each in (await self.cluster.client.describe_quorum(self.node.endpoint)).problems]

    async def has_said(self, event: str) -> None:
        """Waits for the line about its full disk."""

        async def probe() -> bool | None:
            events = [line["event"] for line in said(self.node) if line.get("code") == "disk_full"]
            return True if event in events else None

        await until(probe)

    async def epoch_on_disk(self) -> int:
        state = json.loads((self.node.data_directory / "quorum-state").read_text())["state"]
        assert state["voted_for"] is None or state["voted_for"]["node_id"] in self.cluster.controllers
        return int(state["epoch"])

    async def page(self, path: str) -> str:
        """What its HTTP side says, well or not."""

        def get() -> str:
            try:
                with urllib.request.urlopen(self._metrics + path, timeout=5) as answer:
                    return str(answer.read().decode())
            except urllib.error.HTTPError as e:
                return f"{e.code} {e.read().decode()}"

        return await asyncio.to_thread(get)

    async def until_it_has_room(self) -> None:
        async def probe() -> bool | None:
            return True if not await self.problems() else None

        await until(probe)

    async def until_it_has_everything(self) -> None:
        """The same image at the same offset as the leader's."""

        async def probe() -> bool | None:
            leader = await self.cluster.client.describe_quorum((await self.cluster.leader()).endpoint)
            here = await self.cluster.client.describe_quorum(self.node.endpoint)
            same = (here.applied_offset, here.digest) == (leader.applied_offset, leader.digest)
            return True if same else None

        await until(probe, 30)


@asynccontextmanager
async def a_small_disk(tmp_path: Path) -> AsyncIterator[Story]:
    reason = why_not(tmp_path)
    if reason is not None:
        pytest.skip(reason)
    (port,) = free_ports(1)
    dev = DevCluster.create(tmp_path / "cluster", controllers=3, brokers=1, controller_settings=CONTROLLER_SETTINGS)
    node = dev.node("controller-1")
    with node.config_path.open("a") as config:
        config.write(f"metrics.listener: 127.0.0.1:{port}\n")
    volume = Volume.under(node.data_directory, VOLUME_BYTES)
    cluster = Cluster(dev)
    try:
        await dev.up(30)
        yield Story(cluster, volume, port)
    finally:
        await cluster.client.close()
        await dev.down(0)
        volume.remove()


async def test_a_full_disk_is_said_survived_and_over_when_there_is_room(tmp_path: Path) -> None:
    """The others go on without it; it says everywhere what is wrong; and it needs nobody once there is room again."""
    async with a_small_disk(tmp_path) as story:
        await story.cluster.quorumctl("quorum", "transfer-leader", "--to", "1")
        filler = story.volume.fill()
        await story.write_until_full()
        assert (await story.cluster.leader()).node_id != 1, "one that has no room leads nobody"
        await story.has_said("problem")
        assert 'problem{code="disk_full"} 1' in await story.page("/metrics")
        assert (await story.page("/readyz")).startswith(f"503 {FULL}")
        status = await story.cluster.quorumctl("quorum", "status")
        assert f"Problem: 1: disk_full: {FULL}\n" in status.stdout

        filler.unlink()
        await story.until_it_has_room()
        await story.until_it_has_everything()
        assert (story.node.data_directory / BALLAST_NAME).exists()
        await story.has_said("problem solved")
        assert 'problem{code="disk_full"} 0' in await story.page("/metrics")
        assert story.cluster.dev.pid(story.node.name) is not None


async def test_a_full_disk_elects_no_leader_that_could_not_commit(tmp_path: Path) -> None:
    """The leader is gone, and one of the two others is full: nothing could be committed, so no leader is elected, and each says
    so. Killed and started again on the full disk it knows its epoch; with room a leader is elected, and it does its work."""
    async with a_small_disk(tmp_path) as story:
        cluster = story.cluster
        if (await cluster.leader()).node_id == 1:
            await cluster.quorumctl("quorum", "transfer-leader", "--to", "2")
        filler = story.volume.fill()
        await story.write_until_full()
        leader = await cluster.leader()
        remembered = await story.epoch_on_disk()
        await cluster.ends(leader)
        (other,) = (each for each in cluster.controllers.values() if each not in (leader, story.node))

        async def leaderless() -> bool | None:
            seen = [await cluster.client.describe_quorum(each.endpoint) for each in (other, story.node)]
            return None if any(each.leader.HasField("leader_id") for each in seen) else True

        await until(leaderless, 30)
        assert await story.epoch_on_disk() == remembered
        await cluster.ends(story.node, signal.SIGKILL)
        spawn(story.node)

        async def reported() -> bool | None:
            return True if "disk_full" in await story.problems() else None

        await until(reported, 30)
        assert await story.epoch_on_disk() >= remembered
        filler.unlink()
        await story.until_it_has_room()
        await story.write()
        await story.until_it_has_everything()
