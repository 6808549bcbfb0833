"""Channels from a broker to the controllers, so that every answer is really a controller's.

If the controller's id is known (from a leader hint), the channel demands that controller's name of the server
(`service_kit.rpc.dial`).

A bootstrap server is an address without an id. Any controller may be there, but a gRPC client can demand only one name. So the
broker first does a TLS handshake of its own, and reads the names in the server's certificate. The authority must have signed
it.

    bootstrap server 10.0.0.1:9001 shows    controller-2.e0bea0..., ctl2.example.org      controller 2 of this cluster
    so the channel to 10.0.0.1:9001 demands controller-2.e0bea0...

The broker does not trust this handshake. The handshake only supplies the name to demand, and the channel's own handshake must
show that name. If an attacker answers the first handshake, the channel is never connected.

While the channel is not connected the broker asks for the names again at each call, because another controller may have taken the
address. Calls that want the same channel meanwhile share one handshake:

    1. Controller 2 is paused, and 400 operators send requests to broker 101, which asks controller 2.
    2. The broker opens one connection to controller 2. After two seconds all 400 requests go to controller 3.
    3. With a handshake per request the broker would open 400 files, and hold its event loop for a second, in which it could not
       renew its lease.
"""

import asyncio
from functools import partial
from typing import Final

import grpc

from service_kit.process.endpoints import parse_host_port
from service_kit.rpc.dial import Dial, WrongServer
from service_kit.security.certificate_names import client_context, dns_names
from service_kit.security.node_identity import CONTROLLER, Node, NodeNames
from service_kit.security.tls import TlsFiles

HANDSHAKE_TIMEOUT_S: Final = 2.0


class ControllerChannels:
    """Channels to controllers, for one event loop; a `service_kit.rpc.dial.Reach`."""

    def __init__(self, dial: Dial, names: NodeNames | None = None, tls: TlsFiles | None = None) -> None:
        """Without `tls` no server can prove its identity: any server at the target is taken for the controller.

        Raises:
            TlsUnusable: a file cannot be used; the text names it.
        """
        assert (names is None) == (tls is None)
        self._dial = dial
        self._names = names
        self._context = None if tls is None else client_context(tls)
        self._found: dict[str, str] = {}
        self._asking: dict[str, asyncio.Task[str]] = {}

    async def __call__(self, target: str, node_id: int | None = None) -> grpc.aio.Channel:
        """Returns the channel to the controller `node_id` at `target` (`host:port`), or to any controller there.

        Raises:
            WrongServer: no controller of this cluster is there.
            OSError: no server answers there, or without TLS, or with a certificate of another authority, or too late.
        """
        if self._names is None:
            return self._dial(target, None)
        if node_id is not None:
            return self._dial(target, self._names.demanded(Node(CONTROLLER, node_id)))
        if target in self._found:
            channel = self._dial(target, self._found[target])
            if channel.get_state() is grpc.ChannelConnectivity.READY:
                return channel
        self._found[target] = name = await asyncio.shield(self._name_of(target, self._names))
        return self._dial(target, name)

    def _name_of(self, target: str, names: NodeNames) -> asyncio.Task[str]:
        """Returns the handshake with `target` in progress, or starts one."""
        found = self._asking.get(target)
        if found is None:
            found = self._asking[target] = asyncio.get_running_loop().create_task(self._ask_name(target, names))
            found.add_done_callback(partial(self._asked, target))
        return found

    def _asked(self, target: str, task: asyncio.Task[str]) -> None:
        del self._asking[target]
        if not task.cancelled():
            task.exception()  # marks the error as seen: no call may be waiting any more, and asyncio would log it

    async def _ask_name(self, target: str, names: NodeNames) -> str:
        shown = await self._shake_hands(target)
        controllers = sorted(node for node in names.nodes_of(shown) if node.role == CONTROLLER)
        if not controllers:
            listed = ", ".join(sorted(shown)) or "no DNS name"
            wanted = names.demanded(Node(CONTROLLER, 0)).replace("-0.", "-ID.")
            raise WrongServer(
                f"no controller of this cluster answers at {target}: its certificate has {listed}, but neither {wanted} nor a "
                "name that tls.node.names lists for a controller. The server got no request"
            )
        for node in controllers:
            if names.demanded(node) in shown:
                return names.demanded(node)
        raise WrongServer(
            f"{controllers[0]} at {target} does not show {names.demanded(controllers[0])}, its first name; it got no request"
        )

    async def _shake_hands(self, target: str) -> frozenset[str]:
        """Returns the DNS names in the certificate of the server at `target`. Raises OSError."""
        assert self._context is not None, "without TLS no server has a name"
        try:
            address = parse_host_port(target)
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                _, writer = await asyncio.open_connection(address.host, address.port, ssl=self._context)
        except TimeoutError as e:
            raise TimeoutError(f"no TLS handshake within {HANDSHAKE_TIMEOUT_S:g} s") from e
        except ConnectionResetError as e:  # asyncio's error has no text
            raise ConnectionResetError("it closed the connection during the TLS handshake") from e
        except ValueError as e:  # from the resolver's encoding of names such as `ctl1..example.org`
            raise OSError(f"not an address that can be looked up: {e}") from e
        try:
            return dns_names(writer.get_extra_info("peercert"))
        finally:
            writer.transport.abort()
