"""Requests that cannot be decoded: the call is refused, with at most one log line per second.

grpc.aio alone takes such a request for a failure of the method: it answers UNKNOWN and logs a traceback each time, without a
limit. A `Guard` wraps every method of a server, and decodes in grpc.aio's place. The guard also counts the calls
(`call_tallies`), because it sees each of them:

    1. A client sends 1,000 requests of random bytes within a second.
    2. Each call ends with INVALID_ARGUMENT and the reason INVALID_REQUEST: nothing was done (`refusals`).
    3. The log has one line with method and peer. The first line after that second has the number of the others.

A stream ends with INTERNAL, as in every gRPC server, and without a reason: its earlier requests may have been done. A failure
of the method itself keeps its traceback.
"""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from typing import Any, Final, NoReturn

import grpc
from google.protobuf.message import DecodeError

from service_kit.process.clock import now_s
from service_kit.process.logs import get_logger
from service_kit.process.tallies import Counter
from service_kit.rpc.call_tallies import CallTallies, code_name, method_name
from service_kit.rpc.refusals import Refusal

LINE_INTERVAL_S: Final = 1.0
TEXT: Final = "the request is not a message of this method"
STOPPING: Final = "this node is stopping; what was not answered may have been done"
REFUSAL: Final = Refusal("INVALID_REQUEST", f"{TEXT}; nothing was done")

log = get_logger(__name__)


class _Malformed:
    """Stands for a request that could not be decoded."""


_MALFORMED: Final = _Malformed()


class Guard:
    """The guard of one server. All its methods together log at most one line per second."""

    def __init__(self, tallies: CallTallies | None = None) -> None:
        self.tallies = tallies or CallTallies()
        self.calls = 0
        """How many calls this server has accepted so far."""
        self._leaving: asyncio.Event | None = None
        self._ending = asyncio.Event()
        self._told_s: float | None = None
        self._untold = 0

    def around(self, handler: grpc.GenericRpcHandler) -> grpc.GenericRpcHandler:
        """Wraps each method of `handler` in this guard."""
        return _Guarded(handler, self)

    def hold(self) -> None:
        """Makes new calls wait for `release` (`service_kit.rpc.server` has the reason)."""
        self._leaving = asyncio.Event()

    def release(self) -> None:
        """Lets the waiting calls go on; later calls do not wait."""
        assert self._leaving is not None
        self._leaving.set()

    async def held(self) -> None:
        """Returns at once, except for calls to a server that is about to stop."""
        if self._leaving is not None:
            await self._leaving.wait()

    def end_streams(self) -> None:
        """Ends the streams that are still open, with UNAVAILABLE.

        If gRPC cancelled them at the end of the grace, each would leave a traceback in the log, and a text about "all calls".
        """
        self._ending.set()

    async def until_ending(self, conversation: Coroutine[Any, Any, Any], context: Any) -> Any:
        """Runs a stream's method until it returns or `end_streams` is called.

        Raises:
            CancelledError: the client has gone while a message was on its way. grpc.aio would log a traceback for each such call.
        """
        conversing, ending = asyncio.ensure_future(conversation), asyncio.ensure_future(self._ending.wait())
        try:
            await asyncio.wait({conversing, ending}, return_when=asyncio.FIRST_COMPLETED)
            if conversing.done():
                return conversing.result()
        except grpc.aio.InternalError:
            raise asyncio.CancelledError from None
        finally:
            ending.cancel()
            conversing.cancel()
        await asyncio.gather(conversing, return_exceptions=True)
        return await context.abort(grpc.StatusCode.UNAVAILABLE, STOPPING)

    async def refuse(self, method: str, context: Any) -> NoReturn:
        """Ends a call whose only request cannot be decoded."""
        self._tell(method, context)
        await REFUSAL.end(context)

    async def break_off(self, method: str, context: Any) -> None:
        """Ends a stream with a request that cannot be decoded."""
        self._tell(method, context)
        await context.abort(grpc.StatusCode.INTERNAL, TEXT)

    def _tell(self, method: str, context: Any) -> None:
        """Writes a log line, or counts the call if the last line is less than a second old."""
        now_s = asyncio.get_running_loop().time()
        if self._told_s is None or now_s >= self._told_s + LINE_INTERVAL_S:
            log.warning("malformed request", method=method, peer=context.peer(), others_since=self._untold)
            self._told_s, self._untold = now_s, 0
        else:
            self._untold += 1


