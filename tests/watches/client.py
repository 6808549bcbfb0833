"""A client of a watch without gRPC: it keeps what it got, and knows the rules of the protocol."""

import asyncio
from typing import Any

import grpc
from quorum_rpc.v1 import watch_pb2

from service_kit.rpc.refusals import Refusal
from watches.service.watch_service import WatchService


class Client:
    """One call of Watch, and what it has shown so far."""

    def __init__(self, service: WatchService, request: watch_pb2.WatchRequest | None = None, **fields: Any) -> None:
        self.messages: list[watch_pb2.WatchResponse] = []
        self.events: list[watch_pb2.WatchEvent] = []
        """The events of whole messages, without those of a RESET."""
        self.state: list[watch_pb2.WatchEvent] = []
        """The events of the last RESET."""
        self.resets: list[int] = []
        self.position: watch_pb2.WatchPosition | None = None
        self.refusal: Refusal | None = None
        self.gate = asyncio.Event()
        """Cleared: the client takes no message."""
        self.gate.set()
        self.offered = asyncio.Event()
        """Set when the node has written a message, taken or not."""
        self._open: list[watch_pb2.WatchEvent] = []
        self._news = asyncio.Event()
        asked = request or watch_pb2.WatchRequest(**fields)
        self.task = asyncio.get_running_loop().create_task(self._call(service, asked))

    async def _call(self, service: WatchService, request: watch_pb2.WatchRequest) -> None:
        try:
            await service.watch(request, self)
        except grpc.aio.AioRpcError as e:
            self.refusal = Refusal.of(e)
        finally:
            self._news.set()

    # --- the context of the call -------------------------------------------------------------------------------------

    async def write(self, data: bytes) -> None:
        self.offered.set()
        await self.gate.wait()
        message = watch_pb2.WatchResponse.FromString(data)
        self.messages.append(message)
        if message.reset and (not self._open or not self._was_reset):
            self._open = []
        self._was_reset = bool(message.reset)
        self._open += message.events
        if message.is_whole:
            assert message.position.offset > 0 or message.HasField("position")
            if message.reset:
                self.resets.append(message.reset)
                self.state = self._open
            else:
                self.events += self._open
            self._open, self.position = [], message.position
        self._news.set()

    _was_reset = False

    async def abort(self, code: grpc.StatusCode, details: str, trailing_metadata: Any = ()) -> None:
        raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing_metadata), details)

    def invocation_metadata(self) -> tuple[tuple[str, bytes], ...]:
        return ()

    def auth_context(self) -> dict[str, list[bytes]]:
        return {}

    # --- for tests ---------------------------------------------------------------------------------------------------

    @property
    def offset(self) -> int:
        """Everything below is seen."""
        return -1 if self.position is None else self.position.offset

    @property
    def offsets(self) -> list[int]:
        """The offsets of the events."""
        return [event.offset for event in self.events]

    async def until(self, offset: int) -> None:
        """Returns when everything below `offset` is seen."""
        await self._when(lambda: self.offset >= offset)

    async def reaches(self, offset: int) -> bool:
        """Returns True when everything below `offset` is seen, and False if the node ends the call before."""
        await self._when(lambda: self.offset >= offset or self.task.done())
        return self.offset >= offset

    async def ended(self) -> Refusal:
        """Returns the reason why the call has ended."""
        await self._when(self.task.done)
        self.task.result()
        assert self.refusal is not None
        return self.refusal

    async def _when(self, condition: Any) -> None:
        async with asyncio.timeout(5):
            while not condition():
                if self.task.done():
                    self.task.result()
                    raise AssertionError(f"the watch has ended: {self.refusal!r}")
                self._news.clear()
                await self._news.wait()

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
