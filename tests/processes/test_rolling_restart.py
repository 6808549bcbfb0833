"""The runbook's rolling restart, on a cluster as `quorumctl dev up` makes it: brokers that have no data plane."""

import signal
from collections import Counter

import pytest
from quorum_rpc.v1 import admin_pb2

from tests.processes.conftest import Cluster

pytestmark = [pytest.mark.processes, pytest.mark.slow]

PARTITIONS = 60


async def partitions_of(cluster: Cluster) -> list[admin_pb2.PartitionDescription]:
    return list((await cluster.client.describe_topic("orders")).partitions)


async def test_brokers_restarted_in_turn_strand_no_leadership(cluster: Cluster) -> None:
    """Three brokers, one after the other; at once after `--expect-online` the next one is stopped. No ISR stays short, and a
    preferred election gives each broker back what it led. Without proposals one broker leads all, from ISRs of one."""
    await cluster.client.create_topic("orders", partitions=PARTITIONS, replication_factor=3)
    before = {each.partition: each.leader_id for each in await partitions_of(cluster)}
    assert set(Counter(before.values())) == {101, 102, 103}
    assert {each.data_plane for each in (await cluster.client.list_brokers()).brokers} == {"none"}

    for broker in cluster.brokers.values():
        assert await cluster.ends(broker, signal.SIGTERM) == 0
        cluster.dev.start(broker.name)
        await cluster.online(broker.node_id)
        assert all(each.HasField("leader_id") for each in await partitions_of(cluster)), "none is without a leader"
    healthy = await cluster.quorumctl("health", "--exit-when-healthy", "--timeout", "20")
    assert healthy.returncode == 0, healthy
    assert "3 of 3 brokers run without a data plane" in healthy.stdout
    assert all(set(each.isr) == set(each.replicas) for each in await partitions_of(cluster))

    elected = await cluster.quorumctl("leaders", "elect", "--election-type", "preferred", "--all-topic-partitions")
    assert elected.returncode == 0, elected
    assert {each.partition: each.leader_id for each in await partitions_of(cluster)} == before
    again = await cluster.quorumctl("leaders", "elect", "--all-topic-partitions")
    assert again.stdout.splitlines()[0] == f"Elected: 0. Not needed: {PARTITIONS}. Failed: 0."
