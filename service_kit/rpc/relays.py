"""A relay of a stream of messages and answers: each message of a client goes on to one node, and its answer goes back.

One message is under way at a time. The relay keeps its stream to the node while the node stays the same. Example:
    1. A client keeps its session alive through controller 1, which follows controller 2. Controller 1 opens a stream to
       controller 2, and hands the message on.
    2. The next messages take the same stream.
    3. Controller 3 is elected. Controller 1 closes the stream, and opens one to controller 3.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import grpc

from service_kit.rpc.dial import WrongServer
from service_kit.rpc.forwarding import Forwarder


class NotRelayed(Exception):
    """The message has no answer. The text says why."""


class StreamRelay:
    """The relay of one client's stream to one method of other nodes."""

    def __init__(self, forwarder: Forwarder, method: str, metadata: Sequence[tuple[str, Any]]) -> None:
        self._forwarder = forwarder
        self._method = method
        self._metadata = tuple(metadata)
        self._target: str | None = None
        self._call: Any = None

    async def ask(self, target: str, message: Any, timeout_s: float, node_id: int | None = None) -> Any:
        """Returns the answer of the node at `target`.

        Raises:
            NotRelayed: no answer came. The node may have taken the message.
        """
        try:
            async with asyncio.timeout(timeout_s):
                call = await self._stream_to(target, node_id)
                await call.write(message)
                answer = await call.read()
        except (WrongServer, OSError, grpc.aio.AioRpcError, asyncio.InvalidStateError) as e:
            self.close()
            why = e.details() if isinstance(e, grpc.aio.AioRpcError) else str(e) or "no answer in time"
            raise NotRelayed(f"{target}: {why}") from e
        if answer is None or answer is grpc.aio.EOF:
            self.close()
            raise NotRelayed(f"{target} has closed the stream")
        return answer

    async def _stream_to(self, target: str, node_id: int | None) -> Any:
        if self._call is None or self._target != target:
            self.close()
            stub = await self._forwarder.stub(target, node_id)
            self._target, self._call = target, getattr(stub, self._method)(metadata=self._metadata)
        return self._call

    def close(self) -> None:
        """Ends the stream to the other node."""
        if self._call is not None:
            with contextlib.suppress(asyncio.InvalidStateError):
                self._call.cancel()
        self._target = self._call = None
