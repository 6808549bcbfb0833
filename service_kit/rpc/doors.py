"""Authorization of callers: four doors, and the certificate that each door requires.

    door        service               certificate
    voters      VoterService          of a controller of this cluster, for its own id
    brokers     BrokerService         of the broker whose id is in the request
    operators   AdminService          of a controller of this cluster, or with a subject in `admin.principals`; any certificate of
                                      the authority if none is listed
    embedders   EntityService         of a controller of this cluster, or with a subject in `entities.principals` or
                                      `admin.principals`; an operator's if no embedder is listed. Also WatchService, except for
                                      `others`, which has the rights of clients: those are for operators

    controller 3 asks for a vote as controller 2:   refused, whatever epoch is in the request
    broker 101 registers broker 102:                refused
    broker 101 asks in the name of CN=alice:        CN=alice is looked up in `admin.principals`

A refused caller gets CLUSTER_AUTHORIZATION_FAILED, before anything of the request was done. The log has at most one line per
second about refusals. Only DNS names count as a node's identity (`node_identity`).

A node that forwards a request states the caller's name. The receiver believes it only if the forwarder's certificate is a
node's of this cluster; for any other connection the caller is the certificate's holder. A controller checks the caller against
its own list before it forwards a request. A broker's statement is checked again by the controller.

Without TLS no caller can be identified, so all doors are open.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Any, Final, Self

from service_kit.rpc.forwarding import ANONYMOUS, claimed_principal, principal_of
from service_kit.security.certificate_names import check_own_name
from service_kit.security.node_identity import CONTROLLER, Node, NodeNames
from service_kit.security.tls import TlsFiles
from service_kit.security.tls_config import Access

logger = logging.getLogger(__name__)

TELL_INTERVAL_S: Final = 1.0
EVERYBODY: Final = (
    "admin.principals is not set: every holder of a certificate of the authority may change everything in this cluster"
)


class NotAuthorized(Exception):
    """The certificate does not open this door; nothing was done."""


class Caller:
    """The caller on one connection. Made once per call or stream, for all its requests."""

    def __init__(self, doors: "Doors", context: Any, nodes: frozenset[Node], principal: str) -> None:
        self.principal = principal
        """The name in which the request is made."""
        self._doors = doors
        self._context = context
        self._nodes = nodes

    def check_node(self, role: str, *node_ids: int) -> None:
        """Checks that the caller is each of the nodes `node_ids`.

        Raises:
            NotAuthorized: the certificate is not that node's.
        """
        if self._doors.names is None:
            return
        for node_id in node_ids:
            if (role, node_id) not in self._nodes:
                wanted = " or ".join(self._doors.names.names_of(Node(role, node_id)))
                self._refuse(f"only {role} {node_id} may send this; its certificate has the DNS name {wanted}")

    def check_operator(self) -> None:
        """Checks that the caller may operate the cluster.

        Raises:
            NotAuthorized: the caller is not in the list of operators.
        """
        listed = self._doors.admin_principals
        if not listed or self.principal in listed or any(node.role == CONTROLLER for node in self._nodes):
            return
        self._refuse(f"{self.principal} is not in admin.principals of the node that was asked")

    def check_embedder(self) -> None:
        """Checks that the caller may use entities and sessions. An operator may.

        Raises:
            NotAuthorized: the caller is neither in the list of embedders nor in that of operators.
        """
        listed = self._doors.entity_principals
        if not listed:
            self.check_operator()
            return
        if self.principal in listed or self.principal in self._doors.admin_principals:
            return
        if not any(node.role == CONTROLLER for node in self._nodes):
            self._refuse(f"{self.principal} is not in entities.principals of the node that was asked")

    def _refuse(self, why: str) -> None:
        shown = certificate_text(self._context)
        self._doors.tell(f"{self._context.peer()}, with the certificate {shown}: {why}")
        raise NotAuthorized(f"{why}; this certificate is {shown}. Nothing was done")


class Doors:
    """The doors of one node."""

    def __init__(
        self,
        names: NodeNames | None = None,
        admin_principals: Collection[str] = (),
        entity_principals: Collection[str] = (),
    ) -> None:
        """Without `names` all doors are open: this node has no TLS."""
        self.names = names
        self.admin_principals = frozenset(admin_principals) if names is not None else frozenset()
        self.entity_principals = frozenset(entity_principals) if names is not None else frozenset()
        self._anybody = Caller(self, None, frozenset(), ANONYMOUS)
        self._told_s = -TELL_INTERVAL_S
        self._untold = 0

    @classmethod
    def over_tls(cls, cluster_id: str, access: Access) -> Self:
        """Makes the doors of a node whose listeners demand certificates."""
        return cls(NodeNames(cluster_id, access.node_names), access.admin_principals, access.entity_principals)

    def caller(self, context: Any) -> Caller:
        """Identifies the caller of a call; costs some microseconds."""
        if self.names is None:
            return self._anybody
        own = principal_of(context)
        nodes = self.names.nodes_of(_texts(context, "peer_dns"))
        claimed = claimed_principal(context) if nodes else None
        return Caller(self, context, nodes, own if claimed is None else claimed)

    def tell(self, text: str) -> None:
        """Logs a refusal, or counts it if the last line is less than a second old."""
        now_s = asyncio.get_running_loop().time()
        if now_s < self._told_s + TELL_INTERVAL_S:
            self._untold += 1
            return
        others = f" ({self._untold} other refusals since the last line)" if self._untold else ""
        self._told_s, self._untold = now_s, 0
        logger.warning("refused %s%s", text, others)


def doors_of(node: Node, cluster_id: str, tls: TlsFiles | None, access: Access, warn: Callable[..., object]) -> Doors:
    """Makes the doors of `node`, and checks the node's own certificate. Without `tls` every door is open.

    Calls `warn(event, reason=text)` if other nodes will not accept the certificate, and if no operator is listed. Both do not
    keep the node from starting.

    Raises:
        TlsUnusable: the certificate is another node's, or a file cannot be used.
    """
    if tls is None:
        return Doors()
    names = NodeNames(cluster_id, access.node_names)
    warning = check_own_name(tls, names, node)
    if warning is not None:
        warn("certificate", reason=warning)
    if not access.admin_principals:
        warn("operators", reason=EVERYBODY)
    return Doors(names, access.admin_principals, access.entity_principals)


def certificate_text(context: Any) -> str:
    """The caller's certificate for people: its subject and its alternative names."""
    names = ", ".join(_texts(context, "x509_subject_alternative_name"))
    return f"{principal_of(context)} ({f'for {names[:500]}' if names else 'without alternative names'})"


def _texts(context: Any, name: str) -> list[str]:
    return [value.decode("utf-8", "replace") for value in context.auth_context().get(name) or ()]
