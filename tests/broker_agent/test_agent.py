"""The whole agent against an honest controller over real gRPC: up, behind, cut off, confused, and down again."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from quorum_rpc.v1 import client_pb2, client_pb2_grpc, common_pb2

from broker_agent.agent import AgentLoop, AgentTimes
from broker_agent.client import DOWNLOAD_SIZES, ControllerClient, DownloadSizes
from broker_agent.identity import BrokerIdentity
from broker_agent.own_disk.process_notes import CLEAN_SHUTDOWN_NAME
from broker_agent.publishing.publishers import ImageUpdate
from broker_agent.session.lifecycle import BrokerState, Exit
from broker_agent.session.session import Session
from broker_agent.session.session_config import SessionConfig
from broker_agent.store import BrokerStore
from broker_agent.wire import ClusterMetadata
from metadata_log.disk.files import Directory, RealDirectory
from metadata_log.disk.identity import Identity, read_identity, write_identity
from metadata_log.format.errors import ErrorCode
from metadata_log.format.partition_state import ISR
from metadata_log.format.records import (
    EXTERNAL_DATA_PLANE,
    NO_DATA_PLANE,
    RECOVERED,
    BrokerRegistrationChange,
    Endpoint,
    Partition,
    RemoveTopic,
    Topic,
    Voter,
    Voters,
)
from service_kit.process.endpoints import HostPort
from service_kit.rpc.controller_channels import ControllerChannels
from service_kit.rpc.dial import Dialer
from tests.broker_agent.controllers import CLUSTER_ID, FakeController, History, Pulse, registration
from tests.quorum.wire.refusing import code_of, refusal_of

SESSION = SessionConfig(
    max_wait_ms=200, fenced_max_wait_ms=100, request_timeout_ms=500, backoff_ms=10, backoff_max_ms=50
)


class Quiet:
    """A log that keeps what it is told."""

    def __init__(self, pulse: Pulse) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []
        self._pulse = pulse

    def info(self, event: str, **fields: object) -> None:
        self.events.append((event, fields))
        self._pulse.beat()

    debug = warning = error = info

    def said(self, event: str) -> list[dict[str, object]]:
        return [fields for name, fields in self.events if name == event]


class Process:
    """One broker process, as far as it can be one inside a test."""

    def __init__(
        self,
        path: Path,
        pulse: Pulse,
        addresses: list[HostPort],
        config: SessionConfig = SESSION,
        seed: int = 1,
        data_plane: str = EXTERNAL_DATA_PLANE,
        download: DownloadSizes = DOWNLOAD_SIZES,
        disk: Directory | None = None,
    ) -> None:
        self.log = Quiet(pulse)
        self.dialer = Dialer()
        self.incarnation = bytes([seed]) * 16
        identity = BrokerIdentity(CLUSTER_ID, 4, self.incarnation, (Endpoint("PLAINTEXT", "b4", 9092),), (), None, ())
        directory = RealDirectory(path) if disk is None else disk
        formatted = read_identity(directory) or Identity(CLUSTER_ID, 4, b"4" * 16, 1, "broker")
        write_identity(directory, formatted)
        identity = replace(identity, generation=formatted.generation, data_plane=data_plane)
        self.agent = AgentLoop(
            identity,
            Session(config, random.Random(seed), formatted.generation),
            BrokerStore(directory),
            lambda report: ControllerClient(addresses, ControllerChannels(self.dialer), report, download),
            now_ms=lambda: time.monotonic_ns() // 1_000_000,
            log=self.log,
            times=AgentTimes(flush_interval_ms=20),
        )
        self.running = asyncio.get_running_loop().create_task(self.agent.run())

    async def reaches(self, state: BrokerState) -> None:
        await asyncio.wait_for(self.agent.reached(state), 10)

    async def applies(self, offset: int) -> None:
        await asyncio.wait_for(self.agent.applied(offset), 10)

    async def stop(self) -> Exit:
        self.agent.stop()
        return await asyncio.wait_for(self.running, 10)


@pytest_asyncio.fixture
async def controller(tmp_path: Path) -> AsyncIterator[FakeController]:
    controller = await FakeController(History(tmp_path / "controller")).start()
    yield controller
    await controller.stop()


@pytest_asyncio.fixture
async def start(tmp_path: Path, controller: FakeController) -> AsyncIterator[Callable[..., Process]]:
    processes: list[Process] = []

    def begin(*addresses: HostPort, **options: Any) -> Process:
        at = [*addresses] or [HostPort("127.0.0.1", controller.port)]
        processes.append(Process(tmp_path / "broker", controller.pulse, at, **options))
        return processes[-1]

    yield begin
    for process in processes:
        process.running.cancel()
        await asyncio.gather(process.running, return_exceptions=True)
        await process.dialer.close()


Start = Callable[..., Process]


async def test_a_broker_comes_up_follows_and_leaves(controller: FakeController, start: Start) -> None:
    """Register, fetch, Online, a delta, SIGTERM, the controller's word, exit 0."""
    process = start()
    await process.reaches(BrokerState.ONLINE)
    assert process.agent.may_serve()
    assert process.agent.cache.current.is_alive(4)

    offset = controller.write(Topic("a", b"a" * 16))
    await process.applies(offset + 1)
    assert process.agent.cache.current.contains("a")

    controller.holds_leaders = True
    process.agent.stop()
    asked = len(controller.fetches)
    await controller.pulse.until(lambda: sum(fetch.wants_shut_down for fetch in controller.fetches[asked:]) >= 3)
    assert process.agent.state is BrokerState.STOPPING
    controller.holds_leaders = False
    exit_ = await asyncio.wait_for(process.running, 10)
    assert exit_ == Exit(0, "the controller allows the shutdown", process.agent.broker_epoch)


