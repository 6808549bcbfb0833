"""`quorumctl brokers describe` and `partitions list` show log directories, and the replicas in failed ones."""

import pytest

from metadata_log.format.ids import LOST_DIRECTORY, uuid_text
from quorum.controller.protocol.directory_commands import AssignReplicasToDirs, DirectoryAssignment
from tests.quorum.cli.brokers.test_broker_changes import node as node  # the fixture
from tests.quorum.cli.brokers.test_broker_changes import run as run  # the fixture
from tests.quorum.cli.test_cluster_commands import Run
from tests.quorum.wire.fake_node import FakeNode

pytestmark = pytest.mark.slow


async def test_a_broker_shows_its_directories_and_the_lost_replicas(node: FakeNode, run: Run) -> None:
    """Broker 0 has one directory online, and one replica that was in a failed one."""
    node.cluster.assign("lost", (0, 1), (1, 0))
    broker = node.cluster.image.brokers[0]
    topic_id = node.cluster.partitions("lost")[0].topic_id
    wanted = (DirectoryAssignment(topic_id, 0, LOST_DIRECTORY), DirectoryAssignment(topic_id, 1, broker.log_dirs[0]))
    node.cluster.run(AssignReplicasToDirs(0, broker.broker_epoch, wanted))

    (described,) = (await run("brokers", "describe", 0, "-o", "json")).document["brokers"]
    directory = uuid_text(broker.log_dirs[0])
    assert described["log_dirs"] == [
        {"directory_id": directory, "is_online": True, "replicas": 1},
        {"directory_id": uuid_text(LOST_DIRECTORY), "is_online": False, "replicas": 1},
    ]
    lines = (await run("brokers", "describe", 0)).stdout.splitlines()
    assert f"  directory    {directory} online, 1 replicas assigned" in lines
    text = "  directory    offline, 1 replicas that were in a failed directory before the broker could say which one"
    assert text in lines

    listed = (await run("partitions", "list", "--offline-replicas", "-o", "json")).document["partitions"]
    assert [(each["topic"], each["partition"], each["offline_replicas"]) for each in listed] == [("lost", 0, [0])]
