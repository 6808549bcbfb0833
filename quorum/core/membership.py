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
so the leader waits for it. And the leader refuses a change if no majority of the new set fetches from the leader: no
record would be committed any more, including a record to undo the change.

The leader checks a request on arrival and continues it at the end of every step (`go_on`), so that no code path can
forget the request.

A client that gets no answer repeats its request, and says with `since` which log it had seen before the first attempt.
The voters' records at or above `since` tell if the request was done:

    1. A client has seen the log up to 600, and asks leader 1 to add controller 4. Leader 1 commits {1,2,3,4} at offset
       640, and dies before it answers.
    2. Another operator removes controller 4 again: leader 2 commits {1,2,3} at offset 700.
    3. The client repeats its request, with `since` 600. Leader 2 finds controller 4 added at 640, answers that the
       request is done, and writes nothing. From the present set {1,2,3} alone, leader 2 would undo step 2.
"""

from collections.abc import Collection
from typing import Final, NamedTuple, assert_never

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Offset, ReplicaKey
from metadata_log.format.records import Voters
from quorum.core import auto_join, leader, transfer
from quorum.core.long_poll import high_watermark_told
from quorum.core.protocol.effects import AppendControl
from quorum.core.protocol.messages import (
    AddVoterRequest,
    QuorumChangeRequest,
    QuorumChangeResponse,
    RemoveVoterRequest,
    TransferLeadershipRequest,
    UpdateVoterRequest,
)
from quorum.core.protocol.pending_change import PendingChange
from quorum.core.protocol.progress import ReplicaProgress
from quorum.core.protocol.voters import VOTERS_MAX, VoterSet, problem_of
from quorum.core.quorum_state import QuorumState
from quorum.core.roles import Leader

TIMEOUT_MS_MAX: Final = 3_600_000

VoterChange = AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest


class Refusal(NamedTuple):
    """The reason for refusing a request. Nothing was done."""

    error: ErrorCode
    why: str


def majority_would_be_live(voters: VoterSet, live: Collection[ReplicaKey]) -> bool:
    """True if the replicas in `live` make a majority of `voters`."""
    return sum(key in live for key in voters.keys) >= voters.majority


def live_replicas(state: QuorumState, leadership: Leader) -> frozenset[ReplicaKey]:
    """This node, and all replicas which have fetched within the check-quorum time."""
    return frozenset(
        {state.me, *(key for key, progress in leadership.replicas.items() if leader.is_live(state, progress))}
    )


def keeps_majority_without(state: QuorumState, leadership: Leader, down: Collection[int]) -> bool:
    """True if a majority of caught-up voters remains when the nodes in `down` stop."""
    caught_up = {state.me, *(key for key, progress in leadership.replicas.items() if _has_caught_up(state, progress))}
    return majority_would_be_live(state.latest_voters, {key for key in caught_up if key.node_id not in down})


def _has_caught_up(state: QuorumState, progress: ReplicaProgress) -> bool:
    """True if the replica lately reached the leader's end as of the replica's previous fetch (as KIP-853 counts)."""
    at_ms = progress.last_caught_up_ms
    return leader.is_live(state, progress) and at_ms is not None and state.now_ms - at_ms < state.config.check_quorum_ms


# --- requests --------------------------------------------------------------------------------------------------------


def on_request(state: QuorumState, request: QuorumChangeRequest, reply_to: int | None) -> None:
    """Begins the requested change, or answers with the refusal. Only a leader changes the voters."""
    refusal = _refusal_now(state, request)
    leadership = state.role
    if refusal is None:
        assert isinstance(leadership, Leader)
        done_at = _done_at(state, request)
        if done_at is not None:
            text = f"done at offset {done_at}, after this request was first made; nothing more was done"
            _answer(state, reply_to, ErrorCode.NONE, text, done_at)
            return
        refusal = _does_not_fit(state, leadership, request)
    if refusal is not None:
        _answer(state, reply_to, refusal.error, f"{refusal.why}; nothing was done")
        return
    assert isinstance(leadership, Leader)
    leadership.changes.begin(PendingChange(request, reply_to, state.now_ms + request.timeout_ms, state.shape.end))


def _answer(
    state: QuorumState, reply_to: int | None, error: ErrorCode, text: str, offset: Offset | None = None
) -> None:
    if reply_to is not None:
        state.reply(reply_to, QuorumChangeResponse(error, state.epoch, state.leader_hint, text, offset))


def _refusal_now(state: QuorumState, request: QuorumChangeRequest) -> Refusal | None:
    """The refusal of a request which this node cannot judge now, or which would be wrong at any time."""
    if state.shutting_down:
        return Refusal(ErrorCode.BROKER_NOT_AVAILABLE, "this controller is shutting down")
    leadership = state.role
    if not isinstance(leadership, Leader):
        return Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this controller does not lead")
    if not 0 < request.timeout_ms <= TIMEOUT_MS_MAX:
        return Refusal(
            ErrorCode.INVALID_REQUEST, f"timeout_ms is {request.timeout_ms}; it must be from 1 to {TIMEOUT_MS_MAX}"
        )
    wrong = _what_is_wrong(state, request)
    if wrong is not None:
        return wrong
    pending = leadership.changes.pending
    if pending is not None:
        return Refusal(
            ErrorCode.REQUEST_TIMED_OUT,
            f"{_name(pending.request)} is still in progress; changes are made one at a time",
        )
    if isinstance(request, TransferLeadershipRequest):
        return None
    return _not_yet(state, leadership) or _forgotten(state, request)


def _forgotten(state: QuorumState, request: VoterChange) -> Refusal | None:
    """The refusal of a repeated request whose first attempt may be in a part of the log that this node has no more."""
    since = None if isinstance(request, UpdateVoterRequest) else request.since
    oldest = max(1, state.voters.start)
    if since is None or since >= oldest:
        return None
    why = (
        f"changes of the voters below offset {oldest} are forgotten, and the client had seen the log up to {since} only"
    )
    return Refusal(ErrorCode.REQUEST_ID_EXPIRED, why)


def _done_at(state: QuorumState, request: QuorumChangeRequest) -> Offset | None:
    """The offset at which the voters were changed as a repeated request asks. None: they were not."""
    match request:
        case AddVoterRequest(voter=voter, since=int(since)):
            return state.voters.changed_at(ReplicaKey(voter.node_id, voter.directory_id), since, to_voter=True)
        case RemoveVoterRequest(voter=replica, since=int(since)):
            return state.voters.changed_at(replica, since, to_voter=False)
        case _:
            return None


def _what_is_wrong(state: QuorumState, request: QuorumChangeRequest) -> Refusal | None:
    """The refusal of a request which would be wrong at any time."""
    match request:
        case AddVoterRequest(voter=voter):
            wrong = problem_of(voter)
        case UpdateVoterRequest(voter=voter, epoch=epoch):
            if epoch < state.epoch:
                return Refusal(
                    ErrorCode.FENCED_LEADER_EPOCH, f"epoch {epoch} has ended, the current epoch is {state.epoch}"
                )
            if epoch > state.epoch:
                return Refusal(
                    ErrorCode.UNKNOWN_LEADER_EPOCH,
                    f"epoch {epoch} is not known to this controller, its epoch is {state.epoch}",
                )
            wrong = problem_of(voter)
        case RemoveVoterRequest(voter=replica):
            wrong = None if len(replica.directory_id) == 16 else "directory_id must be 16 bytes"
        case TransferLeadershipRequest():
            wrong = None
        case _:
            assert_never(request)
    return None if wrong is None else Refusal(ErrorCode.INVALID_REQUEST, wrong)


def _not_yet(state: QuorumState, leadership: Leader) -> Refusal | None:
    if high_watermark_told(state, leadership) is None:
        return Refusal(ErrorCode.NOT_READY, "this leader has not committed a record of its epoch yet; try again")
    at, high_watermark = state.voters.latest_offset, state.known_high_watermark
    if at is not None and (high_watermark is None or at >= high_watermark):
        return Refusal(
            ErrorCode.REQUEST_TIMED_OUT,
            f"the voter set at offset {at} is not committed yet; changes are made one at a time",
        )
    return None


def _does_not_fit(state: QuorumState, leadership: Leader, request: QuorumChangeRequest) -> Refusal | None:
    """The refusal of a request which does not fit the present voters."""
    if isinstance(request, TransferLeadershipRequest):
        return _refusal_of_transfer(state, leadership, request)
    voters = state.latest_voters
    match request:
        case AddVoterRequest(voter=voter):
            known = voters.key_of(voter.node_id)
            if known is not None:
                return Refusal(
                    ErrorCode.DUPLICATE_VOTER,
                    f"{known} is a voter already; to replace its disk, remove the old voter first",
                )
            if len(voters) >= VOTERS_MAX:
                return Refusal(
                    ErrorCode.INVALID_REQUEST, f"the quorum has {len(voters)} voters; the maximum is {VOTERS_MAX}"
                )
        case RemoveVoterRequest(voter=replica):
            if not voters.contains(replica):
                return Refusal(ErrorCode.VOTER_NOT_FOUND, f"{replica} is not a voter; the voters are {voters}")
            if len(voters) == 1:
                return Refusal(ErrorCode.VOTER_NOT_FOUND, f"{replica} is the only voter")
            twin = _live_twin(state, leadership, replica)
            if twin is not None:
                why = f"{replica} and {twin} both fetch from this leader: two machines use one id; stop one of them"
                return Refusal(ErrorCode.NOT_READY, why)
        case UpdateVoterRequest(voter=voter):
            key = ReplicaKey(voter.node_id, voter.directory_id)
            if not voters.contains(key):
                return Refusal(ErrorCode.VOTER_NOT_FOUND, f"{key} is not a voter; the voters are {voters}")
            return None
        case _:
            assert_never(request)
    return _not_enough_live(state, leadership, request, presumed=_newcomers(request))


def _live_twin(state: QuorumState, leadership: Leader, voter: ReplicaKey) -> ReplicaKey | None:
    """Another live replica under the id of a live voter.

    The owner of a new disk asks to remove its former self; after a mistake in a configuration, the id may belong to a
    healthy voter.
    """
    live = live_replicas(state, leadership)
    twins = (key for key in live if key.node_id == voter.node_id and key != voter)
    return next(twins, None) if voter in live else None


def _newcomers(request: VoterChange) -> frozenset[ReplicaKey]:
    if isinstance(request, AddVoterRequest):
        return frozenset({ReplicaKey(request.voter.node_id, request.voter.directory_id)})
    return frozenset()


def _not_enough_live(
    state: QuorumState, leadership: Leader, request: VoterChange, *, presumed: frozenset[ReplicaKey] = frozenset()
) -> Refusal | None:
    """The refusal of a change whose new set would lack a live majority. Replicas in `presumed` count as live."""
    if isinstance(request, UpdateVoterRequest):
        return None
    after = VoterSet(changed(state.latest_voters, request).voters)
    live = live_replicas(state, leadership) | presumed
    if majority_would_be_live(after, live):
        return None
    count = sum(key in live for key in after.keys)
    why = f"only {count} of the new voters {after} fetch from this leader, and {after.majority} are needed to commit"
    return Refusal(ErrorCode.NOT_READY, why)


def _refusal_of_transfer(state: QuorumState, leadership: Leader, request: TransferLeadershipRequest) -> Refusal | None:
    target = request.target
    if transfer.is_done(state, leadership, request):
        return None
    if target is not None and state.latest_voters.key_of(target) is None:
        why = f"controller {target} is not a voter; the voters are {state.latest_voters}"
        return Refusal(ErrorCode.VOTER_NOT_FOUND, why)
    if not transfer.targets(state, leadership, target):
        return Refusal(ErrorCode.INVALID_REQUEST, transfer.why_no_target(state, leadership, target))
    return None


def changed(voters: VoterSet, request: VoterChange) -> Voters:
    """The voter set after `request`, sorted by node id."""
    match request:
        case AddVoterRequest(voter=voter):
            after = [*voters.voters, voter]
        case RemoveVoterRequest(voter=replica):
            after = [each for each in voters.voters if each.node_id != replica.node_id]
        case UpdateVoterRequest(voter=voter):
            after = [voter if each.node_id == voter.node_id else each for each in voters.voters]
        case _:
            assert_never(request)
    return Voters(tuple(sorted(after)))


# --- progress of a change --------------------------------------------------------------------------------------------


def go_on(state: QuorumState, leadership: Leader) -> None:
    """Continues the pending change as far as possible. Called at the end of every step of a leader."""
    if leadership.changes.pending is None:
        own = auto_join.own_update(state)
        if own is None or _not_yet(state, leadership) is not None:
            return
        on_request(state, own, None)
    change = leadership.changes.pending
    if change is None:
        return
    match change.request:
        case TransferLeadershipRequest() as request:
            transfer.go_on(state, leadership, change, request)
        case _ as request:
            if change.offset is None:
                _append_when_ready(state, leadership, change, request)
            else:
                _watch_commit(state, leadership, change, change.offset)


def _append_when_ready(state: QuorumState, leadership: Leader, change: PendingChange, request: VoterChange) -> None:
    """Appends the new set, as the last effect of the step.

    The record counts as written only when the log reports it, because the disk may be full.
    """
    obstacle = _obstacle(state, leadership, request)
    if obstacle is not None:
        if change.deadline_ms <= state.now_ms:
            text = f"waited {request.timeout_ms} ms for {obstacle}; nothing was done"
            _end(state, leadership, change, ErrorCode.REQUEST_TIMED_OUT, text)
        return
    refusal = _not_enough_live(state, leadership, request)
    if refusal is not None:
        _end(state, leadership, change, refusal.error, f"{refusal.why}; nothing was done")
        return
    voters = changed(state.latest_voters, request)
    if voters.voters == state.latest_voters.voters:
        _end(
            state, leadership, change, ErrorCode.NONE, "the voter set matches the request already; nothing was changed"
        )
        return
    state.effects.append(AppendControl(state.epoch, voters))


def _obstacle(state: QuorumState, leadership: Leader, request: VoterChange) -> str | None:
    """The condition a change still waits for; None: ready. A new controller must fetch, and must have caught up."""
    if not isinstance(request, AddVoterRequest):
        return None
    voter = request.voter
    progress = leadership.replicas.get(ReplicaKey(voter.node_id, voter.directory_id))
    if progress is None or not leader.is_live(state, progress):
        return f"controller {voter.node_id}, with this directory id, to fetch from this leader"
    if not _has_caught_up(state, progress):
        return f"controller {voter.node_id} to catch up: its log ends at {progress.end_offset} of {state.shape.end}"
    return None


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


# --- names for error texts -------------------------------------------------------------------------------------------


def _name(request: QuorumChangeRequest) -> str:
    match request:
        case AddVoterRequest(voter=voter):
            return f"adding controller {voter.node_id}"
        case RemoveVoterRequest(voter=replica):
            return f"removing controller {replica.node_id}"
        case UpdateVoterRequest(voter=voter):
            return f"updating controller {voter.node_id}"
        case TransferLeadershipRequest():
            return "a transfer of leadership"
        case _:
            assert_never(request)
