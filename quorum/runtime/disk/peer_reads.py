"""What a controller gives another one whose disk has lost it: batches of its log, pieces of its snapshots.

Whoever leads: the asker takes nothing but what it can prove, or what is committed.
"""

from metadata_log.format.batch import Batch
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Epoch, NodeId
from metadata_log.store.log_view import LogView
from quorum.core.protocol.messages import ReadLogRequest, ReadLogResponse, ReadSnapshotRequest, ReadSnapshotResponse
from snapshots.store import PositionOutOfRange, SnapshotNotFound, SnapshotStore

READ_BYTES_MAX = 1 << 20
"""At most this much in one answer, except for a single batch, which has its own limit."""


def read_log(request: ReadLogRequest, log: LogView, *, epoch: Epoch, leader_id: NodeId | None) -> ReadLogResponse:
    """What this node gives of what was asked for: whole batches that are durable here.

    Committed or not: whoever asks takes nothing but the very bytes that it had, proven by the chain. Counter-example to giving
    only what is known to be committed: of three, one is gone, one has damage, and the third holds what is missing but has never
    heard that it is committed. The damaged one must not lead, the third is not far enough to, and so nobody ever commits.

    Raises:
        CorruptLog: it is damaged here too, and nobody knew.
    """
    start = log.shape.start.offset
    until = min(request.end_offset, log.shape.flushed_end)
    batches: tuple[Batch, ...] = ()
    error = ErrorCode.OFFSET_OUT_OF_RANGE
    if start <= request.offset < until:
        if log.is_damaged_at(request.offset):
            error = ErrorCode.STORAGE_ERROR
        elif log.is_boundary(request.offset):
            batches = log.read(request.offset, max(1, min(request.max_bytes, READ_BYTES_MAX)), until)
    if batches:
        error = ErrorCode.NONE
    return ReadLogResponse(error, epoch, leader_id, batches, start, log.shape.snapshot)


def read_snapshot(
    request: ReadSnapshotRequest, store: SnapshotStore, *, epoch: Epoch, leader_id: NodeId | None
) -> ReadSnapshotResponse:
    """A piece of a snapshot that is whole here."""
    max_bytes = max(1, min(request.max_bytes, READ_BYTES_MAX))
    try:
        size, data = store.read_chunk(request.snapshot, request.position, max_bytes)
    except SnapshotNotFound:
        return ReadSnapshotResponse(ErrorCode.SNAPSHOT_NOT_FOUND, epoch, leader_id)
    except PositionOutOfRange:
        return ReadSnapshotResponse(ErrorCode.POSITION_OUT_OF_RANGE, epoch, leader_id)
    return ReadSnapshotResponse(ErrorCode.NONE, epoch, leader_id, size, request.position, data)
