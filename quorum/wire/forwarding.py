"""What came to a controller that does not lead is asked of the one that does, so that a client may talk to any of them.

Load balancers and Kubernetes services choose for the client, and choose anew for each connection. A request is handed on only
after this node has refused it with NOT_CONTROLLER, which means that nothing was done here. It is handed on once: what came
from another node is not sent round.

What became of it is never guessed. If no connection came about, nothing was done; if the answer to a change is missing, it may
have happened (REQUEST_TIMED_OUT).
"""

from collections.abc import Callable
from typing import Any, Final

import grpc
from quorum_rpc.v1 import admin_pb2, admin_pb2_grpc

from daemon.dial import was_never_sent
from daemon.forwarding import ANSWER_GRACE_S, PRINCIPAL, READS, STAY_HERE
from metadata_log.errors import ErrorCode
from quorum.runtime.requests import LeaderHint, Refused

METHODS: Final = {
    method.input_type.full_name: method.name
    for method in admin_pb2.DESCRIPTOR.services_by_name["AdminService"].methods
    if not method.client_streaming
}
"""The call that a request belongs to."""

Dial = Callable[[str], grpc.aio.Channel]


class Forwarder:
    """Asks the active controller in another's name."""

    def __init__(self, dial: Dial) -> None:
        self._dial = dial
        self._stubs: dict[str, Any] = {}

    async def ask(self, request: Any, leader: LeaderHint, timeout_s: float, principal: str) -> Any:
        """The leader's answer, refusals included.

        Raises:
            Refused: NOT_CONTROLLER: it could not be reached, and nothing was done; REQUEST_TIMED_OUT: a change was sent, and
                no answer came; NOT_READY: likewise, of a read.
        """
        assert leader.endpoint is not None
        host, port = leader.endpoint.host, leader.endpoint.port
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        method = METHODS[request.DESCRIPTOR.full_name]
        asked = type(request)()
        asked.CopyFrom(request)
        asked.context.timeout_ms = max(1, int((timeout_s - ANSWER_GRACE_S) * 1_000))
        metadata = ((STAY_HERE, "1"), (PRINCIPAL, principal.encode()))
        try:
            return await getattr(self._stub(target), method)(asked, timeout=timeout_s, metadata=metadata)
        except grpc.aio.AioRpcError as e:
            raise _refusal(e, target, is_read=method in READS) from e

    def _stub(self, target: str) -> Any:
        if target not in self._stubs:
            self._stubs[target] = admin_pb2_grpc.AdminServiceStub(self._dial(target))  # type: ignore[no-untyped-call]
        return self._stubs[target]


def _refusal(e: grpc.aio.AioRpcError, target: str, *, is_read: bool) -> Refused:
    text = f"the leader {target} was asked: {e.code().name}: {e.details()}"
    if was_never_sent(e):
        return Refused(ErrorCode.NOT_CONTROLLER, f"{text}; nothing was done")
    if is_read:
        return Refused(ErrorCode.NOT_READY, text)
    return Refused(ErrorCode.REQUEST_TIMED_OUT, f"{text}; the request may have taken effect")
