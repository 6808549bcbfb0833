"""What a controller can be told, under Kafka's names where Kafka has them (`service_kit.process.config` says how keys
are written).

    node.id: 1
    listeners: CONTROLLER://127.0.0.1:9001
    metadata.log.dir: /var/lib/metaquorum
    advertised.listeners: CONTROLLER://c1:9001           where the others reach it; by default what it listens on
    controller.quorum.voters: [1@c1:9001, 2@c2:9001]     only after voters have moved: the log knows the rest

Who votes is not configured: it stands in the log since the directory was formatted. A voter that comes back elsewhere has
the log say so (KIP-853's UpdateVoter). `controller.quorum.voters` says only where to *reach* controllers whose recorded
endpoints do not hold any more, while no majority can write the new ones: after a rename of all hosts, say. And it is whom a
new controller asks for the leader, where the voters that the cluster was formatted with are all gone.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from metadata_log.format.pieces import PIECE_BYTES_MIN
from metadata_log.format.records import Endpoint
from metadata_log.store.log import LogConfig
from quorum.controller.protocol.config import ControllerConfig
from quorum.core.protocol.config import RaftConfig
from quorum.runtime.protocol.node_config import NodeConfig
from service_kit.process.config import ConfigErrors, ConfigProblem
from service_kit.process.endpoints import (
    NODE_ID_MAX,
    HostPort,
    Listener,
    NodeAddress,
    parse_host_port,
    parse_listener,
    parse_node_address,
)
from service_kit.security.tls_config import SecureConfig
from snapshots.policy import MarkPolicy, RetentionPolicy

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS


def _read_by(parse: Callable[[str], Any]) -> BeforeValidator:
    """Text is read by `parse`; what is no text already is what it should be."""
    return BeforeValidator(lambda value: parse(value) if isinstance(value, str) else value)


def _any_host_port(text: str) -> HostPort:
    return parse_host_port(text, any_port=True)


ListenerText = Annotated[Listener, _read_by(parse_listener)]
NodeAddressText = Annotated[NodeAddress, _read_by(parse_node_address)]
HostPortText = Annotated[HostPort, _read_by(_any_host_port)]
Milliseconds = Annotated[int, Field(ge=1, le=30 * DAY_MS)]
PieceBytes = Annotated[int, Field(ge=1 << 10, le=2 << 20)]
"""At most half of what gRPC lets through in one message."""


class QuorumSection(BaseModel):
    """`controller.quorum.*`: the timers of Raft. See `quorum.core.protocol.config` for how they belong together."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    voters: list[NodeAddressText] = []
    auto_join_enable: bool = False
    """A controller that does not vote has itself added, in place of what its node id was before (KIP-853)."""
    election_timeout_ms: Milliseconds = 250
    """Each election waits between once and twice this."""
    fetch_timeout_ms: Milliseconds = 700
    fetch_max_wait_ms: Milliseconds = 150
    check_quorum_timeout_ms: Milliseconds = 1_000
    request_timeout_ms: Milliseconds = 500
    retry_backoff_ms: Milliseconds = 30
    successor_wait_ms: Milliseconds = 40
    fetch_max_bytes: PieceBytes = 1 << 20
    """The most that a follower asks for at once, or that this node gives one as leader."""
    fetch_snapshot_max_bytes: PieceBytes = 1 << 20
    """The same for a snapshot."""
    fetch_piece_min_bytes: PieceBytes = PIECE_BYTES_MIN
    """A follower begins with pieces of this size, and comes back to it when one was too late (`metadata_log.format.pieces`)."""


class ControllerSection(BaseModel):
    """`controller.*`"""

    model_config = ConfigDict(frozen=True, extra="forbid")

    quorum: QuorumSection = QuorumSection()


