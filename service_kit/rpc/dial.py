"""How a node is reached: one channel per target and name, made when it is first asked for, kept, and closed with the dialer.

A channel connects, and connects again, by itself (`grpc_options` says how eagerly); making one costs no connection.

Over TLS a server has to show a certificate for a name. For operators that is the host that was dialled. A node of the cluster is
dialled by the name of its identity (`node_identity`), and then its host counts for nothing: whoever has taken over an address or
a DNS entry, and has a certificate of the same authority, still cannot answer in its place.
"""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

import grpc.aio

from service_kit.rpc.grpc_options import Options, channel_options
from service_kit.security.tls import TlsFiles, channel_credentials

Dial = Callable[[str, str | None], grpc.aio.Channel]
"""The channel to a target (`host:port`), whose certificate has to have that name; None: the target's host."""
Reach = Callable[[str, int | None], Awaitable[grpc.aio.Channel]]
"""The channel to the controller with that id at a target; None: to whichever controller of this cluster is there. Raises
WrongServer or OSError (see `service_kit.rpc.controller_channels`)."""


class WrongServer(Exception):
    """Whoever answers there is not the node that is meant; it was asked nothing."""


def open_channel(
    target: str, credentials: grpc.ChannelCredentials | None, options: Options, name: str | None = None
) -> grpc.aio.Channel:
    """A channel of the caller's own to `target` (`host:port`). Over TLS the server has to be `name`, or the target's host."""
    if credentials is None:
        return grpc.aio.insecure_channel(target, options=options)
    if name is not None:
        options = [*options, ("grpc.ssl_target_name_override", name)]
    return grpc.aio.secure_channel(target, credentials, options=options)


class Dialer:
    """`async with Dialer() as dialer`: channels for this event loop, all closed at the end."""

    def __init__(self, tls: TlsFiles | None = None, options: Options | None = None) -> None:
        """Raises TlsUnusable if certificates cannot be read."""
        self._credentials = channel_credentials(tls)
        self._options = channel_options() if options is None else options
        self._channels: dict[tuple[str, str | None], grpc.aio.Channel] = {}
        self._closed = False

    def __call__(self, target: str, name: str | None = None) -> grpc.aio.Channel:
        """The channel to `target` (`host:port`) whose server has to be `name`, always the same one; see `open_channel`."""
        assert not self._closed, "dialed after close"
        channel = self._channels.get((target, name))
        if channel is None:
            channel = open_channel(target, self._credentials, self._options, name)
            self._channels[target, name] = channel
        return channel

    async def close(self) -> None:
        """Closes all; calls in flight are cancelled. Twice is fine."""
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
"""gRPC has one status for a connection that did not come about and for one that broke; only the text tells them apart."""


def was_never_sent(e: grpc.aio.AioRpcError) -> bool:
    """Whether the call failed before any byte of it left: no connection came about."""
    details = e.details() or ""
    return e.code() is grpc.StatusCode.UNAVAILABLE and any(text in details for text in _NEVER_SENT)


def is_wrong_server(e: grpc.aio.AioRpcError) -> bool:
    """Whether the call failed because the server has another name than was demanded of it."""
    return e.code() is grpc.StatusCode.UNAVAILABLE and "Hostname Verification Check failed" in (e.details() or "")
