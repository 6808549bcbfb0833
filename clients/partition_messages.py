"""Values of `partition_values` as messages of `PartitionService`, and back. Every answer is checked before anybody reads it.

An answer about other partitions than those of the request, with negative offsets, or with an id of another length is no answer:

    1. A consumer asks broker 101 for orders-0 at offset 9. A bug lets broker 101 answer with orders-1.
    2. `fetch_answer` raises `CallFailed` with UNUSABLE, and the consumer asks again. The answer moves no position.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from quorum_rpc.v1 import common_pb2, partition_pb2

from clients.partition_values import (
    FETCH_PARTITIONS_MAX,
    AppendBatch,
    Appended,
    AppendRequest,
    CallFailure,
    CurrentLeader,
    EndOfLog,
    EpochEnd,
    EpochQuestion,
    FailureKind,
    FetchAnswer,
    Fetched,
    FetchRequest,
    FoundOffset,
    OffsetQuestion,
    PartitionFetch,
    TopicIdPartition,
)
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NODE_ID_MAX, Offset, OffsetAndEpoch
from service_kit.rpc.refusals import shortened

MESSAGE_BYTES_MAX: Final = 1_000
"""Maximum size of an error's text that a client keeps."""


class CallFailed(Exception):
    """A call brought no answer. `failure` says why, and whether the request may have been done."""

    def __init__(self, failure: CallFailure) -> None:
        super().__init__(failure.message)
        self.failure = failure


# --- requests --------------------------------------------------------------------------------------------------------


def append_request(request: AppendRequest) -> partition_pb2.AppendRequest:
    return partition_pb2.AppendRequest(
        acks=request.acks, timeout_ms=request.timeout_ms, batches=map(_batch, request.batches)
    )


def fetch_request(request: FetchRequest) -> partition_pb2.FetchRecordsRequest:
    return partition_pb2.FetchRecordsRequest(
        session_id=request.session_id,
        session_epoch=request.session_epoch,
        partitions=map(_partition_fetch, request.partitions),
        forgotten=map(_place, request.forgotten),
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
    )


def offsets_request(questions: Sequence[OffsetQuestion]) -> partition_pb2.ListOffsetsRequest:
    return partition_pb2.ListOffsetsRequest(partitions=map(_offset_question, questions))


def epochs_request(questions: Sequence[EpochQuestion]) -> partition_pb2.OffsetForLeaderEpochRequest:
    return partition_pb2.OffsetForLeaderEpochRequest(partitions=map(_epoch_question, questions))


def _place(place: TopicIdPartition) -> partition_pb2.TopicIdPartition:
    return partition_pb2.TopicIdPartition(topic_id=place.topic_id, partition=place.partition)


def _batch(batch: AppendBatch) -> partition_pb2.PartitionBatch:
    message = partition_pb2.PartitionBatch(
        partition=_place(batch.place),
        leader_epoch=batch.leader_epoch,
        record_count=batch.record_count,
        records=batch.records,
    )
    if batch.stamp.is_idempotent:
        message.producer_id, message.producer_epoch, message.base_sequence = batch.stamp
    return message


def _partition_fetch(fetch: PartitionFetch) -> partition_pb2.PartitionFetch:
    return partition_pb2.PartitionFetch(
        partition=_place(fetch.place),
        offset=fetch.offset,
        leader_epoch=fetch.leader_epoch,
        last_fetched_epoch=fetch.last_fetched_epoch,
        max_bytes=fetch.max_bytes,
    )


def _offset_question(question: OffsetQuestion) -> partition_pb2.OffsetQuestion:
    message = partition_pb2.OffsetQuestion(partition=_place(question.place), leader_epoch=question.leader_epoch)
    if question.wanted is EndOfLog.EARLIEST:
        message.earliest = True
    elif question.wanted is EndOfLog.LATEST:
        message.latest = True
    else:
        message.timestamp_ms = question.wanted
    return message


def _epoch_question(question: EpochQuestion) -> partition_pb2.EpochQuestion:
    return partition_pb2.EpochQuestion(
        partition=_place(question.place),
        current_leader_epoch=question.current_leader_epoch,
        leader_epoch=question.leader_epoch,
    )


# --- answers ---------------------------------------------------------------------------------------------------------


def append_answer(request: AppendRequest, answer: partition_pb2.AppendResponse, target: str) -> tuple[Appended, ...]:
    """Returns the results in the order of the request. Raises CallFailed."""
    _check_places((each.place for each in request.batches), answer.results, target)
    return tuple(_appended(each, target) for each in answer.results)


def fetch_answer(request: FetchRequest, answer: partition_pb2.FetchRecordsResponse, target: str) -> FetchAnswer:
    """Returns the fetched partitions. Raises CallFailed."""
    if len(answer.partitions) > FETCH_PARTITIONS_MAX or answer.session_id < 0:
        raise unusable(target, f"session {answer.session_id} with {len(answer.partitions)} partitions")
    if request.session_id == 0:
        _check_asked({each.place for each in request.partitions}, answer.partitions, target)
    return FetchAnswer(answer.session_id, tuple(_fetched(each, target) for each in answer.partitions))


