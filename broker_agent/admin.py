"""AdminService and EntityService of a broker: the broker forwards each call to a controller.

    1. An operator sends DeleteTopics to broker 7, which fetches its metadata from controller 1.
    2. Broker 7 asks controller 1. Controller 1 cannot be reached, so nothing was done, and broker 7 asks controller 2.
    3. Controller 2 takes the request, and its connection breaks. The change may have happened: broker 7 asks no third controller,
       and tells the operator (`service_kit.rpc.forwarding`).

The broker accepts the principals of its own `admin.principals` and `entities.principals` (`service_kit.rpc.doors`), and names
the principal to the controller, which checks its own lists.

Each message of a KeepAlive stream is handed on by itself, so the stream goes on when a controller dies. A Submit stream ends with
its controller, because its calls may be under way there. A ReadTree answer comes from one controller: until its first message the
broker may ask the next controller.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, Final, NamedTuple

import grpc
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from quorum_rpc.v1 import admin_pb2, admin_pb2_grpc, common_pb2, entity_pb2, entity_pb2_grpc

from service_kit.rpc.answer_streams import write
from service_kit.rpc.dial import Reach, WrongServer
from service_kit.rpc.doors import Caller, Doors, NotAuthorized
from service_kit.rpc.forwarding import ANSWER_GRACE_S, Forwarder, NoAnswer, in_the_name_of
from service_kit.rpc.refusals import Refusal
from service_kit.rpc.relays import NotRelayed, StreamRelay

SERVICE: Final = admin_pb2.DESCRIPTOR.services_by_name["AdminService"]
ENTITIES: Final = entity_pb2.DESCRIPTOR.services_by_name["EntityService"]
DEFAULT_TIMEOUT_S: Final = 10.0
TIMEOUT_S_MAX: Final = 120.0
STOP_GRACE_S: Final = 0.25
"""How much longer forwarded calls may take when this broker stops."""
ASK_ELSEWHERE: Final = frozenset(("NOT_CONTROLLER", "BROKER_NOT_AVAILABLE"))
"""The reasons for which the broker asks the next controller: nothing was done."""
RELAY_TIMEOUT_S: Final = 2.5
"""How long the broker waits for a controller's answer to one message of a KeepAlive stream: longer than that one waits for the
leader."""
PAUSE_S: Final = 0.05
"""How long the broker waits between two rounds through the controllers while none leads."""


class _Service(NamedTuple):
    """A service that is forwarded."""

    described: Any
    forwarder: Forwarder
    check: Callable[[Caller], None]


class AdminForwarding(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Both services, answered by controllers. `targets`: the controllers' addresses, the likeliest leader first."""

    def __init__(self, targets: Callable[[], Sequence[str]], reach: Reach, doors: Doors | None = None) -> None:
        """Without `doors` every caller may ask."""
        self._targets = targets
        self._doors = doors or Doors()
        self._admin = _Service(SERVICE, Forwarder(reach, admin_pb2_grpc.AdminServiceStub), Caller.check_operator)
        self._entities = _Service(ENTITIES, Forwarder(reach, entity_pb2_grpc.EntityServiceStub), Caller.check_embedder)
        self._services = (self._admin, self._entities)
        self._handlers = {
            f"/{service.described.full_name}/{method.name}": self._handler(service, method)
            for service in self._services
            for method in service.described.methods
        }

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        return self._handlers.get(handler_call_details.method)

    async def stop(self) -> None:
        """Ends forwarded calls with their outcome, and forwards no more. Call `stop` before the servers stop."""
        await asyncio.gather(*[service.forwarder.stop(STOP_GRACE_S) for service in self._services])

    def _handler(self, service: _Service, method: Any) -> grpc.RpcMethodHandler:
        request, response = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
        if method.client_streaming:
            behaviour = self._submit if service is self._admin else self._keep_alive
            return grpc.stream_stream_rpc_method_handler(
                behaviour, request_deserializer=request.FromString, response_serializer=response.SerializeToString
            )

        async def answer_with_many(asked: Any, context: Any) -> None:
            try:
                await self._read(service, method.name, asked, context)
            except Refusal as e:
                await e.end(context)

        if method.server_streaming:
            return grpc.unary_stream_rpc_method_handler(
                answer_with_many,
                request_deserializer=request.FromString,
                response_serializer=response.SerializeToString,
            )

        async def answer(asked: Any, context: Any) -> Any:
            try:
                return await self._ask(service, method.name, asked, context)
            except Refusal as e:
                return await e.end(context)

        return grpc.unary_unary_rpc_method_handler(
            answer, request_deserializer=request.FromString, response_serializer=response.SerializeToString
        )

    async def _ask(self, service: _Service, name: str, request: Any, context: Any) -> Any:
        """The first answer of a controller. Raises Refusal, as `_first`."""

        async def ask(target: str, left_s: float, principal: str) -> Any:
            return await service.forwarder.ask(target, name, request, left_s, principal)

        return await self._first(service, request, context, ask)

    async def _read(self, service: _Service, name: str, request: Any, context: Any) -> None:
        """Hands on an answer of many messages: that of the first controller with a message. Raises Refusal, also after some
        messages."""

        async def ask(target: str, left_s: float, principal: str) -> Any:
            messages = service.forwarder.read(target, name, request, left_s, principal)
            return await anext(messages, None), messages

        message, messages = await self._first(service, request, context, ask)
        try:
            async with aclosing(messages):
                while message is not None:
                    await write(context, message)
                    message = await anext(messages, None)
        except NoAnswer as e:
            raise Refusal("NOT_READY", f"controller {e}") from e

    async def _first(
        self, service: _Service, request: Any, context: Any, ask: Callable[[str, float, str], Awaitable[Any]]
    ) -> Any:
        """The result of `ask` for the first controller that answers. The broker asks all in turn, until the deadline.

        Raises:
            Refusal: a controller has refused the request, or no controller has done anything, or a change may have happened.
        """
        caller = self._doors.caller(context)
        try:
            service.check(caller)
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
                    return await ask(target, left_s, caller.principal)
                except NoAnswer as e:
                    reason = "REQUEST_TIMED_OUT" if e.may_have_happened else "BROKER_NOT_AVAILABLE"
                    refusal = Refusal(reason, f"controller {e}")
                    if e.may_have_happened or service.forwarder.is_stopping():
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
            stub = await self._admin.forwarder.stub(target)
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

    async def _keep_alive(self, _: Any, context: Any) -> None:
        """Hands each message on to a controller, until the client closes the stream."""
        caller = self._doors.caller(context)
        relay = StreamRelay(self._entities.forwarder, "KeepAlive", in_the_name_of(caller.principal))
        try:
            while (request := await context.read()) is not grpc.aio.EOF:
                await context.write(await self._relayed(request, caller, relay))
        finally:
            relay.close()

    async def _relayed(
        self, request: entity_pb2.KeepAliveRequest, caller: Caller, relay: StreamRelay
    ) -> entity_pb2.KeepAliveResponse:
        """The answer of the first controller that knows a leader. A message may reach two controllers: that does no harm."""
        try:
            self._entities.check(caller)
        except NotAuthorized as e:
            return _not_kept(request, common_pb2.CLUSTER_AUTHORIZATION_FAILED, str(e))
        answer = _not_kept(request, common_pb2.BROKER_NOT_AVAILABLE, "no controller could be asked; nothing was done")
        for target in dict.fromkeys(self._targets()):
            try:
                answer = await relay.ask(target, request, RELAY_TIMEOUT_S)
            except NotRelayed as e:
                text = f"controller {e}; the session may have been kept alive; send again"
                answer = _not_kept(request, common_pb2.BROKER_NOT_AVAILABLE, text)
                continue
            if answer.error.code not in (common_pb2.NOT_CONTROLLER, common_pb2.BROKER_NOT_AVAILABLE):
                break
        return answer


def _not_kept(request: entity_pb2.KeepAliveRequest, code: Any, text: str) -> entity_pb2.KeepAliveResponse:
    return entity_pb2.KeepAliveResponse(id=request.id, error=common_pb2.Error(code=code, message=text))


def _timeout_s(request: Any, context: Any) -> float:
    """Returns the request's timeout, limited by the call's deadline and by TIMEOUT_S_MAX."""
    asked_s = request.context.timeout_ms / 1_000
    timeout_s = min(asked_s, TIMEOUT_S_MAX) if asked_s > 0 else DEFAULT_TIMEOUT_S
    remaining_s = context.time_remaining()
    return timeout_s if remaining_s is None else min(timeout_s, float(remaining_s))
