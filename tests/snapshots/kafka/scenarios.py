"""The lives of four clusters of a real Apache Kafka. Together they write almost every kind of metadata record.

upgraded-3.7.2   formatted at metadata.version 3.4, upgraded to 3.7; small segments, so that the log starts above 0 at the end
voters-3.9.1     the voters are in the log (KIP-853): controllers are added and removed
elr-4.1.1        combined nodes, eligible leader replicas (KIP-966), delegation tokens
upgraded-4.2.0   formatted at 3.9 with fixed voters, upgraded to 4.2 and to kraft.version 1
"""

import asyncio
import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeAlias

from tests.snapshots.kafka.cluster import METADATA, KafkaCluster, brokers, combined, controllers, waiting

Life: TypeAlias = Callable[[Path], Coroutine[Any, Any, KafkaCluster]]

SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": 4_000, "metadata.max.idle.interval.ms": 2_000}
SCRAM = ("--add-scram", "SCRAM-SHA-256=[name=root,password=root-secret,iterations=4096]")


async def upgraded_3_7(directory: Path) -> KafkaCluster:
    sizes = {
        "metadata.log.segment.min.bytes": 6_000,
        "metadata.log.segment.bytes": 6_000,
        "metadata.max.retention.bytes": 20_000,
        "metadata.max.idle.interval.ms": 1_000,
    }
    async with KafkaCluster(directory, "3.7.2", combined(1, 2, 3), {**SNAPSHOTS, **sizes}, disks="a") as cluster:
        await cluster.format_all("--release-version", "3.4")
        cluster.start(*cluster.nodes)
        await cluster.until_up()
        await topics(cluster)
        for release in ("3.5", "3.6", "3.7"):
            await cluster.features("upgrade", "--metadata", release)
        await few_settings(cluster)
        await cluster.fail_over()
        await cluster.topics("--delete", "--topic", "bills")
        await until_log_starts_above_0(cluster)
    return cluster


async def voters_3_9(directory: Path) -> KafkaCluster:
    nodes = (*controllers(101, 102, 103), *brokers(1, 2, 3))
    async with KafkaCluster(directory, "3.9.1", nodes, SNAPSHOTS, dynamic=True) as cluster:
        await cluster.format(101, "--standalone", *SCRAM)
        await asyncio.gather(*(cluster.format(node_id, "--no-initial-controllers") for node_id in (102, 103, 1, 2, 3)))
        cluster.start(*cluster.nodes)
        await cluster.until_up()
        for node_id in (102, 103):
            await add_controller(cluster, node_id)
        await topics(cluster)
        await cluster.fail_over()
        await settings(cluster)
        directory_id = meta_property(cluster, 101, "directory.id")
        await cluster.quorum("remove-controller", "--controller-id", "101", "--controller-directory-id", directory_id)
        await cluster.until_led()
        await moves(cluster, 2)
        await removals(cluster)
        await add_controller(cluster, 101)
        await cluster.fail_over()
    return cluster


async def elr_4_1(directory: Path) -> KafkaCluster:
    nodes = combined(1, 2, 3)
    async with KafkaCluster(directory, "4.1.1", nodes, SNAPSHOTS, dynamic=True) as cluster:
        await cluster.format_all("--initial-controllers", cluster.initial_controllers(), *SCRAM)
        cluster.start(*cluster.nodes)
        await cluster.until_up()
        await topics(cluster)
        await cluster.features("upgrade", "--feature", "share.version=1")
        await settings(cluster)
        await tokens(cluster)
        await eligible_leaders(cluster)
        await cluster.fail_over()
        await moves(cluster, 3)
        await removals(cluster)
        await cluster.fail_over()
    return cluster


