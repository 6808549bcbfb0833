"""A client of watches that goes on at another node whenever a stream ends, as any client has to."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import cycle

import grpc
from quorum_rpc.v1 import watch_pb2, watch_pb2_grpc


class Follower:
    """One watch over many streams."""

    def __init__(self, shown: watch_pb2.WatchFilter) -> None:
        self.events: list[watch_pb2.WatchEvent] = []
        """The events of all whole messages, in order."""
        self.resets: list[int] = []
        self.nodes: list[str] = []
        """The nodes that have answered, in order."""
        self.began = asyncio.Event()
        """Set with the first message."""
        self._shown = shown
        self._position: watch_pb2.WatchPosition | None = None

    @property
    def offsets(self) -> list[int]:
        return [event.offset for event in self.events]

    async def follow(self, endpoints: Sequence[str], enough: Callable[[], bool]) -> None:
        """Watches at these nodes, one after the other, until `enough`. The first watch begins now."""
        for endpoint in cycle(endpoints):
            try:
                async with asyncio.timeout(30), grpc.aio.insecure_channel(endpoint) as channel:
                    if await self._stream(channel, endpoint, enough):
                        return
            except grpc.aio.AioRpcError as e:
                assert e.code() is not grpc.StatusCode.INVALID_ARGUMENT, e
                await asyncio.sleep(0.05)

    async def _stream(self, channel: grpc.aio.Channel, endpoint: str, enough: Callable[[], bool]) -> bool:
        request = watch_pb2.WatchRequest(filter=self._shown, position=self._position, bookmark_interval_ms=200)
        request.from_now = self._position is None
        opened: list[watch_pb2.WatchEvent] = []
        is_first = True
        async for message in watch_pb2_grpc.WatchServiceStub(channel).Watch(request):  # type: ignore[no-untyped-call]
            if is_first:
                self.nodes.append(endpoint)
                is_first = False
            opened += message.events
            if message.is_whole:
                self.events += opened
                opened.clear()
                self._position = message.position
                self.began.set()
            if message.reset:
                self.resets.append(message.reset)
            if enough():
                return True
        return False
