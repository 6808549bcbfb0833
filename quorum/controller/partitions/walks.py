"""Walks over all partitions of one broker, in slices: the consequences of a broker's change of state for each partition.

A walk without a broker visits the partitions of all brokers.

A broker may hold tens of thousands of replicas, and no turn may take long. So a walk takes one slice at a time. Each slice is one
batch, and between two slices the controller serves other requests.
"""

from collections.abc import Callable, Iterator, Set
from heapq import heapify, heappop
from typing import Final, NamedTuple

from metadata_log.format.ids import NodeId, Uuid
from metadata_log.format.partition_state import REPLICAS, PartitionState
from metadata_log.format.records import PartitionChange
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.topic_image import CHUNK_PARTITIONS, TopicImage
from quorum.controller.partitions.broker_view import BrokerView
from quorum.controller.partitions.election_rules import ElectionRules
from quorum.controller.partitions.partition_changes import PartitionChangeBuilder
from quorum.controller.partitions.replica_moves import ReplicaMoves
from quorum.controller.protocol.brokers.broker_happenings import ReplicasMoved
from quorum.controller.protocol.brokers.state_reason import StateReason
from quorum.controller.protocol.config import ControllerConfig

_CHUNK_COST: Final = 4
"""The cost of opening a chunk, in partitions looked at."""
_TOPIC_COST: Final = 3
"""The cost of asking a topic for replicas on the broker, in partitions looked at."""


class Visited(NamedTuple):
    """One partition of a walk."""

    topic: TopicImage
    partition: int
    state: PartitionState
    walk: "PartitionWalk | None" = None

    def builder(
        self, image: MetadataImage, view: BrokerView, config: ControllerConfig, active: Set[NodeId] | None = None
    ) -> PartitionChangeBuilder:
        """A builder for a change of the partition, with the topic's rules. `active`: the brokers that may lead, if not all that
        `view` has."""
        topic = self.topic
        if self.walk is not None:
            self.walk.built += 1
        rules = ElectionRules(image, config, topic.name)
        present = view.present(self.state, view.active if active is None else active)
        return PartitionChangeBuilder(topic.topic_id, self.partition, self.state, present, view.resting, rules)


class PartitionWalk:
    """A walk over all partitions with a replica on one broker, or over all partitions, in slices over several decisions.

    The walk first searches the topics of the image at its start, slice by slice, and then visits the found topics by their ids.
    Topics that are created later are not visited. So the caller must bar the broker first: a barred broker enters no further
    ISR, and a partition that is new, or was visited already, cannot need the walk.
    """

    __slots__ = (
        "_next_chunk",
        "_topic_ids",
        "_unsearched",
        "broker_id",
        "built",
        "last_step_cost",
        "last_step_ms",
        "moves",
    )

    def __init__(self, image: MetadataImage, broker_id: NodeId | None, now_ms: int) -> None:
        self.broker_id = broker_id
        """None: the walk visits all partitions."""
        self.last_step_ms = now_ms
        self.last_step_cost = 0
        """The cost of the last slice, in partitions looked at."""
        self.built = 0
        """How many changes the last slice has built. Some of them were no change, and have cost as much."""
        self.moves = ReplicaMoves()
        """The changes that are not told yet."""
        self._unsearched: Iterator[TopicImage] | None = image.topics_by_id.unordered_values()
        self._topic_ids: list[Uuid] = []
        """The found topics. After the search, a heap: to sort 20,000 ids at once takes as long as a slice."""
        self._next_chunk = 0

    @property
    def is_done(self) -> bool:
        return self._unsearched is None and not self._topic_ids

    def _search(self, budget: int) -> int:
        """Searches the broker's topics, at a cost of at most `budget`. Returns the cost."""
        cost = 0
        while self._unsearched is not None and cost < budget:
            topic = next(self._unsearched, None)
            if topic is None:
                self._unsearched = None
                heapify(self._topic_ids)
                break
            cost += _TOPIC_COST
            if self.broker_id is None or topic.has_replica_on(self.broker_id):
                self._topic_ids.append(topic.topic_id)
        return cost

    def step(
        self,
        image: MetadataImage,
        visit: Callable[[Visited], PartitionChange | None],
        config: ControllerConfig,
        now_ms: int,
    ) -> list[PartitionChange]:
        """Takes the next slice. Returns the changes that `visit` made; exceeds each limit by at most a chunk of 64.

        A slice is full when it has built `slice_changes_max` changes, or has looked at `slice_partitions_max` partitions of which
        none may change, or has done half of both.
        """
        self.last_step_ms = now_ms
        changes: list[PartitionChange] = []
        change_cost = config.slice_partitions_max / config.slice_changes_max
        seen = self._search(config.slice_partitions_max)
        if self._unsearched is not None:
            self.last_step_cost = seen
            return changes
        self.built = 0
        while self._topic_ids and seen + max(self.built, len(changes)) * change_cost < config.slice_partitions_max:
            topic = image.topic_by_id(self._topic_ids[0])
            if topic is None or self._next_chunk >= len(topic.chunks):
                heappop(self._topic_ids)
                self._next_chunk = 0
                continue
            for visited in self._chunk(topic):
                change = visit(visited)
                if change is not None:
                    changes.append(change)
            seen += _CHUNK_COST + len(topic.chunks[self._next_chunk])
            self._next_chunk += 1
        self.last_step_cost = seen
        self.moves.add(image, changes)
        return changes

    def story(self, why: StateReason) -> tuple[ReplicasMoved, ...]:
        """The happening of all changes that are not told yet, once the walk is done; nothing before."""
        assert self.broker_id is not None, "only the moves of one broker have a reason"
        return self.moves.take(self.broker_id, why) if self.is_done else ()

    def _chunk(self, topic: TopicImage) -> list[Visited]:
        """The visited partitions of the next chunk. In a large cluster the broker holds few of them: 3 of 100, for example."""
        numbered = enumerate(topic.chunks[self._next_chunk], self._next_chunk * CHUNK_PARTITIONS)
        broker_id = self.broker_id
        if broker_id is None:
            return [Visited(topic, number, state, self) for number, state in numbered]
        return [Visited(topic, number, state, self) for number, state in numbered if broker_id in state[REPLICAS]]
