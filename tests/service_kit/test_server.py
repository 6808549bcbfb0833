"""Servers, channels and health, over real sockets on loopback."""

import asyncio
import contextlib
import gc
import json
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from service_kit.process import descriptors
from service_kit.process.endpoints import HostPort
from service_kit.process.metrics import Kind, Metric, Metrics
from service_kit.process.run import EXIT_CONFIG, EXIT_OK, run
from service_kit.rpc.binding import CannotBind, PortInUse
from service_kit.rpc.dial import Dialer
from service_kit.rpc.grpc_options import MESSAGE_BYTES_MAX, server_options
from service_kit.rpc.health import ADMIN, HEAD_BYTES_MAX, LIVE, QUORUM, Health, _Handler, answer, serving_http
from service_kit.rpc.malformed_messages import STOPPING
from service_kit.rpc.server import serving

ANY = HostPort("127.0.0.1", 0)


async def _echo(request: bytes, context: Any) -> bytes:
    return request


def echo(server: grpc.aio.Server) -> None:
    """A service of raw bytes."""
    method = grpc.unary_unary_rpc_method_handler(_echo)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("test.Echo", {"Echo": method})])


async def call(dialer: Dialer, port: int, message: bytes) -> bytes:
    answer: bytes = await dialer(f"127.0.0.1:{port}").unary_unary("/test.Echo/Echo")(message, timeout=5)
    return answer


async def test_serves_and_frees_its_port() -> None:
    """Inside of the block calls are answered; after it the port can be had again."""
    async with Dialer() as dialer:
        async with serving(ANY, echo) as port:
            assert await call(dialer, port, b"hello") == b"hello"
            assert dialer(f"127.0.0.1:{port}") is dialer(f"127.0.0.1:{port}")
        async with serving(HostPort("127.0.0.1", port), echo) as again:
            assert again == port
            echoed: bytes = await dialer(f"127.0.0.1:{port}").unary_unary("/test.Echo/Echo")(
                b"hello", timeout=5, wait_for_ready=True
            )
            assert echoed == b"hello"  # the same channel has connected again


@pytest.mark.slow
async def test_whoever_asks_again_at_once_is_not_cut_off_either() -> None:
    """Fifty clients that go nowhere else, however often they are refused: a server that stops answers each call that comes in,
    and the next one finds no connection. None ends with CANCELLED, of which nobody knows what became."""
    ended: Counter[str] = Counter()

    async def asks(dialer: Dialer, port: int) -> None:
        while True:
            try:
                await call(dialer, port, b"and again")
            except grpc.aio.AioRpcError as e:
                ended[e.code().name] += 1
                return
            ended["answered"] += 1

    async with Dialer() as dialer:
        async with serving(ANY, echo, grace_s=0.3) as port:
            clients = [asyncio.create_task(asks(dialer, port)) for _ in range(50)]
            while ended["answered"] < 500:
                await asyncio.sleep(0)
        await asyncio.gather(*clients)
    assert ended["UNAVAILABLE"] == 50, ended


@pytest.mark.slow
async def test_who_says_nothing_takes_no_place_for_long() -> None:
    """Three places, and ten connections over which nothing is said: those beyond the third are hung up on at once, the others in
    time, and then somebody who speaks gets in. Who was there before is answered all the while."""
    timeout = ("grpc.server_handshake_timeout_ms", 300)
    assert dict(server_options()).get(timeout[0]) == descriptors.SILENCE_MS, (
        "of a real server, for which no test has the time"
    )
    options = [timeout, *(option for option in server_options(connections=3) if option[0] != timeout[0])]
    async with serving(ANY, echo, options=options) as port, Dialer() as early, AsyncExitStack() as stack:
        assert await call(early, port, b"first") == b"first"
        silent = [await stack.enter_async_context(connection(port)) for _ in range(10)]
        ended = [asyncio.ensure_future(each.read()) for each in silent]
        for hung_up in asyncio.as_completed(ended[:]):
            await hung_up
            if sum(each.done() for each in ended) >= 8:
                break
        assert await call(early, port, b"still") == b"still"
        async with Dialer() as late:
            echoed = late(f"127.0.0.1:{port}").unary_unary("/test.Echo/Echo")(b"in", timeout=5, wait_for_ready=True)
            assert await echoed == b"in"
        await asyncio.gather(*ended)


