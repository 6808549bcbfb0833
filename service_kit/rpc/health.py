"""Health checks of a node: gRPC's standard health service, and HTTP for clients without gRPC.

There are three checks. They are separate because a supervisor that kills nodes when the *quorum* is lost turns one failure into
many:

  * `""`, /livez:       the process is alive and its event loop runs;
  * `quorum`, /readyz:  the node knows a leader and does its part: in a rolling restart, the next node may be restarted;
  * `admin`:            the node serves admin calls or forwards them.

    1. Controllers 1 and 2 of three lose their power. Controller 3 has no leader, so its /readyz fails. Its /livez is fine.
    2. A supervisor that watches /livez leaves controller 3 alone. When one of the others returns, the two elect a leader at once.
    3. A supervisor that watches /readyz would kill controller 3 too, and the quorum would have to wait for two restarts.

gRPC clients and load balancers ask for the health of a service by its full name, for example `quorum_rpc.v1.AdminService`. CHECKS
has the check for each service.

/healthz lists every check with its reason, and /metrics is the Prometheus page. The HTTP side reads at most 8 KiB within five
seconds, answers GET and HEAD, and closes the connection. It takes 64 connections at a time, or fewer if the process may open few
files.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

import grpc.aio
from grpc_health.v1 import health as grpc_health
from grpc_health.v1 import health_pb2, health_pb2_grpc

from service_kit.process.descriptors import files_max
from service_kit.process.endpoints import HostPort
from service_kit.process.metrics import Metrics
from service_kit.rpc.binding import cannot_bind

LIVE: Final = ""
QUORUM: Final = "quorum"
ADMIN: Final = "admin"

CHECKS: Final = {
    "quorum_rpc.v1.AdminService": ADMIN,
    "quorum_rpc.v1.BrokerService": QUORUM,
    "quorum_rpc.v1.ClusterMetadataService": QUORUM,
    "quorum_rpc.v1.DataPlaneService": LIVE,
    "quorum_rpc.v1.EntityService": ADMIN,
    "quorum_rpc.v1.PartitionService": QUORUM,
    "quorum_rpc.v1.VoterService": LIVE,
    "quorum_rpc.v1.WatchService": QUORUM,
}
"""The check that stands for a service."""

HEAD_BYTES_MAX: Final = 8 << 10
REQUEST_TIMEOUT_S: Final = 5.0
CONNECTIONS_MAX: Final = 64
ADDRESS_KEY: Final = "metrics.listener"
"""The configuration key of the HTTP side's address, for errors."""
BACKLOG: Final = 8
"""Maximum number of connections that wait to be accepted; a connection above the limits is closed only after that."""

_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}


class Health:
    """The checks of one node. At the start the process is alive, and the other two checks fail."""

    def __init__(self) -> None:
        self._problems: dict[str, str | None] = {LIVE: None, QUORUM: "starting", ADMIN: "starting"}
        self._remarks: dict[str, str] = {}
        self._servicer: Any = None
        self._served: tuple[str, ...] = ()

    async def set(self, service: str, problem: str | None) -> None:
        """Sets the reason why `service` is not healthy; None: it is healthy. Cheap if nothing changes."""
        assert service in self._problems, service
        before = self._problems[service]
        self._problems[service] = problem
        if self._servicer is not None and (before is None) != (problem is None):
            await self._tell(service)

    async def _tell(self, check: str) -> None:
        """Sets the status under the check's own name, and under the names of the services that the check stands for."""
        for name in (check, *(service for service in self._served if CHECKS.get(service) == check)):
            await self._servicer.set(name, _grpc_status(self._problems[check]))

    def remark(self, remarks: dict[str, str]) -> None:
        """Sets the problems of parts, by name, that keep the node from none of its services: /healthz alone shows them."""
        self._remarks = remarks

    def problem(self, service: str) -> str | None:
        """The reason why `service` is not healthy, or None."""
        return self._problems[service]

    def checks(self) -> dict[str, str]:
        """Every check by name (`live`, `quorum`, `admin`): `ok`, or the reason why not. And the problems of parts."""
        return {service or "live": problem or "ok" for service, problem in self._problems.items()} | self._remarks

    async def add_to(self, server: grpc.aio.Server, services: Sequence[str] = ()) -> None:
        """Serves grpc.health.v1 on `server`, also for the `services` that CHECKS knows. One server at a time."""
        self._served = tuple(services)
        self._servicer = grpc_health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)
        for check in self._problems:
            await self._tell(check)

    async def leave(self) -> None:
        """Fails all checks from now on: watchers learn that before the server stops."""
        for service in self._problems:
            self._problems[service] = "stopping"
        if self._servicer is not None:
            await self._servicer.enter_graceful_shutdown()


