"""What a producer or a consumer reads from a broker: the answers of PartitionService.

An input is the message of a call whose request is known. A bad answer is a `CallFailed`, and an accepted answer has only places
of the request and offsets that a client can use.
"""

from typing import Final

from google.protobuf.message import DecodeError
from quorum_rpc.v1 import common_pb2, partition_pb2

from clients import partition_messages as messages
from clients.partition_messages import CallFailed
from clients.partition_values import (
    AppendBatch,
    AppendRequest,
    EndOfLog,
    EpochQuestion,
    FetchRequest,
    OffsetQuestion,
    PartitionFetch,
    TopicIdPartition,
)
from metadata_log.format.data_batch import NO_STAMP
from tests.fuzz.mutation import messages_mutated
from tests.fuzz.target import Target

TOPIC: Final = bytes(range(16))
PLACES: Final = (TopicIdPartition(TOPIC, 0), TopicIdPartition(TOPIC, 1))
APPEND: Final = AppendRequest(-1, 1_000, tuple(AppendBatch(place, 1, NO_STAMP, 1, b"") for place in PLACES))
FETCH: Final = FetchRequest(tuple(PartitionFetch(place, 0) for place in PLACES), 100)
OFFSETS: Final = tuple(OffsetQuestion(place, EndOfLog.LATEST) for place in PLACES)
EPOCHS: Final = tuple(EpochQuestion(place, 3) for place in PLACES)

_MOVED: Final = common_pb2.Error(code=common_pb2.NOT_LEADER_OR_FOLLOWER, message="moved")
_LEADER: Final = partition_pb2.CurrentLeader(leader_id=102, leader_epoch=6)


def _told(number: int) -> partition_pb2.TopicIdPartition:
    return partition_pb2.TopicIdPartition(topic_id=TOPIC, partition=number)


def _append_answers() -> list[bytes]:
    good = partition_pb2.AppendResult(partition=_told(0), base_offset=500, log_start_offset=3)
    bad = partition_pb2.AppendResult(partition=_told(1), error=_MOVED, base_offset=-1, current_leader=_LEADER)
    return [partition_pb2.AppendResponse(results=[good, bad]).SerializeToString()]


def _fetch_answers() -> list[bytes]:
    good = partition_pb2.FetchedPartition(partition=_told(0), high_watermark=9, batches=b"batches")
    lost = partition_pb2.FetchedPartition(partition=_told(1), diverged=common_pb2.OffsetAndEpoch(offset=8, epoch=4))
    return [partition_pb2.FetchRecordsResponse(session_id=3, partitions=[good, lost]).SerializeToString()]


def _offset_answers() -> list[bytes]:
    good = partition_pb2.FoundOffset(partition=_told(0), offset=5, timestamp_ms=9, leader_epoch=2)
    bad = partition_pb2.FoundOffset(partition=_told(1), error=_MOVED, current_leader=_LEADER)
    return [partition_pb2.ListOffsetsResponse(partitions=[good, bad]).SerializeToString()]


def _epoch_answers() -> list[bytes]:
    good = partition_pb2.EpochEnd(partition=_told(0), leader_epoch=3, end_offset=77)
    none = partition_pb2.EpochEnd(partition=_told(1), leader_epoch=-1, end_offset=-1)
    return [partition_pb2.OffsetForLeaderEpochResponse(partitions=[good, none]).SerializeToString()]


def _ids() -> list[bytes]:
    return [partition_pb2.AllocateProducerIdResponse(producer_id=4_000).SerializeToString()]


def _check(place: TopicIdPartition, *numbers: int | None) -> None:
    assert place in PLACES
    assert all(number is None or number >= 0 for number in numbers)


def _take_append(data: bytes) -> None:
    answer = partition_pb2.AppendResponse.FromString(data)
    for each in messages.append_answer(APPEND, answer, "b1"):
        leader = each.current_leader
        _check(each.place, each.base_offset, each.log_start_offset, None if leader is None else leader.leader_epoch)


def _take_fetch(data: bytes) -> None:
    answer = messages.fetch_answer(FETCH, partition_pb2.FetchRecordsResponse.FromString(data), "b1")
    assert answer.session_id >= 0
    for each in answer.partitions:
        _check(each.place, each.high_watermark, each.log_start_offset, *(each.diverged or ()))


def _take_offsets(data: bytes) -> None:
    answer = partition_pb2.ListOffsetsResponse.FromString(data)
    for each in messages.offsets_answer(OFFSETS, answer, "b1"):
        _check(each.place, each.offset)


def _take_epochs(data: bytes) -> None:
    answer = partition_pb2.OffsetForLeaderEpochResponse.FromString(data)
    for each in messages.epochs_answer(EPOCHS, answer, "b1"):
        _check(each.place, *(each.end or ()))


def _take_id(data: bytes) -> None:
    assert messages.id_answer(partition_pb2.AllocateProducerIdResponse.FromString(data), "b1") >= 0


TARGETS: Final = tuple(
    Target(f"answer.PartitionService.{name}", samples, take, (CallFailed, DecodeError), messages_mutated(message_type))
    for name, message_type, samples, take in (
        ("Append", partition_pb2.AppendResponse, _append_answers, _take_append),
        ("FetchRecords", partition_pb2.FetchRecordsResponse, _fetch_answers, _take_fetch),
        ("ListOffsets", partition_pb2.ListOffsetsResponse, _offset_answers, _take_offsets),
        ("OffsetForLeaderEpoch", partition_pb2.OffsetForLeaderEpochResponse, _epoch_answers, _take_epochs),
        ("AllocateProducerId", partition_pb2.AllocateProducerIdResponse, _ids, _take_id),
    )
)
