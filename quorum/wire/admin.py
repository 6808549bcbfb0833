"""The service for operators and tools: translates, asks the node, translates back.

Mutations wait until they are committed; one with a request id takes effect once, however often it comes. Reads are
linearizable, on the active controller. What a single node knows of itself (DescribeQuorum, ListSnapshots) is answered by
every controller, also without a leader.

Over TLS only operators come in (`service_kit.rpc.doors`): all methods of this service change the cluster, or tell of all of it.

`Submit` is the pipelined way in (`wire/submit`).
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

from quorum_rpc.v1 import admin_pb2, admin_pb2_grpc

from metadata_log.disk.identity import Identity
from metadata_log.format.errors import ErrorCode
from quorum.controller import views
from quorum.controller.partitions.partition_health import partition_health
from quorum.controller.protocol.commands import Command, CommandReply, FenceBroker, UnregisterBroker
from quorum.core.protocol.messages import QuorumChangeRequest, QuorumChangeResponse
from quorum.runtime.facade import ControllerNode
from quorum.runtime.protocol.requests import ReadView, Refused
from quorum.wire.convert import convert_admin as convert
from quorum.wire.convert import convert_membership as membership
from quorum.wire.convert.errors import BadMessage, bad_request, error, leader_hint, not_authorized, wrong_cluster
from quorum.wire.forwarding import ask_leader
from quorum.wire.request_identity import identity_of
from quorum.wire.submit import Load, MakeResponse, SubmitConversation
from quorum.wire.timeouts import timeout_of
from service_kit.rpc.doors import Caller, Doors, NotAuthorized
from service_kit.rpc.forwarding import Forwarder, must_stay
from snapshots.store import SnapshotInfo

HASHED_BYTES_MAX = 256 << 20
"""The hash of a larger snapshot is left out of a listing."""
HASH_CHUNK_BYTES = 1 << 20
HASHES_MAX = 1_000

R = TypeVar("R")


class _Mutation(NamedTuple):
    """How one kind of mutating call is translated."""

    command: Callable[[Any], Command]
    response: Callable[[Any], Any]
    response_type: Callable[..., Any]


CREATE_TOPICS = _Mutation(convert.from_create_topics, convert.to_create_topics_response, admin_pb2.CreateTopicsResponse)
CREATE_PARTITIONS = _Mutation(
    convert.from_create_partitions, convert.to_create_partitions_response, admin_pb2.CreatePartitionsResponse
)
DELETE_TOPICS = _Mutation(convert.from_delete_topics, convert.to_delete_topics_response, admin_pb2.DeleteTopicsResponse)
ALTER_CONFIGS = _Mutation(
    convert.from_alter_configs, convert.to_alter_configs_response, admin_pb2.IncrementalAlterConfigsResponse
)
ELECT_LEADERS = _Mutation(convert.from_elect_leaders, convert.to_elect_leaders_response, admin_pb2.ElectLeadersResponse)
FENCE_BROKER = _Mutation(
    lambda message: FenceBroker(message.broker_id),
    lambda reply: admin_pb2.MutationResponse(offset=reply.offset),
    admin_pb2.MutationResponse,
)
UNREGISTER_BROKER = _Mutation(
    lambda message: UnregisterBroker(message.broker_id),
    lambda reply: admin_pb2.MutationResponse(offset=reply.offset),
    admin_pb2.MutationResponse,
)

_SUBMITTED = {
    "create_topics": CREATE_TOPICS,
    "create_partitions": CREATE_PARTITIONS,
    "delete_topics": DELETE_TOPICS,
    "alter_configs": ALTER_CONFIGS,
    "elect_leaders": ELECT_LEADERS,
}
"""By the name of the field, which is the same in SubmitRequest and SubmitResponse."""


def _marked(look: Callable[[ReadView], R], view: ReadView) -> R:
    """What `look` sees, marked as one node's own."""
    response: Any = look(view)
    assert view.local is not None
    local = admin_pb2.LocalView(node_id=view.local.node_id, leader_heard_age_ms=view.local.leader_heard_age_ms)
    response.local.CopyFrom(local)
    marked: R = response
    return marked


