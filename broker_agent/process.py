"""A broker process put together: its directory, its agent, a server for each listener. What `brokerd` runs.

Ports are bound before the broker registers, because what it registers are those ports; until it is Online the servers say
why they answer nobody.
"""

import secrets
from collections.abc import Callable, Sequence
from random import Random

import grpc
from quorum_rpc.v1 import client_pb2_grpc

from broker_agent.agent import Agent, BrokerIdentity, Log
from broker_agent.client import ControllerClient
from broker_agent.config import BrokerConfig
from broker_agent.lifecycle import Exit
from broker_agent.session import Session, SessionConfig
from broker_agent.store import BrokerStore
from broker_agent.wire import ClusterMetadata
from metadata_log.files import RealDirectory
from metadata_log.identity import Identity, check_identity, read_identity
from metadata_log.records import Endpoint, FeatureRange

FEATURES = (FeatureRange("metadata.version", 1, 1),)
"""What this release works with."""

Dial = Callable[[str], grpc.aio.Channel]
MakeServer = Callable[[], grpc.aio.Server]


class PortInUse(OSError):
    """A listener's address cannot be bound; the message names it."""


def open_directory(config: BrokerConfig) -> tuple[RealDirectory, Identity]:
    """The broker's directory, locked for this process, and whose it is.

    Raises:
        UnformattedDirectory, ForeignDirectory: the message says what to do.
        DirectoryInUse: another process runs on it.
        LogFormatError: its `meta.properties` cannot be read.
    """
    path = config.metadata_log_dir
    directory = RealDirectory(path) if path.is_dir() else None
    found = None if directory is None else read_identity(directory)
    identity = check_identity(found, node_id=config.node_id, role="broker", where=str(path))
    assert directory is not None
    directory.lock()
    return directory, identity


class BrokerProcess:
    """One broker: `start` it, `run` it to its end, `close` it."""

    def __init__(
        self,
        config: BrokerConfig,
        directory: RealDirectory,
        identity: Identity,
        *,
        dial: Dial,
        make_server: MakeServer,
        now_ms: Callable[[], int],
        log: Log,
    ) -> None:
        self.config = config
        self.identity = identity
        self.agent: Agent
        self.listeners: tuple[Endpoint, ...] = ()
        """What is bound, with the ports that were given."""
        self._directory = directory
        self._dial = dial
        self._make_server = make_server
        self._now_ms = now_ms
        self._log = log
        self._servers: list[grpc.aio.Server] = []
        self._rng = Random(secrets.randbits(64))

    async def start(self) -> None:
        """Binds every listener and starts to serve.

        Raises:
            PortInUse: naming the listener.
        """
        config = self.config
        servers = [self._make_server() for _ in config.listeners]
        self.listeners = tuple(
            each._replace(port=_bind(server, each)) for server, each in zip(servers, config.listeners, strict=True)
        )
        self.agent = self._agent(_advertised(config, self.listeners))
        for server, each in zip(servers, self.listeners, strict=True):
            service = ClusterMetadata(self.agent, each.listener)
            client_pb2_grpc.add_ClusterMetadataServiceServicer_to_server(service, server)  # type: ignore[no-untyped-call]
            await server.start()
            self._servers.append(server)
            self._log.info("listening", listener=each.listener, host=each.host, port=each.port)

    def _agent(self, endpoints: tuple[Endpoint, ...]) -> Agent:
        config = self.config
        identity = BrokerIdentity(
            cluster_id=self.identity.cluster_id,
            broker_id=config.node_id,
            incarnation=secrets.token_bytes(16),
            endpoints=endpoints,
            features=FEATURES,
            rack=config.rack,
            log_dirs=(self.identity.directory_id,),
        )
        session = Session(session_config(config), self._rng)
        controllers = list(config.controllers)
        self._rng.shuffle(controllers)  # brokers that start together do not all knock at the first one
        return Agent(
            identity,
            session,
            BrokerStore(self._directory),
            lambda report: ControllerClient(controllers, self._dial, report),
            now_ms=self._now_ms,
            log=self._log,
        )

    async def run(self) -> Exit:
        """Until the broker has left, or cannot go on; see `Agent.run`."""
        return await self.agent.run()

    def stop(self) -> None:
        """SIGTERM: leave in order."""
        self.agent.stop()

    async def close(self) -> None:
        """Stops serving and gives the directory back."""
        for server in self._servers:
            await server.stop(0.5)
        self._directory.unlock()


def session_config(config: BrokerConfig) -> SessionConfig:
    """The session's times as they were configured."""
    return SessionConfig(
        lease_mode=config.lease_mode,
        max_wait_ms=config.fetch_max_wait_ms,
        fenced_max_wait_ms=min(500, config.fetch_max_wait_ms),
        initial_registration_timeout_ms=config.initial_registration_timeout_ms,
        shutdown_deadline_ms=config.shutdown_deadline_ms,
    )


def _bind(server: grpc.aio.Server, endpoint: Endpoint) -> int:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    try:
        port: int = server.add_insecure_port(f"{host}:{endpoint.port}")
    except RuntimeError as e:
        raise PortInUse(f"{endpoint.listener}: cannot bind {host}:{endpoint.port}; is another process there?") from e
    return port


def _advertised(config: BrokerConfig, bound: Sequence[Endpoint]) -> tuple[Endpoint, ...]:
    """What is registered: the advertised listeners, a port of 0 replaced by the one that was bound."""
    ports = {each.listener: each.port for each in bound}
    return tuple(
        each if each.port else each._replace(port=ports[each.listener]) for each in config.advertised_listeners
    )
