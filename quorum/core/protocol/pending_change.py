"""The leader's change in progress: of the voters, or of the leader. A leader makes one change at a time.

The leader first waits (a new voter or a successor has to catch up), then appends the record, then waits for the commit:

    requested --> waiting --> record in the log, at `offset` --> committed --> answered
                     \\-- timeout: nothing was done   \\-- timeout: in effect all the same, and may yet be committed

Example: an operator asks leader 1 to add controller 4. Controller 4 catches up, leader 1 appends {1,2,3,4} at offset
40, and three of the four voters commit the record. If leader 1 loses its office before, the operator reads "may yet be
committed".
"""

from dataclasses import dataclass, replace

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Epoch, NodeId, Offset
from quorum.core.protocol.messages import QuorumChangeRequest, QuorumChangeResponse, TransferLeadershipRequest


@dataclass(frozen=True, slots=True)
class PendingChange:
    """A request which has passed the checks and is not answered yet."""

    request: QuorumChangeRequest
    reply_to: int | None
    """None: the node's own request, without a waiting client."""
    deadline_ms: int
    asked_at_end: Offset
    """The log's end at the time of the request."""
    offset: Offset | None = None
    """The offset of the change's record. None: not written."""

    def may_have_happened(self, why: str) -> str:
        return f"{why}: the change is in the log at offset {self.offset} and in effect; it may yet be committed or taken back"


@dataclass(slots=True)
class Changes:
    """The leader's slot for the pending change."""

    pending: PendingChange | None = None

    def begin(self, change: PendingChange) -> None:
        self.pending = change

    def end(self) -> None:
        """Notes the answer to the pending change, or the end of the leadership."""
        self.pending = None

    def written(self, offset: Offset) -> None:
        """Notes the offset of the pending change's voter set in the log."""
        if self.pending is not None:
            self.pending = replace(self.pending, offset=offset)


def last_word(
    change: PendingChange, epoch: Epoch, leader_id: NodeId | None, high_watermark: Offset | None
) -> QuorumChangeResponse:
    """The answer to `change` from a leader stepping down."""
    if change.offset is None:
        what = "the transfer" if isinstance(change.request, TransferLeadershipRequest) else "the change"
        text = f"this controller lost the leadership before {what} began; nothing was done"
        return QuorumChangeResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, epoch, leader_id, text)
    if high_watermark is not None and high_watermark > change.offset:
        return QuorumChangeResponse(ErrorCode.NONE, epoch, leader_id, "committed", change.offset)
    text = change.may_have_happened("this controller lost the leadership before a majority confirmed the change")
    return QuorumChangeResponse(ErrorCode.REQUEST_TIMED_OUT, epoch, leader_id, text, change.offset)
