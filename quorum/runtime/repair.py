"""Mending a damaged log from what the other controllers hold: asking for it, and answering those who ask."""

from metadata_log.batch import Batch
from metadata_log.errors import CorruptLog, ErrorCode
from metadata_log.ids import Epoch, NodeId, Offset
from metadata_log.log import Log
from quorum.core.messages import ReadLogRequest, ReadLogResponse

READ_BYTES_MAX = 1 << 20
"""At most this much in one answer, except for a single batch, which has its own limit."""


def read_log(
    request: ReadLogRequest, log: Log, committed_end: Offset, *, epoch: Epoch, leader_id: NodeId | None
) -> ReadLogResponse:
    """What this node gives of what was asked for: whole batches, and only below `committed_end`.

    What is not committed may be taken back, and what is not durable here may be forgotten: with either, the one who asks would
    mend its log with a history that never was.
    """
    start = log.shape.start.offset
    until = min(request.end_offset, committed_end)
    batches: tuple[Batch, ...] = ()
    error = ErrorCode.OFFSET_OUT_OF_RANGE
    if start <= request.offset < until:
        try:
            if log.is_boundary(request.offset):
                batches = log.read(request.offset, max(1, min(request.max_bytes, READ_BYTES_MAX)), until)
        except CorruptLog:
            error = ErrorCode.STORAGE_ERROR
    if batches:
        error = ErrorCode.NONE
    return ReadLogResponse(error, epoch, leader_id, batches, start)
