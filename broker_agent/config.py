"""A broker's configuration, under Kafka's names. A wrong configuration is refused with all its mistakes at once.

Each field is a key with dots: `node_id` is `node.id`, `tls.private_key` is `tls.private.key`. For example:

    node.id: 101
    listeners: PLAINTEXT://127.0.0.1:9092
    metadata.log.dir: /var/lib/metaquorum/broker-101
    controller.quorum.bootstrap.servers: [c1:9001, c2:9001, c3:9001]
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

from pydantic import Field, PlainValidator

from broker_agent.session.lifecycle import LeaseMode
from metadata_log.format.fetch_size import PIECE_BYTES_MIN
from metadata_log.format.records import EXTERNAL_DATA_PLANE, NO_DATA_PLANE
from service_kit.process.config import ConfigErrors, ConfigProblem, effective, load_config
from service_kit.process.endpoints import NODE_ID_MAX, HostPort, Listener, parse_host_port, parse_list, parse_listener
from service_kit.process.logs import FORMATS, LEVELS
from service_kit.security.tls import InsecureListener, check_listener
from service_kit.security.tls_config import SecureConfig
from watches.core.limits import WATCHES_MAX, WATCHES_MAX_MAX

_ANYWHERE = frozenset({"0.0.0.0", "::"})
PARTITIONS_DATA_PLANE: Final = "partitions"
"""The data plane in this process (`broker_agent.data_plane`). The controllers know such a broker as `external`."""
LOG_DIRS_MAX: Final = 100
"""Maximum number of log directories."""


def _listeners(value: Any) -> tuple[Listener, ...]:
    listeners = parse_list(value, parse_listener)
    if len({each.name for each in listeners}) != len(listeners):
        raise ValueError("a listener is named twice")
    return listeners


def _path(value: Any) -> Path:
    if not isinstance(value, str | Path) or not str(value):
        raise ValueError(f"a path expected, not {value!r:.80}")
    return Path(value).expanduser()


def _paths(value: Any) -> tuple[Path, ...]:
    return parse_list(value, lambda each: _path(each.strip()))


def _word(*words: str) -> PlainValidator:
    def read(value: Any) -> str:
        if value not in words:
            raise ValueError(f"one of {', '.join(words)} expected, not {value!r:.80}")
        return str(value)

    return PlainValidator(read)


def _lease_mode(value: Any) -> LeaseMode:
    words = [mode.value for mode in LeaseMode]
    if value not in words:
        raise ValueError(f"one of {', '.join(words)} expected, not {value!r:.80}")
    return LeaseMode(value)


Listeners = Annotated[tuple[Listener, ...], PlainValidator(_listeners)]
Addresses = Annotated[tuple[HostPort, ...], PlainValidator(lambda value: parse_list(value, parse_host_port))]
AnyAddress = Annotated[HostPort, PlainValidator(lambda value: parse_host_port(str(value), any_port=True))]


class BrokerConfig(SecureConfig):
    """A broker's configuration. Times are in milliseconds."""

    node_id: int = Field(ge=0, le=NODE_ID_MAX)
    """The broker id; must be the id that the directory was formatted for."""
    process_roles: Literal["broker"] = "broker"
    """Kafka's name for what the process is; `brokerd` runs brokers only."""
    listeners: Listeners = (Listener("PLAINTEXT", HostPort("127.0.0.1", 9092)),)
    """Addresses to listen on. Without TLS only loopback is allowed, unless `allow.insecure.remote` is set."""
    advertised_listeners: Listeners = ()
    """Addresses to register, for clients on other hosts; empty: the listeners. Port 0 stands for the bound port."""
    broker_rack: str | None = None
    """The broker's rack, for the placement of replicas."""
    controller_quorum_bootstrap_servers: Addresses
    """Addresses of controllers to ask first; the metadata names the others."""
    metadata_log_dir: Annotated[Path, PlainValidator(_path)]
    """The broker's directory, formatted with `quorumctl storage format`."""
    broker_session_timeout_ms: int = Field(9_000, ge=100, le=3_600_000)
    """The session timeout of the controllers. The broker only checks that its own timers fit into it."""
    broker_data_plane: Annotated[str, _word(PARTITIONS_DATA_PLANE, EXTERNAL_DATA_PLANE, NO_DATA_PLANE)] = (
        EXTERNAL_DATA_PLANE
    )
    """`partitions`: this process serves records. `external`: another data plane does. `none`: no records; every active replica
    is in sync; only for trials."""
    log_dirs: Annotated[tuple[Path, ...], PlainValidator(_paths)] = ()
    """With `partitions`: the directories of the replicas' logs, mostly one for each disk."""
    inter_broker_listener_name: str | None = None
    """With `partitions`: the listener at which this broker fetches from other brokers; unset: the first of `listeners`."""
    num_replica_fetchers: int = Field(1, ge=1, le=64)
    """With `partitions`: how many fetchers this broker has for each broker that it follows."""
    replica_lag_time_max_ms: int = Field(30_000, ge=100, le=3_600_000)
    """With `partitions`: how long a member of an ISR may not be caught up before its leader proposes to remove it."""
    replica_fetch_wait_max_ms: int = Field(500, ge=1, le=60_000)
    """With `partitions`: how long a follower's fetch waits at the leader for records."""
    replica_fetch_min_bytes: int = Field(1, ge=1, le=1 << 20)
    """With `partitions`: how many bytes of records are worth an answer to a follower before `replica.fetch.wait.max.ms`."""
    replica_fetch_response_max_bytes: int = Field(1 << 20, ge=1 << 10, le=2 << 20)
    """With `partitions`: maximum number of bytes of records in one answer to a follower; the last batch may pass it."""
    replica_fetch_backoff_ms: int = Field(1_000, ge=1, le=60_000)
    """With `partitions`: how long a fetcher waits after an error of a partition, and after a failed request."""
    num_recovery_threads_per_data_dir: int = Field(8, ge=1, le=64)
    """With `partitions`: how many logs of one log directory are opened at the same time."""
    replica_high_watermark_checkpoint_interval_ms: int = Field(5_000, ge=100, le=3_600_000)
    """With `partitions`: how often the high watermarks are written."""
    log_retention_check_interval_ms: int = Field(300_000, ge=100, le=86_400_000)
    """With `partitions`: how often old segments are deleted."""
    data_plane_listener: AnyAddress | None = None
    """Loopback address that serves assignments and the lease to a data plane in another process on this host."""
    data_plane_hook: Annotated[Path, PlainValidator(_path)] | None = None
    """Program that the broker runs with its assignments, one JSON document a line (`docs/embedding.md`)."""
    data_plane_hook_timeout_ms: int = Field(60_000, ge=100, le=86_400_000)
    """How long one run of the hook may take; then it is killed, and its lines come again."""
    death_watcher_enable: bool = True
    """Start a small process beside `brokerd` that reports the death of `brokerd` at once (docs/death-certificates.md)."""
    log_dir_failure_timeout_ms: int = Field(30_000, ge=1, le=86_400_000)
    """How long a broker tries to report a failed log directory before it exits."""
    lease_mode: Annotated[LeaseMode, PlainValidator(_lease_mode)] = LeaseMode.STRICT
    """`strict`: clients are refused once the lease has lapsed. `advisory`: clients are served on."""
    initial_broker_registration_timeout_ms: int = Field(60_000, ge=100, le=86_400_000)
    """How long a process that was never registered tries to register before it exits."""
    controlled_shutdown_deadline_ms: int = Field(15_000, ge=0, le=86_400_000)
    """How long a stopping broker waits for its leaderships to move."""
    metadata_fetch_max_wait_ms: int = Field(1_200, ge=10, le=600_000)
    """How long a fetch waits at the controller for new records; a fetch is also the heartbeat."""
    metadata_fetch_max_bytes: int = Field(1 << 20, ge=1 << 10, le=2 << 20)
    """Maximum number of bytes that one fetch asks for."""
    metadata_fetch_snapshot_max_bytes: int = Field(1 << 20, ge=1 << 10, le=2 << 20)
    """Maximum number of bytes that one request for a piece of a snapshot asks for."""
    metadata_fetch_piece_min_bytes: int = Field(PIECE_BYTES_MIN, ge=1 << 10, le=2 << 20)
    """Size of the first piece, and of the next piece after one that was too late (`metadata_log.format.fetch_size`)."""
    watches_max: int = Field(WATCHES_MAX, ge=0, le=WATCHES_MAX_MAX)
    """Maximum number of watches that are open at this broker; further ones are sent to other nodes (`docs/watches.md`)."""
    metrics_listener: AnyAddress | None = None
    """Address that serves /livez, /readyz, /healthz and /metrics; without it they are not served."""
    log_level: Annotated[str, _word(*LEVELS)] = "info"
    """Lowest level of log lines that are written: debug, info, warning or error."""
    log_format: Annotated[str, _word(*FORMATS)] = "auto"
    """Format of log lines: auto, json, logfmt or text. `auto`: logfmt on a terminal, json elsewhere."""

    @property
    def advertised(self) -> tuple[Listener, ...]:
        """The listeners to register."""
        return self.advertised_listeners or self.listeners