async def test_a_publisher_that_fails_is_a_problem_of_the_broker(controller: FakeController, start: Start) -> None:
    """The broker serves on, the cache follows the log, and the status of the broker names the publisher."""
    process = start()
    seen: list[int] = []

    def fails(update: ImageUpdate) -> None:
        raise KeyError("told to")

    process.agent.publishers.subscribe("bad", fails)
    process.agent.publishers.subscribe("good", lambda update: seen.append(update.provenance.offset))
    await process.reaches(BrokerState.ONLINE)
    offset = controller.write(Topic("a", b"a" * 16))
    await process.applies(offset + 1)
    assert seen[-1] == offset + 1 and process.agent.may_serve()
    status = await ClusterMetadata(process.agent, "PLAINTEXT").BrokerStatus(client_pb2.BrokerStatusRequest(), None)
    (problem,) = status.problems
    assert problem.code == "publisher_failed"
    assert problem.text.startswith("publisher 'bad' has not taken the newest metadata (")
    assert len(process.log.said("publisher failed")) == 1


async def test_a_restart_begins_from_disk_and_supersedes_its_predecessor(
    controller: FakeController, start: Start, tmp_path: Path
) -> None:
    """Its first fetch asks only for what is new; it names the process that it follows, and the clean shutdown of that process,
    whose proof was written after the data were durable."""
    for i in range(20):
        controller.write(Topic(f"t{i}", bytes([i + 1]) * 16))
    first = start(seed=1)
    await first.reaches(BrokerState.ONLINE)
    flushed = []

    async def flush_data() -> None:
        flushed.append((tmp_path / "broker" / CLEAN_SHUTDOWN_NAME).exists())

    first.agent.flush_data = flush_data
    await first.stop()
    assert flushed == [False]
    end = first.agent.cache.current.offset
    assert end > 20

    seen = len(controller.fetches)
    second = start(seed=2)
    await second.reaches(BrokerState.ONLINE)
    assert controller.fetches[seen].offset == end
    assert controller.registrations[-1].previous_incarnation_id == first.incarnation
    assert controller.registrations[-1].previous_broker_epoch == first.agent.broker_epoch
    assert not controller.registrations[0].HasField("previous_broker_epoch")
    assert second.agent.cache.current.image == controller.history.image


async def test_a_new_broker_loads_the_snapshot(controller: FakeController, start: Start) -> None:
    """Chunk by chunk, then the deltas after it."""
    controller.write(Topic("a", b"a" * 16))
    controller.history.mark()
    process = start()
    await process.reaches(BrokerState.ONLINE)

    assert process.agent.snapshots_loaded == 1
    assert process.agent.cache.current.contains("a")
    assert process.agent.cache.current.image == controller.history.image


