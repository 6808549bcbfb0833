"""The DNS names in a certificate, read by Python's TLS from a handshake, so that no parser of X.509 is needed.

A node reads the names in its own certificate by a handshake with itself, in memory.
"""

import ssl
from collections.abc import Mapping
from typing import Any, Final

from service_kit.security.node_identity import Node, NodeNames
from service_kit.security.tls import TlsFiles, TlsUnusable

_FLIGHTS_MAX: Final = 10
_INVALID_PURPOSE: Final = 26
"""OpenSSL's X509_V_ERR_INVALID_PURPOSE: the certificate's extended key usage does not include this use."""
_NOT_YET_VALID, _EXPIRED = 9, 10
"""OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED."""


class WrongUse(TlsUnusable):
    """The certificate's extended key usage is for clients only or for servers only, but every node is both."""


class OutOfTime(TlsUnusable):
    """The certificate has expired, or is not valid yet by the clock of this machine."""


def client_context(tls: TlsFiles) -> ssl.SSLContext:
    """A context for a handshake that shows this node's certificate and demands one of the same authority, with any names.

    Raises:
        TlsUnusable: a file cannot be used; the text names it.
    """
    return _context(ssl.PROTOCOL_TLS_CLIENT, tls)


def _context(protocol: ssl._SSLMethod, tls: TlsFiles) -> ssl.SSLContext:
    tls.read_checked()
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    context.set_ciphers("DEFAULT:@SECLEVEL=0")  # as in `TlsFiles.read_checked`
    context.set_alpn_protocols(["h2"])
    context.load_cert_chain(tls.certificate_chain, tls.private_key, password=lambda: b"")
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(tls.certificate_authority)
    except ssl.SSLError as e:
        raise TlsUnusable(f"{tls.certificate_authority}: {e.reason or e}") from e
    return context


def dns_names(shown: Mapping[str, Any]) -> frozenset[str]:
    """The DNS subject alternative names in the result of `SSLObject.getpeercert`, in lower case."""
    return frozenset(str(value).lower() for kind, value in shown.get("subjectAltName", ()) if kind == "DNS")


def expiry_s(shown: Mapping[str, Any]) -> float:
    """When the certificate in the result of `SSLObject.getpeercert` expires, in seconds since 1970 UTC."""
    return float(ssl.cert_time_to_seconds(str(shown["notAfter"])))


def own_certificate(tls: TlsFiles) -> Mapping[str, Any]:
    """Returns this node's own certificate as `SSLObject.getpeercert` shows it to a peer.

    Raises:
        TlsUnusable: the files cannot be used, or a peer with this authority would refuse the certificate: it has expired
            (OutOfTime), or another authority has signed it.
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
                    only, lacks = ("client", "serverAuth") if side is client else ("server", "clientAuth")
                    raise WrongUse(
                        f"{tls.certificate_chain} is a {only}'s certificate, but every node is client and server: its extended "
                        f"key usage lacks {lacks}"
                    ) from e
                why = getattr(e, "verify_message", "") or e.reason or str(e)
                text = f"{tls.certificate_chain}, verified with {tls.certificate_authority}: {why}"
                is_time = getattr(e, "verify_code", 0) in (_NOT_YET_VALID, _EXPIRED)
                if is_time:
                    raise OutOfTime(text) from e
                raise TlsUnusable(
                    f"{text}; nodes that trust this authority refuse it. Give both files of one authority"
                ) from e
        if not waiting:
            return client.getpeercert() or {}
    raise AssertionError(f"a handshake of more than {_FLIGHTS_MAX} flights")


def check_own_name(tls: TlsFiles, names: NodeNames, node: Node) -> str | None:
    """Checks this node's own certificate. Returns a warning if other nodes will not accept it now; None if all is well.

    A warning does not keep the node from starting. The certificate may have expired, or may not be valid yet because the clock of
    the machine is not set yet. Or it may lack the name that other nodes demand.

    Raises:
        TlsUnusable: the certificate is not `node`'s, or not of the authority that the node itself trusts, so every other node
            would refuse it; or a file cannot be used.
    """
    try:
        own = own_certificate(tls)
    except OutOfTime as e:
        return f"other nodes will not accept this node's certificate: {e}"
    except WrongUse as e:
        raise WrongUse(f"{e}. Give this node the certificate of {node.role} {node.node_id}") from e
    return check_names(dns_names(own), tls, names, node)


def check_names(own: frozenset[str], tls: TlsFiles, names: NodeNames, node: Node) -> str | None:
    """Checks the DNS names `own` of the certificate in `tls`. Returns and raises as `check_own_name`."""
    if node in names.nodes_of(own):
        first = names.demanded(node)
        text = f"other nodes demand {first}, which is not in this node's certificate: they accept its requests, but send it none"
        return None if first in own else text
    shown = ", ".join(sorted(own)) or "no DNS name"
    wanted = " or ".join(names.names_of(node))
    raise TlsUnusable(
        f"{tls.certificate_chain} is not the certificate of {node.role} {node.node_id}: it has {shown}, but not {wanted}; "
        "every other node would refuse it. Give this node a certificate with that DNS name as a subject alternative name, or "
        f"list a name of the certificate in tls.node.names, here and at all other nodes: {node}@NAME"
    )
