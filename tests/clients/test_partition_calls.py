"""The calls of producers and consumers over real gRPC, against a service that answers what a test tells it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from quorum_rpc.v1 import common_pb2, partition_pb2, partition_pb2_grpc

from clients.metadata.cluster import ClusterNode
from clients.partition_calls import CallFailed, GrpcPartitionCalls
from clients.partition_values import (
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
from metadata_log.format.data_batch import NO_STAMP, ProducerStamp
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import OffsetAndEpoch
from service_kit.rpc.refusals import Refusal

TOPIC = bytes(range(16))
ZERO, ONE = TopicIdPartition(TOPIC, 0), TopicIdPartition(TOPIC, 1)
STAMP = ProducerStamp(7, 0, 40)
APPEND = AppendRequest(
    -1, 5_000, (AppendBatch(ZERO, 5, STAMP, 2, b"records"), AppendBatch(ONE, None, NO_STAMP, 1, b"more"))
)
FETCH = FetchRequest((PartitionFetch(ZERO, 9, 5, 4, 1_000), PartitionFetch(ONE, 0)), max_wait_ms=100)

Answer = Callable[[Any], Any]


class Service(partition_pb2_grpc.PartitionServiceServicer):
    """Answers every call with `answer(request)`, which may be an exception. Keeps the last request."""

    def __init__(self) -> None:
        self.answer: Answer = lambda request: None
        self.last: Any = None
        self.never = asyncio.Event()

    async def _told(self, request: Any, context: Any) -> Any:
        self.last = request
        told = self.answer(request)
        if isinstance(told, Refusal):
            await told.end(context)
        if isinstance(told, grpc.StatusCode):
            await context.abort(told, "as the test wants")
        if told is None:
            await self.never.wait()
        return told

    Append = FetchRecords = ListOffsets = OffsetForLeaderEpoch = AllocateProducerId = _told


@asynccontextmanager
async def broker() -> AsyncIterator[tuple[Service, ClusterNode, GrpcPartitionCalls]]:
    service, server = Service(), grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    partition_pb2_grpc.add_PartitionServiceServicer_to_server(service, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    calls = GrpcPartitionCalls()
    try:
        yield service, ClusterNode(1, "127.0.0.1", port), calls
    finally:
        await calls.close()
        await server.stop(None)


def told(partition: int, topic_id: bytes = TOPIC) -> partition_pb2.TopicIdPartition:
    return partition_pb2.TopicIdPartition(topic_id=topic_id, partition=partition)


def error(code: ErrorCode, message: str = "") -> common_pb2.Error:
    return common_pb2.Error(code=common_pb2.ErrorCode.Name(code), message=message)


def appends(*results: partition_pb2.AppendResult) -> Answer:
    return lambda _: partition_pb2.AppendResponse(results=results)


async def failure_of(call: Any) -> CallFailure:
    with pytest.raises(CallFailed) as caught:
        await call
    return caught.value.failure


# --- the five calls --------------------------------------------------------------------------------------------------


async def test_an_append_carries_batches_with_and_without_a_producer() -> None:
    """Each partition has its own result. The error of one has the present leader with it (KIP-951)."""
    async with broker() as (service, node, calls):
        moved = partition_pb2.CurrentLeader(leader_id=102, leader_epoch=6)
        service.answer = appends(
            partition_pb2.AppendResult(partition=told(0), base_offset=500, log_start_offset=3),
            partition_pb2.AppendResult(
                partition=told(1),
                error=error(ErrorCode.NOT_LEADER_OR_FOLLOWER, "moved"),
                base_offset=-1,
                log_start_offset=-1,
                current_leader=moved,
            ),
        )
        assert await calls.append(node, APPEND, 10) == (
            Appended(ZERO, base_offset=500, log_start_offset=3),
            Appended(ONE, ErrorCode.NOT_LEADER_OR_FOLLOWER, "moved", current_leader=CurrentLeader(102, 6)),
        )
        first, second = service.last.batches
        assert (service.last.acks, service.last.timeout_ms) == (-1, 5_000)
        assert (first.leader_epoch, first.producer_id, first.producer_epoch, first.base_sequence) == (5, *STAMP)
        assert (first.partition.topic_id, first.record_count, first.records) == (TOPIC, 2, b"records")
        assert not second.HasField("producer_id") and not second.HasField("leader_epoch")


async def test_a_fetch_brings_batches_or_the_place_where_logs_diverged() -> None:
    async with broker() as (service, node, calls):
        service.answer = lambda _: partition_pb2.FetchRecordsResponse(
            session_id=3,
            partitions=[
                partition_pb2.FetchedPartition(
                    partition=told(0), high_watermark=12, log_start_offset=1, batches=b"batches"
                ),
                partition_pb2.FetchedPartition(
                    partition=told(1),
                    high_watermark=-1,
                    log_start_offset=-1,
                    diverged=common_pb2.OffsetAndEpoch(offset=8, epoch=4),
                ),
            ],
        )
        assert await calls.fetch(node, FETCH, 10) == FetchAnswer(
            3,
            (
                Fetched(ZERO, high_watermark=12, log_start_offset=1, batches=b"batches"),
                Fetched(ONE, diverged=OffsetAndEpoch(8, 4)),
            ),
        )
        first, second = service.last.partitions
        assert (first.offset, first.leader_epoch, first.last_fetched_epoch, first.max_bytes) == (9, 5, 4, 1_000)
        assert not second.HasField("leader_epoch") and not second.HasField("last_fetched_epoch")
        assert not service.last.HasField("replica_id"), "a consumer is no replica"


async def test_offsets_are_found_by_end_and_by_time() -> None:
    async with broker() as (service, node, calls):
        service.answer = lambda request: partition_pb2.ListOffsetsResponse(
            partitions=[
                partition_pb2.FoundOffset(partition=each.partition, offset=5, timestamp_ms=9, leader_epoch=2)
                for each in request.partitions[:-1]
            ]
            + [partition_pb2.FoundOffset(partition=request.partitions[-1].partition, leader_epoch=2)]
        )
        places = [TopicIdPartition(TOPIC, number) for number in range(3)]
        wanted: Sequence[EndOfLog | int] = (EndOfLog.EARLIEST, EndOfLog.LATEST, 1_700)
        questions = [OffsetQuestion(place, each, 2) for place, each in zip(places, wanted, strict=True)]
        assert await calls.list_offsets(node, questions, 10) == (
            FoundOffset(places[0], offset=5, timestamp_ms=9, leader_epoch=2),
            FoundOffset(places[1], offset=5, timestamp_ms=9, leader_epoch=2),
            FoundOffset(places[2], offset=None, leader_epoch=2),
        )
        assert [each.WhichOneof("wanted") for each in service.last.partitions] == ["earliest", "latest", "timestamp_ms"]


async def test_the_ends_of_epochs_are_told_or_there_are_none() -> None:
    async with broker() as (service, node, calls):
        service.answer = lambda _: partition_pb2.OffsetForLeaderEpochResponse(
            partitions=[
                partition_pb2.EpochEnd(partition=told(0), leader_epoch=4, end_offset=77),
                partition_pb2.EpochEnd(partition=told(1), leader_epoch=-1, end_offset=-1),
            ]
        )
        questions = [EpochQuestion(ZERO, 4, 5), EpochQuestion(ONE, 4)]
        assert await calls.epoch_ends(node, questions, 10) == (EpochEnd(ZERO, end=OffsetAndEpoch(77, 4)), EpochEnd(ONE))


async def test_a_producer_id_is_allocated() -> None:
    async with broker() as (service, node, calls):
        service.answer = lambda _: partition_pb2.AllocateProducerIdResponse(producer_id=4_000)
        assert await calls.allocate_producer_id(node, 10) == 4_000


# --- no answer -------------------------------------------------------------------------------------------------------


async def test_a_broker_that_is_not_there_has_done_nothing() -> None:
    async with broker() as (_, node, _):
        gone = node
    calls = GrpcPartitionCalls()
    try:
        failure = await failure_of(calls.append(gone, APPEND, 10))
    finally:
        await calls.close()
    assert (failure.kind, failure.code) == (FailureKind.NOT_CONNECTED, ErrorCode.BROKER_NOT_AVAILABLE)
    assert not failure.may_have_been_done


async def test_a_broker_that_does_not_answer_in_time_may_have_appended() -> None:
    async with broker() as (_, node, calls):
        failure = await failure_of(calls.append(node, APPEND, 0.05))
        assert (failure.kind, failure.code) == (FailureKind.TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT)
        assert failure.may_have_been_done


async def test_a_connection_that_breaks_may_have_brought_the_request() -> None:
    async with broker() as (service, node, calls):
        service.answer = lambda _: grpc.StatusCode.UNAVAILABLE  # as from a proxy or a broker that stops
        failure = await failure_of(calls.append(node, APPEND, 10))
        assert failure.kind is FailureKind.DISCONNECTED and failure.may_have_been_done


@pytest.mark.parametrize(
    ("code", "kind", "may_have_been_done"),
    [
        (ErrorCode.BROKER_NOT_AVAILABLE, FailureKind.REFUSED, True),
        (ErrorCode.INVALID_REQUEST, FailureKind.REFUSED, False),
        (ErrorCode.THROTTLING_QUOTA_EXCEEDED, FailureKind.REFUSED, False),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, FailureKind.FATAL, False),
    ],
)
async def test_a_refusal_says_if_the_broker_had_begun(
    code: ErrorCode, kind: FailureKind, may_have_been_done: bool
) -> None:
    """A broker whose lease lapses while a write waits refuses the request after it has appended."""
    async with broker() as (service, node, calls):
        service.answer = lambda _: Refusal(code.name, "not now")
        failure = await failure_of(calls.append(node, APPEND, 10))
        assert (failure.kind, failure.code, failure.may_have_been_done) == (kind, code, may_have_been_done)
        assert "not now" in failure.message


async def test_a_broker_without_partitions_says_so() -> None:
    async with broker() as (service, node, calls):
        service.answer = lambda _: grpc.StatusCode.UNIMPLEMENTED
        failure = await failure_of(calls.append(node, APPEND, 10))
        assert failure.kind is FailureKind.NOT_CONNECTED and "broker.data.plane" in failure.message


# --- answers that are none -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "results",
    [
        [],
        [partition_pb2.AppendResult(partition=told(1)), partition_pb2.AppendResult(partition=told(0))],
        [partition_pb2.AppendResult(partition=told(0)), partition_pb2.AppendResult(partition=told(1, b"short"))],
        [partition_pb2.AppendResult(partition=told(0), base_offset=-2), partition_pb2.AppendResult(partition=told(1))],
    ],
)
async def test_results_of_other_partitions_or_impossible_offsets_are_no_answer(results: list[Any]) -> None:
    """The records may have been appended, so the producer sends them again."""
    async with broker() as (service, node, calls):
        service.answer = appends(*results)
        failure = await failure_of(calls.append(node, APPEND, 10))
        assert failure.kind is FailureKind.UNUSABLE and failure.may_have_been_done


@pytest.mark.parametrize("partitions", [[0, 0], [0, 2]])
async def test_a_fetch_accepts_no_partition_that_was_not_asked_for(partitions: list[int]) -> None:
    async with broker() as (service, node, calls):
        service.answer = lambda _: partition_pb2.FetchRecordsResponse(
            partitions=[partition_pb2.FetchedPartition(partition=told(number)) for number in partitions]
        )
        assert (await failure_of(calls.fetch(node, FETCH, 10))).kind is FailureKind.UNUSABLE


async def test_long_texts_are_cut_and_unknown_codes_are_known_as_such() -> None:
    async with broker() as (service, node, calls):
        strange = common_pb2.Error(message="x" * 100_000)
        strange.code = 9_999  # type: ignore[assignment]
        service.answer = appends(
            partition_pb2.AppendResult(partition=told(0), error=strange), partition_pb2.AppendResult(partition=told(1))
        )
        first, _ = await calls.append(node, APPEND, 10)
        assert first.code is ErrorCode.UNKNOWN_SERVER_ERROR and len(first.message) <= 1_000
