"""The calls of producers and consumers: `PartitionService` of one broker, over gRPC.

A call takes and gives the values of `partition_values`. A call that brings no answer raises `CallFailed`, and never an error of
gRPC. Every call has a deadline. Example:

    1. A producer appends to broker 101 with a deadline of 30 s, and broker 101 is frozen. After 30 s the call raises CallFailed
       with TIMED_OUT: the records may have been appended.
    2. The producer appends to broker 101 again, whose port is closed now: CallFailed with NOT_CONNECTED, nothing was done.

An answer is checked before anybody reads it. An answer with results of other partitions, with negative offsets, or with more
partitions than were asked for is no answer (UNUSABLE): a broker with such a bug must not move a consumer or end a send.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, Protocol, TypeVar

import grpc
from quorum_rpc.v1 import common_pb2, partition_pb2, partition_pb2_grpc

from clients.errors import why_not
from clients.metadata.cluster import ClusterNode
from clients.partition_values import (
    APPEND_BATCHES_MAX,
    FETCH_BYTES_MAX,
    FETCH_PARTITIONS_MAX,
    QUESTIONS_MAX,
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
from service_kit.process.endpoints import HostPort
from service_kit.rpc.dial import Dialer, was_never_sent
from service_kit.rpc.refusals import Refusal, shortened

R = TypeVar("R")

MESSAGE_BYTES_MAX: Final = 1_000
"""Maximum size of an error's text that a client keeps."""

_S: Final = grpc.StatusCode
_FATAL: Final = frozenset((ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION))


