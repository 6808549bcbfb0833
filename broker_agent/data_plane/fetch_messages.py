"""Conversion of fetches between protobuf messages and values, both ways. No decisions.

A fetch crosses the wire twice as a message, and each side takes nothing on trust: counts, sizes and ids have limits, and batches
are decoded with their checksums. Example: broker 103 fetches orders-0 from broker 101.

    1. Broker 103 has a `SessionRequest` of its fetcher. `fetch_request` makes the message.
    2. Broker 101 gets the message. `fetch_of` makes the same `SessionRequest` of it, or refuses the request as a whole.
    3. Broker 101 answers. `answer_of` decodes each batch. One wrong byte makes the answer a `BadAnswer`: broker 103 asks again.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from quorum_rpc.v1 import common_pb2, partition_pb2

from broker_agent.replica.fetch_sessions import SessionAnswer, SessionRequest
from broker_agent.replica.follower import PARTITION_BYTES, LogStart, PartitionAnswer, PartitionFetch
from broker_agent.session.isr_proposals import Place
from metadata_log.format.batch import BATCH_BYTES_MAX, CHAIN_BYTES, decode_all
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import EPOCH_MAX, OFFSET_MAX, NodeId, OffsetAndEpoch
from service_kit.rpc.refusals import Refusal

FETCHES_MAX: Final = 100_000
"""Maximum number of partitions in one fetch."""
QUESTIONS_MAX: Final = 10_000
"""Maximum number of partitions in any other request."""
WAIT_MS_MAX: Final = 60_000
"""How long a fetch waits at most, whatever the caller asks for."""
RECORDS_BYTES_MAX: Final = 2 << 20
"""Maximum number of bytes of records that a request may want. The last batch may pass it by a batch, and the message stays
below gRPC's limit of 4 MiB."""
RECORDS_BYTES: Final = 1 << 20
"""How many bytes of records a request wants that does not say it."""
ANY_EPOCH: Final = -1
"""The epoch of a caller that does not name one."""
NO_REPLICA: Final = -1
"""The replica id of a consumer."""
_UUID_BYTES: Final = 16
_PARTITION_MAX: Final = (1 << 31) - 1


class BadAnswer(Exception):
    """A broker's answer cannot be what it should be. Nothing of it was used."""


