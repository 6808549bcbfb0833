"""An image as an admin sees it: lists and descriptions as plain values, in bounded pages.

The views are pure functions of the image, and, for brokers, of the active controller's soft state. So any node with the image can
give the same answer as of any offset.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import UNASSIGNED_DIRECTORY, NodeId, Offset, Uuid
from metadata_log.format.labels import has_label
from metadata_log.format.partition_state import DIRECTORIES, LEADER, REPLICAS
from metadata_log.format.records import BROKER_RESOURCE, TOPIC_RESOURCE, BrokerMode, RegisterBroker
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.settings.resource_labels import NO_LABELS
from metadata_log.image.topic_image import TopicImage
from quorum.controller.brokers.contact import BrokerState, shown_state
from quorum.controller.brokers.registration_rules import LOG_DIRS_MAX
from quorum.controller.controller import Controller
from quorum.controller.partitions.listing.partition_listing import PartitionDescription, TopicPlace, describe_partition
from quorum.controller.partitions.target_replicas import target_of

TOPICS_PAGE_MAX: Final = 1_000
PARTITIONS_PAGE_MAX: Final = 2_000
BROKERS_PAGE_MAX: Final = 1_000
"""Maximum number of items in one page, also if a client wants more."""
TOPICS_LOOKED_AT_MAX: Final = 10_000
"""Maximum number of topics that one page of a filtered list looks at."""
LABELS_PAGE_MAX: Final = 1_000
"""How many labels end a page of descriptions: the page ends with the partition or broker that brings it there."""


class TopicListing(NamedTuple):
    """One topic in a list. `replication_factor` is the one of partition 0."""

    name: str
    topic_id: Uuid
    partitions: int
    replication_factor: int


class TopicPage(NamedTuple):
    """A page of topics by name. `more`: other topics come after this page, or after `last`, the last that was looked at."""

    topics: tuple[TopicListing, ...]
    more: bool
    last: str = ""


def list_topics(image: MetadataImage, after: str = "", limit: int = 0, label: str = "") -> TopicPage:
    """Lists the topics whose names come after `after`, at most `limit` (0, or above TOPICS_PAGE_MAX: TOPICS_PAGE_MAX), with
    `label` only those with this label: a key, or key=value."""
    if not 0 < limit <= TOPICS_PAGE_MAX:
        limit = TOPICS_PAGE_MAX
    names = image.topic_ids.sorted_keys()
    first = bisect_right(names, after) if after else 0
    page = names[first : first + (TOPICS_LOOKED_AT_MAX if label else limit)]
    if label:
        found = [name for name in page if has_label(image.labels_of(TOPIC_RESOURCE, name), label)]
        if len(found) > limit:
            return TopicPage(tuple([_listing(image, name) for name in found[:limit]]), True, found[limit - 1])
    else:
        found = [*page]
    last = page[-1] if page else ""
    return TopicPage(tuple([_listing(image, name) for name in found]), first + len(page) < len(names), last)


def _listing(image: MetadataImage, name: str) -> TopicListing:
    topic = image.topic(name)
    assert topic is not None
    return TopicListing(name, topic.topic_id, topic.partition_count, _replication_factor(topic))


def _replication_factor(topic: TopicImage) -> int:
    state = topic.state(0)
    return 0 if state is None else len(target_of(state))


class TopicDescription(NamedTuple):
    """A topic with a page of its partitions. With an error, only the name is set."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    topic_id: Uuid = bytes(16)
    partition_count: int = 0
    partitions: tuple[PartitionDescription, ...] = ()
    configs: tuple[tuple[str, str], ...] = ()
    """The configs that were set on the topic itself, by key."""
    labels: Mapping[str, str] = NO_LABELS


class DescribedTopics(NamedTuple):
    """A page of descriptions. `next_place`: the beginning of the next page; None after the last page."""

    topics: tuple[TopicDescription, ...]
    next_place: TopicPlace | None