def offsets_answer(
    questions: Sequence[OffsetQuestion], answer: partition_pb2.ListOffsetsResponse, target: str
) -> tuple[FoundOffset, ...]:
    """Returns the answers in the order of the questions. Raises CallFailed."""
    _check_places((each.place for each in questions), answer.partitions, target)
    return tuple(_found_offset(each, target) for each in answer.partitions)


def epochs_answer(
    questions: Sequence[EpochQuestion], answer: partition_pb2.OffsetForLeaderEpochResponse, target: str
) -> tuple[EpochEnd, ...]:
    """Returns the answers in the order of the questions. Raises CallFailed."""
    _check_places((each.place for each in questions), answer.partitions, target)
    return tuple(_epoch_end(each, target) for each in answer.partitions)


def id_answer(answer: partition_pb2.AllocateProducerIdResponse, target: str) -> int:
    """Returns the producer id. Raises CallFailed."""
    return _at_least_0(answer.producer_id, "producer id", target)


def unusable(target: str, text: str) -> CallFailed:
    """Returns the error of an answer that cannot be understood."""
    message = shortened(f"{target} sent {text}", MESSAGE_BYTES_MAX)
    return CallFailed(CallFailure(FailureKind.UNUSABLE, ErrorCode.UNKNOWN_SERVER_ERROR, message))


def _check_places(asked: Iterable[TopicIdPartition], told: Sequence[Any], target: str) -> None:
    """Raises CallFailed unless the answer has the asked partitions, in their order."""
    if [(each.partition.topic_id, each.partition.partition) for each in told] != list(asked):
        raise unusable(target, "an answer about other partitions than those of the request")


def _check_asked(asked: set[TopicIdPartition], told: Sequence[Any], target: str) -> None:
    """Raises CallFailed if the answer has a partition twice, or a partition that was not asked for."""
    places = [(each.partition.topic_id, each.partition.partition) for each in told]
    if len(set(places)) != len(places) or not asked.issuperset(places):
        raise unusable(target, "an answer about other partitions than those of the request")


def _told_place(message: partition_pb2.TopicIdPartition, target: str) -> TopicIdPartition:
    if len(message.topic_id) != 16 or message.partition < 0:
        raise unusable(target, f"partition {message.partition} of a topic with {len(message.topic_id)} bytes of id")
    return TopicIdPartition(message.topic_id, message.partition)


def _code(error: common_pb2.Error) -> ErrorCode:
    return ErrorCode.of(error.code)


def _text(error: common_pb2.Error) -> str:
    return shortened(error.message, MESSAGE_BYTES_MAX)


def _at_least_0(value: int, name: str, target: str) -> int:
    if value < 0:
        raise unusable(target, f"the {name} {value}")
    return value


def _offset_or_none(value: Offset, name: str, target: str) -> Offset | None:
    if value < -1:
        raise unusable(target, f"the {name} {value}")
    return None if value == -1 else value


def _leader(message: Any, target: str) -> CurrentLeader | None:
    if not message.HasField("current_leader"):
        return None
    leader = message.current_leader
    leader_id = leader.leader_id if leader.HasField("leader_id") else None
    if leader_id is not None and not 0 <= leader_id <= NODE_ID_MAX:
        raise unusable(target, f"the leader {leader_id}")
    return CurrentLeader(leader_id, _at_least_0(leader.leader_epoch, "leader epoch", target))


def _appended(each: partition_pb2.AppendResult, target: str) -> Appended:
    code = _code(each.error)
    return Appended(
        place=_told_place(each.partition, target),
        code=code,
        message=_text(each.error),
        base_offset=_offset_or_none(each.base_offset, "offset", target) if code is ErrorCode.NONE else None,
        log_start_offset=_offset_or_none(each.log_start_offset, "log start", target),
        current_leader=_leader(each, target),
    )


def _fetched(each: partition_pb2.FetchedPartition, target: str) -> Fetched:
    diverged = each.diverged if each.HasField("diverged") else None
    return Fetched(
        place=_told_place(each.partition, target),
        code=_code(each.error),
        message=_text(each.error),
        high_watermark=max(0, each.high_watermark),
        log_start_offset=max(0, each.log_start_offset),
        batches=each.batches,
        diverged=None if diverged is None else _end(diverged.offset, diverged.epoch, target),
        current_leader=_leader(each, target),
    )


def _end(offset: Offset, epoch: int, target: str) -> OffsetAndEpoch:
    return OffsetAndEpoch(_at_least_0(offset, "end of an epoch", target), _at_least_0(epoch, "epoch", target))


def _found_offset(each: partition_pb2.FoundOffset, target: str) -> FoundOffset:
    return FoundOffset(
        place=_told_place(each.partition, target),
        code=_code(each.error),
        message=_text(each.error),
        offset=_at_least_0(each.offset, "offset", target) if each.HasField("offset") else None,
        timestamp_ms=each.timestamp_ms,
        leader_epoch=max(0, each.leader_epoch),
        current_leader=_leader(each, target),
    )


def _epoch_end(each: partition_pb2.EpochEnd, target: str) -> EpochEnd:
    is_known = not each.error.code and each.leader_epoch >= 0 and each.end_offset >= 0
    return EpochEnd(
        place=_told_place(each.partition, target),
        code=_code(each.error),
        message=_text(each.error),
        end=OffsetAndEpoch(each.end_offset, each.leader_epoch) if is_known else None,
        current_leader=_leader(each, target),
    )
