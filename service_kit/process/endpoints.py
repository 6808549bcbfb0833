"""Addresses of nodes as text: `host:port`, `id@host:port`, `LISTENER://host:port`.

IPv6 addresses have brackets: `[::1]:9093`. Lists are separated by commas, as in Kafka. Invalid text raises `BadEndpoint` (a
`ValueError`, so that pydantic shows the message), which quotes the text and names the expected form.
"""

import ipaddress
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeVar

T = TypeVar("T")

PORT_MAX: Final = 65_535
NODE_ID_MAX: Final = (1 << 31) - 1
HOST_CHARS_MAX: Final = 253
"""Maximum length of a host name (RFC 1035)."""


class BadEndpoint(ValueError):
    """A text that is not an address of the expected form."""


class HostPort(NamedTuple):
    """A host and a port; port 0 stands for any free port if it is allowed."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def target(self) -> str:
        """The address in gRPC's form."""
        return str(self)

    @property
    def is_loopback(self) -> bool:
        """True if only processes of this machine can connect."""
        return is_loopback(self.host)

    @property
    def is_wildcard(self) -> bool:
        """True for an address that means all addresses of a machine: a server can listen on it, a client cannot call it."""
        try:
            return ipaddress.ip_address(self.host).is_unspecified
        except ValueError:
            return False


class NodeAddress(NamedTuple):
    """A node's id and address."""

    node_id: int
    address: HostPort

    def __str__(self) -> str:
        return f"{self.node_id}@{self.address}"


class Listener(NamedTuple):
    """A named address that a node listens on or advertises."""

    name: str
    address: HostPort

    def __str__(self) -> str:
        return f"{self.name}://{self.address}"


def parse_host_port(text: str, *, any_port: bool = False) -> HostPort:
    """Parses `host:port` or `[ipv6]:port`. Port 0 is allowed only with `any_port`.

    Raises:
        BadEndpoint: the text has neither form.
    """
    host, colon, port = text.strip().rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not host or (":" in host and not bracketed):
        raise BadEndpoint(f"host:port expected (IPv6 as [::1]:9093), not {_shown(text)}")
    host = host[1:-1] if bracketed else host
    if not host or len(host) > HOST_CHARS_MAX or not all(c.isascii() and (c.isalnum() or c in "-._:%") for c in host):
        raise BadEndpoint(f"not a host name or address: {_shown(host)}")
    if not (port.isascii() and port.isdigit() and len(port) <= 5) or int(port) > PORT_MAX:
        raise BadEndpoint(f"not a port (1 to {PORT_MAX}): {_shown(port)} in {_shown(text)}")
    if int(port) == 0 and not any_port:
        raise BadEndpoint(f"port 0 cannot be called: {_shown(text)}; give the real port")
    return HostPort(host, int(port))


def parse_node_address(text: str) -> NodeAddress:
    """Parses `id@host:port`, as in Kafka's `controller.quorum.voters`.

    Raises:
        BadEndpoint: the text does not have this form.
    """
    node_id, at, address = text.strip().partition("@")
    if not at or not (node_id.isascii() and node_id.isdigit() and len(node_id) <= 10) or int(node_id) > NODE_ID_MAX:
        raise BadEndpoint(f"id@host:port expected, not {_shown(text)}")
    return NodeAddress(int(node_id), parse_host_port(address))


def parse_listener(text: str) -> Listener:
    """Parses `NAME://host:port`; port 0 is allowed.

    Raises:
        BadEndpoint: the text does not have this form.
    """
    name, slashes, address = text.strip().partition("://")
    if not slashes or not (name.isascii() and name.replace("_", "").replace("-", "").isalnum() and len(name) <= 64):
        raise BadEndpoint(f"NAME://host:port expected, not {_shown(text)}")
    return Listener(name, parse_host_port(address, any_port=True))


def parse_list(text: str | Iterable[object], parse: Callable[[str], T]) -> tuple[T, ...]:
    """Parses the entries of a list, given as text with commas or as a list, with `parse`.

    Raises:
        BadEndpoint: the list or an entry is empty, or `parse` has raised it.
    """
    entries = text.split(",") if isinstance(text, str) else [str(entry) for entry in text]
    if not any(entry.strip() for entry in entries):
        raise BadEndpoint("an empty list")
    if not all(entry.strip() for entry in entries):
        raise BadEndpoint(f"an empty entry in {_shown(','.join(entries))}")
    return tuple(parse(entry) for entry in entries)


def is_loopback(host: str) -> bool:
    """Tells whether only this machine can reach `host`. Of all names only `localhost` counts."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")
