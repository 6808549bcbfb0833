"""Translates between protobuf and the messages of controllers. Decides nothing."""

from quorum_rpc.v1 import common_pb2, voter_pb2

from metadata_log.disk.identity import Identity
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import OffsetAndEpoch, ReplicaKey
from quorum.core.protocol.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    ChainRequest,
    ChainResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    PeerResponse,
    ReadLogRequest,
    ReadLogResponse,
    ReadSnapshotRequest,
    ReadSnapshotResponse,
    VoteRequest,
    VoteResponse,
)
from quorum.core.protocol.voters import VOTERS_MAX
from quorum.wire.convert.errors import BadMessage, wire_code
from quorum.wire.convert.parts import (
    at_most,
    chain,
    from_part,
    from_replica,
    from_snapshot_id,
    join,
    split,
    to_part,
    to_replica,
    to_snapshot_id,
)

# --- requests ------------------------------------------------------------------------------------------------------


def sender(identity: Identity) -> voter_pb2.Sender:
    """Returns the sender of this node's requests. Every request has the same sender, so build it once."""
    return voter_pb2.Sender(
        cluster_id=identity.cluster_id,
        replica=common_pb2.ReplicaKey(node_id=identity.node_id, directory_id=identity.directory_id),
        generation=identity.generation,
    )


def _sender_as(replica: ReplicaKey, me: voter_pb2.Sender) -> voter_pb2.Sender:
    """Returns `me` with the key of `replica`: a node that may not acknowledge fetches under a random key.

    See `quorum.core.protocol.disk_trust`.
    """
    if me.replica.directory_id == replica.directory_id:
        return me
    return voter_pb2.Sender(cluster_id=me.cluster_id, replica=to_replica(replica), generation=me.generation)


def from_vote(message: voter_pb2.VoteRequest) -> VoteRequest:
    return VoteRequest(
        candidate=from_replica(message.sender.replica),
        receiver=from_replica(message.receiver),
        epoch=message.epoch,
        last_epoch=message.last_epoch,
        end_offset=message.end_offset,
        pre_vote=message.pre_vote,
    )


def to_vote(request: VoteRequest, me: voter_pb2.Sender) -> voter_pb2.VoteRequest:
    return voter_pb2.VoteRequest(
        sender=me,
        receiver=to_replica(request.receiver),
        epoch=request.epoch,
        last_epoch=request.last_epoch,
        end_offset=request.end_offset,
        pre_vote=request.pre_vote,
    )


def from_begin(message: voter_pb2.BeginQuorumEpochRequest) -> BeginQuorumEpochRequest:
    return BeginQuorumEpochRequest(
        leader=from_replica(message.sender.replica), receiver=from_replica(message.receiver), epoch=message.epoch
    )


def to_begin(request: BeginQuorumEpochRequest, me: voter_pb2.Sender) -> voter_pb2.BeginQuorumEpochRequest:
    return voter_pb2.BeginQuorumEpochRequest(sender=me, receiver=to_replica(request.receiver), epoch=request.epoch)


def from_end(message: voter_pb2.EndQuorumEpochRequest) -> EndQuorumEpochRequest:
    at_most(VOTERS_MAX, len(message.preferred_successors), "successors")
    return EndQuorumEpochRequest(
        leader=from_replica(message.sender.replica),
        epoch=message.epoch,
        preferred_successors=tuple(from_replica(key) for key in message.preferred_successors),
    )


def to_end(request: EndQuorumEpochRequest, me: voter_pb2.Sender) -> voter_pb2.EndQuorumEpochRequest:
    return voter_pb2.EndQuorumEpochRequest(
        sender=me,
        epoch=request.epoch,
        preferred_successors=[to_replica(key) for key in request.preferred_successors],
    )


def from_fetch(message: voter_pb2.FetchRequest) -> FetchRequest:
    return FetchRequest(
        replica=from_replica(message.sender.replica),
        epoch=message.epoch,
        number=message.number,
        fetch_offset=message.fetch_offset,
        last_fetched_epoch=message.last_fetched_epoch,
        chain=chain(message.chain, "chain"),
        high_watermark=message.high_watermark,
        max_wait_ms=message.max_wait_ms,
        max_bytes=message.max_bytes,
        read_token=message.read_token,
        incarnation=message.incarnation,
        applied_offset=message.applied_offset,
        digest=chain(message.digest, "digest"),
        damaged=message.damaged,
        part_position=message.part_position if message.HasField("part_position") else None,
    )


