"""The controller's end of `Submit`: one stream, many changes under way at once.

A message is as many calls as the sender had at hand, and as many answers as there are by then. What gRPC takes for a message
(wake-ups, system calls, tasks) is paid once for all of them, and under load it would otherwise be most of what a change
costs. Calls are begun in the order in which they come; answers leave in the order of completion, matched by `id`.

While a stream has too many calls under way, or too many bytes of them, it is not read, so gRPC's flow control holds the client
back. A call counts until its answer has been taken, so who does not read answers holds back itself. All streams together have
a limit too; beyond it each goes on with one call at a time, and a stream whose client takes no answer for STALLED_S is ended,
lest a few that stand still hold up all others.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

import grpc
from quorum_rpc.v1 import admin_pb2

from metadata_log.format.errors import ErrorCode
from quorum.wire.convert.errors import error

logger = logging.getLogger(__name__)

SUBMIT_IN_FLIGHT_MAX = 256
STREAM_BYTES_MAX = 1 << 20
"""Of one stream's calls under way. One call that is larger goes alone."""
PROCESS_BYTES_MAX = 16 << 20
"""Of all streams' calls. Decoded, a call takes up to ten times its size."""
STALLED_S = 10.0
"""A client that takes no answer for so long does not read."""
MESSAGE_BYTES_MAX = 1 << 20
"""A message of several answers is closed when it has so many bytes."""

MakeResponse: TypeAlias = Callable[[], admin_pb2.SubmitResponse]
"""Translates an outcome: when the message is written, and not in the turn that has brought it."""
Begin: TypeAlias = Callable[[admin_pb2.SubmitRequest, Callable[[MakeResponse], None]], None]
"""Begins one call; what makes its answer is handed over when there is one, at once or later."""


class Load:
    """What all streams of this process have under way."""

    def __init__(self, limit_bytes: int = PROCESS_BYTES_MAX) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0


class _Stalled(Exception):
    """The client takes no answers."""


class SubmitConversation:
    """One stream, from its opening to its end."""

    def __init__(self, context: Any, begin: Begin, load: Load) -> None:
        self._context = context
        self._begin = begin
        self._load = load
        self._answers: deque[tuple[int, int, MakeResponse]] = deque()
        """Number and size of the call, and its answer."""
        self._news = asyncio.Event()
        self._left = asyncio.Event()
        self._open = self._open_bytes = 0
        """Calls that were begun and whose answers have not left."""
        self._is_read = False

    async def run(self) -> None:
        """Until the client says no more, and everything is answered, or until it is let go because it takes no answer."""
        try:
            await self._converse()
        except _Stalled:
            text = f"no answer was taken for {STALLED_S:g} s; what was not answered may have happened"
            # Only now that nothing is counted any more: the status, too, waits until the client reads.
            await self._context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)

    async def _converse(self) -> None:
        loop = asyncio.get_running_loop()
        reader, writer = loop.create_task(self._read()), loop.create_task(self._write())
        try:
            # If the writer ends, so does the reader: it may wait for room that only the writer makes.
            await asyncio.gather(reader, writer)
        finally:
            reader.cancel()
            writer.cancel()
            self._count(-self._open, -self._open_bytes)
            self._answers.clear()

    async def _read(self) -> None:
        while (message := await self._context.read()) is not grpc.aio.EOF:
            for request in message.requests:
                size = request.ByteSize()
                while self._is_full(size):
                    self._left.clear()
                    await self._left.wait()
                self._count(1, size)
                self._begin_one(request, size)
        self._is_read = True
        self._news.set()

    def _is_full(self, size: int) -> bool:
        """Whether a call of so many bytes must wait for answers to leave."""
        if not self._open:
            return False
        return (
            self._open >= SUBMIT_IN_FLIGHT_MAX
            or self._open_bytes + size > STREAM_BYTES_MAX
            or self._load.used_bytes + size > self._load.limit_bytes
        )

    def _count(self, calls: int, size: int) -> None:
        self._open += calls
        self._open_bytes += size
        self._load.used_bytes += size

    def _begin_one(self, request: admin_pb2.SubmitRequest, size: int) -> None:
        number = request.id

        def answered(make: MakeResponse) -> None:
            self._answers.append((number, size, make))
            self._news.set()

        try:
            self._begin(request, answered)
        except Exception:  # one call's accident must not leave its sender waiting, nor end the others' stream
            logger.exception("a submitted call has failed")
            answered(lambda: _failed(number))

    async def _write(self) -> None:
        while self._open or not self._is_read:
            await self._news.wait()
            self._news.clear()
            while self._answers:
                responses, call_bytes = self._take()
                try:
                    async with asyncio.timeout(STALLED_S):
                        await self._context.write(admin_pb2.SubmitResponses(responses=responses))
                except TimeoutError as e:
                    raise _Stalled from e
                self._count(-len(responses), -call_bytes)
                self._left.set()

    def _take(self) -> tuple[list[admin_pb2.SubmitResponse], int]:
        """The next message: at least one answer, and as many as fit; and the bytes of the calls that they answer."""
        responses: list[admin_pb2.SubmitResponse] = []
        size = call_bytes = 0
        while self._answers and size < MESSAGE_BYTES_MAX:
            number, call_size, make = self._answers.popleft()
            call_bytes += call_size
            try:
                response = make()
            except Exception:  # as above
                logger.exception("the answer to a submitted call cannot be told")
                response = _failed(number)
            responses.append(response)
            size += response.ByteSize()
        return responses, call_bytes


def _failed(number: int) -> admin_pb2.SubmitResponse:
    text = "the controller failed to handle this call; its log says why"
    return admin_pb2.SubmitResponse(id=number, error=error(ErrorCode.UNKNOWN_SERVER_ERROR, text))
