"""The errors of an address on which a daemon cannot listen, for gRPC and for HTTP alike."""

import errno
import os

from service_kit.process.endpoints import HostPort


class CannotBind(Exception):
    """The server cannot listen on an address; the text has the address and the reason."""

    def __init__(self, address: HostPort, reason: str, key: str = "") -> None:
        """`key` is the configuration key of the address, if the text should name the key."""
        text = f"cannot listen on {address}: {reason}"
        super().__init__(f"{key}: {text}" if key else text)
        self.address = address


class PortInUse(CannotBind):
    """Another process listens on the address."""


def cannot_bind(address: HostPort, error: OSError, key: str = "") -> CannotBind:
    """Returns the error that says why the operating system refused the address."""
    if error.errno == errno.EADDRINUSE:
        return PortInUse(address, "the port is in use", key)
    # asyncio puts the address into `strerror`; an error of name resolution has a number below 0.
    number = error.errno or 0
    return CannotBind(address, os.strerror(number) if number > 0 else error.strerror or str(error), key)
