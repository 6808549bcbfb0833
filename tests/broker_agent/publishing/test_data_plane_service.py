"""The service for a data plane in another process, over real gRPC: the same assignments, and a lease that counts from asking."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
import pytest
from quorum_rpc.v1 import data_plane_pb2, data_plane_pb2_grpc

from broker_agent.config import load
from broker_agent.publishing.data_plane_service import DataPlane
from metadata_log.format.ids import NO_LEADER
from metadata_log.format.records import Partition, PartitionChange, RemoveTopic, Topic
from service_kit.process.config import ConfigErrors
from service_kit.process.endpoints import HostPort
from service_kit.rpc.dial import Dialer
from service_kit.rpc.server import serving
from tests.broker_agent.publishing.test_assignment_feed import ORDERS, Broker, orders


class Leased:
    """A broker whose lease ends at 9,000 ms."""

    broker_epoch: int | None = 40
    lease_until_ms = 9_000

    def may_serve(self) -> bool:
        return self.broker_epoch is not None


@asynccontextmanager
async def serving_to(me: Broker, broker: Leased | None = None) -> AsyncIterator[Any]:
    """A data plane's stub for the service of this broker, whose clock shows 5,000 ms."""
    service = DataPlane(broker or Leased(), me.feed, lambda: 5_000)

    def add(server: Any) -> None:
        data_plane_pb2_grpc.add_DataPlaneServiceServicer_to_server(service, server)  # type: ignore[no-untyped-call]

    async with serving(HostPort("127.0.0.1", 0), add, grace_s=0) as port, Dialer() as dialer:
        yield data_plane_pb2_grpc.DataPlaneServiceStub(dialer(f"127.0.0.1:{port}"))  # type: ignore[no-untyped-call]


def drawn(response: data_plane_pb2.WatchAssignmentsResponse) -> str:
    if response.HasField("whole_set"):
        return f"{response.whole_set.replica_count} replicas"
    it = response.assignment
    leader = it.leader_id if it.HasField("leader_id") else None
    return f"{data_plane_pb2.ReplicaRole.Name(it.role)} {it.topic}-{it.partition} {leader}"


async def test_a_process_in_another_language_gets_the_same_assignments() -> None:
    """It breaks off, and goes on from its point; the stream ends when the broker has left."""
    me = Broker()
    await me.write(
        Topic("orders", ORDERS), Partition(ORDERS, 0, (1, 2), (2,), (), (), 2, 1, 3, 5, (b"1" * 16, b"2" * 16))
    )
    async with serving_to(me) as stub:
        watching = stub.WatchAssignments(data_plane_pb2.WatchAssignmentsRequest())
        whole, follow = await watching.read(), await watching.read()
        assert (drawn(whole), drawn(follow)) == ("1 replicas", "FOLLOW orders-0 2")
        assert not whole.HasField("resume_point")
        kept = follow.resume_point
        assert follow.assignment == data_plane_pb2.Assignment(
            role=data_plane_pb2.FOLLOW, topic_id=ORDERS, topic="orders", partition=0, leader_id=2, leader_epoch=3,
            partition_epoch=5, replicas=[1, 2], isr=[2], directory_id=b"1" * 16, is_recovering=True, offset=2,
        )  # fmt: skip
        watching.cancel()

        await me.write(*(Partition(ORDERS, number, (1,), (1,), (), (), 1, 0, 0, 0) for number in (1, 2)))
        await me.write(PartitionChange(ORDERS, 1, leader=NO_LEADER))
        again = stub.WatchAssignments(data_plane_pb2.WatchAssignmentsRequest(since=kept))
        assert [drawn(await again.read()) for _ in range(2)] == ["LEAD orders-2 1", "STOP orders-1 None"]
        await me.write(RemoveTopic("orders", ORDERS))
        assert [drawn(await again.read()) for _ in range(3)] == [
            "DELETE orders-0 2",
            "DELETE orders-1 None",
            "DELETE orders-2 1",
        ]
        me.feed.end()
        assert await again.read() is grpc.aio.EOF


async def test_a_large_set_needs_no_large_message() -> None:
    me = Broker()
    await me.write(Topic("orders", ORDERS), *orders(600))
    me.feed.end()
    async with serving_to(me) as stub:
        sent = [each async for each in stub.WatchAssignments(data_plane_pb2.WatchAssignmentsRequest())]
    assert sent[0].whole_set.replica_count == 600 == len(sent) - 1
    assert max(each.ByteSize() for each in sent) < 200
    assert sent[-1].resume_point == data_plane_pb2.ResumePoint(generation=1, offset=601)


async def test_the_lease_is_told_as_what_is_left_of_it() -> None:
    """A data plane has a clock of its own, so it counts from before its question."""
    broker = Leased()
    async with serving_to(Broker(), broker) as stub:
        held = await stub.Lease(data_plane_pb2.LeaseRequest(), timeout=5)
        assert held == data_plane_pb2.LeaseResponse(may_serve=True, remaining_ms=4_000, broker_epoch=40)
        broker.broker_epoch, broker.lease_until_ms = None, 0
        lost = await stub.Lease(data_plane_pb2.LeaseRequest(), timeout=5)
        assert lost == data_plane_pb2.LeaseResponse(may_serve=False, remaining_ms=0, broker_epoch=-1)


def test_the_listener_is_for_this_host_alone() -> None:
    """The assignments and the lease are nobody else's business."""
    keys = ["node.id=4", "metadata.log.dir=/x", "controller.quorum.bootstrap.servers=c1:9001"]
    assert load(None, {}, [*keys, "data.plane.listener=127.0.0.1:0"]).data_plane_listener == HostPort("127.0.0.1", 0)
    with pytest.raises(ConfigErrors, match=r"only loopback is allowed, such as 127.0.0.1:9095"):
        load(None, {}, [*keys, "data.plane.listener=0.0.0.0:9095"])
