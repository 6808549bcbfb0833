"""Changes of the voter set, one voter at a time, on request (KIP-853; Raft, section 4 of Ongaro's thesis).

    add       the new controller fetches as an observer until it has caught up; then the leader appends the new set
    remove    the leader appends the set without the voter; a leader removing itself leads, uncounted, until the commit
    update    a voter has new endpoints

A set takes effect once appended, at the leader and at every node holding the record. A majority of the *new* set
commits the record, and a truncation takes it back (`voters.VoterHistory`). Changing one voter at a time keeps this
safe:

    {1,2,3} -> {1,2,3,4}      any majority of the old set (2 of 3) and of the new set (3 of 4) share a voter
    {1,2,3} -> {1,4,5}        {2,3} and {4,5} share no voter: two leaders, each elected by a majority

Two sets in effect on different nodes must therefore never differ by two voters. A leader appends a set only under three
conditions: the previous set is committed, no other change is pending, and the leader has committed a record of its own
epoch. The third condition needs an example (Ongaro's correction of 2015), with {1,2,3,4}:

    1. Leader 1, epoch 1, appends {1,2,3,4,5} and reaches only node 5. Nothing is committed.
    2. Node 2 becomes leader in epoch 2 with the votes of {2,3,4}, and appends {2,3,4}: its change from the *same* old set.
       Nodes 2 and 3 commit {2,3,4}.
    3. Node 1 becomes leader in epoch 3 with the votes of {1,4,5}, a majority of {1,2,3,4,5}, and overwrites the commit.
    4. With the third condition, node 2 first commits a record of epoch 2 on a majority of {1,2,3,4}. From then on node 1
       cannot win: each majority of {1,2,3,4,5} has a voter with the newer record.

Two more conditions keep the cluster available. A new controller still loading would delay every commit which needs it,
so the leader waits for it; the leader also waits until the controller has told that it supports the cluster's features
(`newcomer`). And the leader refuses a change if no majority of the new set fetches from the leader: no
record would be committed any more, including a record to undo the change.

The leader checks a request on arrival (`change_rules`) and continues it at the end of every step (`go_on`), so that no
code path can forget the request. Until the leader answers, resigns or appends, it only reads. So an unexpected error before
that costs the request alone (`RefuseFailed`), and the leader leads on.

A client that gets no answer repeats its request, and says with `since` which log it had seen before the first attempt.
The voters' records at or above `since` tell if the request was done:

    1. A client has seen the log up to 600, and asks leader 1 to add controller 4. Leader 1 commits {1,2,3,4} at offset
       640, and dies before it answers.
    2. Another operator removes controller 4 again: leader 2 commits {1,2,3} at offset 700.
    3. The client repeats its request, with `since` 600. Leader 2 finds controller 4 added at 640, answers that the
       request is done, and writes nothing. From the present set {1,2,3} alone, leader 2 would undo step 2.
"""

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Offset, ReplicaKey
from quorum.core import leader
from quorum.core.membership import auto_join, change_rules, transfer
from quorum.core.membership.change_rules import Refusal
from quorum.core.protocol.effects import AppendControl, RefuseFailed
from quorum.core.protocol.messages import (
    AddVoterRequest,
    QuorumChangeRequest,
    QuorumChangeResponse,
    RemoveVoterRequest,
    TransferLeadershipRequest,
)
from quorum.core.protocol.pending_change import PendingChange
from quorum.core.quorum_state import QuorumState
from quorum.core.roles import Leader

# --- requests --------------------------------------------------------------------------------------------------------


def on_request(state: QuorumState, request: QuorumChangeRequest, reply_to: int) -> None:
    """Begins the change that another node or an operator requests, or answers with the refusal."""
    try:
        judgement = _judged(state, request)
    except Exception as e:  # a judgement only reads
        state.effects.append(RefuseFailed(reply_to, request, e))
        return
    _act_on(state, request, reply_to, judgement)


def _judged(state: QuorumState, request: QuorumChangeRequest) -> Refusal | Offset | None:
    """The refusal, or the offset at which the request was done before; None: the change may begin. Changes nothing."""
    refusal = change_rules.refusal_now(state, request)
    if refusal is not None:
        return refusal
    assert isinstance(state.role, Leader)
    done_at = _done_at(state, request)
    return change_rules.does_not_fit(state, state.role, request) if done_at is None else done_at


def _act_on(
    state: QuorumState, request: QuorumChangeRequest, reply_to: int | None, judgement: Refusal | Offset | None
) -> None:
    match judgement:
        case None:
            assert isinstance(state.role, Leader), "only a leader changes the voters"
            deadline_ms = state.now_ms + request.timeout_ms
            state.role.changes.begin(PendingChange(request, reply_to, deadline_ms, state.shape.end))
        case Refusal(error, why):
            _answer(state, reply_to, error, f"{why}; nothing was done")
        case done_at:
            text = (
                f"done at offset {done_at}, which this client had not seen when it first asked; nothing more was done"
            )
            _answer(state, reply_to, ErrorCode.NONE, text, done_at)


