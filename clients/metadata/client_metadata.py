"""A client's copy of the cluster's metadata, and the time of its next request. Pure, like Kafka's `Metadata`.

    Cluster          an immutable view (`cluster`); each update replaces the view as a whole
    ClientMetadata   the topics of interest, the time of the next request, and the change that an answer makes
    WaitOnMetadata   waits for one topic or partition: found in the view at once, or after the next updates

A client may ask any broker, and some brokers lag behind. Three rules keep an older answer from doing harm:

    1. The leader epoch of a partition never goes back. Say a client knows leader 102 with epoch 6 for orders-0. A slow broker
       answers leader 101 with epoch 5: the client keeps leader 102.
    2. A deleted topic does not come back under the name of its successor (`seen` keeps ids and epochs).
    3. An answer counts for a topic only if its *request was sent after the topic was added* (request versions).

A *full* update asks for every topic of interest and replaces the view. A *partial* update asks for newly added topics only, and
is merged into the view. The client refreshes periodically (`metadata.max.age.ms`), and at once after an unknown leader, a
disconnect, a timeout or an error that points to stale metadata. Two requests are `retry.backoff.ms` apart.
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
"""Errors that newer metadata may cure."""


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
    """The version of the answer, None if the answer has none. The version shows which of two topic ids is newer."""


class MetadataRequestPlan(NamedTuple):
    """The request to send now. Pass it to `update` together with the answer."""

    topics: tuple[str, ...]
    request_version: int
    is_partial: bool


Listener: TypeAlias = Callable[[Cluster], None]


class ClientMetadata:
    """One client's metadata. Not thread-safe: the owner steps it."""

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
        """The number of accepted updates: a caller that waits for an update waits for a larger number."""
        self.request_version = 0
        """Grows with every added topic: an answer to a request with a lower number could not have the newest topics."""
        self._backoff_ms = retry_backoff_ms
        self._max_age_ms = max_age_ms
        self._topic_expiry_ms = topic_expiry_ms
        self._expiry_ms: dict[str, int] = {}
        """For each topic of interest the time when interest ends, unless a caller asks for the topic again."""
        self._new_topics: set[str] = set()
        self._last_refresh_ms: int | None = None
        """The time of the last request, failed or not: the back-off counts from it."""
        self._last_success_ms: int | None = None
        self._needs_full = False
        self._needs_partial = False
        self._seen = SeenTopics()
        self._listeners: list[Listener] = []

    def subscribe(self, listener: Listener) -> None:
        """Calls `listener` with each new view from now on."""
        self._listeners.append(listener)

    # --- interest ----------------------------------------------------------------------------------------------------

    def add(self, topic: str, now_ms: int) -> None:
        """Adds a topic of interest, or extends its interest, for `topic_expiry_ms` from now."""
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
        """Asks for a full update, because the metadata is stale. Returns the version to wait *past*."""
        self._needs_full = True
        return self.update_version

    def request_update_for_new_topics(self) -> int:
        """Asks for the newly added topics at once, without back-off. Returns the version to wait past."""
        self._last_refresh_ms = None
        self._needs_partial = True
        self.request_version += 1
        return self.update_version

    def request_update_for_topic(self, topic: str) -> int:
        """Asks for a partial update if the topic is new here, else for a full one. Returns the version to wait past."""
        return self.request_update_for_new_topics() if topic in self._new_topics else self.request_update()

    @property
    def update_requested(self) -> bool:
        return self._needs_full or self._needs_partial

    def next_update_ms(self, now_ms: int) -> int:
        """The time of the next request; not later than `now_ms` if one is due."""
        allowed_ms = now_ms if self._last_refresh_ms is None else self._last_refresh_ms + self._backoff_ms
        if self.update_requested or self._last_success_ms is None:
            return allowed_ms
        return max(allowed_ms, self._last_success_ms + self._max_age_ms)

    def next_request(self, now_ms: int) -> MetadataRequestPlan | None:
        """Returns the request that is due now, or None. The caller sends one request at a time."""
        if now_ms < self.next_update_ms(now_ms):
            return None
        is_partial = self._needs_partial and not self._needs_full and not self._is_old(now_ms)
        topics = self._new_topics if is_partial else self._expiry_ms
        return MetadataRequestPlan(tuple(sorted(topics)), self.request_version, is_partial)

    def _is_old(self, now_ms: int) -> bool:
        return self._last_success_ms is None or now_ms >= self._last_success_ms + self._max_age_ms

    # --- answers -----------------------------------------------------------------------------------------------------

    def failed_update(self, now_ms: int) -> None:
        """Notes that a request got no answer: the next request waits for the back-off."""
        self._last_refresh_ms = now_ms

    def update(self, plan: MetadataRequestPlan, answer: MetadataUpdate, now_ms: int) -> None:
        """Takes the answer to `plan`, and calls the listeners with the new view."""
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
        """Returns `view`, or the known view if its leader epoch is later: then a broker that lags behind has answered."""
        if view.error in _RETRIABLE:
            self.request_update()
        if self._seen.see_epoch(view.topic, view.partition, view.leader_epoch):
            return view
        return self.cluster.partitions.get(view.key)

    # --- leader epochs -----------------------------------------------------------------------------------------------

    def last_seen_epoch(self, key: TopicPartition) -> Epoch | None:
        """The latest leader epoch in metadata of the topic that now has this name."""
        return self._seen.epoch_of(key.topic, key.partition)

    def note_leader_epoch(self, key: TopicPartition, epoch: Epoch, topic_id: Uuid | None = None) -> bool:
        """Takes a leader epoch from a response that is not metadata. Returns True, and asks for a full update, if the epoch is
        later than the last one in metadata.

        `topic_id` lets the client recognize a late response about a deleted topic with the same name.
        """
        assert epoch >= 0
        is_later = self._seen.is_later(key.topic, key.partition, epoch, topic_id)
        if is_later:
            self.request_update()
        return is_later


class Waited(NamedTuple):
    """The topic or partition is in the view; the caller has waited for `waited_ms`."""

    cluster: Cluster
    waited_ms: int


class NotThere(NamedTuple):
    """The wait is over, and the topic or partition is not in the view. REQUEST_TIMED_OUT, or the topic's error."""

    code: ErrorCode
    message: str


class WaitOnMetadata:
    """Waits for one topic, or one partition of it. Call `poll` after every update and at `deadline_ms`."""

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
        """The update version at the last request for more; None before the first look at the view."""

    def poll(self, now_ms: int) -> Waited | NotThere | None:
        """Returns the outcome, or None to wait on."""
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
            return f"topic {self._topic!r} is not in the metadata after {self._max_wait_ms} ms; does it exist?"
        return (
            f"partition {self._partition} of topic {self._topic!r} is not in the metadata after {self._max_wait_ms} ms; "
            f"the topic has {count} partitions"
        )
