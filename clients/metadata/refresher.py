"""The requests for metadata: one at a time, to the least loaded node, until its answer, its failure or its timeout. Pure.

The owner calls `step` whenever something has happened and at `next_ms`, sends the returned request, and reports its end.

    1. The client asks broker 1. Broker 1 does not answer within `request.timeout.ms`: `late` names the request, and the owner
       gives the request up. Broker 1 is left out for its reconnect back-off.
    2. After the retry back-off the client asks broker 2. Broker 2 has died, and no connection comes about: broker 2 is left out,
       too, and the client asks the next node at once.
    3. Broker 3 stops, and refuses: the client asks the next node at once, too.
    4. No node is left, so the client begins again with the bootstrap addresses (KIP-899). The client also begins again if all
       requests have failed for `rebootstrap_trigger_ms` (KIP-1102), for example because the known addresses now belong to other
       programs, which refuse every request.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from clients.metadata.client_metadata import (
    METADATA_MAX_AGE_MS,
    RETRY_BACKOFF_MAX_MS,
    RETRY_BACKOFF_MS,
    TOPIC_EXPIRY_MS,
    ClientMetadata,
    NotThere,
)
from clients.metadata.cluster import ClusterNode
from clients.metadata.node_states import NodeStates
from clients.metadata.updates import MetadataRequestPlan, MetadataUpdate
from metadata_log.format.errors import ErrorCode


@dataclass(frozen=True)
class ClientConfig:
    """The times of a client, in milliseconds, with the names and defaults of Kafka's clients."""

    metadata_max_age_ms: int = METADATA_MAX_AGE_MS
    """How long metadata is used before the client refreshes it without a reason."""
    metadata_max_idle_ms: int = TOPIC_EXPIRY_MS
    """How long a topic stays of interest after its last use."""
    retry_backoff_ms: int = RETRY_BACKOFF_MS
    """How long the client waits between two requests."""
    retry_backoff_max_ms: int = RETRY_BACKOFF_MAX_MS
    """Maximum pause between two requests while requests fail."""
    reconnect_backoff_ms: int = 50
    """How long a node is left out after its first failure."""
    reconnect_backoff_max_ms: int = 1_000
    """Maximum time for which a node that fails again and again is left out."""
    request_timeout_ms: int = 30_000
    """How long a node may take for an answer, or for the next page of the answer."""
    rebootstrap_trigger_ms: int = 300_000
    """How long all requests may fail before the client begins again with the bootstrap addresses."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise ValueError(f"{name} is {value}: it must be at least 1")
        for first, most in (
            ("retry_backoff_ms", "retry_backoff_max_ms"),
            ("reconnect_backoff_ms", "reconnect_backoff_max_ms"),
        ):
            if getattr(self, first) > getattr(self, most):
                raise ValueError(f"{first} is {getattr(self, first)}, which is more than {most}: {getattr(self, most)}")


class Ask(NamedTuple):
    """A request under way."""

    number: int
    node: ClusterNode
    plan: MetadataRequestPlan


class ProblemKind(Enum):
    """The kinds of failures of a request."""

    NOT_CONNECTED = "no connection came about: the client asks another node at once"
    LOST = "the connection broke, or the time is over: the client asks another node after the retry back-off"
    REFUSED = "the node cannot answer now: the client asks another node at once"
    FATAL = "every node would refuse the request"


ANSWERED = frozenset((ProblemKind.REFUSED, ProblemKind.FATAL))
"""The failures after which the node is known to be there."""


_ANOTHER_AT_ONCE = frozenset((ProblemKind.NOT_CONNECTED, ProblemKind.REFUSED))
"""The failures that cost no retry back-off. The node is left out for its reconnect back-off, so there is no busy loop.

