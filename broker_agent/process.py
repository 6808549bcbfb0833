"""One broker process: opens the directory, runs the agent, serves each listener, and answers health checks and systemd.

The ports are bound before the broker registers, because the registration names them. Until the broker is online, the servers
refuse clients with the reason.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import (
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from functools import partial
from random import Random
from typing import Final, TypeAlias

import grpc.aio
from quorum_rpc.v1 import client_pb2, client_pb2_grpc, data_plane_pb2_grpc, partition_pb2_grpc

from broker_agent.admin import ENTITIES, SERVICE, AdminForwarding
from broker_agent.agent import AgentLoop
from broker_agent.client import ControllerClient, DownloadSizes
from broker_agent.config import PARTITIONS_DATA_PLANE, BrokerConfig
from broker_agent.data_plane.assembly import hosting_partitions
from broker_agent.data_plane.log_dirs import OpenLogDir, lock, open_log_dirs
from broker_agent.data_plane.metric_table import add_partition_metrics
from broker_agent.data_plane.partition_service import SERVICE as PARTITIONS
from broker_agent.data_plane.partition_service import PartitionService
from broker_agent.death.process_note import BESIDE, INSIDE, NOWHERE, note_of, write_note
from broker_agent.death.proof import is_served
from broker_agent.identity import BrokerIdentity
from broker_agent.metadata_loader import Log
from broker_agent.metadata_pages import Turns
from broker_agent.metric_table import add_metrics
from broker_agent.own_disk.process_notes import forget_incarnations
from broker_agent.publishing import assignment_hook, data_plane_service
from broker_agent.publishing.assignment_feed import AssignmentFeed
from broker_agent.publishing.assignment_hook import AssignmentHook
from broker_agent.session.lifecycle import BrokerState, Exit
from broker_agent.session.replica_directories import DirectoryLimits
from broker_agent.session.session import Session
from broker_agent.session.session_config import SessionConfig
from broker_agent.store import BrokerStore
from broker_agent.watching.watched_log import BrokerWatchedLog
from broker_agent.wire import ClusterMetadata, describe
from metadata_log.disk.files import RealDirectory
from metadata_log.disk.identity import Identity, check_identity, read_identity
from metadata_log.format.records import (
    EXTERNAL_DATA_PLANE,
    NO_DATA_PLANE,
    STATE_REASONS,
    SUPPORTED,
    Endpoint,
    FeatureRange,
)
from service_kit.process.background import in_background
from service_kit.process.config import ConfigErrors, ConfigProblem, effective
from service_kit.process.endpoints import HostPort
from service_kit.process.metrics import Metrics
from service_kit.process.notify import notify
from service_kit.rpc.call_tallies import CallTallies
from service_kit.rpc.controller_channels import ControllerChannels
from service_kit.rpc.dial import Dialer, Reach
from service_kit.rpc.doors import Doors, doors_of
from service_kit.rpc.health import ADMIN, QUORUM, Health, serving_http
from service_kit.rpc.server import serving
from service_kit.security.node_identity import BROKER, Node
from service_kit.security.served_certificate import ServedCertificate
from watches.service.watch_service import SERVICE as WATCHES
from watches.service.watch_service import WatchService

FEATURES = (*SUPPORTED, FeatureRange(STATE_REASONS, 0, 1))
"""The features of this release."""
WATCHDOG_INTERVAL_S = 1.0
_SERVICE = client_pb2.DESCRIPTOR.services_by_name["ClusterMetadataService"].full_name


StoppedBy: TypeAlias = Callable[[Callable[[], None]], AbstractContextManager[object]]
"""Gets the function that begins a controlled shutdown, and calls it if the broker has to stop inside of the block."""
EMBEDDED: Final = {
    PARTITIONS_DATA_PLANE: (
        "partitions is the data plane of `brokerd`, but this broker is embedded in another process, which has its own. Nothing "
        "was started. Remove the key, or set it to external; or run `brokerd`"
    ),
    NO_DATA_PLANE: (
        "none is for a broker beside which no data plane runs, but this broker is embedded in another process; with none the "
        "agent would add replicas to ISRs without knowing their data. Nothing was started. Remove the key, or set it to external"
    ),
}
"""The values of broker.data.plane that an embedded broker cannot have, with the reasons."""


def _embedded(config: BrokerConfig) -> ConfigProblem:
    key = "broker.data.plane"
    return ConfigProblem(
        key, EMBEDDED[config.broker_data_plane], next(row.origin for row in effective(config) if row.key == key)
    )


def _nobody(stop: Callable[[], None]) -> AbstractContextManager[None]:
    return nullcontext()


def open_directory(config: BrokerConfig) -> tuple[RealDirectory, Identity]:
    """Opens the broker's directory, locked for this process, and reads the identity.

    Raises:
        UnformattedDirectory, ForeignDirectory: the message says what to do.
        DirectoryInUse: another process has locked the directory.
        LogFormatError: the directory's `meta.properties` cannot be read.
    """
    path = config.metadata_log_dir
    directory = RealDirectory(path) if path.is_dir() else None  # a missing directory is not created here
    found = None if directory is None else read_identity(directory)
    identity = check_identity(found, node_id=config.node_id, role="broker", where=str(path))
    assert directory is not None
    lock(directory)
    return directory, identity


def _note_process(
    config: BrokerConfig, directory: RealDirectory, log_dirs: Sequence[OpenLogDir], log: Log, *, is_embedded: bool
) -> None:
    """Notes the locks of this process for watchers. Beside a data plane that serves, this process names no predecessor."""
    data_plane = data_plane_of(config, is_embedded=is_embedded)
    write_note(directory, note_of((config.metadata_log_dir, *(each.path for each in log_dirs)), data_plane))
    if is_served(config.metadata_log_dir):
        log.warning("a data plane still serves with leases of the last process: its session has to end first")
        forget_incarnations(directory)


def data_plane_of(config: BrokerConfig, *, is_embedded: bool) -> str:
    """The place in which this broker's data are served."""
    if config.broker_data_plane == NO_DATA_PLANE:
        return NOWHERE
    return INSIDE if is_embedded or config.broker_data_plane == PARTITIONS_DATA_PLANE else BESIDE


