"""Bad input over real gRPC: a clear error that names the limit, nothing lost, every daemon alive."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from quorum_rpc.v1 import admin_pb2

from metaquorum import AdminClient, AdminError, ErrorCode
from tests.processes.conftest import Cluster

pytestmark = [pytest.mark.processes, pytest.mark.slow]

LONG_NAME = "n" * 250


@pytest_asyncio.fixture
async def cluster(shared_cluster: Cluster) -> AsyncIterator[Cluster]:
    """After whatever was sent: the same topics as before, all daemons alive, and a good request succeeds."""
    before = await shared_cluster.topic_names()
    yield shared_cluster
    shared_cluster.assert_alive()
    assert await shared_cluster.topic_names() == before
    await shared_cluster.client.create_topic("good", partitions=3, replication_factor=3)
    assert (await shared_cluster.client.describe_topic("good")).partition_count == 3
    (deleted,) = (await shared_cluster.client.delete_topics(["good"])).results
    assert deleted.error.code == 0


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "is empty: 1 to 249 characters are allowed"),
        (".", "is not allowed"),
        ("..", "is not allowed"),
        ("a b", "has the character ' ': only A-Z, a-z, 0-9, '.', '_' and '-' are allowed"),
        ("käse", "has the character 'ä'"),
        ("a/b", "has the character '/'"),
        (LONG_NAME, "has 250 characters: at most 249 are allowed"),
        ("__cluster_metadata", "is the name of the metadata log itself"),
    ],
)
async def test_bad_topic_names(cluster: Cluster, name: str, says: str) -> None:
    with pytest.raises(AdminError, match="topic name") as refused:
        await cluster.client.create_topic(name, partitions=1, replication_factor=1)
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert says in refused.value.message


@pytest.mark.parametrize("partitions", [0, -2, -(1 << 31)])
async def test_impossible_partition_counts(cluster: Cluster, partitions: int) -> None:
    with pytest.raises(AdminError, match="it must be at least 1") as refused:
        await cluster.client.create_topic("orders", partitions=partitions, replication_factor=1)
    assert refused.value.code is ErrorCode.INVALID_PARTITIONS


async def test_too_many_partitions_in_one_request(cluster: Cluster) -> None:
    """2,000,000 in one topic, or in two: the text names the limit, and neither topic is created."""
    halves = [admin_pb2.NewTopic(name=f"half-{i}", partitions=1_000_000, replication_factor=1) for i in (1, 2)]
    whole = [admin_pb2.NewTopic(name="whole", partitions=2_000_000, replication_factor=1)]
    for topics in (halves, whole):
        with pytest.raises(AdminError, match="asks for 2,000,000 partitions; at most 1,000,000 are allowed") as refused:
            await cluster.client.create_topics(topics)
        assert refused.value.code is ErrorCode.POLICY_VIOLATION


async def test_more_replicas_than_brokers(cluster: Cluster) -> None:
    with pytest.raises(AdminError, match="replication factor is 4, but only 3 brokers are registered") as refused:
        await cluster.client.create_topic("orders", partitions=1, replication_factor=4)
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


async def test_an_unknown_broker(cluster: Cluster) -> None:
    """In an assignment, and where a broker itself is meant."""
    topic = admin_pb2.NewTopic(
        name="orders", partitions=-1, replication_factor=-1, assignment=[admin_pb2.ReplicaList(broker_ids=[101, 999])]
    )
    (result,) = (await cluster.client.create_topics([topic])).results
    assert ErrorCode(result.error.code) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "names broker 999, which is not registered" in result.error.message
    with pytest.raises(AdminError, match="broker 999 is not registered") as refused:
        await cluster.client.fence_broker(999)
    assert refused.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


async def test_a_request_of_five_mebibytes(cluster: Cluster) -> None:
    """Never taken in; the text says how large it is and what to do."""
    value = "x" * (5 << 20)
    with pytest.raises(AdminError, match="send it in smaller parts") as refused:
        await cluster.client.create_topic("orders", 1, 1, configs={"retention.ms": value})
    assert refused.value.code is ErrorCode.RECORD_BATCH_TOO_LARGE
    assert "5,242," in refused.value.message


async def test_unknown_and_impossible_configs(cluster: Cluster) -> None:
    for configs in ({"retention.msec": "1"}, {"retention.ms": "soon"}):
        with pytest.raises(AdminError, match="retention") as refused:
            await cluster.client.create_topic("orders", 1, 1, configs=configs)
        assert refused.value.code is ErrorCode.INVALID_CONFIG


async def test_a_client_of_another_cluster(cluster: Cluster) -> None:
    async with AdminClient([cluster.dev.layout.controllers[0].endpoint], "another-cluster-entirely") as stranger:
        with pytest.raises(AdminError, match="another-cluster-entirely") as refused:
            await stranger.create_topic("orders", 1, 1)
    assert refused.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("topics", "create", "a b"), 1, "has the character ' '"),
        (("topics", "create", "orders", "--partitions", "0"), 2, "0 is not in the range 1<=x<="),
        (("topics", "create", "orders", "--partitions", "2000000"), 1, "at most 1,000,000"),
        (("topics", "create", "orders", "--replication-factor", "9"), 1, "only 3 brokers are registered"),
        (("topics", "describe", "nowhere"), 3, "nowhere"),
        (("topics", "delete", "nowhere"), 3, "nowhere"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else None,
)
async def test_the_same_by_quorumctl(cluster: Cluster, words: tuple[str, ...], code: int, says: str) -> None:
    """The same text, for each topic where there are several, and an exit code that a script can tell apart."""
    refused = await cluster.quorumctl(*words)
    assert refused.returncode == code, refused
    assert says in refused.stdout + refused.stderr
    assert "Traceback" not in refused.stderr
