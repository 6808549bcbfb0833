"""The client's end of `Submit`: many changes in flight at once, answered in the order of completion.

    async with await client.submit() as stream:
        waiting = [await stream.send(create_topics=request) for request in requests]
        answers = await asyncio.gather(*waiting)

`send` returns when gRPC has accepted the request; while the controller is busy, gRPC does not. Calls that collect meanwhile share
the next message.

When the stream breaks, every call without an answer may have happened. The caller may send such a call again on another stream
if the call has an id (`context.request_id`, with the `client_high_watermark` of the first attempt):

    1. A tool sends CreateTopics for orders with the id 5f..., and DeleteTopics for payments without an id.
    2. The controller commits both and is killed before it answers. Both futures raise `MayHaveHappened`.
    3. The tool sends CreateTopics again with the id 5f.... The new leader finds the id in its image, and creates nothing twice.
    4. The tool lists the topics to learn that payments is deleted.
"""

import asyncio
from collections import deque
from typing import Any, Final, Self

import grpc
from quorum_rpc.v1 import admin_pb2, common_pb2

from clients.errors import AdminError, MayHaveHappened, NotReached
from clients.streams.stream_status import StreamStatus
from metadata_log.format.errors import ErrorCode

MESSAGE_BYTES_MAX: Final = 1 << 20
"""Maximum size of a message with several calls; the receiver accepts 4 MiB."""


class SubmitStream:
    """One open stream; `AdminClient.submit` opens it."""

    def __init__(self, call: Any, target: str, cluster_id: str, timeout_s: float) -> None:
        self._call = call
        self._status = StreamStatus(call)
        self._target = target
        self._cluster_id = cluster_id
        self._timeout_ms = int(timeout_s * 1_000)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._last_id = 0
        self._gathered: deque[admin_pb2.SubmitRequest] = deque()
        self._writing = asyncio.Lock()
        self._end: str | None = None
        """The reason if the stream has ended."""
        self._is_answered = self._is_refused = False
        self._reader = asyncio.get_running_loop().create_task(self._read())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def send(self, **call: Any) -> "asyncio.Future[Any]":
        """Sends one call, named by its field of SubmitRequest; the returned future gets the response or an error.

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
            async with self._writing:  # gRPC takes one write at a time; a second write would break the stream
                # A writer also sends the calls collected behind its own. Their senders find them sent, and return.
                while self._gathered and self._gathered[0].id <= request.id:
                    await self._call.write(self._take())
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            # The reader gets the break too, and fails every waiting future, also the one of this call.
            await asyncio.wait([self._reader])
        return future

    def _take(self) -> admin_pb2.SubmitRequests:
        """Takes the next message: at least one call, and as many more as fit."""
        requests = [self._gathered.popleft()]
        size = requests[0].ByteSize()
        while self._gathered and (size := size + self._gathered[0].ByteSize()) <= MESSAGE_BYTES_MAX:
            requests.append(self._gathered.popleft())
        return admin_pb2.SubmitRequests(requests=requests)

    async def _read(self) -> None:
        reason = "the stream ended"
        try:
            while (message := await self._call.read()) is not grpc.aio.EOF:
                if message is None:  # gRPC gives None for bytes that are no message
                    reason = "the server sent an answer that cannot be decoded"
                    break
                self._is_answered = True
                for response in message.responses:
                    self._tell(response)
        except grpc.aio.AioRpcError as e:
            code, details = await self._status.why(e)
            reason = f"{code.name}: {details}"
            # A server refuses a stream before it reads a call. After an answer the same status is a break like any other.
            self._is_refused = code is grpc.StatusCode.PERMISSION_DENIED and not self._is_answered
        finally:
            self._break(f"{self._target}: {reason}")

    def _tell(self, response: admin_pb2.SubmitResponse) -> None:
        future = self._waiting.pop(response.id, None)
        if future is None or future.done():
            return
        name = response.WhichOneof("answer")
        if name == "error":
            future.set_exception(_failure(response.error))
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
                future.exception()  # marks the error as seen: a caller that ignores an answer gets no warning

    async def close(self) -> None:
        """Ends the stream; calls without an answer fail."""
        self._call.cancel()
        await asyncio.wait([self._reader])


def _failure(error: common_pb2.Error) -> AdminError:
    """Returns the error of a call without an answer of its own kind. A mistake in the server leaves the outcome open."""
    code = ErrorCode.of(error.code)
    return MayHaveHappened(code, error.message) if code is ErrorCode.UNKNOWN_SERVER_ERROR else AdminError.of(error)
