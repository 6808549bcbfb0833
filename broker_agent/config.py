"""What a broker can be told, under Kafka's names; every mistake in it is named at once.

A field is the key with dots: `node_id` is `node.id`, `tls.private_key` is `tls.private.key`.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator

from broker_agent.session.lifecycle import LeaseMode
from metadata_log.format.pieces import PIECE_BYTES_MIN
from metadata_log.format.records import EXTERNAL_DATA_PLANE, NO_DATA_PLANE
from service_kit.process.config import ConfigErrors, ConfigProblem, effective, load_config
from service_kit.process.endpoints import NODE_ID_MAX, HostPort, Listener, parse_host_port, parse_list, parse_listener
from service_kit.process.logs import FORMATS, LEVELS
from service_kit.security.tls import InsecureListener, check_listener
from service_kit.security.tls_config import SecureConfig

_ANYWHERE = frozenset({"0.0.0.0", "::"})


def _listeners(value: Any) -> tuple[Listener, ...]:
    listeners = parse_list(value, parse_listener)
    if len({each.name for each in listeners}) != len(listeners):
        raise ValueError("a listener is named twice")
    return listeners


def _path(value: Any) -> Path:
    if not isinstance(value, str | Path) or not str(value):
        raise ValueError(f"a path expected, not {value!r:.80}")
    return Path(value).expanduser()


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
    process_roles: Literal["broker"] = "broker"
    listeners: Listeners = (Listener("PLAINTEXT", HostPort("127.0.0.1", 9092)),)
    """What is bound. Without TLS that is loopback, unless `allow.insecure.remote` says otherwise."""
    advertised_listeners: Listeners = ()
    """What is registered: how others reach it; the listeners themselves if empty. Port 0 is the one that was bound."""
    broker_rack: str | None = None
    controller_quorum_bootstrap_servers: Addresses
    metadata_log_dir: Annotated[Path, PlainValidator(_path)]
    broker_session_timeout_ms: int = Field(9_000, ge=100, le=3_600_000)
    """As the controllers have it: here only to check what must fit into it."""
    broker_data_plane: Annotated[str, _word(EXTERNAL_DATA_PLANE, NO_DATA_PLANE)] = EXTERNAL_DATA_PLANE
    """What moves this broker's data. `external`: something beside the agent, which alone knows who is in sync, and proposes ISRs.
    `none`: nothing. Then there is nothing to be in sync with, and the agent proposes, for what this broker leads, every replica
    whose broker is active: for clusters that only try out the metadata. Beside a data plane that would lose data."""
    lease_mode: Annotated[LeaseMode, PlainValidator(_lease_mode)] = LeaseMode.STRICT
    initial_broker_registration_timeout_ms: int = Field(60_000, ge=100, le=86_400_000)
    controlled_shutdown_deadline_ms: int = Field(15_000, ge=0, le=86_400_000)
    metadata_fetch_max_wait_ms: int = Field(1_200, ge=10, le=600_000)
    metadata_fetch_max_bytes: int = Field(1 << 20, ge=1 << 10, le=2 << 20)
    """The most that a fetch asks for."""
    metadata_fetch_snapshot_max_bytes: int = Field(1 << 20, ge=1 << 10, le=2 << 20)
    """The same for a snapshot."""
    metadata_fetch_piece_min_bytes: int = Field(PIECE_BYTES_MIN, ge=1 << 10, le=2 << 20)
    """A broker begins with pieces of this size, and comes back to it when one was too late (`metadata_log.format.pieces`)."""
    metrics_listener: AnyAddress | None = None
    """Where /livez, /readyz, /healthz and /metrics are served; nowhere if it is not given."""
    log_level: Annotated[str, _word(*LEVELS)] = "info"
    log_format: Annotated[str, _word(*FORMATS)] = "auto"

    @property
    def advertised(self) -> tuple[Listener, ...]:
        """What is registered."""
        return self.advertised_listeners or self.listeners


def load(path: Path | None, environment: Mapping[str, str], overrides: Sequence[str] = ()) -> BrokerConfig:
    """The configuration that file, environment and `--set key=value` say together.

    Raises:
        ConfigErrors: naming everything that is wrong with it.
    """
    config = load_config(BrokerConfig, path, environment, overrides)
    origins = {row.key: row.origin for row in effective(config)}
    problems = [ConfigProblem(key, text, origins.get(key, "")) for key, text in _contradictions(config)]
    if problems:
        raise ConfigErrors(problems)
    return config


def _contradictions(config: BrokerConfig) -> Iterator[tuple[str, str]]:
    """What no single value shows: key, and what is wrong."""
    bound, advertised = {each.name for each in config.listeners}, {each.name for each in config.advertised}
    if bound != advertised:
        yield (
            "advertised.listeners",
            f"must name the same listeners as listeners; differing: {', '.join(sorted(bound ^ advertised))}",
        )
    for each in config.advertised:
        if each.address.host in _ANYWHERE:
            yield "advertised.listeners", f"{each} is no address that others can reach"
    yield from config.tls_problems()
    for each in config.listeners:
        try:
            check_listener(each.address, config.tls_files, allow_insecure_remote=config.allow_insecure_remote)
        except InsecureListener as e:
            yield "listeners", str(e)
    if config.metadata_fetch_max_wait_ms * 3 > config.broker_session_timeout_ms:
        yield (
            "metadata.fetch.max.wait.ms",
            (
                f"{config.metadata_fetch_max_wait_ms} leaves no room for three fetches in broker.session.timeout.ms "
                f"({config.broker_session_timeout_ms})"
            ),
        )
