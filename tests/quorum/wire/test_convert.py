"""What controllers say to each other survives the wire, whatever it says; what is malformed is refused by name."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quorum_rpc.v1 import common_pb2, voter_pb2

from metadata_log.disk.identity import Identity
from metadata_log.format.batch import CHAIN_BYTES, Batch, encode
from metadata_log.format.errors import ErrorCode
from metadata_log.format.fetch_size import BatchPart
from metadata_log.format.ids import OffsetAndEpoch, ReplicaKey
from metadata_log.format.records import Endpoint, FeatureRange
from quorum.core.protocol import messages as m
from quorum.wire.convert import convert_membership
from quorum.wire.convert import convert_raft as convert
from quorum.wire.convert.errors import BadMessage

INT32 = st.integers(0, (1 << 31) - 1)
INT64 = st.integers(0, (1 << 63) - 1)
UUIDS = st.binary(min_size=16, max_size=16)
KEYS = st.builds(ReplicaKey, INT32, UUIDS)
CODES = st.sampled_from(ErrorCode)
LEADERS = st.none() | INT32
POSITIONS = st.builds(OffsetAndEpoch, INT64, INT32)
CHAINS = st.binary(min_size=32, max_size=32) | st.just(b"")


def batch(base_offset: int, payload: bytes) -> Batch:
    return encode(
        payload,
        base_offset=base_offset,
        epoch=3,
        record_count=2,
        first_timestamp_ms=1,
        last_timestamp_ms=2,
        is_control=False,
        previous_chain=bytes(CHAIN_BYTES),
    )


FETCHES = st.builds(
    m.FetchRequest,
    *(KEYS, INT32, INT64, INT64, INT32, CHAINS, INT64, INT32, INT32, INT64, INT64, INT64, CHAINS, st.booleans()),
    part_position=st.none() | INT64,
)
PARTS = st.builds(BatchPart, st.integers(0, 1_000), st.integers(1_300, 1 << 20), st.binary(min_size=1, max_size=300))
BATCHES = st.lists(st.builds(batch, st.integers(0, 1 << 40), st.binary(min_size=1, max_size=300)), max_size=3).map(
    tuple
)


def me(key: ReplicaKey) -> voter_pb2.Sender:
    return convert.sender(Identity("cluster", key.node_id, key.directory_id, 1, "controller"))


def over_the_wire(message: Any) -> Any:
    return type(message).FromString(message.SerializeToString())


@given(st.builds(m.VoteRequest, KEYS, KEYS, INT32, INT32, INT64, st.booleans()))
def test_votes(request: m.VoteRequest) -> None:
    """Who asks stands in the sender, and comes back as the candidate."""
    assert convert.from_vote(over_the_wire(convert.to_vote(request, me(request.candidate)))) == request


@given(st.builds(m.BeginQuorumEpochRequest, KEYS, KEYS, INT32))
def test_begin_quorum_epoch(request: m.BeginQuorumEpochRequest) -> None:
    """The sender is the leader."""
    assert convert.from_begin(over_the_wire(convert.to_begin(request, me(request.leader)))) == request


@given(st.builds(m.EndQuorumEpochRequest, KEYS, INT32, st.lists(KEYS, max_size=4).map(tuple)))
def test_end_quorum_epoch(request: m.EndQuorumEpochRequest) -> None:
    """The ranking keeps its order."""
    assert convert.from_end(over_the_wire(convert.to_end(request, me(request.leader)))) == request


@given(FETCHES)
def test_fetches(request: m.FetchRequest) -> None:
    """A fetch is the same on the other side, its chain and read token included."""
    assert convert.from_fetch(over_the_wire(convert.to_fetch(request, me(request.replica)))) == request


@given(st.builds(m.FetchSnapshotRequest, KEYS, INT32, INT64, POSITIONS, INT64, INT32))
def test_snapshot_fetches(request: m.FetchSnapshotRequest) -> None:
    """The same for a snapshot's chunk."""
    message = over_the_wire(convert.to_fetch_snapshot(request, me(request.replica)))
    assert convert.from_fetch_snapshot(message) == request


@given(
    st.builds(m.ReadLogRequest, KEYS, INT64, INT64, INT32),
    st.builds(m.ReadLogResponse, CODES, INT32, LEADERS, BATCHES, INT64, st.none() | POSITIONS),
)
def test_reading_a_log(request: m.ReadLogRequest, response: m.ReadLogResponse) -> None:
    """What one controller mends its log with is what the other has: the same bytes."""
    assert convert.from_read_log(over_the_wire(convert.to_read_log(request, me(request.replica)))) == request
    assert convert.from_read_log_response(over_the_wire(convert.to_read_log_response(response))) == response


@given(
    st.builds(m.ReadSnapshotRequest, KEYS, POSITIONS, INT64, INT32),
    st.builds(m.ReadSnapshotResponse, CODES, INT32, LEADERS, INT64, INT64, st.binary(max_size=40)),
)
def test_reading_a_snapshot(request: m.ReadSnapshotRequest, response: m.ReadSnapshotResponse) -> None:
    """A piece of the very file."""
    message = over_the_wire(convert.to_read_snapshot(request, me(request.replica)))
    assert convert.from_read_snapshot(message) == request
    assert convert.from_read_snapshot_response(over_the_wire(convert.to_read_snapshot_response(response))) == response


