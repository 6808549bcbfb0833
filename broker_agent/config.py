"""What a broker can be told, under Kafka's names; every mistake in it is named at once.

Values come as a flat mapping from file, environment and command line (`daemon` merges them), as text or as YAML has them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from broker_agent.client import Address
from broker_agent.lifecycle import LeaseMode
from metadata_log.ids import NodeId
from metadata_log.records import Endpoint

T = TypeVar("T")

NODE_ID_MAX: Final = (1 << 31) - 1
_ANYWHERE: Final = frozenset({"0.0.0.0", "::", ""})
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


class ConfigMistakes(ValueError):
    """The configuration cannot be worked with; `mistakes` are all the reasons, one sentence each."""

    def __init__(self, mistakes: list[str]) -> None:
        super().__init__("; ".join(mistakes))
        self.mistakes = mistakes


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """A checked configuration."""

    node_id: NodeId
    listeners: tuple[Endpoint, ...]
    """What is bound."""
    advertised_listeners: tuple[Endpoint, ...]
    """What is registered: how others reach it. A port of 0 stands for the one that was bound."""
    rack: str | None
    controllers: tuple[Address, ...]
    metadata_log_dir: Path
    session_timeout_ms: int
    lease_mode: LeaseMode
    initial_registration_timeout_ms: int
    shutdown_deadline_ms: int
    fetch_max_wait_ms: int
    metrics_listener: Address | None
    insecure_anywhere: bool
    """Listeners without TLS may be bound to other addresses than loopback ones."""
    log_level: str
    log_format: str


def parse(values: Mapping[str, object]) -> BrokerConfig:
    """The configuration that `values` say.

    Raises:
        ConfigMistakes: naming every one of them.
    """
    reader = _Reader(values)
    listeners = reader.take("listeners", _endpoints, "PLAINTEXT://127.0.0.1:9092")
    config = BrokerConfig(
        node_id=reader.take("node.id", _whole(0, NODE_ID_MAX)),
        listeners=listeners,
        advertised_listeners=reader.take("advertised.listeners", _endpoints, listeners),
        rack=reader.take("broker.rack", _text, None),
        controllers=reader.take("controller.quorum.bootstrap.servers", _addresses),
        metadata_log_dir=reader.take("metadata.log.dir", _path),
        session_timeout_ms=reader.take("broker.session.timeout.ms", _whole(100, 3_600_000), 9_000),
        lease_mode=reader.take("lease.mode", _lease_mode, LeaseMode.STRICT),
        initial_registration_timeout_ms=reader.take(
            "initial.broker.registration.timeout.ms", _whole(100, 86_400_000), 60_000
        ),
        shutdown_deadline_ms=reader.take("controlled.shutdown.deadline.ms", _whole(0, 86_400_000), 15_000),
        fetch_max_wait_ms=reader.take("metadata.fetch.max.wait.ms", _whole(10, 600_000), 2_000),
        metrics_listener=reader.take("metrics.listener", _address, None),
        insecure_anywhere=reader.take("insecure.listeners.anywhere", _flag, False),
        log_level=reader.take("log.level", _one_of("debug", "info", "warning", "error"), "info"),
        log_format=reader.take("log.format", _one_of("auto", "json", "text"), "auto"),
    )
    reader.refuse_unknown()
    if not reader.mistakes:
        reader.mistakes.extend(_contradictions(config))
    if reader.mistakes:
        raise ConfigMistakes(reader.mistakes)
    return config


def _contradictions(config: BrokerConfig) -> list[str]:
    """What no single value shows."""
    found = []
    bound = {each.listener for each in config.listeners}
    advertised = {each.listener for each in config.advertised_listeners}
    if bound != advertised:
        differing = ", ".join(sorted(bound ^ advertised))
        found.append(f"advertised.listeners: must name the same listeners as listeners; differing: {differing}")
    found += [
        f"advertised.listeners: {each.host!r} is no address that others can reach ({each.listener})"
        for each in config.advertised_listeners
        if each.host in _ANYWHERE
    ]
    found += [
        f"listeners: {each.listener} is without TLS and would be open to others on {each.host!r}; bind 127.0.0.1, or set "
        "insecure.listeners.anywhere to true"
        for each in config.listeners
        if each.host not in _LOOPBACK and not config.insecure_anywhere
    ]
    if config.fetch_max_wait_ms * 3 > config.session_timeout_ms:
        found.append(
            f"metadata.fetch.max.wait.ms: {config.fetch_max_wait_ms} leaves no room for three fetches in "
            f"broker.session.timeout.ms ({config.session_timeout_ms})"
        )
    return found


class _Reader:
    """Takes values by name and remembers what was wrong."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = values
        self._known: set[str] = set()
        self.mistakes: list[str] = []

    def take(self, name: str, parser: Callable[[object], T], *default: Any) -> T:
        """The value, or the default; with neither, or with one that cannot be read, a mistake and nothing usable."""
        self._known.add(name)
        value = self._values.get(name)
        if value is None and not default:
            self.mistakes.append(f"{name}: missing")
            return None  # type: ignore[return-value] # never used: mistakes are raised first
        if value is None:
            return parser(default[0]) if isinstance(default[0], str) else default[0]
        try:
            return parser(value)
        except ValueError as e:
            self.mistakes.append(f"{name}: {e}")
            return None  # type: ignore[return-value]

    def refuse_unknown(self) -> None:
        for name in sorted(self._values.keys() - self._known):
            self.mistakes.append(f"{name}: not a key of a broker's configuration")


