"""A controller's configuration, under Kafka's names where Kafka has them. `service_kit.process.config` says how keys are
written.

    node.id: 1
    listeners: CONTROLLER://127.0.0.1:9001
    metadata.log.dir: /var/lib/metaquorum
    advertised.listeners: CONTROLLER://c1:9001           the address for other nodes; by default that of the listener
    controller.quorum.voters: [1@c1:9001, 2@c2:9001]     only after voters have moved: the log knows the rest

The configuration does not say which controllers vote: the log says so, since the directory was formatted. A voter that starts
at another address has the log record that address (KIP-853's UpdateVoter). `controller.quorum.voters` gives addresses of
controllers whose recorded addresses are wrong, while no majority can record the new ones. For example:

    1. The hosts of controllers 1, 2 and 3 are renamed at once. No voter reaches another one at its recorded address.
    2. The operator gives each controller `controller.quorum.voters: [1@new1:9001, 2@new2:9001, 3@new3:9001]`, and
       starts the controllers.
    3. The controllers elect a leader, and each has the log record its new address. The operator can delete the line.

A new controller also asks these addresses for the leader. It needs the addresses if every voter that the cluster was formatted
with has been replaced.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from metadata_log.format.fetch_size import PIECE_BYTES_MIN
from metadata_log.format.records import ELR_VERSION_MAX, METADATA_VERSION_MAX, METADATA_VERSION_MIN, Endpoint
from metadata_log.store.log_config import LogConfig
from quorum.controller.protocol.config import ControllerConfig
from quorum.core.protocol.config import RaftConfig
from quorum.policy_file import load_policy
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
from snapshots.history.kept import PastConfig
from snapshots.policy import MarkPolicy, RetentionPolicy
from watches.core.limits import WATCHES_MAX, WATCHES_MAX_MAX

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS


def _read_by(parse: Callable[[str], Any]) -> BeforeValidator:
    """A validator that reads text with `parse`, and takes other values as they are."""
    return BeforeValidator(lambda value: parse(value) if isinstance(value, str) else value)


def _any_host_port(text: str) -> HostPort:
    return parse_host_port(text, any_port=True)


ListenerText = Annotated[Listener, _read_by(parse_listener)]
NodeAddressText = Annotated[NodeAddress, _read_by(parse_node_address)]
HostPortText = Annotated[HostPort, _read_by(_any_host_port)]
Milliseconds = Annotated[int, Field(ge=1, le=30 * DAY_MS)]
PieceBytes = Annotated[int, Field(ge=1 << 10, le=2 << 20)]
"""At most half of the largest message that gRPC accepts."""


class QuorumSection(BaseModel):
    """`controller.quorum.*`: the timers of Raft. See `quorum.core.protocol.config` for how they belong together."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    voters: list[NodeAddressText] = []
    """Addresses (`1@c1:9001`) of controllers that have moved since the log recorded their addresses."""
    auto_join_enable: bool = False
    """A controller that does not vote has itself added as a voter, in the place of its node id's old directory (KIP-853)."""
    election_timeout_ms: Milliseconds = 250
    """Minimum time that a node waits for votes before another election; the maximum is twice this."""
    fetch_timeout_ms: Milliseconds = 700
    """How long a follower waits for its leader's answer before it gives the leader up."""
    fetch_max_wait_ms: Milliseconds = 150
    """How long a follower's fetch waits at the leader for new records."""
    check_quorum_timeout_ms: Milliseconds = 1_000
    """How long a leader goes on without fetches from a majority before it resigns."""
    request_timeout_ms: Milliseconds = 500
    """How long a controller waits for another one's answer to a request that is no fetch."""
    retry_backoff_ms: Milliseconds = 30
    """How long a controller waits before it repeats a request that failed."""
    successor_wait_ms: Milliseconds = 40
    """How long a successor waits for each successor of a better rank, after the leader's process has ended."""
    fetch_max_bytes: PieceBytes = 1 << 20
    """Maximum number of bytes of the log that a follower asks for at once, and that a leader sends at once."""
    fetch_snapshot_max_bytes: PieceBytes = 1 << 20
    """Maximum number of bytes of a snapshot that a follower asks for at once, and that a leader sends at once."""
    fetch_piece_min_bytes: PieceBytes = PIECE_BYTES_MIN
    """Size of a follower's first piece, and of the next piece after one that came too late (`metadata_log.format.fetch_size`)."""


