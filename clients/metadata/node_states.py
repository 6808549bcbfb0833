"""The client's connections to the nodes of its view: requests in flight, failures, and the choice of the node to ask.

The client asks the node with the fewest requests in flight. Among equals a connected node comes first, then the node whose
failure is longest ago, then a random order that differs from client to client. A node that failed is left out until its reconnect
back-off is over (`reconnect.backoff.ms`, doubled up to `reconnect.backoff.max.ms`).

    1. Broker 1 and broker 2 have no requests in flight. The client asks broker 1, and stays with it, because it is connected.
    2. Broker 1 dies. The client asks broker 2 at once, and leaves broker 1 out for 50 ms, then for 100 ms, at most for 1 s.
    3. Broker 2 dies, too. No node is left: the client begins again with the bootstrap addresses (KIP-899).
"""

import random
from collections import Counter
from dataclasses import dataclass

from clients.metadata.backoff import ExponentialBackoff
from clients.metadata.cluster import Cluster, ClusterNode, least_loaded_node
from metadata_log.format.ids import NodeId


@dataclass(slots=True)
class _NodeState:
    address: tuple[str, int]
    order: float
    failures: int = 0
    failed_ms: int = 0
    retry_ms: int = 0
    """The end of the reconnect back-off."""
    is_connected: bool = False
    is_unreachable: bool = False
    """True after a failure without an answer; False after an answer, and also after a refusal."""


class NodeStates:
    """The nodes of one client."""

    def __init__(self, reconnect_backoff: ExponentialBackoff, dice: random.Random) -> None:
        self._backoff = reconnect_backoff
        self._dice = dice
        self._nodes: dict[NodeId, _NodeState] = {}
        self._in_flight: Counter[NodeId] = Counter()

    def see(self, cluster: Cluster) -> None:
        """Keeps the nodes of `cluster` and forgets all others. A node with another address starts anew."""
        known, self._nodes = self._nodes, {}
        for node in cluster.nodes.values():
            state = known.get(node.node_id)
            if state is None or state.address != (node.host, node.port):
                state = _NodeState((node.host, node.port), self._dice.random())
            self._nodes[node.node_id] = state

    # --- requests ----------------------------------------------------------------------------------------------------

    def sent(self, node_id: NodeId) -> None:
        self._in_flight[node_id] += 1

    def finished(self, node_id: NodeId) -> None:
        """Notes the end of a request, with or without an answer."""
        assert self._in_flight[node_id] > 0, f"node {node_id} has no request in flight"
        self._in_flight[node_id] -= 1
        if not self._in_flight[node_id]:
            del self._in_flight[node_id]

    def in_flight(self, node_id: NodeId) -> int:
        """How many requests to this node have no answer yet."""
        return self._in_flight[node_id]

    def connected(self, node_id: NodeId) -> None:
        """Notes that the node has answered."""
        state = self._nodes.get(node_id)
        if state is not None:
            state.is_connected, state.is_unreachable = True, False
            state.failures, state.retry_ms = 0, 0

    def failed(self, node: ClusterNode, now_ms: int, *, reached: bool = False) -> None:
        """Notes a disconnect, a timeout, or a refusal (`reached`): the reconnect back-off begins.

        A node that has left the view meanwhile is ignored.
        """
        state = self._nodes.get(node.node_id)
        if state is None or state.address != (node.host, node.port):
            return
        state.retry_ms = now_ms + self._backoff.pause_ms(state.failures)
        state.failures, state.failed_ms = state.failures + 1, now_ms
        state.is_connected, state.is_unreachable = False, not reached

    # --- the choice --------------------------------------------------------------------------------------------------

    def least_loaded(self, cluster: Cluster, now_ms: int) -> ClusterNode | None:
        """Returns the node to ask; None if every node is in its reconnect back-off."""
        self.see(cluster)
        waiting = frozenset(node_id for node_id, state in self._nodes.items() if now_ms < state.retry_ms)
        ranked = sorted(self._nodes, key=lambda each: _rank(self._nodes[each]))
        ranks = {node_id: rank for rank, node_id in enumerate(ranked)}
        found = least_loaded_node(cluster, self._in_flight, waiting, ranks)
        return None if found is None else cluster.nodes[found]

    def none_left(self, cluster: Cluster, now_ms: int) -> bool:
        """True if the last request to every node found nobody, and no node may be tried again yet.

        A node that refuses is left: say that the leases of all brokers lapse, because no controller leads. The client keeps its
        view, and waits.
        """
        self.see(cluster)
        return all(state.is_unreachable and now_ms < state.retry_ms for state in self._nodes.values())

    def next_try_ms(self, cluster: Cluster) -> int:
        """The end of the first reconnect back-off."""
        self.see(cluster)
        return min((state.retry_ms for state in self._nodes.values()), default=0)


def _rank(state: _NodeState) -> tuple[bool, int, float]:
    return not state.is_connected, state.failed_ms, state.order
