"""Questions of clients for offsets: log start, end, the first record of a time, and the ends of leader epochs.

A new leader does not know its predecessor's high watermark. Until its own has reached the start of its leader epoch, the end for
consumers is not known (KIP-207):

    1. Leader 101 has told consumer 7 that orders-0 ends at 9. Broker 101 dies.
    2. Broker 102 leads with the high watermark 4, and all records up to 9. The answer 4 would send consumer 7 back.
    3. Broker 102 answers NOT_READY. The followers fetch, the high watermark is 9, and the answer is 9.
"""

from enum import Enum
from typing import Final, NamedTuple

from broker_agent.partitions.consumer_rules import refusal_of_epoch
from broker_agent.partitions.effects import FindTime, FoundOffset, OffsetFound
from broker_agent.partitions.failures import Failures
from broker_agent.partitions.hosted_replica import HostedReplica
from broker_agent.partitions.hosting import Hosting
from broker_agent.replica.log_directory import ReplicaPlace
from broker_agent.replica.time_search import TimedOffset
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NO_LEADER, Epoch, NodeId, Offset

NO_OFFSET: Final = -1


class OffsetWanted(Enum):
    """An offset that a client may ask for by name."""

    EARLIEST = "earliest"
    """The log start."""
    LATEST = "latest"
    """The high watermark, which is the end for consumers."""


class EpochEnd(NamedTuple):
    """The largest leader epoch of the log that is not later than the wanted one, and its end; -1: there is none."""

    code: ErrorCode
    leader_epoch: Epoch = -1
    end_offset: Offset = NO_OFFSET


class CurrentLeader(NamedTuple):
    """The leader of a partition, as this broker knows it."""

    leader_id: NodeId
    """`NO_LEADER` if the partition has none."""
    leader_epoch: Epoch


def current_leader(replica: HostedReplica) -> CurrentLeader | None:
    """Return the leader by the newest assignment."""
    known = replica.assignment
    if known is None:
        return None
    return CurrentLeader(NO_LEADER if known.leader is None else known.leader, known.leader_epoch)


def refusal(replica: HostedReplica | None, known_epoch: Epoch | None) -> ErrorCode:
    """Say why this broker does not answer for a partition as its leader; NONE if it does."""
    if replica is None:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if replica.failure is not None:
        return ErrorCode.STORAGE_ERROR
    if replica.leader is None or replica.log is None:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return refusal_of_epoch(replica.leader, known_epoch)


def find_offset(replica: HostedReplica, wanted: OffsetWanted) -> FoundOffset:
    """Answer a question that `refusal` has not refused."""
    leader, log = replica.leader, replica.log
    assert leader is not None and log is not None
    epoch = leader.leader_epoch
    if wanted is OffsetWanted.EARLIEST:
        return FoundOffset(ErrorCode.NONE, log.shape.start.offset, 0, epoch)
    if leader.high_watermark < leader.epoch_start:
        return FoundOffset(ErrorCode.NOT_READY, leader_epoch=epoch)
    return FoundOffset(ErrorCode.NONE, leader.high_watermark, 0, epoch)


class TimeQuestions:
    """The questions for the first record of a time. A search reads up to a segment, so it is disk work."""

    def __init__(self, hosting: Hosting, failures: Failures) -> None:
        self._hosting = hosting
        self._failures = failures

    def ask(self, place: ReplicaPlace, known_epoch: Epoch | None, timestamp_ms: int, token: int) -> None:
        """Begin a search, or refuse the question."""
        replica = self._hosting.replicas.get(place)
        code = refusal(replica, known_epoch)
        if code is not ErrorCode.NONE or replica is None:
            self._answer(token, FoundOffset(code))
        else:
            self._search(replica, timestamp_ms, token)

    def _search(self, replica: HostedReplica, timestamp_ms: int, token: int) -> None:
        leader, log = replica.leader, replica.log
        assert leader is not None and log is not None
        if leader.high_watermark < leader.epoch_start:
            self._answer(token, FoundOffset(ErrorCode.NOT_READY, leader_epoch=leader.leader_epoch))
            return
        search = log.search_time(timestamp_ms, leader.high_watermark)
        self._hosting.emit(FindTime(replica.place, replica.directory_id, search, leader, token))

    def found(self, work: FindTime, record: TimedOffset | None) -> None:
        """Answer with the record that a search has found, if this broker still leads in the same epoch."""
        if self._asked(work) is None:
            self._answer(work.token, FoundOffset(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return
        epoch = work.leader.leader_epoch
        at = FoundOffset(ErrorCode.NONE, leader_epoch=epoch)
        if record is not None:
            at = at._replace(offset=record.offset, timestamp_ms=record.timestamp_ms)
        self._answer(work.token, at)

    def failed(self, work: FindTime, error: Exception) -> None:
        """Search again if retention has deleted the segment; else stop what the error stops.

        Raises:
            Exception: `error` itself, if it is no error of a log.
        """
        self._failures.scope_of(error)
        replica = self._asked(work)
        if replica is None or replica.log is None:
            self._answer(work.token, FoundOffset(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        elif isinstance(error, FileNotFoundError) and replica.log.shape.start.offset > work.search.start:
            self._search(replica, work.search.timestamp_ms, work.token)
        else:
            self._failures.failed(replica, error)
            self._answer(work.token, FoundOffset(ErrorCode.STORAGE_ERROR))

    def _asked(self, work: FindTime) -> HostedReplica | None:
        """Return the replica if its leadership is the one that was asked."""
        replica = self._hosting.replicas.get(work.place)
        return None if replica is None or replica.leader is not work.leader else replica

    def _answer(self, token: int, found: FoundOffset) -> None:
        self._hosting.emit(OffsetFound(token, found))


def find_end_of_epoch(replica: HostedReplica, wanted: Epoch) -> EpochEnd:
    """Answer a question that `refusal` has not refused."""
    assert replica.leader is not None
    shape = replica.leader.shape
    if wanted > replica.leader.leader_epoch or wanted < shape.start.epoch:
        return EpochEnd(ErrorCode.NONE)
    end = shape.end_of_epoch(wanted)
    return EpochEnd(ErrorCode.NONE, end.epoch, end.offset)