@pytest.mark.parametrize("knows_parts", [True, False])
async def test_a_snapshot_comes_in_pieces_that_grow(
    controller: FakeController, start: Start, knows_parts: bool
) -> None:
    """Each begins where the one before it ended; also from a controller of an earlier release, which would give more."""
    controller.knows_parts = knows_parts
    write_much(controller)
    end = controller.history.mark()
    size = len(controller.history.snapshot_bytes(end))
    assert size > 60_000
    process = start(download=DownloadSizes(min_bytes=4_000, timeout_ms=10_000))
    await process.reaches(BrokerState.ONLINE)
    assert process.agent.cache.current.image == controller.history.image
    assert controller.pieces[:4] == [(0, 4_000), (4_000, 8_000), (12_000, 16_000), (28_000, 32_000)]


@pytest.mark.slow
async def test_a_piece_of_a_snapshot_that_is_too_late_is_asked_for_again_smaller(
    controller: FakeController, start: Start
) -> None:
    """From where the last one ended, so that nothing is fetched twice."""
    write_much(controller)
    controller.history.mark()
    controller.bytes_in_time = 10_000
    process = start(download=DownloadSizes(min_bytes=4_000, timeout_ms=200))
    await process.reaches(BrokerState.ONLINE)
    assert process.agent.snapshots_loaded == 1
    assert controller.pieces[:4] == [(0, 4_000), (4_000, 8_000), (12_000, 16_000), (12_000, 4_000)]
    assert process.agent.cache.current.image == controller.history.image


async def test_a_snapshot_of_which_no_piece_comes_is_given_up(controller: FakeController, start: Start) -> None:
    """The broker asks whoever leads by then, from the beginning."""
    write_much(controller)
    controller.history.mark()
    controller.bytes_in_time = 0
    process = start(download=DownloadSizes(min_bytes=4_000, timeout_ms=20, patience_ms=60))
    await controller.pulse.until(lambda: bool(process.log.said("looking for the controller")))
    assert len(controller.pieces) >= 3 and set(controller.pieces) == {(0, 4_000)}
    controller.bytes_in_time = 1 << 20
    await process.reaches(BrokerState.ONLINE)


@pytest.mark.parametrize("knows_parts", [True, False])
async def test_a_large_batch_comes_in_parts(controller: FakeController, start: Start, knows_parts: bool) -> None:
    """And the store gets it whole; a controller of an earlier release gives it whole."""
    controller.knows_parts = knows_parts
    process = start()
    await process.reaches(BrokerState.ONLINE)
    asked = len(controller.fetches)
    end = write_much(controller)
    await process.applies(end)
    assert process.agent.cache.current.image == controller.history.image
    positions = [each.part_position for each in controller.fetches[asked:]]
    assert (4_096 in positions) is knows_parts


def write_much(controller: FakeController) -> int:
    """One batch of 60 KB and more."""
    return controller.write(*(Topic(f"{n:0100}", n.to_bytes(16, "big")) for n in range(1, 501))) + 500


async def test_a_hint_leads_to_the_controller(controller: FakeController, start: Start, tmp_path: Path) -> None:
    """A bootstrap server that is a follower, one that is down, and the leader somewhere else."""
    follower = FakeController(History(tmp_path / "follower"))
    follower.refuse_with = ErrorCode.NOT_CONTROLLER
    endpoint = common_pb2.Endpoint(listener="CONTROLLER", host="127.0.0.1", port=controller.port)
    follower.hint = common_pb2.LeaderHint(leader_id=1, epoch=1, endpoint=endpoint)
    await follower.start()
    process = start(HostPort("127.0.0.1", 1), HostPort("127.0.0.1", follower.port))
    await process.reaches(BrokerState.ONLINE)

    assert len(follower.registrations) == 1
    await follower.stop()


async def test_a_broker_finds_controllers_that_only_the_metadata_names(
    controller: FakeController, start: Start
) -> None:
    """All have moved, one after the other; the broker's configuration names none of them any more. So it is after a restart."""
    moved = await FakeController(controller.history, controller.pulse).start()
    process = start()
    await process.reaches(BrokerState.ONLINE)
    home = Endpoint("CONTROLLER", "127.0.0.1", moved.port)
    offset = controller.write(Voters((Voter(1, b"d" * 16, (home,)),)))
    await process.applies(offset + 1)
    await controller.stop()
    await controller.pulse.until(lambda: bool(moved.fetches))
    assert process.agent.controllers == (HostPort("127.0.0.1", moved.port),)
    assert process.agent.controller == f"127.0.0.1:{moved.port}"
    await process.stop()

    again = start(HostPort("127.0.0.1", controller.port), seed=2)
    await again.reaches(BrokerState.ONLINE)
    assert len(moved.registrations) == 1
    await moved.stop()


