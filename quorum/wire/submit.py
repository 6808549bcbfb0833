"""The controller's end of `Submit`: one stream with many changes under way at a time.

A message holds as many calls, or answers, as its sender has at hand. gRPC's cost of a message (wake-ups, system calls, tasks)
is then paid once for many changes. With one message for each change, this cost would be most of the cost of a change under load.
Calls begin in the order of arrival. Answers leave in the order of completion, matched by `id`.

    1. A client sends 300 calls, and reads no answers. The controller begins 256, and reads no more of this stream, so gRPC's flow
       control stops the client.
    2. The client reads 100 answers. A call counts until the client has taken its answer, so the controller reads 44 more calls.
    3. The calls of all streams together reach PROCESS_BYTES_MAX. Each stream then goes on with one call at a time.
    4. A client reads no answer for STALLED_S. The controller ends its stream, so that it does not hold up the other streams.
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
"""Maximum size of one stream's calls under way. A larger call goes alone."""
PROCESS_BYTES_MAX = 16 << 20
"""Maximum size of all streams' calls under way. A decoded call takes up to ten times its size."""
STALLED_S = 10.0
"""How long a client may take no answer."""
MESSAGE_BYTES_MAX = 1 << 20
"""How many bytes complete a message of several answers."""

MakeResponse: TypeAlias = Callable[[], admin_pb2.SubmitResponse]
"""Makes the answer when its message is written, not in the turn of the outcome. May raise, for a bug."""
Begin: TypeAlias = Callable[[admin_pb2.SubmitRequest, Callable[[MakeResponse], None]], None]
"""Begins one call, and passes a MakeResponse to the given function, at once or later."""


class Load:
    """The calls under way of all streams of this process."""

    def __init__(self, limit_bytes: int = PROCESS_BYTES_MAX) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0


class _Stalled(Exception):
    """The client takes no answers."""


class SubmitConversation:
    """One stream, from start to end."""

    def __init__(self, context: Any, begin: Begin, load: Load) -> None:
        self._context = context
        self._begin = begin
        self._load = load
        self._answers: deque[tuple[int, int, MakeResponse]] = deque()
        """Number, size and answer of each answered call."""
        self._news = asyncio.Event()
        self._left = asyncio.Event()
        self._open = self._open_bytes = 0
        """Calls that have begun and whose answers have not left."""
        self._is_read = False

    async def run(self) -> None:
        """Runs until the client sends no more and all calls are answered, or until the client takes no answers."""
        try:
            await self._converse()
        except _Stalled:
            text = f"no answer was taken for {STALLED_S:g} s; what was not answered may have happened"
            # The calls are no longer counted here: the status, too, waits until the client reads.
            await self._context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)

    async def _converse(self) -> None:
        loop = asyncio.get_running_loop()
        reader, writer = loop.create_task(self._read()), loop.create_task(self._write())
        try:
            # If the writer fails, the reader must end too: the reader may wait for room that only the writer makes.
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
        """Returns whether a call of `size` bytes must wait until answers leave."""
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
        except Exception:  # a bug in one call must neither leave its client waiting nor end the stream
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
        """Returns the answers of the next message, at least one, and the size of their calls."""
        responses: list[admin_pb2.SubmitResponse] = []
        size = call_bytes = 0
        while self._answers and size < MESSAGE_BYTES_MAX:
            number, call_size, make = self._answers.popleft()
            call_bytes += call_size
            try:
                response = make()
            except Exception:  # as above
                logger.exception("the answer to a submitted call cannot be sent")
                response = _failed(number)
            responses.append(response)
            size += response.ByteSize()
        return responses, call_bytes


def _failed(number: int) -> admin_pb2.SubmitResponse:
    text = (
        "the controller failed while it handled this call; the change may have been made; the controller's log says why"
    )
    return admin_pb2.SubmitResponse(id=number, error=error(ErrorCode.UNKNOWN_SERVER_ERROR, text))
