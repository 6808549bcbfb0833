"""Who votes, changed at somebody's wish: one voter at a time (KIP-853; Raft, section 4 of Ongaro's thesis).

    add       the newcomer fetches as an observer until it has caught up; then the leader appends the new set
    remove    the leader appends the set without it; if that is the leader itself, it leads on uncounted until that is committed
    update    a voter is to be reached somewhere else

A set is in force as soon as it is appended, at the leader and at whoever has the record; it is committed by a majority of
the *new* set, and a truncation takes it back (`voters.VoterHistory`). Why that is safe is why it goes one voter at a time:

    {1,2,3} -> {1,2,3,4}      any majority of the one (2 of 3) and any of the other (3 of 4) share a voter
    {1,2,3} -> {1,4,5}        {2,3} and {4,5} do not: two leaders, each elected by a majority

So between two sets that may both be in force somewhere there must never be a step of two. Hence three conditions before
anything is appended: the last set is committed, nothing else is pending, and this leader has committed a record of its own
epoch. The last one is not obvious. Leaders of different epochs may each append their change to the *same* old set, and
neither is committed; only a record of the new epoch, committed by a majority of the old set, makes sure that the other's change
can never come back (Ongaro's correction of 2015).

Two more conditions are for life, not for safety: a newcomer that is still loading would hold up every commit that needs it, so
it is waited for; and a change is refused if no majority of the new set fetches from this leader, for then nothing would
be committed any more, the next change included.

A wish is checked as it comes in and goes on at the end of every step (`go_on`), so that no path can forget it.
"""

from collections.abc import Collection
from typing import Final, NamedTuple, assert_never

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import ZERO_UUID, Offset, ReplicaKey
from metadata_log.format.records import Voter, Voters
from quorum.core import auto_join, leader, transfer
from quorum.core.long_poll import committed_in_epoch
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
from quorum.core.protocol.voters import VoterSet
from quorum.core.quorum_state import QuorumState
from quorum.core.roles import Leader

KRAFT_VERSION: Final = 1
"""The level of our quorum's protocol: the voter set lives in the log."""
VOTERS_MAX: Final = 32
ENDPOINTS_MAX: Final = 16
NAME_CHARS_MAX: Final = 255
"""Of a listener or a host. With the two above, a set always fits into a batch."""
TIMEOUT_MS_MAX: Final = 3_600_000

VoterChange = AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest


class Refusal(NamedTuple):
    """Why nothing was done."""

    error: ErrorCode
    why: str


def majority_would_be_live(voters: VoterSet, live: Collection[ReplicaKey]) -> bool:
    """Whether those of `voters` that are `live` make a majority of them."""
    return sum(key in live for key in voters.keys) >= voters.majority


def live_replicas(state: QuorumState, leadership: Leader) -> frozenset[ReplicaKey]:
    """This node, and whoever has fetched from it within the check-quorum time."""
    return frozenset(
        {state.me, *(key for key, progress in leadership.replicas.items() if leader.is_live(state, progress))}
    )


def keeps_majority_without(state: QuorumState, leadership: Leader, down: Collection[int]) -> bool:
    """Whether a majority of voters that stand at this leader's end would be left if the nodes `down` were stopped."""
    caught_up = {state.me, *(key for key, progress in leadership.replicas.items() if _has_caught_up(state, progress))}
    return majority_would_be_live(state.latest_voters, {key for key in caught_up if key.node_id not in down})


def _has_caught_up(state: QuorumState, progress: ReplicaProgress) -> bool:
    """Whether it was lately at the end that the leader had when it asked before (as KIP-853 counts it)."""
    at_ms = progress.last_caught_up_ms
    return leader.is_live(state, progress) and at_ms is not None and state.now_ms - at_ms < state.config.check_quorum_ms


# --- being asked -----------------------------------------------------------------------------------------------------


def on_request(state: QuorumState, request: QuorumChangeRequest, reply_to: int | None) -> None:
    """Begins what `request` wishes, or says why not. Only a leader changes anything."""
    refusal = _refusal(state, request)
    if refusal is not None:
        _answer(state, reply_to, refusal.error, f"{refusal.why}; nothing was done")
        return
    leadership = state.role
    assert isinstance(leadership, Leader)
    leadership.changes.pending = PendingChange(request, reply_to, state.now_ms + request.timeout_ms, state.shape.end)


