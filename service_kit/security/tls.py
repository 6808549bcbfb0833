"""Mutual TLS from three files; without TLS a node listens on loopback only, unless the configuration allows more.

A server reads its certificate when it starts, and again for a new connection once the files have changed
(`served_certificate`). A channel reads its certificate only when it is made, because gRPC has no hook for a change:

    1. An operator replaces the files of controller 1. Its server shows the new certificate on new connections.
    2. Its channels to controllers 2 and 3 still show the old certificate.
    3. The operator restarts the nodes one by one before the old certificate expires.

gRPC reports wrong files (a key in place of a certificate, or another certificate's key) only as `Failed to create security
handshaker`, again for each connection. So the files are checked together when a server or channel is made, with a message that
names the mistake.
"""

import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import grpc

from service_kit.process.endpoints import HostPort

PEM_BYTES_MAX: Final = 1 << 20
_CERTIFICATE: Final = "certificate"
_PRIVATE_KEY: Final = "private key"
_KEYS_WITHOUT_GRPC: Final = {
    "Ed25519": b"\x06\x03\x2b\x65\x70\x03\x21\x00",
    "Ed448": b"\x06\x03\x2b\x65\x71\x03\x3a\x00",
    "P-521": b"\x06\x05\x2b\x81\x04\x00\x23\x03\x81\x86\x00",
}
"""Kinds of keys that Python's TLS takes and gRPC's does not, each with the bytes of its public key in a certificate: the object
identifier (RFC 8410, RFC 5480), and the head of the bit string that follows. A node with such a key starts, and every connection
from or to another node fails with NO_COMMON_SIGNATURE_ALGORITHMS."""
_KEY_USAGE: Final = re.compile(rb"\x06\x03\x55\x1d\x0f(?:\x01\x01.)?\x04[\x04\x05]\x03[\x02\x03].(.)", re.DOTALL)
"""The key usage in a certificate (RFC 5280, 4.2.1.3): object identifier, perhaps `critical`, and a bit string. Its first byte is
the group."""
_DIGITAL_SIGNATURE: Final = 0x80
"""The first bit of a key usage. Every handshake of gRPC signs, with a key of any kind. Without this bit a node with a P-256 key
cannot listen, and other nodes refuse one with an RSA key. OpenSSL allows keyAgreement in its place, and names no bit."""


class TlsUnusable(Exception):
    """A certificate or key file cannot be used; the text names the file."""


class InsecureListener(Exception):
    """A listener without TLS would be open to other machines."""


class PemTexts(NamedTuple):
    """The contents of the three files."""

    chain: bytes
    key: bytes
    authority: bytes


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: this node's certificate and key, and the authority that must have signed other nodes' certificates."""

    certificate_chain: Path
    private_key: Path
    certificate_authority: Path

    def read(self) -> PemTexts:
        """Reads the files.

        Raises:
            TlsUnusable: a file cannot be read, or has another kind of content.
        """
        return PemTexts(
            _read(self.certificate_chain, _CERTIFICATE),
            _read(self.private_key, _PRIVATE_KEY),
            _read(self.certificate_authority, _CERTIFICATE),
        )

    def read_checked(self) -> PemTexts:
        """Reads the files, and checks that key and certificate belong together, and that gRPC can use the key.

        Raises:
            TlsUnusable: a file cannot be used, the key is another certificate's, gRPC does not know this kind of key, or the key
                may not sign.
        """
        found = self.read()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_ciphers("DEFAULT:@SECLEVEL=0")  # gRPC and the authority decide about the length of keys
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
        certificate = _first_certificate(found.chain)
        kind = next((kind for kind, public_key in _KEYS_WITHOUT_GRPC.items() if public_key in certificate), None)
        if kind is not None:
            raise TlsUnusable(
                f"{self.certificate_chain} has a key of the kind {kind}, which gRPC cannot use: no other node could "
                "connect. Give this node a key of the kind P-256, P-384 or RSA"
            )
        usage = _KEY_USAGE.search(certificate)
        if usage is not None and not usage[1][0] & _DIGITAL_SIGNATURE:
            raise TlsUnusable(
                f"{self.certificate_chain} may not sign: its key usage lacks digitalSignature, so no other node could "
                "connect. Give this node a certificate with digitalSignature in its key usage, or without a key usage"
            )
        return found


def channel_credentials(tls: TlsFiles | None) -> grpc.ChannelCredentials | None:
    """Credentials of a channel that shows this node's certificate; None without TLS.

    Raises:
        TlsUnusable: a file cannot be used; the text names it.
    """
    if tls is None:
        return None
    pem = tls.read_checked()
    return grpc.ssl_channel_credentials(pem.authority, pem.key, pem.chain)


def check_listener(address: HostPort, tls: TlsFiles | None, *, allow_insecure_remote: bool) -> str | None:
    """Returns a warning for an open listener without TLS that the configuration allows; None if all is well.

    Raises:
        InsecureListener: the configuration does not allow such a listener.
    """
    if tls is not None or address.is_loopback:
        return None
    if not allow_insecure_remote:
        raise InsecureListener(
            f"{address} would be open to other machines without TLS; nothing was started. "
            "Set the tls files, listen on 127.0.0.1, or set allow.insecure.remote=true"
        )
    return f"{address} is open to other machines without TLS: every client that can connect may change everything"


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
        found = f"this is a {other}: are the two swapped?" if _holds(pem, other) else "the file has none"
        raise TlsUnusable(f"{path}: a {wanted} expected, and {found}")
    return pem


def _first_certificate(chain: bytes) -> bytes:
    """The first certificate of the file, as DER."""
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    first = chain.decode(errors="replace").partition(begin)[2].partition(end)[0]
    return ssl.PEM_cert_to_DER_cert(f"{begin}{first}{end}")


def _holds(pem: bytes, what: str) -> bool:
    """Tells whether the file has a block of `what` (`BEGIN PRIVATE KEY`, `BEGIN EC PRIVATE KEY`, `BEGIN CERTIFICATE`)."""
    return any(line.startswith(b"-----BEGIN ") and what.upper().encode() in line for line in pem.splitlines())
