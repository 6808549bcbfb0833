"""The wish that a leader is working at: a change of the voters, or of the leader. One at a time, and gone with its term.

A wish is first waited for (a newcomer has yet to catch up, a successor too), then written, then committed:

    asked --> waits --> record in the log, at `offset` --> committed --> answered
                 \\-- too late: nothing was done   \\-- too late: in force all the same, and may yet be committed
"""

from dataclasses import dataclass, replace

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Epoch, NodeId, Offset
from quorum.core.protocol.messages import QuorumChangeRequest, QuorumChangeResponse, TransferLeadershipRequest


@dataclass(frozen=True, slots=True)
class PendingChange:
    """A request that has passed its checks and is not answered yet."""

    request: QuorumChangeRequest
    reply_to: int | None
    """None: nobody waits, it is this node's own wish."""
    deadline_ms: int
    asked_at_end: Offset
    """The log's end when it was asked for."""
    offset: Offset | None = None
    """Where its record stands; None: it is not written."""

    def may_have_happened(self, why: str) -> str:
        return (
            f"{why}: the change stands at offset {self.offset} and is in force, and may yet be committed or taken back"
        )


@dataclass(slots=True)
class Changes:
    """A leader's place for it."""

    pending: PendingChange | None = None

    def written(self, offset: Offset) -> None:
        """The log has a new voter set at `offset`: what it was appended for."""
        if self.pending is not None:
            self.pending = replace(self.pending, offset=offset)


def last_word(
    change: PendingChange, epoch: Epoch, leader_id: NodeId | None, high_watermark: Offset | None
) -> QuorumChangeResponse:
    """The answer to `change` as its leader steps down."""
    if change.offset is None:
        what = "the transfer" if isinstance(change.request, TransferLeadershipRequest) else "the change"
        text = f"this controller ceased to lead before {what} could begin; nothing was done"
        return QuorumChangeResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, epoch, leader_id, text)
    if high_watermark is not None and high_watermark > change.offset:
        return QuorumChangeResponse(ErrorCode.NONE, epoch, leader_id, "committed", change.offset)
    text = change.may_have_happened("this controller ceased to lead before a majority had confirmed it")
    return QuorumChangeResponse(ErrorCode.REQUEST_TIMED_OUT, epoch, leader_id, text, change.offset)
