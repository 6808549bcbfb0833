"""Fetches and appends on the wire: what one side says is what the other side gets, and nothing wrong gets through."""

import random

import pytest
from quorum_rpc.v1 import common_pb2, partition_pb2

from broker_agent.data_plane.append_messages import Outcome, Refused, Write, append_response, terms_of, writes_of
from broker_agent.data_plane.fetch_messages import (
    ANY_EPOCH,
    NO_REPLICA,
    RECORDS_BYTES,
    RECORDS_BYTES_MAX,
    WAIT_MS_MAX,
    BadAnswer,
    FetchLimits,
    answer_of,
    fetch_of,
    fetch_request,
    fetch_response,
)
from broker_agent.data_plane.offset_messages import epoch_questions, offset_questions
from broker_agent.partitions.offset_questions import OffsetWanted
from broker_agent.replica.fetch_sessions import SessionAnswer, SessionRequest
from broker_agent.replica.follower import LogStart, PartitionAnswer, PartitionFetch
from broker_agent.replica.purgatory import Acks
from metadata_log.format.data_batch import NO_STAMP, DataRecord, ProducerStamp, encode_data, pack_records
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import OffsetAndEpoch
from service_kit.rpc.refusals import Refusal

TOPIC = b"t" * 16
PLACE, OTHER = (TOPIC, 0), (TOPIC, 1)
LIMITS = FetchLimits(500, 1, 1 << 20)


def some_batches() -> tuple[object, ...]:
    """Two batches that follow each other."""
    first = encode_data(
        pack_records([DataRecord(5, b"k", b"v")]), NO_STAMP, base_offset=0, epoch=1, previous_chain=bytes(32)
    )
    second = encode_data(
        pack_records([DataRecord(6, None, None)]), NO_STAMP, base_offset=1, epoch=1, previous_chain=first.chain
    )
    return first, second


def nobody(place: object) -> None:
    """No leader is known."""


def same(place: object, code: ErrorCode) -> ErrorCode:
    return code


def test_a_followers_fetch_arrives_as_it_was_sent() -> None:
    """Offsets, epochs, the session and the limits; the source knows the follower and its broker epoch."""
    session = SessionRequest(77, 3, ((PLACE, PartitionFetch(9, 4, 3)), (OTHER, PartitionFetch(0, 4, 0))), ((TOPIC, 2),))

    fetch = fetch_of(fetch_request(session, 103, 55, LIMITS))

    assert fetch.session == session
    assert (fetch.replica_id, fetch.broker_epoch, fetch.limits) == (103, 55, LIMITS)
    assert fetch.is_follower


def test_a_consumer_may_leave_out_epochs_and_sizes() -> None:
    """Everything else has a default, and no wish is larger than the limits of the broker."""
    message = partition_pb2.FetchRecordsRequest(max_wait_ms=WAIT_MS_MAX * 2, max_bytes=1 << 30, session_epoch=-1)
    message.partitions.add(partition=partition_pb2.TopicIdPartition(topic_id=TOPIC, partition=0), offset=5)

    fetch = fetch_of(message)

    assert not fetch.is_follower
    assert fetch.replica_id == NO_REPLICA
    assert fetch.session.fetches[0][1] == PartitionFetch(5, ANY_EPOCH, ANY_EPOCH)
    assert fetch.limits == FetchLimits(WAIT_MS_MAX, 1, RECORDS_BYTES_MAX)
    assert fetch_of(partition_pb2.FetchRecordsRequest()).limits.max_bytes == RECORDS_BYTES


def test_an_answer_arrives_with_its_batches() -> None:
    """Batches travel unopened; the answer also has a divergence, or the place to begin at."""
    answer = SessionAnswer(
        ErrorCode.NONE,
        77,
        (
            (PLACE, PartitionAnswer(ErrorCode.NONE, 2, 0, some_batches())),  # type: ignore[arg-type]
            (OTHER, PartitionAnswer(ErrorCode.OFFSET_OUT_OF_RANGE, 2, 1, (), None, LogStart(1, 1, bytes(32)))),
            ((TOPIC, 2), PartitionAnswer(ErrorCode.NONE, 2, 1, (), OffsetAndEpoch(1, 1))),
        ),
    )

    assert answer_of(fetch_response(answer, same, nobody)) == answer


def test_one_wrong_byte_makes_the_whole_answer_unusable() -> None:
    """The follower appends nothing of it, and asks again."""
    answer = SessionAnswer(answers=((PLACE, PartitionAnswer(batches=some_batches())),))  # type: ignore[arg-type]
    message = fetch_response(answer, same, nobody)
    rng = random.Random(5)
    for _ in range(50):
        data = bytearray(message.partitions[0].batches)
        data[rng.randrange(12, len(data))] ^= 1 << rng.randrange(8)
        damaged = partition_pb2.FetchRecordsResponse.FromString(message.SerializeToString())
        damaged.partitions[0].batches = bytes(data)
        with pytest.raises(BadAnswer):
            answer_of(damaged)


@pytest.mark.parametrize("wrong", ["topic", "number", "offset", "chain", "twice"])
def test_an_impossible_answer_is_refused(wrong: str) -> None:
    """Ids, numbers and chains are checked before anything is used."""
    message = partition_pb2.FetchRecordsResponse()
    each = message.partitions.add(partition=partition_pb2.TopicIdPartition(topic_id=TOPIC, partition=0))
    if wrong == "topic":
        each.partition.topic_id = b"short"
    elif wrong == "number":
        each.partition.partition = -1
    elif wrong == "offset":
        each.high_watermark = -1
    elif wrong == "chain":
        each.begin_at.chain = b"short"
    else:
        message.partitions.append(each)

    with pytest.raises(BadAnswer):
        answer_of(message)