@pytest.mark.parametrize("kind", ["coroutine", "generator"])
async def test_an_idle_stream_is_ended_with_a_reason_when_the_server_stops(kind: str) -> None:
    """gRPC alone would cancel the stream at the end of the grace, and write a traceback for it now and then."""
    ended = asyncio.Event()

    async def chat(_: Any, context: Any) -> None:
        try:
            while (message := await context.read()) is not grpc.aio.EOF:
                await context.write(message)
        finally:
            ended.set()

    async def generated(messages: AsyncIterator[bytes], _: Any) -> AsyncIterator[bytes]:
        try:
            async for message in messages:
                yield message
        finally:
            ended.set()

    def chatting(server: grpc.aio.Server) -> None:
        method = grpc.stream_stream_rpc_method_handler(chat if kind == "coroutine" else generated)
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("test.Chat", {"Chat": method})])

    async with Dialer() as dialer:
        async with serving(ANY, chatting, grace_s=0.1) as port:
            stream = dialer(f"127.0.0.1:{port}").stream_stream("/test.Chat/Chat")()
            await stream.write(b"hello")
            assert await stream.read() == b"hello"
        assert ended.is_set()
        assert await stream.code() is grpc.StatusCode.UNAVAILABLE
        assert await stream.details() == STOPPING


async def test_streams_of_reflection_and_health_are_ended_with_a_reason_too() -> None:
    """Every node serves them. A watcher of the health first learns that the node stops."""
    async with Dialer() as dialer:
        async with serving(ANY, echo, health=Health(), reflect=["test.Echo"], grace_s=0.1) as port:
            channel = dialer(f"127.0.0.1:{port}")
            reflected = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo()
            await reflected.write(reflection_pb2.ServerReflectionRequest(list_services=""))
            await reflected.read()
            watched = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=LIVE))
            assert (await watched.read()).status == health_pb2.HealthCheckResponse.SERVING
        assert (await watched.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        for stream in (reflected, watched):
            assert (await stream.code(), await stream.details()) == (grpc.StatusCode.UNAVAILABLE, STOPPING)


@contextlib.asynccontextmanager
async def connection(port: int) -> AsyncIterator[asyncio.StreamReader]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    yield reader
    writer.close()


def test_connections_leave_room_for_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is open, and what a process needs itself, is taken off first; several servers share the rest."""
    monkeypatch.setattr(descriptors, "files_max", lambda: 64)
    monkeypatch.setattr(descriptors, "_files_open", lambda: 20)
    assert descriptors.connections_max() == 20
    assert descriptors.connections_max(servers=4) == 5
    assert descriptors.connections_max(servers=40) == descriptors.CONNECTIONS_MIN


def test_a_process_that_may_open_too_few_files_does_not_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would end at some vote. The exit code says that a restart will not help, and the line says what to raise."""

    async def main() -> int:
        return EXIT_OK

    monkeypatch.setattr("service_kit.process.run.raise_file_limit", lambda: 63)
    assert run(main) == EXIT_CONFIG
    assert "LimitNOFILE" in capsys.readouterr().err
    monkeypatch.setattr("service_kit.process.run.raise_file_limit", lambda: 64)
    assert run(main) == EXIT_OK


async def test_a_used_port_is_a_clear_error() -> None:
    """Two servers never share a port silently, be the other one ours or a stranger's."""
    async with serving(ANY, echo) as port:
        with pytest.raises(PortInUse, match=f"cannot listen on 127.0.0.1:{port}: the port is in use"):
            async with serving(HostPort("127.0.0.1", port), echo):
                raise AssertionError("never entered")
    with socket.create_server(("127.0.0.1", 0)) as stranger, pytest.raises(PortInUse):
        async with serving(HostPort("127.0.0.1", stranger.getsockname()[1]), echo):
            raise AssertionError("never entered")


async def test_a_used_port_for_metrics_is_named_with_its_key() -> None:
    """A daemon has several listeners: the operator learns which key to change."""
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        said = rf"^metrics\.listener: cannot listen on 127\.0\.0\.1:{port}: the port is in use$"
        with pytest.raises(PortInUse, match=said):
            async with serving_http(HostPort("127.0.0.1", port), Health()):
                raise AssertionError("never entered")
    with pytest.raises(CannotBind, match=r"^metrics\.listener: cannot listen on 192\.0\.2\.77:9: Cannot assign"):
        async with serving_http(HostPort("192.0.2.77", 9), Health()):
            raise AssertionError("never entered")


async def test_an_address_of_another_machine_cannot_be_bound() -> None:
    """The reason is the operating system's own."""
    with pytest.raises(CannotBind, match=r"cannot listen on 192\.0\.2\.77:9: Cannot assign"):
        async with serving(HostPort("192.0.2.77", 9), echo):
            raise AssertionError("never entered")


async def test_too_large_a_message_is_refused_and_the_server_lives() -> None:
    """The limit is on what is received; the next call is answered on the same channel."""
    async with Dialer() as dialer, serving(ANY, echo) as port:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(dialer, port, bytes(MESSAGE_BYTES_MAX + 1))

        assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await call(dialer, port, b"small") == b"small"


async def test_grpc_health() -> None:
    """`""` is well from the start; the quorum when it is set so; nothing when the server leaves."""
    health = Health()
    async with Dialer() as dialer, serving(ANY, echo, health=health) as port:
        stub = health_pb2_grpc.HealthStub(dialer(f"127.0.0.1:{port}"))

        async def said(service: str) -> int:
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=5)
            return int(answer.status)

        serving_, not_serving = 1, 2
        assert [await said(service) for service in (LIVE, QUORUM, ADMIN)] == [serving_, not_serving, not_serving]
        await health.set(QUORUM, None)
        assert await said(QUORUM) == serving_
        await health.set(QUORUM, "no leader for 3 s")
        assert await said(QUORUM) == not_serving
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await said("nonsense")
        assert unknown.value.code() == grpc.StatusCode.NOT_FOUND

    assert set(health.checks().values()) == {"stopping"}


