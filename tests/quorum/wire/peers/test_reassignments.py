"""Reassignments over real gRPC: a result for each partition, a list of what is in progress, one answer to a repeated request."""

import random
from typing import Any

import pytest
from quorum_rpc.v1 import admin_pb2

from metadata_log.format.errors import ErrorCode
from metaquorum import AdminClient, AdminError
from quorum.controller.controller import Controller
from quorum.controller.protocol.config import ControllerConfig
from quorum.wire.admin import AdminService
from tests.fuzz.network_targets import IDENTITY, busy
from tests.quorum.controller.partitions.test_reassignments import in_sync
from tests.quorum.runtime.lone_controller import LoneController
from tests.quorum.wire.calling import call
from tests.quorum.wire.fake_node import FakeNode
from tests.quorum.wire.good_requests import good_requests


async def test_a_partition_moves_and_is_listed_meanwhile(client: AdminClient, node: FakeNode) -> None:
    """Begun, listed with its ISR, shown by the topic's description, and gone from the list when the new replica is in sync."""
    node.cluster.assign("t", (0, 1), (1, 2))
    response = await client.alter_partition_reassignments({("t", 0): (2, 1), ("t", 7): (0,), ("nobody", 0): None})

    begun, *others = response.results
    assert (begun.topic, begun.partition, begun.error.code) == ("t", 0, 0)
    assert (list(begun.adding_replicas), list(begun.removing_replicas)) == ([2], [0])
    assert [ErrorCode.of(each.error.code) for each in others] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    assert response.offset == node.cluster.image.offset
    assert node.identities[-1] is not None

    (listed,) = [each async for each in client.reassignments()]
    assert (listed.topic, listed.partition, list(listed.replicas), list(listed.isr)) == ("t", 0, [2, 1, 0], [0, 1])
    described = (await client.describe_topic("t")).partitions[0]
    assert (list(described.adding_replicas), list(described.removing_replicas)) == ([2], [0])

    in_sync(node.cluster, 0, 1, 2)
    assert [each async for each in client.reassignments()] == []


async def test_a_reassignment_is_cancelled_by_no_target(client: AdminClient, node: FakeNode) -> None:
    """An empty target is another thing: no partition can have no replicas."""
    node.cluster.assign("t", (0, 1))
    await client.alter_partition_reassignments({("t", 0): (2,)})
    for target, error in (((), ErrorCode.INVALID_REPLICA_ASSIGNMENT), (None, 0)):
        (result,) = (await client.alter_partition_reassignments({("t", 0): target})).results
        assert result.error.code == error
    assert set(node.cluster.partitions("t")[0].replicas) == {0, 1}


async def test_a_dry_run_says_what_would_be_done(client: AdminClient, node: FakeNode) -> None:
    """With what would be added and removed; and the flag against another replication factor is heard."""
    node.cluster.assign("t", (0, 1))
    before = node.cluster.image.offset
    (result,) = (await client.alter_partition_reassignments({("t", 0): (2,)}, validate_only=True)).results
    assert (list(result.adding_replicas), list(result.removing_replicas)) == ([2], [0, 1])
    refused = await client.alter_partition_reassignments({("t", 0): (2,)}, allow_replication_factor_change=False)
    assert ErrorCode.of(refused.results[0].error.code) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert node.cluster.image.offset == before


async def test_moves_beyond_the_bound_are_refused_one_by_one(client: AdminClient, node: FakeNode) -> None:
    """The client asks again for the others when some are in sync."""
    node.cluster.controller = Controller(ControllerConfig(reassignment_moves_per_broker_max=1), random.Random(1))
    node.cluster.controller.activate(node.cluster.image, node.cluster.now_ms)
    node.cluster.assign("t", (0, 1), (0, 1))
    response = await client.alter_partition_reassignments({("t", 0): (0, 2), ("t", 1): (0, 2)})
    assert [each.error.code for each in response.results] == [0, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    assert "broker 2 is getting 1 replicas already" in response.results[1].error.message


async def test_an_answer_for_10_000_partitions_arrives(client: AdminClient) -> None:
    """Whatever the topic is called: also with the longest name, all results fit into a message."""
    response = await client.alter_partition_reassignments({("x" * 249, number): (1,) for number in range(10_000)})
    assert len(response.results) == 10_000


async def test_a_name_that_no_topic_can_have_is_refused_once(client: AdminClient) -> None:
    """The results repeat the name for each partition."""
    with pytest.raises(AdminError, match=r"has 20000 characters.*nothing was done"):
        await client.alter_partition_reassignments({("x" * 20_000, 0): (1,)})


def test_a_repeated_request_has_its_first_answer() -> None:
    """Without its id the same request finds the reassignment in progress, and needs no record."""
    lone = busy()
    admin = AdminService(LoneController(lone), IDENTITY)
    request: Any = admin_pb2.AlterPartitionReassignmentsRequest()
    request.CopyFrom(good_requests()["AdminService.AlterPartitionReassignments"])
    request.context.request_id = bytes([8]) * 16
    request.context.client_high_watermark = lone.node.state.committed.offset

    first = call(admin, "AlterPartitionReassignments", request)
    end = lone.node.log.shape.end
    assert [(each.topic, each.error.code) for each in first.results] == [("moved", 0)]
    assert call(admin, "AlterPartitionReassignments", request) == first
    assert lone.node.log.shape.end == end
