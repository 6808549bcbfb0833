"""What came to a controller that does not lead is asked of the one that does, so that a client may talk to any of them.

Load balancers and Kubernetes services choose for the client, and choose anew for each connection. A request is handed on only
after this node has refused it with NOT_CONTROLLER, which means that nothing was done here. It is handed on once: what came
from another node is not sent round.
"""

from typing import Any

from metadata_log.format.errors import ErrorCode
from quorum.runtime.protocol.requests import LeaderHint, Refused
from service_kit.process.endpoints import HostPort
from service_kit.rpc.forwarding import Forwarder, NoAnswer


async def ask_leader(
    forwarder: Forwarder, method: str, request: Any, leader: LeaderHint, timeout_s: float, principal: str
) -> Any:
    """The leader's answer to a call of `method` of AdminService.

    Raises:
        Refusal: the leader has refused the request.
        Refused: NOT_CONTROLLER: it could not be reached, and nothing was done; REQUEST_TIMED_OUT: a change was sent, and no
            answer came; NOT_READY: likewise, of a read.
    """
    assert leader.endpoint is not None
    target = HostPort(leader.endpoint.host, leader.endpoint.port).target
    try:
        return await forwarder.ask(
            target, method, request, timeout_s, principal, node_id=leader.leader_id, stay_here=True
        )
    except NoAnswer as e:
        raise Refused(_code(e), f"the leader {e}") from e


def _code(e: NoAnswer) -> ErrorCode:
    if e.never_sent:
        return ErrorCode.NOT_CONTROLLER
    return ErrorCode.REQUEST_TIMED_OUT if e.may_have_happened else ErrorCode.NOT_READY
