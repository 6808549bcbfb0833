"""The addresses that a client starts with, as in Kafka's `bootstrap.servers`. Names are resolved later, at each connection.

1. A client has the addresses b1:9092 and b2:9092. The name b1 cannot be resolved yet, because the machine is still starting.
2. The client asks b2, and knows all brokers. An unknown name never keeps a client from starting (KIP-909).
"""

from collections.abc import Iterable

from service_kit.process.endpoints import BadEndpoint, HostPort, parse_host_port, parse_list


def parse_bootstrap(addresses: str | Iterable[str]) -> tuple[HostPort, ...]:
    """Parses `host:port` entries (IPv6 as `[::1]:9092`), as a list or as text with commas. A repeated address counts once.

    Raises:
        BadEndpoint: there is no address, or an entry is not `host:port`, or the address is a wildcard such as 0.0.0.0. (A
            ValueError.)
    """
    found = parse_list(addresses, parse_host_port)
    for address in found:
        if address.is_wildcard:
            raise BadEndpoint(f"{address} means all addresses of a machine: give the address of one broker")
    return tuple(dict.fromkeys(HostPort(address.host.lower(), address.port) for address in found))
