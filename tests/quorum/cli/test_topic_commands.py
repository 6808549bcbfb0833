"""The commands about topics, partitions and the cluster as a whole, as real processes against a served node."""

import pytest

from metadata_log.format.ids import NO_LEADER
from metadata_log.format.records import PartitionChange
from quorum.controller.protocol.decision import Decision
from quorum.controller.protocol.topic_commands import DeleteTopicsReply
from tests.quorum.cli.shapes import shape
from tests.quorum.cli.test_cluster_commands import Ran, Run, node, run
from tests.quorum.wire.fake_node import FakeNode

__all__ = ["node", "run"]  # fixtures

pytestmark = pytest.mark.slow


async def test_topics_are_altered(run: Run, node: FakeNode) -> None:
    """More partitions and other configs, with one result for each topic; a refused config keeps the partitions as they are."""
    assert (await run("topics", "create", "a", "b", "--replica-assignment", "0:1,1:2")).exit_code == 0
    assert [each.replicas for each in node.cluster.partitions("b")] == [(0, 1), (1, 2)]
    tried = await run("topics", "alter", "a", "--partitions", 3, "--dry-run", "-o", "json")
    assert tried.document["topics"][0]["result"] == "would be altered"
    altered = await run(
        "topics",
        "alter",
        "a",
        "--partitions",
        3,
        "--replica-assignment",
        "2:0",
        "--config",
        "retention.ms=5",
        "-o",
        "json",
    )
    assert (altered.exit_code, altered.document["topics"][0]["result"]) == (0, "altered")
    assert altered.document["offset"] == node.cluster.image.offset
    assert [each.replicas for each in node.cluster.partitions("a")][2:] == [(2, 0)]
    refused = await run("topics", "alter", "b", "--partitions", 9, "--config", "no.such=5", "-o", "json")
    assert (refused.exit_code, refused.document["topics"][0]["error"]) == (1, "INVALID_CONFIG")
    assert len(node.cluster.partitions("b")) == 2

    names = [row.split("\t")[0] for row in (await run("topics", "list", "--topics-with-overrides")).stdout.splitlines()]
    assert names == ["NAME", "a"]
    assert (await run("topics", "alter", "a", "--delete-config", "retention.ms")).exit_code == 0
    assert (await run("topics", "list", "--topics-with-overrides", "-o", "json")).document["topics"] == []
    node.cluster.contact(0, wants_fence=True)
    lacking = await run("topics", "list", "--under-replicated", "-o", "json")
    assert [each["name"] for each in lacking.document["topics"]] == ["a", "b"]
    assert (await run("topics", "list", "--unavailable", "-o", "json")).document["topics"] == []
    assert (await run("topics", "alter", "ghost", "--partitions", 2, "--if-exists")).exit_code == 0
    assert (await run("topics", "alter", "ghost", "--partitions", 2)).exit_code == 3
    for usage in (
        ("alter", "a"),
        ("alter", "a", "--replica-assignment", "1"),
        ("create", "c", "--replica-assignment", "1:x"),
    ):
        assert (await run("topics", *usage)).exit_code == 2


async def test_lists_show_the_past(run: Run, node: FakeNode) -> None:
    """On stderr the command says which state it shows, because nobody can see that from a table."""
    assert (await run("topics", "create", "a")).exit_code == 0
    node.images.append(node.cluster.image)
    assert (await run("topics", "create", "b")).exit_code == 0
    at = node.images[0].offset
    then = await run("topics", "list", "--at-offset", at, "-o", "json")
    assert [each["name"] for each in then.document["topics"]] == ["a"]
    assert f"this is the state at offset {at}" in then.stderr
    ago = await run("topics", "describe", "a", "--at-time", "1ms", "-o", "json")
    assert (ago.exit_code, ago.document["topics"][0]["name"]) == (0, "a")
    refused = await run("topics", "list", "--at-offset", at + 1000)
    assert refused.exit_code == 1 and "cannot be shown" in refused.stderr


async def test_the_cluster_is_described(run: Run, node: FakeNode) -> None:
    """Its id, its controllers, and what it has; the endpoints of brokers that are not online only on request."""
    node.cluster.create("orders", 2, 3)
    node.cluster.contact(2, wants_fence=True)
    described = await run("cluster", "describe", "-o", "json")
    assert described.exit_code == 0
    document = described.document
    assert (document["cluster_id"], document["topics"], document["partitions"]) == ("test-cluster", 1, 2)
    assert document["brokers"] == {"online": 2, "fenced": 1}
    assert [each["node_id"] for each in document["controllers"]] == [1, 2, 9]
    assert "Brokers: 1 fenced, 2 online" in (await run("cluster", "describe")).stdout

    def of_brokers(ran: Ran) -> list[int]:
        return [each["node_id"] for each in ran.document["endpoints"] if each["type"] == "broker"]

    listed = await run("cluster", "list-endpoints", "-o", "json")
    assert shape(listed.document["endpoints"][-1]) == {
        "node_id": "int", "type": "str", "listener": "str", "endpoint": "str", "rack": None, "state": "str",
    }  # fmt: skip
    assert of_brokers(listed) == [0, 1]
    assert of_brokers(await run("cluster", "list-endpoints", "--include-fenced-brokers", "-o", "json")) == [0, 1, 2]


