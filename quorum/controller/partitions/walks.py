"""Walks over all partitions of one broker, in slices: what a broker's coming and going means for each of them.

A broker may hold tens of thousands of replicas, and no turn may take long. So a walk goes a slice at a time, each slice is
one batch, and between two of them others are served.
"""

from collections.abc import Callable, Iterator, Set
from typing import Final, NamedTuple

from metadata_log.format.ids import NodeId, Uuid
from metadata_log.format.partition_state import REPLICAS, PartitionState
from metadata_log.format.records import PartitionChange
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.topic_image import CHUNK_PARTITIONS, TopicImage
from quorum.controller.partitions.partition_changes import PartitionChangeBuilder, allows_unclean_election
from quorum.controller.protocol.config import ControllerConfig

_CHUNK_COST: Final = 4
"""Coming to a chunk costs about as much as looking at so many partitions."""
_TOPIC_COST: Final = 3
"""... and asking a topic whether the broker has any of its replicas, as so many."""


class Visited(NamedTuple):
    """A partition on a walk."""

    topic: TopicImage
    partition: int
    state: PartitionState

    def builder(self, image: MetadataImage, active: Set[NodeId]) -> PartitionChangeBuilder:
        """For a change of it, with the topic's own rule about unclean elections."""
        topic = self.topic
        return PartitionChangeBuilder(
            topic.topic_id, self.partition, self.state, active, lambda: allows_unclean_election(image, topic.name)
        )


class PartitionWalk:
    """A walk over all partitions that have a replica on one broker, in slices over several decisions.

    Which topics those are is settled at the start, by the image that there is then; looking for them takes slices too, and
    they are walked in the order of their ids. That is sound for who makes sure first that the broker can enter no further
    ISR: what is created meanwhile, or was passed already, can't come to concern the walk.
    """

    __slots__ = ("_next_chunk", "_topic_ids", "_unsearched", "broker_id", "last_step_cost", "last_step_ms")

    def __init__(self, image: MetadataImage, broker_id: NodeId, now_ms: int) -> None:
        self.broker_id = broker_id
        self.last_step_ms = now_ms
        self.last_step_cost = 0
        """In partitions looked at."""
        self._unsearched: Iterator[TopicImage] | None = image.topics_by_id.unordered_values()
        self._topic_ids: list[Uuid] = []
        self._next_chunk = 0

    @property
    def is_done(self) -> bool:
        return self._unsearched is None and not self._topic_ids

    def _search(self, budget: int) -> int:
        """Finds the broker's topics, at `budget` at the most; gives what that has cost."""
        cost = 0
        while self._unsearched is not None and cost < budget:
            topic = next(self._unsearched, None)
            if topic is None:
                self._unsearched = None
                self._topic_ids.sort(reverse=True)
                break
            cost += _TOPIC_COST
            if topic.has_replica_on(self.broker_id):
                self._topic_ids.append(topic.topic_id)
        return cost

    def step(
        self,
        image: MetadataImage,
        visit: Callable[[Visited], PartitionChange | None],
        config: ControllerConfig,
        now_ms: int,
    ) -> list[PartitionChange]:
        """The next slice: what `visit` makes of the partitions; exceeds neither limit by more than a chunk's 64."""
        self.last_step_ms = now_ms
        changes: list[PartitionChange] = []
        seen = self._search(config.slice_partitions_max)
        if self._unsearched is not None:
            self.last_step_cost = seen
            return changes
        while self._topic_ids and len(changes) < config.slice_changes_max and seen < config.slice_partitions_max:
            topic = image.topic_by_id(self._topic_ids[-1])
            if topic is None or self._next_chunk >= len(topic.chunks):
                self._topic_ids.pop()
                self._next_chunk = 0
                continue
            for visited in self._chunk(topic):
                change = visit(visited)
                if change is not None:
                    changes.append(change)
            seen += _CHUNK_COST + len(topic.chunks[self._next_chunk])
            self._next_chunk += 1
        self.last_step_cost = seen
        return changes

    def _chunk(self, topic: TopicImage) -> Iterator[Visited]:
        first = self._next_chunk * CHUNK_PARTITIONS
        for number, state in enumerate(topic.chunks[self._next_chunk], first):
            if self.broker_id in state[REPLICAS]:
                yield Visited(topic, number, state)
