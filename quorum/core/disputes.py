"""Whose history is it, if two differ at equal (offset, epoch)?"""

from metadata_log.errors import ErrorCode
from quorum.core.messages import ChainRequest, ChainResponse
from quorum.core.quorum_state import QuorumState


def on_chain_request(q: QuorumState, request: ChainRequest, reply_to: int, chain_at_offset: bytes | None) -> None:
    """A witness says what is on its disk; `chain_at_offset` is this node's chain there."""
    error, chain, shape = ErrorCode.NONE, None, q.shape
    if min(request.offset, request.epoch, request.replica.node_id) < 0:
        error = ErrorCode.INVALID_REQUEST
    elif request.offset <= shape.flushed_end and shape.epoch_below(request.offset) == request.epoch:
        chain = chain_at_offset
    q.reply(reply_to, ChainResponse(error, q.epoch, q.leader_hint, chain, shape.flushed_end, shape.last_epoch))
