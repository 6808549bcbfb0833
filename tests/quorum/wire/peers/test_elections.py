"""ElectLeaders over real gRPC, alone and in a stream of changes, and against a node that remembers what it has done."""

from typing import Any

import pytest
from quorum_rpc.v1 import admin_pb2

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NO_LEADER
from metaquorum import AdminClient, AdminError
from quorum.wire.admin import AdminService
from tests.fuzz.network_targets import IDENTITY, busy
from tests.quorum.controller.cluster import Cluster
from tests.quorum.controller.test_elections import back_in_sync
from tests.quorum.runtime.lone_controller import LoneController
from tests.quorum.wire.calling import call
from tests.quorum.wire.fake_node import FakeNode
from tests.quorum.wire.good_requests import good_requests


def moved(cluster: Cluster, name: str, partitions: int) -> None:
    """Each partition prefers broker 0, is led by 1, and has all of its replicas in sync."""
    cluster.assign(name, *[(0, 1, 2)] * partitions)
    cluster.contact(0, wants_fence=True)
    cluster.contact(0)
    back_in_sync(cluster, name)
    assert set(cluster.leaders(name)) == {1}


async def test_leaders_are_elected_with_a_result_for_each(client: AdminClient, node: FakeNode) -> None:
    """In the order asked; who leads now, or why not. The request has an id, as every change."""
    moved(node.cluster, "t", 2)
    response = await client.elect_leaders({"t": [1, 7], "nobody": [0]})

    assert [(each.topic, each.partition, each.error.code) for each in response.results] == [
        ("t", 1, 0),
        ("t", 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("nobody", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert response.results[0].leader_id == 0
    assert not response.results[1].HasField("leader_id")
    assert response.offset == node.cluster.image.offset
    assert node.cluster.leaders("t") == [1, 0]
    assert node.identities[-1] is not None


async def test_an_answer_for_10_000_partitions_arrives(client: AdminClient) -> None:
    """Whatever the topic is called: also with the longest name, all results fit into a message."""
    response = await client.elect_leaders({"x" * 249: range(10_000)})
    assert len(response.results) == 10_000


async def test_a_name_that_no_topic_can_have_is_refused_once(client: AdminClient) -> None:
    """The results repeat the name for each partition: a request of 50 kB would have an answer of 200 MB."""
    with pytest.raises(AdminError, match=r"has 20000 characters.*nothing was done") as refused:
        await client.elect_leaders({"x" * 20_000: range(10_000)})
    assert refused.value.code is ErrorCode.INVALID_REQUEST


async def test_leaders_are_elected_in_a_stream_of_changes(client: AdminClient, node: FakeNode) -> None:
    moved(node.cluster, "t", 1)
    request = admin_pb2.ElectLeadersRequest(topics=[admin_pb2.TopicPartitions(topic="t", partitions=[0])])
    async with await client.submit() as stream:
        response = await (await stream.send(elect_leaders=request))

    assert [each.leader_id for each in response.results] == [0]
    assert node.cluster.leaders("t") == [0]


async def test_another_kind_of_election_is_refused(client: AdminClient, node: FakeNode) -> None:
    """Kafka may know more types one day; this release does not guess what they mean."""
    moved(node.cluster, "t", 1)
    topics = [admin_pb2.TopicPartitions(topic="t", partitions=[0])]
    request: Any = admin_pb2.ElectLeadersRequest(topics=topics)
    request.election_type = 3
    with pytest.raises(AdminError, match=r"election type 3: this release knows .*; nothing was done") as refused:
        await client.call(request, admin_pb2.ElectLeadersResponse)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert node.cluster.leaders("t") == [1]


async def test_a_given_broker_is_elected(client: AdminClient, node: FakeNode) -> None:
    """Broker 1 is in sync. The preferred broker 0 leads, and the operator wants it to have less to do."""
    node.cluster.assign("t", (0, 1))
    designated = admin_pb2.ElectLeadersRequest.DESIGNATED
    response = await client.elect_leaders({"t": [0]}, designated, leader_id=1)
    assert [each.leader_id for each in response.results] == [1]
    assert node.cluster.leaders("t") == [1]

    with pytest.raises(AdminError, match="DESIGNATED needs leader_id"):
        await client.elect_leaders({"t": [0]}, designated)


async def test_a_partition_without_a_leader_gets_one_that_may_lack_records(client: AdminClient, node: FakeNode) -> None:
    """The operator has seen that the last replica in sync is lost."""
    node.cluster.assign("t", (0, 1))
    node.cluster.contact(1, wants_fence=True)
    node.cluster.contact(0, wants_fence=True)
    node.cluster.contact(1)
    assert node.cluster.leaders("t") == [NO_LEADER]
    response = await client.elect_leaders({"t": [0]}, admin_pb2.ElectLeadersRequest.UNCLEAN)
    assert [each.leader_id for each in response.results] == [1]
    assert node.cluster.partitions("t")[0].isr == (1,)


def test_a_repeated_request_has_its_first_answer() -> None:
    """A client that missed the answer asks again: what it is told is what was done, and not that nothing is needed.

    Without its id the same request finds the preferred replica leading.
    """
    lone = busy()
    admin = AdminService(LoneController(lone), IDENTITY)
    request: Any = admin_pb2.ElectLeadersRequest()
    request.CopyFrom(good_requests()["AdminService.ElectLeaders"])
    request.context.request_id = bytes([7]) * 16
    request.context.client_high_watermark = lone.node.state.committed.offset

    first = call(admin, "ElectLeaders", request)
    end = lone.node.log.shape.end
    assert [(each.topic, each.leader_id) for each in first.results] == [("moved", 1)]
    assert call(admin, "ElectLeaders", request) == first
    assert lone.node.log.shape.end == end

    request.context.ClearField("request_id")
    (result,) = call(admin, "ElectLeaders", request).results
    assert result.error.code == ErrorCode.ELECTION_NOT_NEEDED
