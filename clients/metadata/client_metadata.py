"""A client's copy of the cluster's metadata, and the time of its next request. Pure, like Kafka's `Metadata`.

    Cluster          an immutable view (`cluster`); each update replaces the view as a whole
    ClientMetadata   the topics of interest, the time of the next request, and the change that an answer makes
    WaitOnMetadata   waits for one topic or partition: found in the view at once, or after the next updates
    NodeStates       requests in flight and failures of each node, and the node to ask
    Refresher        one request at a time: to which node, until when, and again after a failure

A client may ask any broker, and some brokers lag behind. Three rules keep an older answer from doing harm:

    1. The leader epoch of a partition never goes back. Say a client knows leader 102 with epoch 6 for orders-0. A slow broker
       answers leader 101 with epoch 5: the client keeps leader 102.
    2. A deleted topic does not come back under the name of its successor (`seen` keeps ids and epochs).
    3. An answer counts for a topic only if its *request was sent after the topic was added* (request versions).

A *full* update asks for every topic of interest and replaces the view. A *partial* update asks for newly added topics only, and
is merged into the view. The client refreshes periodically (`metadata.max.age.ms`), and soon after an unknown leader, a
disconnect, a timeout or an error that points to stale metadata. Two requests are `retry.backoff.ms` apart. The pause grows, up to
`retry.backoff.max.ms`, while requests fail, and while forced updates bring nothing new (KIP-580).
"""

import random
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from clients.metadata.backoff import ExponentialBackoff
from clients.metadata.cluster import Cluster, ClusterResource, PartitionView, TopicPartition
from clients.metadata.seen import SeenTopics
from clients.metadata.updates import MetadataRequestPlan, MetadataUpdate
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Epoch, Uuid
from metadata_log.format.topic_names import is_text

METADATA_MAX_AGE_MS: Final = 300_000
RETRY_BACKOFF_MS: Final = 100
RETRY_BACKOFF_MAX_MS: Final = 1_000
TOPIC_EXPIRY_MS: Final = 300_000

STALE: Final = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.STORAGE_ERROR,
    }
)
"""Errors that newer metadata may cure."""


class NotThere(NamedTuple):
    """The wait is over, and the topic or partition is not in the view. REQUEST_TIMED_OUT, the topic's error, or a fatal error."""

    code: ErrorCode
    message: str


Listener: TypeAlias = Callable[[Cluster], None]
ClusterResourceListener: TypeAlias = Callable[[ClusterResource], None]


