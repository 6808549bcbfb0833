"""What a producer-side client keeps of the cluster's metadata, and when it asks for more. Pure, like Kafka's `Metadata`.

    Cluster          an immutable view (`client_cluster`); replaced as a whole by each update
    ClientMetadata   which topics are of interest, when the next request is due, and what an answer changes
    WaitOnMetadata   "this topic and partition, within a minute": from the cache at once, or after the next updates

A client asks any broker, and brokers are never equally new. Three rules keep an older answer from doing harm: a partition's
leader epoch never goes back (an answer with an older epoch leaves that partition as it was); a topic that was deleted does not
come back under the name of the one that was created after it (`client_seen` has both); and an answer to a *request that was
sent before a topic was added* does not count as the answer for that topic (request versions).

A *full* update asks for every topic of interest and replaces the view; a *partial* one asks for the newly added topics
only, and is merged into it. Refreshing is periodic (`metadata.max.age.ms`) or forced, by an unknown leader, a disconnect, a
timeout or an error that says "your metadata is stale"; two requests are `retry.backoff.ms` apart.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from clients.metadata.cluster import Cluster, ClusterNode, PartitionView, TopicPartition
from clients.metadata.seen import SeenTopics, ViewVersion
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Epoch, NodeId, Uuid

METADATA_MAX_AGE_MS: Final = 300_000
RETRY_BACKOFF_MS: Final = 100
TOPIC_EXPIRY_MS: Final = 300_000
MAX_WAIT_MS: Final = 60_000

_RETRIABLE: Final = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.BROKER_NOT_AVAILABLE,
    }
)
"""Errors that better metadata may cure."""


class TopicUpdate(NamedTuple):
    """One topic in an answer."""

    name: str
    topic_id: Uuid | None
    partitions: tuple[PartitionView, ...] = ()
    error: ErrorCode = ErrorCode.NONE
    is_internal: bool = False


class MetadataUpdate(NamedTuple):
    """An answer to a metadata request."""

    cluster_id: str | None
    nodes: tuple[ClusterNode, ...]
    topics: tuple[TopicUpdate, ...]
    controller_id: NodeId | None = None
    as_of: ViewVersion | None = None
    """None: it does not say. With it a client knows which of two ids of one topic name is the later one."""


class MetadataRequestPlan(NamedTuple):
    """What to ask now. Give it back with the answer."""

    topics: tuple[str, ...]
    request_version: int
    is_partial: bool


Listener: TypeAlias = Callable[[Cluster], None]


class ClientMetadata:
    """What one client keeps. Not safe for several threads: its owner steps it."""

    def __init__(
        self,
        bootstrap: Sequence[tuple[str, int]],
        *,
        retry_backoff_ms: int = RETRY_BACKOFF_MS,
        max_age_ms: int = METADATA_MAX_AGE_MS,
        topic_expiry_ms: int = TOPIC_EXPIRY_MS,
    ) -> None:
        self.cluster = Cluster.bootstrap(bootstrap)
        self.update_version = 0
        """Grows with every update that was taken: who waits for one waits for this."""
        self.request_version = 0
        """Grows with every topic that is added: tells answers of requests that could not have named it."""
        self._backoff_ms = retry_backoff_ms
        self._max_age_ms = max_age_ms
        self._topic_expiry_ms = topic_expiry_ms
        self._expiry_ms: dict[str, int] = {}
        """Topic of interest -> when interest ends unless somebody asks again."""
        self._new_topics: set[str] = set()
        self._last_refresh_ms: int | None = None
        """Also of attempts that failed: they are backed off from."""
        self._last_success_ms: int | None = None
        self._needs_full = False
        self._needs_partial = False
        self._seen = SeenTopics()
        self._listeners: list[Listener] = []

    def subscribe(self, listener: Listener) -> None:
        """From now on `listener` gets each new view."""
        self._listeners.append(listener)

    # --- interest ----------------------------------------------------------------------------------------------------

    def add(self, topic: str, now_ms: int) -> None:
        """The topic is of interest, from now for `topic_expiry_ms` more."""
        if topic not in self._expiry_ms:
            self._new_topics.add(topic)
            self.request_update_for_new_topics()
        self._expiry_ms[topic] = now_ms + self._topic_expiry_ms

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(self._expiry_ms)

    def _retains(self, topic: str, now_ms: int) -> bool:
        if topic not in self._expiry_ms:
            return False
        if topic in self._new_topics or now_ms < self._expiry_ms[topic]:
            return True
        del self._expiry_ms[topic]
        return False

    # --- when to ask -------------------------------------------------------------------------------------------------

    def request_update(self) -> int:
        """The metadata is stale: ask for all of it. Returns the version to wait *past*."""
        self._needs_full = True
        return self.update_version

    def request_update_for_new_topics(self) -> int:
        """Ask for the topics that were added since; at once, whatever the back-off says. Returns the version to wait past."""
        self._last_refresh_ms = None
        self._needs_partial = True
        self.request_version += 1
        return self.update_version

    def request_update_for_topic(self, topic: str) -> int:
        """A partial update if the topic is new here, else a full one. Returns the version to wait past."""
        return self.request_update_for_new_topics() if topic in self._new_topics else self.request_update()

    @property
    def update_requested(self) -> bool:
        return self._needs_full or self._needs_partial

    def next_update_ms(self, now_ms: int) -> int:
        """When the next request is due: now or earlier if one is."""
        allowed_ms = now_ms if self._last_refresh_ms is None else self._last_refresh_ms + self._backoff_ms
        if self.update_requested or self._last_success_ms is None:
            return allowed_ms
        return max(allowed_ms, self._last_success_ms + self._max_age_ms)

    def next_request(self, now_ms: int) -> MetadataRequestPlan | None:
        """The request that is due now, or None. The caller has at most one under way."""
        if now_ms < self.next_update_ms(now_ms):
            return None
        is_partial = self._needs_partial and not self._needs_full and not self._is_old(now_ms)
        topics = self._new_topics if is_partial else self._expiry_ms
        return MetadataRequestPlan(tuple(sorted(topics)), self.request_version, is_partial)

    def _is_old(self, now_ms: int) -> bool:
        return self._last_success_ms is None or now_ms >= self._last_success_ms + self._max_age_ms

    # --- answers -----------------------------------------------------------------------------------------------------

    def failed_update(self, now_ms: int) -> None:
        """The request got no answer: the next one waits out the back-off."""
        self._last_refresh_ms = now_ms

    def update(self, plan: MetadataRequestPlan, answer: MetadataUpdate, now_ms: int) -> None:
        """Takes the answer to `plan`."""
        self._needs_partial = plan.request_version < self.request_version
        self._last_refresh_ms = now_ms
        self.update_version += 1
        if not plan.is_partial:
            self._needs_full = False
            self._last_success_ms = now_ms
        self._new_topics -= {topic.name for topic in answer.topics} | (
            set() if self._needs_partial else set(plan.topics)
        )
        self.cluster = self._merged(answer, plan.is_partial, now_ms)
        for listener in self._listeners:
            listener(self.cluster)

    def _merged(self, answer: MetadataUpdate, is_partial: bool, now_ms: int) -> Cluster:
        old = self.cluster
        told = {topic.name: topic for topic in answer.topics if self._retains(topic.name, now_ms)}
        kept = {topic for topic in old.topics if is_partial and topic not in told and self._retains(topic, now_ms)}
        partitions = {key: view for key, view in old.partitions.items() if key.topic in kept}
        topic_ids = {topic: topic_id for topic, topic_id in old.topic_ids.items() if topic in kept}
        self._seen.keep_only(self.topics)
        for topic in told.values():
            if topic.error in _RETRIABLE:
                self.request_update()
            if topic.error is not ErrorCode.NONE:
                continue
            if self._seen.is_outdated(topic.name, topic.topic_id, answer.as_of):
                self.request_update()
                kept_views = old.partitions_by_topic.get(topic.name, ())
                partitions.update((view.key, view) for view in kept_views)
                if topic.name in old.topic_ids:
                    topic_ids[topic.name] = old.topic_ids[topic.name]
                continue
            self._seen.see_topic(topic.name, topic.topic_id, answer.as_of)
            if topic.topic_id is not None:
                topic_ids[topic.name] = topic.topic_id
            for view in topic.partitions:
                chosen = self._newer(view)
                if chosen is not None:
                    partitions[view.key] = chosen

        def having(before: frozenset[str], now: set[str]) -> frozenset[str]:
            return frozenset(now | {topic for topic in before if is_partial and topic not in told})

        invalid = {name for name, topic in told.items() if topic.error is ErrorCode.INVALID_TOPIC_EXCEPTION}
        unauthorized = {name for name, topic in told.items() if topic.error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
        internal = {name for name, topic in told.items() if topic.is_internal}
        return Cluster(
            cluster_id=answer.cluster_id,
            nodes={node.node_id: node for node in answer.nodes},
            partitions=partitions,
            topic_ids=topic_ids,
            internal_topics=having(old.internal_topics, internal),
            invalid_topics=having(old.invalid_topics, invalid),
            unauthorized_topics=having(old.unauthorized_topics, unauthorized),
            controller_id=answer.controller_id,
        )

    def _newer(self, view: PartitionView) -> PartitionView | None:
        """`view`, or what was known before if that is of a later leader epoch (a broker that lags behind answered)."""
        if view.error in _RETRIABLE:
            self.request_update()
        if self._seen.see_epoch(view.topic, view.partition, view.leader_epoch):
            return view
        return self.cluster.partitions.get(view.key)

    # --- leader epochs -----------------------------------------------------------------------------------------------

    def last_seen_epoch(self, key: TopicPartition) -> Epoch | None:
        """The latest leader epoch of the topic that now has this name, as far as this client has seen it."""
        return self._seen.epoch_of(key.topic, key.partition)

    def note_leader_epoch(self, key: TopicPartition, epoch: Epoch, topic_id: Uuid | None = None) -> bool:
        """A response (not of metadata) has shown this epoch. True if it is news: then the metadata is stale.

        With `topic_id` a late response about a deleted topic is told from one about the topic that has its name now.
        """
        assert epoch >= 0
        if not self._seen.raise_epoch(key.topic, key.partition, epoch, topic_id):
            return False
        self.request_update()
        return True


class Waited(NamedTuple):
    """The metadata is there; it took so long."""

    cluster: Cluster
    waited_ms: int


class NotThere(NamedTuple):
    """The wait is over without it. REQUEST_TIMED_OUT, or what the topic's error was."""

    code: ErrorCode
    message: str


