"""The broker's connection to the controllers: one stream of fetches, and calls for registration and snapshots.

The client keeps the address of the presumed active controller (a bootstrap server, a voter named in the metadata, or a leader
named in an answer), and changes it when the session says so. The session decides all else: when to ask again, and which answer
counts.

A fetch waits at the controller for up to `max_wait_ms`, and the answers of a stream arrive in order. So a more urgent fetch opens
a new stream. The client cancels the old stream, and recognizes a late answer from it by its number:

    1. Broker 101 sends fetch 7, which may wait for 1.2 s. After 0.1 s SIGTERM arrives.
    2. The session abandons fetch 7. The client cancels the stream, and sends fetch 8 with the wish to stop on a new stream.
    3. The controller answers fetch 8 at once. A late answer to fetch 7 no longer counts.

Over TLS `reach` makes sure that the server is a controller of this cluster, and the named controller if an id is given. No other
server gets a request (`service_kit.rpc.controller_channels`).
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NamedTuple

import grpc
from quorum_rpc.v1 import broker_pb2, broker_pb2_grpc

from broker_agent import convert
from broker_agent.session.lifecycle import FetchAnswered, FetchFailed, Input, LeaderHint, Registered, RegisterFailed
from metadata_log.format.errors import ErrorCode
from metadata_log.format.fetch_size import PIECE_BYTES_MIN, FetchSize
from metadata_log.format.ids import NodeId
from service_kit.process.endpoints import HostPort
from service_kit.rpc.dial import Reach, WrongServer, is_wrong_server

SNAPSHOT_BYTES_MAX = 64 << 30
"""Maximum size of a snapshot; a controller that reports a larger one is not believed."""

UNDECODABLE = "sent an answer that cannot be decoded"
"""The reason for a failed call with None as its answer: gRPC gives None for bytes that are no message."""


class SnapshotUnavailable(Exception):
    """The download failed; a later fetch answer starts another download."""


class CallFailed(Exception):
    """A call was refused or not answered. A call without an answer may have taken effect."""


class SnapshotPiece(NamedTuple):
    """Bytes of a snapshot file, in order; `size` is the size of the whole file."""

    size: int
    position: int
    data: bytes


class DownloadSizes(NamedTuple):
    """Limits of a download: its pieces are small enough to arrive in time (`metadata_log.format.fetch_size`)."""

    min_bytes: int = PIECE_BYTES_MIN
    max_bytes: int = 1 << 20
    timeout_ms: int = 1_000
    """How long to wait for one piece."""
    patience_ms: int = 10_000
    """How long a download goes on without receiving a piece."""


DOWNLOAD_SIZES = DownloadSizes()


class ControllerClient:
    """The connection to the active controller, for one event loop; `report` gets the answers."""

    def __init__(
        self,
        bootstrap: Sequence[HostPort],
        reach: Reach,
        report: Callable[[Input], None],
        download_sizes: DownloadSizes = DOWNLOAD_SIZES,
    ) -> None:
        """The owner of `reach` keeps the channels and closes them."""
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
        """`host:port` of the controller that the client asks now."""
        return self._address.target

    def turn_to(self, leader: LeaderHint | None, known: Sequence[HostPort] = ()) -> None:
        """Asks `leader` from now on; without a leader, the next of the bootstrap servers and of the `known` addresses."""
        if leader is not None:
            address, leader_id = HostPort(leader.host, leader.port), leader.leader_id
        else:
            everybody = tuple(dict.fromkeys((*self._bootstrap, *known)))
            self._turn = (self._turn + 1) % len(everybody)
            address, leader_id = everybody[self._turn], None
        self.abandon_fetch()
        self._address, self._leader_id = address, leader_id
        self._stub = None  # even at the same address: another controller may have taken it over

    def register(self, request: broker_pb2.RegisterBrokerRequest, number: int, timeout_ms: int) -> None:
        """Registers the broker; reports `Registered` or `RegisterFailed` within `timeout_ms`."""
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
        if response is None:
            self._report(RegisterFailed(number, ErrorCode.BROKER_NOT_AVAILABLE, f"{self.target} {UNDECODABLE}"))
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
        """Returns the answer, with a result for each partition.

        Raises:
            CallFailed: the whole request was refused, or no answer came within `timeout_ms`.
        """
        answer: broker_pb2.AlterPartitionResponse = await self._call("AlterPartition", request, timeout_ms)
        return answer

    async def assign_replicas(
        self, request: broker_pb2.AssignReplicasToDirsRequest, timeout_ms: int
    ) -> broker_pb2.AssignReplicasToDirsResponse:
        """Returns the answer, with a result for each replica.

        Raises:
            CallFailed: the whole request was refused, or no answer came within `timeout_ms`.
        """
        answer: broker_pb2.AssignReplicasToDirsResponse = await self._call("AssignReplicasToDirs", request, timeout_ms)
        return answer

    async def allocate_producer_ids(
        self, request: broker_pb2.AllocateProducerIdsRequest, timeout_ms: int
    ) -> broker_pb2.AllocateProducerIdsResponse:
        """Returns a block of producer ids.

        Raises:
            CallFailed: the request was refused, or no answer came within `timeout_ms`.
        """
        answer: broker_pb2.AllocateProducerIdsResponse = await self._call("AllocateProducerIds", request, timeout_ms)
        return answer

    async def _call(self, method: str, request: Any, timeout_ms: int) -> Any:
        """Returns the answer of a unary method. Raises CallFailed."""
        try:
            response = await getattr(await self._open_stub(), method)(request, timeout=timeout_ms / 1_000)
        except (WrongServer, OSError) as e:
            raise CallFailed(f"{self.target}: {e}") from e
        except grpc.aio.AioRpcError as e:
            raise CallFailed(self._describe(e)) from e
        if response is None:
            raise CallFailed(f"{self.target} {UNDECODABLE}")
        code = ErrorCode.of(response.error.code)
        if code is not ErrorCode.NONE:
            raise CallFailed(f"{self.target}: {code.name}: {response.error.message}")
        return response

    def fetch(self, request: broker_pb2.MetadataFetchRequest) -> None:
        """Sends a fetch on the open or a new stream; reports `FetchAnswered` or `FetchFailed`. The session has the timeout."""
        assert self._in_flight is None, "one fetch in flight"
        self._in_flight = request.number
        self._start(self._send(request))

    def abandon_fetch(self) -> None:
        """Closes the stream, because the session no longer waits for the answer."""
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
            # The receiver gets the reason of the break, and reports it.
            return

    async def _receive(self, stream: Any) -> None:
        """Takes every answer of one stream until the stream ends; a fetch still in flight on it has failed."""
        code, reason = ErrorCode.BROKER_NOT_AVAILABLE, f"{self.target}: the stream ended"
        try:
            async for response in stream:
                if response is None:
                    reason = f"{self.target} {UNDECODABLE}"
                    stream.cancel()
                    break
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
            text = f"{self.target} sent a result of kind {response.result}, which this release does not know; nothing was applied"
            self._report(FetchFailed(response.number, ErrorCode.UNKNOWN_SERVER_ERROR, text))
        else:
            self._report(FetchAnswered(answer))

    async def snapshot(self, request: broker_pb2.FetchMetadataSnapshotRequest) -> AsyncIterator[SnapshotPiece]:
        """Yields the file's bytes from `request.position` to its end, in pieces without gaps.

        Each piece is a call with its own timeout. A piece that is too late is requested again in a smaller size.

        Raises:
            SnapshotUnavailable: the controller does not have the snapshot, the stream broke, no piece came for too long, or a
                piece was invalid.
        """
        try:
            stub = await self._open_stub()
        except (WrongServer, OSError) as e:
            raise SnapshotUnavailable(f"{self.target}: {e}") from e
        sizes, loop = self._download_sizes, asyncio.get_running_loop()
        pieces = FetchSize(sizes.min_bytes, sizes.max_bytes, sizes.timeout_ms)
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
        """Returns the answer to one call, as many bytes as were asked for. (Earlier releases would send the rest of the file.)"""
        call = stub.FetchMetadataSnapshot(request, timeout=self._download_sizes.timeout_ms / 1_000)
        chunks: list[SnapshotPiece] = []
        position = request.position
        try:
            async for chunk in call:
                if chunk is None:
                    raise SnapshotUnavailable(f"{self.target} {UNDECODABLE}")
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
        """Cancels all calls."""
        self.abandon_fetch()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _open_stub(self) -> Any:
        """Returns the service of the current controller. Raises WrongServer, OSError."""
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
        raise SnapshotUnavailable(
            f"invalid piece: a snapshot of {chunk.size} bytes, after a size of {size}; the download restarts"
        )
    if chunk.position != position or not chunk.data or position + len(chunk.data) > chunk.size:
        where = f"{len(chunk.data)} bytes at {chunk.position} of {chunk.size}"
        raise SnapshotUnavailable(
            f"invalid piece: {where}, where position {position} comes next; the download restarts"
        )
    return chunk.size


def _transport_code(e: grpc.aio.AioRpcError) -> ErrorCode:
    """Returns the error code of a call without an answer; the controller may have done the work."""
    if e.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return ErrorCode.REQUEST_TIMED_OUT
    if e.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return ErrorCode.BROKER_NOT_AVAILABLE
