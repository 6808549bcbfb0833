"""How a broker reaches the controllers: one stream of fetches, and calls for registration and snapshots.

Knows where the active controller is believed to be (a bootstrap server, a voter that the metadata names, or whom somebody
named) and turns elsewhere when it is told to. It decides nothing else: when to ask again, and whether an answer counts, is the
session's business.

A fetch waits at the controller for up to its `max_wait_ms`, and a stream's answers come in order. So a fetch that becomes
more urgent than the one that waits opens a new stream; the old one is cancelled, and what it would still bring is dropped
by its number.

Over TLS `reach` sees to it that whoever answers is a controller of this cluster, and the named one where one was named; nobody
else is asked anything (`service_kit.rpc.controller_channels`).
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NamedTuple

import grpc
from quorum_rpc.v1 import broker_pb2, broker_pb2_grpc

from broker_agent import convert
from broker_agent.session.lifecycle import FetchAnswered, FetchFailed, Input, LeaderHint, Registered, RegisterFailed
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId
from metadata_log.format.pieces import PIECE_BYTES_MIN, PieceSize
from service_kit.process.endpoints import HostPort
from service_kit.rpc.dial import Reach, WrongServer, is_wrong_server

SNAPSHOT_BYTES_MAX = 64 << 30
"""No snapshot is larger; a size that says so is not believed."""


class SnapshotUnavailable(Exception):
    """The download cannot go on; it begins again with the next fetch's answer."""


class CallFailed(Exception):
    """A call was refused, or not answered: then it may have been done."""


class SnapshotPiece(NamedTuple):
    """Bytes of a snapshot file, in order; `size` is the whole file's."""

    size: int
    position: int
    data: bytes


class DownloadSizes(NamedTuple):
    """How a snapshot is downloaded: in pieces of a size that comes in time (`metadata_log.format.pieces`)."""

    min_bytes: int = PIECE_BYTES_MIN
    max_bytes: int = 1 << 20
    timeout_ms: int = 1_000
    """Of one piece."""
    patience_ms: int = 10_000
    """After so long without any piece the download is given up."""


DOWNLOAD_SIZES = DownloadSizes()


