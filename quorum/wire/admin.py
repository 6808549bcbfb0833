"""AdminService: what operators and tools ask a controller.

`quorum.wire.admin_methods` has a row for each method, and `quorum.wire.table_service` does what all rows have in common. This
file adds the streams: `Submit` for many changes at a time (`quorum.wire.submit`), and `ReadTree` for answers of many rows
(`quorum.wire.tree_reads`).

Every controller answers DescribeQuorum and ListSnapshots for itself, also while no controller leads.
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from typing import Any

from quorum_rpc.v1 import admin_pb2

from metadata_log.disk.identity import Identity
from metadata_log.format.errors import ErrorCode
from quorum.controller.protocol.commands import CommandReply
from quorum.runtime.facade import ControllerNode
from quorum.runtime.protocol.requests import Refused
from quorum.wire.admin_methods import CALLS, TABLE
from quorum.wire.convert.convert_tree import from_request
from quorum.wire.convert.errors import BadMessage, bad_request, error, from_refusal, leader_hint, to_refusal
from quorum.wire.forwarding import read_leader
from quorum.wire.past_views import refuse_position
from quorum.wire.request_identity import identity_of
from quorum.wire.submit import Load, MakeResponse, SubmitConversation
from quorum.wire.table import Row
from quorum.wire.table_service import TableService
from quorum.wire.timeouts import timeout_of
from quorum.wire.tree_reads import answer_tree, check_positions, question_of
from service_kit.rpc.answer_streams import write
from service_kit.rpc.doors import Caller, Doors
from service_kit.rpc.forwarding import Forwarder
from service_kit.rpc.refusals import Refusal


class AdminService(TableService):
    """One controller, as operators see it."""

    def __init__(
        self, node: ControllerNode, identity: Identity, forwarder: Forwarder | None = None, doors: Doors | None = None
    ) -> None:
        """Without a `forwarder` a node that does not lead refuses, and names the leader. Without `doors` all callers may ask."""
        super().__init__(TABLE, node, identity, forwarder, doors)
        self._forwarding: set[asyncio.Task[admin_pb2.SubmitResponse]] = set()
        self._submitted = Load()
        self.add_stream("Submit", self.submit)
        self.add_stream("ReadTree", self.read_tree)

    def check_caller(self, caller: Caller) -> None:
        caller.check_operator()

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
            refuse_position(call.context)
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

    async def read_tree(self, request: admin_pb2.ReadTreeRequest, context: Any) -> None:
        """See `quorum.wire.tree_reads`. A refusal ends the call, also after some rows."""
        try:
            await self._read_tree(request, context)
        except Refused as e:
            refusal = to_refusal(e, self._node.leader_hint())
        except Refusal as e:
            refusal = e
        else:
            return
        await refusal.end(context)

    async def _read_tree(self, request: admin_pb2.ReadTreeRequest, context: Any) -> None:
        loop, timeout_ms = asyncio.get_running_loop(), timeout_of(request.context.timeout_ms, context)
        deadline_s = loop.time() + timeout_ms / 1_000
        try:
            self._check(request.context, self._doors.caller(context))
            query = from_request(request)
            check_positions(query, request)
            newest = await self._read_newest(request.context, lambda view: view, timeout_ms)
        except BadMessage as e:
            raise bad_request(e) from e
        except Refused as e:
            if e.code is not ErrorCode.NOT_CONTROLLER:
                raise
            await self._relay_tree(request, context, e, deadline_s - loop.time())
            return
        left_ms = max(1, int((deadline_s - loop.time()) * 1_000))
        asked = await question_of(self._node, query, request, newest, left_ms)
        await answer_tree(self._node, asked, newest, context)

    async def _relay_tree(self, request: Any, context: Any, refused: Refused, timeout_s: float) -> None:
        """Hands the leader's answer on. Raises Refused and Refusal, as `_forwarded`."""
        forwarder, hint = self._way_to_leader(context, refused, timeout_s)
        messages = read_leader(forwarder, "ReadTree", request, hint, timeout_s, self._principal(context))
        async with aclosing(messages):
            async for message in messages:
                await write(context, message)

    def _refused(self, refused: Refused, row: Row) -> Any:
        """A refusal in a stream: an answer of the call's own type, with the leader to ask instead."""
        hint = leader_hint(refused.hint or self._node.leader_hint())
        return TABLE.response_type(row)(error=error(refused.code, refused.message), leader=hint)
