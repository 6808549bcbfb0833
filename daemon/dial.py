"""How a node is reached: one channel per target, made when it is first asked for, kept, and closed with the dialer.

A channel connects, and connects again, by itself (`grpc_options` says how eagerly); making one costs no connection.
"""

import asyncio
from types import TracebackType
from typing import Self

import grpc.aio

from daemon.grpc_options import Options, channel_options
from daemon.tls import TlsFiles, channel_credentials


def open_channel(target: str, credentials: grpc.ChannelCredentials | None, options: Options) -> grpc.aio.Channel:
    """A channel of the caller's own to `target` (`host:port`)."""
    if credentials is None:
        return grpc.aio.insecure_channel(target, options=options)
    return grpc.aio.secure_channel(target, credentials, options=options)


class Dialer:
    """`async with Dialer() as dialer`: channels for this event loop, all closed at the end."""

    def __init__(self, tls: TlsFiles | None = None, options: Options | None = None) -> None:
        """Raises TlsUnusable if certificates cannot be read."""
        self._credentials = channel_credentials(tls)
        self._options = channel_options() if options is None else options
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._closed = False

    def __call__(self, target: str) -> grpc.aio.Channel:
        """The channel to `target` (`host:port`), always the same one."""
        assert not self._closed, "dialed after close"
        channel = self._channels.get(target)
        if channel is None:
            channel = self._channels[target] = open_channel(target, self._credentials, self._options)
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
