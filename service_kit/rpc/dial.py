"""Channels to other nodes: one per target and name, opened at the first use, and closed with the dialer.

A channel connects, and connects again, by itself (`grpc_options` has the timing); making a channel opens no connection yet.

Over TLS a server has to show a certificate with a certain name. An operator demands the host that was dialled. A node demands the
identity of the other node (`node_identity`), and the host does not matter:

    1. Controller 1 dials controller 2 at ctl2.example.org, and demands controller-2.e0be....
    2. An attacker takes over the DNS entry ctl2.example.org and has the certificate of broker 101, of the same authority.
    3. That certificate does not have the name controller-2.e0be..., so controller 1 sends no request to the attacker.
"""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

import grpc.aio

from service_kit.rpc.grpc_options import Options, channel_options
from service_kit.security.tls import TlsFiles, channel_credentials

Dial = Callable[[str, str | None], grpc.aio.Channel]
"""Returns the channel to a target (`host:port`) whose certificate must have the given name; None: the target's host."""
Reach = Callable[[str, int | None], Awaitable[grpc.aio.Channel]]
"""Returns the channel to the controller with the given id at a target; None: to any controller of this cluster. Raises
WrongServer or OSError (see `service_kit.rpc.controller_channels`)."""


class WrongServer(Exception):
    """The server at an address is not the expected node; no request was sent to it."""


def open_channel(
    target: str, credentials: grpc.ChannelCredentials | None, options: Options, name: str | None = None
) -> grpc.aio.Channel:
    """Opens a channel to `target` (`host:port`) for the caller. Over TLS the server must be `name`, or the target's host."""
    if credentials is None:
        return grpc.aio.insecure_channel(target, options=options)
    if name is not None:
        options = [*options, ("grpc.ssl_target_name_override", name)]
    return grpc.aio.secure_channel(target, credentials, options=options)


class Dialer:
    """`async with Dialer() as dialer`: channels for one event loop, all closed at the end."""

    def __init__(self, tls: TlsFiles | None = None, options: Options | None = None) -> None:
        """Raises TlsUnusable if certificates cannot be read."""
        self._credentials = channel_credentials(tls)
        self._options = channel_options() if options is None else options
        self._channels: dict[tuple[str, str | None], grpc.aio.Channel] = {}
        self._closed = False

    def __call__(self, target: str, name: str | None = None) -> grpc.aio.Channel:
        """Returns the channel to `target` (`host:port`) whose server must be `name`: the same channel each time."""
        assert not self._closed, "dialed after close"
        channel = self._channels.get((target, name))
        if channel is None:
            channel = open_channel(target, self._credentials, self._options, name)
            self._channels[target, name] = channel
        return channel

    async def close(self) -> None:
        """Closes all channels and cancels their calls. May be called twice."""
        self._closed = True
        channels, self._channels = list(self._channels.values()), {}
        await asyncio.gather(*(channel.close() for channel in channels))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


_NEVER_SENT = (
    "failed to connect",
    "Connection refused",
    "No route to host",
    "DNS resolution failed",
    "errors resolving ",
)
"""gRPC has the same status for a connection that was never established and for a broken one; only the text differs."""


def was_never_sent(e: grpc.aio.AioRpcError) -> bool:
    """Tells whether the call failed before any byte was sent, because no connection was established."""
    details = e.details() or ""
    return e.code() is grpc.StatusCode.UNAVAILABLE and any(text in details for text in _NEVER_SENT)


def is_wrong_server(e: grpc.aio.AioRpcError) -> bool:
    """Tells whether the call failed because the server's certificate does not have the demanded name."""
    return e.code() is grpc.StatusCode.UNAVAILABLE and "Hostname Verification Check failed" in (e.details() or "")