async def test_without_a_controller_the_lease_lapses_and_the_next_confirmed_answer_ends_that(
    controller: FakeController, start: Start
) -> None:
    """State Online throughout: the controller never fenced it. Clients are not served meanwhile."""
    controller.lease_ms = 400
    process = start()
    await process.reaches(BrokerState.ONLINE)
    await controller.stop()
    await controller.pulse.until(lambda: process.agent.lease_lapsed)
    assert process.agent.state is BrokerState.ONLINE
    assert not process.agent.may_serve()

    await controller.start()
    await controller.pulse.until(process.agent.may_serve)
    assert process.agent.leases_lapsed == 1
    assert len(controller.registrations) == 1


async def test_a_broker_that_was_forgotten_registers_anew(controller: FakeController, start: Start) -> None:
    """Another process took the id, as far as this one is told: fenced meanwhile, and back under a new epoch."""
    process = start()
    await process.reaches(BrokerState.ONLINE)
    epoch = process.agent.broker_epoch
    controller.write(registration(4, b"x" * 16))
    await controller.pulse.until(lambda: process.agent.broker_epoch not in (None, epoch))
    await process.reaches(BrokerState.ONLINE)

    assert [fields["state"] for fields in process.log.said("broker state")] == ["fenced", "online", "fenced", "online"]


async def test_an_image_that_is_wrong_is_dropped_and_fetched_anew(controller: FakeController, start: Start) -> None:
    """The cache never goes back meanwhile: clients see no older cluster than before."""
    process = start()
    await process.reaches(BrokerState.ONLINE)
    controller.digest_is_wrong = True
    before = process.agent.cache.current.offset
    controller.write(Topic("a", b"a" * 16))
    await controller.pulse.until(lambda: process.agent.stores_dropped > 0)
    assert process.agent.cache.current.offset >= before

    controller.digest_is_wrong = False
    await controller.pulse.until(lambda: process.agent.cache.current.image == controller.history.image)
    await process.reaches(BrokerState.ONLINE)
    assert "digest" in str(process.log.said("store dropped")[0]["reason"])


async def test_a_controller_of_another_cluster_ends_the_process_with_a_clear_reason(
    controller: FakeController, start: Start
) -> None:
    """Not 0, and the words of the refusal."""
    controller.refuse_with = ErrorCode.INCONSISTENT_CLUSTER_ID
    exit_ = await asyncio.wait_for(start().running, 10)

    assert exit_.code == 1
    assert "INCONSISTENT_CLUSTER_ID" in exit_.reason


async def test_a_restarted_broker_passes_by_a_controller_of_another_cluster(
    controller: FakeController, start: Start
) -> None:
    """The first address in the broker's list belongs to another cluster now. The broker registers with the next controller."""
    first = start(seed=1)
    await first.reaches(BrokerState.ONLINE)
    await first.stop()

    foreign = await FakeController(controller.history, controller.pulse).start()
    foreign.refuse_with = ErrorCode.INCONSISTENT_CLUSTER_ID
    second = start(HostPort("127.0.0.1", foreign.port), HostPort("127.0.0.1", controller.port), seed=2)
    await second.reaches(BrokerState.ONLINE)
    assert "INCONSISTENT_CLUSTER_ID" in str(second.log.said("looking for the controller")[0]["reason"])
    await foreign.stop()


async def test_a_broker_without_any_controller_gives_up_in_time(start: Start) -> None:
    """initial.broker.registration.timeout.ms."""
    process = start(HostPort("127.0.0.1", 1), config=SessionConfig(initial_registration_timeout_ms=200, backoff_ms=10))
    exit_ = await asyncio.wait_for(process.running, 10)

    assert exit_.code == 1
    assert "initial.broker.registration.timeout.ms" in exit_.reason


