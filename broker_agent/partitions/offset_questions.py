"""Questions of clients for offsets: log start, end, the first record of a time, and the ends of leader epochs.

A new leader does not know its predecessor's high watermark. Until its own has reached the start of its leader epoch, the end for
consumers is not known (KIP-207):

    1. Leader 101 has told consumer 7 that orders-0 ends at 9. Broker 101 dies.
    2. Broker 102 leads with the high watermark 4, and all records up to 9. The answer 4 would send consumer 7 back.
    3. Broker 102 answers NOT_READY. The followers fetch, the high watermark is 9, and the answer is 9.
"""

from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from broker_agent.partitions.consumer_rules import refusal_of_epoch
from broker_agent.partitions.hosted_replica import HostedReplica
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NO_LEADER, Epoch, NodeId, Offset

NO_OFFSET: Final = -1


class OffsetWanted(Enum):
    """An offset that a client may ask for by name."""

    EARLIEST = "earliest"
    """The log start."""
    LATEST = "latest"
    """The high watermark, which is the end for consumers."""


Wanted: TypeAlias = OffsetWanted | int
"""A named offset, or a time in ms since 1970: the first record that is not older."""


class FoundOffset(NamedTuple):
    """The answer to one question for an offset."""

    code: ErrorCode
    offset: Offset | None = None
    """None: no committed record is as young as the wanted time."""
    timestamp_ms: int = 0
    """The record's timestamp, if a time was wanted."""
    leader_epoch: Epoch = 0


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


def find_offset(replica: HostedReplica, wanted: Wanted) -> FoundOffset:
    """Answer a question that `refusal` has not refused. Reads one segment at most.

    Raises:
        CorruptLog, OSError: the log cannot be read.
    """
    leader, log = replica.leader, replica.log
    assert leader is not None and log is not None
    epoch = leader.leader_epoch
    if wanted is OffsetWanted.EARLIEST:
        return FoundOffset(ErrorCode.NONE, log.shape.start.offset, 0, epoch)
    if leader.high_watermark < leader.epoch_start:
        return FoundOffset(ErrorCode.NOT_READY, leader_epoch=epoch)
    if isinstance(wanted, OffsetWanted):
        return FoundOffset(ErrorCode.NONE, leader.high_watermark, 0, epoch)
    found = log.offset_for_time(wanted, leader.high_watermark)
    if found is None:
        return FoundOffset(ErrorCode.NONE, leader_epoch=epoch)
    return FoundOffset(ErrorCode.NONE, found.offset, found.timestamp_ms, epoch)


def find_end_of_epoch(replica: HostedReplica, wanted: Epoch) -> EpochEnd:
    """Answer a question that `refusal` has not refused."""
    assert replica.leader is not None
    shape = replica.leader.shape
    if wanted > replica.leader.leader_epoch or wanted < shape.start.epoch:
        return EpochEnd(ErrorCode.NONE)
    end = shape.end_of_epoch(wanted)
    return EpochEnd(ErrorCode.NONE, end.epoch, end.offset)