def _text(value: object) -> str:
    if not isinstance(value, str | int | float) or isinstance(value, bool) or not str(value):
        raise ValueError(f"text expected, not {value!r}")
    return str(value)


def _whole(least: int, most: int) -> Callable[[object], int]:
    def parse_whole(value: object) -> int:
        text = _text(value)
        if not (text.isascii() and text.lstrip("-").isdigit() and len(text) <= 12):
            raise ValueError(f"a whole number expected, not {value!r}")
        number = int(text)
        if not least <= number <= most:
            raise ValueError(f"{number} is not between {least} and {most}")
        return number

    return parse_whole


def _one_of(*words: str) -> Callable[[object], str]:
    def parse_word(value: object) -> str:
        if value not in words:
            raise ValueError(f"one of {', '.join(words)} expected, not {value!r}")
        return str(value)

    return parse_word


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return value == "true"
    raise ValueError(f"true or false expected, not {value!r}")


def _lease_mode(value: object) -> LeaseMode:
    return LeaseMode(_one_of(*[mode.value for mode in LeaseMode])(value))


def _path(value: object) -> Path:
    return Path(_text(value)).expanduser()


def _items(value: object) -> list[str]:
    """A list, as YAML has it or separated by commas."""
    items = value if isinstance(value, list) else _text(value).split(",")
    texts = [_text(item).strip() for item in items]
    if not texts or not all(texts):
        raise ValueError(f"an empty entry in {value!r}")
    return texts


def _address(value: object) -> Address:
    host, colon, port = _text(value).strip().rpartition(":")
    if not colon:
        raise ValueError(f"host:port expected, not {value!r}")
    return Address(host.removeprefix("[").removesuffix("]"), _whole(0, 65_535)(port))


def _addresses(value: object) -> tuple[Address, ...]:
    addresses = tuple(_address(item) for item in _items(value))
    for address in addresses:
        if not address.host or not address.port:
            raise ValueError(f"{address.target} is no address that can be called")
    return addresses


def _endpoint(text: str) -> Endpoint:
    listener, slashes, rest = text.partition("://")
    if not slashes or not listener.replace("_", "").isalnum():
        raise ValueError(f"NAME://host:port expected, not {text!r}")
    return Endpoint(listener, *_address(rest))


def _endpoints(value: object) -> tuple[Endpoint, ...]:
    endpoints = tuple(_endpoint(item) for item in _items(value))
    if len({each.listener for each in endpoints}) != len(endpoints):
        raise ValueError("a listener is named twice")
    return endpoints
