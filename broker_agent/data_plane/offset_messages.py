"""Conversion of questions about offsets between protobuf messages and values. No decisions.

Each question has an answer of its own, in the order of the request. Broker 101 answers for orders-0, which it leads, and names
the leader of orders-1, which it does not lead.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from quorum_rpc.v1 import partition_pb2

from broker_agent.data_plane.fetch_messages import QUESTIONS_MAX, epoch_or_any, invalid, requested
from broker_agent.partitions.offset_questions import OffsetWanted
from broker_agent.session.isr_proposals import Place
from metadata_log.format.data_batch import TIMESTAMP_MAX
from metadata_log.format.ids import Epoch


class OffsetQuestion(NamedTuple):
    """A question for an offset of one partition."""

    place: Place
    leader_epoch: Epoch
    """ANY_EPOCH if the caller does not name one."""
    wanted: OffsetWanted | int
    """A named offset, or a time in ms since 1970: the first record that is not older."""


class EpochQuestion(NamedTuple):
    """A question for the end of a leader epoch."""

    place: Place
    current_leader_epoch: Epoch
    """ANY_EPOCH if the caller does not name one."""
    leader_epoch: Epoch


def offset_questions(message: partition_pb2.ListOffsetsRequest) -> Iterator[OffsetQuestion]:
    """Yields the questions of a request. Raises Refusal: INVALID_REQUEST."""
    _check_count(message.partitions)
    for each in message.partitions:
        yield OffsetQuestion(requested(each.partition), epoch_or_any(each, "leader_epoch"), _wanted(each))


def _wanted(each: partition_pb2.OffsetQuestion) -> OffsetWanted | int:
    kind = each.WhichOneof("wanted")
    if kind == "timestamp_ms":
        if not 0 <= each.timestamp_ms <= TIMESTAMP_MAX:
            raise invalid(f"{each.timestamp_ms} is no time in milliseconds since 1970")
        return int(each.timestamp_ms)
    if kind is None or not getattr(each, kind):
        raise invalid("a question names earliest, latest or a time")
    return OffsetWanted.EARLIEST if kind == "earliest" else OffsetWanted.LATEST


def epoch_questions(message: partition_pb2.OffsetForLeaderEpochRequest) -> Iterator[EpochQuestion]:
    """Yields the questions of a request. Raises Refusal: INVALID_REQUEST."""
    _check_count(message.partitions)
    for each in message.partitions:
        if each.leader_epoch < 0:
            raise invalid(f"{each.leader_epoch} is no epoch")
        current = epoch_or_any(each, "current_leader_epoch")
        yield EpochQuestion(requested(each.partition), current, each.leader_epoch)


def _check_count(partitions: Sequence[object]) -> None:
    if len(partitions) > QUESTIONS_MAX:
        raise invalid(f"more than {QUESTIONS_MAX:,} partitions")
