"""The service of a broker over real gRPC: records in and out, and no answer as a leader without a lease."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from quorum_rpc.v1 import partition_pb2

from broker_agent.data_plane.fetch_messages import ANY_EPOCH
from broker_agent.data_plane.offset_messages import OffsetQuestion
from broker_agent.data_plane.partition_service import SERVICE
from broker_agent.session.lifecycle import BrokerState
from metadata_log.format.batch import decode_all
from metadata_log.format.data_batch import decode_data
from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import PartitionChange, RemoveTopic
from service_kit.rpc.refusals import Refusal
from tests.broker_agent.data_plane.hosted import ORDERS, OTHER, Hosted, append_of, fetch_of, hosted, orders, place

REQUESTS: dict[str, Callable[[], Message]] = {
    "Append": lambda: append_of(0, acks=1),
    "FetchRecords": fetch_of,
    "ListOffsets": lambda: partition_pb2.ListOffsetsRequest(
        partitions=[partition_pb2.OffsetQuestion(partition=place(), latest=True)]
    ),
    "OffsetForLeaderEpoch": lambda: partition_pb2.OffsetForLeaderEpochRequest(
        partitions=[partition_pb2.EpochQuestion(partition=place(), leader_epoch=0)]
    ),
    "AllocateProducerId": partition_pb2.AllocateProducerIdRequest,
}
"""A good request of a client, by method."""


async def refusal(call: Awaitable[Any]) -> Refusal:
    """The refusal that the call ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    found = Refusal.of(caught.value)
    assert found is not None, caught.value
    return found


async def leading(broker: Hosted) -> None:
    """Lets the broker lead orders-0 alone."""
    await broker.write(*orders(2, alone=True))
    await broker.leads(0, 1)


async def test_a_record_goes_in_and_comes_out(tmp_path: Path) -> None:
    """With its offset; a consumer finds log start and end, and the record of a time."""
    async with hosted(tmp_path) as broker:
        await leading(broker)
        first = await broker.stub.Append(append_of(0, 1))
        again = await broker.stub.Append(append_of(0))
        fetched = await broker.stub.FetchRecords(fetch_of())
        times = partition_pb2.ListOffsetsRequest(
            partitions=[
                partition_pb2.OffsetQuestion(partition=place(), earliest=True),
                partition_pb2.OffsetQuestion(partition=place(), latest=True),
                partition_pb2.OffsetQuestion(partition=place(), timestamp_ms=1_000),
                partition_pb2.OffsetQuestion(partition=place(), timestamp_ms=5_000),
            ]
        )
        found = await broker.stub.ListOffsets(times)

    assert [each.base_offset for each in (*first.results, *again.results)] == [0, 0, 1]
    (answer,) = fetched.partitions
    assert answer.high_watermark == 2
    assert [record.value for batch in decode_all(answer.batches) for record in decode_data(batch)] == [b"v", b"v"]
    assert [each.offset if each.HasField("offset") else None for each in found.partitions] == [0, 2, 0, None]


@pytest.mark.parametrize("method", sorted(SERVICE.methods_by_name))
async def test_a_broker_without_a_lease_answers_no_client(tmp_path: Path, method: str) -> None:
    """Every method of the service; nothing was done, so any client may ask another broker."""
    async with hosted(tmp_path) as broker:
        await leading(broker)
        call = getattr(broker.stub, method)
        await call(REQUESTS[method]())
        broker.has_lease = False

        refused = await refusal(call(REQUESTS[method]()))

    assert (refused.reason, refused.status) == ("BROKER_NOT_AVAILABLE", grpc.StatusCode.UNAVAILABLE)


async def test_a_write_whose_broker_lost_its_lease_meanwhile_may_have_been_appended(tmp_path: Path) -> None:
    """The records wait for the other replica. The answer must not say that they are in, nor that nothing was done."""
    async with hosted(tmp_path) as broker:
        await broker.write(*orders(1))
        await broker.leads(0)
        writing = asyncio.ensure_future(broker.stub.Append(append_of(0, timeout_ms=100)))
        await until(lambda: broker.data_plane.appends_waiting == 1)
        broker.has_lease = False

        refused = await refusal(writing)

    assert (refused.reason, refused.status) == ("BROKER_NOT_AVAILABLE", grpc.StatusCode.ABORTED)


