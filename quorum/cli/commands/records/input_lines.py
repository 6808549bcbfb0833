"""The lines of standard input, read on a thread, because a read of a terminal cannot be cancelled.

1. A program prints a line every second into the pipe. Each line is there as soon as it was printed, and not after 64 KiB.
2. A file of 10 GB is the input. At most `CHUNKS_MAX` chunks wait in memory.
3. The user types Ctrl-C while the thread reads. The thread is a daemon: the process ends without it. So the thread reads the raw
   file: Python aborts a process that ends while a daemon thread has the lock of a buffer.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import AsyncIterator
from typing import BinaryIO, Final

from quorum.cli.errors import CliError

CHUNK_BYTES: Final = 64 << 10
CHUNKS_MAX: Final = 8
LINE_BYTES_MAX: Final = 1 << 20
"""Maximum length of a line: no record is larger."""


async def input_lines(stream: BinaryIO) -> AsyncIterator[list[bytes]]:
    """Yields the lines of each chunk, without their ends. The last line may lack its end.

    Raises:
        CliError: a line is longer than any record, or the input cannot be read. All lines before were yielded.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(CHUNKS_MAX)

    def put(item: bytes | OSError) -> None:
        try:
            loop.call_soon_threadsafe(queue.put_nowait, item)
        except RuntimeError:
            return  # the loop is closed: nobody wants the rest

    raw = getattr(stream, "raw", stream)

    def read() -> None:
        while True:
            room.acquire()
            try:
                chunk = raw.read(CHUNK_BYTES)
                if chunk is None:
                    raise BlockingIOError(errno.EAGAIN, "it does not wait for data (O_NONBLOCK)")
            except OSError as e:
                put(e)
                return
            except ValueError:
                # A program has closed the file object. The caller of `input_lines` may still wait, and must be told.
                put(OSError(errno.EBADF, "it was closed"))
                return
            put(chunk)
            if not chunk:
                return

    threading.Thread(target=read, name="standard input", daemon=True).start()
    rest, count = b"", 0
    while True:
        chunk = await queue.get()
        room.release()
        if isinstance(chunk, OSError):
            text = f"standard input cannot be read: {chunk.strerror or chunk}; {count:,} lines before were sent"
            raise CliError(text) from chunk
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()
        if not chunk and rest:
            lines, rest = [rest], b""
        for place, each in enumerate((*lines, rest)):
            if len(each) > LINE_BYTES_MAX:
                if place:
                    yield lines[:place]
                text = f"line {count + place + 1} has more than {LINE_BYTES_MAX} bytes, so it is no record"
                raise CliError(f"{text}; {count + place:,} lines before were sent")
        count += len(lines)
        if lines:
            yield lines
        if not chunk:
            return