class FetchLimits(NamedTuple):
    """How long one fetch may wait, and how much its answer may have."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int


class Fetch(NamedTuple):
    """One fetch as its source gets it."""

    replica_id: NodeId
    """The follower; NO_REPLICA for a consumer."""
    broker_epoch: int
    session: SessionRequest
    limits: FetchLimits

    @property
    def is_follower(self) -> bool:
        return self.replica_id != NO_REPLICA


# --- places ----------------------------------------------------------------------------------------------------------


def place_of(message: partition_pb2.TopicIdPartition) -> Place:
    """Raises ValueError: the id is none, or the number is negative."""
    topic_id, partition = message.topic_id, message.partition
    if len(topic_id) != _UUID_BYTES or partition < 0:
        raise ValueError(f"a partition has a topic id of {_UUID_BYTES} bytes and a number from 0 on")
    return topic_id, partition


def place_message(place: Place) -> partition_pb2.TopicIdPartition:
    return partition_pb2.TopicIdPartition(topic_id=place[0], partition=place[1])


def requested(message: partition_pb2.TopicIdPartition) -> Place:
    """Raises Refusal: as `place_of`."""
    try:
        return place_of(message)
    except ValueError as e:
        raise invalid(str(e)) from e


def invalid(text: str) -> Refusal:
    """The refusal of a request that is wrong, whatever the state of the cluster is."""
    return Refusal("INVALID_REQUEST", f"{text}. Nothing was done; correct the request")


def error_message(code: ErrorCode, text: str = "") -> common_pb2.Error | None:
    """The error of one partition; None for NONE."""
    if code is ErrorCode.NONE:
        return None
    return common_pb2.Error(code=code.value, message=text)  # type: ignore[arg-type]


# --- the follower's half ---------------------------------------------------------------------------------------------


def fetch_request(
    session: SessionRequest, replica_id: NodeId, broker_epoch: int, limits: FetchLimits
) -> partition_pb2.FetchRecordsRequest:
    """The request of a follower."""
    return partition_pb2.FetchRecordsRequest(
        replica_id=replica_id,
        broker_epoch=broker_epoch,
        session_id=session.session_id,
        session_epoch=session.epoch,
        partitions=[
            partition_pb2.PartitionFetch(
                partition=place_message(place),
                offset=each.offset,
                leader_epoch=each.leader_epoch,
                last_fetched_epoch=each.last_fetched_epoch,
                max_bytes=each.max_bytes,
            )
            for place, each in session.fetches
        ],
        forgotten=[place_message(place) for place in session.forgotten],
        max_wait_ms=limits.max_wait_ms,
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
    )


def answer_of(message: partition_pb2.FetchRecordsResponse) -> SessionAnswer:
    """Decodes the answer to a follower's fetch, with all its batches.

    Raises:
        BadAnswer: a number, an id or a batch is wrong.
    """
    try:
        answers = tuple((place_of(each.partition), _partition_answer(each)) for each in message.partitions)
    except ValueError as e:  # also LogFormatError
        raise BadAnswer(f"{e}. Nothing of the answer was used") from e
    if len({place for place, _ in answers}) < len(answers):
        raise BadAnswer("a partition comes twice. Nothing of the answer was used")
    return SessionAnswer(ErrorCode.NONE, message.session_id, answers)


def _partition_answer(each: partition_pb2.FetchedPartition) -> PartitionAnswer:
    start, diverged = None, None
    if each.HasField("begin_at"):
        found = each.begin_at
        if len(found.chain) != CHAIN_BYTES:
            raise ValueError(f"a chain has {CHAIN_BYTES} bytes, and not {len(found.chain)}")
        start = LogStart(_number(found.offset, OFFSET_MAX), _number(found.epoch, EPOCH_MAX), found.chain)
    if each.HasField("diverged"):
        at = each.diverged
        diverged = OffsetAndEpoch(_number(at.offset, OFFSET_MAX), _number(at.epoch, EPOCH_MAX))
    return PartitionAnswer(
        ErrorCode.of(each.error.code),
        _number(each.high_watermark, OFFSET_MAX),
        _number(each.log_start_offset, OFFSET_MAX),
        tuple(decode_all(each.batches)) if each.batches else (),
        diverged,
        start,
    )


def _number(value: int, largest: int) -> int:
    if not 0 <= value <= largest:
        raise ValueError(f"{value} is not from 0 to {largest}")
    return value


# --- the source's half -----------------------------------------------------------------------------------------------


def fetch_of(message: partition_pb2.FetchRecordsRequest) -> Fetch:
    """Checks a fetch, of a follower or of a consumer.

    Raises:
        Refusal: INVALID_REQUEST.
    """
    if len(message.partitions) > FETCHES_MAX or len(message.forgotten) > FETCHES_MAX:
        raise invalid(f"more than {FETCHES_MAX:,} partitions in one fetch")
    is_follower = message.HasField("replica_id")
    if is_follower and message.replica_id < 0:
        raise invalid(f"{message.replica_id} is no broker id")
    if message.session_id < 0 or message.session_epoch < -1:
        raise invalid(f"no session {message.session_id} with epoch {message.session_epoch}")
    fetches: list[tuple[Place, PartitionFetch]] = []
    for each in message.partitions:
        place = requested(each.partition)
        fetches.append((place, _partition_fetch(each, is_follower)))
    session = SessionRequest(
        message.session_id,
        message.session_epoch,
        tuple(fetches),
        tuple(requested(each) for each in message.forgotten),
    )
    limits = FetchLimits(
        min(max(message.max_wait_ms, 0), WAIT_MS_MAX),
        min(max(message.min_bytes, 1), BATCH_BYTES_MAX),
        min(message.max_bytes, RECORDS_BYTES_MAX) if message.max_bytes > 0 else RECORDS_BYTES,
    )
    replica_id = message.replica_id if is_follower else NO_REPLICA
    return Fetch(replica_id, message.broker_epoch, session, limits)


def _partition_fetch(each: partition_pb2.PartitionFetch, is_follower: bool) -> PartitionFetch:
    if not 0 <= each.offset <= OFFSET_MAX:
        raise invalid(f"{each.offset} is no offset")
    if is_follower and not (each.HasField("leader_epoch") and each.HasField("last_fetched_epoch")):
        raise invalid("a follower names its leader epoch and the epoch of its last record")
    return PartitionFetch(
        each.offset,
        epoch_or_any(each, "leader_epoch"),
        epoch_or_any(each, "last_fetched_epoch"),
        min(each.max_bytes, RECORDS_BYTES_MAX) if each.max_bytes > 0 else PARTITION_BYTES,
    )


def epoch_or_any(message: object, name: str) -> int:
    """The epoch in an optional field; ANY_EPOCH if it is not set. Raises Refusal if it is negative."""
    if not message.HasField(name):  # type: ignore[attr-defined]
        return ANY_EPOCH
    epoch = int(getattr(message, name))
    if epoch < 0:
        raise invalid(f"{epoch} is no epoch")
    return epoch


LeaderOf = Callable[[Place], partition_pb2.CurrentLeader | None]
"""The leader of a partition as this broker knows it; None: not known."""
LEADER_CODES: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
"""The errors that come with the present leader (KIP-951)."""


CodeFor = Callable[[Place, ErrorCode], ErrorCode]
"""The code that the caller gets for an error of a partition."""


def fetch_response(answer: SessionAnswer, code_for: CodeFor, leader_of: LeaderOf) -> partition_pb2.FetchRecordsResponse:
    """The answer of a source. The session's own error is a refusal of the request, and not part of the message."""
    assert answer.error is ErrorCode.NONE
    return partition_pb2.FetchRecordsResponse(
        session_id=answer.session_id, partitions=_fetched(answer.answers, code_for, leader_of)
    )


def _fetched(
    answers: Iterable[tuple[Place, PartitionAnswer]], code_for: CodeFor, leader_of: LeaderOf
) -> Iterable[partition_pb2.FetchedPartition]:
    for place, each in answers:
        code = each.error if each.error is ErrorCode.NONE else code_for(place, each.error)
        message = partition_pb2.FetchedPartition(
            partition=place_message(place),
            error=error_message(code),
            high_watermark=each.high_watermark,
            log_start_offset=each.log_start_offset,
        )
        if each.batches:
            parts = [batch.data for batch in each.batches]
            message.batches = parts[0] if len(parts) == 1 else b"".join(parts)
        if each.diverged is not None:
            message.diverged.offset, message.diverged.epoch = each.diverged
        if each.begin_at is not None:
            message.begin_at.offset, message.begin_at.epoch, message.begin_at.chain = each.begin_at
        if code in LEADER_CODES and (leader := leader_of(place)) is not None:
            message.current_leader.CopyFrom(leader)
        yield message