async def test_a_fetch_that_waited_for_longer_than_the_lease_is_refused(tmp_path: Path) -> None:
    """ "Nothing new" would be an answer as a leader."""
    async with hosted(tmp_path) as broker:
        await leading(broker)
        fetching = asyncio.ensure_future(broker.stub.FetchRecords(fetch_of(max_wait_ms=100)))
        await until(lambda: broker.data_plane.fetches_waiting == 1)
        broker.has_lease = False

        assert (await refusal(fetching)).reason == "BROKER_NOT_AVAILABLE"


async def test_a_lease_that_comes_back_needs_the_assignments_that_came_meanwhile(tmp_path: Path) -> None:
    """Another leads since the session ended, but the data plane has not heard of it yet: the old leader must not answer."""
    async with hosted(tmp_path) as broker:
        await broker.write(*orders(1))
        await broker.leads(0)
        fetching = asyncio.ensure_future(broker.stub.FetchRecords(fetch_of(max_wait_ms=100)))
        await until(lambda: broker.data_plane.fetches_waiting == 1)
        broker.has_lease = False
        broker.assignments_may_come.clear()
        offset = broker.image.offset
        moving = asyncio.ensure_future(broker.write(PartitionChange(ORDERS, 0, leader=OTHER)))
        await until(lambda: broker.image.offset > offset)
        broker.has_lease = True

        for call in (fetching, broker.stub.Append(append_of(0, acks=1))):
            assert (await refusal(call)).reason == "BROKER_NOT_AVAILABLE"
        broker.assignments_may_come.set()
        await moving
        await until(lambda: broker.data_plane.inputs.has_caught_up)
        answer = await broker.stub.FetchRecords(fetch_of())
    assert answer.partitions[0].current_leader.leader_id == OTHER


async def test_a_change_of_the_metadata_costs_a_serving_broker_nothing(tmp_path: Path) -> None:
    """Its lease holds on: no session of it has ended, and planned moves are fenced by the leader epoch."""
    async with hosted(tmp_path) as broker:
        await leading(broker)
        broker.assignments_may_come.clear()
        offset = broker.image.offset
        moving = asyncio.ensure_future(broker.write(PartitionChange(ORDERS, 1, isr=(1,))))
        await until(lambda: broker.image.offset > offset)

        assert (await broker.stub.Append(append_of(0))).results[0].error.code == 0
        broker.assignments_may_come.set()
        await moving


async def test_a_follower_may_fetch_from_a_broker_without_a_lease(tmp_path: Path) -> None:
    """Leader epochs and broker epochs decide if its fetch counts: the fetch of an unknown process does not."""
    async with hosted(tmp_path) as broker:
        await broker.write(*orders(1))
        await broker.leads(0)
        broker.has_lease = False
        request = partition_pb2.FetchRecordsRequest(replica_id=OTHER, broker_epoch=0, session_epoch=-1)
        request.partitions.add(partition=place(), leader_epoch=0, last_fetched_epoch=0)

        answer = await broker.stub.FetchRecords(request)

    assert answer.partitions[0].error.code == 0


async def test_a_fetch_waits_and_is_woken_by_an_append(tmp_path: Path) -> None:
    """Long before its time is up; a fetch that wants more bytes than there are waits for its time."""
    async with hosted(tmp_path) as broker:
        await leading(broker)
        fetching = asyncio.ensure_future(broker.stub.FetchRecords(fetch_of(max_wait_ms=60_000)))
        patient = asyncio.ensure_future(broker.stub.FetchRecords(fetch_of(max_wait_ms=100, min_bytes=1 << 20)))
        await until(lambda: broker.data_plane.fetches_waiting == 2)
        await broker.stub.Append(append_of(0))

        assert (await fetching).partitions[0].high_watermark == 1
        assert (await patient).partitions[0].batches


