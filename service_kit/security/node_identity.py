"""Whose certificate it is: the names by which the nodes of one cluster are known over TLS.

A node's identity stands in its certificate, as a DNS subject alternative name. The authority has signed it, so nobody has to look
into the replicated image, which a stranger might have changed, or at a host, which may be shared or renamed.

    cluster 4L6g3nShT-eMCtK--X86sw        its sixteen bytes as hex digits:   e0bea0de74a14fe78c0ad2befbf3acb3
    controller 2                          controller-2.e0bea0de74a14fe78c0ad2befbf3acb3
    broker 101                            broker-101.e0bea0de74a14fe78c0ad2befbf3acb3

An authority that signs other names can be used all the same: `tls.node.names` lists, for each node, names that its certificates
have. What is listed for a node stands *in place* of the name above.

    tls.node.names: [controller-2@ctl2.example.org, controller-2@ctl2.old.example.org, broker-101@b101.example.org]

A server counts whoever shows any of them as that node. A client can demand only one name (gRPC's target name), and demands the
first. So a name is exchanged in three steps: every node lists the old and then the new one; the node gets a certificate that has
both, or the new one behind the old; every node lists the new one first. With only the second one in its certificate a node may
ask, and is asked by nobody.

It is a DNS name because that is what a gRPC client can demand of its server. A server counts nothing else: an e-mail address, a
common name or a wildcard that reads the same is nobody's identity. A client is gRPC's, and takes more, as of hosts:

    its server's certificate has                   the client that demands controller-2.e0be... asks it
    DNS name *.e0be...                             yes: a wildcard is every node of the cluster
    CN=controller-2.e0be..., and no DNS name       yes
    CN=controller-2.e0be..., and a DNS name        no
    the same as an e-mail address or URI           no

So an authority that nodes trust has to sign no wildcard over nodes' names, and no common name that is a node's.
"""

import base64
import binascii
import hashlib
import uuid
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from service_kit.process.endpoints import HOST_CHARS_MAX, NODE_ID_MAX, BadEndpoint

CONTROLLER: Final = "controller"
BROKER: Final = "broker"
_ID_BYTES: Final = 16


class Node(NamedTuple):
    """One node of this cluster."""

    role: str
    """`controller` or `broker`."""
    node_id: int

    def __str__(self) -> str:
        return f"{self.role}-{self.node_id}"


class NamedNode(NamedTuple):
    """An entry of `tls.node.names`: whoever has a certificate for `name` is `node`."""

    node: Node
    name: str

    def __str__(self) -> str:
        return f"{self.node}@{self.name}"


def parse_named_node(text: str) -> NamedNode:
    """`controller-2@ctl2.example.org`.

    Raises:
        BadEndpoint: if it is not of that form.
    """
    who, _, name = text.strip().partition("@")
    node = _parse_node(who)
    is_name = 0 < len(name) <= HOST_CHARS_MAX and all(c.isascii() and (c.isalnum() or c in "-._") for c in name)
    if node is None or not is_name:
        raise BadEndpoint(f"controller-ID@name or broker-ID@name expected, a DNS name, not {text[:80]!r}")
    return NamedNode(node, name.lower())


def cluster_hex(cluster_id: str) -> str:
    """The cluster's part of a name: 32 hex digits. Of an id that is no UUID they are the first sixteen bytes of its SHA-256."""
    return _id_bytes(cluster_id).hex()


def _id_bytes(cluster_id: str) -> bytes:
    try:
        found = uuid.UUID(cluster_id).bytes if len(cluster_id) == 36 else base64.urlsafe_b64decode(cluster_id + "==")
    except (binascii.Error, ValueError):
        found = b""
    is_id = len(cluster_id) in (22, 36) and len(found) == _ID_BYTES
    return found if is_id else hashlib.sha256(cluster_id.encode()).digest()[:_ID_BYTES]


class NodeNames:
    """The names of one cluster's nodes, as this node's configuration has them."""

    def __init__(self, cluster_id: str, listed: Sequence[NamedNode] = ()) -> None:
        self._suffix = "." + cluster_hex(cluster_id)
        self._names: dict[Node, tuple[str, ...]] = {}
        self._nodes: dict[str, frozenset[Node]] = {}
        for node, name in listed:
            self._names[node] = (*self._names.get(node, ()), name)
            self._nodes[name] = self._nodes.get(name, frozenset()) | {node}

    def names_of(self, node: Node) -> tuple[str, ...]:
        """Those by which `node` is known, the one that is demanded of it first."""
        return self._names.get(node) or (f"{node}{self._suffix}",)

    def demanded(self, node: Node) -> str:
        """What a client demands of the server that is to be `node`."""
        return self.names_of(node)[0]

    def nodes_of(self, dns_names: Iterable[str]) -> frozenset[Node]:
        """Who a certificate with these names is of: mostly nobody, or one."""
        found: set[Node] = set()
        for name in (each.lower() for each in dns_names if each.isascii()):  # the Kelvin sign in lower case is a k
            found |= self._nodes.get(name, frozenset())
            node = _parse_node(name.removesuffix(self._suffix)) if name.endswith(self._suffix) else None
            if node is not None and node not in self._names:
                found.add(node)
        return frozenset(found)


def _parse_node(text: str) -> Node | None:
    """`controller-2`, in the one way that it is written: no `controller-02`, no `Controller-2`."""
    role, _, digits = text.partition("-")
    if role not in (CONTROLLER, BROKER) or not (digits.isascii() and digits.isdigit() and len(digits) <= 10):
        return None
    node_id = int(digits)
    return Node(role, node_id) if str(node_id) == digits and node_id <= NODE_ID_MAX else None
