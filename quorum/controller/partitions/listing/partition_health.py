"""Unhealthy partitions: those without a leader, and those with fewer replicas in sync than assigned.

    t-0  replicas 101,102,103  ISR 101,102,103  leader 101    well
    t-1  replicas 101,102,103  ISR 101,103      leader 101    under-replicated: 102 is not in sync
    t-2  replicas 102          ISR 102          leader -      leaderless: 102 is fenced, and no other broker holds t-2

A partition can be both. A partition in reassignment is under-replicated if fewer replicas are in sync than it had, and than it
will have: the replicas that are being added do not count as missing. A pure function of the image, O(partitions), about 0.1 us
each: for a thread, not for an event loop.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from metadata_log.format.partition_state import ISR, REPLICAS, PartitionState
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.topic_image import TopicImage
from quorum.controller.partitions.listing.partition_conditions import is_unavailable, is_under_replicated

NAMED_MAX: Final = 1_000
"""How many partitions of each kind are named at most."""

Named: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]
"""Topics by name, and numbers of some of their partitions."""


class PartitionHealth(NamedTuple):
    """Counts of all partitions, and the names of the first few."""

    partitions: int
    leaderless: int
    under_replicated: int
    first_leaderless: Named
    first_under_replicated: Named


def partition_health(image: MetadataImage, limit: int) -> PartitionHealth:
    """Counts the unhealthy partitions of `image`, and names at most `limit` of each kind (never more than NAMED_MAX)."""
    partitions = leaderless = under_replicated = 0
    without_leader: list[TopicImage] = []
    without_replicas: list[TopicImage] = []
    for topic in image.topics_by_id.unordered_values():
        partitions += topic.partition_count
        lost = short = 0
        for chunk in topic.chunks:
            lost += sum([is_unavailable(state) for state in chunk])
            short += sum([is_under_replicated(state) for state in chunk if state[ISR] is not state[REPLICAS]])
        leaderless += lost
        under_replicated += short
        if lost:
            without_leader.append(topic)
        if short:
            without_replicas.append(topic)
    limit = max(0, min(limit, NAMED_MAX))
    return PartitionHealth(
        partitions,
        leaderless,
        under_replicated,
        _first(without_leader, limit, is_unavailable),
        _first(without_replicas, limit, is_under_replicated),
    )


def _first(topics: list[TopicImage], limit: int, lacks: Callable[[PartitionState], bool]) -> Named:
    named: list[tuple[str, tuple[int, ...]]] = []
    for topic in sorted(topics, key=lambda topic: topic.name):
        if limit <= 0:
            break
        numbers = tuple([number for number, state in enumerate(topic.states()) if lacks(state)][:limit])
        named.append((topic.name, numbers))
        limit -= len(numbers)
    return tuple(named)