async def test_a_fetch_whose_client_went_away_is_forgotten(tmp_path: Path) -> None:
    """Nothing waits for its time any more: a client that comes and goes costs no memory."""
    async with hosted(tmp_path) as broker:
        await leading(broker)
        manager = broker.data_plane.manager
        dropped: list[None] = []
        drop = manager.drop_fetch
        manager.drop_fetch = lambda fetch: dropped.append(drop(fetch))  # type: ignore[method-assign]
        fetching = broker.stub.FetchRecords(fetch_of(max_wait_ms=60_000))
        await until(lambda: broker.data_plane.fetches_waiting == 1)
        fetching.cancel()

        await until(lambda: broker.data_plane.fetches_waiting == 0)
        assert len(dropped) == 1


async def test_the_client_of_a_follower_hears_who_leads(tmp_path: Path) -> None:
    """With its epoch (KIP-951); a topic that is not there has an error of its own."""
    async with hosted(tmp_path) as broker:
        await broker.write(*orders(1, leader=OTHER))
        await broker.leads(0)
        append = await broker.stub.Append(append_of(0, acks=1))
        fetched = await broker.stub.FetchRecords(fetch_of())
        unknown = partition_pb2.ListOffsetsRequest(
            partitions=[partition_pb2.OffsetQuestion(partition=place(0, b"x" * 16), latest=True)]
        )
        found = await broker.stub.ListOffsets(unknown)

    for each in (append.results[0], fetched.partitions[0]):
        assert each.error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (each.current_leader.leader_id, each.current_leader.leader_epoch) == (OTHER, 0)
    assert found.partitions[0].error.code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_a_write_that_waits_hears_that_another_leads(tmp_path: Path) -> None:
    """The leadership moved away: the producer is sent to the next leader."""
    async with hosted(tmp_path) as broker:
        await broker.write(*orders(1))
        await broker.leads(0)
        writing = asyncio.ensure_future(broker.stub.Append(append_of(0)))
        await until(lambda: broker.data_plane.appends_waiting == 1)
        await broker.write(PartitionChange(ORDERS, 0, leader=OTHER))

        (result,) = (await writing).results
    assert result.error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert result.current_leader.leader_id == OTHER


async def test_a_broker_that_has_handed_over_names_the_next_leader_until_its_process_ends(tmp_path: Path) -> None:
    """The controllers let the broker go, before its data plane has heard of the move: a write that waits, and a write that comes.
    A refusal without the next leader would cost the producer a pause and a question for metadata."""
    async with hosted(tmp_path) as broker:
        await broker.write(*orders(1))
        await broker.leads(0)
        writing = asyncio.ensure_future(broker.stub.Append(append_of(0)))
        await until(lambda: broker.data_plane.appends_waiting == 1)
        broker.assignments_may_come.clear()
        offset = broker.image.offset
        moving = asyncio.ensure_future(broker.write(PartitionChange(ORDERS, 0, leader=OTHER)))
        await until(lambda: broker.image.offset > offset)
        broker.has_lease, broker.state = False, BrokerState.OFFLINE
        coming = await broker.stub.Append(append_of(0))
        broker.assignments_may_come.set()
        await moving

        for answer in (coming, await writing):
            (result,) = answer.results
            assert result.error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (result.current_leader.leader_id, result.current_leader.leader_epoch) == (OTHER, 1)
    assert "nothing was appended" in coming.results[0].error.message
    assert "may have been appended" in writing.result().results[0].error.message


@pytest.mark.parametrize("state", [BrokerState.ONLINE, BrokerState.FENCED])
async def test_a_broker_that_lost_its_lease_sends_nobody_by_its_old_metadata(
    tmp_path: Path, state: BrokerState
) -> None:
    """Only a broker that stops has metadata about its successors. Any other one may be cut off for long."""
    async with hosted(tmp_path) as broker:
        await broker.write(*orders(1, leader=OTHER))
        broker.has_lease, broker.state = False, state
        assert (await refusal(broker.stub.Append(append_of(0)))).reason == "BROKER_NOT_AVAILABLE"