A stopping broker has no requests in flight any more. After a retry back-off it would be the least loaded node again.
"""


class Problem(NamedTuple):
    """The failure of a request."""

    kind: ProblemKind
    code: ErrorCode
    message: str


class Refresher:
    """The requests of one client."""

    def __init__(self, metadata: ClientMetadata, nodes: NodeStates, config: ClientConfig) -> None:
        self._metadata = metadata
        self._nodes = nodes
        self._config = config
        self._asked: Ask | None = None
        self._count = 0
        self._late_ms = 0
        self._failing_since_ms: int | None = None

    def step(self, now_ms: int) -> Ask | None:
        """Returns the request to send now; None if one is in flight, none is due, or no node can be asked."""
        metadata = self._metadata
        if self._asked is not None or metadata.next_request(now_ms) is None:
            return None
        since_ms = self._failing_since_ms
        if since_ms is not None and now_ms >= since_ms + self._config.rebootstrap_trigger_ms:
            self._failing_since_ms = now_ms
            metadata.rebootstrap()
        node = self._nodes.least_loaded(metadata.cluster, now_ms)
        if self._none_left(now_ms):
            metadata.rebootstrap()
            node = self._nodes.least_loaded(metadata.cluster, now_ms)
        plan = metadata.next_request(now_ms)
        if node is None or plan is None:
            return None
        self._count += 1
        self._asked = Ask(self._count, node, plan)
        self._late_ms = now_ms + self._config.request_timeout_ms
        self._nodes.sent(node.node_id)
        return self._asked

    def next_ms(self, now_ms: int) -> int:
        """The time at which the owner calls `step` again, if nothing happens before."""
        if self._asked is not None:
            return self._late_ms
        due_ms = self._metadata.next_update_ms(now_ms)
        at_ms = max(now_ms, due_ms)
        if self._none_left(at_ms) or self._nodes.least_loaded(self._metadata.cluster, at_ms) is not None:
            return due_ms
        return max(due_ms, self._nodes.next_try_ms(self._metadata.cluster))

    def late(self, now_ms: int) -> Ask | None:
        """The request in flight if its time is over: the owner gives the request up, and reports that it failed."""
        return self._asked if self._asked is not None and now_ms >= self._late_ms else None

    def page_came(self, ask: Ask, now_ms: int) -> None:
        """Notes that a part of the answer came: the node has its time again for the next part."""
        if ask is self._asked:
            self._late_ms = now_ms + self._config.request_timeout_ms

    def answered(self, ask: Ask, answer: MetadataUpdate, now_ms: int) -> None:
        """Takes the answer to the request in flight. A request that was given up has no answer any more.

        An answer without any broker is a failure: such a view would leave the client with nobody to ask.
        """
        if not answer.nodes:
            text = f"broker {ask.node.node_id} at {ask.node.host}:{ask.node.port} knows no live broker"
            self.failed(ask, Problem(ProblemKind.REFUSED, ErrorCode.BROKER_NOT_AVAILABLE, text), now_ms)
        elif self._ended(ask):
            self._nodes.connected(ask.node.node_id)
            self._failing_since_ms = None
            self._metadata.update(ask.plan, answer, now_ms)

    def failed(self, ask: Ask, problem: Problem, now_ms: int) -> None:
        """Notes the failure of the request in flight: its node is left out for a while, and metadata is asked for again."""
        if not self._ended(ask):
            return
        if self._failing_since_ms is None:
            self._failing_since_ms = now_ms
        self._nodes.failed(ask.node, now_ms, reached=problem.kind in ANSWERED)
        if problem.kind in _ANOTHER_AT_ONCE:
            self._metadata.last_problem = problem.message
        else:
            self._metadata.failed_update(now_ms, problem.message)
        self._metadata.request_update()
        if problem.kind is ProblemKind.FATAL:
            self._metadata.fail(NotThere(problem.code, problem.message))

    def _none_left(self, now_ms: int) -> bool:
        cluster = self._metadata.cluster
        return not cluster.is_bootstrap and self._nodes.none_left(cluster, now_ms)

    def _ended(self, ask: Ask) -> bool:
        if ask is not self._asked:
            return False
        self._asked = None
        self._nodes.finished(ask.node.node_id)
        return True
