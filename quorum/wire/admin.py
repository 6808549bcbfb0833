"""AdminService: what operators and tools ask a controller.

`quorum.wire.admin_methods` has a row for each method. This file does what all methods have in common:

    1. An operator sends DeleteTopics to controller 1. Controller 1 checks the operator's certificate against `admin.principals`,
       and the request's cluster id.
    2. Controller 1 translates the request, and hands the command to its node.
    3. If controller 1 leads, the answer comes when the change is committed. Else controller 1 asks the leader, controller 2, and
       returns the leader's answer.
    4. A refused request ends with a gRPC status and a reason (`service_kit.rpc.refusals`).

A change with a request id takes effect once; a repeated change of the quorum finds its goal reached. A read is linearizable,
unless the request asks for this node's own image. Every controller answers DescribeQuorum and ListSnapshots for itself, also
while no controller leads.

`Submit` is the stream for many changes at a time (`quorum.wire.submit`).
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, assert_never

import grpc
from quorum_rpc.v1 import admin_pb2

from metadata_log.disk.identity import Identity
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import uuid_text
from quorum.controller.protocol.commands import CommandReply
from quorum.runtime.facade import ControllerNode
from quorum.runtime.protocol.requests import ReadView, Refused
from quorum.wire import in_pieces
from quorum.wire.admin_methods import (
    CALLS,
    ROWS,
    SERVICE,
    Asked,
    Controller,
    Counted,
    Goal,
    Row,
    Submitted,
    Viewed,
    request_type,
    response_type,
)
from quorum.wire.convert.errors import (
    BadMessage,
    bad_request,
    error,
    from_refusal,
    leader_hint,
    not_authorized,
    to_refusal,
    wrong_cluster,
)
from quorum.wire.forwarding import ask_leader
from quorum.wire.request_identity import identity_of
from quorum.wire.snapshot_hashes import SnapshotHashes
from quorum.wire.submit import Load, MakeResponse, SubmitConversation
from quorum.wire.timeouts import timeout_of
from service_kit.process.logs import get_logger
from service_kit.rpc.doors import Caller, Doors, NotAuthorized
from service_kit.rpc.forwarding import Forwarder, must_stay
from service_kit.rpc.refusals import Refusal

log = get_logger(__name__)

R = TypeVar("R")


class AdminService(grpc.GenericRpcHandler):  # type: ignore[misc]
    """One controller, as operators see it."""

    def __init__(
        self, node: ControllerNode, identity: Identity, forwarder: Forwarder | None = None, doors: Doors | None = None
    ) -> None:
        """Without a `forwarder` a node that does not lead refuses, and names the leader. Without `doors` all callers may ask."""
        self._node = node
        self._doors = doors or Doors()
        self._identity = identity
        self._forwarder = forwarder
        self._controller = Controller(node, identity.node_id, SnapshotHashes(node))
        self._forwarding: set[asyncio.Task[admin_pb2.SubmitResponse]] = set()
        self._submitted = Load()
        self._rows = {row.method: row for row in ROWS}
        self._handlers = {f"/{SERVICE.full_name}/{row.method}": self._handler(row) for row in ROWS}
        self._handlers[f"/{SERVICE.full_name}/Submit"] = grpc.stream_stream_rpc_method_handler(
            self.submit,
            request_deserializer=admin_pb2.SubmitRequests.FromString,
            response_serializer=admin_pb2.SubmitResponses.SerializeToString,
        )

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        return self._handlers.get(handler_call_details.method)

    def _handler(self, row: Row) -> grpc.RpcMethodHandler:
        async def answer(request: Any, context: Any) -> Any:
            return await self.answer(row.method, request, context)

        return grpc.unary_unary_rpc_method_handler(
            answer,
            request_deserializer=request_type(row).FromString,
            response_serializer=response_type(row).SerializeToString,
        )

    async def answer(self, method: str, request: Any, context: Any) -> Any:
        """Returns the answer to a unary call, this node's or the leader's. A refusal ends the call."""
        try:
            return await self._answer(self._rows[method], request, context)
        except Refused as e:
            refusal = to_refusal(e, self._node.leader_hint())
        except Refusal as e:
            refusal = e
        return await refusal.end(context)

    async def _answer(self, row: Row, request: Any, context: Any) -> Any:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_of(request.context.timeout_ms, context) / 1_000
        try:
            self._check(request.context, self._doors.caller(context))
            return await self._carried_out(row, request, context)
        except BadMessage as e:
            raise bad_request(e) from e
        except Refused as e:
            if e.code is not ErrorCode.NOT_CONTROLLER:
                raise
            return await self._forwarded(row, request, context, e, deadline_s - loop.time())

    async def _carried_out(self, row: Row, request: Any, context: Any) -> Any:
        match row:
            case Submitted():
                command = await in_pieces.command_of(request, row.from_request, row.items)
                row.check(command)
                timeout_ms = timeout_of(request.context.timeout_ms, context)
                identity = identity_of(request, partial(self._principal, context))
                reply = await self._node.submit(command, timeout_ms, identity)
                return await in_pieces.response_of(reply, row.to_response)
            case Viewed():
                return await self._read(request, context, lambda view: _marked(row.look(request, view), view))
            case Counted():
                view = await self._read(request, context, lambda view: view)
                counted = await asyncio.to_thread(row.survey, request, view)
                return _marked(row.look(request, view, counted), view)
            case Goal():
                return await self._reached(row, request, context)
            case Asked():
                return await row.ask(self._controller, request, timeout_of(request.context.timeout_ms, context))
            case _:
                assert_never(row)

    async def _reached(self, row: Goal, request: Any, context: Any) -> Any:
        """Returns the answer when the goal is reached, and logs the client's name: the log's records do not have it."""
        timeout_ms = timeout_of(request.context.timeout_ms, context)
        identity = identity_of(request, partial(self._principal, context))
        since = None if identity is None else identity.client_high_watermark
        response = await row.reach(self._controller, request, timeout_ms, since)
        asked_as = {} if identity is None else {"request_id": uuid_text(identity.request_id)}
        log.info("quorum change done", method=row.method, principal=self._principal(context), **asked_as)
        return response

    async def _read(self, request: Any, context: Any, look: Callable[[ReadView], R]) -> R:
        """Returns the result of `look` on the newest image or on this node's own image, as the request asks."""
        asked, timeout_ms = request.context, timeout_of(request.context.timeout_ms, context)
        try:
            if asked.consistency != admin_pb2.RequestContext.LOCAL:
                return await self._node.read(look, timeout_ms)
            return await self._node.read_local(look, asked.client_high_watermark, timeout_ms)
        except Refused as e:
            if e.code is not ErrorCode.REQUEST_TIMED_OUT:
                raise
            # A node that stops gives every waiting request this code: changes may have been written. A read changed nothing.
            text = "this controller stopped before it could answer; nothing was asked to change: ask another controller"
            raise Refused(ErrorCode.BROKER_NOT_AVAILABLE, text, e.hint) from e

    # --- the stream of changes ---------------------------------------------------------------------------------------

    async def submit(self, _: Any, context: Any) -> None:
        """See `quorum.wire.submit`."""
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
        row, call = CALLS[name], getattr(request, name)

        def answer(response: Any) -> admin_pb2.SubmitResponse:
            fields: dict[str, Any] = {"id": request.id, name: response}
            return admin_pb2.SubmitResponse(**fields)

        def respond(outcome: CommandReply | Refused) -> admin_pb2.SubmitResponse:
            return answer(self._refused(outcome, row) if isinstance(outcome, Refused) else row.to_response(outcome))

        try:
            self._check(call.context, caller)
            command, identity = row.from_request(call), identity_of(call, lambda: caller.principal)
        except BadMessage as e:
            return answered(partial(respond, bad_request(e)))
        except Refused as e:
            return answered(partial(respond, e))

        async def forward(refused: Refused) -> admin_pb2.SubmitResponse:
            try:
                return answer(await self._forwarded(row, call, context, refused, deadline_s - loop.time()))
            except Refused as e:
                return respond(e)
            except Refusal as e:
                return respond(from_refusal(e))

        def settled(outcome: CommandReply | Refused) -> None:
            if isinstance(outcome, Refused) and outcome.code is ErrorCode.NOT_CONTROLLER:
                task = loop.create_task(forward(outcome))
                self._forwarding.add(task)
                task.add_done_callback(self._forwarding.discard)
                task.add_done_callback(lambda task: answered(task.result))  # of a bug, `result` raises the exception
            else:
                answered(partial(respond, outcome))

        loop, timeout_ms = asyncio.get_running_loop(), timeout_of(call.context.timeout_ms, context)
        deadline_s = loop.time() + timeout_ms / 1_000
        return self._node.begin(command, timeout_ms, settled, identity)

    # --- refusals ----------------------------------------------------------------------------------------------------

    async def _forwarded(self, row: Row, request: Any, context: Any, refused: Refused, timeout_s: float) -> Any:
        """Returns the leader's answer to a request that this node has refused and not begun.

        Raises:
            Refused: the leader could not be asked, or has not answered.
            Refusal: the leader has refused the request.
        """
        hint = refused.hint or self._node.leader_hint()
        is_elsewhere = hint.endpoint is not None and hint.leader_id not in (None, self._identity.node_id)
        if self._forwarder is None or not is_elsewhere or timeout_s <= 0 or must_stay(context):
            raise refused
        return await ask_leader(self._forwarder, row.method, request, hint, timeout_s, self._principal(context))

    def _principal(self, context: Any) -> str:
        return self._doors.caller(context).principal

    def _refused(self, refused: Refused, row: Row) -> Any:
        """A refusal in a stream: an answer of the call's own type, with the leader to ask instead."""
        hint = leader_hint(refused.hint or self._node.leader_hint())
        return response_type(row)(error=error(refused.code, refused.message), leader=hint)

    def _check(self, asked: admin_pb2.RequestContext, caller: Caller) -> None:
        """Refuses a caller that is no operator, and a request for another cluster. A client that does not know the cluster's id
        leaves it out."""
        try:
            caller.check_operator()
        except NotAuthorized as e:
            raise not_authorized(e) from e
        if asked.cluster_id and asked.cluster_id != self._identity.cluster_id:
            raise wrong_cluster(asked.cluster_id, self._identity.cluster_id)


def _marked(response: R, view: ReadView) -> R:
    """`response`, marked as one node's own where the view is."""
    if view.local is not None:
        local = admin_pb2.LocalView(node_id=view.local.node_id, leader_heard_age_ms=view.local.leader_heard_age_ms)
        marked: Any = response
        marked.local.CopyFrom(local)
    return response
