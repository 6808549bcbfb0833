"""A broker whose disk is full, for real: its directory is a file system of its own, which needs root."""

import asyncio
import signal
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from quorum.devcluster.cluster import DevCluster
from quorum.devcluster.layout import free_ports
from quorum.devcluster.process import spawn
from tests.chaos.volume import Volume, why_not
from tests.processes.conftest import (
    BROKER_SETTINGS,
    CONTROLLER_SETTINGS,
    Cluster,
    image_at,
    said,
    status_of,
    until,
)

pytestmark = [pytest.mark.processes, pytest.mark.slow]

VOLUME_BYTES = 24 << 20
FULL = ["disk_full"]


async def test_a_broker_with_a_full_disk_serves_is_killed_and_goes_on(tmp_path: Path) -> None:
    """It stays online and knows the newest topics. Killed and started again on the full disk it is online again. With room it has
    all of the log, and the next process begins from there."""
    reason = why_not(tmp_path)
    if reason is not None:
        pytest.skip(reason)
    (port,) = free_ports(1)
    dev = DevCluster.create(
        tmp_path / "cluster",
        controllers=3,
        brokers=2,
        controller_settings=CONTROLLER_SETTINGS,
        broker_settings=BROKER_SETTINGS,
    )
    node, other = dev.layout.brokers
    with node.config_path.open("a") as config:
        config.write(f"metrics.listener: 127.0.0.1:{port}\n")
    volume = Volume.under(node.data_directory, VOLUME_BYTES)
    cluster = Cluster(dev)
    topics = 0

    async def write() -> None:
        nonlocal topics
        topics += 1
        await cluster.client.create_topic(f"topic-{topics}", partitions=1_000, replication_factor=1)

    async def problems() -> list[str]:
        return [each.code for each in (await status_of(node.endpoint)).problems]

    async def until_it_has_everything() -> None:
        async def probe() -> bool | None:
            return True if await image_at(node.endpoint) == await image_at(other.endpoint) else None

        await until(probe, 30)

    async def page(path: str) -> str:
        """The broker's HTTP side, well or not."""

        def get() -> str:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                    return str(answer.read().decode())
            except urllib.error.HTTPError as e:
                return f"{e.code} {e.read().decode()}"

        return await asyncio.to_thread(get)

    try:
        await dev.up(30)
        filler = volume.fill()

        async def is_full() -> bool | None:
            await write()
            return True if await problems() == FULL else None

        await until(is_full, 60)
        for _ in range(3):
            await write()
        await until_it_has_everything()
        assert (await cluster.states())[node.node_id] == "online"
        assert "Make room, at least 4 MiB" in await page("/healthz")
        assert (await page("/readyz")).startswith("ok"), "it serves"
        assert 'metaquorum_problem{code="disk_full"} 1' in await page("/metrics")

        await cluster.ends(node, signal.SIGKILL)
        spawn(node)
        await dev.wait_until_healthy(30)
        await write()
        await until_it_has_everything()
        assert await problems() == FULL

        filler.unlink()
        await until(lambda: has_no(problems), 30)
        await write()
        await until_it_has_everything()
        assert [line["code"] for line in said(node) if line["event"] == "problem solved"] == FULL
        await cluster.ends(node, signal.SIGTERM)
        spawn(node)
        await dev.wait_until_healthy(30)
        await until_it_has_everything()
        assert not [line for line in said(node) if line["event"] == "store dropped"]
    finally:
        await cluster.client.close()
        await dev.down(0)
        volume.remove()


async def has_no(problems: Callable[[], Awaitable[list[str]]]) -> bool | None:
    return True if not await problems() else None
