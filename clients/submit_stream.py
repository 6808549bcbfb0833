"""The client's end of `Submit`: many changes on their way at once, answered in the order of completion.

    async with await client.submit() as stream:
        waiting = [await stream.send(create_topics=request) for request in requests]
        answers = await asyncio.gather(*waiting)

`send` returns when gRPC has taken the request, which it doesn't while the controller has enough to do. What gathers meanwhile
leaves as one message. What was sent and not answered when the stream breaks may have happened; a request whose sender gave
it an id (`context.request_id`, with the `client_high_watermark` of that time) may then be sent again on another stream.
"""

import asyncio
from collections import deque
from typing import Any, Final, Self

import grpc
from quorum_rpc.v1 import admin_pb2

from clients.errors import AdminError, MayHaveHappened, NotReached
from metadata_log.format.errors import ErrorCode

MESSAGE_BYTES_MAX: Final = 1 << 20
"""A message of several calls is closed when it has so many bytes; the receiver takes 4 MiB."""


class SubmitStream:
    """Made by `AdminClient.submit`."""

    def __init__(self, call: Any, target: str, cluster_id: str, timeout_s: float) -> None:
        self._call = call
        self._target = target
        self._cluster_id = cluster_id
        self._timeout_ms = int(timeout_s * 1_000)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._last_id = 0
        self._gathered: deque[admin_pb2.SubmitRequest] = deque()
        self._writing = asyncio.Lock()
        self._end: str | None = None
        """Why the stream has ended."""
        self._is_answered = self._is_refused = False
        self._reader = asyncio.get_running_loop().create_task(self._read())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def send(self, **call: Any) -> "asyncio.Future[Any]":
        """Sends one call, named by its field of SubmitRequest; the future brings its response, errors in it included.

        Raises:
            AdminError: the server has refused the stream; nothing was sent.
            NotReached: the stream has ended; nothing was sent.
        """
        if self._end is not None:
            raise self._refusal() if self._is_refused else NotReached(ErrorCode.BROKER_NOT_AVAILABLE, self._end)
        self._last_id += 1
        request = admin_pb2.SubmitRequest(id=self._last_id, **call)
        inner = getattr(request, str(request.WhichOneof("call")))
        inner.context.cluster_id = self._cluster_id
        inner.context.timeout_ms = self._timeout_ms
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[request.id] = future
        self._gathered.append(request)
        try:
            async with self._writing:  # gRPC takes one write at a time; a second one breaks the whole call
                # Whoever writes takes along those that have gathered behind it; they find theirs gone, and return.
                while self._gathered and self._gathered[0].id <= request.id:
                    await self._call.write(self._take())
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            # The reader hears of the break too, and tells whoever waits, this caller among them.
            await asyncio.wait([self._reader])
        return future

    def _take(self) -> admin_pb2.SubmitRequests:
        """The next message: at least one call, and as many as fit."""
        requests = [self._gathered.popleft()]
        size = requests[0].ByteSize()
        while self._gathered and (size := size + self._gathered[0].ByteSize()) <= MESSAGE_BYTES_MAX:
            requests.append(self._gathered.popleft())
        return admin_pb2.SubmitRequests(requests=requests)

    async def _read(self) -> None:
        reason = "the stream ended"
        try:
            while (message := await self._call.read()) is not grpc.aio.EOF:
                self._is_answered = True
                for response in message.responses:
                    self._tell(response)
        except grpc.aio.AioRpcError as e:
            reason = f"{e.code().name}: {e.details()}"
            # A server decides about a stream before it reads a call. After an answer the same status is a break like any other.
            self._is_refused = e.code() is grpc.StatusCode.PERMISSION_DENIED and not self._is_answered
        finally:
            self._break(f"{self._target}: {reason}")

    def _tell(self, response: admin_pb2.SubmitResponse) -> None:
        future = self._waiting.pop(response.id, None)
        if future is None or future.done():
            return
        name = response.WhichOneof("answer")
        if name == "error":
            future.set_exception(AdminError.of(response.error))
        else:
            future.set_result(getattr(response, str(name)))

    def _refusal(self) -> AdminError:
        return AdminError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, str(self._end))

    def _break(self, reason: str) -> None:
        self._end = reason
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                missing = MayHaveHappened(ErrorCode.REQUEST_TIMED_OUT, reason)
                future.set_exception(self._refusal() if self._is_refused else missing)
                future.exception()  # whoever does not look is not warned about it: closing a stream is no accident

    async def close(self) -> None:
        """Ends the stream; answers that have not come are given up."""
        self._call.cancel()
        await asyncio.wait([self._reader])
