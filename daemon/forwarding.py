"""Nodes that ask in the name of others: what they say to each other, and whom they believe.

Who asks is said by the forwarder, and believed only over TLS, of a certificate that names a host of this cluster: of a
controller or a registered broker. Anybody else speaks for themselves.
"""

import hashlib
from collections.abc import Callable, Collection
from typing import Any, Final

STAY_HERE: Final = "metaquorum-stay-here"
"""The call is to be answered by the node that it reaches, or refused: set by a controller that hands it on, so that nothing goes
round in a circle, and by who looks for the leader itself. (Keys of gRPC metadata.)"""
PRINCIPAL: Final = "metaquorum-principal-bin"
"""For whom a node asks."""
ANONYMOUS: Final = "anonymous"
PRINCIPAL_CHARS_MAX: Final = 256
ANSWER_GRACE_S: Final = 0.1
"""The deadline of who is asked comes so much earlier, so that what it knows about the outcome still arrives."""
READS: Final = frozenset(
    ("ListTopics", "DescribeTopics", "DescribeConfigs", "ListBrokers", "DescribeQuorum", "ListSnapshots", "CanRestart")
)
"""What of AdminService changes nothing: without an answer there is no unknown outcome, and it may be asked again elsewhere."""

_NAMES: Final = ("x509_subject", "x509_common_name", "x509_subject_alternative_name")


def must_stay(context: Any) -> bool:
    """Whether this call is to be answered here or nowhere."""
    return any(key == STAY_HERE for key, _ in context.invocation_metadata() or ())


def principal_of(context: Any) -> str:
    """Whom the connection's certificate names; `anonymous` without TLS."""
    properties = context.auth_context()
    for name in _NAMES:
        values = properties.get(name)
        if values and values[0]:
            text: str = values[0].decode("utf-8", "replace")
            return text if len(text) <= PRINCIPAL_CHARS_MAX else "sha256:" + hashlib.sha256(values[0]).hexdigest()
    return ANONYMOUS


def asking_principal(context: Any, hosts: Callable[[], Collection[str]]) -> str:
    """Who asks: whom a node of the cluster says that it asks for, or whoever is at the other end.

    `hosts` are those of the cluster's nodes; looked up only where somebody claims to speak for another.
    """
    claimed = [value for key, value in context.invocation_metadata() or () if key == PRINCIPAL]
    if claimed:
        issued_for = context.auth_context().get("x509_subject_alternative_name") or ()
        if not {name.decode("utf-8", "replace") for name in issued_for}.isdisjoint(hosts()):
            return bytes(claimed[0]).decode("utf-8", "replace")[:PRINCIPAL_CHARS_MAX]
    return principal_of(context)