# --- what clients are told -------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def served(process: Process) -> AsyncIterator[Any]:
    """A client of this process's ClusterMetadataService."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    service = ClusterMetadata(process.agent, "PLAINTEXT")
    client_pb2_grpc.add_ClusterMetadataServiceServicer_to_server(service, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield client_pb2_grpc.ClusterMetadataServiceStub(channel)  # type: ignore[no-untyped-call]
    await server.stop(None)


async def test_any_broker_answers_for_the_cluster(controller: FakeController, start: Start) -> None:
    """Nodes and topics as of an offset that the client may wait for; errors by topic."""
    process = start()
    async with served(process) as stub:
        await process.reaches(BrokerState.ONLINE)
        later = client_pb2.MetadataRequest(min_offset=controller.history.end + 1, max_wait_ms=5_000)
        waiting = stub.Metadata(later, timeout=10)
        controller.write(Topic("a", b"a" * 16))
        told = await waiting
        assert told.error.code == common_pb2.NONE
        assert (told.generation, told.as_of_offset) == (1, controller.history.end)
        assert not told.next_page_token
        assert [(node.broker_id, node.host, node.port) for node in told.nodes] == [(4, "b4", 9092)]
        assert [topic.name for topic in told.topics] == ["a"]
        assert told.controller_id == 4

        some = client_pb2.TopicNames(names=["a", "nowhere", "no/name"])
        told = await stub.Metadata(client_pb2.MetadataRequest(topics=some), timeout=5)
        codes = [topic.error.code for topic in told.topics]
        assert codes == [common_pb2.NONE, common_pb2.UNKNOWN_TOPIC_OR_PARTITION, common_pb2.INVALID_TOPIC_EXCEPTION]

        far = stub.Metadata(client_pb2.MetadataRequest(min_offset=10**6, max_wait_ms=10), timeout=5)
        assert await code_of(far) is ErrorCode.NOT_READY
        status = await stub.BrokerStatus(client_pb2.BrokerStatusRequest(), timeout=5)
        assert (status.broker_id, status.state) == (4, BrokerState.ONLINE)
        assert status.digest == controller.history.image.digest_bytes


async def test_the_log_of_a_broker_tells_what_an_update_has_deleted_and_which_listeners_differ(
    controller: FakeController, start: Start
) -> None:
    """One line for each update that deletes partitions, with their number; a warning for each listener that some brokers lack."""
    process = start()
    await process.reaches(BrokerState.ONLINE)
    a = b"a" * 16
    controller.write(Topic("a", a), *[Partition(a, n, (4,), (4,), (), (), 4, RECOVERED, 0, 0) for n in range(3)])
    await process.applies(controller.history.end)
    assert process.log.said("partitions deleted") == []
    controller.write(RemoveTopic("a", a))
    await process.applies(controller.history.end)
    assert process.log.said("partitions deleted") == [{"count": 3, "first": "a"}]

    assert process.log.said("brokers without a listener that others have") == []
    endpoints = (Endpoint("PLAINTEXT", "b5", 9092), Endpoint("TLS", "b5", 9093))
    controller.write(registration(5, b"5" * 16, endpoints)._replace(fenced=False))
    await process.applies(controller.history.end)
    (warned,) = process.log.said("brokers without a listener that others have")
    assert (warned["listener"], warned["brokers"]) == ("TLS", (4,))


async def test_a_broker_that_is_not_registered_answers_no_client(controller: FakeController, start: Start) -> None:
    """It says why; its status is told to whoever asks."""
    controller.refuse_with = ErrorCode.DUPLICATE_BROKER_REGISTRATION
    process = start()
    async with served(process) as stub:
        refusal = await refusal_of(stub.Metadata(client_pb2.MetadataRequest(), timeout=5))
        assert refusal.reason == "BROKER_NOT_AVAILABLE"
        assert "broker 4 is offline" in refusal.message
        status = await stub.BrokerStatus(client_pb2.BrokerStatusRequest(), timeout=5)
        assert (status.state, status.broker_epoch) == (BrokerState.OFFLINE, -1)


@pytest.mark.slow
async def test_snapshots_are_written_at_marks(controller: FakeController, start: Start, tmp_path: Path) -> None:
    """The controllers' file, byte for byte, on the broker's disk."""
    process = start()
    await process.reaches(BrokerState.ONLINE)
    controller.write(Topic("a", b"a" * 16))
    end = controller.history.mark()
    controller.write(Topic("b", b"b" * 16))
    await controller.pulse.until(lambda: bool(process.log.said("snapshot written")))

    (ours,) = (tmp_path / "broker" / "@metadata").glob("*.checkpoint")
    assert ours.read_bytes() == controller.history.snapshot_bytes(end)


async def test_a_recovered_cluster_is_gone_over_to_with_an_empty_store(
    controller: FakeController, start: Start, tmp_path: Path
) -> None:
    """The new generation's history is shorter and lacks a topic; the broker follows it in the same process, and remembers."""
    for i in range(20):
        controller.write(Topic(f"lost-{i}", bytes([i + 1]) * 16))
    process = start()
    await process.reaches(BrokerState.ONLINE)
    before = process.agent.cache.current.offset

    history = History(tmp_path / "recovered")
    history.write(Topic("kept", b"k" * 16))
    controller.recovered_with(history)
    await controller.pulse.until(lambda: process.agent.cache.current.contains("kept"))
    await process.reaches(BrokerState.ONLINE)
    view = process.agent.cache.current
    assert view.offset < before and not view.contains("lost-0")
    assert view.image.digest_bytes == history.image.digest_bytes
    assert process.log.said("new generation") == [
        {"generation": 2, "now": "dropping the store, fetching everything anew"}
    ]
    await process.stop()
    identity = read_identity(RealDirectory(tmp_path / "broker"))
    assert identity is not None and identity.generation == 2
    again = start(seed=2)
    await again.reaches(BrokerState.ONLINE)
    assert again.log.said("new generation") == []