async def test_a_broker_that_stops_without_a_successor_says_nothing_of_leaders(tmp_path: Path) -> None:
    """It leads orders-0 still, because its deadline has passed: all batches of the request are refused."""
    async with hosted(tmp_path) as broker:
        await broker.write(*orders(2), PartitionChange(ORDERS, 1, leader=OTHER))
        broker.has_lease, broker.state = False, BrokerState.OFFLINE
        assert (await refusal(broker.stub.Append(append_of(0, 1)))).reason == "BROKER_NOT_AVAILABLE"


async def test_a_broker_follows_from_its_start(tmp_path: Path) -> None:
    """One request for all partitions of a source, with broker epoch, offsets, sizes and waits."""
    async with hosted(tmp_path) as broker:
        await broker.write(*orders(3, leader=OTHER))
        async with asyncio.timeout(5):
            while True:
                source, session, epoch, limits = await broker.sources.asked.get()
                assert (source, epoch) == (OTHER, broker.broker_epoch)
                assert (limits.max_wait_ms, limits.min_bytes, limits.max_bytes) == (500, 1, 1 << 20)
                if len(session.fetches) == 3:
                    break
    assert {each.offset for _, each in session.fetches} == {0}
    assert all(each.max_bytes > 0 for _, each in session.fetches)


async def test_a_write_in_the_log_of_a_deleted_topic_is_not_told_to_be_nowhere(tmp_path: Path) -> None:
    """UNKNOWN_TOPIC_ID says that nothing was appended. This write was, and waited for broker 2, when the topic was deleted."""
    async with hosted(tmp_path) as broker:
        await broker.write(*orders(1))
        await broker.leads(0)
        waiting = asyncio.ensure_future(broker.stub.Append(append_of(0)))
        await until(lambda: broker.data_plane.appends_waiting == 1)
        await broker.write(RemoveTopic("orders", ORDERS))
        waited = (await waiting).results[0]
        later = (await broker.stub.Append(append_of(0))).results[0]

    assert (waited.error.code, waited.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)
    assert later.error.code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_a_broker_that_stops_makes_everything_durable_and_serves_no_more(tmp_path: Path) -> None:
    """The next process finds the records, and their high watermark."""
    async with hosted(tmp_path) as broker:
        await leading(broker)
        waiting = asyncio.ensure_future(broker.stub.FetchRecords(fetch_of(max_wait_ms=60_000)))
        await until(lambda: broker.data_plane.fetches_waiting == 1)
        await broker.stub.Append(append_of(1))
        await broker.data_plane.stop()

        for call in (waiting, broker.stub.Append(append_of(0))):
            assert (await refusal(call)).reason == "BROKER_NOT_AVAILABLE"
    async with hosted(tmp_path) as again:
        await leading(again)
        answer = await again.stub.FetchRecords(fetch_of(partition=1))
    assert answer.partitions[0].high_watermark == 1


async def test_a_question_for_a_time_ends_when_the_broker_stops(tmp_path: Path) -> None:
    """Its search may be under way on a thread, whose end nobody takes any more."""
    async with hosted(tmp_path) as broker:
        await leading(broker)
        await broker.stub.Append(append_of(0))
        asked = asyncio.ensure_future(broker.data_plane.list_offset(OffsetQuestion((ORDERS, 0), ANY_EPOCH, 1_000)))
        asyncio.get_running_loop().call_soon(broker.data_plane._end)
        with pytest.raises(Refusal, match="this broker stops"):
            await asked


async def test_too_many_bytes_of_appends_at_once_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Producers send them again later; the broker's memory has an end."""
    async with hosted(tmp_path) as broker:
        await leading(broker)
        monkeypatch.setattr("broker_agent.data_plane.partition_service.BYTES_IN_FLIGHT_MAX", 1)

        assert (await refusal(broker.stub.Append(append_of(0)))).reason == "THROTTLING_QUOTA_EXCEEDED"


async def test_producers_get_ids_that_nobody_has(tmp_path: Path) -> None:
    async with hosted(tmp_path) as broker:
        request = partition_pb2.AllocateProducerIdRequest()
        ids = [(await broker.stub.AllocateProducerId(request)).producer_id for _ in range(3)]
    assert ids == [4_000, 4_001, 4_002]


async def until(condition: Callable[[], bool]) -> None:
    """Returns once the condition holds, which other tasks bring about."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)