def load(
    path: Path | None, environment: Mapping[str, str] = MappingProxyType({}), overrides: Sequence[str] = ()
) -> BrokerConfig:
    """Loads the configuration from the file, the environment and `--set key=value`.

    Raises:
        ConfigErrors: the configuration is wrong; the error lists every mistake.
    """
    config = load_config(BrokerConfig, path, environment, overrides)
    origins = {row.key: row.origin for row in effective(config)}
    problems = [ConfigProblem(key, text, origins.get(key, "")) for key, text in _contradictions(config)]
    if problems:
        raise ConfigErrors(problems)
    return config


def _contradictions(config: BrokerConfig) -> Iterator[tuple[str, str]]:
    """Yields mistakes that only several values together show: the key and a text."""
    bound, advertised = {each.name for each in config.listeners}, {each.name for each in config.advertised}
    if bound != advertised:
        yield (
            "advertised.listeners",
            f"must name the same listeners as listeners; differing: {', '.join(sorted(bound ^ advertised))}",
        )
    for each in config.advertised:
        if each.address.host in _ANYWHERE:
            yield (
                "advertised.listeners",
                f"{each} is no address that others can reach; advertise a host name or an address",
            )
    yield from config.tls_problems()
    for each in config.listeners:
        try:
            check_listener(each.address, config.tls_files, allow_insecure_remote=config.allow_insecure_remote)
        except InsecureListener as e:
            yield "listeners", str(e)
    yield from _contradictions_of_data(config)
    local = config.data_plane_listener
    if local is not None and not local.is_loopback:
        yield (
            "data.plane.listener",
            f"{local} is open to other machines; only loopback is allowed, such as 127.0.0.1:{local.port}",
        )
    if config.metadata_fetch_max_wait_ms * 3 > config.broker_session_timeout_ms:
        yield (
            "metadata.fetch.max.wait.ms",
            (
                f"{config.metadata_fetch_max_wait_ms} leaves no room for three fetches in broker.session.timeout.ms "
                f"({config.broker_session_timeout_ms}); set it to {config.broker_session_timeout_ms // 3} at most"
            ),
        )


