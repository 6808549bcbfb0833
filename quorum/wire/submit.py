"""The controller's end of `Submit`: one stream, many changes under way at once.

A message is as many calls as the sender had at hand, and as many answers as there are by then. What gRPC takes for a message
(wake-ups, system calls, tasks) is paid once for all of them, and under load it would otherwise be most of what a change
costs. Calls are begun in the order in which they come; answers leave in the order of completion, matched by `id`.

While SUBMIT_IN_FLIGHT_MAX calls of the stream wait it is not read, so gRPC's flow control holds the client back.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

import grpc
from quorum_rpc.v1 import admin_pb2

from metadata_log.errors import ErrorCode
from quorum.wire.errors import error

logger = logging.getLogger(__name__)

SUBMIT_IN_FLIGHT_MAX = 256
MESSAGE_BYTES_MAX = 1 << 20
"""A message of several answers is closed when it has so many bytes."""

MakeResponse: TypeAlias = Callable[[], admin_pb2.SubmitResponse]
"""Translates an outcome: when the message is written, and not in the turn that has brought it."""
Begin: TypeAlias = Callable[[admin_pb2.SubmitRequest, Callable[[MakeResponse], None]], None]
"""Begins one call; what makes its answer is handed over when there is one, at once or later."""


class SubmitConversation:
    """One stream, from its opening to its end."""

    def __init__(self, context: Any, begin: Begin) -> None:
        self._context = context
        self._begin = begin
        self._room = asyncio.Semaphore(SUBMIT_IN_FLIGHT_MAX)
        self._answers: deque[tuple[int, MakeResponse]] = deque()
        self._news = asyncio.Event()
        self._open = 0
        """Calls that were begun and whose answers have not left."""
        self._is_read = False

    async def run(self) -> None:
        """Until the client says no more, and everything is answered."""
        writer = asyncio.get_running_loop().create_task(self._write())
        try:
            while (message := await self._context.read()) is not grpc.aio.EOF:
                for request in message.requests:
                    await self._room.acquire()
                    self._open += 1
                    self._begin_one(request)
            self._is_read = True
            self._news.set()
            await writer
        finally:
            writer.cancel()

    def _begin_one(self, request: admin_pb2.SubmitRequest) -> None:
        number = request.id

        def answered(make: MakeResponse) -> None:
            self._answers.append((number, make))
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
                responses = self._take()
                await self._context.write(admin_pb2.SubmitResponses(responses=responses))
                self._open -= len(responses)
                for _ in responses:
                    self._room.release()

    def _take(self) -> list[admin_pb2.SubmitResponse]:
        """The next message: at least one answer, and as many as fit."""
        responses: list[admin_pb2.SubmitResponse] = []
        size = 0
        while self._answers and size < MESSAGE_BYTES_MAX:
            number, make = self._answers.popleft()
            try:
                response = make()
            except Exception:  # as above
                logger.exception("the answer to a submitted call cannot be told")
                response = _failed(number)
            responses.append(response)
            size += response.ByteSize()
        return responses


def _failed(number: int) -> admin_pb2.SubmitResponse:
    text = "the controller failed to handle this call; its log says why"
    return admin_pb2.SubmitResponse(id=number, error=error(ErrorCode.UNKNOWN_SERVER_ERROR, text))
