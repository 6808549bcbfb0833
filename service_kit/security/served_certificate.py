"""The certificate that this node's servers show, and the check of new files before the servers show them.

An operator replaces the files of a running node. Without a check the node would show whatever the files have:

    1. An operator copies the files of controller 2 over those of controller 3, by mistake.
    2. Controller 3 shows controller 2's certificate, so no other node sends it a request.
    3. Controller 3 still asks for votes over its older connections, wins, and no node can follow it.

So a node checks new files: each file can be read, the key fits, the node's own authority has signed the certificate, the
certificate is valid now, and it has the name that other nodes demand of this node. If all is well, the servers show the new
certificate on new connections. Otherwise they go on with the old certificate, and `problem` says what is wrong.

The files are read before each handshake, and checked if they have changed. A background task checks them every ten seconds too,
because an old connection may last for weeks. The same task finds that the certificate has expired.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Final

import grpc

from service_kit.security.certificate_names import check_names, dns_names, expiry_s, own_certificate
from service_kit.security.node_identity import Node, NodeNames
from service_kit.security.tls import PemTexts, TlsFiles, TlsUnusable

INTERVAL_S: Final = 10.0
KEPT: Final = "the new certificate files cannot be used, and this node still shows its old certificate: "
REFUSED: Final = "other nodes refuse this node's certificate: "
REPLACE: Final = ". Replace the files: the node reads them again by itself"


class ServedCertificate:
    """The checked certificate of one node, for all its servers. Safe for several threads: gRPC asks on its own."""

    def __init__(self, tls: TlsFiles, names: NodeNames | None = None, node: Node | None = None) -> None:
        """Reads the files. Without `names` and `node` the certificate may have any names.

        Raises:
            TlsUnusable: a file cannot be used; the text names it.
        """
        self._tls = tls
        self._owner = None if names is None or node is None else (names, node)
        self._lock = threading.Lock()
        self._shown = tls.read_checked()
        self._refused: PemTexts | None = None
        self.expires_s: float | None = None
        """When the certificate that the servers show expires, in seconds since 1970 UTC; None if it was never valid."""
        self.problem = ""
        """The reason why the files, or the certificate shown, cannot be used; empty if all is well."""
        self.check()

    async def keep(self, interval_s: float = INTERVAL_S, tell: Callable[[str], object] | None = None) -> None:
        """Checks the files again and again until it is cancelled. Calls `tell` with `problem` when that has changed."""
        before = self.problem
        while True:
            await asyncio.sleep(interval_s)
            await asyncio.to_thread(self.check)
            if tell is not None and self.problem != before:
                tell(self.problem)
            before = self.problem

    def newest(self) -> PemTexts:
        """Returns the files to show in the next handshake. Reads the files, and checks them if they have changed."""
        try:
            is_known = self._tls.read() in (self._shown, self._refused)
        except TlsUnusable:
            is_known = False
        return self._shown if is_known else self.check()

    def check(self) -> PemTexts:
        """Checks the files, whether they have changed or not. Returns the files to show from now on."""
        with self._lock:
            read: PemTexts | None = None
            try:
                read = self._tls.read()
                expires_s = self._checked()
                # Files that were replaced during the check are checked by the next call.
                if self._tls.read() == read:
                    self._shown, self._refused, self.expires_s, self.problem = read, None, expires_s, ""
            except (TlsUnusable, OSError) as e:  # `ssl.SSLError` is an OSError
                self._refused = read
                self.problem = f"{REFUSED if read == self._shown else KEPT}{e}{REPLACE}"
            return self._shown

    def _checked(self) -> float:
        """Returns when the certificate in the files expires. Raises TlsUnusable if other nodes would refuse the certificate."""
        own = own_certificate(self._tls)
        if self._owner is not None:
            warning = check_names(dns_names(own), self._tls, *self._owner)
            if warning is not None:
                raise TlsUnusable(f"{self._tls.certificate_chain}: {warning}")
        return expiry_s(own)


def server_credentials(certificate: ServedCertificate | None) -> grpc.ServerCredentials | None:
    """Credentials of a server that shows `certificate`, and demands one from every client; None without TLS."""
    if certificate is None:
        return None
    shown = certificate.newest()

    def changed() -> grpc.ServerCertificateConfiguration | None:
        """Returns the new certificate, or None to keep the old one. gRPC calls this on its own thread before each handshake."""
        nonlocal shown
        now = certificate.newest()
        if now == shown:
            return None
        shown = now
        return _server_configuration(now)

    return grpc.dynamic_ssl_server_credentials(
        _server_configuration(shown), changed, require_client_authentication=True
    )


def _server_configuration(pem: PemTexts) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(pem.key, pem.chain)], pem.authority)