def to_fetch(request: FetchRequest, me: voter_pb2.Sender) -> voter_pb2.FetchRequest:
    return voter_pb2.FetchRequest(
        sender=_sender_as(request.replica, me),
        epoch=request.epoch,
        number=request.number,
        fetch_offset=request.fetch_offset,
        last_fetched_epoch=request.last_fetched_epoch,
        chain=request.chain,
        high_watermark=request.high_watermark,
        max_wait_ms=request.max_wait_ms,
        max_bytes=request.max_bytes,
        read_token=request.read_token,
        incarnation=request.incarnation,
        applied_offset=request.applied_offset,
        digest=request.digest,
        damaged=request.damaged,
        part_position=request.part_position,
    )


def from_fetch_snapshot(message: voter_pb2.FetchSnapshotRequest) -> FetchSnapshotRequest:
    return FetchSnapshotRequest(
        replica=from_replica(message.sender.replica),
        epoch=message.epoch,
        number=message.number,
        snapshot=from_snapshot_id(message.snapshot),
        position=message.position,
        max_bytes=message.max_bytes,
    )


def to_fetch_snapshot(request: FetchSnapshotRequest, me: voter_pb2.Sender) -> voter_pb2.FetchSnapshotRequest:
    return voter_pb2.FetchSnapshotRequest(
        sender=_sender_as(request.replica, me),
        epoch=request.epoch,
        number=request.number,
        snapshot=to_snapshot_id(request.snapshot),
        position=request.position,
        max_bytes=request.max_bytes,
    )


def from_read_log(message: voter_pb2.ReadLogRequest) -> ReadLogRequest:
    return ReadLogRequest(
        replica=from_replica(message.sender.replica),
        offset=message.offset,
        end_offset=message.end_offset,
        max_bytes=message.max_bytes,
    )


def to_read_log(request: ReadLogRequest, me: voter_pb2.Sender) -> voter_pb2.ReadLogRequest:
    return voter_pb2.ReadLogRequest(
        sender=me, offset=request.offset, end_offset=request.end_offset, max_bytes=request.max_bytes
    )


def from_read_snapshot(message: voter_pb2.ReadSnapshotRequest) -> ReadSnapshotRequest:
    return ReadSnapshotRequest(
        replica=from_replica(message.sender.replica),
        snapshot=from_snapshot_id(message.snapshot),
        position=message.position,
        max_bytes=message.max_bytes,
    )


def to_read_snapshot(request: ReadSnapshotRequest, me: voter_pb2.Sender) -> voter_pb2.ReadSnapshotRequest:
    return voter_pb2.ReadSnapshotRequest(
        sender=me,
        snapshot=to_snapshot_id(request.snapshot),
        position=request.position,
        max_bytes=request.max_bytes,
    )


def from_chain(message: voter_pb2.DescribeChainRequest) -> ChainRequest:
    return ChainRequest(from_replica(message.sender.replica), message.offset, message.epoch)


def to_chain(request: ChainRequest, me: voter_pb2.Sender) -> voter_pb2.DescribeChainRequest:
    return voter_pb2.DescribeChainRequest(sender=me, offset=request.offset, epoch=request.epoch)


# --- responses -----------------------------------------------------------------------------------------------------


def _standing(response: PeerResponse) -> voter_pb2.Standing:
    return voter_pb2.Standing(error=wire_code(response.error), epoch=response.epoch, leader_id=response.leader_id)


def _leader(standing: voter_pb2.Standing) -> int | None:
    return standing.leader_id if standing.HasField("leader_id") else None


def to_vote_response(response: VoteResponse) -> voter_pb2.VoteResponse:
    return voter_pb2.VoteResponse(standing=_standing(response), vote_granted=response.vote_granted)


def from_vote_response(message: voter_pb2.VoteResponse) -> VoteResponse:
    standing = message.standing
    return VoteResponse(ErrorCode.of(standing.error), standing.epoch, _leader(standing), message.vote_granted)


def to_begin_response(response: BeginQuorumEpochResponse) -> voter_pb2.BeginQuorumEpochResponse:
    return voter_pb2.BeginQuorumEpochResponse(standing=_standing(response))


def from_begin_response(message: voter_pb2.BeginQuorumEpochResponse) -> BeginQuorumEpochResponse:
    standing = message.standing
    return BeginQuorumEpochResponse(ErrorCode.of(standing.error), standing.epoch, _leader(standing))


def to_end_response(response: EndQuorumEpochResponse) -> voter_pb2.EndQuorumEpochResponse:
    return voter_pb2.EndQuorumEpochResponse(standing=_standing(response))


def from_end_response(message: voter_pb2.EndQuorumEpochResponse) -> EndQuorumEpochResponse:
    standing = message.standing
    return EndQuorumEpochResponse(ErrorCode.of(standing.error), standing.epoch, _leader(standing))


