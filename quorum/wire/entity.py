"""EntityService: what embedders ask a controller.

`quorum.wire.entity_methods` has a row for each method, and `quorum.wire.table_service` does what all rows have in common.
This file adds the generation to the answers, and the stream KeepAlive.

*KeepAlive.* Each message is noted by the leader when it arrives, and answered at once. A controller that does not lead hands
messages on to the leader, so a client needs no second stream after an election. Example:
    1. A client's stream ends at controller 1, which leads. The client sends a message each 3 s.
    2. Controller 2 is elected. Controller 1 hands the next message on, and the client gets the answer of controller 2.
    3. Between the two leaders a message is answered with NOT_CONTROLLER, and no session was kept alive. The client sends
       again soon.
"""

from typing import Any, Final

import grpc
from quorum_rpc.v1 import entity_pb2

from metadata_log.disk.identity import Identity
from metadata_log.format.errors import ErrorCode
from quorum.runtime.facade import ControllerNode
from quorum.runtime.protocol.requests import LeaderHint, Refused
from quorum.wire.convert.convert_entities import from_keep_alive, to_kept
from quorum.wire.convert.errors import BadMessage, bad_request, error, leader_hint
from quorum.wire.entity_methods import TABLE
from quorum.wire.table import Row
from quorum.wire.table_service import TableService
from service_kit.process.endpoints import HostPort
from service_kit.rpc.doors import Caller, Doors
from service_kit.rpc.forwarding import STAY_HERE, Forwarder, in_the_name_of, must_stay
from service_kit.rpc.refusals import Refusal
from service_kit.rpc.relays import NotRelayed, StreamRelay

RELAY_TIMEOUT_S: Final = 2.0
"""How long a controller waits for the leader's answer to one message."""
KEEP_ALIVE_STREAMS_MAX: Final = 4_000
"""Maximum number of open KeepAlive streams. Voters, brokers and clients share one server with 10,000 calls: without this bound,
10,000 clients with a session each would leave no call for a vote."""

_WITH_GENERATION: Final = frozenset(
    row.method for row in TABLE.rows if "generation" in TABLE.response_type(row).DESCRIPTOR.fields_by_name
)


class EntityService(TableService):
    """One controller, as embedders see it."""

    def __init__(
        self, node: ControllerNode, identity: Identity, forwarder: Forwarder | None = None, doors: Doors | None = None
    ) -> None:
        """Without a `forwarder` a node that does not lead refuses, and names the leader. Without `doors` all callers may ask."""
        super().__init__(TABLE, node, identity, forwarder, doors)
        self._keep_alive_streams = 0
        self.add_stream("KeepAlive", self.keep_alive)

    def check_caller(self, caller: Caller) -> None:
        caller.check_embedder()

    async def _carried_out(self, row: Row, request: Any, context: Any) -> Any:
        response = await super()._carried_out(row, request, context)
        if row.method in _WITH_GENERATION:
            response.generation = self._identity.generation
        return response

    async def keep_alive(self, _: Any, context: Any) -> None:
        """Answers one message after the other, until the client closes the stream. A stream too many is refused."""
        if self._keep_alive_streams >= KEEP_ALIVE_STREAMS_MAX:
            text = (
                f"this controller has {KEEP_ALIVE_STREAMS_MAX:,} KeepAlive streams, as many as it takes; no session was kept "
                "alive: keep up to 1,000 sessions alive on one stream"
            )
            await Refusal("THROTTLING_QUOTA_EXCEEDED", text).end(context)
        self._keep_alive_streams += 1
        try:
            await self._keep_alive(context)
        finally:
            self._keep_alive_streams -= 1

    async def _keep_alive(self, context: Any) -> None:
        caller = self._doors.caller(context)
        relay = None
        if self._forwarder is not None and not must_stay(context):
            relay = StreamRelay(self._forwarder, "KeepAlive", (*in_the_name_of(caller.principal), (STAY_HERE, "1")))
        try:
            while (request := await context.read()) is not grpc.aio.EOF:
                await context.write(await self._kept(request, caller, relay))
        finally:
            if relay is not None:
                relay.close()

    async def _kept(
        self, request: entity_pb2.KeepAliveRequest, caller: Caller, relay: StreamRelay | None
    ) -> entity_pb2.KeepAliveResponse:
        try:
            self._check(request, caller)
            sessions = from_keep_alive(request)
            return to_kept(request.id, sessions, await self._node.keep_alive(sessions))
        except BadMessage as e:
            refused = bad_request(e)
        except Refused as e:
            refused = e
        hint = refused.hint or self._node.leader_hint()
        if refused.code is ErrorCode.NOT_CONTROLLER and relay is not None:
            answer = await self._relayed(request, hint, relay)
            if answer is not None:
                return answer
        return entity_pb2.KeepAliveResponse(
            id=request.id, error=error(refused.code, refused.message), leader=leader_hint(hint)
        )

    async def _relayed(
        self, request: entity_pb2.KeepAliveRequest, hint: LeaderHint, relay: StreamRelay
    ) -> entity_pb2.KeepAliveResponse | None:
        """The leader's answer; None if there is none."""
        if hint.endpoint is None or hint.leader_id in (None, self._identity.node_id):
            return None
        target = HostPort(hint.endpoint.host, hint.endpoint.port).target
        try:
            answer: entity_pb2.KeepAliveResponse = await relay.ask(
                target, request, RELAY_TIMEOUT_S, node_id=hint.leader_id
            )
        except NotRelayed:
            return None  # the client hears NOT_CONTROLLER, and sends again
        return answer