class WaitOnMetadata:
    """Waits for one topic, or one partition of it. Step it with `poll` after every update and at its deadline."""

    def __init__(
        self, metadata: ClientMetadata, topic: str, partition: int | None, now_ms: int, max_wait_ms: int = MAX_WAIT_MS
    ) -> None:
        self._metadata = metadata
        self._topic = topic
        self._partition = partition
        self._begin_ms = now_ms
        self._max_wait_ms = max_wait_ms
        self.deadline_ms = now_ms + max_wait_ms
        self._asked_version: int | None = None
        """The update version at which more was asked for; None while the first look is still to come."""

    def poll(self, now_ms: int) -> Waited | NotThere | None:
        """The outcome, or None: wait on."""
        metadata, topic = self._metadata, self._topic
        looks = self._asked_version is None or metadata.update_version > self._asked_version
        if looks:
            cluster = metadata.cluster
            if topic in cluster.invalid_topics:
                return NotThere(ErrorCode.INVALID_TOPIC_EXCEPTION, f"invalid topic {topic!r}")
            if topic in cluster.unauthorized_topics:
                return NotThere(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"not authorized for topic {topic!r}")
            metadata.add(topic, now_ms)
            count = cluster.partition_count(topic)
            if count is not None and (self._partition is None or self._partition < count):
                return Waited(cluster, now_ms - self._begin_ms)
        if now_ms >= self.deadline_ms:
            return NotThere(ErrorCode.REQUEST_TIMED_OUT, self._describe())
        if looks:
            self._asked_version = metadata.request_update_for_topic(topic)
        return None

    def _describe(self) -> str:
        count = self._metadata.cluster.partition_count(self._topic)
        if count is None:
            return f"topic {self._topic!r} not present in metadata after {self._max_wait_ms} ms"
        return (
            f"partition {self._partition} of topic {self._topic!r} with {count} partitions not present in metadata "
            f"after {self._max_wait_ms} ms"
        )