def _contradictions_of_data(config: BrokerConfig) -> Iterator[tuple[str, str]]:
    """Yields mistakes about the data plane."""
    if config.broker_data_plane != PARTITIONS_DATA_PLANE:
        if config.log_dirs:
            yield "log.dirs", f"is for broker.data.plane: {PARTITIONS_DATA_PLANE}, and not {config.broker_data_plane}"
        return
    if not config.log_dirs:
        yield "log.dirs", f"broker.data.plane: {PARTITIONS_DATA_PLANE} needs at least one log directory"
    if len(config.log_dirs) > LOG_DIRS_MAX:
        yield "log.dirs", f"{len(config.log_dirs)} directories; at most {LOG_DIRS_MAX} are possible"
    paths = [each.absolute() for each in (config.metadata_log_dir, *config.log_dirs)]
    if len(set(paths)) < len(paths):
        yield "log.dirs", "a directory is named twice, or is also metadata.log.dir; each needs a directory of its own"
    if config.data_plane_listener is not None or config.data_plane_hook is not None:
        key = "data.plane.listener" if config.data_plane_listener is not None else "data.plane.hook"
        yield key, f"is for a data plane beside the broker; with {PARTITIONS_DATA_PLANE} the data plane is inside of it"
    if config.inter_broker_listener_name not in (None, *(each.name for each in config.listeners)):
        yield "inter.broker.listener.name", f"{config.inter_broker_listener_name!r} is none of the listeners"
    if 2 * config.replica_fetch_wait_max_ms > config.replica_lag_time_max_ms:
        yield (
            "replica.fetch.wait.max.ms",
            f"leaves no room for two fetches in replica.lag.time.max.ms ({config.replica_lag_time_max_ms})",
        )
