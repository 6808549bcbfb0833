"""Reads batches of the log and pieces of snapshots for another controller whose disk has lost them.

Any voter may answer, leader or not. The asking node takes batches only if their chain proves them; the content of a snapshot is
committed in any case.
"""

from metadata_log.format.batch import Batch
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Epoch, NodeId
from metadata_log.store.log_view import LogView
from quorum.core.protocol.messages import ReadLogRequest, ReadLogResponse, ReadSnapshotRequest, ReadSnapshotResponse
from snapshots.store import PositionOutOfRange, SnapshotNotFound, SnapshotStore

READ_BYTES_MAX = 1 << 20
"""Maximum number of bytes in an answer; a single batch may be longer, up to its own limit."""


def read_log(request: ReadLogRequest, log: LogView, *, epoch: Epoch, leader_id: NodeId | None) -> ReadLogResponse:
    """Returns whole durable batches of the requested range, committed or not.

    The asking node takes only the bytes that it had before, proven by the chain, so uncommitted batches do no harm.
    Counter-example, if a voter gave only batches that it knows to be committed:
        1. voter 1 of {1, 2, 3} is gone for good; voter 2 has a damaged range [40, 45), and its log ends at 50;
        2. voter 3 has the log up to 45, but has never learnt that [40, 45) is committed, so voter 3 gives nothing;
        3. voter 2 must not lead with damage, and voter 3 cannot win with its shorter log: no leader, for ever.

    Raises:
        CorruptLog: the range is damaged on this node, too, which was not known before.
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
    """Returns a piece of a snapshot of this node."""
    max_bytes = max(1, min(request.max_bytes, READ_BYTES_MAX))
    try:
        size, data = store.read_chunk(request.snapshot, request.position, max_bytes)
    except SnapshotNotFound:
        return ReadSnapshotResponse(ErrorCode.SNAPSHOT_NOT_FOUND, epoch, leader_id)
    except PositionOutOfRange:
        return ReadSnapshotResponse(ErrorCode.POSITION_OUT_OF_RANGE, epoch, leader_id)
    return ReadSnapshotResponse(ErrorCode.NONE, epoch, leader_id, size, request.position, data)