class ControllerClient:
    """The way to the active controller. Lives on one event loop; `report` gets what comes back."""

    def __init__(
        self,
        bootstrap: Sequence[HostPort],
        reach: Reach,
        report: Callable[[Input], None],
        download_sizes: DownloadSizes = DOWNLOAD_SIZES,
    ) -> None:
        """The giver of `reach` keeps its channels, and closes them in the end."""
        assert bootstrap
        self._download_sizes = download_sizes
        self._bootstrap = tuple(bootstrap)
        self._turn = 0
        self._address = self._bootstrap[0]
        self._leader_id: NodeId | None = None
        self._reach = reach
        self._report = report
        self._stub: Any = None
        self._stream: Any = None
        self._in_flight: int | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def target(self) -> str:
        """Where it asks now."""
        return self._address.target

    def turn_to(self, leader: LeaderHint | None, known: Sequence[HostPort] = ()) -> None:
        """From now on asks `leader`. Where nobody was named it is the next of the bootstrap servers and of the `known`."""
        if leader is not None:
            address, leader_id = HostPort(leader.host, leader.port), leader.leader_id
        else:
            everybody = tuple(dict.fromkeys((*self._bootstrap, *known)))
            self._turn = (self._turn + 1) % len(everybody)
            address, leader_id = everybody[self._turn], None
        self.abandon_fetch()
        self._address, self._leader_id = address, leader_id
        self._stub = None  # also at the same address: another controller may be there now

    def register(self, request: broker_pb2.RegisterBrokerRequest, number: int, timeout_ms: int) -> None:
        """Reports `Registered` or `RegisterFailed`, within `timeout_ms`."""
        self._start(self._register(request, number, timeout_ms))

    async def _register(self, request: broker_pb2.RegisterBrokerRequest, number: int, timeout_ms: int) -> None:
        try:
            response = await (await self._open_stub()).RegisterBroker(request, timeout=timeout_ms / 1_000)
        except (WrongServer, OSError) as e:
            self._report(RegisterFailed(number, ErrorCode.BROKER_NOT_AVAILABLE, f"{self.target}: {e}"))
            return
        except grpc.aio.AioRpcError as e:
            self._report(RegisterFailed(number, _transport_code(e), self._describe(e)))
            return
        code = ErrorCode.of(response.error.code)
        if code is ErrorCode.NONE:
            self._report(Registered(number, response.broker_epoch))
        else:
            hint = convert.leader_hint(response.leader)
            self._report(RegisterFailed(number, code, response.error.message, hint, response.generation))

    async def alter_partition(
        self, request: broker_pb2.AlterPartitionRequest, timeout_ms: int
    ) -> broker_pb2.AlterPartitionResponse:
        """The answer, a result for each partition.

        Raises:
            CallFailed: the request was refused as a whole, or no answer came within `timeout_ms`.
        """
        try:
            response = await (await self._open_stub()).AlterPartition(request, timeout=timeout_ms / 1_000)
        except (WrongServer, OSError) as e:
            raise CallFailed(f"{self.target}: {e}") from e
        except grpc.aio.AioRpcError as e:
            raise CallFailed(self._describe(e)) from e
        code = ErrorCode.of(response.error.code)
        if code is not ErrorCode.NONE:
            raise CallFailed(f"{self.target}: {code.name}: {response.error.message}")
        answer: broker_pb2.AlterPartitionResponse = response
        return answer

    def fetch(self, request: broker_pb2.MetadataFetchRequest) -> None:
        """Sends on the open stream, or opens one. Reports `FetchAnswered` or `FetchFailed`; deadlines are the session's."""
        assert self._in_flight is None, "one fetch in flight"
        self._in_flight = request.number
        self._start(self._send(request))

    def abandon_fetch(self) -> None:
        """Nobody waits for the answer any more: the stream that it would come on is closed."""
        self._in_flight = None
        if self._stream is not None:
            self._stream.cancel()
            self._stream = None

    async def _send(self, request: broker_pb2.MetadataFetchRequest) -> None:
        if self._in_flight != request.number:
            return  # abandoned before it was sent
        if self._stream is None:
            try:
                stub = await self._open_stub()
            except (WrongServer, OSError) as e:
                if self._in_flight == request.number:
                    self._in_flight = None
                    text = f"{self.target}: {e}"
                    self._report(FetchFailed(request.number, ErrorCode.BROKER_NOT_AVAILABLE, text))
                return
            if self._in_flight != request.number:
                return  # abandoned meanwhile
            self._stream = stub.MetadataFetch()
            self._start(self._receive(self._stream))
        try:
            await self._stream.write(request)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            # The receiver hears of the break too, with the reason in its hands, and reports it.
            return

    async def _receive(self, stream: Any) -> None:
        """Every answer of one stream, until it ends; then whatever was in flight on it has failed."""
        code, reason = ErrorCode.BROKER_NOT_AVAILABLE, f"{self.target}: the stream ended"
        try:
            async for response in stream:
                if stream is self._stream:
                    self._take(response)
        except grpc.aio.AioRpcError as e:
            code, reason = _transport_code(e), self._describe(e)
        except asyncio.CancelledError:
            if not stream.cancelled():
                raise
        if stream is self._stream:
            self._stream = None
            number, self._in_flight = self._in_flight, None
            if number is not None:
                self._report(FetchFailed(number, code, reason))

    def _take(self, response: broker_pb2.MetadataFetchResponse) -> None:
        if response.number != self._in_flight:
            return
        self._in_flight = None
        code = ErrorCode.of(response.error.code)
        if code is not ErrorCode.NONE:
            hint = convert.leader_hint(response.leader)
            self._report(FetchFailed(response.number, code, response.error.message, hint, response.generation))
            return
        answer = convert.fetch_answer(response)
        if answer is None:
            text = f"a result of kind {response.result}, which this release does not know"
            self._report(FetchFailed(response.number, ErrorCode.UNKNOWN_SERVER_ERROR, text))
        else:
            self._report(FetchAnswered(answer))

    async def snapshot(self, request: broker_pb2.FetchMetadataSnapshotRequest) -> AsyncIterator[SnapshotPiece]:
        """The file's bytes from `request.position` on, piece by piece and without gaps, until its end.

        Each piece is a call of its own, with a deadline. One that is too late is asked for again, smaller.

        Raises:
            SnapshotUnavailable: the controller does not have it, the stream broke, no piece has come for too long, or what came
                makes no sense.
        """
        try:
            stub = await self._open_stub()
        except (WrongServer, OSError) as e:
            raise SnapshotUnavailable(f"{self.target}: {e}") from e
        sizes, loop = self._download_sizes, asyncio.get_running_loop()
        pieces = PieceSize(sizes.min_bytes, sizes.max_bytes, sizes.timeout_ms)
        position, size, came_s = request.position, None, loop.time()
        while size is None or position < size:
            asked_s = loop.time()
            request.position, request.max_bytes = position, pieces.bytes
            try:
                chunks = await self._chunks(stub, request, size)
            except grpc.aio.AioRpcError as e:
                too_late = e.code() is grpc.StatusCode.DEADLINE_EXCEEDED
                if not too_late or loop.time() - came_s > sizes.patience_ms / 1_000:
                    raise SnapshotUnavailable(self._describe(e)) from e
                pieces.start_small()
                continue
            came_s = loop.time()
            if not chunks:
                raise SnapshotUnavailable(f"{self.target}: the stream ended at {position} of {size} bytes")
            for chunk in chunks:
                size, position = chunk.size, chunk.position + len(chunk.data)
                yield chunk
            if size is not None and position < size:
                pieces.came(sum(len(chunk.data) for chunk in chunks), round(1_000 * asked_s), round(1_000 * came_s))

    async def _chunks(
        self, stub: Any, request: broker_pb2.FetchMetadataSnapshotRequest, size: int | None
    ) -> list[SnapshotPiece]:
        """What one call gives: as much as was asked for. (A controller of an earlier release would go on to the file's end.)"""
        call = stub.FetchMetadataSnapshot(request, timeout=self._download_sizes.timeout_ms / 1_000)
        chunks: list[SnapshotPiece] = []
        position = request.position
        try:
            async for chunk in call:
                code = ErrorCode.of(chunk.error.code)
                if code is not ErrorCode.NONE:
                    raise SnapshotUnavailable(f"{self.target}: {code.name}: {chunk.error.message}")
                size = _checked_size(chunk, position, size)
                chunks.append(SnapshotPiece(size, chunk.position, chunk.data))
                position += len(chunk.data)
                if position >= request.position + request.max_bytes:
                    break
        finally:
            call.cancel()
        return chunks

    async def close(self) -> None:
        """Ends every call."""
        self.abandon_fetch()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _open_stub(self) -> Any:
        """The service where it asks now. Raises WrongServer, OSError."""
        if self._stub is not None:
            return self._stub
        asked = self._address, self._leader_id
        channel = await self._reach(self.target, self._leader_id)
        stub: Any = broker_pb2_grpc.BrokerServiceStub(channel)  # type: ignore[no-untyped-call]
        if asked == (self._address, self._leader_id):
            self._stub = stub
        return stub

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _describe(self, e: grpc.aio.AioRpcError) -> str:
        if is_wrong_server(e) and self._leader_id is not None:
            return f"{self.target} does not show the certificate of controller {self._leader_id}: {e.details()}"
        return f"{self.target}: {e.code().name}: {e.details()}"


def _checked_size(chunk: broker_pb2.SnapshotChunk, position: int, size: int | None) -> int:
    if not 0 < chunk.size <= SNAPSHOT_BYTES_MAX or (size is not None and chunk.size != size):
        raise SnapshotUnavailable(f"a snapshot of {chunk.size} bytes, before that of {size}")
    if chunk.position != position or not chunk.data or position + len(chunk.data) > chunk.size:
        raise SnapshotUnavailable(f"{len(chunk.data)} bytes at {chunk.position} of {chunk.size}; {position} comes next")
    return chunk.size


def _transport_code(e: grpc.aio.AioRpcError) -> ErrorCode:
    """No answer: whether the other side did anything is not known."""
    if e.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return ErrorCode.REQUEST_TIMED_OUT
    if e.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return ErrorCode.BROKER_NOT_AVAILABLE
