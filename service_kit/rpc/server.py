"""A gRPC server for a block of code: bound, limited, with health and reflection, and stopped in order.

    async with serving(HostPort("127.0.0.1", 0), add_services, health=health) as port:
        ...

Inside of the block the server answers calls. At the end of the block health says "stopping", calls that still arrive are answered
too, calls in progress get `grace_s` seconds, and the port is free again.

When a server stops, gRPC cancels calls that have arrived and are not accepted yet, and their clients cannot know the outcome. So:

    1. A node leaves, and refuses all requests. Fifty clients ask it, and ask again as soon as they are refused.
    2. The server accepts new calls and makes them wait. Soon all fifty clients wait for an answer, and no more calls arrive.
    3. The server tells its clients that it stops. Then the fifty calls go on, and are refused. No client asks this node again.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio

from service_kit.process.descriptors import connections_max
from service_kit.process.endpoints import HostPort
from service_kit.rpc.binding import CannotBind, cannot_bind
from service_kit.rpc.call_tallies import CallTallies
from service_kit.rpc.grpc_options import CONCURRENT_RPCS_MAX, Options, server_options
from service_kit.rpc.health import Health
from service_kit.rpc.malformed_messages import Guard
from service_kit.rpc.reflection import add_reflection
from service_kit.security.served_certificate import ServedCertificate, server_credentials
from service_kit.security.tls import TlsFiles

STOP_GRACE_S = 1.0
STREAMS_SHARE = 0.8
"""The share of the grace after which the server ends the streams that are still open."""
QUIET_S = 0.05
"""How long no call may arrive before all clients are taken to be waiting for an answer."""


@asynccontextmanager
async def serving(
    address: HostPort,
    add_services: Callable[[grpc.aio.Server], None],
    *,
    tls: TlsFiles | None = None,
    certificate: ServedCertificate | None = None,
    health: Health | None = None,
    reflect: Sequence[str] = (),
    interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
    options: Options | None = None,
    grace_s: float = STOP_GRACE_S,
    servers: int = 1,
    tallies: CallTallies | None = None,
) -> AsyncIterator[int]:
    """Serves the services that `add_services` adds; yields the port (for port 0 the one that was found free).

    `servers`: how many servers of this process share its connections (`descriptors`).
    `tallies` count this server's calls.
    `certificate`: the checked certificate of `tls`, if the caller reports its problems, or if several servers share it.
    `reflect`: the full service names (`quorum_rpc.v1.AdminService`) for reflection and health; reflection is off if it is empty.

    Raises:
        PortInUse: another process listens on the address.
        CannotBind: the operating system refuses the address for another reason.
        TlsUnusable: a certificate or key cannot be used.
    """
    if certificate is None and tls is not None:
        certificate = ServedCertificate(tls)
    credentials = server_credentials(certificate)
    server = grpc.aio.server(
        options=server_options(connections=connections_max(servers)) if options is None else options,
        maximum_concurrent_rpcs=CONCURRENT_RPCS_MAX,
        interceptors=interceptors,
    )
    # Generated code registers every method twice, generic and "registered". For each registered method grpc.aio keeps a pending
    # accept, and waits for all of them anew at each call: thirty methods cost more than a small call does.
    server.add_registered_method_handlers = _stay_generic
    guard = _guarded(server, tallies)
    add_services(server)
    if health is not None:
        await health.add_to(server, reflect)
    if reflect:
        add_reflection(server, reflect)
    port = _bind(server, address, credentials)
    await server.start()
    try:
        yield port
    finally:
        if health is not None:
            await health.leave()
        guard.hold()
        await _drained(guard, grace_s)
        stopping = asyncio.ensure_future(server.stop(grace_s))
        await asyncio.sleep(0)  # in its first step `stop` tells the clients
        guard.release()
        await asyncio.wait({stopping}, timeout=STREAMS_SHARE * grace_s)
        guard.end_streams()
        await stopping


def _stay_generic(service_name: str, method_handlers: object) -> None:
    """Replaces grpc.aio's method: the generic handlers are registered too, and serve the same methods."""


def _guarded(server: Any, tallies: CallTallies | None) -> Guard:
    """Wraps a guard around all methods that are added to `server` from now on (`service_kit.rpc.malformed_messages`)."""
    guard, add = Guard(tallies), server.add_generic_rpc_handlers

    def add_guarded(handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        add([guard.around(handler) for handler in handlers])

    server.add_generic_rpc_handlers = add_guarded
    return guard


async def _drained(guard: Guard, within_s: float) -> None:
    """Returns once no more calls arrive, or after `within_s`."""
    loop = asyncio.get_running_loop()
    until_s, calls = loop.time() + within_s, -1
    while calls != guard.calls and loop.time() < until_s:
        calls = guard.calls
        await asyncio.sleep(min(QUIET_S, within_s))


def _bind(server: Any, address: HostPort, credentials: grpc.ServerCredentials | None) -> int:
    try:
        if credentials is None:
            port = server.add_insecure_port(address.target)
        else:
            port = server.add_secure_port(address.target, credentials)
    except RuntimeError as e:
        raise _why_not(address) from e
    if port == 0:
        raise _why_not(address)
    return int(port)


def _why_not(address: HostPort) -> CannotBind:
    """Finds out why gRPC could not listen, by binding the address once more without gRPC."""
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, where = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
            probe.listen(1)
    except OSError as e:
        return cannot_bind(address, e)
    return CannotBind(address, "refused by gRPC")
