"""Walks over all partitions of one broker, in slices: what a broker's coming and going means for each of them.

A broker may hold tens of thousands of replicas, and no turn may take long. So a walk goes a slice at a time, each slice is
one batch, and between two of them others are served.
"""

from collections.abc import Callable, Iterator, Set
from typing import Final, NamedTuple

from metadata_log.ids import NodeId
from metadata_log.image import MetadataImage
from metadata_log.partition_state import REPLICAS, PartitionState
from metadata_log.records import PartitionChange
from metadata_log.topic_image import CHUNK_PARTITIONS, TopicImage
from quorum.controller.config import ControllerConfig
from quorum.controller.partitions import PartitionChangeBuilder, allows_unclean_election

_CHUNK_COST: Final = 4
"""Coming to a chunk costs about as much as looking at so many partitions."""


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

    Which topics those are is settled at the start. That is sound for who makes sure first that the broker can enter no
    further ISR: what is created meanwhile, or was passed already, can't come to concern the walk.
    """

    __slots__ = ("_next_chunk", "_topic_ids", "broker_id", "last_step_ms")

    def __init__(self, image: MetadataImage, broker_id: NodeId, now_ms: int) -> None:
        self.broker_id = broker_id
        self.last_step_ms = now_ms
        self._topic_ids = list(reversed(image.topics_of_broker(broker_id)))
        self._next_chunk = 0

    @property
    def is_done(self) -> bool:
        return not self._topic_ids

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
        seen = 0
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
        return changes

    def _chunk(self, topic: TopicImage) -> Iterator[Visited]:
        first = self._next_chunk * CHUNK_PARTITIONS
        for number, state in enumerate(topic.chunks[self._next_chunk], first):
            if self.broker_id in state[REPLICAS]:
                yield Visited(topic, number, state)
