"""A gRPC client for thousands of connections in one process: raw HTTP/2 frames, and nothing that one loop of calls does not need.

grpc.aio spends more CPU time on an answer than the controller does, so a benchmark with a thousand grpc.aio clients on the
controller's machine would measure its clients. One `Connection` carries one stream of fetches, or one unary call after the other:

    1. The client sends the preface, its settings, and windows that never fill up.
    2. For each call the client sends the frames HEADERS and DATA. Header fields are literals, so HPACK needs no table.
    3. The server answers with HEADERS, which the client skips, and with DATA, which has the message behind five bytes.
    4. The client acknowledges the server's settings and pings.
"""

import asyncio
import struct
from collections.abc import Callable
from typing import Final, cast

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
ACK: Final = 1
END_STREAM: Final = 1
END_HEADERS: Final = 4
INITIAL_WINDOW_SIZE: Final = 4
WINDOW_BYTES: Final = (1 << 31) - 1
DEFAULT_WINDOW_BYTES: Final = 65_535
FRAME_HEADER_BYTES: Final = 9
MESSAGE_HEADER_BYTES: Final = 5


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame of HTTP/2."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def header_block(path: str) -> bytes:
    """The header fields of a gRPC call, each as a literal that no table keeps."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    literals = [
        b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in fields.items()
    ]
    return b"".join(literals)


class Broken(Exception):
    """The server has ended the call or the connection."""


class Connection(asyncio.Protocol):
    """One connection with one call at a time. `on_message` gets each answer's bytes, `on_broken` the end of the connection."""

    def __init__(
        self, path: str, is_stream: bool, on_message: Callable[[bytes], None], on_broken: Callable[[Broken], None]
    ) -> None:
        self._headers = header_block(path)
        self._is_stream = is_stream
        self._on_message, self._on_broken = on_message, on_broken
        self._stream_id = 0
        self._received = b""
        self._message = b""
        self._transport: asyncio.Transport | None = None
        self._is_closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        settings = struct.pack(">HI", INITIAL_WINDOW_SIZE, WINDOW_BYTES)
        window = struct.pack(">I", WINDOW_BYTES - DEFAULT_WINDOW_BYTES)
        self._transport.write(PREFACE + frame(SETTINGS, 0, 0, settings) + frame(WINDOW_UPDATE, 0, 0, window))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._is_closed:
            self._on_broken(Broken(f"the connection has ended: {exc}"))

    def close(self) -> None:
        """Ends the connection; `on_broken` is not called."""
        self._is_closed = True
        if self._transport is not None:
            self._transport.abort()

    def send(self, message: bytes) -> None:
        """Sends the next request. The answer to the one before has arrived."""
        assert self._transport is not None
        head = b""
        if not self._is_stream or self._stream_id == 0:
            self._stream_id += 1 if self._stream_id == 0 else 2
            head = frame(HEADERS, END_HEADERS, self._stream_id, self._headers)
        flags = 0 if self._is_stream else END_STREAM
        data = b"\x00" + struct.pack(">I", len(message)) + message
        self._transport.write(head + frame(DATA, flags, self._stream_id, data))

    def data_received(self, data: bytes) -> None:
        received = self._received + data if self._received else data
        position, messages = 0, []
        while len(received) - position >= FRAME_HEADER_BYTES:
            end = position + FRAME_HEADER_BYTES + int.from_bytes(received[position : position + 3], "big")
            if end > len(received):
                break
            kind, flags = received[position + 3], received[position + 4]
            payload = received[position + FRAME_HEADER_BYTES : end]
            position = end
            if kind == DATA:
                messages += self._joined(payload)
            else:
                self._take(kind, flags, payload)
        self._received = received[position:]
        for message in messages:
            self._on_message(message)

    def _joined(self, payload: bytes) -> list[bytes]:
        """Adds the payload of a DATA frame; returns the message if it is complete."""
        self._message += payload
        if len(self._message) < MESSAGE_HEADER_BYTES:
            return []
        size = MESSAGE_HEADER_BYTES + int.from_bytes(self._message[1:MESSAGE_HEADER_BYTES], "big")
        if len(self._message) < size:
            return []
        message, self._message = self._message[MESSAGE_HEADER_BYTES:size], self._message[size:]
        return [message]

    def _take(self, kind: int, flags: int, payload: bytes) -> None:
        assert self._transport is not None
        if kind in (SETTINGS, PING) and not flags & ACK:
            self._transport.write(frame(kind, ACK, 0, payload if kind == PING else b""))
        elif kind in (RST_STREAM, GOAWAY) or (kind == HEADERS and flags & END_STREAM and self._is_stream):
            self.close()
            self._on_broken(Broken(f"the server has ended the stream (frame {kind}: {payload[:100]!r})"))
