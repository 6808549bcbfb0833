"""A wait for one topic, or one partition of it: Kafka's `waitOnMetadata`.

1. A producer waits for orders-3. The view has no topic orders: the wait adds the topic and asks for an update.
2. The answer has orders with 2 partitions. The wait asks again, with the back-off of the client.
3. An operator adds partitions. The next answer has orders-3, and the wait ends with the view and the time that has passed.
"""

from typing import Final, NamedTuple

from clients.metadata.client_metadata import ClientMetadata, NotThere
from clients.metadata.cluster import Cluster
from metadata_log.format.errors import ErrorCode
from metadata_log.format.topic_names import TOPIC_NAME_CHARS_MAX, is_text

MAX_WAIT_MS: Final = 60_000


class Waited(NamedTuple):
    """The topic or partition is in the view; the caller has waited for `waited_ms`."""

    cluster: Cluster
    waited_ms: int


class WaitOnMetadata:
    """Waits for one topic, or one partition of it. Call `poll` after every update, failure and close, and at `deadline_ms`."""

    def __init__(
        self, metadata: ClientMetadata, topic: str, partition: int | None, now_ms: int, max_wait_ms: int = MAX_WAIT_MS
    ) -> None:
        """Raises ValueError for a negative `max_wait_ms` or partition."""
        if max_wait_ms < 0:
            raise ValueError(f"the maximum wait is {max_wait_ms} ms: it must not be negative")
        if partition is not None and partition < 0:
            raise ValueError(f"partition {partition} of topic {topic!r}: a partition's number must not be negative")
        self._metadata = metadata
        self._topic = topic
        self._partition = partition
        self._begin_ms = now_ms
        self._max_wait_ms = max_wait_ms
        self.deadline_ms = now_ms + max_wait_ms
        self._asked_version: int | None = None
        """The update version at the last request for more; None before the first look at the view."""
        self._failures = metadata.failure_count

    def poll(self, now_ms: int) -> Waited | NotThere | None:
        """Returns the outcome, or None to wait on."""
        metadata, topic = self._metadata, self._topic
        failure = metadata.failure_since(self._failures)
        if failure is not None:
            return failure
        if is_text(topic) and len(topic) > TOPIC_NAME_CHARS_MAX:  # a broker's answer has the beginning of the name only
            text = f"invalid topic: the name has {len(topic)} characters, and the limit is {TOPIC_NAME_CHARS_MAX}"
            return NotThere(ErrorCode.INVALID_TOPIC_EXCEPTION, text)
        looks = self._asked_version is None or metadata.update_version > self._asked_version
        if looks:
            cluster = metadata.cluster
            if topic in cluster.invalid_topics:
                return NotThere(ErrorCode.INVALID_TOPIC_EXCEPTION, f"invalid topic {topic!r}")
            # An old answer may be of the time before the client got the right: the first look asks again.
            if self._asked_version is not None and topic in cluster.unauthorized_topics:
                return NotThere(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"not authorized for topic {topic!r}")
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
        problem = self._metadata.last_problem
        why = "" if problem is None else f"; the last request failed: {problem}"
        if count is None:
            end = why or "; does it exist?"
            return f"topic {self._topic!r} is not in the metadata after {self._max_wait_ms} ms{end}"
        return (
            f"partition {self._partition} of topic {self._topic!r} is not in the metadata after {self._max_wait_ms} ms; "
            f"the topic has {count} partitions{why}"
        )