class ControllerSection(BaseModel):
    """`controller.*`"""

    model_config = ConfigDict(frozen=True, extra="forbid")

    quorum: QuorumSection = QuorumSection()


class QuorumConfig(SecureConfig):
    """One controller's configuration, checked."""

    node_id: Annotated[int, Field(ge=0, le=NODE_ID_MAX)]
    """The controller's id; must be the id that the directory was formatted for."""
    process_roles: Literal["controller"] = "controller"
    """Kafka's name for what the process is; `quorumd` runs controllers only."""
    listeners: Annotated[list[ListenerText], Field(min_length=1, max_length=1)]
    """Address to listen on, for controllers, brokers and operators. Without TLS only loopback is allowed."""
    advertised_listeners: Annotated[list[ListenerText], Field(max_length=1, default_factory=list)]
    """Address for other nodes, if it is not the listener's. A voter has the log record this address."""
    controller: ControllerSection = ControllerSection()

    metadata_log_dir: Path
    """The controller's directory, formatted with `quorumctl storage format`."""
    metadata_log_segment_bytes: Annotated[int, Field(ge=2 << 20, le=1 << 30)] = 64 << 20
    """Maximum size of one segment of the log."""
    metadata_log_archive_enable: bool = True
    """Segments that retention drops are moved to `archive/` instead of being deleted."""
    metadata_log_archive_max_bytes: Annotated[int, Field(ge=0)] = 1 << 30
    """Maximum size of `archive/`; the oldest files are deleted first."""
    metadata_log_archive_max_age_ms: Annotated[int, Field(ge=0)] = 30 * DAY_MS
    """How long a file stays in `archive/`."""
    metadata_log_scrub_interval_ms: Annotated[int, Field(ge=0)] = DAY_MS
    """How often sealed segments and snapshots are read again, to find damage; 0: never."""
    metadata_log_max_record_bytes_between_snapshots: Annotated[int, Field(ge=1_024)] = 20 << 20
    """How many bytes of records are committed before the next snapshot."""
    metadata_log_max_snapshot_interval_ms: Annotated[int, Field(ge=0)] = HOUR_MS
    """How long after a snapshot the next one follows, if any record was committed meanwhile; 0: only by bytes."""
    metadata_max_retention_bytes: Annotated[int, Field(ge=1 << 20)] = 100 << 20
    """Maximum size of log and snapshots together; the oldest are dropped, never the newest snapshot. A soft limit."""
    metadata_max_retention_ms: Annotated[int, Field(ge=MINUTE_MS)] = 7 * DAY_MS
    """How much older than the newest snapshot a kept snapshot may be; the log before the oldest kept one is dropped, too."""
    metadata_past_images_max: Annotated[int, Field(ge=0, le=64)] = 4
    """Maximum number of images of the past that are kept in memory after a read at an offset or a time."""
    metadata_past_records_max: Annotated[int, Field(ge=0)] = 2_000_000
    """Maximum number of topics, partitions, configs and so on in all kept images of the past together."""

    broker_session_timeout_ms: Milliseconds = 9_000
    """How long the active controller waits for a broker's fetch before it fences the broker."""
    broker_lease_ms: Milliseconds | None = None
    """How long a broker may serve without hearing from a controller; by default 5/9 of the session timeout."""
    broker_lease_quorum_age_ms: Milliseconds | None = None
    """How long ago a majority must have confirmed the leader for it to renew leases; by default 2/9 of the session timeout."""
    num_partitions: Annotated[int, Field(ge=1, le=10_000)] = 1
    """How many partitions a new topic has if the request does not say."""
    default_replication_factor: Annotated[int, Field(ge=1, le=1_000)] = 3
    """How many replicas a partition of a new topic has if the request does not say."""
    delete_topic_enable: bool = True
    """Topics may be deleted."""
    unclean_leader_election_enable: bool = False
    """Replicas out of sync may lead when no other can, in topics for which no config in the log says it; records may be lost."""
    auto_leader_rebalance_enable: bool = True
    """The active controller gives leaderships back to preferred replicas that are active and in sync."""
    leader_imbalance_check_interval_seconds: Annotated[int, Field(ge=1, le=86_400)] = 300
    """How often the active controller checks who leads."""
    leader_imbalance_per_broker_percentage: Annotated[int, Field(ge=0, le=100)] = 10
    """Maximum share, in percent, of the partitions that prefer a broker and that others lead, before it gets them back."""
    reassignment_moves_per_broker_max: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    """Maximum number of replicas that reassignments add to one broker at a time; above, a request is refused."""

    bootstrap_metadata_version: Annotated[int, Field(ge=METADATA_VERSION_MIN, le=METADATA_VERSION_MAX)] = (
        METADATA_VERSION_MAX
    )
    """The level of `metadata.version` with which a new cluster begins. A cluster that has a log keeps its level."""
    bootstrap_eligible_leader_replicas_version: Annotated[int, Field(ge=0, le=ELR_VERSION_MAX)] = 0
    """1: a new cluster keeps eligible leader replicas (KIP-966). The data planes must obey `min.insync.replicas`."""

    watches_max: Annotated[int, Field(ge=0, le=WATCHES_MAX_MAX)] = WATCHES_MAX
    """Maximum number of watches that are open at this controller; further ones are sent to other nodes (`docs/watches.md`)."""

    policy_file: Path | None = None
    """Rule file with limits for topics and configs (`docs/policies.md`). Use the same file on every controller."""
    policy_names: Annotated[list[str], Field(default_factory=list, max_length=16)]
    """Policies in Python: entry points of the group `metaquorum.policies`. Asked in this order, after the rule file."""

    metrics_listener: HostPortText | None = None
    """Address that serves /livez, /readyz, /healthz and /metrics; without it they are not served."""
    log_format: Literal["auto", "json", "logfmt", "text"] = "auto"
    """Format of log lines. `auto`: logfmt on a terminal, json elsewhere; `text` is another name of logfmt."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level of log lines that are written."""

    @property
    def listener(self) -> Listener:
        """The address to listen on."""
        return self.listeners[0]

    @property
    def my_endpoint(self) -> Endpoint | None:
        """The address for other nodes; None if the configuration does not say it: a wildcard address, or port 0."""
        name, address = (self.advertised_listeners or self.listeners)[0]
        if address.port == 0 or address.is_wildcard:
            return None
        return Endpoint(name, address.host, address.port)

    @property
    def voter_endpoints(self) -> dict[int, Endpoint]:
        """The addresses in `controller.quorum.voters`, by node id."""
        return {
            node_id: Endpoint(self.listener.name, address.host, address.port)
            for node_id, address in self.controller.quorum.voters
        }

    def raft_config(self) -> RaftConfig:
        """The timers and limits of Raft."""
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
        """The configuration of the active controller. Raises ConfigErrors: the policy cannot be loaded."""
        return ControllerConfig(
            session_timeout_ms=self.broker_session_timeout_ms,
            default_partitions=self.num_partitions,
            default_replication_factor=self.default_replication_factor,
            node_id=self.node_id,
            unclean_leader_election=self.unclean_leader_election_enable,
            topic_deletion_enabled=self.delete_topic_enable,
            auto_leader_rebalance=self.auto_leader_rebalance_enable,
            leader_imbalance_check_interval_ms=1_000 * self.leader_imbalance_check_interval_seconds,
            reassignment_moves_per_broker_max=self.reassignment_moves_per_broker_max,
            leader_imbalance_percentage=self.leader_imbalance_per_broker_percentage,
            policy=load_policy(self.policy_file, self.policy_names),
            bootstrap_metadata_version=self.bootstrap_metadata_version,
            bootstrap_elr_version=self.bootstrap_eligible_leader_replicas_version,
        )

    def node_config(self) -> NodeConfig:
        """The whole configuration in the form that the runtime takes.

        Raises:
            ConfigErrors: values contradict each other; the error lists every contradiction.
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
            past=PastConfig(self.metadata_past_images_max, self.metadata_past_records_max),
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
