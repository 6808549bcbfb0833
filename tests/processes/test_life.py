"""Nodes die, are stopped, and come back; what was acknowledged stays."""

import asyncio
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import grpc
import pytest
from quorum_rpc.v1 import admin_pb2, admin_pb2_grpc, broker_pb2

from metaquorum import AdminError, MayHaveHappened
from service_kit.rpc.refusals import Refusal
from tests.processes.conftest import Cluster, running, said, until

pytestmark = [pytest.mark.processes, pytest.mark.slow]


async def test_no_acknowledged_topic_is_lost_with_the_active_controller(cluster: Cluster) -> None:
    """kill -9 of the active controller under writes: whatever had an answer is there, and writing goes on."""
    acknowledged: set[str] = set()
    attempted: set[str] = set()
    killed = asyncio.Event()
    after_kill = 0

    async def write(writer: int) -> None:
        nonlocal after_kill
        async with cluster.dev.client() as client:
            for number in range(10_000):
                name = f"topic-{writer}-{number}"
                attempted.add(name)
                try:
                    await client.create_topic(name, partitions=3, replication_factor=3)
                except MayHaveHappened:
                    continue
                acknowledged.add(name)
                after_kill += killed.is_set()
                if after_kill > 40:
                    return

    async def kill() -> None:
        async def enough() -> bool | None:
            return True if len(acknowledged) > 100 else None

        await until(enough)
        cluster.dev.kill((await cluster.leader()).name)
        killed.set()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(kill())
        for writer in range(4):
            tasks.create_task(write(writer))
    names = await cluster.topic_names()
    assert acknowledged <= names, sorted(acknowledged - names)
    assert names <= attempted


async def test_a_silent_broker_is_fenced_and_leads_nothing(cluster: Cluster) -> None:
    """SIGSTOP of a broker: when its session is over, others lead, and it is in sync nowhere. Why is in the log of the
    controller that fenced it, and in the record: so the next controller tells it, too."""
    await cluster.client.create_topic("orders", partitions=30, replication_factor=3)
    cluster.dev.kill("broker-102", signal.SIGSTOP)

    await cluster.in_state(102, "fenced")
    partitions = (await cluster.client.describe_topic("orders")).partitions
    assert {each.leader_id for each in partitions} == {101, 103}
    assert all(102 not in each.isr and 102 in each.replicas for each in partitions)

    leader = await cluster.leader()
    (fenced,) = [line for line in said(leader) if line["event"] == "broker fenced"]
    assert (fenced["broker_id"], fenced["why"]) == (102, "session_ended") and fenced["silent_ms"] >= 2_000
    (moved,) = [line for line in said(leader) if line["event"] == "replicas moved" and line["broker_id"] == 102]
    assert moved["isr_changed"] == 30 and moved["leaders_moved"] > 0 == moved["without_leader"]
    cluster.dev.kill(leader.name)
    await until(cluster.leader)
    described = await cluster.quorumctl("brokers", "describe", "102")
    assert "state        fenced" in described.stdout and "why          session_ended" in described.stdout, described


async def test_a_killed_broker_comes_back_with_its_own_copy(cluster: Cluster) -> None:
    """It supersedes its dead predecessor before the session is over, from its own disk, and is in sync again."""
    await cluster.client.create_topic("orders", partitions=6, replication_factor=3)
    broker = cluster.brokers[101]
    await cluster.ends(broker)
    cluster.dev.start(broker.name)

    async def registered_again() -> bool | None:
        epochs = [line["broker_epoch"] for line in said(broker) if line.get("state") == "online"]
        return True if len(epochs) == 2 and epochs[1] > epochs[0] else None

    await until(registered_again)
    recovered = [line["offset"] for line in said(broker) if line["event"] == "store recovered"]
    assert recovered[1] > 0

    async def in_sync_again() -> bool | None:
        partitions = (await cluster.client.describe_topic("orders")).partitions
        return True if all(set(each.isr) == set(each.replicas) for each in partitions) else None

    await until(in_sync_again)


async def test_sigint_makes_a_broker_leave_in_order(cluster: Cluster) -> None:
    """Stopping, its leaders moved, Offline, exit code 0; and the partitions never were without a leader."""
    await cluster.client.create_topic("orders", partitions=30, replication_factor=3)
    broker = cluster.brokers[103]

    assert await cluster.ends(broker, signal.SIGINT) == 0
    states = [line["state"] for line in said(broker) if line["event"] == "broker state"]
    assert states == ["fenced", "online", "stopping", "offline"]
    partitions = (await cluster.client.describe_topic("orders")).partitions
    assert {each.leader_id for each in partitions} == {101, 102}
    assert (await cluster.states())[103] == "offline"