def _answer(
    state: QuorumState, reply_to: int | None, error: ErrorCode, text: str, offset: Offset | None = None
) -> None:
    if reply_to is not None:
        state.reply(reply_to, QuorumChangeResponse(error, state.epoch, state.leader_hint, text, offset))


def _refusal(state: QuorumState, request: QuorumChangeRequest) -> Refusal | None:
    if state.shutting_down:
        return Refusal(ErrorCode.BROKER_NOT_AVAILABLE, "this controller is shutting down")
    leadership = state.role
    if not isinstance(leadership, Leader):
        return Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this controller does not lead")
    if not 0 < request.timeout_ms <= TIMEOUT_MS_MAX:
        return Refusal(ErrorCode.INVALID_REQUEST, f"timeout_ms is {request.timeout_ms}; from 1 to {TIMEOUT_MS_MAX}")
    wrong = _what_is_wrong(state, request)
    if wrong is not None:
        return wrong
    pending = leadership.changes.pending
    if pending is not None:
        return Refusal(ErrorCode.REQUEST_TIMED_OUT, f"{_name(pending.request)} is still going on: one at a time")
    if isinstance(request, TransferLeadershipRequest):
        return _refusal_of_transfer(state, leadership, request)
    return _not_yet(state, leadership) or _does_not_fit(state, leadership, request)


def _what_is_wrong(state: QuorumState, request: QuorumChangeRequest) -> Refusal | None:
    """What could not be right at any other time either."""
    match request:
        case AddVoterRequest(voter=voter):
            wrong = problem_of(voter)
        case UpdateVoterRequest(voter=voter, epoch=epoch):
            if epoch < state.epoch:
                return Refusal(ErrorCode.FENCED_LEADER_EPOCH, f"epoch {epoch} is over, this is {state.epoch}")
            if epoch > state.epoch:
                return Refusal(
                    ErrorCode.UNKNOWN_LEADER_EPOCH, f"epoch {epoch} is not known here, this is {state.epoch}"
                )
            wrong = problem_of(voter)
        case RemoveVoterRequest(voter=replica):
            wrong = None if len(replica.directory_id) == 16 else "directory_id must be 16 bytes"
        case TransferLeadershipRequest():
            wrong = None
        case _:
            assert_never(request)
    return None if wrong is None else Refusal(ErrorCode.INVALID_REQUEST, wrong)


def problem_of(voter: Voter) -> str | None:
    """Why `voter` cannot stand in a voter set; None if it can."""
    if voter.node_id < 0:
        return f"node_id is {voter.node_id}; it must not be negative"
    if len(voter.directory_id) != 16 or voter.directory_id == ZERO_UUID:
        return "directory_id must be given: 16 bytes, not all zero (KIP-853)"
    if not 0 < len(voter.endpoints) <= ENDPOINTS_MAX:
        return f"{len(voter.endpoints)} endpoints; from 1 to {ENDPOINTS_MAX}"
    for endpoint in voter.endpoints:
        if not (0 < len(endpoint.listener) <= NAME_CHARS_MAX and 0 < len(endpoint.host) <= NAME_CHARS_MAX):
            return f"an endpoint's listener and host must have from 1 to {NAME_CHARS_MAX} characters"
        if not 0 < endpoint.port < 65_536:
            return f"port {endpoint.port} of {endpoint.host}; from 1 to 65535"
    if not 0 <= voter.kraft_version_min <= KRAFT_VERSION <= voter.kraft_version_max:
        levels = f"{voter.kraft_version_min} to {voter.kraft_version_max}"
        return f"it supports kraft.version {levels}; this quorum is at {KRAFT_VERSION}"
    return None


def _not_yet(state: QuorumState, leadership: Leader) -> Refusal | None:
    if not committed_in_epoch(state, leadership):
        return Refusal(ErrorCode.NOT_READY, "this leader has not committed a record of its epoch yet: try again")
    at, high_watermark = state.voters.latest_offset, state.known_high_watermark
    if at is not None and (high_watermark is None or at >= high_watermark):
        return Refusal(ErrorCode.REQUEST_TIMED_OUT, f"the voter set at offset {at} is not committed yet: one at a time")
    return None


