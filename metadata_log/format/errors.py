"""Error codes of the wire, and the errors of code that reads bytes.

The codes have Kafka's names. `quorum_rpc.v1.ErrorCode` has the same numbers (a test compares the two), so the pure
rooms need no generated code.
"""

from enum import IntEnum, unique


@unique
class ErrorCode(IntEnum):
    """The error code of every answer of every service. NONE is success; REQUEST_TIMED_OUT means "may have happened"."""

    NONE = 0
    UNKNOWN_SERVER_ERROR = 1
    REQUEST_TIMED_OUT = 2
    INVALID_REQUEST = 3
    # leadership
    NOT_CONTROLLER = 10
    NOT_LEADER_OR_FOLLOWER = 11
    FENCED_LEADER_EPOCH = 12
    UNKNOWN_LEADER_EPOCH = 13
    BROKER_NOT_AVAILABLE = 14
    NOT_READY = 15
    # the sender of the request
    INCONSISTENT_CLUSTER_ID = 20
    INVALID_VOTER_KEY = 21
    DUPLICATE_VOTER = 22
    VOTER_NOT_FOUND = 23
    UNSUPPORTED_VERSION = 24
    CLUSTER_AUTHORIZATION_FAILED = 25
    INVALID_CONTROL_GENERATION = 26
    TOPIC_AUTHORIZATION_FAILED = 27
    # log and snapshots
    DIVERGING_EPOCH = 30
    OFFSET_OUT_OF_RANGE = 31
    SNAPSHOT_NOT_FOUND = 32
    POSITION_OUT_OF_RANGE = 33
    CHAIN_MISMATCH = 34
    RECORD_BATCH_TOO_LARGE = 35
    # brokers
    STALE_BROKER_EPOCH = 40
    BROKER_ID_NOT_REGISTERED = 41
    DUPLICATE_BROKER_REGISTRATION = 42
    INVALID_REGISTRATION = 43
    FENCED_BROKER = 44
    # topics and partitions
    INVALID_TOPIC_EXCEPTION = 50
    TOPIC_ALREADY_EXISTS = 51
    UNKNOWN_TOPIC_OR_PARTITION = 52
    UNKNOWN_TOPIC_ID = 53
    INVALID_PARTITIONS = 54
    INVALID_REPLICATION_FACTOR = 55
    INVALID_REPLICA_ASSIGNMENT = 56
    INVALID_CONFIG = 57
    POLICY_VIOLATION = 58
    INVALID_UPDATE_VERSION = 59
    INELIGIBLE_REPLICA = 60
    TOPIC_DELETION_DISABLED = 61
    LOG_DIR_NOT_FOUND = 62
    # elections and reassignments
    ELECTION_NOT_NEEDED = 70
    PREFERRED_LEADER_NOT_AVAILABLE = 71
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 72
    NO_REASSIGNMENT_IN_PROGRESS = 73
    NEW_LEADER_ELECTED = 74
    # others
    THROTTLING_QUOTA_EXCEEDED = 80
    REQUEST_ID_EXPIRED = 81
    FEATURE_UPDATE_FAILED = 82
    LISTENER_NOT_FOUND = 83
    LEADER_NOT_AVAILABLE = 84
    STORAGE_ERROR = 85
    RESOURCE_NOT_FOUND = 86
    # replicas of partitions
    NOT_ENOUGH_REPLICAS = 90
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 91
    FETCH_SESSION_ID_NOT_FOUND = 92
    INVALID_FETCH_SESSION_EPOCH = 93
    OUT_OF_ORDER_SEQUENCE_NUMBER = 94
    INVALID_PRODUCER_EPOCH = 95
    INVALID_TIMESTAMP = 96
    # entities and sessions
    INVALID_ENTITY = 100
    UNKNOWN_SESSION = 101

    @classmethod
    def of(cls, number: int) -> "ErrorCode":
        """Return the code for a number from the wire. A number that this release does not know becomes
        UNKNOWN_SERVER_ERROR.
        """
        try:
            return cls(number)
        except ValueError:
            return cls.UNKNOWN_SERVER_ERROR


class LogFormatError(ValueError):
    """Bytes are not what they should be: wrong length, checksum, chain, type or order."""


class BatchTooLarge(LogFormatError):
    """Records do not fit into one batch. No batch was made."""


class NotABoundary(LogFormatError):
    """An offset lies inside a batch, where no log can be cut. Nothing was changed."""


class UnsupportedRecord(LogFormatError):
    """A record has a type or version that this code does not know. Tools show the record; replay stops at it."""


class CorruptLog(LogFormatError):
    """The log is damaged below its durable end. Such damage is never cut silently. The message names file and position."""

    file: str | None = None
    position: int | None = None
    """The byte in `file` at which the damaged batch begins."""
    offset: int | None = None
    """The base offset of the damaged batch; None if it is not known."""

    @classmethod
    def at(cls, file: str, position: int, offset: int | None, reason: str) -> "CorruptLog":
        """Make the error for damage at a known place."""
        at_offset = "" if offset is None else f", offset {offset}"
        error = cls(f"{file}: damage at byte {position}{at_offset}: {reason}")
        error.file, error.position, error.offset = file, position, offset
        return error
