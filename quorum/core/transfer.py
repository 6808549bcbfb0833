"""Handing leadership over to a voter that was chosen for it (Raft 3.10 of Ongaro's thesis).

The leader waits until that voter can win, then resigns with it as the first of the successors: EndQuorumEpoch makes the first
run at once, and the others wait for their turns. Nothing of this is needed for safety, which elections see to: a target
that lacks something committed cannot win, whatever its leader believes. What is at stake is only whether it *does* win,
and how much that was proposed, but not committed, is lost.

Under load the target is never quite at the leader's end, for the leader goes on taking proposals. It need not be. What it
needs is the votes of a majority, so the leader asks: how many voters cannot hold more than the target? A voter holds no more
than the end that the leader had when it was last answered, and the target holds the first record of this epoch, so no
older log is ahead of it either.

    leader  9    2 (target) fetched at 7, 3 was answered up to 7    2 and 3 can elect 2: now
                 2 (target) fetched at 7, 3 was answered up to 9    3 would refuse 2: at the next fetch, perhaps

Followers fetch after each batch, and about every other time it is the target that comes first. It must also hold what was
in the log when the transfer was asked for: whoever asked after a write finds that write at the new leader.
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
    """The voters that may be handed the leadership, the furthest first: live and fit, and `wanted` only if that is said.

    One that is unfit would not run, and all would have stood still for nothing.
    """
    asked = [
        (key, leadership.replicas[key]) for key in state.latest_voters.others(state.me) if wanted in (None, key.node_id)
    ]
    fit = [key for key, progress in asked if leader.is_live(state, progress) and not progress.is_unfit]
    return successors(fit, leadership.replicas)


def why_no_target(state: QuorumState, leadership: Leader, wanted: NodeId | None) -> str:
    """Why there are no `targets`, in one sentence."""
    if wanted is None:
        return "no other voter that could lead has fetched from this leader lately"
    progress = next(leadership.replicas[key] for key in state.latest_voters.others(state.me) if key.node_id == wanted)
    if not leader.is_live(state, progress):
        return f"controller {wanted} has not fetched from this leader lately"
    if progress.damaged:
        what = "its log is damaged, and not mended yet"
    else:
        what = "its image differs from a majority's" if progress.image_differs else "it applies nothing any more"
    return f"controller {wanted} would not lead: {what}"


def go_on(state: QuorumState, leadership: Leader, change: PendingChange, request: TransferLeadershipRequest) -> None:
    """Resigns for the first target that can win; gives up when the time is over, and leads on."""
    if request.target == state.me.node_id:
        return _answer(state, leadership, change, ErrorCode.NONE, "it leads already")
    for target in targets(state, leadership, request.target):
        if _can_win(state, leadership, target, change.asked_at_end):
            _answer(state, leadership, change, ErrorCode.NONE, f"stepped down for controller {target.node_id}")
            return leader.resign(state, leadership, Why.ASKED, first=target)
    if change.deadline_ms <= state.now_ms:
        who = "no voter came" if request.target is None else f"controller {request.target} did not come"
        text = f"{who} level within {request.timeout_ms} ms; this controller goes on leading"
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
    leadership.changes.pending = None
    if change.reply_to is not None:
        state.reply(change.reply_to, QuorumChangeResponse(error, state.epoch, state.leader_hint, text))
