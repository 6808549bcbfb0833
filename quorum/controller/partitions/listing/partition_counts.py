"""How many partitions lack something, counted again only where the image has changed.

An image shares with its predecessor every shard of topics, and every topic, that did not change (`metadata_log.image`). So the
counter keeps its counts of each shard and of each topic, and walks the partitions of changed topics alone.

    image 1     20,000 topics in 128 shards, 100,000 partitions     every partition is looked at once: some 30 ms
    image 2     one partition of topic `orders` has a new ISR       127 shards are as before; of the other one's 156 topics
                                                                    155 are; the partitions of `orders` are counted

Not for an event loop: after an image in which everything has changed, the next count takes as long as the first.
"""

from collections.abc import Mapping
from typing import NamedTuple

from metadata_log.format.ids import Uuid
from metadata_log.format.partition_state import ISR, REPLICAS
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.topic_image import TopicImage
from quorum.controller.partitions.election_rules import min_isr_of
from quorum.controller.partitions.listing.partition_conditions import (
    is_led_by_preferred,
    is_unavailable,
    is_under_min_isr,
    is_under_replicated,
)


class PartitionCounts(NamedTuple):
    """Counts of partitions, under the names of Kafka's metrics. `partition_conditions` defines each."""

    partitions: int = 0
    offline: int = 0
    """No replica leads the partition."""
    under_replicated: int = 0
    """Fewer replicas are in sync than were assigned."""
    under_min_isr: int = 0
    """Fewer replicas are in sync than `min.insync.replicas` demands, or than were assigned if those are fewer."""
    preferred_imbalanced: int = 0
    """Another replica leads than the first assigned one."""
    reassigning: int = 0
    """A reassignment of the partition is in progress."""


_Counted = tuple[TopicImage, int, PartitionCounts]
"""A topic, the `min.insync.replicas` that held, and its counts."""


class PartitionCounter:
    """Counts one image after the other. Used by one thread at a time."""

    def __init__(self) -> None:
        self._configs: object = None
        self._shards: list[tuple[Mapping[Uuid, TopicImage], dict[Uuid, _Counted], PartitionCounts]] = []
        self.looked_at = 0
        """Partitions looked at so far, for tests and for the curious."""

    def count(self, image: MetadataImage) -> PartitionCounts:
        """The counts of `image`."""
        shards = image.topics_by_id.shards()
        known = self._shards if len(shards) == len(self._shards) else []
        is_configured_alike = self._configs is image.configs
        counted = []
        for index, shard in enumerate(shards):
            before = known[index] if known else None
            if before is not None and before[0] is shard and is_configured_alike:
                counted.append(before)
            else:
                topics = self._topics(image, shard, before[1] if before else {})
                total = PartitionCounts(*map(sum, zip(*(each[2] for each in topics.values()), strict=True)))
                counted.append((shard, topics, total))
        self._shards, self._configs = counted, image.configs
        return PartitionCounts(*map(sum, zip(PartitionCounts(), *(each[2] for each in counted), strict=True)))

    def _topics(
        self, image: MetadataImage, shard: Mapping[Uuid, TopicImage], before: Mapping[Uuid, _Counted]
    ) -> dict[Uuid, _Counted]:
        topics: dict[Uuid, _Counted] = {}
        for topic_id, topic in shard.items():
            min_isr = min_isr_of(image, topic.name)
            known = before.get(topic_id)
            if known is None or known[0] is not topic or known[1] != min_isr:
                known = (topic, min_isr, _counts_of(topic, min_isr))
                self.looked_at += topic.partition_count
            topics[topic_id] = known
        return topics


def _counts_of(topic: TopicImage, min_isr: int) -> PartitionCounts:
    offline = short = too_short = imbalanced = 0
    for state in topic.states():
        if not is_led_by_preferred(state):
            imbalanced += 1
            offline += is_unavailable(state)
        if state[ISR] is not state[REPLICAS]:
            short += is_under_replicated(state)
            too_short += is_under_min_isr(state, min_isr)
    return PartitionCounts(topic.partition_count, offline, short, too_short, imbalanced, len(topic.reassigning))
