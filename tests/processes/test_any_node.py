"""Whichever node an operator reaches, the cluster is operated through it; and no failover makes one change two, or none."""

import asyncio

import pytest
from quorum_rpc.v1 import watch_pb2

from metaquorum import AdminClient
from tests.processes.conftest import Cluster, quorumctl, until
from tests.watches.following import Follower

pytestmark = [pytest.mark.processes, pytest.mark.slow]


async def test_every_node_takes_changes_and_answers_reads(shared_cluster: Cluster) -> None:
    """Leader, follower and broker; nobody is sent elsewhere."""
    cluster = shared_cluster
    await cluster.online()
    for node in (*cluster.controllers.values(), *cluster.brokers.values()):
        name = f"through-{node.name}"
        async with AdminClient([node.endpoint], timeout_s=15) as client:
            created = await client.create_topic(name, partitions=2, replication_factor=3)
            assert (await client.describe_topic(name)).topic_id == created.topic_id
            assert client._target == node.endpoint
            await client.delete_topics([name])


async def test_quorumctl_needs_only_a_broker(shared_cluster: Cluster) -> None:
    """-b is a broker's address; a follower tells what it has applied, and says that it is its own view."""
    await shared_cluster.online()
    broker = shared_cluster.brokers[101].endpoint
    made = await asyncio.to_thread(quorumctl, "-b", broker, "topics", "create", "by-a-broker")
    assert made.returncode == 0, made.stderr
    leader = await shared_cluster.leader()
    follower = next(node for node in shared_cluster.controllers.values() if node is not leader)

    async def seen() -> bool | None:
        local = await asyncio.to_thread(quorumctl, "-C", follower.endpoint, "--local", "topics", "list", "-o", "json")
        assert f"controller {follower.node_id} has applied" in local.stderr
        return True if "by-a-broker" in local.stdout else None

    await until(seen)
    gone = await asyncio.to_thread(quorumctl, "-b", broker, "topics", "delete", "by-a-broker")
    assert gone.returncode == 0, gone.stderr


async def test_a_change_outlives_the_leader_that_it_was_sent_to(cluster: Cluster) -> None:
    """kill -9 of the active controller under writes: every change is answered as done, and none as done before.

    A watch at that controller goes on at another one, and at the end at a broker: it shows every change once, in one order.
    """
    await cluster.online()
    created: dict[str, bytes] = {}
    killed, written = asyncio.Event(), asyncio.Event()
    leader = await cluster.leader()
    others = [node.endpoint for node in cluster.controllers.values() if node is not leader]
    watch = Follower(watch_pb2.WatchFilter(all_topics=True))
    watching = asyncio.ensure_future(watch.follow([leader.endpoint, *others], written.is_set))
    await watch.began.wait()

    async def write(writer: int) -> None:
        async with AdminClient([node.endpoint for node in cluster.controllers.values()], timeout_s=30) as client:
            after = 0
            while after < 10:
                name = f"topic-{writer}-{len(created)}-{after}"
                result = await client.create_topic(name, partitions=1, replication_factor=3)
                created[name] = result.topic_id
                after += killed.is_set()

    async def kill() -> None:
        async def enough() -> bool | None:
            return True if len(created) > 60 else None

        await until(enough, 60)
        cluster.dev.kill(leader.name)
        killed.set()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(kill())
        for writer in range(4):
            tasks.create_task(write(writer))
    assert {topic.name: topic.topic_id async for topic in cluster.client.topics()} == created
    written.set()
    await watching
    await cluster.client.create_topic("last", partitions=1, replication_factor=3)
    await watch.follow([cluster.brokers[101].endpoint], lambda: "last" in _topics_of(watch))
    assert watch.nodes[0] == leader.endpoint and watch.nodes[-2] in others and len(watch.nodes) >= 3
    assert sorted(_topics_of(watch)) == sorted([*created, "last"])
    assert watch.offsets == sorted(set(watch.offsets))
    assert not watch.resets


def _topics_of(watch: Follower) -> list[str]:
    """The topics that a watch has shown as created, each as often as it was shown."""
    return [event.record.topic for event in watch.events if event.record.type == "Topic"]
