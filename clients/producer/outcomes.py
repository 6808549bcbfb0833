"""The meaning of an attempt's end for a batch: is the batch surely not in the log, and is another attempt worth its while?

Only a few errors say that nothing was appended. NOT_LEADER_OR_FOLLOWER does not:

    1. Leader 101 appends a batch and waits for its followers. The controller makes broker 102 the leader.
    2. Broker 101 answers NOT_LEADER_OR_FOLLOWER. Broker 102 may have the batch, if it had fetched the batch before.

So a batch without such a word keeps its stamp, and is sent again under the same stamp.
"""

from typing import Final, NamedTuple

from clients.partition_values import Appended, CallFailure, CurrentLeader, FailureKind
from metadata_log.format.errors import ErrorCode

_E: Final = ErrorCode

NOTHING_APPENDED: Final = frozenset(
    (
        _E.FENCED_LEADER_EPOCH,
        _E.UNKNOWN_LEADER_EPOCH,
        _E.UNKNOWN_TOPIC_ID,
        _E.UNKNOWN_TOPIC_OR_PARTITION,
        _E.NOT_ENOUGH_REPLICAS,
        _E.NOT_READY,
        _E.THROTTLING_QUOTA_EXCEEDED,
        _E.RECORD_BATCH_TOO_LARGE,
        _E.INVALID_TIMESTAMP,
        _E.INVALID_REQUEST,
        _E.OUT_OF_ORDER_SEQUENCE_NUMBER,
        _E.INVALID_PRODUCER_EPOCH,
        _E.CLUSTER_AUTHORIZATION_FAILED,
        _E.TOPIC_AUTHORIZATION_FAILED,
        _E.UNSUPPORTED_VERSION,
    )
)
"""The errors with which a leader refuses a batch before it appends anything."""

RETRIABLE: Final = frozenset(
    (
        _E.NOT_LEADER_OR_FOLLOWER,
        _E.FENCED_LEADER_EPOCH,
        _E.UNKNOWN_LEADER_EPOCH,
        _E.UNKNOWN_TOPIC_ID,
        _E.UNKNOWN_TOPIC_OR_PARTITION,
        _E.BROKER_NOT_AVAILABLE,
        _E.NOT_READY,
        _E.NOT_ENOUGH_REPLICAS,
        _E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        _E.REQUEST_TIMED_OUT,
        _E.STORAGE_ERROR,
        _E.THROTTLING_QUOTA_EXCEEDED,
    )
)
"""The errors that pass: the batch is sent again, until `delivery_timeout_ms`. Any other error fails the batch."""


class Outcome(NamedTuple):
    """The end of an attempt that was not a success."""

    code: ErrorCode
    message: str
    is_sure: bool
    """True if this attempt has surely appended nothing."""
    is_retriable: bool
    leader: CurrentLeader | None = None


def outcome_of_result(result: Appended) -> Outcome:
    """Returns the meaning of a batch's error in an answer."""
    code = result.code
    message = f"{code.name}: {result.message}" if result.message else code.name
    return Outcome(code, message, code in NOTHING_APPENDED, code in RETRIABLE, result.current_leader)


def outcome_of_failure(failure: CallFailure) -> Outcome:
    """Returns the meaning of a call without an answer, for each batch of the request."""
    is_retriable = failure.kind is not FailureKind.FATAL and (
        failure.kind is not FailureKind.REFUSED or failure.code in RETRIABLE
    )
    return Outcome(failure.code, failure.message, not failure.may_have_been_done, is_retriable)
