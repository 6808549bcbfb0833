"""The identity of a node: the names in its certificate that tell the nodes of one cluster apart over TLS.

A node's identity is a DNS subject alternative name in its certificate. The authority has signed the name, so no other node has to
trust the replicated image, which a stranger might have changed, or a host, which may be shared or renamed.

    cluster 4L6g3nShT-eMCtK--X86sw        its sixteen bytes as hex digits:   e0bea0de74a14fe78c0ad2befbf3acb3
    controller 2                          controller-2.e0bea0de74a14fe78c0ad2befbf3acb3
    broker 101                            broker-101.e0bea0de74a14fe78c0ad2befbf3acb3

An authority that signs other names can be used too. `tls.node.names` lists, for each node, the names in its certificates. Names
listed for a node *replace* the name above.

    tls.node.names: [controller-2@ctl2.example.org, controller-2@ctl2.old.example.org, broker-101@b101.example.org]

A server accepts any of a node's names. A client can demand only one name (gRPC's target name), and demands the first in the list.
So an operator changes a name in three steps:

    1. Every node lists the old name first, then the new name.
    2. The node gets a certificate with both names.
    3. Every node lists the new name first.

A node whose certificate has only its second name may send requests, but gets none.

The identity is a DNS name because a gRPC client can demand only a DNS name of its server. A server accepts no other field: an
e-mail address, a common name or a wildcard with the same text is not an identity. gRPC's clients accept more, as for any host:

    the server's certificate has                   a client that demands controller-2.e0be... accepts it
    DNS name *.e0be...                             yes: a wildcard stands for every node of the cluster
    CN=controller-2.e0be..., and no DNS name       yes
    CN=controller-2.e0be..., and a DNS name        no
    the same text as an e-mail address or URI      no

So an authority that nodes trust must not sign a wildcard that covers nodes' names, nor a common name that is a node's.
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
    """A node of this cluster."""

    role: str
    """`controller` or `broker`."""
    node_id: int

    def __str__(self) -> str:
        return f"{self.role}-{self.node_id}"


class NamedNode(NamedTuple):
    """An entry of `tls.node.names`: a certificate with the name `name` is `node`'s."""

    node: Node
    name: str

    def __str__(self) -> str:
        return f"{self.node}@{self.name}"


def parse_named_node(text: str) -> NamedNode:
    """Parses `controller-2@ctl2.example.org`.

    Raises:
        BadEndpoint: the text does not have this form.
    """
    who, _, name = text.strip().partition("@")
    node = _parse_node(who)
    is_name = 0 < len(name) <= HOST_CHARS_MAX and all(c.isascii() and (c.isalnum() or c in "-._") for c in name)
    if node is None or not is_name:
        raise BadEndpoint(f"controller-ID@name or broker-ID@name expected, a DNS name, not {text[:80]!r}")
    return NamedNode(node, name.lower())


def cluster_hex(cluster_id: str) -> str:
    """The cluster's part of a name: the 32 hex digits of its id, or of the id's SHA-256 (16 bytes) if the id is not a UUID."""
    return _id_bytes(cluster_id).hex()


def _id_bytes(cluster_id: str) -> bytes:
    try:
        found = uuid.UUID(cluster_id).bytes if len(cluster_id) == 36 else base64.urlsafe_b64decode(cluster_id + "==")
    except (binascii.Error, ValueError):
        found = b""
    is_id = len(cluster_id) in (22, 36) and len(found) == _ID_BYTES
    return found if is_id else hashlib.sha256(cluster_id.encode()).digest()[:_ID_BYTES]


class NodeNames:
    """The names of one cluster's nodes, from this node's configuration."""

    def __init__(self, cluster_id: str, listed: Sequence[NamedNode] = ()) -> None:
        self._suffix = "." + cluster_hex(cluster_id)
        self._names: dict[Node, tuple[str, ...]] = {}
        self._nodes: dict[str, frozenset[Node]] = {}
        for node, name in listed:
            self._names[node] = (*self._names.get(node, ()), name)
            self._nodes[name] = self._nodes.get(name, frozenset()) | {node}

    def names_of(self, node: Node) -> tuple[str, ...]:
        """All names of `node`, first the name that clients demand."""
        return self._names.get(node) or (f"{node}{self._suffix}",)

    def demanded(self, node: Node) -> str:
        """The name that a client demands of the server `node`."""
        return self.names_of(node)[0]

    def nodes_of(self, dns_names: Iterable[str]) -> frozenset[Node]:
        """The nodes that a certificate with these names identifies: mostly none, or one."""
        found: set[Node] = set()
        for name in (each.lower() for each in dns_names if each.isascii()):  # the lower case of the Kelvin sign is a k
            found |= self._nodes.get(name, frozenset())
            node = _parse_node(name.removesuffix(self._suffix)) if name.endswith(self._suffix) else None
            if node is not None and node not in self._names:
                found.add(node)
        return frozenset(found)


def _parse_node(text: str) -> Node | None:
    """Parses `controller-2` in its canonical form: not `controller-02`, not `Controller-2`."""
    role, _, digits = text.partition("-")
    if role not in (CONTROLLER, BROKER) or not (digits.isascii() and digits.isdigit() and len(digits) <= 10):
        return None
    node_id = int(digits)
    return Node(role, node_id) if str(node_id) == digits and node_id <= NODE_ID_MAX else None