async def test_reflection_shows_what_it_is_told_to() -> None:
    """grpcurl can list services; only if asked for."""
    async with Dialer() as dialer, serving(ANY, echo, reflect=["test.Echo"]) as port:
        stub = reflection_pb2_grpc.ServerReflectionStub(dialer(f"127.0.0.1:{port}"))
        asked = reflection_pb2.ServerReflectionRequest(list_services="")
        call = stub.ServerReflectionInfo(iter([asked]), timeout=5)
        answer = await call.read()

    assert {s.name for s in answer.list_services_response.service} >= {"test.Echo"}


Get = Callable[[bytes], Awaitable[tuple[int, bytes]]]


def getter(port: int) -> Get:
    async def get(request: bytes) -> tuple[int, bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(request)
            answer = await reader.read()
        finally:
            writer.close()
        head, _, body = answer.partition(b"\r\n\r\n")
        return (int(head.split()[1]) if head else 0), body

    return get


async def test_http_health_and_metrics() -> None:
    """A lost quorum makes a node not ready, but never not alive: killing it would not help."""
    health, metrics = Health(), Metrics()
    metrics.add_table([Metric("current_epoch", Kind.GAUGE, "The epoch.", lambda _: 7)], lambda: None)
    async with serving_http(ANY, health, metrics) as port:
        get = getter(port)
        assert await get(b"GET /livez HTTP/1.1\r\n\r\n") == (200, b"ok\n")
        assert await get(b"GET /readyz HTTP/1.1\r\n\r\n") == (503, b"starting\n")
        await health.set(QUORUM, None)
        assert await get(b"GET /readyz?verbose HTTP/1.1\r\nHost: x\r\n\r\n") == (200, b"ok\n")
        status, body = await get(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert (status, json.loads(body)) == (503, {"live": "ok", "quorum": "ok", "admin": "starting"})
        await health.set(ADMIN, None)
        health.remark({"publisher shards": "it fails"})
        status, body = await get(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert (status, json.loads(body)["publisher shards"]) == (503, "it fails")
        assert await get(b"GET /readyz HTTP/1.1\r\n\r\n") == (200, b"ok\n")
        status, body = await get(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert (status, b"metaquorum_current_epoch 7.0\n" in body) == (200, True)


async def test_the_http_side_closes_what_it_has_accepted_however_far_it_got() -> None:
    """A connection whose task is ended before its first step, or that came about as the port was closed: else it would be left
    to the garbage collector."""
    handler = _Handler(lambda path: answer(path, Health(), None))

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handler(reader, writer)
        for task in handler._tasks:
            task.cancel()

    async with await asyncio.start_server(accepted, "127.0.0.1", 0) as server:
        for _ in range(2):
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            async with asyncio.timeout(3):  # less than a request may take
                with contextlib.suppress(ConnectionResetError):  # as good as an orderly end
                    assert await reader.read() == b""
            writer.close()
            await handler.close()


async def test_a_failed_answer_over_http_is_logged() -> None:
    """A number that cannot be read is an OSError, as a client that is gone: only the client's errors are left aside."""

    def fails(_: object) -> float:
        raise OSError("cannot read /proc")

    metrics = Metrics()
    metrics.add_table([Metric("files", Kind.GAUGE, "The files.", fails)], lambda: None)
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(str(context.get("exception"))))
    async with serving_http(ANY, Health(), metrics) as port:
        assert await getter(port)(b"GET /metrics HTTP/1.1\r\n\r\n") == (0, b"")
    gc.collect()  # asyncio tells of a task's error when the task is deleted
    assert told == ["cannot read /proc"]


async def test_http_rubbish() -> None:
    """Whatever is sent, the answer is short and the server lives."""
    async with serving_http(ANY, Health()) as port:
        get = getter(port)
        assert (await get(b"POST /livez HTTP/1.1\r\n\r\n"))[0] == 405
        assert (await get(b"GET /metrics HTTP/1.1\r\n\r\n"))[0] == 404
        assert (await get(b"\x16\x03\x01\r\n\r\n"))[0] == 400
        assert await get(b"HEAD /livez HTTP/1.1\r\n\r\n") == (200, b"")
        try:
            too_long = await get(b"x" * (4 * HEAD_BYTES_MAX) + b"\r\n\r\n")
        except ConnectionError:
            too_long = (0, b"")
        assert too_long == (0, b"")
        assert (await get(b"GET /livez HTTP/1.1\r\n\r\n"))[0] == 200
