"""BrokerService: translates requests of brokers, asks the node, and translates the answers.

MetadataFetch is a stream with one request in flight, like the voters' Fetch. MetadataFetchOnce is the same as a unary call.

A broker speaks for itself only: the request's broker id must be in the certificate (`service_kit.rpc.doors`).
"""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar, cast

import grpc
from quorum_rpc.v1 import broker_pb2, broker_pb2_grpc

from metadata_log.disk.identity import Identity
from metadata_log.format.errors import ErrorCode
from quorum.controller.protocol.commands import (
    AllocateProducerIdsReply,
    AlterPartition,
    RegisterBrokerReply,
    ReportDeathReply,
)
from quorum.controller.protocol.directory_commands import AssignReplicasToDirsReply
from quorum.runtime.facade import ControllerNode
from quorum.runtime.protocol.requests import Refused
from quorum.wire import in_pieces
from quorum.wire.convert import convert_broker as convert
from quorum.wire.convert.errors import BadMessage, bad_request, error, leader_hint, not_authorized, wrong_cluster
from quorum.wire.convert.parts import from_snapshot_id
from quorum.wire.timeouts import timeout_of
from service_kit.rpc.doors import Caller, Doors, NotAuthorized
from service_kit.security.node_identity import BROKER

SNAPSHOT_CHUNK_BYTES = 1 << 20
FIRST_GENERATION = 1
"""The generation of a broker that names none."""

R = TypeVar("R")


