"""Changing who votes and who leads, at somebody's wish (KIP-853; Raft 3.10, 4)."""

from metadata_log.errors import ErrorCode
from quorum.core.messages import QuorumChangeRequest, QuorumChangeResponse
from quorum.core.quorum_state import QuorumState
from quorum.core.roles import Leader


def on_request(q: QuorumState, request: QuorumChangeRequest, reply_to: int) -> None:
    """Only a leader changes anything; whoever else is asked names the one that it knows."""
    if q.shutting_down:
        error, message = ErrorCode.BROKER_NOT_AVAILABLE, "this controller is shutting down; nothing was done"
    elif not isinstance(q.role, Leader):
        error, message = ErrorCode.NOT_LEADER_OR_FOLLOWER, "this controller does not lead; nothing was done"
    else:
        error, message = ErrorCode.UNSUPPORTED_VERSION, f"{type(request).__name__} is not known here; nothing was done"
    q.reply(reply_to, QuorumChangeResponse(error, q.epoch, q.leader_hint, message))