def test_a_follower_names_its_epochs() -> None:
    """Without them the leader could not tell a stale follower, or a divergence."""
    message = partition_pb2.FetchRecordsRequest(replica_id=103)
    message.partitions.add(partition=partition_pb2.TopicIdPartition(topic_id=TOPIC), offset=5, leader_epoch=3)

    with pytest.raises(Refusal, match="epoch of its last record"):
        fetch_of(message)


def test_an_error_of_leadership_names_the_leader() -> None:
    """A client that asks the wrong broker need not ask for metadata first (KIP-951)."""
    answer = SessionAnswer(answers=((PLACE, PartitionAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER)),))

    message = fetch_response(answer, same, lambda place: partition_pb2.CurrentLeader(leader_id=102, leader_epoch=6))

    assert message.partitions[0].error.code == common_pb2.NOT_LEADER_OR_FOLLOWER
    assert message.partitions[0].current_leader.leader_id == 102


def appending(
    *batches: partition_pb2.PartitionBatch, acks: int = -1, timeout_ms: int = 1_000
) -> partition_pb2.AppendRequest:
    return partition_pb2.AppendRequest(acks=acks, timeout_ms=timeout_ms, batches=batches)


def batch(partition: int = 0, count: int = 2, **fields: int) -> partition_pb2.PartitionBatch:
    """A batch of two records; `count` is what it says that it has."""
    packed = pack_records([DataRecord(5, b"k", b"v"), DataRecord(7, None, b"w")])
    place = partition_pb2.TopicIdPartition(topic_id=TOPIC, partition=partition)
    return partition_pb2.PartitionBatch(partition=place, record_count=count, records=packed.packed, **fields)


def test_a_wrong_batch_is_refused_alone() -> None:
    """The others of the request are appended."""
    good, wrong = writes_of(appending(batch(0), batch(1, count=3)))

    assert isinstance(good, Write)
    assert (good.records.record_count, good.records.last_timestamp_ms, good.stamp) == (2, 7, NO_STAMP)
    assert isinstance(wrong, Refused)
    assert wrong.code is ErrorCode.INVALID_REQUEST


def test_a_batch_has_its_producers_stamp() -> None:
    """A stamp out of range is no stamp."""
    stamped, negative = writes_of(
        appending(batch(0, producer_id=7, producer_epoch=1, base_sequence=40, leader_epoch=3), batch(1, producer_id=-1))
    )

    assert isinstance(stamped, Write)
    assert stamped.stamp == ProducerStamp(7, 1, 40)
    assert stamped.leader_epoch == 3
    assert isinstance(negative, Refused)


@pytest.mark.parametrize(
    "request_", [appending(acks=2), appending(timeout_ms=0), appending(batch(0), batch(0)), appending(batch(-1))]
)
def test_a_request_that_is_wrong_as_a_whole_is_refused(request_: partition_pb2.AppendRequest) -> None:
    """Unknown acks, no time to wait, a partition twice, an impossible partition."""
    with pytest.raises(Refusal) as caught:
        terms_of(request_)
        list(writes_of(request_))

    assert caught.value.reason == "INVALID_REQUEST"


def test_acks_have_kafkas_numbers() -> None:
    assert terms_of(appending(acks=-1)) == (Acks.ALL, 1_000)
    assert terms_of(appending(acks=0)) == (Acks.NONE, 1_000)


def test_every_batch_has_a_result_in_the_order_of_the_request() -> None:
    """An error has its text, and the present leader if it is one of leadership."""
    response = append_response(
        [Outcome(PLACE, ErrorCode.NONE, 5, 1), Outcome(OTHER, ErrorCode.NOT_LEADER_OR_FOLLOWER, text="moved")],
        lambda place: partition_pb2.CurrentLeader(leader_id=102, leader_epoch=6),
    )

    first, second = response.results
    assert (first.base_offset, first.log_start_offset, first.error.code) == (5, 1, 0)
    assert not first.HasField("current_leader")
    assert (second.base_offset, second.error.message, second.current_leader.leader_epoch) == (-1, "moved", 6)


def test_questions_for_offsets_name_what_they_want() -> None:
    """Earliest, latest or a time; a question without one is wrong."""
    place = partition_pb2.TopicIdPartition(topic_id=TOPIC)
    message = partition_pb2.ListOffsetsRequest(
        partitions=[
            partition_pb2.OffsetQuestion(partition=place, earliest=True),
            partition_pb2.OffsetQuestion(partition=place, latest=True, leader_epoch=4),
            partition_pb2.OffsetQuestion(partition=place, timestamp_ms=99),
        ]
    )

    assert [each[1:] for each in offset_questions(message)] == [
        (ANY_EPOCH, OffsetWanted.EARLIEST),
        (4, OffsetWanted.LATEST),
        (ANY_EPOCH, 99),
    ]
    message.partitions.add(partition=place)
    with pytest.raises(Refusal, match="earliest, latest or a time"):
        list(offset_questions(message))


def test_questions_for_epochs_name_one() -> None:
    place = partition_pb2.TopicIdPartition(topic_id=TOPIC, partition=1)
    message = partition_pb2.OffsetForLeaderEpochRequest()
    message.partitions.add(partition=place, leader_epoch=3)
    assert [tuple(each) for each in epoch_questions(message)] == [((TOPIC, 1), ANY_EPOCH, 3)]
    message.partitions.add(partition=place, leader_epoch=-3)
    with pytest.raises(Refusal, match="no epoch"):
        list(epoch_questions(message))
