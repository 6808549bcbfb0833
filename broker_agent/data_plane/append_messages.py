"""Conversion of appends between protobuf messages and values. No decisions.

A request has one batch for each of its partitions. A batch that is wrong is refused alone; the others are appended:

    1. A producer sends batches for orders-0 and orders-1. The second has 10 records, and says that it has 11.
    2. `writes_of` checks each record. orders-0 is a `Write`; orders-1 is a `Refused` with INVALID_REQUEST.
    3. The answer has one result for each batch, in the order of the request.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from quorum_rpc.v1 import partition_pb2

from broker_agent.data_plane.fetch_messages import (
    LEADER_CODES,
    QUESTIONS_MAX,
    LeaderOf,
    epoch_or_any,
    error_message,
    invalid,
    place_message,
    requested,
)
from broker_agent.replica.purgatory import Acks
from broker_agent.session.isr_proposals import Place
from metadata_log.format.data_batch import NO_STAMP, SEQUENCE_MAX, ProducerStamp, RecordSet, check_records
from metadata_log.format.errors import BatchTooLarge, ErrorCode, LogFormatError
from metadata_log.format.ids import Epoch, Offset

TIMEOUT_MS_MAX: Final = 600_000
"""How long an append waits at most for other replicas."""
UNKNOWN_OFFSET: Final = -1
"""The base offset of a batch that was not appended."""
_PRODUCER_ID_MAX: Final = (1 << 63) - 1
_EPOCH_MAX: Final = (1 << 31) - 1


class Write(NamedTuple):
    """One batch to append."""

    place: Place
    leader_epoch: Epoch
    """ANY_EPOCH if the producer does not name one."""
    records: RecordSet
    stamp: ProducerStamp


class Refused(NamedTuple):
    """A batch that cannot be appended, whatever the state of the partition is."""

    place: Place
    code: ErrorCode
    text: str


class Outcome(NamedTuple):
    """What became of one batch."""

    place: Place
    code: ErrorCode
    base_offset: Offset = UNKNOWN_OFFSET
    log_start_offset: Offset = 0
    text: str = ""


WriteOrRefused: TypeAlias = Write | Refused


def terms_of(message: partition_pb2.AppendRequest) -> tuple[Acks, int]:
    """The acks of a request, and how many milliseconds it may wait.

    Raises:
        Refusal: INVALID_REQUEST.
    """
    if message.acks not in (Acks.NONE, Acks.LEADER, Acks.ALL):
        raise invalid(f"acks is {message.acks}; it can be 0, 1 or -1")
    if not 1 <= message.timeout_ms <= TIMEOUT_MS_MAX:
        raise invalid(f"timeout_ms is {message.timeout_ms}; it can be 1 to {TIMEOUT_MS_MAX:,}")
    return Acks(message.acks), message.timeout_ms


def record_count(message: partition_pb2.AppendRequest) -> int:
    """How many records the batches say that they have."""
    return sum(max(each.record_count, 0) for each in message.batches)


def writes_of(message: partition_pb2.AppendRequest) -> Iterator[WriteOrRefused]:
    """Yields the batches of a request, each checked, in order.

    Raises:
        Refusal: INVALID_REQUEST: the request is wrong as a whole.
    """
    if len(message.batches) > QUESTIONS_MAX:
        raise invalid(f"more than {QUESTIONS_MAX:,} batches")
    places = [requested(each.partition) for each in message.batches]
    if len(set(places)) < len(places):
        raise invalid("two batches for one partition; send one after the other")
    for place, each in zip(places, message.batches, strict=True):
        try:
            yield Write(
                place,
                epoch_or_any(each, "leader_epoch"),
                check_records(each.records, each.record_count),
                _stamp(each),
            )
        except BatchTooLarge as e:
            yield Refused(place, ErrorCode.RECORD_BATCH_TOO_LARGE, f"{e}. Nothing was appended")
        except LogFormatError as e:
            yield Refused(place, ErrorCode.INVALID_REQUEST, f"{e}. Nothing was appended")


def _stamp(each: partition_pb2.PartitionBatch) -> ProducerStamp:
    if not each.HasField("producer_id"):
        return NO_STAMP
    stamp = ProducerStamp(each.producer_id, each.producer_epoch, each.base_sequence)
    limits = (_PRODUCER_ID_MAX, _EPOCH_MAX, SEQUENCE_MAX)
    if any(not 0 <= value <= limit for value, limit in zip(stamp, limits, strict=True)):
        raise LogFormatError(f"no producer id, epoch and sequence: {tuple(stamp)}")
    return stamp


def append_response(outcomes: Sequence[Outcome], leader_of: LeaderOf) -> partition_pb2.AppendResponse:
    """The answer, with a result for each batch."""
    response = partition_pb2.AppendResponse()
    for each in outcomes:
        result = response.results.add(
            partition=place_message(each.place),
            error=error_message(each.code, each.text),
            base_offset=each.base_offset,
            log_start_offset=each.log_start_offset,
        )
        if each.code in LEADER_CODES and (leader := leader_of(each.place)) is not None:
            result.current_leader.CopyFrom(leader)
    return response