async def upgraded_4_2(directory: Path) -> KafkaCluster:
    nodes = (*controllers(101, 102, 103), *brokers(1, 2, 3))
    async with KafkaCluster(directory, "4.2.0", nodes, SNAPSHOTS) as cluster:
        await cluster.format_all("--release-version", "3.9-IV0")
        cluster.start(*cluster.nodes)
        await cluster.until_up()
        await topics(cluster)
        await cluster.features("upgrade", "--release-version", "4.0")
        await cluster.features("upgrade", "--release-version", "4.2")
        await cluster.features("upgrade", "--feature", "eligible.leader.replicas.version=1")
        await cluster.features("upgrade", "--feature", "kraft.version=1")
        await cluster.fail_over()
        await settings(cluster)
        await eligible_leaders(cluster)
        await removals(cluster)
        await unregister(cluster, 2)
    return cluster


SCENARIOS: dict[str, Life] = {
    "upgraded-3.7.2": upgraded_3_7,
    "voters-3.9.1": voters_3_9,
    "elr-4.1.1": elr_4_1,
    "upgraded-4.2.0": upgraded_4_2,
}


async def topics(cluster: KafkaCluster) -> None:
    create = ("--create", "--partitions", "3", "--replication-factor", "3", "--topic")
    await cluster.topics(*create, "orders", "--config", "min.insync.replicas=2", "--config", "retention.ms=86400000")
    await cluster.topics("--create", "--topic", "bills", "--replica-assignment", "1:2,2:3,3:1")
    await cluster.topics(*create, "short-lived")
    await cluster.topics("--alter", "--topic", "orders", "--partitions", "5")
    await cluster.topics("--delete", "--topic", "short-lived")
    await cluster.produce("orders")


async def few_settings(cluster: KafkaCluster) -> None:
    """One change of each kind."""
    alter, kind, name, add = cluster.configs, "--entity-type", "--entity-name", "--add-config"
    await alter("--alter", kind, "topics", name, "orders", add, "max.message.bytes=2000000,cleanup.policy=compact")
    await alter("--alter", kind, "users", name, "bob", add, "producer_byte_rate=1024,consumer_byte_rate=2048")
    await alter("--alter", kind, "users", name, "carol", add, "SCRAM-SHA-512=[password=carol-secret]")
    await cluster.acls("--add", "--allow-principal", "User:bob", "--operation", "Read", "--topic", "orders")


async def settings(cluster: KafkaCluster) -> None:
    """Configs, quotas, SCRAM users and ACLs: added, and some of them removed again."""
    alter = cluster.configs
    kind, name, add, drop = "--entity-type", "--entity-name", "--add-config", "--delete-config"
    await alter("--alter", kind, "topics", name, "orders", add, "max.message.bytes=2000000,cleanup.policy=compact")
    await alter("--alter", kind, "topics", name, "orders", drop, "cleanup.policy")
    await alter("--alter", kind, "brokers", name, "1", add, "log.cleaner.threads=2")
    await alter("--alter", kind, "brokers", "--entity-default", add, "background.threads=11,log.retention.ms=9000000")
    await alter("--alter", kind, "brokers", "--entity-default", drop, "background.threads")
    await alter("--alter", kind, "users", name, "bob", add, "producer_byte_rate=1024,consumer_byte_rate=2048")
    await alter(
        "--alter", kind, "users", "--entity-default", kind, "clients", name, "c\u00fcrl", add, "request_percentage=12.5"
    )
    await alter("--alter", kind, "users", name, "bob", drop, "consumer_byte_rate")
    await alter("--alter", kind, "ips", name, "127.0.0.9", add, "connection_creation_rate=50")
    await alter("--alter", kind, "users", name, "carol", add, "SCRAM-SHA-512=[password=carol-secret]")
    await alter("--alter", kind, "users", name, "dave", add, "SCRAM-SHA-256=[iterations=8192,password=dave-secret]")
    await alter("--alter", kind, "users", name, "dave", drop, "SCRAM-SHA-256")
    allow = ("--add", "--allow-principal", "User:bob")
    await cluster.acls(*allow, "--operation", "Read", "--operation", "Write", "--topic", "orders")
    await cluster.acls(*allow, "--operation", "Read", "--group", "g-", "--resource-pattern-type", "prefixed")
    await cluster.acls(
        "--add", "--deny-principal", "User:mallory", "--deny-host", "10.0.0.1", "--operation", "All", "--cluster"
    )
    await cluster.acls(
        "--remove", "--force", "--allow-principal", "User:bob", "--operation", "Write", "--topic", "orders"
    )


