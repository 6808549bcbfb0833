"""The server's status of a stream, also if a write meets the end of the stream.

gRPC makes up a status when a write fails, INTERNAL with the text "Internal error from Core". Example, a server refuses a stream:
  1. The client writes a call, while the refusal is under way.
  2. The write fails, because the stream has ended. gRPC says INTERNAL, in the place of the server's status or before it comes.
  3. The client would say that the call may have happened. The server has said PERMISSION_DENIED: nothing was done.

gRPC calls back for each status that it sets, so the server's own is seen, before or behind step 2.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

import grpc

STATUS_WAIT_S: Final = 0.5
"""How long to wait for the server's status after a write has met the end of the stream."""
_MADE_UP: Final = (grpc.StatusCode.INTERNAL, "Internal error from Core")

Status = tuple[grpc.StatusCode, str | None]


class StreamStatus:
    """Remembers the status that the server has given to one call."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._told: Status | None = None
        self._is_told = asyncio.Event()
        call.add_done_callback(self._note)

    def _note(self, _: Any) -> None:
        status = _at_once(self._call.code()), _at_once(self._call.details())
        if status != _MADE_UP:
            self._told = status
            self._is_told.set()

    async def why(self, error: grpc.aio.AioRpcError) -> Status:
        """Returns the server's status for `error`, with which the stream ended; that of `error` if the server gives none soon."""
        status = error.code(), error.details()
        if status != _MADE_UP:
            return status
        try:
            async with asyncio.timeout(STATUS_WAIT_S):
                await self._is_told.wait()
        except TimeoutError:
            return status
        assert self._told is not None
        return self._told


def _at_once(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Returns the result of a coroutine that has nothing to wait for, as those of a call that is done."""
    try:
        coroutine.send(None)
    except StopIteration as e:
        return e.value
    raise AssertionError("a call that is done has a status")