async def run_broker(
    config: BrokerConfig,
    now_ms: Callable[[], int],
    log: Log,
    *,
    stopped_by: StoppedBy = _nobody,
    started: Callable[[AgentLoop], None] | None = None,
) -> Exit:
    """Runs one broker from its directory to its exit. `stopped_by` gets the function that begins a controlled shutdown.

    `started` is for a process that embeds a broker beside a data plane: it gets the agent once the ports are bound.

    Raises:
        ConfigErrors: the broker is embedded, and its configuration says that there is no data plane. Nothing was done.
        UnformattedDirectory, ForeignDirectory, DirectoryInUse, LogFormatError: see `open_directory`.
        CannotBind, TlsUnusable: a listener cannot be served.
        OSError, FlushFailed: the disk has failed.
    """
    if started is not None and config.broker_data_plane in EMBEDDED:
        raise ConfigErrors([_embedded(config)])
    directory, identity = open_directory(config)
    health, metrics, calls = Health(), Metrics(process=True), CallTallies()
    async with AsyncExitStack() as stack:
        stack.callback(directory.unlock)
        log_dirs: tuple[OpenLogDir, ...] = ()
        if config.broker_data_plane == PARTITIONS_DATA_PLANE:
            log_dirs = stack.enter_context(open_log_dirs(config.log_dirs, identity, log))
        _note_process(config, directory, log_dirs, log, is_embedded=started is not None)
        node = Node(BROKER, identity.node_id)
        doors = doors_of(node, identity.cluster_id, config.tls_files, config.access, log.warning)
        dialer = await stack.enter_async_context(Dialer(config.tls_files))
        reach = ControllerChannels(dialer, doors.names, config.tls_files)
        agent = make_agent(config, directory, identity, reach, now_ms, log)
        certificate = stack.enter_context(_kept_certificate(config, doors, node, log))
        watching = WatchService(BrokerWatchedLog(agent), None, doors, config.watches_max)
        if config.metrics_listener is not None:
            add_metrics(metrics, agent, calls, certificate, watching.tallies)
            port = await stack.enter_async_context(serving_http(config.metrics_listener, health, metrics))
            log.info("metrics", port=port)
        controllers = AdminForwarding(partial(controllers_of, agent, config), reach, doors)
        partitions = None
        if log_dirs:
            hosting = hosting_partitions(config, agent, log_dirs, doors, now_ms, log)
            partitions = await stack.enter_async_context(hosting)
            add_partition_metrics(metrics, partitions.data_plane)
        serving_ = serving_clients(agent, config, health, controllers, calls, certificate, partitions, watching)
        bound = await stack.enter_async_context(serving_)
        for each in bound:
            log.info("listening", listener=each.listener, host=each.host, port=each.port)
        agent.advertise(advertised(config, bound))
        beside = await stack.enter_async_context(telling_data_plane(agent, config, now_ms, calls))
        if beside is not None:
            log.info("listening to the data plane", port=beside)
        await stack.enter_async_context(telling(agent, health))
        stack.enter_context(stopped_by(agent.stop))
        if started is not None:
            started(agent)
        return await agent.run()


