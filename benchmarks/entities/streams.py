"""Many gRPC streams from one server over one connection, read without grpc.aio.

grpc.aio spends more CPU time on a message than a server does, so a thousand of its streams would measure the client. All streams
of a watch get the same bytes, so a reader of this file decodes each message once (`benchmarks.entities.watchers`).

Example: stream 1 and stream 3 of one connection watch the same keys. The server sends DATA frames with the same message on both.
The connection calls `on_message(1, message)` and `on_message(3, message)`.
"""

import asyncio
import struct
from collections.abc import Callable
from typing import Final, cast

from benchmarks.http2 import (
    ACK,
    DATA,
    DEFAULT_WINDOW_BYTES,
    END_HEADERS,
    END_STREAM,
    FRAME_HEADER_BYTES,
    GOAWAY,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    MESSAGE_HEADER_BYTES,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_BYTES,
    WINDOW_UPDATE,
    Broken,
    frame,
    header_block,
)

REFILL_BYTES: Final = 1 << 28
"""How many bytes the connection receives before the client widens the connection's window again."""
_HEAD: Final = struct.Struct(">HBBBI")
_SIZE: Final = struct.Struct(">I")


class StreamsConnection(asyncio.Protocol):
    """One connection. `on_message` gets the stream and the bytes of each message, `on_broken` the end of any stream."""

    def __init__(self, on_message: Callable[[int, bytes], None], on_broken: Callable[[Broken], None]) -> None:
        self._on_message, self._on_broken = on_message, on_broken
        self._next_stream = 1
        self._rest = b""
        self._partial: dict[int, bytes] = {}
        """The part of a message that has arrived, by stream."""
        self._received = 0
        self._transport: asyncio.Transport | None = None
        self._is_closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        settings = struct.pack(">HI", INITIAL_WINDOW_SIZE, WINDOW_BYTES)
        window = _SIZE.pack(WINDOW_BYTES - DEFAULT_WINDOW_BYTES)
        self._transport.write(PREFACE + frame(SETTINGS, 0, 0, settings) + frame(WINDOW_UPDATE, 0, 0, window))

    def connection_lost(self, exc: Exception | None) -> None:
        self._break(f"the connection has ended: {exc}")

    def close(self) -> None:
        """Ends the connection; `on_broken` is not called."""
        self._is_closed = True
        if self._transport is not None:
            self._transport.abort()

    def open(self, path: str, message: bytes, *, is_half_closed: bool) -> int:
        """Opens a stream with its first message. Returns the number of the stream."""
        assert self._transport is not None
        stream = self._next_stream
        self._next_stream += 2
        data = b"\x00" + _SIZE.pack(len(message)) + message
        flags = END_STREAM if is_half_closed else 0
        self._transport.write(
            frame(HEADERS, END_HEADERS, stream, header_block(path)) + frame(DATA, flags, stream, data)
        )
        return stream

    def data_received(self, data: bytes) -> None:
        data = self._rest + data if self._rest else data
        position, size = 0, len(data)
        while size - position >= FRAME_HEADER_BYTES:
            high, low, kind, flags, stream = _HEAD.unpack_from(data, position)
            start = position + FRAME_HEADER_BYTES
            end = start + (high << 8 | low)
            if end > size:
                break
            if kind == DATA:
                self._data(stream, data, start, end)
            else:
                self._other(kind, flags, stream, data[start:end])
            position = end
        self._rest = data[position:]

    def _data(self, stream: int, data: bytes, start: int, end: int) -> None:
        self._received += end - start
        if self._received > REFILL_BYTES:
            assert self._transport is not None
            self._transport.write(frame(WINDOW_UPDATE, 0, 0, _SIZE.pack(self._received)))
            self._received = 0
        if (part := self._partial.pop(stream, None)) is not None:
            data, start, end = part + data[start:end], 0, len(part) + end - start
        while end - start >= MESSAGE_HEADER_BYTES:
            after = start + MESSAGE_HEADER_BYTES + _SIZE.unpack_from(data, start + 1)[0]
            if after > end:
                break
            self._on_message(stream, data[start + MESSAGE_HEADER_BYTES : after])
            start = after
        if start < end:
            self._partial[stream] = data[start:end]

    def _other(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        assert self._transport is not None
        if kind in (SETTINGS, PING) and not flags & ACK:
            self._transport.write(frame(kind, ACK, 0, payload if kind == PING else b""))
        elif kind in (RST_STREAM, GOAWAY) or (kind == HEADERS and flags & END_STREAM):
            self._break(f"the server has ended stream {stream} (frame {kind}: {payload[:100]!r})")

    def _break(self, why: str) -> None:
        if not self._is_closed:
            self.close()
            self._on_broken(Broken(why))
