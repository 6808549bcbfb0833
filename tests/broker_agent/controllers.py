"""A controller that is honest and simple: one log, everything in it committed, and the BrokerService over real gRPC.

It keeps the contract of `broker.proto` and can be told to misbehave: to be mute, to give no lease, to refuse.
"""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
from quorum_rpc.v1 import broker_pb2, broker_pb2_grpc, common_pb2

from metadata_log.disk.files import RealDirectory
from metadata_log.format.errors import ErrorCode
from metadata_log.format.fetch_size import as_asked
from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.format.records import (
    FROM_OFFSET,
    BrokerRegistrationChange,
    Endpoint,
    PartitionChange,
    Record,
    RegisterBroker,
    SnapshotMark,
    Voter,
    Voters,
)
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.replay import Replay
from metadata_log.store.log import Log
from snapshots.format import SnapshotMeta
from snapshots.store import SnapshotStore

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
VOTERS = Voters((Voter(1, b"d" * 16, (Endpoint("CONTROLLER", "c1", 9093),)),))
LEASE_MS = 5_000
Registration = RegisterBroker
"""The record. In `FakeController`, `RegisterBroker` is the method."""


class Pulse:
    """Something has happened, somewhere: tests that wait for a state look again, and never sleep."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def beat(self) -> None:
        event, self._event = self._event, asyncio.Event()
        event.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Returns once `condition` holds; fails after 10 s."""
        async with asyncio.timeout(10):
            while not condition():
                await self._event.wait()


class History:
    """A committed log, as the controllers have it, and the image of it."""

    def __init__(self, path: Path) -> None:
        self.directory = RealDirectory(path)
        self.log = Log.open(self.directory, chain=b"g" * 32)
        self.snapshots = SnapshotStore(self.directory)
        self.snapshot: OffsetAndEpoch | None = None
        self._replay = Replay()
        self._wall_ms = 1_000
        self.write(VOTERS)

    @property
    def image(self) -> MetadataImage:
        return self._replay.image

    @property
    def end(self) -> int:
        return self.log.shape.end

    def write(self, *records: Record) -> int:
        """Commits them as one batch; returns the offset of the first."""
        self._wall_ms += 10
        batch = self.log.append(records, 1, self._wall_ms)
        self._replay.apply((batch,))
        return batch.base_offset

    def mark(self) -> OffsetAndEpoch:
        """A snapshot mark, and the snapshot at it."""
        self.write(SnapshotMark("test"))
        end = self.log.shape.end_and_epoch
        meta = SnapshotMeta(end, self.image.provenance.timestamp_ms, self.log.shape.chain, VOTERS, 1)
        self.snapshots.write(meta, self.image)
        self.snapshot = end
        return end

    def batches(self, offset: int, max_bytes: int = 1 << 20) -> bytes:
        return b"".join(batch.data for batch in self.log.read(offset, max_bytes))

    def chain_at(self, offset: int) -> bytes:
        return self.log.chain_at(offset) or b""

    def snapshot_bytes(self, end: OffsetAndEpoch) -> bytes:
        data, size = b"", 1
        while len(data) < size:
            size, more = self.snapshots.read_chunk(end, len(data), 1 << 20)
            data += more
        return data


def registration(broker_id: int, incarnation: bytes, endpoints: tuple[Endpoint, ...] = ()) -> RegisterBroker:
    endpoints = endpoints or (Endpoint("PLAINTEXT", f"b{broker_id}", 9092),)
    return RegisterBroker(broker_id, incarnation, endpoints, (), None, True, False, (), FROM_OFFSET)


