"""Bytes that are no message: an error for their sender, and next to nothing for the log."""

import asyncio
import contextlib
import io
import logging
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2

from service_kit.process.endpoints import HostPort
from service_kit.process.logs import Logs
from service_kit.rpc.call_tallies import CallTallies
from service_kit.rpc.dial import Dialer
from service_kit.rpc.malformed_messages import LINE_INTERVAL_S, Guard
from service_kit.rpc.refusals import Refusal
from service_kit.rpc.server import serving

GARBAGE = b"\xff" * 20
Message = health_pb2.HealthCheckRequest


async def unary(request: Any, context: Any) -> Any:
    return request


async def from_a_stream(request_iterator: Any, context: Any) -> None:
    while (request := await context.read()) is not grpc.aio.EOF:
        await context.write(request)


async def from_an_iterator(request_iterator: Any, context: Any) -> AsyncIterator[Any]:
    async for request in request_iterator:
        yield request


async def to_a_stream(request: Any, context: Any) -> AsyncIterator[Any]:
    yield request


async def fails(request: Any, context: Any) -> Any:
    raise RuntimeError("a mistake of ours")


async def refuses(request: Any, context: Any) -> Any:
    await context.abort(grpc.StatusCode.NOT_FOUND, "not here")


METHODS = {
    "Unary": grpc.unary_unary_rpc_method_handler,
    "Read": grpc.stream_stream_rpc_method_handler,
    "Iterate": grpc.stream_stream_rpc_method_handler,
    "Stream": grpc.unary_stream_rpc_method_handler,
    "Fail": grpc.unary_unary_rpc_method_handler,
    "Refuse": grpc.unary_unary_rpc_method_handler,
}
BEHAVIORS = {
    "Unary": unary,
    "Read": from_a_stream,
    "Iterate": from_an_iterator,
    "Stream": to_a_stream,
    "Fail": fails,
    "Refuse": refuses,
}


def echo(server: Any) -> None:
    handlers = {
        name: make(BEHAVIORS[name], Message.FromString, Message.SerializeToString) for name, make in METHODS.items()
    }
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("test.Echo", handlers)])


async def ask(channel: grpc.aio.Channel, name: str, data: bytes) -> bytes:
    """The first answer to a request that is these bytes."""
    if METHODS[name] is grpc.unary_unary_rpc_method_handler:
        answer: bytes = await channel.unary_unary(f"/test.Echo/{name}")(data, timeout=5)
    elif METHODS[name] is grpc.unary_stream_rpc_method_handler:
        answer = await channel.unary_stream(f"/test.Echo/{name}")(data, timeout=5).read()
    else:
        call = channel.stream_stream(f"/test.Echo/{name}")(timeout=5)
        await call.write(data)
        answer = await call.read()
        call.cancel()
    return answer


@pytest.fixture
async def channel() -> AsyncIterator[grpc.aio.Channel]:
    async with serving(HostPort("127.0.0.1", 0), echo, grace_s=0) as port, Dialer() as dialer:
        yield dialer(f"127.0.0.1:{port}")


async def test_garbage_costs_the_log_one_line_and_no_traceback(
    channel: grpc.aio.Channel, caplog: pytest.LogCaptureFixture
) -> None:
    """Five malformed requests of each kind of method; good requests are answered after each five.

    A method with one request refuses it, with a reason: nothing was done. A stream breaks, as any stream does: its earlier
    requests may have been done.
    """
    written, good = io.StringIO(), Message(service="orders").SerializeToString()
    with caplog.at_level(logging.INFO), Logs(stream=written, log_format="json"):
        for name in ("Unary", "Read", "Iterate", "Stream"):
            for _ in range(5):
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await ask(channel, name, GARBAGE)
                refusal = Refusal.of(refused.value)
                if name in ("Read", "Iterate"):
                    assert (refused.value.code(), refusal) == (grpc.StatusCode.INTERNAL, None)
                else:
                    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
                    assert refusal is not None and refusal.reason == "INVALID_REQUEST"
                assert "is not a message of this method" in (refused.value.details() or "")
            assert await ask(channel, name, good) == good
    assert "Traceback" not in written.getvalue() + caplog.text
    lines = [line for line in written.getvalue().splitlines() if "malformed" in line]
    assert 1 <= len(lines) <= 5, lines
    assert "/test.Echo/Unary" in lines[0] and "127.0.0.1" in lines[0]


async def test_a_mistake_of_our_own_keeps_its_traceback(
    channel: grpc.aio.Channel, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(grpc.aio.AioRpcError):
        await ask(channel, "Fail", b"")
    assert "a mistake of ours" in caplog.text


async def test_a_client_that_leaves_while_a_message_is_written_is_no_error() -> None:
    """1,000 watches of a client that was killed left 36 tracebacks in the log of a controller."""

    async def writes() -> None:
        raise grpc.aio.InternalError("Failed execute_batch")

    with pytest.raises(asyncio.CancelledError):
        await Guard().until_ending(writes(), None)


async def test_every_call_is_counted_by_method_and_code_with_its_bytes() -> None:
    """Refused, failed and answered ones, and streams. Calls of unknown methods are not: strangers choose those names."""
    tallies, good = CallTallies(), Message(service="orders").SerializeToString()
    async with serving(HostPort("127.0.0.1", 0), echo, grace_s=0, tallies=tallies) as port, Dialer() as dialer:
        channel = dialer(f"127.0.0.1:{port}")
        for name, data in (("Unary", good), ("Unary", good), ("Unary", GARBAGE), ("Fail", good), ("Refuse", good)):
            with contextlib.suppress(grpc.aio.AioRpcError):
                await ask(channel, name, data)
        assert await ask(channel, "Stream", good) == good
        with pytest.raises(grpc.aio.AioRpcError):
            await channel.unary_unary("/test.Echo/Nothing")(good, timeout=5)
    assert tallies.requests.values == {
        ("Echo/Unary", "OK"): 2,
        ("Echo/Unary", "INVALID_ARGUMENT"): 1,
        ("Echo/Fail", "UNKNOWN"): 1,
        ("Echo/Refuse", "NOT_FOUND"): 1,
        ("Echo/Stream", "OK"): 1,
    }
    assert tallies.received_bytes.values == {("Echo",): 5 * len(good) + len(GARBAGE)}
    assert tallies.sent_bytes.values == {("Echo",): 3 * len(good)}
    assert {labels: sum(each.counts) for labels, each in tallies.seconds.series.items()} == {
        ("Echo/Unary",): 3,
        ("Echo/Fail",): 1,
        ("Echo/Refuse",): 1,
    }


class Call:
    def peer(self) -> str:
        return "ipv4:10.0.0.1:5"

    async def abort(self, code: grpc.StatusCode, text: str) -> None:
        return None


async def test_the_next_line_says_how_many_had_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three within a second: one line. The fourth, later: a line that counts the two."""
    told: list[int] = []
    monkeypatch.setattr(
        "service_kit.rpc.malformed_messages.log.warning", lambda event, **fields: told.append(fields["others_since"])
    )
    guard = Guard()
    for _ in range(3):
        await guard.break_off("/a", Call())
    assert told == [0]
    assert guard._told_s is not None
    guard._told_s -= LINE_INTERVAL_S
    await guard.break_off("/a", Call())
    assert told == [0, 2]
