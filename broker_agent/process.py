"""A broker process put together: its directory, its agent, a server for each listener, and what supervisors ask of it.

Ports are bound before the broker registers, because those ports are what it registers; until it is Online the servers say
why they answer nobody.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, nullcontext, suppress
from functools import partial
from random import Random
from typing import Final, TypeAlias

import grpc.aio
from quorum_rpc.v1 import client_pb2, client_pb2_grpc

from broker_agent.admin import SERVICE, AdminForwarding
from broker_agent.agent import Agent, BrokerIdentity
from broker_agent.client import ControllerClient, DownloadSizes
from broker_agent.config import BrokerConfig
from broker_agent.metadata_loader import Log
from broker_agent.metadata_pages import Turns
from broker_agent.metric_table import add_metrics
from broker_agent.session.lifecycle import BrokerState, Exit
from broker_agent.session.session import Session
from broker_agent.session.session_config import SessionConfig
from broker_agent.store import BrokerStore
from broker_agent.wire import ClusterMetadata, describe
from metadata_log.disk.files import RealDirectory
from metadata_log.disk.identity import Identity, check_identity, read_identity
from metadata_log.format.records import NO_DATA_PLANE, Endpoint, FeatureRange
from service_kit.process.config import ConfigErrors, ConfigProblem, effective
from service_kit.process.metrics import Metrics
from service_kit.process.notify import notify
from service_kit.rpc.controller_channels import ControllerChannels
from service_kit.rpc.dial import Dialer, Reach
from service_kit.rpc.doors import doors_of
from service_kit.rpc.health import ADMIN, QUORUM, Health, serving_http
from service_kit.rpc.server import serving
from service_kit.security.node_identity import BROKER, Node

FEATURES = (FeatureRange("metadata.version", 1, 1),)
"""What this release works with."""
WATCHDOG_INTERVAL_S = 1.0
_SERVICE = client_pb2.DESCRIPTOR.services_by_name["ClusterMetadataService"].full_name


StoppedBy: TypeAlias = Callable[[Callable[[], None]], AbstractContextManager[object]]
"""Gets what makes the broker leave in order, and calls it inside of the block if it comes to that."""
EMBEDDED: Final = (
    "none is for a broker beside which no data plane runs, and this one is embedded in a process of its own; with none the agent "
    "would put replicas into ISRs without knowing what data they have. Nothing was started: leave the key out, or say external"
)


def _embedded(config: BrokerConfig) -> ConfigProblem:
    key = "broker.data.plane"
    return ConfigProblem(key, EMBEDDED, next(row.origin for row in effective(config) if row.key == key))


def _nobody(stop: Callable[[], None]) -> AbstractContextManager[None]:
    return nullcontext()


def open_directory(config: BrokerConfig) -> tuple[RealDirectory, Identity]:
    """The broker's directory, locked for this process, and whose it is.

    Raises:
        UnformattedDirectory, ForeignDirectory: the message says what to do.
        DirectoryInUse: another process runs on it.
        LogFormatError: its `meta.properties` cannot be read.
    """
    path = config.metadata_log_dir
    directory = RealDirectory(path) if path.is_dir() else None  # a directory that is not there is not made here
    found = None if directory is None else read_identity(directory)
    identity = check_identity(found, node_id=config.node_id, role="broker", where=str(path))
    assert directory is not None
    directory.lock()
    return directory, identity


async def run_broker(
    config: BrokerConfig,
    now_ms: Callable[[], int],
    log: Log,
    *,
    stopped_by: StoppedBy = _nobody,
    started: Callable[[Agent], None] | None = None,
) -> Exit:
    """One broker from its directory to its exit. `stopped_by` gets the function that makes it leave in order.

    `started` is for a process that embeds a broker beside a data plane of its own: it gets the agent once the ports are bound.

    Raises:
        ConfigErrors: it is embedded, and its configuration says that there is no data plane. Nothing was done.
        What `open_directory` raises; CannotBind, TlsUnusable: a listener cannot be served; OSError, FlushFailed: the disk.
    """
    if started is not None and config.broker_data_plane == NO_DATA_PLANE:
        raise ConfigErrors([_embedded(config)])
    directory, identity = open_directory(config)
    health, metrics = Health(), Metrics(process=True)
    async with AsyncExitStack() as stack:
        stack.callback(directory.unlock)
        node = Node(BROKER, identity.node_id)
        doors = doors_of(node, identity.cluster_id, config.tls_files, config.access, log.warning)
        dialer = await stack.enter_async_context(Dialer(config.tls_files))
        reach = ControllerChannels(dialer, doors.names, config.tls_files)
        agent = make_agent(config, directory, identity, reach, now_ms, log)
        if config.metrics_listener is not None:
            add_metrics(metrics, agent)
            port = await stack.enter_async_context(serving_http(config.metrics_listener, health, metrics))
            log.info("metrics", port=port)
        controllers = AdminForwarding(partial(controllers_of, agent, config), reach, doors)
        bound = await stack.enter_async_context(serving_clients(agent, config, health, controllers))
        for each in bound:
            log.info("listening", listener=each.listener, host=each.host, port=each.port)
        agent.advertise(advertised(config, bound))
        await stack.enter_async_context(telling(agent, health))
        stack.enter_context(stopped_by(agent.stop))
        if started is not None:
            started(agent)
        return await agent.run()


def make_agent(
    config: BrokerConfig,
    directory: RealDirectory,
    identity: Identity,
    reach: Reach,
    now_ms: Callable[[], int],
    log: Log,
) -> Agent:
    """The agent of this directory, not yet running."""
    rng = Random(secrets.randbits(64))
    controllers = list(config.controller_quorum_bootstrap_servers)
    rng.shuffle(controllers)  # brokers that start together do not all knock at the same door
    broker = BrokerIdentity(
        cluster_id=identity.cluster_id,
        broker_id=config.node_id,
        incarnation=secrets.token_bytes(16),
        endpoints=(),
        features=FEATURES,
        rack=config.broker_rack,
        log_dirs=(identity.directory_id,),
        generation=identity.generation,
        data_plane=config.broker_data_plane,
    )
    return Agent(
        broker,
        Session(session_config(config), rng, identity.generation),
        BrokerStore(directory),
        lambda report: ControllerClient(controllers, reach, report, download_sizes(config)),
        now_ms=now_ms,
        log=log,
    )


def session_config(config: BrokerConfig) -> SessionConfig:
    """The session's times as they were configured."""
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
    """How snapshots are downloaded, as it was configured."""
    return DownloadSizes(config.metadata_fetch_piece_min_bytes, config.metadata_fetch_snapshot_max_bytes)