def describe_topics(
    image: MetadataImage, names: tuple[str, ...], place: TopicPlace | None = None, limit: int = 0
) -> DescribedTopics:
    """Describes topics in the given order, from `place` on (None: the first topic), with at most `limit` partitions in all (0, or
    more: PARTITIONS_PAGE_MAX).

    A repeated name is described once. A topic that does not exist counts as one partition.
    """
    room = limit if 0 < limit <= PARTITIONS_PAGE_MAX else PARTITIONS_PAGE_MAX
    names = tuple(dict.fromkeys(names))
    begin = 0 if place is None else names.index(place.topic)
    found: list[TopicDescription] = []
    label_room = LABELS_PAGE_MAX
    for name in names[begin:]:
        if room <= 0 or label_room <= 0:
            return DescribedTopics(tuple(found), TopicPlace(name, 0))
        first = place.partition if place is not None and not found else 0
        description = _described(image, name, first, room, label_room, b"" if place is None else place.topic_id)
        found.append(description)
        room -= max(1, len(description.partitions))
        label_room -= len(description.labels) + sum(len(each.labels) for each in description.partitions)
        if description.partitions and description.partitions[-1].record.partition + 1 < description.partition_count:
            end = description.partitions[-1].record.partition + 1
            return DescribedTopics(tuple(found), TopicPlace(name, end, description.topic_id))
    return DescribedTopics(tuple(found), None)