class AdminService(admin_pb2_grpc.AdminServiceServicer):
    """One controller, as operators see it."""

    def __init__(
        self, node: ControllerNode, identity: Identity, forwarder: Forwarder | None = None, doors: Doors | None = None
    ) -> None:
        """Without a `forwarder` a node that does not lead only says who does. Without `doors` all are open."""
        self._node = node
        self._doors = doors or Doors()
        self._identity = identity
        self._forwarder = forwarder
        self._forwarding: set[asyncio.Task[None]] = set()
        self._submitted = Load()
        self._hashes: dict[SnapshotInfo, bytes] = {}

    # --- mutations -------------------------------------------------------------------------------------------------

    async def CreateTopics(self, request: Any, context: Any) -> admin_pb2.CreateTopicsResponse:  # noqa: N802
        return await self._mutate(CREATE_TOPICS, request, context)  # type: ignore[no-any-return]

    async def CreatePartitions(self, request: Any, context: Any) -> admin_pb2.CreatePartitionsResponse:  # noqa: N802
        return await self._mutate(CREATE_PARTITIONS, request, context)  # type: ignore[no-any-return]

    async def DeleteTopics(self, request: Any, context: Any) -> admin_pb2.DeleteTopicsResponse:  # noqa: N802
        return await self._mutate(DELETE_TOPICS, request, context)  # type: ignore[no-any-return]

    async def IncrementalAlterConfigs(  # noqa: N802
        self, request: Any, context: Any
    ) -> admin_pb2.IncrementalAlterConfigsResponse:
        return await self._mutate(ALTER_CONFIGS, request, context)  # type: ignore[no-any-return]

    async def ElectLeaders(self, request: Any, context: Any) -> admin_pb2.ElectLeadersResponse:  # noqa: N802
        return await self._mutate(ELECT_LEADERS, request, context)  # type: ignore[no-any-return]

    async def FenceBroker(self, request: Any, context: Any) -> admin_pb2.MutationResponse:  # noqa: N802
        return await self._mutate(FENCE_BROKER, request, context)  # type: ignore[no-any-return]

    async def UnregisterBroker(self, request: Any, context: Any) -> admin_pb2.MutationResponse:  # noqa: N802
        return await self._mutate(UNREGISTER_BROKER, request, context)  # type: ignore[no-any-return]

    async def CreateSnapshot(  # noqa: N802
        self, request: admin_pb2.CreateSnapshotRequest, context: Any
    ) -> admin_pb2.MutationResponse:
        async def mark() -> admin_pb2.MutationResponse:
            timeout_ms = timeout_of(request.context.timeout_ms, context)
            offset = await self._node.create_snapshot(request.reason or "asked for by an operator", timeout_ms)
            return admin_pb2.MutationResponse(offset=offset)

        return await self._answer(request, context, mark, admin_pb2.MutationResponse)

    # --- who votes -------------------------------------------------------------------------------------------------

    async def AddVoter(  # noqa: N802
        self, request: admin_pb2.AdminAddVoterRequest, context: Any
    ) -> admin_pb2.MutationResponse:
        return await self._change_quorum(membership.from_admin_add, request, context)

    async def RemoveVoter(  # noqa: N802
        self, request: admin_pb2.AdminRemoveVoterRequest, context: Any
    ) -> admin_pb2.MutationResponse:
        return await self._change_quorum(membership.from_admin_remove, request, context)

    async def TransferLeadership(  # noqa: N802
        self, request: admin_pb2.TransferLeadershipRequest, context: Any
    ) -> admin_pb2.MutationResponse:
        return await self._change_quorum(membership.from_transfer, request, context)

    async def CanRestart(  # noqa: N802
        self, request: admin_pb2.CanRestartRequest, context: Any
    ) -> admin_pb2.CanRestartResponse:
        async def look() -> admin_pb2.CanRestartResponse:
            advice = self._node.restart_advice(request.node_id)
            return admin_pb2.CanRestartResponse(can_restart=advice.can_restart, reason=advice.reason)

        return await self._answer(request, context, look, admin_pb2.CanRestartResponse)

    async def _change_quorum(
        self, translate: Callable[[Any, int], QuorumChangeRequest], request: Any, context: Any
    ) -> admin_pb2.MutationResponse:
        async def change() -> admin_pb2.MutationResponse:
            asked = translate(request, timeout_of(request.context.timeout_ms, context))
            response = await self._node.raft(asked)
            assert isinstance(response, QuorumChangeResponse), response
            return membership.to_mutation_response(response, self._node.leader_hint())

        return await self._answer(request, context, change, admin_pb2.MutationResponse)

    async def _mutate(self, mutation: _Mutation, request: Any, context: Any) -> Any:
        async def submit() -> Any:
            command = mutation.command(request)
            timeout_ms = timeout_of(request.context.timeout_ms, context)
            reply = await self._node.submit(
                command, timeout_ms, identity_of(request, partial(self._principal, context))
            )
            return mutation.response(reply)

        return await self._answer(request, context, submit, mutation.response_type)

    # --- reads -----------------------------------------------------------------------------------------------------

    async def ListTopics(  # noqa: N802
        self, request: admin_pb2.ListTopicsRequest, context: Any
    ) -> admin_pb2.ListTopicsResponse:
        def look(view: ReadView) -> admin_pb2.ListTopicsResponse:
            page = views.list_topics(view.image, request.after, request.limit)
            return convert.to_list_topics_response(page, view.as_of_offset)

        return await self._read(request, context, look, admin_pb2.ListTopicsResponse)

    async def DescribeTopics(  # noqa: N802
        self, request: admin_pb2.DescribeTopicsRequest, context: Any
    ) -> admin_pb2.DescribeTopicsResponse:
        def look(view: ReadView) -> admin_pb2.DescribeTopicsResponse:
            convert.at_most(len(request.names), "topics")
            names = tuple(request.names)
            described = views.describe_topics(view.image, names, request.first_partition, request.limit)
            return convert.to_describe_topics_response(described, view.as_of_offset)

        return await self._read(request, context, look, admin_pb2.DescribeTopicsResponse)

    async def DescribeConfigs(  # noqa: N802
        self, request: admin_pb2.DescribeConfigsRequest, context: Any
    ) -> admin_pb2.DescribeConfigsResponse:
        def look(view: ReadView) -> admin_pb2.DescribeConfigsResponse:
            convert.at_most(len(request.resources), "resources")
            described = [
                views.describe_configs(view.image, resource.resource_type, resource.name)
                for resource in request.resources
            ]
            return convert.to_describe_configs_response(described, view.as_of_offset)

        return await self._read(request, context, look, admin_pb2.DescribeConfigsResponse)

    async def ListBrokers(  # noqa: N802
        self, request: admin_pb2.ListBrokersRequest, context: Any
    ) -> admin_pb2.ListBrokersResponse:
        async def look() -> admin_pb2.ListBrokersResponse:
            view = await self._view(request, context, lambda view: view)
            # With two million partitions this takes 0.2 s, in which no heartbeat would be heard on the loop's own thread.
            counts = await asyncio.to_thread(views.partition_counts, view.image)
            listed = views.list_brokers(view.image, view.controller, counts)
            response = convert.to_list_brokers_response(listed, view.as_of_offset, view.now_ms)
            return response if view.local is None else _marked(lambda _: response, view)

        return await self._answer(request, context, look, admin_pb2.ListBrokersResponse)

    async def DescribePartitionHealth(  # noqa: N802
        self, request: admin_pb2.DescribePartitionHealthRequest, context: Any
    ) -> admin_pb2.DescribePartitionHealthResponse:
        async def look() -> admin_pb2.DescribePartitionHealthResponse:
            view = await self._view(request, context, lambda view: view)
            found = await asyncio.to_thread(partition_health, view.image, request.limit)  # as above
            response = convert.to_partition_health_response(found, view.as_of_offset)
            return response if view.local is None else _marked(lambda _: response, view)

        return await self._answer(request, context, look, admin_pb2.DescribePartitionHealthResponse)

    async def DescribeQuorum(  # noqa: N802
        self, request: admin_pb2.DescribeQuorumRequest, context: Any
    ) -> admin_pb2.DescribeQuorumResponse:
        async def look() -> admin_pb2.DescribeQuorumResponse:
            return convert.to_describe_quorum_response(self._node.status())

        return await self._answer(request, context, look, admin_pb2.DescribeQuorumResponse)

    async def ListSnapshots(  # noqa: N802
        self, request: admin_pb2.ListSnapshotsRequest, context: Any
    ) -> admin_pb2.ListSnapshotsResponse:
        try:
            self._check(request.context, self._doors.caller(context))
        except Refused as e:
            return admin_pb2.ListSnapshotsResponse(error=error(e.code, e.message))
        listed = self._node.list_snapshots()
        hashes = [await self._hash(info) for info in listed]
        return convert.to_list_snapshots_response(self._identity.node_id, zip(listed, hashes, strict=True))

    async def _hash(self, info: SnapshotInfo) -> bytes:
        """SHA-256 of the snapshot's file, which never changes; empty for one that would take long, or has just gone."""
        found = self._hashes.get(info)
        if found is None:
            if info.size > HASHED_BYTES_MAX:
                return b""
            try:
                found = await asyncio.to_thread(self._read_and_hash, info)
            except Refused:
                return b""
            if len(self._hashes) >= HASHES_MAX:
                self._hashes.clear()
            self._hashes[info] = found
        return found

    def _read_and_hash(self, info: SnapshotInfo) -> bytes:
        """On a thread: opens the file for itself, and the hash lets the event loop run meanwhile."""
        digest, position = hashlib.sha256(), 0
        while position < info.size:
            _, data = self._node.read_snapshot_chunk(info.end, position, HASH_CHUNK_BYTES)
            digest.update(data)
            position += len(data)
        return digest.digest()

    async def _read(
        self, request: Any, context: Any, look: Callable[[ReadView], R], response_type: Callable[..., R]
    ) -> R:
        def marked(view: ReadView) -> R:
            return look(view) if view.local is None else _marked(look, view)

        async def read() -> R:
            return await self._view(request, context, marked)

        return await self._answer(request, context, read, response_type)

    async def _view(self, request: Any, context: Any, look: Callable[[ReadView], R]) -> R:
        """What `look` sees: the newest there is, or what this node has applied, as was asked for."""
        asked, timeout_ms = request.context, timeout_of(request.context.timeout_ms, context)
        try:
            if asked.consistency != admin_pb2.RequestContext.LOCAL:
                return await self._node.read(look, timeout_ms)
            return await self._node.read_local(look, asked.client_high_watermark, timeout_ms)
        except Refused as e:
            if e.code is not ErrorCode.REQUEST_TIMED_OUT:
                raise
            # A node that stops says so to all that wait there, since changes may have been written. A read has no such doubt.
            text = "this controller stopped before it could answer; nothing was asked to change: ask another controller"
            raise Refused(ErrorCode.BROKER_NOT_AVAILABLE, text, e.hint) from e

    # --- the pipelined stream --------------------------------------------------------------------------------------

    async def Submit(self, request_iterator: Any, context: Any) -> None:  # noqa: N802
        """See `wire/submit`."""
        caller = self._doors.caller(context)
        await SubmitConversation(context, partial(self._begin, context, caller), self._submitted).run()

    def _begin(
        self, context: Any, caller: Caller, request: admin_pb2.SubmitRequest, answered: Callable[[MakeResponse], None]
    ) -> None:
        """Hands one submitted call to the node."""
        name = request.WhichOneof("call")
        if name is None:
            text = "a call of a kind that this release does not know"
            unknown = admin_pb2.SubmitResponse(id=request.id, error=error(ErrorCode.UNSUPPORTED_VERSION, text))
            return answered(lambda: unknown)
        mutation, call = _SUBMITTED[name], getattr(request, name)

        def respond(outcome: CommandReply | Refused) -> admin_pb2.SubmitResponse:
            if isinstance(outcome, Refused):
                response = self._refusal(outcome, mutation.response_type)
            else:
                response = mutation.response(outcome)
            fields: dict[str, Any] = {"id": request.id, name: response}
            return admin_pb2.SubmitResponse(**fields)

        try:
            self._check(call.context, caller)
            command, identity = mutation.command(call), identity_of(call, lambda: caller.principal)
        except BadMessage as e:
            return answered(partial(respond, bad_request(e)))
        except Refused as e:
            return answered(partial(respond, e))

        async def forward(refused: Refused) -> None:
            response = await self._forwarded(call, context, refused, mutation.response_type, timeout_ms / 1_000)
            fields: dict[str, Any] = {"id": request.id, name: response}
            answered(lambda: admin_pb2.SubmitResponse(**fields))

        def settled(outcome: CommandReply | Refused) -> None:
            if isinstance(outcome, Refused) and outcome.code is ErrorCode.NOT_CONTROLLER:
                task = asyncio.get_running_loop().create_task(forward(outcome))
                self._forwarding.add(task)
                task.add_done_callback(self._forwarding.discard)
            else:
                answered(partial(respond, outcome))

        timeout_ms = timeout_of(call.context.timeout_ms, context)
        return self._node.begin(command, timeout_ms, settled, identity)

    # --- refusals --------------------------------------------------------------------------------------------------

    async def _answer(
        self, request: Any, context: Any, work: Callable[[], Awaitable[R]], response_type: Callable[..., R]
    ) -> R:
        """What `work` answers, or the leader, if it has to be asked; a refusal in the same type, with whom to ask instead."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_of(request.context.timeout_ms, context) / 1_000
        try:
            self._check(request.context, self._doors.caller(context))
            return await work()
        except BadMessage as e:
            refused = bad_request(e)
        except Refused as e:
            refused = e
        if refused.code is ErrorCode.NOT_CONTROLLER:
            return await self._forwarded(request, context, refused, response_type, deadline_s - loop.time())
        return self._refusal(refused, response_type)

    async def _forwarded(
        self, request: Any, context: Any, refused: Refused, response_type: Callable[..., R], timeout_s: float
    ) -> R:
        """The leader's answer to what this node has refused because it does not lead, and did not begin."""
        hint = refused.hint or self._node.leader_hint()
        is_elsewhere = hint.endpoint is not None and hint.leader_id not in (None, self._identity.node_id)
        if self._forwarder is None or not is_elsewhere or timeout_s <= 0 or must_stay(context):
            return self._refusal(refused, response_type)
        try:
            answer: R = await ask_leader(self._forwarder, request, hint, timeout_s, self._principal(context))
        except Refused as e:
            return self._refusal(e, response_type)
        return answer

    def _principal(self, context: Any) -> str:
        return self._doors.caller(context).principal

    def _refusal(self, refused: Refused, response_type: Callable[..., R]) -> R:
        hint = refused.hint or self._node.leader_hint()
        return response_type(error=error(refused.code, refused.message), leader=leader_hint(hint))

    def _check(self, asked: admin_pb2.RequestContext, caller: Caller) -> None:
        """Only operators are answered. A client that names its cluster is answered by no other; one that does not yet know it may
        leave it out."""
        try:
            caller.check_operator()
        except NotAuthorized as e:
            raise not_authorized(e) from e
        if asked.cluster_id and asked.cluster_id != self._identity.cluster_id:
            raise wrong_cluster(asked.cluster_id, self._identity.cluster_id)