def advertised(config: BrokerConfig, bound: tuple[Endpoint, ...]) -> tuple[Endpoint, ...]:
    """What is registered: the advertised listeners, a port of 0 replaced by the one that was bound."""
    ports = {each.listener: each.port for each in bound}
    return tuple(
        Endpoint(each.name, each.address.host, each.address.port or ports[each.name]) for each in config.advertised
    )


@asynccontextmanager
async def serving_clients(
    agent: Agent, config: BrokerConfig, health: Health, controllers: AdminForwarding
) -> AsyncIterator[tuple[Endpoint, ...]]:
    """Serves every listener inside of the block; gives what is bound. Health is told at the first one."""
    async with AsyncExitStack() as stack:
        bound: list[Endpoint] = []
        turns = Turns()
        for each in config.listeners:
            service = ClusterMetadata(agent, each.name, turns)

            def add(server: grpc.aio.Server, service: ClusterMetadata = service) -> None:
                client_pb2_grpc.add_ClusterMetadataServiceServicer_to_server(service, server)  # type: ignore[no-untyped-call]
                server.add_generic_rpc_handlers((controllers,))

            served = serving(
                each.address,
                add,
                tls=config.tls_files,
                servers=len(config.listeners),
                health=None if bound else health,
                reflect=(_SERVICE, SERVICE.full_name),
            )
            port = await stack.enter_async_context(served)
            bound.append(Endpoint(each.name, each.address.host, port))
        stack.push_async_callback(controllers.stop)
        yield tuple(bound)


def controllers_of(agent: Agent, config: BrokerConfig) -> tuple[str, ...]:
    """Where controllers are: first the one that this broker fetches from, last what only the metadata tells."""
    known = (*config.controller_quorum_bootstrap_servers, *agent.controllers)
    return tuple(dict.fromkeys((agent.controller, *(each.target for each in known))))


@asynccontextmanager
async def telling(agent: Agent, health: Health) -> AsyncIterator[None]:
    """Inside of the block health checks and systemd are told how the broker is."""
    task = asyncio.get_running_loop().create_task(_tell(agent, health))
    try:
        yield
    finally:
        notify("STOPPING=1")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _tell(agent: Agent, health: Health) -> None:
    told = ""
    while True:
        problem = None if agent.may_serve() else describe(agent)
        # What is asked of a broker is metadata: as long as it may answer, both are well.
        await health.set(QUORUM, problem)
        await health.set(ADMIN, problem)
        status = f"{agent.state.name.lower()}: {agent.reason}"
        if status != told:
            told = status
            notify(f"STATUS={status}" + ("\nREADY=1" if agent.state is BrokerState.ONLINE else ""))
        notify("WATCHDOG=1")
        with suppress(TimeoutError):
            await asyncio.wait_for(agent.changed(), WATCHDOG_INTERVAL_S)
