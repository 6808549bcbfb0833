"""The admin service of a broker: the broker forwards each call to a controller, so operators need to reach brokers only.

    1. An operator sends DeleteTopics to broker 7, which fetches its metadata from controller 1.
    2. Broker 7 asks controller 1. Controller 1 cannot be reached, so nothing was done, and broker 7 asks controller 2.
    3. Controller 2 takes the request, and its connection breaks. The change may have happened: broker 7 asks no third controller,
       and tells the operator (`service_kit.rpc.forwarding`).

The broker accepts the principals of its own `admin.principals` (`service_kit.rpc.doors`), and names the principal to the
controller, which checks its own list.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError
from quorum_rpc.v1 import admin_pb2, admin_pb2_grpc

from service_kit.rpc.dial import Reach, WrongServer
from service_kit.rpc.doors import Doors, NotAuthorized
from service_kit.rpc.forwarding import ANSWER_GRACE_S, Forwarder, NoAnswer, in_the_name_of
from service_kit.rpc.refusals import Refusal

SERVICE: Final = admin_pb2.DESCRIPTOR.services_by_name["AdminService"]
DEFAULT_TIMEOUT_S: Final = 10.0
TIMEOUT_S_MAX: Final = 120.0
STOP_GRACE_S: Final = 0.25
"""How much longer forwarded calls may take when this broker stops."""
ASK_ELSEWHERE: Final = frozenset(("NOT_CONTROLLER", "BROKER_NOT_AVAILABLE"))
"""The reasons for which the broker asks the next controller: nothing was done."""
PAUSE_S: Final = 0.05
"""How long the broker waits between two rounds through the controllers while none leads."""


class AdminForwarding(grpc.GenericRpcHandler):  # type: ignore[misc]
    """AdminService, answered by controllers. `targets`: the controllers' addresses, the likeliest leader first."""

    def __init__(self, targets: Callable[[], Sequence[str]], reach: Reach, doors: Doors | None = None) -> None:
        """Without `doors` every caller may ask."""
        self._targets = targets
        self._doors = doors or Doors()
        self._forwarder = Forwarder(reach, admin_pb2_grpc.AdminServiceStub)
        self._handlers = {f"/{SERVICE.full_name}/{method.name}": self._handler(method) for method in SERVICE.methods}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        return self._handlers.get(handler_call_details.method)

    async def stop(self) -> None:
        """Ends forwarded calls with their outcome, and forwards no more. Call `stop` before the servers stop."""
        await self._forwarder.stop(STOP_GRACE_S)

    def _handler(self, method: Any) -> grpc.RpcMethodHandler:
        request, response = (getattr(admin_pb2, each.name) for each in (method.input_type, method.output_type))
        if method.client_streaming:
            return grpc.stream_stream_rpc_method_handler(
                self._submit, request_deserializer=request.FromString, response_serializer=response.SerializeToString
            )

        async def answer(asked: Any, context: Any) -> Any:
            try:
                return await self._ask(method.name, asked, context)
            except Refusal as e:
                return await e.end(context)

        return grpc.unary_unary_rpc_method_handler(
            answer, request_deserializer=request.FromString, response_serializer=response.SerializeToString
        )

    async def _ask(self, name: str, request: Any, context: Any) -> Any:
        """The first answer of a controller. The broker asks all controllers in turn, until the deadline.

        Raises:
            Refusal: a controller has refused the request, or no controller has done anything, or a change may have happened.
        """
        caller = self._doors.caller(context)
        try:
            caller.check_operator()
        except NotAuthorized as e:
            raise Refusal("CLUSTER_AUTHORIZATION_FAILED", str(e)) from e
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + _timeout_s(request, context)
        refusal = Refusal("BROKER_NOT_AVAILABLE", "no controller could be asked in time")
        while True:
            for target in dict.fromkeys(self._targets()):
                left_s = deadline_s - loop.time()
                if left_s <= ANSWER_GRACE_S:
                    raise refusal
                try:
                    return await self._forwarder.ask(target, name, request, left_s, caller.principal)
                except NoAnswer as e:
                    reason = "REQUEST_TIMED_OUT" if e.may_have_happened else "BROKER_NOT_AVAILABLE"
                    refusal = Refusal(reason, f"controller {e}")
                    if e.may_have_happened or self._forwarder.is_stopping():
                        raise refusal from e
                except Refusal as e:
                    if e.reason not in ASK_ELSEWHERE:
                        raise
                    refusal = e
            await asyncio.sleep(PAUSE_S)

    async def _submit(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        """Connects the client's stream with a stream to one controller. When one of them breaks, both end."""
        caller, target = self._doors.caller(context), self._targets()[0]
        try:
            caller.check_operator()
            stub = await self._forwarder.stub(target)
        except NotAuthorized as e:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(e))
        except (WrongServer, OSError) as e:
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"controller {target}: {e}")
        malformed: list[DecodeError] = []

        async def handed_on() -> AsyncIterator[Any]:
            try:
                async for request in requests:
                    yield request
            except DecodeError as e:  # gRPC would leave the controller waiting for more
                malformed.append(e)
                call.cancel()

        call = stub.Submit(handed_on(), metadata=in_the_name_of(caller.principal))
        try:
            async for response in call:
                yield response
        except grpc.aio.AioRpcError as e:
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"controller {target}: {e.code().name}: {e.details()}")
        except asyncio.CancelledError:
            if not malformed:
                raise
            raise malformed[0] from None
        finally:
            call.cancel()


def _timeout_s(request: Any, context: Any) -> float:
    """Returns the request's timeout, limited by the call's deadline and by TIMEOUT_S_MAX."""
    asked_s = request.context.timeout_ms / 1_000
    timeout_s = min(asked_s, TIMEOUT_S_MAX) if asked_s > 0 else DEFAULT_TIMEOUT_S
    remaining_s = context.time_remaining()
    return timeout_s if remaining_s is None else min(timeout_s, float(remaining_s))