@contextmanager
def _kept_certificate(config: BrokerConfig, doors: Doors, node: Node, log: Log) -> Iterator[ServedCertificate | None]:
    """Watches the files of this broker's certificate inside of the block; yields None without TLS."""
    if config.tls_files is None:
        yield None
        return
    certificate = ServedCertificate(config.tls_files, doors.names, node)
    keeping = certificate.keep(tell=lambda problem: log.warning("certificate", reason=problem or "it is valid again"))
    with in_background("certificate", keeping):
        yield certificate


def make_agent(
    config: BrokerConfig,
    directory: RealDirectory,
    identity: Identity,
    reach: Reach,
    now_ms: Callable[[], int],
    log: Log,
) -> AgentLoop:
    """Makes the agent of this directory; the caller runs it."""
    rng = Random(secrets.randbits(64))
    controllers = list(config.controller_quorum_bootstrap_servers)
    rng.shuffle(controllers)  # so brokers that start together ask different controllers first
    broker = BrokerIdentity(
        cluster_id=identity.cluster_id,
        broker_id=config.node_id,
        incarnation=secrets.token_bytes(16),
        endpoints=(),
        features=FEATURES,
        rack=config.broker_rack,
        log_dirs=(identity.directory_id,),
        generation=identity.generation,
        data_plane=NO_DATA_PLANE if config.broker_data_plane == NO_DATA_PLANE else EXTERNAL_DATA_PLANE,
    )
    return AgentLoop(
        broker,
        Session(session_config(config), rng, identity.generation),
        BrokerStore(directory),
        lambda report: ControllerClient(controllers, reach, report, download_sizes(config)),
        now_ms=now_ms,
        log=log,
        directory_limits=DirectoryLimits(failure_timeout_ms=config.log_dir_failure_timeout_ms),
    )


def session_config(config: BrokerConfig) -> SessionConfig:
    """The session's timers, from the configuration."""
    return SessionConfig(
        lease_mode=config.lease_mode,
        max_wait_ms=config.metadata_fetch_max_wait_ms,
        fenced_max_wait_ms=min(500, config.metadata_fetch_max_wait_ms),
        initial_registration_timeout_ms=config.initial_broker_registration_timeout_ms,
        shutdown_deadline_ms=config.controlled_shutdown_deadline_ms,
        max_bytes=config.metadata_fetch_max_bytes,
        piece_bytes_min=config.metadata_fetch_piece_min_bytes,
    )


def download_sizes(config: BrokerConfig) -> DownloadSizes:
    """The limits of a snapshot's download, from the configuration."""
    return DownloadSizes(config.metadata_fetch_piece_min_bytes, config.metadata_fetch_snapshot_max_bytes)


def advertised(config: BrokerConfig, bound: tuple[Endpoint, ...]) -> tuple[Endpoint, ...]:
    """The endpoints to register: the advertised listeners, with the bound port in place of port 0."""
    ports = {each.listener: each.port for each in bound}
    return tuple(
        Endpoint(each.name, each.address.host, each.address.port or ports[each.name]) for each in config.advertised
    )


