"""How a broker reaches a controller, so that what it hears is that controller's word.

Where the id is known (a leader that somebody named), the channel demands that controller's name of its server
(`service_kit.rpc.dial`).

A bootstrap server is an address without an id: any controller will do, but a gRPC client can demand one name only. So the broker
asks first, by a TLS handshake of its own, which names the server's certificate has; the authority must have signed it.

    bootstrap server 10.0.0.1:9001 shows    controller-2.e0bea0..., ctl2.example.org      controller 2 of this cluster
    so the channel to 10.0.0.1:9001 demands controller-2.e0bea0...

The handshake is trusted for nothing: it only says which name to demand, and the channel's own handshake has to show it. Whoever
answers it in a controller's place gains a channel that does not come about.

The names are asked for again whenever the channel is not connected, for another controller may have moved there. Whoever else
wants that channel meanwhile waits for the same handshake:

    1. A controller is paused, and 400 operators ask a broker for something.
    2. The broker opens one connection to that controller, and after two seconds all 400 requests go on to the next one.

A handshake for each of them would take 400 files, and hold the event loop for a second, in which no lease is renewed.
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
    """Channels to controllers; a `service_kit.rpc.dial.Reach`. Lives on one event loop."""

    def __init__(self, dial: Dial, names: NodeNames | None = None, tls: TlsFiles | None = None) -> None:
        """Without `tls` nobody can prove anything: whoever is at the target is taken for the one who is meant.

        Raises:
            TlsUnusable: naming the file.
        """
        assert (names is None) == (tls is None)
        self._dial = dial
        self._names = names
        self._context = None if tls is None else client_context(tls)
        self._found: dict[str, str] = {}
        self._asking: dict[str, asyncio.Task[str]] = {}

    async def __call__(self, target: str, node_id: int | None = None) -> grpc.aio.Channel:
        """The channel to the controller `node_id` at `target` (`host:port`), or to whichever controller is there.

        Raises:
            WrongServer: no controller of this cluster is there.
            OSError: nobody is there, or it does not speak TLS with a certificate of the authority; or it took too long.
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
        """The handshake with `target` that is under way, or a new one."""
        found = self._asking.get(target)
        if found is None:
            found = self._asking[target] = asyncio.get_running_loop().create_task(self._ask_name(target, names))
            found.add_done_callback(partial(self._asked, target))
        return found

    def _asked(self, target: str, task: asyncio.Task[str]) -> None:
        del self._asking[target]
        if not task.cancelled():
            task.exception()  # perhaps nobody waits for it any more; asyncio would tell of it as of a mistake

    async def _ask_name(self, target: str, names: NodeNames) -> str:
        shown = await self._shake_hands(target)
        controllers = sorted(node for node in names.nodes_of(shown) if node.role == CONTROLLER)
        if not controllers:
            listed = ", ".join(sorted(shown)) or "no DNS name"
            wanted = names.demanded(Node(CONTROLLER, 0)).replace("-0.", "-ID.")
            raise WrongServer(
                f"no controller of this cluster answers at {target}: its certificate has {listed}, and neither {wanted} nor a "
                "name that tls.node.names lists for a controller"
            )
        for node in controllers:
            if names.demanded(node) in shown:
                return names.demanded(node)
        raise WrongServer(
            f"{controllers[0]} at {target} does not show {names.demanded(controllers[0])}, its first name"
        )

    async def _shake_hands(self, target: str) -> frozenset[str]:
        """The DNS names in the certificate that `target` shows. Raises OSError."""
        assert self._context is not None, "without TLS nobody has a name"
        try:
            address = parse_host_port(target)
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                _, writer = await asyncio.open_connection(address.host, address.port, ssl=self._context)
        except TimeoutError as e:
            raise TimeoutError(f"no TLS handshake within {HANDSHAKE_TIMEOUT_S:g} s") from e
        except ConnectionResetError as e:  # from asyncio without a text
            raise ConnectionResetError("it hung up during the TLS handshake") from e
        except ValueError as e:  # the resolver's encoding of names: `ctl1..example.org`
            raise OSError(f"not an address that can be looked up: {e}") from e
        try:
            return dns_names(writer.get_extra_info("peercert"))
        finally:
            writer.transport.abort()
