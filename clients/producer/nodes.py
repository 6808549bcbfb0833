"""The brokers that a producer sends to: requests in flight, and pauses after failures.

Example: broker 101 dies. The first request fails without a connection, so the producer leaves broker 101 alone for 50 ms, then
for 100 ms, at most for 1 s. The batches for other brokers go on meanwhile, and the batches for broker 101 stay in their order.
"""

from clients.metadata.backoff import ExponentialBackoff
from clients.producer.partition_queue import PartitionQueue
from metadata_log.format.ids import NodeId


class Node:
    """One broker."""

    __slots__ = ("failures", "in_flight", "retry_ms", "waiting")

    def __init__(self) -> None:
        self.in_flight = 0
        self.failures = 0
        self.retry_ms = 0
        """The end of the pause after the last failure."""
        self.waiting: dict[PartitionQueue, None] = {}
        """The partitions with batches that wait for a place in flight or for the end of the pause, longest first."""


class Nodes:
    """All brokers that the producer has sent to."""

    def __init__(self, in_flight_max: int, reconnect: ExponentialBackoff) -> None:
        self._in_flight_max = in_flight_max
        self._reconnect = reconnect
        self._nodes: dict[NodeId, Node] = {}

    def get(self, node_id: NodeId) -> Node:
        node = self._nodes.get(node_id)
        if node is None:
            node = self._nodes[node_id] = Node()
        return node

    def is_open(self, node_id: NodeId, now_ms: int) -> bool:
        """True if a request may be sent to the broker now."""
        node = self.get(node_id)
        return node.in_flight < self._in_flight_max and now_ms >= node.retry_ms

    def sent(self, node_id: NodeId) -> None:
        self.get(node_id).in_flight += 1

    def ended(self, node_id: NodeId, now_ms: int, *, reached: bool) -> list[PartitionQueue]:
        """Notes the end of a request. Returns the partitions that have waited for it."""
        node = self.get(node_id)
        assert node.in_flight > 0, f"broker {node_id} has no request in flight"
        node.in_flight -= 1
        if reached:
            node.failures, node.retry_ms = 0, 0
        elif now_ms >= node.retry_ms:  # several requests that break together are one failure
            node.retry_ms = now_ms + self._reconnect.pause_ms(node.failures)
            node.failures += 1
        return self._wake(node)

    def after_pauses(self, now_ms: int) -> list[PartitionQueue]:
        """Returns the partitions that have waited for the end of a pause."""
        found: list[PartitionQueue] = []
        for node in self._nodes.values():
            if node.waiting and node.in_flight < self._in_flight_max and now_ms >= node.retry_ms:
                found += self._wake(node)
        return found

    def next_ms(self) -> int | None:
        """The end of the first pause for which a partition waits."""
        waiting = (node for node in self._nodes.values() if node.waiting and node.in_flight < self._in_flight_max)
        return min((node.retry_ms for node in waiting), default=None)

    def _wake(self, node: Node) -> list[PartitionQueue]:
        woken = list(node.waiting)
        node.waiting.clear()
        return woken