class ClientMetadata:
    """One client's metadata. Not thread-safe: the owner steps it."""

    def __init__(
        self,
        bootstrap: Sequence[tuple[str, int]],
        *,
        all_topics: bool = False,
        retry_backoff_ms: int = RETRY_BACKOFF_MS,
        retry_backoff_max_ms: int = RETRY_BACKOFF_MAX_MS,
        max_age_ms: int = METADATA_MAX_AGE_MS,
        topic_expiry_ms: int = TOPIC_EXPIRY_MS,
        dice: random.Random | None = None,
    ) -> None:
        """`all_topics`: full updates ask for all topics of the cluster. `dice`: for the jitter of the back-off; None: no
        jitter."""
        self._bootstrap = tuple(bootstrap)
        self.cluster = Cluster.bootstrap(bootstrap)
        self.update_version = 0
        """The number of accepted updates: a caller that waits for an update waits for a larger number."""
        self.request_version = 0
        """Grows with every added topic: an answer to a request with a lower number could not have the newest topics."""
        self.failure_count = 0
        """The number of fatal errors: a wait fails with the first error after its beginning."""
        self.last_problem: str | None = None
        """The reason why the last request failed; None after an answer."""
        self._all_topics = all_topics
        self._backoff = ExponentialBackoff(retry_backoff_ms, max(retry_backoff_ms, retry_backoff_max_ms), dice)
        self._max_age_ms = max_age_ms
        self._topic_expiry_ms = topic_expiry_ms
        self._expiry_ms: dict[str, int] = {}
        """For each topic of interest the time when interest ends, unless a caller asks for the topic again."""
        self._new_topics: set[str] = set()
        self._allowed_ms: int | None = None
        """The end of the back-off since the last request, failed or not; None: a request may be sent at once."""
        self._last_success_ms: int | None = None
        self._failed_attempts = 0
        self._equal_answers = 0
        """How many full answers in a row had the nodes and partitions of the answer before."""
        self._needs_full = False
        self._needs_partial = False
        self._failure: NotThere | None = None
        self._is_closed = False
        self._seen = SeenTopics()
        self._listeners: list[Listener] = []
        self._resource_listeners: list[ClusterResourceListener] = []

    def subscribe(self, listener: Listener) -> None:
        """Calls `listener` with each new view from now on."""
        self._listeners.append(listener)

    def unsubscribe(self, listener: Listener) -> None:
        """Calls `listener` no more. May be called twice."""
        self._listeners = [each for each in self._listeners if each is not listener]

    def subscribe_cluster(self, listener: ClusterResourceListener) -> None:
        """Calls `listener` with the cluster's id at each answer from now on."""
        self._resource_listeners.append(listener)

    # --- interest ----------------------------------------------------------------------------------------------------

    def add(self, topic: str, now_ms: int) -> None:
        """Adds a topic of interest, or extends its interest, for `topic_expiry_ms` from now.

        Raises:
            ValueError: `topic` is no text, or UTF-8 cannot say it. One such name would break the requests for all other topics.
        """
        if not is_text(topic):
            raise ValueError(f"{topic!r:.80} is no topic: a name is text that UTF-8 can say")
        is_known = topic in self._expiry_ms or (self._all_topics and topic in self.cluster.topics)
        if not is_known:
            self._new_topics.add(topic)
            self.request_update_for_new_topics()
        self._expiry_ms[topic] = now_ms + self._topic_expiry_ms

    @property
    def topics(self) -> frozenset[str]:
        """The topics of interest."""
        return frozenset(self._expiry_ms)

    def _expire(self, now_ms: int) -> None:
        """Ends the interest in every topic whose time is over. A topic that no request has named yet stays."""
        over = [topic for topic, expiry_ms in self._expiry_ms.items() if expiry_ms <= now_ms]
        for topic in over:
            if topic not in self._new_topics:
                del self._expiry_ms[topic]

    def _retains(self, topic: str) -> bool:
        return self._all_topics or topic in self._expiry_ms

    # --- when to ask -------------------------------------------------------------------------------------------------

    def request_update(self, *, has_news: bool = False) -> int:
        """Asks for a full update, because the metadata is stale. Returns the version to wait *past*.

        `has_news`: the caller knows of a change, so the back-off after equal answers begins anew.
        """
        self._needs_full = True
        if has_news:
            self._equal_answers = 0
        return self.update_version

    def request_update_for_new_topics(self) -> int:
        """Asks for the newly added topics at once, without back-off. Returns the version to wait past."""
        self._allowed_ms = None
        self._equal_answers = 0
        self._needs_partial = True
        self.request_version += 1
        return self.update_version

    def request_update_for_topic(self, topic: str) -> int:
        """Asks for a partial update if the topic is new here, else for a full one. Returns the version to wait past."""
        return self.request_update_for_new_topics() if topic in self._new_topics else self.request_update()

    def note_stale(self, code: ErrorCode) -> bool:
        """Takes the error of a response that is not metadata. Returns True, and asks for a full update, if newer metadata may
        cure the error."""
        if code in STALE:
            self.request_update()
        return code in STALE

    @property
    def update_requested(self) -> bool:
        return self._needs_full or self._needs_partial

    def next_update_ms(self, now_ms: int) -> int:
        """The time of the next request; not later than `now_ms` if one is due."""
        allowed_ms = now_ms if self._allowed_ms is None else self._allowed_ms
        if self.update_requested or self._last_success_ms is None:
            return allowed_ms
        return max(allowed_ms, self._last_success_ms + self._max_age_ms)

    def next_request(self, now_ms: int) -> MetadataRequestPlan | None:
        """Returns the request that is due now, or None. The caller sends one request at a time."""
        if self._is_closed or now_ms < self.next_update_ms(now_ms):
            return None
        if self._needs_partial and not self._needs_full and not self._is_old(now_ms):
            return MetadataRequestPlan(tuple(sorted(self._new_topics)), self.request_version, True)
        topics = () if self._all_topics else tuple(sorted(self._expiry_ms))
        return MetadataRequestPlan(topics, self.request_version, False, self._all_topics)

    def _is_old(self, now_ms: int) -> bool:
        return self._last_success_ms is None or now_ms >= self._last_success_ms + self._max_age_ms

    # --- failures ----------------------------------------------------------------------------------------------------

    def failed_update(self, now_ms: int, problem: str | None = None) -> None:
        """Notes that a request got no answer: the next request waits for the back-off."""
        self._allowed_ms = now_ms + self._backoff.pause_ms(self._failed_attempts)
        self._failed_attempts += 1
        self.last_problem = problem

    def fail(self, failure: NotThere) -> None:
        """Ends every present wait with a fatal error, for example of authentication. A later wait asks again."""
        self._failure = failure
        self.failure_count += 1

    def close(self) -> None:
        """Ends every present and later wait. The client sends no more requests."""
        self._is_closed = True

    def failure_since(self, count: int) -> NotThere | None:
        """Returns the error that ends a wait which began at `failure_count` = `count`; None if there is none."""
        if self._is_closed:
            return NotThere(ErrorCode.NOT_READY, "the metadata client was closed; no more topics are looked up")
        return self._failure if self.failure_count > count else None

    def rebootstrap(self) -> None:
        """Starts over with the bootstrap addresses, because no node of the view can be reached (KIP-899).

        The topics of interest stay, and also the seen leader epochs: they still never go back.
        """
        self.cluster = Cluster.bootstrap(self._bootstrap)
        self.update_version += 1
        self.request_update(has_news=True)

    # --- answers -----------------------------------------------------------------------------------------------------

    def update(self, plan: MetadataRequestPlan, answer: MetadataUpdate, now_ms: int) -> None:
        """Takes the answer to `plan`, and calls the listeners with the new view."""
        before = self.cluster
        if answer.cluster_id != before.cluster_id and not before.is_bootstrap:
            self._seen = SeenTopics()  # topics of another cluster: their epochs and versions say nothing here
            before = Cluster()
            if plan.is_partial:
                self.request_update()
        self._needs_partial = plan.request_version < self.request_version
        self._failed_attempts, self.last_problem = 0, None
        self.update_version += 1
        if not plan.is_partial:
            self._needs_full = False
            self._equal_answers = 0 if self._is_old(now_ms) else self._equal_answers
            self._last_success_ms = now_ms
        self._new_topics -= {topic.name for topic in answer.topics} | (
            set() if self._needs_partial else set(plan.topics)
        )
        self._expire(now_ms)
        self.cluster = self._merged(before, answer, plan.is_partial)
        self._note_progress(before, plan.is_partial)
        # A topic that was added since this request was sent does not wait.
        self._allowed_ms = (
            None if self._needs_partial else now_ms + self._backoff.pause_ms(max(0, self._equal_answers - 1))
        )
        for resource_listener in self._resource_listeners:
            resource_listener(ClusterResource(answer.cluster_id))
        for listener in self._listeners:
            listener(self.cluster)

    def _note_progress(self, before: Cluster, is_partial: bool) -> None:
        now = self.cluster
        if (now.partitions, now.topic_ids, now.nodes) != (before.partitions, before.topic_ids, before.nodes):
            self._equal_answers = 0
        elif not is_partial:
            self._equal_answers += 1

    def _merged(self, old: Cluster, answer: MetadataUpdate, is_partial: bool) -> Cluster:
        told = {topic.name: topic for topic in answer.topics if self._retains(topic.name)}
        kept = {topic for topic in old.topics if is_partial and topic not in told and self._retains(topic)}
        partitions = {key: view for key, view in old.partitions.items() if key.topic in kept}
        topic_ids = {topic: topic_id for topic, topic_id in old.topic_ids.items() if topic in kept}
        self._seen.keep_only(self.topics | told.keys() | kept)
        for topic in told.values():
            as_of = topic.as_of or answer.as_of
            if topic.error in STALE:
                self.request_update()
            if topic.error is not ErrorCode.NONE:
                continue
            if self._seen.is_outdated(topic.name, topic.topic_id, as_of):
                self.request_update()
                kept_views = old.partitions_by_topic.get(topic.name, ())
                partitions.update((view.key, view) for view in kept_views)
                if topic.name in old.topic_ids:
                    topic_ids[topic.name] = old.topic_ids[topic.name]
                continue
            self._seen.see_topic(topic.name, topic.topic_id, as_of)
            if topic.topic_id is not None:
                topic_ids[topic.name] = topic.topic_id
            for view in topic.partitions:
                chosen = self._newer(old, view)
                if chosen is not None:
                    partitions[view.key] = chosen

        def having(before: frozenset[str], now: set[str]) -> frozenset[str]:
            return frozenset(now | {topic for topic in before if is_partial and topic not in told})

        invalid = {name for name, topic in told.items() if topic.error is ErrorCode.INVALID_TOPIC_EXCEPTION}
        unauthorized = {name for name, topic in told.items() if topic.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED}
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

    def _newer(self, old: Cluster, view: PartitionView) -> PartitionView | None:
        """Returns `view`, or the known view if its leader epoch is later: then a broker that lags behind has answered."""
        if view.error in STALE:
            self.request_update()
        if self._seen.see_epoch(view.topic, view.partition, view.leader_epoch):
            return view
        return old.partitions.get(view.key)

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
            self.request_update(has_news=True)
        return is_later
