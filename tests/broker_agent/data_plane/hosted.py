"""One broker with its data plane in this process: real disks, threads and gRPC; the agent, controllers and sources are fakes."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
from quorum_rpc.v1 import broker_pb2, partition_pb2, partition_pb2_grpc

from broker_agent.client import CallFailed
from broker_agent.data_plane.data_plane import DataPlane
from broker_agent.data_plane.fetch_messages import FetchLimits
from broker_agent.data_plane.isr_sender import IsrSender
from broker_agent.data_plane.partition_service import PartitionService
from broker_agent.data_plane.producer_ids import ProducerIdBlock, ProducerIds
from broker_agent.partitions.manager_config import ManagerConfig
from broker_agent.partitions.replica_manager import ReplicaManager
from broker_agent.publishing.assignment_feed import AssignmentFeed
from broker_agent.publishing.publishers import ImageUpdate
from broker_agent.replica.fetch_sessions import SessionAnswer, SessionRequest
from broker_agent.session.isr_proposals import IsrProposal, Place
from broker_agent.session.lifecycle import BrokerState
from metadata_log.disk.files import RealDirectory
from metadata_log.format.data_batch import DataRecord, pack_records
from metadata_log.format.ids import Uuid
from metadata_log.format.records import MetadataRecord, Partition, Topic
from metadata_log.image.delta import MetadataDelta
from metadata_log.image.metadata_image import NOWHERE, Provenance
from service_kit.process.clock import RealClock
from service_kit.process.endpoints import HostPort
from service_kit.rpc.doors import Doors
from service_kit.rpc.server import serving
from service_kit.security.tls import TlsFiles
from tests.broker_agent.data_plane.lines import Lines
from tests.metadata_log.image.histories import broker as registration
from tests.metadata_log.image.histories import newest_level

ME, OTHER = 1, 2
ORDERS: Uuid = b"o" * 16
DIRECTORY: Uuid = b"D" * 16


def orders(count: int, leader: int = ME, *, alone: bool = False) -> list[MetadataRecord]:
    """The topic `orders`, with replicas on both brokers or on this one alone, led by `leader`."""
    replicas = (ME,) if alone else (ME, OTHER)
    partitions = [Partition(ORDERS, number, replicas, replicas, (), (), leader, 0, 0, 0) for number in range(count)]
    return [Topic("orders", ORDERS), *partitions]


def place(partition: int = 0, topic_id: Uuid = ORDERS) -> partition_pb2.TopicIdPartition:
    return partition_pb2.TopicIdPartition(topic_id=topic_id, partition=partition)


def append_of(*partitions: int, acks: int = -1, timeout_ms: int = 5_000) -> partition_pb2.AppendRequest:
    """A record for each of the partitions."""
    packed = pack_records([DataRecord(1_000, b"k", b"v")]).packed
    batches = [
        partition_pb2.PartitionBatch(partition=place(each), record_count=1, records=packed) for each in partitions
    ]
    return partition_pb2.AppendRequest(acks=acks, timeout_ms=timeout_ms, batches=batches)


def fetch_of(offset: int = 0, partition: int = 0, **fields: Any) -> partition_pb2.FetchRecordsRequest:
    """A consumer's fetch without a session."""
    request = partition_pb2.FetchRecordsRequest(session_epoch=-1, **fields)
    request.partitions.add(partition=place(partition), offset=offset)
    return request


