"""Who may talk to whom: mutual TLS from three files, or none, and then on loopback only unless told otherwise.

Certificates are read when a server or channel is made. A server reads them again for each new connection once the files have
changed. A channel does not (gRPC has no such hook), so what a node shows to others is what it found when it started: after a
rotation nodes are restarted one by one, before the old certificate ends.

gRPC reports a key where a certificate should be, or the key of another certificate, as `Failed to create security
handshaker`, for each connection anew. So the files are tried together when a server or channel is made, and the mistake
is named.
"""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc

from service_kit.process.endpoints import HostPort

PEM_BYTES_MAX: Final = 1 << 20
_CERTIFICATE: Final = "certificate"
_PRIVATE_KEY: Final = "private key"


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
        return (
            _read(self.certificate_chain, _CERTIFICATE),
            _read(self.private_key, _PRIVATE_KEY),
            _read(self.certificate_authority, _CERTIFICATE),
        )

    def read_checked(self) -> tuple[bytes, bytes, bytes]:
        """The same, of a key that is the certificate's.

        Raises:
            TlsUnusable: naming the file, or the two that do not belong together.
        """
        found = self.read()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_ciphers("DEFAULT:@SECLEVEL=0")  # how long a key has to be is gRPC's business, and the authority's
        try:
            context.load_cert_chain(self.certificate_chain, self.private_key, password=lambda: b"")
        except ssl.SSLError as e:
            if e.reason == "KEY_VALUES_MISMATCH":
                text = f"{self.private_key} is not the key of the certificate in {self.certificate_chain}"
                raise TlsUnusable(f"{text}: give both files of one node") from e
            both = f"{self.certificate_chain} and {self.private_key}"
            raise TlsUnusable(
                f"{both} cannot be used: {e.reason or e}; they must be PEM, the key without a password"
            ) from e
        return found


def server_credentials(tls: TlsFiles | None) -> grpc.ServerCredentials | None:
    """For a server that demands a certificate of every client; None for one without TLS.

    Raises:
        TlsUnusable: naming the file.
    """
    if tls is None:
        return None
    chain, key, authority = shown = tls.read_checked()

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
    chain, key, authority = tls.read_checked()
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


def _read(path: Path, wanted: str) -> bytes:
    try:
        with path.open("rb") as file:
            pem = file.read(PEM_BYTES_MAX + 1)
    except OSError as e:
        raise TlsUnusable(f"{path}: {e.strerror}") from e
    if len(pem) > PEM_BYTES_MAX or b"-----BEGIN " not in pem:
        raise TlsUnusable(f"{path}: not a PEM file")
    if not _holds(pem, wanted):
        other = _PRIVATE_KEY if wanted == _CERTIFICATE else _CERTIFICATE
        found = f"this is a {other}: are the two swapped?" if _holds(pem, other) else "there is none in it"
        raise TlsUnusable(f"{path}: a {wanted} expected, and {found}")
    return pem


def _holds(pem: bytes, what: str) -> bool:
    """Whether a block of `what` begins in it (`BEGIN PRIVATE KEY`, `BEGIN EC PRIVATE KEY`, `BEGIN CERTIFICATE`)."""
    return any(line.startswith(b"-----BEGIN ") and what.upper().encode() in line for line in pem.splitlines())
