"""A broker's configuration: defaults that work, and every mistake named at once, in words that say what to do."""

from pathlib import Path

import pytest

from broker_agent.client import Address
from broker_agent.config import ConfigMistakes, parse
from broker_agent.lifecycle import LeaseMode
from broker_agent.process import session_config
from metadata_log.records import Endpoint

LEAST: dict[str, object] = {
    "node.id": 4,
    "controller.quorum.bootstrap.servers": "c1:9093,[::1]:9094",
    "metadata.log.dir": "/var/lib/metaquorum/b4",
}


def mistakes(**changes: object) -> list[str]:
    """What is wrong with the least configuration, changed. `__` stands for a dot in a name."""
    values = {**LEAST, **{name.replace("__", "."): value for name, value in changes.items()}}
    with pytest.raises(ConfigMistakes) as caught:
        parse(values)
    return caught.value.mistakes


def test_three_keys_are_enough() -> None:
    """The rest has defaults; without TLS only loopback is bound."""
    config = parse(LEAST)

    assert config.node_id == 4
    assert config.controllers == (Address("c1", 9093), Address("::1", 9094))
    assert config.controllers[1].target == "[::1]:9094"
    assert config.metadata_log_dir == Path("/var/lib/metaquorum/b4")
    assert config.listeners == config.advertised_listeners == (Endpoint("PLAINTEXT", "127.0.0.1", 9092),)
    assert config.lease_mode is LeaseMode.STRICT


def test_lists_and_numbers_come_as_yaml_or_as_text_has_them() -> None:
    """From a file they are typed, from the environment and the command line they are text."""
    typed = parse({**LEAST, "broker.session.timeout.ms": 12_000, "listeners": ["A://localhost:1", "B://localhost:2"]})
    text = parse({**LEAST, "broker.session.timeout.ms": "12000", "listeners": "A://localhost:1,B://localhost:2"})

    assert typed == text


def test_the_session_gets_its_times() -> None:
    """Under Kafka's names."""
    config = parse({**LEAST, "controlled.shutdown.deadline.ms": 7_000, "lease.mode": "advisory"})

    assert session_config(config).shutdown_deadline_ms == 7_000
    assert session_config(config).lease_mode is LeaseMode.ADVISORY


def test_all_mistakes_are_named_at_once() -> None:
    """Whoever mends one does not find the next only then."""
    found = mistakes(node__id="four", lease__mode="loose", listeners="127.0.0.1:9092", listneers="x")

    assert len(found) == 4
    for part in (
        "node.id: a whole number",
        "lease.mode: one of strict, advisory",
        "listeners: NAME://host:port",
        "listneers",
    ):
        assert any(part in mistake for mistake in found), (part, found)


def test_what_is_missing_is_said() -> None:
    """All of it."""
    with pytest.raises(ConfigMistakes) as caught:
        parse({})

    assert len(caught.value.mistakes) == 3


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"listeners": "PLAINTEXT://0.0.0.0:9092", "advertised__listeners": "PLAINTEXT://b4:9092"}, "without TLS"),
        ({"listeners": "PLAINTEXT://0.0.0.0:9092", "insecure__listeners__anywhere": True}, "no address that others"),
        ({"advertised__listeners": "TLS://b4:9092"}, "same listeners"),
        ({"metadata__fetch__max__wait__ms": 4_000}, "no room for three fetches"),
        ({"listeners": "A://h:1,A://h:2"}, "named twice"),
        ({"controller__quorum__bootstrap__servers": "c1"}, "host:port"),
        ({"controller__quorum__bootstrap__servers": "c1:0"}, "can be called"),
        ({"node__id": -1}, "between 0 and"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(changes: dict[str, object], words: str) -> None:
    """One mistake each."""
    (found,) = mistakes(**changes)

    assert words in found