async def test_partitions_that_lack_something_are_listed(run: Run, node: FakeNode) -> None:
    """The controllers filter; exit code 10 on request, and 3 for a broker or a topic that does not exist."""
    node.cluster.assign("t", (0,), (2,))
    node.cluster.assign("u", (2, 1))
    node.cluster.contact(2, wants_fence=True)
    found = await run("partitions", "list", "--unavailable", "--under-replicated", "-o", "json")
    first, second = found.document["partitions"]
    assert [(each["topic"], each["partition"], each["leader_id"]) for each in (first, second)] == [
        ("t", 1, None),
        ("u", 0, 1),
    ]
    assert shape(second) == {
        "topic": "str", "topic_id": "str", "partition": "int", "leader_id": "int", "leader_epoch": "int",
        "partition_epoch": "int", "replicas": ["int"], "isr": ["int"], "adding_replicas": [], "removing_replicas": [],
        "elr": [], "last_known_elr": [], "offline_replicas": ["int"], "leader_recovery_state": "str",
    }  # fmt: skip
    header, row = (await run("partitions", "list", "--unavailable")).stdout.splitlines()
    assert (
        dict(zip(header.split("\t"), row.split("\t"), strict=True)).items()
        >= {"TOPIC": "t", "LEADER": "-", "OFFLINE": "2"}.items()
    )
    some = await run("partitions", "list", "--limit", 2, "-o", "json")
    assert (len(some.document["partitions"]), some.document["has_more"]) == (2, True)
    assert some.stderr == "quorumctl: more than 2 partitions; the output has the first 2\n"
    assert (await run("partitions", "list", "--unavailable", "--expect-none")).exit_code == 10
    assert (await run("partitions", "list", "--unavailable", "--led-by", 1, "--expect-none")).exit_code == 0
    assert (await run("partitions", "list", "--broker", 77)).exit_code == 3
    assert (await run("partitions", "list", "--topic", "nobody")).exit_code == 3


async def test_eligible_leaders_have_columns_where_there_are_any(run: Run, node: FakeNode) -> None:
    """Kafka's columns Elr and LastKnownElr: who may lead a partition without a loss, and who led it last (KIP-966)."""
    node.cluster.assign("t", (0, 1))
    assert "ELR" not in (await run("partitions", "list")).stdout
    (partition,) = node.cluster.partitions("t")
    change = PartitionChange(partition.topic_id, 0, isr=(), leader=NO_LEADER, elr=(0, 1), last_known_elr=(0,))
    node.cluster.fold(Decision((change,), DeleteTopicsReply()))
    header, row = (await run("partitions", "list")).stdout.splitlines()
    shown = dict(zip(header.split("\t"), row.split("\t"), strict=True))
    assert (shown["ISR"], shown["ELR"], shown["LAST_KNOWN_ELR"]) == ("-", "0,1", "0")
    described = (await run("topics", "describe", "t", "-o", "json")).document["topics"][0]["partitions"][0]
    assert (described["elr"], described["last_known_elr"]) == ([0, 1], [0])


async def test_a_leader_that_was_elected_uncleanly_is_shown_until_it_has_recovered(run: Run, node: FakeNode) -> None:
    """Kafka's LeaderRecoveryState (KIP-704): a column where a partition is recovering, and a field everywhere."""
    node.cluster.assign("t", (0, 1), (1, 0))
    assert "RECOVERY" not in (await run("partitions", "list")).stdout
    change = PartitionChange(node.cluster.partitions("t")[0].topic_id, 0, isr=(1,), leader=1, leader_recovery_state=1)
    node.cluster.fold(Decision((change,), DeleteTopicsReply()))
    for command in (("partitions", "list"), ("topics", "describe", "t")):
        assert "LEADER_RECOVERY_STATE" in (await run(*command)).stdout
    listed = (await run("partitions", "list", "-o", "json")).document["partitions"]
    assert [each["leader_recovery_state"] for each in listed] == ["recovering", "recovered"]