class FakeController(broker_pb2_grpc.BrokerServiceServicer):
    """Answers from a `History`; unfences whoever is caught up and does not object."""

    def __init__(self, history: History, pulse: Pulse | None = None) -> None:
        self.history = history
        self.pulse = pulse or Pulse()
        self.fetches: list[Any] = []
        self.registrations: list[Any] = []
        self.alterations: list[Any] = []
        self.refuse_alterations_with: ErrorCode | None = None
        self.allocations: list[Any] = []
        self.assignments: list[Any] = []
        self.refuse_assignments_with: ErrorCode | None = None
        self.lease_ms = LEASE_MS
        self.holds_leaders = False
        self.is_deaf_to_losses = False
        self.refuse_with: ErrorCode | None = None
        self.generation = 1
        self.hint: common_pb2.LeaderHint | None = None
        self.digest_is_wrong = False
        self.knows_parts = True
        """False: a controller of an earlier release."""
        self.pieces: list[tuple[int, int]] = []
        """Position and most bytes of each piece of a snapshot that was asked for."""
        self.bytes_in_time = 1 << 40
        """A larger piece of a snapshot would not come before it is waited for no more."""
        self._news = asyncio.Event()
        self._server: grpc.aio.Server | None = None
        self.port = 0

    async def start(self) -> "FakeController":
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        broker_pb2_grpc.add_BrokerServiceServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self._server.start()
        return self

    async def stop(self) -> None:
        """As kill -9 would: every stream breaks, and nobody listens at the port."""
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    def write(self, *records: Record) -> int:
        offset = self.history.write(*records)
        self._wake()
        return offset

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()
        self.pulse.beat()

    def _refusal(self) -> common_pb2.Error | None:
        if self.refuse_with is None:
            return None
        return common_pb2.Error(code=self.refuse_with.value, message="told to")  # type: ignore[arg-type]

    def recovered_with(self, history: History) -> None:
        """An operator has recovered the cluster without a majority: another history, in the next generation."""
        self.history = history
        self.generation += 1
        self._wake()

    def _left_behind(self, request: Any, response: Any) -> bool:
        if (request.generation or 1) == self.generation:
            return False
        response.error.code = ErrorCode.INVALID_CONTROL_GENERATION.value
        response.generation = self.generation
        return True

    async def RegisterBroker(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.registrations.append(request)
        self.pulse.beat()
        response = broker_pb2.RegisterBrokerResponse()
        if self._left_behind(request, response):
            return response
        refusal = self._refusal()
        if refusal is not None:
            return broker_pb2.RegisterBrokerResponse(error=refusal, leader=self.hint)
        known = self.history.image.brokers.get(request.broker_id)
        if known is not None and known.incarnation_id == request.incarnation_id:
            return broker_pb2.RegisterBrokerResponse(broker_epoch=known.broker_epoch)
        endpoints = tuple(Endpoint(each.listener, each.host, each.port) for each in request.endpoints)
        registered = registration(request.broker_id, request.incarnation_id, endpoints)
        offset = self.write(registered._replace(log_dirs=tuple(request.log_dirs)))
        return broker_pb2.RegisterBrokerResponse(broker_epoch=offset)

    async def MetadataFetch(self, requests: Any, context: Any) -> Any:  # noqa: N802
        async for request in requests:
            self.fetches.append(request)
            self.pulse.beat()
            yield await self._fetched(request)

    async def _fetched(self, request: Any) -> Any:
        response = broker_pb2.MetadataFetchResponse(number=request.number, controller_epoch=1)
        if self._left_behind(request, response):
            return response
        known = self.history.image.brokers.get(request.broker_id)
        refusal = self._refusal()
        if refusal is not None:
            response.error.CopyFrom(refusal)
            return response
        if known is None or known.broker_epoch != request.broker_epoch:
            response.error.code = ErrorCode.STALE_BROKER_EPOCH.value  # type: ignore[assignment]
            return response
        self._follow(request, known)
        if request.offset == self.history.end and request.max_wait_ms:
            news = self._news
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(news.wait(), request.max_wait_ms / 1_000)
            if self._left_behind(request, response):
                return response
        self._fill(request, response)
        return response

    def _follow(self, request: Any, known: Registration) -> None:
        kept = tuple(each for each in known.log_dirs if each not in request.offline_log_dirs)
        if kept != known.log_dirs and not self.is_deaf_to_losses:
            self.write(BrokerRegistrationChange(known.broker_id, known.broker_epoch, log_dirs=kept))
        caught_up = request.offset > known.broker_epoch
        if known.fenced and caught_up and not request.wants_fence and not request.wants_shut_down:
            self.write(BrokerRegistrationChange(known.broker_id, known.broker_epoch, fenced=False))
        elif not known.fenced and (request.wants_fence or (request.wants_shut_down and not self.holds_leaders)):
            self.write(BrokerRegistrationChange(known.broker_id, known.broker_epoch, fenced=True))

    def _fill(self, request: Any, response: Any) -> None:
        history = self.history
        known = history.image.brokers[request.broker_id]
        response.high_watermark = history.end
        response.state = broker_pb2.FENCED if known.fenced else broker_pb2.ONLINE
        response.should_shut_down = request.wants_shut_down and known.fenced
        response.lease_ms = self.lease_ms
        if request.offset == 0 and history.snapshot is not None:
            response.result = broker_pb2.MetadataFetchResponse.USE_SNAPSHOT
            response.snapshot.end_offset, response.snapshot.epoch = history.snapshot
            return
        if request.offset and request.chain != history.chain_at(request.offset):
            response.error.code = ErrorCode.CHAIN_MISMATCH.value
            return
        response.result = broker_pb2.MetadataFetchResponse.BATCHES
        response.previous_chain = history.chain_at(request.offset)
        found = history.log.read(request.offset, request.max_bytes)
        position = request.part_position if self.knows_parts and request.HasField("part_position") else None
        batches, part = as_asked(found, request.max_bytes, position)
        response.batches = b"".join(batch.data for batch in batches)
        response.end_offset = batches[-1].end_offset if batches else request.offset
        if part is not None:
            response.part.position, response.part.size, response.part.data = part
            response.end_offset = found[0].end_offset if part.is_last else request.offset
        if response.end_offset == history.end:
            response.digest = b"?" * 32 if self.digest_is_wrong else history.image.digest_bytes
            response.digest_offset = history.end

    async def AlterPartition(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Grants whatever ISR is proposed."""
        self.alterations.append(request)
        self.pulse.beat()
        response = broker_pb2.AlterPartitionResponse()
        if self.refuse_alterations_with is not None:
            response.error.code = self.refuse_alterations_with.value  # type: ignore[assignment]
            return response
        for each in request.partitions:
            isr = tuple(member.broker_id for member in each.new_isr)
            self.write(PartitionChange(each.topic_id, each.partition, isr=isr))
            response.results.add(topic_id=each.topic_id, partition=each.partition, isr=isr, leader_id=request.broker_id)
        response.offset = self.history.end
        return response

    async def AllocateProducerIds(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Gives blocks of two."""
        self.allocations.append(request)
        first = 2 * (len(self.allocations) - 1)
        return broker_pb2.AllocateProducerIdsResponse(first_producer_id=first, count=2, offset=-1)

    async def AssignReplicasToDirs(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Records whatever directory is named, for a broker that is the only replica."""
        self.assignments.append(request)
        self.pulse.beat()
        response = broker_pb2.AssignReplicasToDirsResponse()
        if self.refuse_assignments_with is not None:
            response.error.code = self.refuse_assignments_with.value  # type: ignore[assignment]
            return response
        for each in request.directories:
            for replica in each.replicas:
                self.write(PartitionChange(replica.topic_id, replica.partition, directories=(each.directory_id,)))
                response.results.add(topic_id=replica.topic_id, partition=replica.partition)
        response.offset = self.history.end
        return response

    async def FetchMetadataSnapshot(self, request: Any, context: Any) -> Any:  # noqa: N802
        end = OffsetAndEpoch(request.snapshot.end_offset, request.snapshot.epoch)
        if end != self.history.snapshot:
            yield broker_pb2.SnapshotChunk(error=common_pb2.Error(code=common_pb2.SNAPSHOT_NOT_FOUND))
            return
        self.pieces.append((request.position, request.max_bytes))
        if request.max_bytes > self.bytes_in_time:
            await asyncio.Event().wait()
        data = self.history.snapshot_bytes(end)
        until = min(len(data), request.position + request.max_bytes) if self.knows_parts else len(data)
        for position in range(request.position, until, 1_000):
            chunk = data[position : min(until, position + 1_000)]
            yield broker_pb2.SnapshotChunk(size=len(data), position=position, data=chunk)