def _does_not_fit(state: QuorumState, leadership: Leader, request: VoterChange) -> Refusal | None:
    voters = state.latest_voters
    match request:
        case AddVoterRequest(voter=voter):
            known = voters.key_of(voter.node_id)
            if known is not None:
                return Refusal(ErrorCode.DUPLICATE_VOTER, f"{known} votes already; another disk of it must go first")
            if len(voters) >= VOTERS_MAX:
                return Refusal(ErrorCode.INVALID_REQUEST, f"{len(voters)} controllers vote; at most {VOTERS_MAX}")
        case RemoveVoterRequest(voter=replica):
            if not voters.contains(replica):
                return Refusal(ErrorCode.VOTER_NOT_FOUND, f"{replica} does not vote; the voters are {voters}")
            if len(voters) == 1:
                return Refusal(ErrorCode.VOTER_NOT_FOUND, f"{replica} is the only voter")
            twin = _live_twin(state, leadership, replica)
            if twin is not None:
                why = f"{replica} and {twin} both fetch from this leader: two machines go by one id, stop one of them"
                return Refusal(ErrorCode.NOT_READY, why)
        case UpdateVoterRequest(voter=voter):
            key = ReplicaKey(voter.node_id, voter.directory_id)
            if not voters.contains(key):
                return Refusal(ErrorCode.VOTER_NOT_FOUND, f"{key} does not vote; the voters are {voters}")
            return None
        case _:
            assert_never(request)
    return _not_enough_live(state, leadership, request, presumed=_newcomers(request))


def _live_twin(state: QuorumState, leadership: Leader, voter: ReplicaKey) -> ReplicaKey | None:
    """Another live replica under the id of a live voter. A new disk's owner asks for its former self to be removed, and by a
    slip of the configuration that may be somebody else, in the best of health."""
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
    """Whether the new set would lack a live majority, `presumed` taken for live."""
    if isinstance(request, UpdateVoterRequest):
        return None
    after = VoterSet(changed(state.latest_voters, request).voters)
    live = live_replicas(state, leadership) | presumed
    if majority_would_be_live(after, live):
        return None
    count = sum(key in live for key in after.keys)
    why = f"of the voters {after} only {count} would fetch from this leader, and {after.majority} are needed to commit"
    return Refusal(ErrorCode.NOT_READY, why)


def _refusal_of_transfer(state: QuorumState, leadership: Leader, request: TransferLeadershipRequest) -> Refusal | None:
    target = request.target
    if target == state.me.node_id:
        return None
    if target is not None and state.latest_voters.key_of(target) is None:
        why = f"controller {target} does not vote; the voters are {state.latest_voters}"
        return Refusal(ErrorCode.VOTER_NOT_FOUND, why)
    if not transfer.targets(state, leadership, target):
        return Refusal(ErrorCode.INVALID_REQUEST, transfer.why_no_target(state, leadership, target))
    return None


def changed(voters: VoterSet, request: VoterChange) -> Voters:
    """The set after `request`, sorted by node id."""
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


# --- going on --------------------------------------------------------------------------------------------------------


def go_on(state: QuorumState) -> None:
    """What can be done now for the pending wish. Called at the end of every step."""
    leadership = state.role
    if not isinstance(leadership, Leader):
        return
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
    """Appends the new set, the last effect of its step. It is written when the log says so, for the disk may be full."""
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
        _end(state, leadership, change, ErrorCode.NONE, "it is so already")
        return
    state.effects.append(AppendControl(state.epoch, voters))


def _obstacle(state: QuorumState, leadership: Leader, request: VoterChange) -> str | None:
    """What a change has to wait for: a newcomer that follows, and has caught up."""
    if not isinstance(request, AddVoterRequest):
        return None
    voter = request.voter
    progress = leadership.replicas.get(ReplicaKey(voter.node_id, voter.directory_id))
    if progress is None or not leader.is_live(state, progress):
        return f"controller {voter.node_id}, with this directory id, to fetch from this leader"
    if not _has_caught_up(state, progress):
        return f"controller {voter.node_id} to catch up: it stands at {progress.end_offset} of {state.shape.end}"
    return None


def _watch_commit(state: QuorumState, leadership: Leader, change: PendingChange, offset: Offset) -> None:
    if state.known_high_watermark is not None and state.known_high_watermark > offset:
        _end(state, leadership, change, ErrorCode.NONE, "committed", offset)
    elif isinstance(change.request, AddVoterRequest) and not change.request.ack_when_committed:
        _end(state, leadership, change, ErrorCode.NONE, f"in force from offset {offset} on; not committed yet", offset)
    elif change.deadline_ms <= state.now_ms:
        text = change.may_have_happened(
            f"no majority of the new voters has confirmed it in {change.request.timeout_ms} ms"
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
    leadership.changes.pending = None
    _answer(state, change.reply_to, error, text, offset)


# --- words -----------------------------------------------------------------------------------------------------------


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