def _described(
    image: MetadataImage, name: str, first: int, limit: int, label_limit: int, topic_id: bytes
) -> TopicDescription:
    """Describes partitions from `first` on, or from 0 on if the topic is no longer the topic with `topic_id`."""
    topic = image.topic(name)
    if topic is None:
        return TopicDescription(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    if first and topic_id not in (b"", topic.topic_id):
        first = 0
    described: list[PartitionDescription] = []
    label_count = 0
    for number in range(first, min(first + limit, topic.partition_count)):
        if label_count >= label_limit:
            break
        labels = image.labels_of(TOPIC_RESOURCE, name, number)
        described.append(describe_partition(image, topic, number)._replace(labels=labels))
        label_count += len(labels)
    return TopicDescription(
        name,
        topic_id=topic.topic_id,
        partition_count=topic.partition_count,
        partitions=tuple(described),
        configs=tuple(sorted(image.config(TOPIC_RESOURCE, name).items())),
        labels=image.labels_of(TOPIC_RESOURCE, name),
    )


class LogDirectory(NamedTuple):
    """A log directory of a broker. `replicas`: how many the broker has assigned to it."""

    directory_id: Uuid
    is_online: bool
    replicas: int


class BrokerListing(NamedTuple):
    """A registered broker. Contact, offset and session are soft state of the active controller: None on any other node, or if
    the active controller has not heard the broker."""

    registration: RegisterBroker
    state: BrokerState
    last_contact_ms: int | None
    metadata_offset: Offset | None
    led_partitions: int
    replicas: int
    session_deadline_ms: int | None = None
    mode: BrokerMode | None = None
    """The mode that an operator has given to the broker id."""
    log_dirs: tuple[LogDirectory, ...] = ()
    """The online directories, and then others in which there are replicas."""
    labels: Mapping[str, str] = NO_LABELS


class BrokerCounts(NamedTuple):
    """How many partitions each broker leads, how many replicas each broker has, and how many of them in which directory."""

    led: Counter[NodeId]
    replicas: Counter[NodeId]
    in_directories: dict[NodeId, Counter[Uuid]]


class BrokerPage(NamedTuple):
    """A page of brokers by id. `more`: other brokers come after this page."""

    brokers: tuple[BrokerListing, ...]
    more: bool


def list_brokers(
    image: MetadataImage,
    controller: Controller | None,
    counts: BrokerCounts | None = None,
    *,
    after: NodeId = -1,
    limit: int = 0,
    label: str = "",
) -> BrokerPage:
    """Lists the registered brokers with ids above `after`, at most `limit` (0, or above BROKERS_PAGE_MAX: BROKERS_PAGE_MAX), with
    `label` only those with this label: a key, or key=value.

    `counts` are those of `image`, if the caller had them counted elsewhere.
    """
    if not 0 < limit <= BROKERS_PAGE_MAX:
        limit = BROKERS_PAGE_MAX
    led, replicas, in_directories = broker_counts(image) if counts is None else counts
    registered = sorted(broker_id for broker_id in image.brokers if broker_id > after)
    if label:
        registered = [each for each in registered if has_label(image.labels_of(BROKER_RESOURCE, str(each)), label)]
    listed: list[BrokerListing] = []
    label_count = 0
    for broker_id in registered[:limit]:
        if label_count >= LABELS_PAGE_MAX:
            break
        labels = image.labels_of(BROKER_RESOURCE, str(broker_id))
        label_count += len(labels)
        registration = image.brokers[broker_id]
        found = BrokerListing(
            registration,
            shown_state(registration),
            None,
            None,
            led[broker_id],
            replicas[broker_id],
            mode=image.broker_modes.get(broker_id),
            log_dirs=_log_directories(registration, in_directories.get(broker_id, Counter())),
            labels=labels,
        )
        if controller is not None:
            standing = controller.standing(image, broker_id)
            found = found._replace(
                state=shown_state(registration) if standing.state is BrokerState.FENCED else standing.state,
                last_contact_ms=standing.last_contact_ms,
                metadata_offset=standing.metadata_offset,
                session_deadline_ms=standing.session_deadline_ms,
            )
        listed.append(found)
    return BrokerPage(tuple(listed), len(registered) > len(listed))


def broker_counts(image: MetadataImage) -> BrokerCounts:
    """Counts the partitions that each broker leads, and the replicas of each broker. O(partitions), about 0.1 us each; 0.5 us
    for each replica in a directory."""
    led: Counter[NodeId] = Counter()
    replicas: Counter[NodeId] = Counter()
    placed: Counter[tuple[NodeId, Uuid]] = Counter()
    for topic in image.topics_by_id.unordered_values():
        for chunk in topic.chunks:
            led.update([state[LEADER] for state in chunk])
            for state in chunk:
                if state[DIRECTORIES]:
                    placed.update(zip(state[REPLICAS], state[DIRECTORIES], strict=True))
        for broker_id, count in topic.replica_counts().items():
            replicas[broker_id] += count
    in_directories: dict[NodeId, Counter[Uuid]] = {}
    for (broker_id, directory), count in placed.items():
        if directory != UNASSIGNED_DIRECTORY:
            in_directories.setdefault(broker_id, Counter())[directory] = count
    return BrokerCounts(led, replicas, in_directories)


def _log_directories(broker: RegisterBroker, replicas: Counter[Uuid]) -> tuple[LogDirectory, ...]:
    online = [LogDirectory(each, True, replicas[each]) for each in broker.log_dirs]
    others = [
        LogDirectory(each, False, count) for each, count in sorted(replicas.items()) if each not in broker.log_dirs
    ]
    return (*online, *others[:LOG_DIRS_MAX])


class ClusterSummary(NamedTuple):
    """Counts of the whole cluster. The image keeps all of them but the brokers' states."""

    metadata_version: int
    topics: int
    partitions: int
    brokers: tuple[tuple[BrokerState, int], ...]
    """How many registered brokers are in each state that a broker is in, in the order of the states."""


def summarize_cluster(image: MetadataImage) -> ClusterSummary:
    """Summarizes the cluster. O(brokers)."""
    states = Counter(map(shown_state, image.brokers.unordered_values()))
    return ClusterSummary(
        image.metadata_version,
        image.topic_count,
        image.partition_count,
        tuple((state, states[state]) for state in BrokerState if states[state]),
    )
