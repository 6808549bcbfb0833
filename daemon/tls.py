"""Who may talk to whom: mutual TLS from three files, or none, and then on loopback only unless told otherwise.

Certificates are read when a server or channel is made. A server reads them again for each new connection once the files have
changed. A channel does not (gRPC has no such hook), so what a node shows to others is what it found when it started: after a
rotation nodes are restarted one by one, before the old certificate ends.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc

from daemon.endpoints import HostPort

PEM_BYTES_MAX: Final = 1 << 20


class TlsUnusable(Exception):
    """A certificate or key file cannot be read; the text names it."""


class InsecureListener(Exception):
    """A port without TLS would be open to other machines."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: what this node shows, and by whom those of others must be signed."""

    certificate_chain: Path
    private_key: Path
    certificate_authority: Path

    def read(self) -> tuple[bytes, bytes, bytes]:
        """Chain, key, authority.

        Raises:
            TlsUnusable: naming the file.
        """
        return _read(self.certificate_chain), _read(self.private_key), _read(self.certificate_authority)


def server_credentials(tls: TlsFiles | None) -> grpc.ServerCredentials | None:
    """For a server that demands a certificate of every client; None for one without TLS.

    Raises:
        TlsUnusable: naming the file.
    """
    if tls is None:
        return None
    chain, key, authority = shown = tls.read()

    def changed() -> grpc.ServerCertificateConfiguration | None:
        """Called by gRPC, on a thread of its own, before each handshake: None keeps what there is."""
        nonlocal shown
        try:
            now = tls.read()
        except TlsUnusable:
            return None  # half-rotated files: the old certificate still works, and the next handshake looks again
        if now == shown:
            return None
        shown = now
        return grpc.ssl_server_certificate_configuration([(now[1], now[0])], now[2])

    first = grpc.ssl_server_certificate_configuration([(key, chain)], authority)
    return grpc.dynamic_ssl_server_credentials(first, changed, require_client_authentication=True)


def channel_credentials(tls: TlsFiles | None) -> grpc.ChannelCredentials | None:
    """For a channel that shows its certificate; None for one without TLS.

    Raises:
        TlsUnusable: naming the file.
    """
    if tls is None:
        return None
    chain, key, authority = tls.read()
    return grpc.ssl_channel_credentials(authority, key, chain)


def check_listener(address: HostPort, tls: TlsFiles | None, *, allow_insecure_remote: bool) -> str | None:
    """A warning to print for a listener that is open and unprotected although that was asked for; None if all is well.

    Raises:
        InsecureListener: if it would be so without having been asked for.
    """
    if tls is not None or address.is_loopback:
        return None
    if not allow_insecure_remote:
        raise InsecureListener(
            f"{address} would be open to other machines without TLS: "
            "set tls files, bind 127.0.0.1, or set allow.insecure.remote=true"
        )
    return f"{address} is open to other machines without TLS: whoever reaches it can change everything"


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            pem = file.read(PEM_BYTES_MAX + 1)
    except OSError as e:
        raise TlsUnusable(f"{path}: {e.strerror}") from e
    if len(pem) > PEM_BYTES_MAX or b"-----BEGIN " not in pem:
        raise TlsUnusable(f"{path}: not a PEM file")
    return pem
