"""The requests in flight, and the pauses of nodes that do not answer.

At most one fetch and one question of each kind are in flight to one node. A node that fails gets a pause, doubled each time.

    1. The consumer fetches from broker 1, which parks the fetch. Its questions for offsets go to broker 1 at the same time.
    2. Broker 1 dies. Both requests fail, and broker 1 has a pause of 100 ms. Fetches from broker 2 go on.
    3. A request without an answer is given up at `late_ms`, and counts as a failure.
"""

from dataclasses import dataclass, field
from typing import Final

from clients.consumer.assigned import Asker
from clients.consumer.effects import AskEpochs, AskOffsets, Fetch
from clients.metadata.backoff import ExponentialBackoff
from clients.partition_values import TopicIdPartition
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId

FATAL: Final = frozenset(
    (
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNSUPPORTED_VERSION,
    )
)
"""Errors that a repetition of the request does not cure."""


@dataclass(slots=True)
class Entry:
    """One partition of a request, or one question."""

    asker: Asker
    version: int
    place: TopicIdPartition

    def counts(self, number: int) -> bool:
        """True if the answer is still wanted."""
        return self.asker.asked == number and self.asker.version == self.version


@dataclass(slots=True)
class Request:
    """A request without an answer."""

    sent: Fetch | AskOffsets | AskEpochs
    entries: list[Entry]
    late_ms: int

    @property
    def is_wanted(self) -> bool:
        return any(entry.counts(self.sent.number) for entry in self.entries)


@dataclass(slots=True)
class _Pause:
    until_ms: int = 0
    failures: int = 0


@dataclass
class InFlight:
    """All requests of one consumer."""

    backoff: ExponentialBackoff
    requests: dict[int, Request] = field(default_factory=dict)
    last_number: int = 0
    _busy: set[tuple[type, NodeId]] = field(default_factory=set)
    _pauses: dict[NodeId, _Pause] = field(default_factory=dict)

    def next_number(self) -> int:
        self.last_number += 1
        return self.last_number

    def is_busy(self, kind: type, node_id: NodeId) -> bool:
        return (kind, node_id) in self._busy

    def add(self, sent: Fetch | AskOffsets | AskEpochs, entries: list[Entry], late_ms: int) -> None:
        self.requests[sent.number] = Request(sent, entries, late_ms)
        self._busy.add((type(sent), sent.node.node_id))
        for entry in entries:
            entry.asker.asked = sent.number

    def end(self, number: int) -> Request | None:
        """Return the request, which has ended; None if it was given up before."""
        request = self.requests.pop(number, None)
        if request is not None:
            self._busy.discard((type(request.sent), request.sent.node.node_id))
        return request

    def paused_until_ms(self, node_id: NodeId) -> int:
        pause = self._pauses.get(node_id)
        return 0 if pause is None else pause.until_ms

    def failed(self, node_id: NodeId, now_ms: int) -> None:
        """Begin a pause. Further failures within the pause do not lengthen it."""
        pause = self._pauses.setdefault(node_id, _Pause())
        if now_ms >= pause.until_ms:
            pause.until_ms = now_ms + self.backoff.pause_ms(pause.failures)
            pause.failures += 1

    def answered(self, node_id: NodeId) -> None:
        self._pauses.pop(node_id, None)
