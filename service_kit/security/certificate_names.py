"""Which DNS names a certificate has, without a parser of X.509: Python's TLS tells what the other side of a handshake has shown.

The names in a node's own certificate are read in the same way: it shakes hands with itself, in memory.
"""

import ssl
from collections.abc import Mapping
from typing import Any, Final

from service_kit.security.node_identity import Node, NodeNames
from service_kit.security.tls import TlsFiles, TlsUnusable

_FLIGHTS_MAX: Final = 10
_INVALID_PURPOSE: Final = 26
"""OpenSSL's X509_V_ERR_INVALID_PURPOSE: the certificate's extended key usage leaves out what it is shown for."""


class ClientsOnly(TlsUnusable):
    """The certificate may be shown by a client, and not by a server, which every node is."""


def client_context(tls: TlsFiles) -> ssl.SSLContext:
    """For a handshake that shows this node's certificate and wants one of the same authority, whatever its names.

    Raises:
        TlsUnusable: naming the file.
    """
    context = _context(ssl.PROTOCOL_TLS_CLIENT, tls)
    try:
        context.load_verify_locations(tls.certificate_authority)
    except ssl.SSLError as e:
        raise TlsUnusable(f"{tls.certificate_authority}: {e.reason or e}") from e
    return context


def _context(protocol: ssl._SSLMethod, tls: TlsFiles) -> ssl.SSLContext:
    tls.read_checked()
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    context.set_ciphers("DEFAULT:@SECLEVEL=0")  # as in `TlsFiles.read_checked`
    context.set_alpn_protocols(["h2"])
    context.load_cert_chain(tls.certificate_chain, tls.private_key, password=lambda: b"")
    return context


def dns_names(shown: Mapping[str, Any]) -> frozenset[str]:
    """The DNS subject alternative names in what `SSLObject.getpeercert` gives, in lower case."""
    return frozenset(str(value).lower() for kind, value in shown.get("subjectAltName", ()) if kind == "DNS")


def own_names(tls: TlsFiles) -> frozenset[str]:
    """The DNS names in this node's own certificate.

    Raises:
        TlsUnusable: the files cannot be used, or whoever trusts the authority does not take the certificate: it has expired, or
            another authority has signed it.
    """
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context(tls).wrap_bio(to_client, to_server)
    server = _context(ssl.PROTOCOL_TLS_SERVER, tls).wrap_bio(to_server, to_client, server_side=True)
    waiting = [client, server]
    for _ in range(_FLIGHTS_MAX):
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as e:
                if getattr(e, "verify_code", 0) == _INVALID_PURPOSE:
                    raise ClientsOnly(
                        f"{tls.certificate_chain} is a client's certificate, and no server may show it"
                    ) from e
                why = getattr(e, "verify_message", "") or e.reason or str(e)
                raise TlsUnusable(f"{tls.certificate_chain} by {tls.certificate_authority}: {why}") from e
        if not waiting:
            return dns_names(client.getpeercert() or {})
    raise AssertionError(f"a handshake of more than {_FLIGHTS_MAX} flights")


def check_own_name(tls: TlsFiles, names: NodeNames, node: Node) -> str | None:
    """A warning to print for a certificate that others will not take; None if all is well. It may have expired, say, or lack the
    name that others demand of a server: that does not end the node, which goes on once the files are replaced.

    Raises:
        TlsUnusable: the certificate is not `node`'s, so that every other node would refuse it; or a file cannot be used.
    """
    tls.read_checked()
    try:
        own = own_names(tls)
    except ClientsOnly as e:
        raise ClientsOnly(f"{e}. Give this node the certificate of {node.role} {node.node_id}") from e
    except TlsUnusable as e:
        return f"others will not take this node's certificate: {e}"
    if node in names.nodes_of(own):
        first = names.demanded(node)
        text = f"others demand {first}, which is not in this node's certificate: they let this node in, and ask it for nothing"
        return None if first in own else text
    shown = ", ".join(sorted(own)) or "no DNS name"
    raise TlsUnusable(
        f"{tls.certificate_chain} is not the certificate of {node.role} {node.node_id}: it has {shown}, and not "
        f"{' or '.join(names.names_of(node))}; every other node would refuse this one. Give it a certificate with that DNS name "
        f"as a subject alternative name, or list one that it has in tls.node.names, here and at all other nodes: {node}@NAME"
    )