@given(
    st.builds(
        m.FetchResponse,
        error=CODES,
        epoch=INT32,
        leader_id=LEADERS,
        number=INT64,
        high_watermark=st.none() | INT64,
        log_start=INT64,
        batches=BATCHES,
        diverging=st.none() | POSITIONS,
        snapshot=st.none() | POSITIONS,
        successors=st.lists(INT32, max_size=4).map(tuple),
        read_token=INT64,
        image_differs=st.booleans(),
        log_end=INT64,
        part=st.none() | PARTS,
    )
)
def test_fetch_responses(response: m.FetchResponse) -> None:
    """Absent stays absent (an unknown high watermark is not 0), and batches are the same bytes."""
    assert convert.from_fetch_response(over_the_wire(convert.to_fetch_response(response))) == response


@given(FETCHES, KEYS)
def test_a_fetch_under_another_key(request: m.FetchRequest, sender: ReplicaKey) -> None:
    """A node that may not acknowledge fetches as nobody: the fetch's own key counts, not the sender's."""
    sender = ReplicaKey(request.replica.node_id, sender.directory_id)
    assert convert.from_fetch(over_the_wire(convert.to_fetch(request, me(sender)))) == request


@given(
    st.builds(m.ChainRequest, KEYS, INT64, INT32),
    st.builds(m.ChainResponse, CODES, INT32, LEADERS, st.none() | st.binary(min_size=32, max_size=32), INT64, INT32),
)
def test_a_chain_asked_for(request: m.ChainRequest, response: m.ChainResponse) -> None:
    """A chain that is not known is none, not an empty one."""
    assert convert.from_chain(over_the_wire(convert.to_chain(request, me(request.replica)))) == request
    assert convert.from_chain_response(over_the_wire(convert.to_chain_response(response))) == response


@given(CODES, INT32, LEADERS, st.booleans(), INT64, st.binary(max_size=50))
def test_the_other_responses(
    code: ErrorCode, epoch: int, leader: int | None, granted: bool, number: int, data: bytes
) -> None:
    """Leader 0 is a leader, None is none."""
    vote = m.VoteResponse(code, epoch, leader, granted)
    begin = m.BeginQuorumEpochResponse(code, epoch, leader)
    end = m.EndQuorumEpochResponse(code, epoch, leader)
    chunk = m.FetchSnapshotResponse(code, epoch, leader, number, len(data), number, data)
    assert convert.from_vote_response(over_the_wire(convert.to_vote_response(vote))) == vote
    assert convert.from_begin_response(over_the_wire(convert.to_begin_response(begin))) == begin
    assert convert.from_end_response(over_the_wire(convert.to_end_response(end))) == end
    assert convert.from_fetch_snapshot_response(over_the_wire(convert.to_fetch_snapshot_response(chunk))) == chunk


def test_the_error_codes_are_the_wires_number_by_number() -> None:
    """Two enums, one numbering: a code added on one side only would travel as something else."""
    assert {code.name: code.value for code in ErrorCode} == dict(common_pb2.ErrorCode.items())


@given(st.binary(max_size=40).filter(lambda value: len(value) != 16))
def test_an_id_of_another_length_is_refused(directory_id: bytes) -> None:
    """Nobody is known by half an id."""
    sender = voter_pb2.Sender(replica=common_pb2.ReplicaKey(node_id=1, directory_id=directory_id))
    with pytest.raises(BadMessage, match="directory_id"):
        convert.from_fetch(voter_pb2.FetchRequest(sender=sender))


@given(st.integers(12, 200), st.integers(1, 255))
def test_a_flipped_bit_in_a_batch_is_refused(position: int, mask: int) -> None:
    """What a bad cable changed is not passed on. (The header's first bytes are under the chain, which the log checks.)"""
    data = bytearray(batch(5, bytes(200)).data)
    data[position] ^= mask
    with pytest.raises(BadMessage, match="batches"):
        convert.from_fetch_response(voter_pb2.FetchResponse(batches=bytes(data)))


@pytest.mark.parametrize(
    "part",
    [
        common_pb2.BatchPart(position=-1, size=9, data=b"d"),
        common_pb2.BatchPart(position=9, size=9, data=b"d"),
        common_pb2.BatchPart(position=0, size=9),
        common_pb2.BatchPart(position=0, size=(1 << 20) + 1, data=b"d"),
        common_pb2.BatchPart(position=5, size=8, data=b"four"),
    ],
)
def test_what_cannot_be_a_part_of_a_batch_is_refused(part: common_pb2.BatchPart) -> None:
    """Before room is made for a batch of that size."""
    with pytest.raises(BadMessage, match="of a batch of"):
        convert.from_fetch_response(voter_pb2.FetchResponse(part=part))


@given(
    st.builds(
        m.RegisterControllerRequest,
        KEYS,
        st.lists(
            st.builds(Endpoint, st.text(max_size=9), st.text(min_size=1, max_size=9), st.integers(1, 65_535)),
            max_size=3,
        ).map(tuple),
        st.lists(st.builds(FeatureRange, st.text(max_size=9), INT32, INT32), max_size=3).map(tuple),
    ),
    st.builds(m.RegisterControllerResponse, CODES, INT32, LEADERS),
)
def test_a_registration(request: m.RegisterControllerRequest, response: m.RegisterControllerResponse) -> None:
    """The sender is the controller that registers."""
    message = over_the_wire(convert_membership.to_register_controller(request, me(request.controller)))
    assert convert_membership.from_register_controller(message) == request
    answer = over_the_wire(convert_membership.to_register_controller_response(response))
    assert convert_membership.from_register_controller_response(answer) == response