class BrokerService(broker_pb2_grpc.BrokerServiceServicer):
    """One controller, as brokers see it."""

    def __init__(self, node: ControllerNode, identity: Identity, doors: Doors | None = None) -> None:
        """Without `doors` every caller may ask."""
        self._node = node
        self._doors = doors or Doors()
        self._cluster_id = identity.cluster_id
        self._generation = identity.generation

    async def RegisterBroker(
        self, request: broker_pb2.RegisterBrokerRequest, context: Any
    ) -> broker_pb2.RegisterBrokerResponse:
        async def register() -> broker_pb2.RegisterBrokerResponse:
            reply = await self._node.submit(convert.from_register(request), timeout_of(0, context))
            return broker_pb2.RegisterBrokerResponse(broker_epoch=cast(RegisterBrokerReply, reply).broker_epoch)

        response = await self._answer(request, self._doors.caller(context), register, broker_pb2.RegisterBrokerResponse)
        self._name_generation(response)
        return response

    async def ReportDeath(self, request: broker_pb2.ReportDeathRequest, context: Any) -> broker_pb2.ReportDeathResponse:
        async def report() -> broker_pb2.ReportDeathResponse:
            reply = await self._node.submit(convert.from_report_death(request), timeout_of(0, context))
            return convert.to_report_death_response(cast(ReportDeathReply, reply))

        response = await self._answer(request, self._doors.caller(context), report, broker_pb2.ReportDeathResponse)
        self._name_generation(response)
        return response

    async def MetadataFetch(self, request_iterator: Any, context: Any) -> None:
        """Answers one fetch after the other, until the broker closes the stream."""
        caller = self._doors.caller(context)  # once: a connection's certificate does not change
        while True:
            request = await context.read()
            if request is grpc.aio.EOF:
                return
            await context.write(await self._fetch(request, caller))

    async def MetadataFetchOnce(
        self, request: broker_pb2.MetadataFetchRequest, context: Any
    ) -> broker_pb2.MetadataFetchResponse:
        return await self._fetch(request, self._doors.caller(context))

    async def _fetch(
        self, request: broker_pb2.MetadataFetchRequest, caller: Caller
    ) -> broker_pb2.MetadataFetchResponse:
        async def fetch() -> broker_pb2.MetadataFetchResponse:
            fetched = await self._node.metadata_fetch(convert.from_metadata_fetch(request))
            return convert.to_metadata_fetched(fetched, request.number)

        response = await self._answer(request, caller, fetch, broker_pb2.MetadataFetchResponse)
        response.number = request.number
        self._name_generation(response)
        return response

    async def FetchMetadataSnapshot(
        self, request: broker_pb2.FetchMetadataSnapshotRequest, context: Any
    ) -> AsyncIterator[broker_pb2.SnapshotChunk]:
        """Yields the snapshot from `position` on, in chunks. gRPC's flow control keeps one or two chunks in memory.

        The stream ends after `max_bytes`. A broker behind a slow link asks for a few bytes at a time: else its fetches, which are
        its heartbeats, would wait in the link's queue behind the snapshot.
        """
        try:
            self._check_sender(request, self._doors.caller(context))
            snapshot, position = from_snapshot_id(request.snapshot), request.position
            if position < 0:
                raise Refused(ErrorCode.INVALID_REQUEST, f"position {position} is negative")
            if request.max_bytes < 0:
                raise Refused(ErrorCode.INVALID_REQUEST, f"max_bytes {request.max_bytes} is negative")
            until = position + (request.max_bytes or sys.maxsize)
            while position < until:
                chunk_bytes = min(SNAPSHOT_CHUNK_BYTES, until - position)
                size, data = self._node.read_snapshot_chunk(snapshot, position, chunk_bytes)
                yield broker_pb2.SnapshotChunk(size=size, position=position, data=data)
                position += len(data)
                if not data or position >= size:
                    return
        except Refused as e:
            yield broker_pb2.SnapshotChunk(error=error(e.code, e.message))

    async def AlterPartition(
        self, request: broker_pb2.AlterPartitionRequest, context: Any
    ) -> broker_pb2.AlterPartitionResponse:
        async def alter() -> broker_pb2.AlterPartitionResponse:
            command: AlterPartition = await in_pieces.command_of(request, convert.from_alter_partition, "partitions")
            convert.check_isrs(command)
            reply = await self._node.submit(command, timeout_of(0, context))
            answer = await in_pieces.response_of(reply, convert.to_alter_partition_response)
            return cast(broker_pb2.AlterPartitionResponse, answer)

        return await self._answer(request, self._doors.caller(context), alter, broker_pb2.AlterPartitionResponse)

    async def AssignReplicasToDirs(
        self, request: broker_pb2.AssignReplicasToDirsRequest, context: Any
    ) -> broker_pb2.AssignReplicasToDirsResponse:
        async def assign() -> broker_pb2.AssignReplicasToDirsResponse:
            reply = await self._node.submit(convert.from_assign_replicas(request), timeout_of(0, context))
            return convert.to_assign_replicas_response(cast(AssignReplicasToDirsReply, reply))

        caller = self._doors.caller(context)
        return await self._answer(request, caller, assign, broker_pb2.AssignReplicasToDirsResponse)

    async def AllocateProducerIds(
        self, request: broker_pb2.AllocateProducerIdsRequest, context: Any
    ) -> broker_pb2.AllocateProducerIdsResponse:
        async def allocate() -> broker_pb2.AllocateProducerIdsResponse:
            reply = await self._node.submit(convert.from_allocate(request), timeout_of(0, context))
            return convert.to_allocate_response(cast(AllocateProducerIdsReply, reply))

        caller = self._doors.caller(context)
        return await self._answer(request, caller, allocate, broker_pb2.AllocateProducerIdsResponse)

    async def _answer(
        self, request: Any, caller: Caller, work: Callable[[], Awaitable[R]], response_type: Callable[..., R]
    ) -> R:
        """Returns the result of `work`, or a refusal of the same type with the leader to ask."""
        try:
            self._check_sender(request, caller)
            return await work()
        except BadMessage as e:
            refused = bad_request(e)
        except Refused as e:
            refused = e
        hint = refused.hint or self._node.leader_hint()
        return response_type(error=error(refused.code, refused.message), leader=leader_hint(hint))

    def _check_sender(self, request: Any, caller: Caller) -> None:
        """Refuses a broker whose certificate is another broker's, a broker of another cluster, and a broker of another
        generation."""
        try:
            caller.check_node(BROKER, request.broker_id)
        except NotAuthorized as e:
            raise not_authorized(e) from e
        if request.cluster_id != self._cluster_id:
            raise wrong_cluster(request.cluster_id, self._cluster_id)
        theirs = request.generation or FIRST_GENERATION
        if theirs != self._generation:
            text = f"this controller is of generation {self._generation} of its cluster, the broker of {theirs}"
            raise Refused(ErrorCode.INVALID_CONTROL_GENERATION, text)

    def _name_generation(self, response: Any) -> None:
        """Names this node's generation in a refusal, so that a broker of an older generation can follow."""
        if response.error.code == ErrorCode.INVALID_CONTROL_GENERATION:
            response.generation = self._generation