TOPIC_ID = b"t" * 16


def lead_alone(controller: FakeController) -> None:
    """Broker 4 leads a partition alone in its ISR; the other replica is broker 5, which is online."""
    offset = controller.write(registration(5, b"5" * 16))
    controller.write(BrokerRegistrationChange(5, offset, fenced=False))
    controller.write(Topic("orders", TOPIC_ID), Partition(TOPIC_ID, 0, (5, 4), (4,), (), (), 4, 0, 3, 7))


def isr(controller: FakeController) -> tuple[int, ...]:
    topic = controller.history.image.topic("orders")
    assert topic is not None
    state = topic.state(0)
    assert state is not None
    return state[ISR]


async def test_without_a_data_plane_the_agent_of_a_leader_proposes_the_isr(
    controller: FakeController, start: Start
) -> None:
    """With the epochs of its image; it registers as such, and says so. Asked and granted once."""
    process = start(data_plane=NO_DATA_PLANE)
    await process.reaches(BrokerState.ONLINE)
    assert controller.registrations[-1].data_plane == "none"
    assert process.log.said("no data plane")
    lead_alone(controller)
    await controller.pulse.until(lambda: isr(controller) == (5, 4))
    await process.applies(controller.history.end)
    await controller.pulse.until(lambda: len(process.log.said("ISR proposals answered")) == 1)

    (request,) = controller.alterations
    (alteration,) = request.partitions
    image = controller.history.image
    assert (request.broker_id, request.broker_epoch) == (4, image.brokers[4].broker_epoch)
    assert (alteration.leader_epoch, alteration.partition_epoch) == (3, 7)
    assert [(each.broker_id, each.broker_epoch) for each in alteration.new_isr] == [
        (5, image.brokers[5].broker_epoch),
        (4, image.brokers[4].broker_epoch),
    ]


async def test_a_refused_request_is_made_again(controller: FakeController, start: Start) -> None:
    """The controller may just have lost its leadership: the agent asks whom the session has found by then."""
    controller.refuse_alterations_with = ErrorCode.NOT_CONTROLLER
    process = start(data_plane=NO_DATA_PLANE)
    await process.reaches(BrokerState.ONLINE)
    lead_alone(controller)
    await controller.pulse.until(lambda: len(process.log.said("ISR proposals not answered")) >= 2)
    assert isr(controller) == (4,)
    controller.refuse_alterations_with = None
    await controller.pulse.until(lambda: isr(controller) == (5, 4))


async def test_beside_a_data_plane_the_agent_proposes_nothing(controller: FakeController, start: Start) -> None:
    """It does not know who has the data: that is the default."""
    process = start()
    await process.reaches(BrokerState.ONLINE)
    lead_alone(controller)
    await process.applies(controller.history.end)
    assert controller.registrations[-1].data_plane == "external"
    await process.stop()
    assert controller.alterations == []
