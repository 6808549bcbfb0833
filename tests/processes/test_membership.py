"""Controllers come, go, and are replaced, with real daemons: by an operator's commands, and by themselves."""

import json
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from quorum_rpc.v1 import admin_pb2, broker_pb2

from metadata_log.format.ids import uuid_text
from metaquorum import AdminClient
from quorum.devcluster.cluster import DevCluster
from quorum.devcluster.layout import DevNode, free_ports
from tests.processes.conftest import CONTROLLER_SETTINGS, Cluster, quorumctl, running, status_of, until

pytestmark = [pytest.mark.processes, pytest.mark.slow]


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """Three controllers and one broker, healthy."""
    async with running(tmp_path / "cluster", brokers=1) as cluster:
        yield cluster


async def done(cluster: Cluster, *words: str) -> Any:
    """The document of a command that must succeed."""
    ran = await cluster.quorumctl("-o", "json", *words)
    assert ran.returncode == 0, ran
    return json.loads(ran.stdout)


async def voters(cluster: Cluster) -> dict[int, str]:
    """Node id -> directory id of each voter, as the leader has it."""
    status = await cluster.client.describe_quorum((await cluster.leader()).endpoint)
    return {voter.node_id: uuid_text(voter.directory_id) for voter in status.voters}


def ports_of(status: admin_pb2.DescribeQuorumResponse) -> dict[int, int]:
    """Node id -> where that voter is reached, as the log says."""
    return {voter.node_id: voter.endpoint.port for voter in status.voters}


def tell(broker: DevNode, moved: dict[DevNode, DevNode]) -> None:
    """Its configuration names the controllers where they are now; it reads that at its next start."""
    text = broker.config_path.read_text()
    for before, after in moved.items():
        text = text.replace(before.endpoint, after.endpoint)
    broker.config_path.write_text(text)


async def follows(cluster: Cluster, broker: DevNode, client: AdminClient) -> None:
    """Returns once the broker has the leader's image and is online: it itself, not its last process."""

    async def probe() -> bool | None:
        now = await client.describe_quorum(await client.leader())
        try:
            here = await status_of(broker.endpoint)
        except grpc.aio.AioRpcError:
            return None  # it does not listen yet
        # A restarted broker has its old image at once, while the leader still takes its last process for online.
        is_online = here.state == broker_pb2.ONLINE
        return True if is_online and (here.applied_offset, here.digest) == (now.applied_offset, now.digest) else None

    await until(probe, 30)
    await cluster.online(broker.node_id, client=client)


def new_controller(cluster: Cluster, node_id: int) -> DevNode:
    """A controller with a config file, and no directory yet, that stops with the cluster."""
    directory = cluster.dev.layout.directory / f"controller-{node_id}"
    directory.mkdir()
    (port,) = free_ports(1)
    node = DevNode(f"controller-{node_id}", "controller", node_id, port, None, "", directory)
    settings = {
        "node.id": node_id,
        "listeners": f"CONTROLLER://{node.endpoint}",
        "metadata.log.dir": str(node.data_directory),
        **CONTROLLER_SETTINGS,
    }
    node.config_path.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in settings.items()))
    cluster.dev.layout = cluster.dev.layout._replace(nodes=(*cluster.dev.layout.nodes, node))
    cluster.controllers[node_id] = node
    return node


async def join(cluster: Cluster, node: DevNode) -> None:
    """Formats it from whoever runs, and starts it."""
    await done(cluster, "storage", "format", "--config", str(node.config_path), "--from", cluster.dev.layout.bootstrap)
    cluster.dev.start(node.name)


async def caught_up(cluster: Cluster, node_id: int) -> dict[str, Any]:
    """The node's row of `quorum replication`, once its lag is 0."""

    async def probe() -> dict[str, Any] | None:
        ran = await cluster.quorumctl("-o", "json", "quorum", "replication")
        rows = json.loads(ran.stdout)["replicas"] if ran.returncode == 0 else []
        return next((row for row in rows if row["node_id"] == node_id and row["lag"] == 0), None)

    return await until(probe, 30)