def to_fetch_response(response: FetchResponse) -> voter_pb2.FetchResponse:
    diverging, snapshot = response.diverging, response.snapshot
    return voter_pb2.FetchResponse(
        standing=_standing(response),
        number=response.number,
        high_watermark=response.high_watermark,
        log_start=response.log_start,
        batches=join(response.batches),
        diverging=None
        if diverging is None
        else common_pb2.OffsetAndEpoch(offset=diverging.offset, epoch=diverging.epoch),
        snapshot=None if snapshot is None else to_snapshot_id(snapshot),
        successors=response.successors,
        read_token=response.read_token,
        image_differs=response.image_differs,
        log_end=response.log_end,
        part=None if response.part is None else to_part(response.part),
    )


def from_fetch_response(message: voter_pb2.FetchResponse) -> FetchResponse:
    at_most(VOTERS_MAX, len(message.successors), "successors")
    standing, diverging = message.standing, message.diverging
    return FetchResponse(
        error=ErrorCode.of(standing.error),
        epoch=standing.epoch,
        leader_id=_leader(standing),
        number=message.number,
        high_watermark=message.high_watermark if message.HasField("high_watermark") else None,
        log_start=message.log_start,
        batches=split(message.batches),
        diverging=OffsetAndEpoch(diverging.offset, diverging.epoch) if message.HasField("diverging") else None,
        snapshot=from_snapshot_id(message.snapshot) if message.HasField("snapshot") else None,
        successors=tuple(message.successors),
        read_token=message.read_token,
        image_differs=message.image_differs,
        log_end=message.log_end,
        part=from_part(message.part) if message.HasField("part") else None,
    )


def to_fetch_snapshot_response(response: FetchSnapshotResponse) -> voter_pb2.FetchSnapshotResponse:
    return voter_pb2.FetchSnapshotResponse(
        standing=_standing(response),
        number=response.number,
        size=response.size,
        position=response.position,
        data=response.data,
    )


def from_fetch_snapshot_response(message: voter_pb2.FetchSnapshotResponse) -> FetchSnapshotResponse:
    if message.size < 0 or message.position < 0:
        raise BadMessage(f"a snapshot of {message.size} bytes, position {message.position}")
    standing = message.standing
    return FetchSnapshotResponse(
        error=ErrorCode.of(standing.error),
        epoch=standing.epoch,
        leader_id=_leader(standing),
        number=message.number,
        size=message.size,
        position=message.position,
        data=message.data,
    )


def to_read_log_response(response: ReadLogResponse) -> voter_pb2.ReadLogResponse:
    snapshot = response.snapshot
    return voter_pb2.ReadLogResponse(
        standing=_standing(response),
        batches=join(response.batches),
        log_start=response.log_start,
        snapshot=None if snapshot is None else to_snapshot_id(snapshot),
    )


def from_read_log_response(message: voter_pb2.ReadLogResponse) -> ReadLogResponse:
    standing = message.standing
    return ReadLogResponse(
        error=ErrorCode.of(standing.error),
        epoch=standing.epoch,
        leader_id=_leader(standing),
        batches=split(message.batches),
        log_start=message.log_start,
        snapshot=from_snapshot_id(message.snapshot) if message.HasField("snapshot") else None,
    )


def to_read_snapshot_response(response: ReadSnapshotResponse) -> voter_pb2.ReadSnapshotResponse:
    return voter_pb2.ReadSnapshotResponse(
        standing=_standing(response), size=response.size, position=response.position, data=response.data
    )


def from_read_snapshot_response(message: voter_pb2.ReadSnapshotResponse) -> ReadSnapshotResponse:
    if message.size < 0 or message.position < 0:
        raise BadMessage(f"a snapshot of {message.size} bytes, position {message.position}")
    standing = message.standing
    return ReadSnapshotResponse(
        error=ErrorCode.of(standing.error),
        epoch=standing.epoch,
        leader_id=_leader(standing),
        size=message.size,
        position=message.position,
        data=message.data,
    )


def to_chain_response(response: ChainResponse) -> voter_pb2.DescribeChainResponse:
    return voter_pb2.DescribeChainResponse(
        standing=_standing(response),
        chain=response.chain or b"",
        end_offset=response.end_offset,
        last_epoch=response.last_epoch,
    )


def from_chain_response(message: voter_pb2.DescribeChainResponse) -> ChainResponse:
    standing = message.standing
    return ChainResponse(
        error=ErrorCode.of(standing.error),
        epoch=standing.epoch,
        leader_id=_leader(standing),
        chain=chain(message.chain, "chain") or None,
        end_offset=message.end_offset,
        last_epoch=message.last_epoch,
    )
