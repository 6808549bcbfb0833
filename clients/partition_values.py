"""Requests and answers of `PartitionService` as values, for producers and consumers. Pure: no class of protobuf or gRPC.

A request goes to one broker and names many partitions. Each partition has its own error (`code`), and a partition's error stops
no other partition. A call that brings no answer at all ends in one `CallFailure` for all partitions. Example:

    1. A producer sends batches for orders-0 and orders-1 to broker 101. Broker 101 no longer leads orders-1.
    2. The answer has NONE for orders-0, and NOT_LEADER_OR_FOLLOWER for orders-1 with the present leader, 102 (KIP-951).
    3. The producer sends the batch of orders-1 to broker 102. The connection breaks: the call fails with DISCONNECTED. Broker 102
       may have appended the batch, so the producer sends the batch again under the same sequence number.
"""

from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from metadata_log.format.data_batch import ProducerStamp
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Epoch, NodeId, Offset, OffsetAndEpoch, Uuid

APPEND_BATCHES_MAX: Final = 10_000
"""Maximum number of batches in one request."""
QUESTIONS_MAX: Final = 10_000
"""Maximum number of questions for offsets or epochs in one request."""
FETCH_PARTITIONS_MAX: Final = 100_000
"""Maximum number of partitions in one fetch, or in the answer to it."""
FETCH_BYTES_MAX: Final = 3 << 20
"""Maximum number of bytes that one fetch may ask for: with one large batch more, the answer still fits one message of gRPC."""


class TopicIdPartition(NamedTuple):
    """A partition by its topic's id, so that a request never meets a later topic of the same name."""

    topic_id: Uuid
    partition: int


class CurrentLeader(NamedTuple):
    """The leader of a partition as the answering broker knows it (KIP-951). `leader_id` None: the partition has no leader."""

    leader_id: NodeId | None
    leader_epoch: Epoch


class FailureKind(Enum):
    """The ways in which a call brings no answer."""

    NOT_CONNECTED = "no connection came about: nothing was done"
    DISCONNECTED = "the connection broke before the answer came: the request may have been done"
    TIMED_OUT = "no answer came in time: the request may have been done"
    REFUSED = "the broker answered with one error for the whole request; `code` says if a part may have been done"
    UNUSABLE = "the answer cannot be understood: the request may have been done"
    FATAL = "every broker would refuse this client: nothing was done"


class CallFailure(NamedTuple):
    """A call without an answer. `code` is BROKER_NOT_AVAILABLE without a connection, REQUEST_TIMED_OUT without an answer."""

    kind: FailureKind
    code: ErrorCode
    message: str

    @property
    def may_have_been_done(self) -> bool:
        """False if the broker has surely done nothing.

        A refusal with BROKER_NOT_AVAILABLE may come after the broker has appended: a broker checks its lease again before it
        answers.
        """
        if self.kind is FailureKind.REFUSED:
            return self.code not in _NEVER_BEGUN
        return self.kind not in (FailureKind.NOT_CONNECTED, FailureKind.FATAL)


_NEVER_BEGUN: Final = frozenset(
    (ErrorCode.INVALID_REQUEST, ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.RECORD_BATCH_TOO_LARGE)
)
"""The refusals of a request that come before its first partition."""


class AppendBatch(NamedTuple):
    """One batch for one partition. `leader_epoch` None: any. `stamp` NO_STAMP: a repeated batch is appended again."""

    place: TopicIdPartition
    leader_epoch: Epoch | None
    stamp: ProducerStamp
    record_count: int
    records: bytes
    """Packed records, as `metadata_log.format.data_batch` describes them."""


class AppendRequest(NamedTuple):
    """The request of Append. `acks`: 0 (in the leader's memory), 1 (on the leader's disk), -1 (on the disks of all replicas in
    sync). `timeout_ms`: how long the broker may wait for the other replicas."""

    acks: int
    timeout_ms: int
    batches: tuple[AppendBatch, ...]


class Appended(NamedTuple):
    """The result of one batch. `base_offset` and `log_start_offset` None: not known."""

    place: TopicIdPartition
    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    base_offset: Offset | None = None
    log_start_offset: Offset | None = None
    current_leader: CurrentLeader | None = None


class PartitionFetch(NamedTuple):
    """One partition of a consumer's fetch.

    `offset`: the first offset that the consumer wants. `leader_epoch` None: any. `last_fetched_epoch`: the epoch of the last
    record that the consumer has read; None: the broker does not compare the logs.
    """

    place: TopicIdPartition
    offset: Offset
    leader_epoch: Epoch | None = None
    last_fetched_epoch: Epoch | None = None
    max_bytes: int = 1 << 20


class FetchRequest(NamedTuple):
    """A consumer's fetch (KIP-227): a request in a session names only the partitions that have changed since the request before.

    `session_epoch` 0 begins a session with all partitions, and -1 is a request without a session.
    """

    partitions: tuple[PartitionFetch, ...]
    max_wait_ms: int
    session_id: int = 0
    session_epoch: int = -1
    forgotten: tuple[TopicIdPartition, ...] = ()
    min_bytes: int = 1
    max_bytes: int = 1 << 20


class Fetched(NamedTuple):
    """One partition of an answer. `batches` has whole batches; the first has the wanted offset, and may have earlier records too.

    `diverged`: the consumer has read records that were lost since; it is the end of the largest epoch that both logs have.
    """

    place: TopicIdPartition
    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    high_watermark: Offset = 0
    log_start_offset: Offset = 0
    batches: bytes = b""
    diverged: OffsetAndEpoch | None = None
    current_leader: CurrentLeader | None = None


class FetchAnswer(NamedTuple):
    """The answer to a fetch: in a session the partitions with news, otherwise all. `session_id` 0: no session."""

    session_id: int
    partitions: tuple[Fetched, ...]


class EndOfLog(Enum):
    """An end of a log, as the wanted offset."""

    EARLIEST = "the start of the log"
    LATEST = "the high watermark, which is the end for consumers"


WantedOffset: TypeAlias = EndOfLog | int
"""An end of the log, or a time in milliseconds since 1970: the first record that is not older."""


class OffsetQuestion(NamedTuple):
    """A question for an offset of one partition. `leader_epoch` None: any."""

    place: TopicIdPartition
    wanted: WantedOffset
    leader_epoch: Epoch | None = None


class FoundOffset(NamedTuple):
    """The answer to one question. `offset` None: no committed record is as young as the wanted time."""

    place: TopicIdPartition
    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    offset: Offset | None = None
    timestamp_ms: int = 0
    leader_epoch: Epoch = 0
    current_leader: CurrentLeader | None = None


class EpochQuestion(NamedTuple):
    """A question for the end of `leader_epoch` in the leader's log (KIP-320). `current_leader_epoch` None: any."""

    place: TopicIdPartition
    leader_epoch: Epoch
    current_leader_epoch: Epoch | None = None


class EpochEnd(NamedTuple):
    """The largest leader epoch of the log that is not later than the asked one, and its end (exclusive). None: there is none."""

    place: TopicIdPartition
    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    end: OffsetAndEpoch | None = None
    current_leader: CurrentLeader | None = None