async def test_a_controller_moves_to_another_machine(cluster: Cluster) -> None:
    """A fourth one joins as an observer, votes, an old one goes; and the new one's vote counts."""
    await cluster.client.create_topic("before", partitions=3, replication_factor=1)
    node = new_controller(cluster, 4)
    await join(cluster, node)
    assert (await caught_up(cluster, 4))["status"] == "observer"

    added = await done(cluster, "quorum", "add-voter", "--config", str(node.config_path))
    assert (added["previous_voters"], added["voters"]) == ([1, 2, 3], [1, 2, 3, 4])
    removed = await done(cluster, "quorum", "remove-voter", "--node-id", "1")
    assert removed["voters"] == [2, 3, 4]
    await cluster.ends(cluster.controllers[1])
    assert set(await voters(cluster)) == {2, 3, 4}

    await cluster.ends(cluster.controllers[2])  # of three, 3 and 4 are a majority
    await cluster.client.create_topic("after", partitions=3, replication_factor=1)
    assert await cluster.topic_names() == {"before", "after"}
    await cluster.online()


async def test_leadership_is_handed_over_by_name(cluster: Cluster) -> None:
    """Whoever is named leads when the command has ended; without a name, another one than before."""
    before = (await cluster.leader()).node_id
    target = 1 + before % 3
    moved = await done(cluster, "quorum", "transfer-leader", "--to", str(target))
    assert (moved["previous_leader_id"], moved["leader_id"]) == (before, target)
    again = await done(cluster, "quorum", "transfer-leader")
    assert again["leader_id"] != target
    same = await cluster.quorumctl("quorum", "transfer-leader", "--to", str((await cluster.leader()).node_id))
    assert same.returncode == 0 and "already" in same.stdout, same
    await cluster.client.create_topic("after", partitions=3, replication_factor=1)


async def test_a_replaced_disk_lets_itself_in(cluster: Cluster) -> None:
    """Controller 3's disk is lost: formatted anew it is another voter, takes its former self's place, and counts."""
    await cluster.client.create_topic("before", partitions=3, replication_factor=1)
    node = cluster.controllers[3]
    former = (await voters(cluster))[3]
    await cluster.ends(node)
    shutil.rmtree(node.data_directory)
    node.config_path.write_text(node.config_path.read_text() + "controller.quorum.auto.join.enable: true\n")
    await join(cluster, node)

    async def is_back() -> bool | None:
        now = await voters(cluster)
        return True if len(now) == 3 and now[3] != former else None

    await until(is_back, 30)
    await cluster.ends(cluster.controllers[1])
    await cluster.client.create_topic("after", partitions=3, replication_factor=1)
    assert await cluster.topic_names() == {"before", "after"}


async def test_whether_a_controller_may_be_restarted(cluster: Cluster) -> None:
    """While all three run, any one may go; with one down, none of the others."""
    for node_id in (1, 2, 3):

        async def may_go(node_id: int = node_id) -> bool | None:
            ran = await cluster.quorumctl("quorum", "can-restart", "--node-id", str(node_id))
            return True if ran.returncode == 0 else None

        await until(may_go)
    followers = {1, 2, 3} - {(await cluster.leader()).node_id}
    down, up = sorted(followers)
    await cluster.ends(cluster.controllers[down], signal.SIGTERM)

    async def refused() -> str | None:
        ran = await cluster.quorumctl("quorum", "can-restart", "--node-id", str(up))
        return ran.stdout if ran.returncode == 10 else None

    assert f"behind or silent: {down}" in await until(refused)


async def test_a_voter_that_comes_back_elsewhere_is_found(cluster: Cluster) -> None:
    """Controllers 1 and 2 come back at new ports, one after the other: the log says so, they are a majority without the third,
    and a broker that is told where they are follows."""
    (broker,) = cluster.brokers.values()
    for node_id in (1, 2):
        node = cluster.controllers[node_id]
        await cluster.ends(node, signal.SIGTERM)
        (port,) = free_ports(1)
        node.config_path.write_text(node.config_path.read_text().replace(f":{node.port}", f":{port}"))
        moved = node._replace(port=port)
        tell(broker, {node: moved})
        nodes = tuple(moved if each.name == node.name else each for each in cluster.dev.layout.nodes)
        cluster.dev.layout = cluster.dev.layout._replace(nodes=nodes)
        cluster.controllers[node_id] = moved
        cluster.dev.start(node.name)

        async def recorded(node_id: int = node_id, port: int = port) -> bool | None:
            status = await cluster.client.describe_quorum(cluster.controllers[3].endpoint)
            return True if ports_of(status)[node_id] == port else None

        await until(recorded, 30)
    await cluster.ends(cluster.controllers[3])
    await cluster.ends(broker)
    cluster.dev.start(broker.name)
    async with cluster.dev.client(timeout_s=15) as client:
        await follows(cluster, broker, client)
        await client.create_topic("after", partitions=1, replication_factor=1)
        assert {topic.name async for topic in client.topics()} == {"after"}
        status = await client.describe_quorum(await client.leader())
        assert ports_of(status) == {node_id: node.port for node_id, node in cluster.controllers.items()}


