"""The calls of producers and consumers: `PartitionService` of one broker, over gRPC.

A call takes and gives the values of `partition_values`. A call that brings no answer raises `CallFailed`, and never an error of
gRPC. Every call has a deadline. Example:

    1. A producer appends to broker 101 with a deadline of 30 s, and broker 101 is frozen. After 30 s the call raises CallFailed
       with TIMED_OUT: the records may have been appended.
    2. The producer appends to broker 101 again, whose port is closed now: CallFailed with NOT_CONNECTED, nothing was done.

`partition_messages` checks each answer before anybody reads it.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

import grpc
from quorum_rpc.v1 import partition_pb2, partition_pb2_grpc

from clients import partition_messages as messages
from clients.errors import why_not
from clients.metadata.cluster import ClusterNode
from clients.partition_messages import CallFailed as CallFailed  # the callers catch it here
from clients.partition_values import (
    APPEND_BATCHES_MAX,
    FETCH_BYTES_MAX,
    FETCH_PARTITIONS_MAX,
    QUESTIONS_MAX,
    Appended,
    AppendRequest,
    CallFailure,
    EpochEnd,
    EpochQuestion,
    FailureKind,
    FetchAnswer,
    FetchRequest,
    FoundOffset,
    OffsetQuestion,
)
from metadata_log.format.errors import ErrorCode
from service_kit.process.endpoints import HostPort
from service_kit.rpc.dial import Dialer, was_never_sent
from service_kit.rpc.refusals import Refusal

R = TypeVar("R")

_S: Final = grpc.StatusCode
_FATAL: Final = frozenset((ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION))


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
        call = stub.Append(messages.append_request(request), timeout=timeout_s)
        return messages.append_answer(request, await _answer(call, target, partition_pb2.AppendResponse), target)

    async def fetch(self, node: ClusterNode, request: FetchRequest, timeout_s: float) -> FetchAnswer:
        assert len(request.partitions) <= FETCH_PARTITIONS_MAX
        assert 0 < request.max_bytes <= FETCH_BYTES_MAX
        assert timeout_s * 1_000 > request.max_wait_ms, "the deadline must leave time for the answer"
        stub, target = self._stub(node)
        call = stub.FetchRecords(messages.fetch_request(request), timeout=timeout_s)
        return messages.fetch_answer(request, await _answer(call, target, partition_pb2.FetchRecordsResponse), target)

    async def list_offsets(
        self, node: ClusterNode, questions: Sequence[OffsetQuestion], timeout_s: float
    ) -> tuple[FoundOffset, ...]:
        assert 0 < len(questions) <= QUESTIONS_MAX
        stub, target = self._stub(node)
        call = stub.ListOffsets(messages.offsets_request(questions), timeout=timeout_s)
        answer = await _answer(call, target, partition_pb2.ListOffsetsResponse)
        return messages.offsets_answer(questions, answer, target)

    async def epoch_ends(
        self, node: ClusterNode, questions: Sequence[EpochQuestion], timeout_s: float
    ) -> tuple[EpochEnd, ...]:
        assert 0 < len(questions) <= QUESTIONS_MAX
        stub, target = self._stub(node)
        call = stub.OffsetForLeaderEpoch(messages.epochs_request(questions), timeout=timeout_s)
        answer = await _answer(call, target, partition_pb2.OffsetForLeaderEpochResponse)
        return messages.epochs_answer(questions, answer, target)

    async def allocate_producer_id(self, node: ClusterNode, timeout_s: float) -> int:
        stub, target = self._stub(node)
        call = stub.AllocateProducerId(partition_pb2.AllocateProducerIdRequest(), timeout=timeout_s)
        return messages.id_answer(await _answer(call, target, partition_pb2.AllocateProducerIdResponse), target)


async def _answer(call: Awaitable[Any], target: str, response_type: type[R]) -> R:
    """Returns the answer of a call. Raises CallFailed."""
    try:
        answer = await call
    except grpc.aio.AioRpcError as e:
        raise CallFailed(_failure(target, e)) from e
    if not isinstance(answer, response_type):  # gRPC gives None in place of bytes that are no such message
        raise messages.unusable(target, "an answer that cannot be decoded; is it a broker of metaquorum?")
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