async def _all_are_fenced(cluster: Cluster) -> bool | None:
    listed = await cluster.client.list_brokers()
    return True if all(each.state == broker_pb2.FENCED for each in listed.brokers) else None


async def test_restarted_from_disk_everything_is_as_it_was(cluster: Cluster) -> None:
    """All brokers are killed, then all controllers: topics, ids, configs, digest and offsets come back from the disks."""
    await cluster.client.create_topic(
        "orders", partitions=7, replication_factor=3, configs={"retention.ms": "86400000"}
    )
    for broker in cluster.brokers.values():
        await cluster.ends(broker)
    await until(lambda: _all_are_fenced(cluster))  # a death is a record too, and must not come between the two looks
    before = await cluster.client.describe_topic("orders")
    quorum = await cluster.client.describe_quorum((await cluster.leader()).endpoint)
    for node in cluster.controllers.values():
        await cluster.ends(node)
    for node in cluster.controllers.values():
        cluster.dev.start(node.name)

    for node in cluster.controllers.values():

        async def caught_up(endpoint: str = node.endpoint) -> bool | None:
            now = await cluster.client.describe_quorum(endpoint)
            return True if now.digest == quorum.digest and now.applied_offset >= quorum.applied_offset else None

        await until(caught_up)
    after = await cluster.client.describe_topic("orders")
    assert after.topic_id == before.topic_id
    assert [each.replicas for each in after.partitions] == [each.replicas for each in before.partitions]
    assert list(after.configs) == list(before.configs)


async def test_without_a_leader_there_is_a_clear_error(cluster: Cluster) -> None:
    """Two of three controllers stopped: exit code 5 and what to look at; with one back, all goes on."""
    for node_id in (1, 2):
        assert await cluster.ends(cluster.controllers[node_id], signal.SIGTERM) == 0

    async def leaderless() -> bool | None:
        """Until the last one has noticed, it answers "may have happened": that is another case."""
        status = await cluster.client.describe_quorum(cluster.controllers[3].endpoint)
        return True if status.role != "leader" else None

    await until(leaderless)
    refused = await cluster.quorumctl("--timeout", "2", "topics", "create", "orders")
    assert refused.returncode == 5, refused
    assert "no active controller answered within 2 s" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1

    cluster.dev.start("controller-1")

    async def created() -> bool | None:
        try:
            await cluster.client.create_topic("orders", partitions=1, replication_factor=3)
        except AdminError as e:
            if isinstance(e, MayHaveHappened):
                return None
            raise
        return True

    await until(created)
    assert cluster.dev.pid("controller-3") is not None


async def test_a_controller_that_leaves_refuses_cleanly_what_it_hands_on(tmp_path: Path) -> None:
    """SIGTERM on a follower under load: each call gets an answer that says what became of it, or finds no connection, and its
    client goes elsewhere. None ends with UNKNOWN or is cut off, and the follower's log has no traceback."""
    ended: Counter[str] = Counter()

    async def ask(stub: Any) -> None:
        while True:
            try:
                await stub.DeleteTopics(admin_pb2.DeleteTopicsRequest(names=["nowhere"]), timeout=10)
            except grpc.aio.AioRpcError as e:
                refusal = Refusal.of(e)
                ended[e.code().name if refusal is None else refusal.reason] += 1
                return
            ended["NONE"] += 1

    async with running(tmp_path / "cluster", brokers=0) as cluster:
        leader = await cluster.leader()
        follower = next(node for node in cluster.controllers.values() if node is not leader)
        async with grpc.aio.insecure_channel(follower.endpoint) as channel:
            stub = admin_pb2_grpc.AdminServiceStub(channel)  # type: ignore[no-untyped-call]
            asking = [asyncio.ensure_future(ask(stub)) for _ in range(50)]

            async def enough() -> bool | None:
                return True if ended["NONE"] > 200 else None

            await until(enough)
            assert await cluster.ends(follower, signal.SIGTERM) == 0
            await asyncio.gather(*asking)
        text = follower.log_path.read_text()
    assert "Traceback" not in text, text[-5_000:]
    assert ended.keys() <= {"NONE", "NOT_CONTROLLER", "BROKER_NOT_AVAILABLE", "REQUEST_TIMED_OUT", "UNAVAILABLE"}, ended