@asynccontextmanager
async def serving_clients(
    agent: AgentLoop,
    config: BrokerConfig,
    health: Health,
    controllers: AdminForwarding,
    calls: CallTallies | None = None,
    certificate: ServedCertificate | None = None,
    partitions: PartitionService | None = None,
    watches: WatchService | None = None,
) -> AsyncIterator[tuple[Endpoint, ...]]:
    """Serves every listener inside of the block; yields the bound endpoints. The first listener also answers health checks."""
    async with AsyncExitStack() as stack:
        bound: list[Endpoint] = []
        turns, watching = Turns(), watches or WatchService(BrokerWatchedLog(agent))
        reflect = (
            _SERVICE,
            SERVICE.full_name,
            WATCHES.full_name,
            ENTITIES.full_name,
            *(() if partitions is None else (PARTITIONS.full_name,)),
        )
        for each in config.listeners:
            service = ClusterMetadata(agent, each.name, turns)

            def add(server: grpc.aio.Server, service: ClusterMetadata = service) -> None:
                client_pb2_grpc.add_ClusterMetadataServiceServicer_to_server(service, server)  # type: ignore[no-untyped-call]
                server.add_generic_rpc_handlers((controllers, watching))
                if partitions is not None:
                    partition_pb2_grpc.add_PartitionServiceServicer_to_server(partitions, server)  # type: ignore[no-untyped-call]

            served = serving(
                each.address,
                add,
                tls=config.tls_files,
                certificate=certificate,
                servers=len(config.listeners),
                health=None if bound else health,
                reflect=reflect,
                tallies=calls,
            )
            port = await stack.enter_async_context(served)
            bound.append(Endpoint(each.name, each.address.host, port))
        stack.push_async_callback(controllers.stop)
        stack.push_async_callback(watching.close)
        yield tuple(bound)


@asynccontextmanager
async def telling_data_plane(
    agent: AgentLoop, config: BrokerConfig, now_ms: Callable[[], int], calls: CallTallies
) -> AsyncIterator[int | None]:
    """Tells the assignments to a data plane beside this process, if there is one; yields the port for it."""
    if config.data_plane_hook is not None:
        feed = AssignmentFeed(agent.broker_id, agent.is_current)
        hook = AssignmentHook([str(config.data_plane_hook)], config.data_plane_hook_timeout_ms, feed)
        agent.publishers.subscribe(assignment_hook.NAME, hook.take)
    if config.data_plane_listener is None:
        yield None
        return
    async with serving_data_plane(agent, config.data_plane_listener, now_ms, calls) as port:
        yield port


@asynccontextmanager
async def serving_data_plane(
    agent: AgentLoop, address: HostPort, now_ms: Callable[[], int], calls: CallTallies
) -> AsyncIterator[int]:
    """Serves assignments and the lease to a process on this host inside of the block; yields the port."""
    feed = AssignmentFeed(agent.broker_id, agent.is_current)
    agent.publishers.subscribe(data_plane_service.NAME, feed.take)
    service = data_plane_service.DataPlane(agent, feed, now_ms)

    def add(server: grpc.aio.Server) -> None:
        data_plane_pb2_grpc.add_DataPlaneServiceServicer_to_server(service, server)  # type: ignore[no-untyped-call]

    async with serving(address, add, reflect=(data_plane_service.SERVICE.full_name,), tallies=calls) as port:
        yield port
        feed.end()


def controllers_of(agent: AgentLoop, config: BrokerConfig) -> tuple[str, ...]:
    """The controllers' addresses: first the controller of the fetches, then the bootstrap servers, then the voters."""
    known = (*config.controller_quorum_bootstrap_servers, *agent.controllers)
    return tuple(dict.fromkeys((agent.controller, *(each.target for each in known))))


@asynccontextmanager
async def telling(agent: AgentLoop, health: Health) -> AsyncIterator[None]:
    """Reports the broker's state to health checks and systemd inside of the block."""
    with in_background("health and systemd", _tell(agent, health)):
        try:
            yield
        finally:
            notify("STOPPING=1")


async def _tell(agent: AgentLoop, health: Health) -> None:
    told = ""
    while True:
        problem = None if agent.may_serve() else describe(agent)
        # Both services need the metadata: as long as the broker may serve, both are healthy.
        await health.set(QUORUM, problem)
        await health.set(ADMIN, problem)
        health.remark({each.subject: each.text for each in agent.problems})
        status = f"{agent.state.name.lower()}: {agent.reason}"
        if status != told:
            told = status
            notify(f"STATUS={status}" + ("\nREADY=1" if agent.state is BrokerState.ONLINE else ""))
        notify("WATCHDOG=1")
        with suppress(TimeoutError):
            async with asyncio.timeout(WATCHDOG_INTERVAL_S):
                await agent.changed()
