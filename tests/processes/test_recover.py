"""A majority of the controllers is lost for good, with real daemons: one is left, becomes the quorum, and grows again."""

import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from metaquorum import AdminClient
from quorum.controller.partitions.epoch_raise import STEP
from tests.processes.conftest import Cluster, image_at, quorumctl, running, said, until
from tests.processes.test_membership import new_controller

pytestmark = [pytest.mark.processes, pytest.mark.slow]


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """Three controllers and two brokers, healthy."""
    async with running(tmp_path / "cluster", brokers=2) as cluster:
        yield cluster


async def agree(cluster: Cluster, client: AdminClient, controller: str) -> None:
    """Returns once all brokers have the image of that controller."""

    async def probe() -> bool | None:
        quorum = await client.describe_quorum(controller)
        wanted = (quorum.applied_offset, quorum.digest)
        return True if all([await image_at(node.endpoint) == wanted for node in cluster.brokers.values()]) else None

    await until(probe, 40)


async def test_one_of_three_is_left_and_the_cluster_lives_on(cluster: Cluster, tmp_path: Path) -> None:
    """Two disks are gone. The third leads alone, brokers follow it into the new generation, two new ones join; and a disk
    that turns up again is listened to by nobody. A topic that was created by mistake is undone with that."""
    for number in range(5):
        await cluster.client.create_topic(f"topic-{number}", partitions=4, replication_factor=2)
    wanted = (await cluster.client.list_topics()).as_of_offset
    await cluster.client.create_topic("regretted", partitions=4, replication_factor=2)
    regretted = (await cluster.client.list_topics()).as_of_offset
    leader = (await cluster.leader()).node_id
    left = cluster.controllers[1 + leader % 3]

    async def left_has_all() -> bool | None:
        return True if (await cluster.client.describe_quorum(left.endpoint)).flushed_end_offset >= regretted else None

    await until(left_has_all, 20)
    lost = [node for node in cluster.controllers.values() if node.node_id != left.node_id]
    for node in lost:
        await cluster.ends(node)
    shutil.copytree(lost[0].data_directory, tmp_path / "found-again")
    for node in lost:
        shutil.rmtree(node.data_directory)

    words = ["quorum", "recover", "--directory", str(left.data_directory)]
    words += ["--to-offset", str(wanted), "--yes", "-o", "json"]
    running = quorumctl(*words)
    assert running.returncode == 4 and "A node that runs is not lost" in running.stderr
    await cluster.ends(left)
    recovered = quorumctl(*words)
    assert recovered.returncode == 0, recovered
    document = json.loads(recovered.stdout)
    generation = document["generation"]
    assert [each["what"] for each in document["undone"]["listed"]["topic"]] == ["regretted"]

    cluster.dev.start(left.name)
    async with AdminClient([left.endpoint], timeout_s=20) as client:
        assert await client.leader() == left.endpoint
        assert {topic.name async for topic in client.topics()} == {f"topic-{number}" for number in range(5)}
        await client.create_topic("after", partitions=2, replication_factor=1)
        floor = (generation - 1) * STEP  # no epoch of the lost history can be as large
        for name in ("topic-0", "after"):
            described = (await client.describe_topic(name)).partitions
            assert all(min(each.leader_epoch, each.partition_epoch) >= floor for each in described), described
        await cluster.online()
        await agree(cluster, client, left.endpoint)
    for broker in cluster.brokers.values():
        assert [line["generation"] for line in said(broker) if line["event"] == "new generation"] == [generation]

    # The disk of one turns up, is mounted, and started by somebody who does not know: it finds nobody to vote for it.
    shutil.copytree(tmp_path / "found-again", lost[0].data_directory)
    cluster.dev.start(lost[0].name)
    ghost = lost[0]

    async def ghost_is_up() -> bool | None:
        return True if (await cluster.client.describe_quorum(ghost.endpoint)).generation == 1 else None

    await until(ghost_is_up, 20)
    for node_id in (4, 5):
        node = new_controller(cluster, node_id)
        node.config_path.write_text(node.config_path.read_text() + "controller.quorum.auto.join.enable: true\n")
        ran = quorumctl("storage", "format", "--config", str(node.config_path), "--from", left.endpoint)
        assert ran.returncode == 0, ran
        cluster.dev.start(node.name)

    async def grown() -> bool | None:
        # A voter set holds from its append on. If the leader alone has it, 4 and 5 are no majority without the leader.
        known = [await voters_at(node.endpoint) for node in (left, cluster.controllers[4], cluster.controllers[5])]
        return True if all(set(each) == {left.node_id, 4, 5} for each in known) else None

    await until(grown, 40)
    status = await cluster.client.describe_quorum(ghost.endpoint)
    assert status.role != "leader" and status.generation == 1

    await cluster.ends(left)  # 4 and 5 are a majority by now
    new = ",".join(cluster.controllers[node_id].endpoint for node_id in (4, 5))
    async with AdminClient(new.split(","), timeout_s=20) as client:
        await client.create_topic("without-the-survivor", partitions=1, replication_factor=1)


async def voters_at(endpoint: str) -> list[int]:
    """Who votes, as that controller has it."""
    async with AdminClient([endpoint], timeout_s=5) as client:
        return [voter.node_id for voter in (await client.describe_quorum(endpoint)).voters]