async def tokens(cluster: KafkaCluster) -> None:
    """Two delegation tokens; one is renewed, one expires at once."""
    create = ("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    await cluster.tokens(*create)
    found = re.search(r"(\S+={0,2})\s+User:", await cluster.tokens(*create))
    assert found is not None
    await cluster.tokens("--renew", "--renew-time-period", "3600000", "--hmac", found[1])
    await cluster.tokens("--expire", "--expiry-time-period", "-1", "--hmac", found[1])


async def moves(cluster: KafkaCluster, broker: int) -> None:
    """A broker is killed and started again, stopped in order and started again; then replicas move."""
    cluster.kill(broker)
    for _ in waiting(f"the ISRs still have broker {broker}"):
        output = await cluster.topics("--describe", "--topic", "orders")
        if not any(str(broker) in isr.split(",") for isr in re.findall(r"Isr: ([\d,]*)", output)):
            break
    cluster.start(broker)
    await cluster.until_up()
    await cluster.stop(broker)
    cluster.start(broker)
    await cluster.until_up()
    await cluster.reassign(
        {("orders", 0): [2, 1], ("orders", 1): [3, 2, 1], ("bills", 0): [3, 1], ("bills", 2): [2, 1]}
    )


async def removals(cluster: KafkaCluster) -> None:
    await cluster.topics("--delete", "--topic", "bills")
    await cluster.configs(
        "--alter", "--entity-type", "topics", "--entity-name", "orders", "--delete-config", "retention.ms"
    )
    await cluster.acls("--remove", "--force", "--group", "g-", "--resource-pattern-type", "prefixed")


async def eligible_leaders(cluster: KafkaCluster) -> None:
    """A topic whose ISR falls below min.insync.replicas, so that a replica becomes an eligible leader beside the ISR."""
    elr = ("--topic", "careful", "--partitions", "2", "--replication-factor", "3")
    await cluster.topics("--create", *elr, "--config", "min.insync.replicas=3")
    follower = next(node_id for node_id in (3, 2, 1) if node_id != cluster.active())
    cluster.kill(follower)
    for _ in waiting("no replica became an eligible leader"):
        if re.search(r"Elr: \d", await cluster.topics("--describe", "--topic", "careful")):
            break
    topic = ("--entity-type", "topics", "--entity-name", "careful")
    await cluster.configs("--alter", *topic, "--add-config", "min.insync.replicas=2")
    cluster.start(follower)
    await cluster.until_up()


async def unregister(cluster: KafkaCluster, broker: int) -> None:
    cluster.kill(broker)
    name = "org.apache.kafka.tools.ClusterTool"
    await cluster.tool(name, "unregister", "--bootstrap-server", cluster.bootstrap, "--id", str(broker))


async def add_controller(cluster: KafkaCluster, node_id: int) -> None:
    """Make a running controller a voter. It has to be an observer that has caught up, so the command is tried again."""
    words = ("--bootstrap-server", cluster.bootstrap, "--command-config", cluster.config(node_id), "add-controller")
    for _ in waiting(f"controller {node_id} did not become a voter"):
        await cluster.tool("org.apache.kafka.tools.MetadataQuorumCommand", *words, fails=True)
        status = await cluster.quorum("describe", "--replication")
        if re.search(rf"^{node_id}\s.*(Leader|Follower)\s*$", status, re.MULTILINE):
            return


def meta_property(cluster: KafkaCluster, node_id: int, name: str) -> str:
    found = re.search(
        rf"^{re.escape(name)}=(\S+)$", (cluster.data(node_id) / "meta.properties").read_text(), re.MULTILINE
    )
    assert found is not None
    return found[1]


async def until_log_starts_above_0(cluster: KafkaCluster) -> None:
    """Kafka deletes old snapshots and segments once a minute."""
    ids = [node.id for node in cluster.nodes.values() if node.is_controller]
    for _ in waiting("no log starts above 0"):
        if all(not (cluster.data(node_id) / METADATA / f"{0:020}.log").exists() for node_id in ids):
            return
        await asyncio.sleep(1)
