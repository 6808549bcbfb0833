"""`DataPlaneService`: the assignments and the lease for a data plane in another process on this host.

    1. `brokerd` 101 runs with `data.plane.listener: 127.0.0.1:9095`. A store in Go on the same host calls `WatchAssignments`.
    2. The store gets `whole_set` and one assignment for each replica. It keeps the `resume_point` of the last one that it
       has carried out.
    3. The store crashes. The next process of it sends the kept point, and gets the changes since then.
    4. Before it answers a client, the store calls `Lease` at 10.000 s on its own clock. The answer says 4,000 ms. The store may
       answer clients until 14.000 s, however long the answer took.

The service only tells. The store proposes ISRs to the controllers by `BrokerService.AlterPartition`.
"""

from collections.abc import AsyncIterator, Callable
from typing import Any, Final, Protocol

from quorum_rpc.v1 import data_plane_pb2, data_plane_pb2_grpc

from broker_agent.publishing.assignment_feed import AssignmentFeed
from broker_agent.publishing.assignments import (
    Assignment,
    AssignmentNews,
    Delete,
    Follow,
    Lead,
    ResumePoint,
    Stop,
    WholeSet,
)

SERVICE: Final = data_plane_pb2.DESCRIPTOR.services_by_name["DataPlaneService"]
NAME: Final = "data plane service"
"""The name of the service's own subscriber."""

_ROLES: Final = {
    Lead: data_plane_pb2.LEAD,
    Follow: data_plane_pb2.FOLLOW,
    Stop: data_plane_pb2.STOP,
    Delete: data_plane_pb2.DELETE,
}


class LeasedBroker(Protocol):
    """The view of the broker that this service needs."""

    @property
    def broker_epoch(self) -> int | None: ...

    @property
    def lease_until_ms(self) -> int: ...

    def may_serve(self) -> bool:
        """Tells whether clients may be answered at this moment."""


class DataPlane(data_plane_pb2_grpc.DataPlaneServiceServicer):
    """The service of one broker."""

    def __init__(self, broker: LeasedBroker, feed: AssignmentFeed, now_ms: Callable[[], int]) -> None:
        self._broker = broker
        self._feed = feed
        self._now_ms = now_ms

    async def WatchAssignments(  # noqa: N802
        self, request: data_plane_pb2.WatchAssignmentsRequest, context: Any
    ) -> AsyncIterator[data_plane_pb2.WatchAssignmentsResponse]:
        """Sends the assignments until the broker has left. A reader that is slow costs no memory here."""
        since = ResumePoint(request.since.generation, request.since.offset) if request.HasField("since") else None
        stream = self._feed.stream(since)
        async for news in stream:
            yield _response(news, stream.resume_point)

    async def Lease(self, request: data_plane_pb2.LeaseRequest, context: Any) -> data_plane_pb2.LeaseResponse:  # noqa: N802
        """Returns the lease at this moment."""
        broker = self._broker
        may_serve, remaining_ms = broker.may_serve(), max(0, broker.lease_until_ms - self._now_ms())
        epoch = -1 if broker.broker_epoch is None else broker.broker_epoch
        return data_plane_pb2.LeaseResponse(may_serve=may_serve, remaining_ms=remaining_ms, broker_epoch=epoch)


def _response(news: AssignmentNews, point: ResumePoint | None) -> data_plane_pb2.WatchAssignmentsResponse:
    response = data_plane_pb2.WatchAssignmentsResponse()
    if point is not None:
        response.resume_point.generation, response.resume_point.offset = point.generation, point.offset
    if isinstance(news, WholeSet):
        whole = data_plane_pb2.WholeSet(replica_count=len(news.replicas), offset=news.offset)
        response.whole_set.CopyFrom(whole)
    else:
        response.assignment.CopyFrom(_assignment(news))
    return response


def _assignment(news: Assignment) -> data_plane_pb2.Assignment:
    return data_plane_pb2.Assignment(
        role=_ROLES[type(news)],
        topic_id=news.topic_id,
        topic=news.topic,
        partition=news.partition,
        leader_id=news.leader,
        leader_epoch=news.leader_epoch,
        partition_epoch=news.partition_epoch,
        replicas=news.replicas,
        isr=news.isr,
        directory_id=news.directory or b"",
        is_recovering=news.is_recovering,
        offset=news.offset,
    )