class _Guarded(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, handler: grpc.GenericRpcHandler, guard: Guard) -> None:
        self._handler = handler
        self._guard = guard
        self._methods: dict[str, grpc.RpcMethodHandler] = {}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        self._guard.calls += 1
        name = handler_call_details.method
        found = self._methods.get(name)
        if found is None:
            method = self._handler.service(handler_call_details)
            if method is None:  # not kept, because a stranger could fill the memory with invented names
                return None
            found = self._methods[name] = _guarded(method, name, self._guard)
        return found


def _guarded(method: Any, name: str, guard: Guard) -> grpc.RpcMethodHandler:
    """Wraps a method: a request that cannot be decoded is refused before the method, a stream's when the method reads it."""
    kind = f"{'stream' if method.request_streaming else 'unary'}_{'stream' if method.response_streaming else 'unary'}"
    behavior = getattr(method, kind)
    decode, encode = method.request_deserializer, method.response_serializer
    if not (inspect.iscoroutinefunction(behavior) or inspect.isasyncgenfunction(behavior)):
        return method
    if decode is not None and not method.request_streaming:
        decode = _tolerant(decode)
    service = method_name(name).partition("/")[0]
    if decode is not None:
        decode = _counting_received(decode, guard.tallies.received_bytes, service)
    if encode is not None:
        encode = _counting_sent(encode, guard.tallies.sent_bytes, service)
    if inspect.isasyncgenfunction(behavior):
        behavior = _writing(behavior)
    around = _around(behavior, name, guard, is_unary=kind == "unary_unary")
    make = getattr(grpc, f"{kind}_rpc_method_handler")
    return make(around, decode, encode)


def _counting_received(decode: Callable[[bytes], Any], tally: Counter, service: str) -> Callable[[bytes], Any]:
    values, labels = tally.values, (service,)  # `tally.add` would be a third of the cost of a small message

    def counting(data: bytes) -> Any:
        values[labels] = values.get(labels, 0) + len(data)
        return decode(data)

    return counting


def _counting_sent(encode: Callable[[Any], bytes], tally: Counter, service: str) -> Callable[[Any], bytes]:
    values, labels = tally.values, (service,)  # as above

    def counting(message: Any) -> bytes:
        data = encode(message)
        values[labels] = values.get(labels, 0) + len(data)
        return data

    return counting


def _tolerant(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def decoded(data: bytes) -> Any:
        try:
            return decode(data)
        except DecodeError:
            return _MALFORMED

    return decoded


def _writing(behavior: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Turns a generator of responses into a coroutine that writes them, so that the guard can end the stream."""

    async def write_all(request: Any, context: Any) -> None:
        async with aclosing(behavior(request, context)) as responses:
            async for response in responses:
                await context.write(response)

    return write_all


def _around(
    behavior: Callable[[Any, Any], Any], name: str, guard: Guard, *, is_unary: bool
) -> Callable[[Any, Any], Any]:
    method, tallies = method_name(name), guard.tallies

    async def guarded(request: Any, context: Any) -> Any:
        await guard.held()
        began_s = now_s()
        code = "CANCELLED"
        try:
            if request is _MALFORMED:
                await guard.refuse(name, context)
            try:
                answer = behavior(request, context)
                response = await (answer if is_unary else guard.until_ending(answer, context))
            except DecodeError:  # from a stream, which is decoded when the method reads it
                return await guard.break_off(name, context)
            code = code_name(context.code())
            return response
        except Exception:
            code = _failure(context)
            raise
        finally:
            tallies.requests.add(1, method, code)
            if is_unary:
                tallies.seconds.observe(now_s() - began_s, method)

    return guarded


def _failure(context: Any) -> str:
    """The code of a call that ended with an exception: that of its `abort`, or UNKNOWN for a failure of the method."""
    name = code_name(context.code())
    return "UNKNOWN" if name == "OK" else name