class CallFailed(Exception):
    """A call brought no answer. `failure` says why, and whether the request may have been done."""

    def __init__(self, failure: CallFailure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class PartitionCalls(Protocol):
    """Asks one broker. Every method raises CallFailed, at the latest after `timeout_s`."""

    async def append(self, node: ClusterNode, request: AppendRequest, timeout_s: float) -> tuple[Appended, ...]:
        """Appends batches; returns their results in the order of the request."""

    async def fetch(self, node: ClusterNode, request: FetchRequest, timeout_s: float) -> FetchAnswer:
        """Reads committed batches. `timeout_s` is longer than the request's `max_wait_ms`."""

    async def list_offsets(
        self, node: ClusterNode, questions: Sequence[OffsetQuestion], timeout_s: float
    ) -> tuple[FoundOffset, ...]:
        """Finds offsets; returns the answers in the order of the questions."""

    async def epoch_ends(
        self, node: ClusterNode, questions: Sequence[EpochQuestion], timeout_s: float
    ) -> tuple[EpochEnd, ...]:
        """Finds the ends of leader epochs; returns the answers in the order of the questions."""

    async def allocate_producer_id(self, node: ClusterNode, timeout_s: float) -> int:
        """Returns an id that no other producer of the cluster has had. Any broker may be asked."""

    async def close(self) -> None:
        """Closes what this object has opened."""


class GrpcPartitionCalls:
    """The calls over gRPC."""

    def __init__(self, dial: Any = None) -> None:
        """`dial(target) -> Channel`: makes the channels, and closes them in the end; None: channels without TLS, which `close`
        closes."""
        self._own = Dialer() if dial is None else None
        self._dial: Callable[[str], grpc.aio.Channel] = self._own if self._own is not None else dial
        self._stubs: dict[str, Any] = {}

    async def close(self) -> None:
        if self._own is not None:
            await self._own.close()

    def _stub(self, node: ClusterNode) -> tuple[Any, str]:
        target = HostPort(node.host, node.port).target
        stub = self._stubs.get(target)
        if stub is None:
            stub = partition_pb2_grpc.PartitionServiceStub(self._dial(target))  # type: ignore[no-untyped-call]
            self._stubs[target] = stub
        return stub, target

    async def append(self, node: ClusterNode, request: AppendRequest, timeout_s: float) -> tuple[Appended, ...]:
        assert 0 < len(request.batches) <= APPEND_BATCHES_MAX
        stub, target = self._stub(node)
        message = partition_pb2.AppendRequest(
            acks=request.acks, timeout_ms=request.timeout_ms, batches=map(_batch, request.batches)
        )
        answer = await _answer(stub.Append(message, timeout=timeout_s), target, partition_pb2.AppendResponse)
        _check_places((each.place for each in request.batches), answer.results, target)
        return tuple(_appended(each, target) for each in answer.results)

    async def fetch(self, node: ClusterNode, request: FetchRequest, timeout_s: float) -> FetchAnswer:
        assert len(request.partitions) <= FETCH_PARTITIONS_MAX
        assert 0 < request.max_bytes <= FETCH_BYTES_MAX
        assert timeout_s * 1_000 > request.max_wait_ms, "the deadline must leave time for the answer"
        stub, target = self._stub(node)
        message = partition_pb2.FetchRecordsRequest(
            session_id=request.session_id,
            session_epoch=request.session_epoch,
            partitions=map(_partition_fetch, request.partitions),
            forgotten=map(_place, request.forgotten),
            max_wait_ms=request.max_wait_ms,
            min_bytes=request.min_bytes,
            max_bytes=request.max_bytes,
        )
        call = stub.FetchRecords(message, timeout=timeout_s)
        answer = await _answer(call, target, partition_pb2.FetchRecordsResponse)
        if len(answer.partitions) > FETCH_PARTITIONS_MAX or answer.session_id < 0:
            raise _unusable(target, f"session {answer.session_id} with {len(answer.partitions)} partitions")
        if request.session_id == 0:
            _check_asked({each.place for each in request.partitions}, answer.partitions, target)
        return FetchAnswer(answer.session_id, tuple(_fetched(each, target) for each in answer.partitions))

    async def list_offsets(
        self, node: ClusterNode, questions: Sequence[OffsetQuestion], timeout_s: float
    ) -> tuple[FoundOffset, ...]:
        assert 0 < len(questions) <= QUESTIONS_MAX
        stub, target = self._stub(node)
        message = partition_pb2.ListOffsetsRequest(partitions=map(_offset_question, questions))
        call = stub.ListOffsets(message, timeout=timeout_s)
        answer = await _answer(call, target, partition_pb2.ListOffsetsResponse)
        _check_places((each.place for each in questions), answer.partitions, target)
        return tuple(_found_offset(each, target) for each in answer.partitions)

    async def epoch_ends(
        self, node: ClusterNode, questions: Sequence[EpochQuestion], timeout_s: float
    ) -> tuple[EpochEnd, ...]:
        assert 0 < len(questions) <= QUESTIONS_MAX
        stub, target = self._stub(node)
        message = partition_pb2.OffsetForLeaderEpochRequest(partitions=map(_epoch_question, questions))
        call = stub.OffsetForLeaderEpoch(message, timeout=timeout_s)
        answer = await _answer(call, target, partition_pb2.OffsetForLeaderEpochResponse)
        _check_places((each.place for each in questions), answer.partitions, target)
        return tuple(_epoch_end(each, target) for each in answer.partitions)

    async def allocate_producer_id(self, node: ClusterNode, timeout_s: float) -> int:
        stub, target = self._stub(node)
        call = stub.AllocateProducerId(partition_pb2.AllocateProducerIdRequest(), timeout=timeout_s)
        answer = await _answer(call, target, partition_pb2.AllocateProducerIdResponse)
        return _at_least_0(answer.producer_id, "producer id", target)


# --- requests --------------------------------------------------------------------------------------------------------


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


async def _answer(call: Awaitable[Any], target: str, response_type: type[R]) -> R:
    """Returns the answer of a call. Raises CallFailed."""
    try:
        answer = await call
    except grpc.aio.AioRpcError as e:
        raise CallFailed(_failure(target, e)) from e
    if not isinstance(answer, response_type):  # gRPC gives None in place of bytes that are no such message
        raise _unusable(target, "an answer that cannot be decoded; is it a broker of metaquorum?")
    return answer


def _failure(target: str, e: grpc.aio.AioRpcError) -> CallFailure:
    """Returns the meaning of a call that failed."""
    refusal = Refusal.of(e)
    if refusal is not None:
        code = ErrorCode.__members__.get(refusal.reason, ErrorCode.UNKNOWN_SERVER_ERROR)
        kind = FailureKind.FATAL if code in _FATAL else FailureKind.REFUSED
        return CallFailure(kind, code, f"{target}: {refusal.message or refusal.reason}")
    details = e.details() or ""
    match e.code():
        case _S.UNIMPLEMENTED:
            text = f"{target} keeps no partitions: is it a broker with `broker.data.plane: partitions`? ({details})"
            return CallFailure(FailureKind.NOT_CONNECTED, ErrorCode.BROKER_NOT_AVAILABLE, text)
        case _S.PERMISSION_DENIED | _S.UNAUTHENTICATED:
            text = f"{target} does not let this client in: {details}"
            return CallFailure(FailureKind.FATAL, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, text)
        case _S.UNAVAILABLE if was_never_sent(e):
            text = f"{target} cannot be reached: {why_not(details, target)}"
            return CallFailure(FailureKind.NOT_CONNECTED, ErrorCode.BROKER_NOT_AVAILABLE, text)
        case _S.RESOURCE_EXHAUSTED if "limit exceeded" in details:  # the server has too many calls
            text = f"{target} has too many calls to answer: {details}"
            return CallFailure(FailureKind.REFUSED, ErrorCode.THROTTLING_QUOTA_EXCEEDED, text)
        case _S.RESOURCE_EXHAUSTED if "CLIENT: " not in details:
            text = f"{target} takes no request of this size: {details}"
            return CallFailure(FailureKind.REFUSED, ErrorCode.RECORD_BATCH_TOO_LARGE, text)
        case _S.DEADLINE_EXCEEDED:
            return CallFailure(FailureKind.TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT, f"{target} did not answer in time")
        case _S.UNAVAILABLE | _S.CANCELLED:
            text = f"{target}: the connection broke before the answer came ({why_not(details, target)})"
            return CallFailure(FailureKind.DISCONNECTED, ErrorCode.REQUEST_TIMED_OUT, text)
        case code:
            text = f"{target}: no answer came ({getattr(code, 'name', code)}: {why_not(details, target)})"
            return CallFailure(FailureKind.UNUSABLE, ErrorCode.UNKNOWN_SERVER_ERROR, text)


def _unusable(target: str, text: str) -> CallFailed:
    message = shortened(f"{target} sent {text}", MESSAGE_BYTES_MAX)
    return CallFailed(CallFailure(FailureKind.UNUSABLE, ErrorCode.UNKNOWN_SERVER_ERROR, message))


def _check_places(asked: Iterable[TopicIdPartition], told: Sequence[Any], target: str) -> None:
    """Raises CallFailed unless the answer has the asked partitions, in their order."""
    if [(each.partition.topic_id, each.partition.partition) for each in told] != list(asked):
        raise _unusable(target, "an answer about other partitions than those of the request")


def _check_asked(asked: set[TopicIdPartition], told: Sequence[Any], target: str) -> None:
    """Raises CallFailed if the answer has a partition twice, or a partition that was not asked for."""
    places = [(each.partition.topic_id, each.partition.partition) for each in told]
    if len(set(places)) != len(places) or not asked.issuperset(places):
        raise _unusable(target, "an answer about other partitions than those of the request")


def _told_place(message: partition_pb2.TopicIdPartition, target: str) -> TopicIdPartition:
    if len(message.topic_id) != 16 or message.partition < 0:
        raise _unusable(target, f"partition {message.partition} of a topic with {len(message.topic_id)} bytes of id")
    return TopicIdPartition(message.topic_id, message.partition)


def _code(error: common_pb2.Error) -> ErrorCode:
    return ErrorCode.of(error.code)


def _text(error: common_pb2.Error) -> str:
    return shortened(error.message, MESSAGE_BYTES_MAX)


def _at_least_0(value: int, name: str, target: str) -> int:
    if value < 0:
        raise _unusable(target, f"the {name} {value}")
    return value


def _offset_or_none(value: Offset, name: str, target: str) -> Offset | None:
    if value < -1:
        raise _unusable(target, f"the {name} {value}")
    return None if value == -1 else value


def _leader(message: Any, target: str) -> CurrentLeader | None:
    if not message.HasField("current_leader"):
        return None
    leader = message.current_leader
    leader_id = leader.leader_id if leader.HasField("leader_id") else None
    if leader_id is not None and not 0 <= leader_id <= NODE_ID_MAX:
        raise _unusable(target, f"the leader {leader_id}")
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
        leader_epoch=each.leader_epoch,
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