class Sources:
    """The brokers that this one follows: they answer nothing, and tell who was asked."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[tuple[int, SessionRequest, int, FetchLimits]] = asyncio.Queue()

    async def fetch(
        self, source_id: int, session: SessionRequest, broker_epoch: int, limits: FetchLimits, timeout_s: float
    ) -> SessionAnswer:
        self.asked.put_nowait((source_id, session, broker_epoch, limits))
        raise CallFailed("nobody is there")


class Hosted:
    """A broker, registered under epoch 1, and online. It is the data plane's agent, and the service's broker."""

    def __init__(self, path: Path, doors: Doors) -> None:
        delta = MetadataDelta(newest_level())
        for broker_id in (ME, OTHER):
            delta.replay(registration(broker_id), 0)
        self.image = delta.finish(NOWHERE)
        self.cache = SimpleNamespace(current=SimpleNamespace(image=self.image))
        self.broker_id = ME
        self.broker_epoch: int | None = self.image.brokers[ME].broker_epoch
        self.state, self.reason, self.lease_lapsed = BrokerState.ONLINE, "", False
        self.has_lease = True
        self.assignments_may_come = asyncio.Event()
        self.assignments_may_come.set()
        self.assigned: list[tuple[Uuid, Place]] = []
        self.failed: list[Uuid] = []
        self.gave_up: list[str] = []
        self.sources = Sources()
        self.lines = Lines()
        clock = RealClock()
        self.feed = AssignmentFeed(ME, lambda image: True)
        manager = ReplicaManager(ME, {DIRECTORY: RealDirectory(path)}, ManagerConfig(), random.Random(5))
        self.data_plane = DataPlane(
            self,
            manager,
            self.sources,
            self.feed,
            FetchLimits(500, 1, 1 << 20),
            lambda take: IsrSender(self._propose, take, clock.now_ms, self.lines),
            threads_per_directory=2,
            now_ms=clock.now_ms,
            wall_ms=clock.wall_ms,
            log=self.lines,
        )
        producer_ids = ProducerIds(self._allocate, lambda: 1)
        self.service = PartitionService(self, self.data_plane, producer_ids, doors)  # type: ignore[arg-type]
        self.stub: Any = None
        self.port = 0

    def may_serve(self) -> bool:
        return self.has_lease

    def assign_directories(self, directory: Uuid, replicas: Iterable[Place]) -> None:
        self.assigned += [(directory, each) for each in replicas]

    def directory_failed(self, directory: Uuid) -> None:
        self.failed.append(directory)

    def give_up(self, reason: str) -> None:
        self.gave_up.append(reason)

    async def _propose(self, proposals: tuple[IsrProposal, ...]) -> broker_pb2.AlterPartitionResponse:
        raise CallFailed("no controller")

    async def _allocate(self) -> ProducerIdBlock:
        await asyncio.sleep(0)
        return ProducerIdBlock(4_000, 1_000, 1)

    async def write(self, *records: MetadataRecord) -> None:
        """Commits records to the metadata."""
        before, delta = self.image, MetadataDelta(self.image)
        for offset, record in enumerate(records, before.offset):
            delta.replay(record, offset)
        self.image = delta.finish(Provenance(before.offset + len(records), 1, 1_000))
        self.cache.current.image = self.image
        update = ImageUpdate(before, self.image, delta.changed)
        self.data_plane.inputs.note(update)
        await self.data_plane.inputs.take(update)
        await self.assignments_may_come.wait()
        await self.feed.take(update)

    async def leads(self, *partitions: int) -> None:
        """Returns once this broker leads the partitions: their logs are open."""
        async with asyncio.timeout(10):
            while not all((ORDERS, each) in {at for _, at in self.assigned} for each in partitions):
                await asyncio.sleep(0.001)


@asynccontextmanager
async def hosted(path: Path, tls: TlsFiles | None = None, doors: Doors | None = None) -> AsyncIterator[Hosted]:
    """Runs a broker inside of the block, with a client of it; over TLS without one."""
    broker = Hosted(path, doors or Doors())
    broker.data_plane.start()
    running = asyncio.create_task(broker.data_plane.run())

    def add(server: grpc.aio.Server) -> None:
        partition_pb2_grpc.add_PartitionServiceServicer_to_server(broker.service, server)  # type: ignore[no-untyped-call]

    try:
        async with (
            serving(HostPort("127.0.0.1", 0), add, tls=tls, grace_s=0.1) as port,
            grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
        ):
            broker.port = port
            broker.stub = partition_pb2_grpc.PartitionServiceStub(channel)  # type: ignore[no-untyped-call]
            yield broker
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        broker.data_plane.close()