async def test_all_hosts_are_renamed_at_once(cluster: Cluster) -> None:
    """Without the new addresses there is no majority to write them: the configuration helps once, then the log knows.
    Brokers are told in their configuration (deploy/runbook.md)."""
    for node in cluster.controllers.values():
        await cluster.ends(node, signal.SIGTERM)
    (broker,) = cluster.brokers.values()
    await cluster.ends(broker)
    moved = {
        node_id: cluster.controllers[node_id]._replace(port=port)
        for node_id, port in zip((1, 2, 3), free_ports(3), strict=True)
    }
    tell(broker, {cluster.controllers[node_id]: node for node_id, node in moved.items()})
    line = f"controller.quorum.voters: {json.dumps([f'{i}@{node.endpoint}' for i, node in moved.items()])}\n"
    for node_id, node in moved.items():
        text = node.config_path.read_text().replace(f":{cluster.controllers[node_id].port}", f":{node.port}")
        node.config_path.write_text(text + line)
    nodes = tuple(moved.get(each.node_id, each) for each in cluster.dev.layout.nodes)
    cluster.dev.layout = cluster.dev.layout._replace(nodes=nodes)
    cluster.controllers.update(moved)
    for node in (*moved.values(), broker):
        cluster.dev.start(node.name)
    async with cluster.dev.client(timeout_s=20) as client:
        await follows(cluster, broker, client)
        await client.create_topic("renamed", partitions=1, replication_factor=1)

        async def written() -> bool | None:
            """All three have had the log say where they are: three voter sets, after which nothing more is written."""
            rows = [
                record
                for line in quorumctl(
                    "log", "dump", str(moved[1].data_directory), "--print-data", "-o", "jsonl"
                ).stdout.splitlines()
                for record in json.loads(line).get("records") or ()
                if record["type"] == "Voters"
            ]
            last = rows[-1]["data"]["voters"] if rows else []
            ports = {voter["node_id"]: voter["endpoints"][0]["port"] for voter in last}
            return True if ports == {i: node.port for i, node in moved.items()} else None

        await until(written, 30)
    for node in moved.values():
        await cluster.ends(node, signal.SIGTERM)
        node.config_path.write_text(node.config_path.read_text().replace(line, ""))
    for node in moved.values():
        cluster.dev.start(node.name)
    async with cluster.dev.client(timeout_s=20) as client:
        await follows(cluster, broker, client)
        await client.create_topic("without-help", partitions=1, replication_factor=1)
        assert {topic.name async for topic in client.topics()} == {"renamed", "without-help"}
        status = await client.describe_quorum(await client.leader())
        assert ports_of(status) == {node_id: node.port for node_id, node in moved.items()}


async def test_a_new_controller_finds_a_quorum_that_it_has_never_heard_of(tmp_path: Path) -> None:
    """All the voters of the beginning have gone, and it is told so when it is formatted."""
    dev = DevCluster.create(tmp_path / "cluster", controllers=1, brokers=0, controller_settings=CONTROLLER_SETTINGS)
    cluster = Cluster(dev)
    try:
        await dev.up(30)
        second = new_controller(cluster, 2)
        await join(cluster, second)
        await caught_up(cluster, 2)
        await done(cluster, "quorum", "add-voter", "--config", str(second.config_path))
        await done(cluster, "quorum", "remove-voter", "--node-id", "1")
        await cluster.ends(cluster.controllers[1])
        third = new_controller(cluster, 3)
        formatted = quorumctl("storage", "format", "--config", str(third.config_path), "--from", second.endpoint)
        (hint,) = [line for line in formatted.stdout.splitlines() if "None of the first voters is left" in line]
        setting = hint.partition("in its configuration: ")[2]
        assert setting == f"controller.quorum.voters: [2@{second.endpoint}]"
        third.config_path.write_text(third.config_path.read_text() + setting + "\n")
        dev.start(third.name)
        assert (await caught_up(cluster, 3))["status"] == "observer"
    finally:
        try:
            await cluster.client.close()
        finally:
            await dev.down(0)
