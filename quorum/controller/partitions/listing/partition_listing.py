"""A list of the partitions that meet a filter, in pages that are bounded in work as well as in rows.

A page looks at PARTITIONS_LOOKED_AT_MAX partitions at most, by topic name and number, and says where the next page begins:

    1. A cluster has 2,000,000 partitions, and 3 of them are unavailable, all in topic `z`.
    2. An operator asks for the unavailable ones. The first page looks at 10,000 partitions, and has a place and no row.
    3. The client asks 200 times. The last page has 3 rows. No page has kept the controller from its other work for long.

Each page is as of the image that it was cut from. A partition that exists all the time, and meets the filter all the time, is
in one page.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from metadata_log.format.ids import NodeId, Uuid
from metadata_log.format.partition_state import LEADER, REPLICAS, PartitionState
from metadata_log.format.records import Partition
from metadata_log.image.log_directories import offline_replicas
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.settings.resource_labels import NO_LABELS
from metadata_log.image.topic_image import CHUNK_PARTITIONS, TopicImage
from quorum.controller.partitions.election_rules import min_isr_of
from quorum.controller.partitions.listing.partition_conditions import (
    CONDITIONS,
    AliveBrokers,
    PartitionCondition,
    alive_brokers,
)

ROWS_PAGE_MAX: Final = 1_000
"""Maximum number of partitions in one page, also if a client wants more."""
PARTITIONS_LOOKED_AT_MAX: Final = 10_000
"""Maximum number of partitions that one page looks at, so that a page takes a few milliseconds."""
_TOPIC_COST: Final = 5
"""The cost of opening a topic, in partitions looked at."""


class PartitionDescription(NamedTuple):
    """A partition, and its replicas that are in offline log directories, or on brokers that are fenced or not registered."""

    record: Partition
    offline_replicas: tuple[NodeId, ...]
    labels: Mapping[str, str] = NO_LABELS
    """Filled in where labels are shown."""


def describe_partition(image: MetadataImage, topic: TopicImage, partition: int) -> PartitionDescription:
    """Describes a partition that exists."""
    record = topic.partition(partition)
    assert record is not None
    alive = {
        replica: broker
        for replica in record.replicas
        if (broker := image.brokers.get(replica)) is not None and not broker.fenced
    }
    return PartitionDescription(record, offline_replicas(alive, record.replicas, record.directories))


@dataclass(frozen=True, slots=True)
class PartitionFilter:
    """The partitions that a list is to have. A partition passes if each part that was given lets it pass."""

    conditions: tuple[PartitionCondition, ...] = ()
    """The partition meets at least one of the conditions. Empty: every partition passes."""
    replica_on: NodeId | None = None
    """A replica is assigned to this broker."""
    led_by: NodeId | None = None
    """This broker leads the partition."""
    topics: frozenset[str] | None = None
    """The partition is of one of these topics. None: of any."""


class TopicPlace(NamedTuple):
    """A partition at which a page begins. `topic_id`: the id that the topic had then; empty for any."""

    topic: str
    partition: int
    topic_id: bytes = b""


class PartitionListing(NamedTuple):
    """One partition of a list."""

    topic: str
    topic_id: Uuid
    description: PartitionDescription


class PartitionPage(NamedTuple):
    """A page of partitions, by topic name and number. `next_place`: None after the last page."""

    partitions: tuple[PartitionListing, ...]
    next_place: TopicPlace | None


def list_partitions(
    image: MetadataImage, wanted: PartitionFilter, place: TopicPlace | None = None, limit: int = 0
) -> PartitionPage:
    """Lists partitions from `place` on (None: the first), at most `limit` (0, or above ROWS_PAGE_MAX: ROWS_PAGE_MAX)."""
    room = limit if 0 < limit <= ROWS_PAGE_MAX else ROWS_PAGE_MAX
    names = image.topic_ids.sorted_keys() if wanted.topics is None else sorted(wanted.topics)
    alive = alive_brokers(image) if PartitionCondition.OFFLINE_REPLICAS in wanted.conditions else {}
    rows: list[PartitionListing] = []
    budget = PARTITIONS_LOOKED_AT_MAX
    for index in range(0 if place is None else bisect_left(names, place.topic), len(names)):
        name = names[index]
        if budget <= 0 or len(rows) >= room:
            return PartitionPage(tuple(rows), TopicPlace(name, 0, b""))
        topic = image.topic(name)
        if topic is None or not _may_have(topic, wanted):
            budget -= _TOPIC_COST
            continue
        number = place.partition if place is not None and place[::2] == (name, topic.topic_id) else 0
        passes = _test(wanted, min_isr_of(image, name), alive)
        while number < topic.partition_count:
            if budget <= 0 or len(rows) >= room:
                return PartitionPage(tuple(rows), TopicPlace(name, number, topic.topic_id))
            states = topic.chunks[number // CHUNK_PARTITIONS][number % CHUNK_PARTITIONS :]
            budget -= len(states)
            passing = [each for each, state in enumerate(states, number) if passes(state)]
            number += len(states)
            if len(rows) + len(passing) > room:
                del passing[room - len(rows) :]
                number = passing[-1] + 1
            rows += [PartitionListing(name, topic.topic_id, describe_partition(image, topic, each)) for each in passing]
        budget -= _TOPIC_COST  # after the loop: a page that begins with a topic looks at a part of it at least
    return PartitionPage(tuple(rows), None)


def _may_have(topic: TopicImage, wanted: PartitionFilter) -> bool:
    """Returns False if the index of the topic's brokers shows that no partition passes."""
    brokers = (wanted.replica_on, wanted.led_by)
    return all(topic.has_replica_on(broker_id) for broker_id in brokers if broker_id is not None)


def _test(wanted: PartitionFilter, min_isr: int, alive: AliveBrokers) -> Callable[[PartitionState], bool]:
    replica_on, led_by = wanted.replica_on, wanted.led_by
    conditions = [CONDITIONS[condition] for condition in wanted.conditions]

    def passes(state: PartitionState) -> bool:
        if led_by is not None and state[LEADER] != led_by:
            return False
        if replica_on is not None and replica_on not in state[REPLICAS]:
            return False
        return not conditions or any(holds(state, min_isr, alive) for holds in conditions)

    return passes
