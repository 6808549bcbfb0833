"""Transfer of leadership to a chosen voter (Raft 3.10 of Ongaro's thesis).

The leader waits until the target can win an election, and then resigns with the target as first successor:
EndQuorumEpoch makes the first successor campaign at once, and the others wait for their turns. Elections alone keep
this safe: a target without a committed record cannot win, whatever its leader believes. The wait only decides whether
the target *does* win, and how many proposed, uncommitted records are lost.

Under load the target never quite reaches the leader's end, because the leader keeps taking proposals. The target need
not reach the end; the target needs votes of a majority. So the leader counts the voters whose logs cannot be longer
than the target's. A voter's log is no longer than the leader's log was at the leader's last answer to the voter. (The
target holds the first record of the leader's epoch, so no older log is ahead either.)

    leader 1 ends at 9; the target 2 fetched at 7
    1. voter 3 was last answered when the leader ended at 7:   2 and 3 can elect 2, so the leader resigns now
    2. voter 3 was last answered when the leader ended at 9:   3 might refuse 2, so the leader waits for the next fetch

Followers fetch after each batch, and about every other time the target fetches first. The target must also hold all
records present at the transfer request: a client which writes, and then requests the transfer, finds its write at the
new leader.
"""

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId, Offset, ReplicaKey
from quorum.core import leader
from quorum.core.protocol.messages import QuorumChangeResponse, TransferLeadershipRequest
from quorum.core.protocol.pending_change import PendingChange
from quorum.core.protocol.progress import successors
from quorum.core.quorum_state import QuorumState
from quorum.core.roles import Leader, Why


def targets(state: QuorumState, leadership: Leader, wanted: NodeId | None) -> tuple[ReplicaKey, ...]:
    """The voters able to take over, the furthest first: live, fit, and named `wanted` unless that is None.

    An unfit voter would not campaign, and the cluster would stand still for nothing.
    """
    asked = [
        (key, leadership.replicas[key]) for key in state.latest_voters.others(state.me) if wanted in (None, key.node_id)
    ]
    fit = [key for key, progress in asked if leader.is_live(state, progress) and not progress.is_unfit]
    return successors(fit, leadership.replicas)


def why_no_target(state: QuorumState, leadership: Leader, wanted: NodeId | None) -> str:
    """The reason, in one sentence, why `targets` is empty."""
    if wanted is None:
        return "no other voter that is fit to lead has fetched from this leader lately"
    progress = next(leadership.replicas[key] for key in state.latest_voters.others(state.me) if key.node_id == wanted)
    if not leader.is_live(state, progress):
        return f"controller {wanted} has not fetched from this leader lately"
    if progress.damaged:
        what = "its log is damaged, or its disk is full"
    else:
        what = "its image differs from a majority's" if progress.image_differs else "it has stopped applying records"
    return f"controller {wanted} would not lead: {what}"


def is_done(state: QuorumState, leadership: Leader, request: TransferLeadershipRequest) -> bool:
    """True if the wanted leader leads.

    A repeated request without a target wants any leader that was elected after the first attempt. Otherwise the new
    leader would hand the leadership on.
    """
    if request.target is None:
        return request.since is not None and leadership.epoch_start_offset >= request.since
    return request.target == state.me.node_id


def go_on(state: QuorumState, leadership: Leader, change: PendingChange, request: TransferLeadershipRequest) -> None:
    """Resigns for the first target able to win.

    After the request's timeout, gives up the transfer and continues to lead.
    """
    if is_done(state, leadership, request):
        return _answer(state, leadership, change, ErrorCode.NONE, "this controller leads already")
    for target in targets(state, leadership, request.target):
        if _can_win(state, leadership, target, change.asked_at_end):
            _answer(state, leadership, change, ErrorCode.NONE, f"stepped down for controller {target.node_id}")
            return leader.resign(state, leadership, Why.ASKED, first=target)
    if change.deadline_ms <= state.now_ms:
        who = "no voter caught up" if request.target is None else f"controller {request.target} did not catch up"
        text = f"{who} within {request.timeout_ms} ms; this controller still leads"
        return _answer(state, leadership, change, ErrorCode.REQUEST_TIMED_OUT, text)
    return None


def _can_win(state: QuorumState, leadership: Leader, target: ReplicaKey, asked_at_end: Offset) -> bool:
    end = leadership.replicas[target].end_offset
    if end is None or end <= leadership.epoch_start_offset or end < asked_at_end:
        return False

    def holds_no_more(voter: ReplicaKey) -> bool:
        if voter == state.me:
            return state.shape.end <= end
        return voter == target or leadership.replicas[voter].told_end <= end

    voters = state.latest_voters
    return sum(map(holds_no_more, voters.keys)) >= voters.majority


def _answer(state: QuorumState, leadership: Leader, change: PendingChange, error: ErrorCode, text: str) -> None:
    leadership.changes.end()
    if change.reply_to is not None:
        state.reply(change.reply_to, QuorumChangeResponse(error, state.epoch, state.leader_hint, text))
