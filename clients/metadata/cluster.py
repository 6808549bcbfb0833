"""The cluster in one client's view: an immutable value that each update replaces as a whole. Like Kafka's `Cluster`.

The view only records answers. `client_metadata` decides beforehand which part of an answer the client believes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Epoch, NodeId, Uuid


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class ClusterResource(NamedTuple):
    """The cluster that an answer came from."""

    cluster_id: str | None


class ClusterNode(NamedTuple):
    """A broker, and the address for this client. A broker whose address is unknown has the host "" and the port -1."""

    node_id: NodeId
    host: str
    port: int
    rack: str | None = None

    @property
    def has_address(self) -> bool:
        return bool(self.host)


class PartitionView(NamedTuple):
    """One partition, from the last answer that the client believed."""

    topic: str
    partition: int
    leader_id: NodeId | None
    leader_epoch: Epoch | None
    replicas: tuple[NodeId, ...] = ()
    isr: tuple[NodeId, ...] = ()
    offline_replicas: tuple[NodeId, ...] = ()
    error: ErrorCode = ErrorCode.NONE

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class PartitionNodes(NamedTuple):
    """One partition with its nodes instead of their ids: Kafka's `PartitionInfo`."""

    topic: str
    partition: int
    leader: ClusterNode | None
    leader_epoch: Epoch | None
    replicas: tuple[ClusterNode, ...]
    isr: tuple[ClusterNode, ...]
    offline_replicas: tuple[ClusterNode, ...]


@dataclass(frozen=True)
class Cluster:
    """The cluster in this client's view. Immutable; derived views are computed at the first use."""

    cluster_id: str | None = None
    nodes: Mapping[NodeId, ClusterNode] = field(default_factory=dict)
    partitions: Mapping[TopicPartition, PartitionView] = field(default_factory=dict)
    topic_ids: Mapping[str, Uuid] = field(default_factory=dict)
    internal_topics: frozenset[str] = frozenset()
    invalid_topics: frozenset[str] = frozenset()
    unauthorized_topics: frozenset[str] = frozenset()
    controller_id: NodeId | None = None
    is_bootstrap: bool = False
    """True while only the configured addresses are known; their node ids are negative."""

    @staticmethod
    def bootstrap(addresses: Sequence[tuple[str, int]]) -> "Cluster":
        """Makes the view of a client before its first answer."""
        nodes = {-1 - i: ClusterNode(-1 - i, host, port) for i, (host, port) in enumerate(addresses)}
        return Cluster(nodes=nodes, is_bootstrap=True)

    @cached_property
    def partitions_by_topic(self) -> Mapping[str, tuple[PartitionView, ...]]:
        """For each topic its partitions, by number."""
        found: dict[str, list[PartitionView]] = {}
        for view in sorted(self.partitions.values()):
            found.setdefault(view.topic, []).append(view)
        return {topic: tuple(views) for topic, views in found.items()}

    @cached_property
    def available_by_topic(self) -> Mapping[str, tuple[PartitionView, ...]]:
        """For each topic its partitions with a leader."""
        by_topic = self.partitions_by_topic.items()
        return {topic: tuple(view for view in views if view.leader_id is not None) for topic, views in by_topic}

    @cached_property
    def available_numbers(self) -> Mapping[str, tuple[int, ...]]:
        """For each topic the numbers of its partitions with a leader."""
        by_topic = self.available_by_topic.items()
        return {topic: tuple(view.partition for view in views) for topic, views in by_topic}

    @cached_property
    def partitions_by_node(self) -> Mapping[NodeId, tuple[PartitionView, ...]]:
        """For each known node the partitions under its lead."""
        found: dict[NodeId, list[PartitionView]] = {node_id: [] for node_id in self.nodes}
        for view in sorted(self.partitions.values()):
            if view.leader_id in found:
                found[view.leader_id].append(view)
        return {node_id: tuple(views) for node_id, views in found.items()}

    @cached_property
    def topic_names(self) -> Mapping[Uuid, str]:
        return {topic_id: topic for topic, topic_id in self.topic_ids.items()}

    @property
    def topics(self) -> frozenset[str]:
        """The topics with known partitions."""
        return frozenset(self.partitions_by_topic)

    @property
    def controller(self) -> ClusterNode | None:
        return None if self.controller_id is None else self.nodes.get(self.controller_id)

    def partition_count(self, topic: str) -> int | None:
        """How many partitions of the topic are known; None if the topic is unknown."""
        views = self.partitions_by_topic.get(topic)
        return None if views is None else len(views)

    def node(self, node_id: NodeId) -> ClusterNode:
        """The node with this id; without an address if the view does not have the node."""
        return self.nodes.get(node_id) or ClusterNode(node_id, "", -1)

    def partition_nodes(self, key: TopicPartition) -> PartitionNodes | None:
        """The partition with its nodes; None if the partition is unknown."""
        view = self.partitions.get(key)
        if view is None:
            return None
        lists = (tuple(map(self.node, ids)) for ids in (view.replicas, view.isr, view.offline_replicas))
        leader = None if view.leader_id is None else self.node(view.leader_id)
        return PartitionNodes(view.topic, view.partition, leader, view.leader_epoch, *lists)

    def leader_of(self, key: TopicPartition) -> ClusterNode | None:
        """The partition's leader; None if there is no leader or its address is unknown."""
        view = self.partitions.get(key)
        return None if view is None or view.leader_id is None else self.nodes.get(view.leader_id)


def least_loaded_node(
    cluster: Cluster,
    in_flight: Mapping[NodeId, int],
    unreachable: frozenset[NodeId],
    ranks: Mapping[NodeId, int] | None = None,
) -> NodeId | None:
    """The node to ask for metadata: the reachable node with the fewest requests in flight, then the lowest rank, then id."""
    usable = [node_id for node_id in cluster.nodes if node_id not in unreachable]
    known = ranks or {}
    return min(usable, key=lambda each: (in_flight.get(each, 0), known.get(each, 0), each), default=None)