def _answer(
    state: QuorumState, reply_to: int | None, error: ErrorCode, text: str, offset: Offset | None = None
) -> None:
    if reply_to is not None:
        state.reply(reply_to, QuorumChangeResponse(error, state.epoch, state.leader_hint, text, offset))


def _done_at(state: QuorumState, request: QuorumChangeRequest) -> Offset | None:
    """The offset at which the voters were changed as a repeated request asks. None: they were not."""
    match request:
        case AddVoterRequest(voter=voter, since=int(since)):
            return state.voters.changed_at(ReplicaKey(voter.node_id, voter.directory_id), since, to_voter=True)
        case RemoveVoterRequest(voter=replica, since=int(since)):
            return state.voters.changed_at(replica, since, to_voter=False)
        case _:
            return None


# --- progress of a change --------------------------------------------------------------------------------------------


def go_on(state: QuorumState, leadership: Leader) -> None:
    """Continues the pending change as far as possible. Called at the end of every step of a leader."""
    if leadership.changes.pending is None:
        own = auto_join.own_update(state)
        if own is None or change_rules.not_yet(state, leadership) is not None:
            return
        _act_on(state, own, None, _judged(state, own))
    change = leadership.changes.pending
    if change is None:
        return
    try:
        _go_on(state, leadership, change)
    except Exception as e:
        if leadership.changes.pending is not change or change.offset is not None or change.reply_to is None:
            raise  # the leader has begun to act, or has no client to refuse
        leadership.changes.end()
        state.effects.append(RefuseFailed(change.reply_to, change.request, e))


def _go_on(state: QuorumState, leadership: Leader, change: PendingChange) -> None:
    """Takes the next step of `change`. First only reads; then either ends `change` and acts, or appends as the last action."""
    match change.request:
        case TransferLeadershipRequest() as request:
            transfer.go_on(state, leadership, change, request)
        case _ as request:
            if change.offset is None:
                _append_when_ready(state, leadership, change, request)
            else:
                _watch_commit(state, leadership, change, change.offset)


def _append_when_ready(
    state: QuorumState, leadership: Leader, change: PendingChange, request: change_rules.VoterChange
) -> None:
    """Appends the new set, as the last effect of the step.

    The record counts as written only when the log reports it, because the disk may be full.
    """
    obstacle = _obstacle(state, leadership, request)
    if obstacle is not None:
        if change.deadline_ms <= state.now_ms:
            text = f"waited {request.timeout_ms} ms for {obstacle}; nothing was done"
            _end(state, leadership, change, ErrorCode.REQUEST_TIMED_OUT, text)
        return
    refusal = change_rules.unfit(state, request) or change_rules.not_enough_live(state, leadership, request)
    if refusal is not None:
        _end(state, leadership, change, refusal.error, f"{refusal.why}; nothing was done")
        return
    voters = change_rules.changed(state.latest_voters, request)
    if voters.voters == state.latest_voters.voters:
        _end(
            state, leadership, change, ErrorCode.NONE, "the voter set matches the request already; nothing was changed"
        )
        return
    state.effects.append(AppendControl(state.epoch, voters))


def _obstacle(state: QuorumState, leadership: Leader, request: change_rules.VoterChange) -> str | None:
    """The condition a change still waits for; None: ready. A new controller must fetch, must have caught up, and must fit."""
    if not isinstance(request, AddVoterRequest):
        return None
    voter = request.voter
    key = ReplicaKey(voter.node_id, voter.directory_id)
    progress = leadership.replicas.get(key)
    if progress is None or not leader.is_live(state, progress):
        return f"controller {voter.node_id}, with this directory id, to fetch from this leader"
    if not change_rules.has_caught_up(state, progress):
        return f"controller {voter.node_id} to catch up: its log ends at {progress.end_offset} of {state.shape.end}"
    judged = state.judge_newcomer(key)
    return judged.why if judged is not None and judged.may_pass else None


def _watch_commit(state: QuorumState, leadership: Leader, change: PendingChange, offset: Offset) -> None:
    if state.known_high_watermark is not None and state.known_high_watermark > offset:
        _end(state, leadership, change, ErrorCode.NONE, "committed", offset)
    elif isinstance(change.request, AddVoterRequest) and not change.request.ack_when_committed:
        _end(state, leadership, change, ErrorCode.NONE, f"in effect from offset {offset} on; not committed yet", offset)
    elif change.deadline_ms <= state.now_ms:
        text = change.may_have_happened(
            f"no majority of the new voters has confirmed the change within {change.request.timeout_ms} ms"
        )
        _end(state, leadership, change, ErrorCode.REQUEST_TIMED_OUT, text, offset)


def _end(
    state: QuorumState,
    leadership: Leader,
    change: PendingChange,
    error: ErrorCode,
    text: str,
    offset: Offset | None = None,
) -> None:
    leadership.changes.end()
    _answer(state, change.reply_to, error, text, offset)
