"""Forwarding to the leader, so that a client may ask any controller.

Load balancers and Kubernetes services choose the node for the client, anew for each connection. A controller forwards a request
only after its own refusal with NOT_CONTROLLER, so nothing was done here. A request that another node has forwarded is not
forwarded again.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from metadata_log.format.errors import ErrorCode
from quorum.runtime.protocol.requests import LeaderHint, Refused
from service_kit.process.endpoints import HostPort
from service_kit.rpc.forwarding import Forwarder, NoAnswer


async def ask_leader(
    forwarder: Forwarder, method: str, request: Any, leader: LeaderHint, timeout_s: float, principal: str
) -> Any:
    """Returns the leader's answer to a call of `method` of AdminService.

    Raises:
        Refusal: the leader has refused the request.
        Refused: NOT_CONTROLLER: no connection to the leader came about, so nothing was done; REQUEST_TIMED_OUT: a change was
            sent, and no answer came; NOT_READY: a read was sent, and no answer came.
    """
    assert leader.endpoint is not None
    target = HostPort(leader.endpoint.host, leader.endpoint.port).target
    try:
        return await forwarder.ask(
            target, method, request, timeout_s, principal, node_id=leader.leader_id, stay_here=True
        )
    except NoAnswer as e:
        raise Refused(_code(e), f"the leader {e}") from e


async def read_leader(
    forwarder: Forwarder, method: str, request: Any, leader: LeaderHint, timeout_s: float, principal: str
) -> AsyncGenerator[Any, None]:
    """Yields the messages of the leader's answer to a read. Raises Refusal and Refused, as `ask_leader`."""
    assert leader.endpoint is not None
    target = HostPort(leader.endpoint.host, leader.endpoint.port).target
    messages = forwarder.read(target, method, request, timeout_s, principal, node_id=leader.leader_id, stay_here=True)
    try:
        async with aclosing(messages):
            async for message in messages:
                yield message
    except NoAnswer as e:
        raise Refused(_code(e), f"the leader {e}") from e


def _code(e: NoAnswer) -> ErrorCode:
    if e.never_sent:
        return ErrorCode.NOT_CONTROLLER
    return ErrorCode.REQUEST_TIMED_OUT if e.may_have_happened else ErrorCode.NOT_READY
