"""Calls the services' methods without gRPC: one call, one answer, on an event loop that nothing else is on."""

import asyncio
from functools import cache, partial
from typing import Any

import grpc
from quorum_rpc.v1 import admin_pb2, broker_pb2, common_pb2, entity_pb2, voter_pb2, watch_pb2

from metadata_log.format.errors import ErrorCode
from quorum.wire.table_service import TableService
from service_kit.rpc.refusals import Refusal
from watches.service.watch_service import WatchService

SERVICES = {
    name: file.DESCRIPTOR.services_by_name[name]
    for name, file in (
        ("VoterService", voter_pb2),
        ("BrokerService", broker_pb2),
        ("AdminService", admin_pb2),
        ("EntityService", entity_pb2),
        ("WatchService", watch_pb2),
    )
}
METHODS = {f"{name}.{method.name}": method for name, service in SERVICES.items() for method in service.methods}
"""Every RPC between controllers, of brokers, of operators and of embedders, by `Service.Method`."""

STEPS_MAX = 50
"""How many steps of the event loop a watch gets for its first message."""


class Context:
    """What a handler sees of its call: no deadline, no certificate, and for a stream one message."""

    def __init__(self, request: Any) -> None:
        self._requests = [request]
        self.written: list[Any] = []

    def time_remaining(self) -> float | None:
        return None

    def invocation_metadata(self) -> tuple[tuple[str, bytes], ...]:
        return ()

    def auth_context(self) -> dict[str, list[bytes]]:
        return {}

    async def abort(self, code: grpc.StatusCode, details: str, trailing_metadata: Any = ()) -> None:
        raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing_metadata), details)

    async def read(self) -> Any:
        return self._requests.pop() if self._requests else grpc.aio.EOF

    async def write(self, message: Any) -> None:
        self.written.append(message)


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


def _handler(servicer: Any, method: str) -> Any:
    if isinstance(servicer, TableService):
        streams = {"Submit": "submit", "KeepAlive": "keep_alive", "ReadTree": "read_tree"}
        return getattr(servicer, streams[method]) if method in streams else partial(servicer.answer, method)
    if isinstance(servicer, WatchService):
        return servicer.watch
    return getattr(servicer, method)


def call(servicer: Any, method: str, request: Any) -> Any:
    """The (first) answer of `servicer` to `request`: a refusal is an Error. None where a stream ends without an answer."""
    context = Context(request)
    handler = _handler(servicer, method)

    async def work() -> Any:
        if method in ("Fetch", "MetadataFetch", "Submit", "KeepAlive"):
            await handler(None, context)
            return context.written[0] if context.written else None
        if method == "FetchMetadataSnapshot":
            return await anext(handler(request, context))
        try:
            if method == "Watch":
                return await _first_message(servicer, request, context)
            if method == "ReadTree":
                await handler(request, context)
                return context.written[0]
            return await handler(request, context)
        except grpc.aio.AioRpcError as e:
            refusal = Refusal.of(e)
            assert refusal is not None, e
            return common_pb2.Error(code=int(ErrorCode[refusal.reason]), message=refusal.message)  # type: ignore[arg-type]

    return _loop().run_until_complete(work())


async def _first_message(servicer: WatchService, request: Any, context: Context) -> Any:
    """The first message of a watch; None if the watch waits for the node, or for a thread."""
    watching = asyncio.get_running_loop().create_task(servicer.watch(request, context))
    for _ in range(STEPS_MAX):
        await asyncio.sleep(0)
        if context.written or watching.done():
            break
    if not watching.done():
        watching.cancel()
        await asyncio.wait({watching})
    await servicer.close()
    if not watching.cancelled():
        watching.result()
    return watch_pb2.WatchResponse.FromString(context.written[0]) if context.written else None


def codes_of(answer: Any) -> list[ErrorCode]:
    """Every error that an answer names, as a whole and of its parts."""
    found: list[ErrorCode] = []
    if answer is None:
        return found
    if answer.DESCRIPTOR.name == "Standing":
        found += [ErrorCode(answer.error)] if answer.error else []
    elif answer.DESCRIPTOR.name == "Error":
        found += [ErrorCode(answer.code)] if answer.code else []
    for field, value in answer.ListFields():
        if field.message_type is not None:
            for each in value if field.is_repeated else (value,):
                found += codes_of(each)
    return found
