"""Addresses as people write them."""

import pytest

from service_kit.process.endpoints import (
    BadEndpoint,
    HostPort,
    Listener,
    NodeAddress,
    is_loopback,
    parse_host_port,
    parse_list,
    parse_listener,
    parse_node_address,
)


@pytest.mark.parametrize("text", ["localhost:9093", "10.0.0.1:1", "[::1]:65535", "c1.example.com:9093"])
def test_what_is_written_is_what_is_shown(text: str) -> None:
    """An address reads back as it was written, so logs can be pasted into config files."""
    assert str(parse_host_port(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "localhost",
        ":9093",
        "localhost:",
        "localhost:0",
        "localhost:65536",
        "localhost:-1",
        "localhost:٣",
        "::1:9093",
        "[]:9093",
        "a b:1",
        "h/x:1",
        "x" * 300 + ":1",
        "localhost:" + "9" * 1000,
    ],
)
def test_what_is_no_address_is_quoted_and_refused(text: str) -> None:
    """Nothing half right gets through, and error texts stay short whatever was given."""
    with pytest.raises(BadEndpoint) as refused:
        parse_host_port(text)

    assert len(str(refused.value)) < 250


def test_voters_and_listeners() -> None:
    """Kafka's forms; only a listener may leave the port to the system."""
    assert parse_node_address("3@c3:9093") == NodeAddress(3, HostPort("c3", 9093))
    assert parse_listener("PLAINTEXT://0.0.0.0:0") == Listener("PLAINTEXT", HostPort("0.0.0.0", 0))
    assert str(parse_listener("SSL://[::]:9092")) == "SSL://[::]:9092"
    for text in ("c3:9093", "x@c3:9093", "-1@c3:9093", "2147483648@c3:9093", "1@c3:0"):
        with pytest.raises(BadEndpoint):
            parse_node_address(text)
    for text in ("c3:9093", "://c3:9093", "A B://c3:9093"):
        with pytest.raises(BadEndpoint):
            parse_listener(text)


def test_lists() -> None:
    """Commas, or a list from YAML; never an empty entry, which is mostly a variable that was not set."""
    two = (HostPort("a", 1), HostPort("b", 2))

    assert parse_list("a:1, b:2", parse_host_port) == two
    assert parse_list(["a:1", "b:2"], parse_host_port) == two
    for text in ("", "a:1,", ",", [], [""]):
        with pytest.raises(BadEndpoint, match="empty"):
            parse_list(text, parse_host_port)


def test_loopback() -> None:
    """A name other than localhost may point anywhere, so it does not count."""
    assert [is_loopback(h) for h in ("localhost", "127.0.0.1", "127.9.9.9", "::1")] == [True] * 4
    assert [is_loopback(h) for h in ("0.0.0.0", "::", "10.0.0.1", "myhost", "localhost.example.com")] == [False] * 5