class QuorumConfig(SecureConfig):
    """One controller's configuration, checked."""

    node_id: Annotated[int, Field(ge=0, le=NODE_ID_MAX)]
    process_roles: Literal["controller"] = "controller"
    listeners: Annotated[list[ListenerText], Field(min_length=1, max_length=1)]
    advertised_listeners: Annotated[list[ListenerText], Field(max_length=1, default_factory=list)]
    controller: ControllerSection = ControllerSection()

    metadata_log_dir: Path
    metadata_log_segment_bytes: Annotated[int, Field(ge=2 << 20, le=1 << 30)] = 64 << 20
    metadata_log_archive_enable: bool = True
    metadata_log_archive_max_bytes: Annotated[int, Field(ge=0)] = 1 << 30
    metadata_log_archive_max_age_ms: Annotated[int, Field(ge=0)] = 30 * DAY_MS
    metadata_log_scrub_interval_ms: Annotated[int, Field(ge=0)] = DAY_MS
    """Sealed segments and snapshots are read again about once in this time; 0: never."""
    metadata_log_max_record_bytes_between_snapshots: Annotated[int, Field(ge=1_024)] = 20 << 20
    metadata_log_max_snapshot_interval_ms: Annotated[int, Field(ge=0)] = HOUR_MS
    metadata_max_retention_bytes: Annotated[int, Field(ge=1 << 20)] = 100 << 20
    metadata_max_retention_ms: Annotated[int, Field(ge=MINUTE_MS)] = 7 * DAY_MS

    broker_session_timeout_ms: Milliseconds = 9_000
    broker_lease_ms: Milliseconds | None = None
    """How long a broker may act without hearing from a controller; by default 5/9 of the session."""
    broker_lease_quorum_age_ms: Milliseconds | None = None
    """How old the quorum's last confirmation may be when a lease is renewed; by default 2/9 of the session."""
    num_partitions: Annotated[int, Field(ge=1, le=10_000)] = 1
    default_replication_factor: Annotated[int, Field(ge=1, le=1_000)] = 3
    delete_topic_enable: bool = True

    metrics_listener: HostPortText | None = None
    log_format: Literal["auto", "json", "logfmt", "text"] = "auto"
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @property
    def listener(self) -> Listener:
        """What is bound."""
        return self.listeners[0]

    @property
    def my_endpoint(self) -> Endpoint | None:
        """Where others are to reach this node; None where that was not said: a wildcard, or any free port."""
        name, address = (self.advertised_listeners or self.listeners)[0]
        if address.port == 0 or address.is_wildcard:
            return None
        return Endpoint(name, address.host, address.port)

    @property
    def voter_endpoints(self) -> dict[int, Endpoint]:
        """Where voters are reached, for those that moved since the log recorded them."""
        return {
            node_id: Endpoint(self.listener.name, address.host, address.port)
            for node_id, address in self.controller.quorum.voters
        }

    def raft_config(self) -> RaftConfig:
        """The quorum's timers."""
        quorum = self.controller.quorum
        return RaftConfig(
            fetch_wait_ms=quorum.fetch_max_wait_ms,
            fetch_timeout_ms=quorum.fetch_timeout_ms,
            check_quorum_ms=quorum.check_quorum_timeout_ms,
            election_timeout_min_ms=quorum.election_timeout_ms,
            election_timeout_max_ms=2 * quorum.election_timeout_ms,
            request_timeout_ms=quorum.request_timeout_ms,
            retry_backoff_ms=quorum.retry_backoff_ms,
            fetch_bytes_max=quorum.fetch_max_bytes,
            snapshot_chunk_bytes=quorum.fetch_snapshot_max_bytes,
            piece_bytes_min=quorum.fetch_piece_min_bytes,
            successor_wait_ms=quorum.successor_wait_ms,
            auto_join=quorum.auto_join_enable,
            also_ask=tuple(sorted({node_id for node_id, _ in quorum.voters} - {self.node_id})),
        )

    def controller_config(self) -> ControllerConfig:
        """What decisions are made by."""
        return ControllerConfig(
            session_timeout_ms=self.broker_session_timeout_ms,
            default_partitions=self.num_partitions,
            default_replication_factor=self.default_replication_factor,
            topic_deletion_enabled=self.delete_topic_enable,
        )

    def node_config(self) -> NodeConfig:
        """All of it, as the runtime takes it.

        Raises:
            ConfigErrors: values that contradict each other, all of them.
        """
        session_ms = self.broker_session_timeout_ms
        config = NodeConfig(
            raft=self.raft_config(),
            controller=self.controller_config(),
            log=LogConfig(
                segment_bytes=self.metadata_log_segment_bytes,
                archive=self.metadata_log_archive_enable,
                archive_max_bytes=self.metadata_log_archive_max_bytes,
                archive_max_age_ms=self.metadata_log_archive_max_age_ms,
            ),
            marks=MarkPolicy(
                self.metadata_log_max_record_bytes_between_snapshots, self.metadata_log_max_snapshot_interval_ms
            ),
            scrub_interval_ms=self.metadata_log_scrub_interval_ms,
            retention=RetentionPolicy(self.metadata_max_retention_bytes, self.metadata_max_retention_ms),
            lease_ms=self.broker_lease_ms or max(1, session_ms * 5 // 9),
            quorum_age_ms=self.broker_lease_quorum_age_ms or max(1, session_ms * 2 // 9),
            voter_endpoints=self.voter_endpoints,
            endpoints=() if self.my_endpoint is None else (self.my_endpoint,),
        )
        problems = config.problems() + config.controller.problems()
        if config.raft.auto_join and not config.endpoints:
            problems.append(
                f"controller.quorum.auto.join.enable: others cannot call {self.listener}; say with advertised.listeners "
                "where they reach this controller"
            )
        problems += [f"{key}: {text}" for key, text in self.tls_problems()]
        if problems:
            raise ConfigErrors([ConfigProblem("", problem, "") for problem in problems])
        return config
