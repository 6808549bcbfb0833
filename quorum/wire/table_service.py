"""A service of unary calls over one table: what all rows have in common.

    1. An operator sends DeleteTopics to controller 1. Controller 1 checks the operator's certificate against `admin.principals`,
       and the request's cluster id.
    2. Controller 1 translates the request, and hands the command to its node.
    3. If controller 1 leads, the answer comes when the change is committed. Else controller 1 asks the leader, controller 2, and
       returns the leader's answer.
    4. A refused request ends with a gRPC status and a reason (`service_kit.rpc.refusals`).

A change with a request id takes effect once; a repeated change of the quorum finds its goal reached. A read is linearizable,
unless the request asks for this node's own image.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, assert_never

import grpc
from google.protobuf.message_factory import GetMessageClass
from quorum_rpc.v1 import admin_pb2

from metadata_log.disk.identity import Identity
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import uuid_text
from quorum.runtime.facade import ControllerNode
from quorum.runtime.protocol.requests import LeaderHint, ReadView, Refused
from quorum.wire import in_pieces
from quorum.wire.convert.errors import BadMessage, bad_request, not_authorized, to_refusal, wrong_cluster
from quorum.wire.forwarding import ask_leader
from quorum.wire.past_views import refuse_position, view_at, wanted_of
from quorum.wire.request_identity import identity_of
from quorum.wire.snapshot_hashes import SnapshotHashes
from quorum.wire.table import Asked, Controller, Counted, Goal, Row, Submitted, Table, Viewed
from quorum.wire.timeouts import timeout_of
from service_kit.process.logs import get_logger
from service_kit.rpc.doors import Caller, Doors, NotAuthorized
from service_kit.rpc.forwarding import Forwarder, must_stay
from service_kit.rpc.refusals import Refusal

log = get_logger(__name__)

R = TypeVar("R")


class TableService(grpc.GenericRpcHandler):  # type: ignore[misc]
    """One controller, as callers of one service see it. A subclass says who may call, and adds the streams."""

    def __init__(
        self,
        table: Table,
        node: ControllerNode,
        identity: Identity,
        forwarder: Forwarder | None = None,
        doors: Doors | None = None,
    ) -> None:
        """Without a `forwarder` a node that does not lead refuses, and names the leader. Without `doors` all callers may ask."""
        self.table = table
        self._node = node
        self._doors = doors or Doors()
        self._identity = identity
        self._forwarder = forwarder
        self._controller = Controller(node, identity.node_id, SnapshotHashes(node))
        self._rows = table.by_method()
        self._handlers = {f"/{table.service.full_name}/{row.method}": self._handler(row) for row in table.rows}

    def check_caller(self, caller: Caller) -> None:
        """Raises NotAuthorized: the caller may not call this service."""
        raise NotImplementedError

    def add_stream(self, method: str, behaviour: Callable[..., Any]) -> None:
        """Serves a method with two streams, or with one request and a stream of messages."""
        described = self.table.service.methods_by_name[method]
        both = grpc.stream_stream_rpc_method_handler
        make = both if described.client_streaming else grpc.unary_stream_rpc_method_handler
        self._handlers[f"/{self.table.service.full_name}/{method}"] = make(
            behaviour,
            request_deserializer=GetMessageClass(described.input_type).FromString,
            response_serializer=GetMessageClass(described.output_type).SerializeToString,
        )

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        return self._handlers.get(handler_call_details.method)

    def _handler(self, row: Row) -> grpc.RpcMethodHandler:
        async def answer(request: Any, context: Any) -> Any:
            return await self.answer(row.method, request, context)

        return grpc.unary_unary_rpc_method_handler(
            answer,
            request_deserializer=self.table.request_type(row).FromString,
            response_serializer=self.table.response_type(row).SerializeToString,
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
            if not isinstance(row, Viewed | Counted):
                refuse_position(request.context)
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
                if row.asked_by is not None:
                    command = row.asked_by(command, self._principal(context))
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
        """Returns the result of `look` on the newest image, on this node's own image, or on an image of the past, as asked."""
        asked, timeout_ms = request.context, timeout_of(request.context.timeout_ms, context)
        wanted = wanted_of(asked)
        if wanted is None:
            return await self._read_newest(asked, look, timeout_ms)
        view = await self._read_newest(asked, lambda view: view, timeout_ms)
        return look(await view_at(self._node, wanted, view, timeout_ms))

    async def _read_newest(self, asked: Any, look: Callable[[ReadView], R], timeout_ms: int) -> R:
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

    # --- refusals ----------------------------------------------------------------------------------------------------

    async def _forwarded(self, row: Row, request: Any, context: Any, refused: Refused, timeout_s: float) -> Any:
        """Returns the leader's answer to a request that this node has refused and not begun.

        Raises:
            Refused: the leader could not be asked, or has not answered.
            Refusal: the leader has refused the request.
        """
        forwarder, hint = self._way_to_leader(context, refused, timeout_s)
        return await ask_leader(forwarder, row.method, request, hint, timeout_s, self._principal(context))

    def _way_to_leader(self, context: Any, refused: Refused, timeout_s: float) -> tuple[Forwarder, LeaderHint]:
        """Returns the leader to ask. Raises `refused`: there is none, or the request may not be handed on."""
        hint = refused.hint or self._node.leader_hint()
        is_elsewhere = hint.endpoint is not None and hint.leader_id not in (None, self._identity.node_id)
        if self._forwarder is None or not is_elsewhere or timeout_s <= 0 or must_stay(context):
            raise refused
        return self._forwarder, hint

    def _principal(self, context: Any) -> str:
        return self._doors.caller(context).principal

    def _check(self, asked: Any, caller: Caller) -> None:
        """Refuses a caller that may not call this service, and a request for another cluster. A client that does not know the
        cluster's id
        leaves it out."""
        try:
            self.check_caller(caller)
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