class Answer(NamedTuple):
    """The answer of the HTTP side."""

    status: int
    content_type: str
    body: bytes


def answer(path: str, health: Health, metrics: Metrics | None) -> Answer:
    """Returns the answer to a GET of `path`."""
    match path.partition("?")[0]:
        case "/livez":
            return _plain(health.problem(LIVE))
        case "/readyz":
            return _plain(health.problem(LIVE) or health.problem(QUORUM))
        case "/healthz":
            checks = health.checks()
            well = all(said == "ok" for said in checks.values())
            return Answer(200 if well else 503, "application/json", json.dumps(checks).encode() + b"\n")
        case "/metrics" if metrics is not None:
            return Answer(200, metrics.content_type, metrics.page())
        case _:
            return Answer(404, "text/plain; charset=utf-8", b"try /livez /readyz /healthz /metrics\n")


@asynccontextmanager
async def serving_http(address: HostPort, health: Health, metrics: Metrics | None = None) -> AsyncIterator[int]:
    """Serves the HTTP side inside of the block; yields the port.

    Raises:
        PortInUse, CannotBind: the address cannot be bound.
    """
    handler = _Handler(lambda path: answer(path, health, metrics))
    try:
        server = await asyncio.start_server(handler, address.host, address.port, limit=HEAD_BYTES_MAX, backlog=BACKLOG)
    except OSError as e:
        raise cannot_bind(address, e, ADDRESS_KEY) from e
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await handler.close()
        await server.wait_closed()


class _Handler:
    """Serves one request per connection. A slow or malformed request ends its connection."""

    def __init__(self, answer: Callable[[str], Answer]) -> None:
        self._answer = answer
        self._connections_max = min(CONNECTIONS_MAX, files_max() // 16)
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (
            self._is_closed or len(self._tasks) >= self._connections_max
        ):  # asyncio may have accepted the connection before the port was closed
            writer.transport.abort()
            return
        task = asyncio.create_task(self._serve(reader, writer))

        def ended(task: asyncio.Task[None]) -> None:
            """Ends the connection. (The task itself may not: a task that is cancelled before its first step runs no code.)"""
            self._tasks.discard(task)
            writer.transport.abort()

        self._tasks.add(task)
        task.add_done_callback(ended)

    async def close(self) -> None:
        """Ends the open connections."""
        self._is_closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        deadline_s = asyncio.get_running_loop().time() + REQUEST_TIMEOUT_S
        try:
            async with asyncio.timeout_at(deadline_s):
                head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            return  # the client is slow, sends too much, or is gone: the connection is ended, and no answer would help
        reply = _reply(head, self._answer)  # an error here is no error of the client: asyncio logs it with the task
        try:
            async with asyncio.timeout_at(deadline_s):
                writer.write(reply)
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except OSError:
            return  # the client is slow or gone: the connection is ended


def _reply(head: bytes, answer: Callable[[str], Answer]) -> bytes:
    words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        said = Answer(400, "text/plain; charset=utf-8", b"not an HTTP/1 request\n")
    elif words[0] not in ("GET", "HEAD"):
        said = Answer(405, "text/plain; charset=utf-8", b"GET only\n")
    else:
        said = answer(words[1])
    lines = (
        f"HTTP/1.1 {said.status} {_REASONS[said.status]}\r\nContent-Type: {said.content_type}\r\n"
        f"Content-Length: {len(said.body)}\r\nConnection: close\r\nCache-Control: no-store\r\n\r\n"
    )
    return lines.encode("latin-1") + (b"" if words[0] == "HEAD" else said.body)


def _plain(problem: str | None) -> Answer:
    return Answer(200 if problem is None else 503, "text/plain; charset=utf-8", f"{problem or 'ok'}\n".encode())


def _grpc_status(problem: str | None) -> Any:
    status = health_pb2.HealthCheckResponse.ServingStatus
    return status.SERVING if problem is None else status.NOT_SERVING
