"""A stream tells the server's status, also if gRPC makes up one because a write has met the end of the stream."""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from clients.streams import stream_status
from clients.streams.stream_status import Status, StreamStatus

MADE_UP = (grpc.StatusCode.INTERNAL, "Internal error from Core")
REFUSED = (grpc.StatusCode.PERMISSION_DENIED, "not in admin.principals")


class Call:
    """A call of gRPC: each status replaces the one before, and is told to the callbacks."""

    def __init__(self) -> None:
        self._status: Status = (grpc.StatusCode.OK, "")
        self._callbacks: list[Callable[[Any], None]] = []

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self._callbacks.append(callback)

    async def code(self) -> grpc.StatusCode:
        return self._status[0]

    async def details(self) -> str | None:
        return self._status[1]

    def end(self, status: Status) -> grpc.aio.AioRpcError:
        self._status = status
        for callback in self._callbacks:
            callback(self)
        return grpc.aio.AioRpcError(status[0], grpc.aio.Metadata(), grpc.aio.Metadata(), details=status[1])


async def test_the_servers_status_is_told_if_a_failed_write_replaces_it() -> None:
    """A refused change was told as one that may have happened."""
    call = Call()
    status = StreamStatus(call)
    call.end(REFUSED)
    assert await status.why(call.end(MADE_UP)) == REFUSED


async def test_the_servers_status_is_waited_for_if_a_failed_write_comes_first() -> None:
    call = Call()
    status = StreamStatus(call)
    asking = asyncio.create_task(status.why(call.end(MADE_UP)))
    await asyncio.sleep(0)
    assert not asking.done()
    call.end(REFUSED)
    assert await asking == REFUSED


async def test_a_server_that_says_nothing_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_status, "STATUS_WAIT_S", 0.001)
    call = Call()
    assert await StreamStatus(call).why(call.end(MADE_UP)) == MADE_UP


async def test_any_other_status_is_told_at_once() -> None:
    """INTERNAL of the server is the server's own."""
    call = Call()
    for told in (REFUSED, (grpc.StatusCode.INTERNAL, "the handler failed"), (grpc.StatusCode.UNAVAILABLE, None)):
        assert await StreamStatus(call).why(call.end(told)) == told
