"""The rules for a change of the voters or of the leader: the voter set that follows, and the reasons for a refusal.

The theory is in `quorum.core.membership`. A refusal is an error code and a sentence, and nothing was done.

Example, leader 1 of {1,2,3}: an operator asks to remove voter 3, and voter 2 has not fetched for the check-quorum time.
The new set {1,2} would have only one live voter and needs two: NOT_READY.
"""

from collections.abc import Collection
from typing import Final, NamedTuple, assert_never

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import ReplicaKey
from metadata_log.format.records import Voters
from quorum.core import leader
from quorum.core.long_poll import high_watermark_told
from quorum.core.membership import transfer
from quorum.core.protocol.messages import (
    AddVoterRequest,
    QuorumChangeRequest,
    RemoveVoterRequest,
    TransferLeadershipRequest,
    UpdateVoterRequest,
)
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
    caught_up = {state.me, *(key for key, progress in leadership.replicas.items() if has_caught_up(state, progress))}
    return majority_would_be_live(state.latest_voters, {key for key in caught_up if key.node_id not in down})


def has_caught_up(state: QuorumState, progress: ReplicaProgress) -> bool:
    """True if the replica lately reached the leader's end as of the replica's previous fetch (as KIP-853 counts)."""
    at_ms = progress.last_caught_up_ms
    return leader.is_live(state, progress) and at_ms is not None and state.now_ms - at_ms < state.config.check_quorum_ms


# --- refusals --------------------------------------------------------------------------------------------------------


def refusal_now(state: QuorumState, request: QuorumChangeRequest) -> Refusal | None:
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
    return not_yet(state, leadership) or _forgotten(state, request)


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


def not_yet(state: QuorumState, leadership: Leader) -> Refusal | None:
    if high_watermark_told(state, leadership) is None:
        return Refusal(ErrorCode.NOT_READY, "this leader has not committed a record of its epoch yet; try again")
    at, high_watermark = state.voters.latest_offset, state.known_high_watermark
    if at is not None and (high_watermark is None or at >= high_watermark):
        return Refusal(
            ErrorCode.REQUEST_TIMED_OUT,
            f"the voter set at offset {at} is not committed yet; changes are made one at a time",
        )
    return None


def does_not_fit(state: QuorumState, leadership: Leader, request: QuorumChangeRequest) -> Refusal | None:
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
    return unfit(state, request) or not_enough_live(state, leadership, request, presumed=_newcomers(request))


def unfit(state: QuorumState, request: VoterChange) -> Refusal | None:
    """The refusal of a new voter that will not fit this cluster, however long the leader waits."""
    judgements = [state.judge_newcomer(key) for key in _newcomers(request)]
    final = [each.why for each in judgements if each is not None and not each.may_pass]
    return Refusal(ErrorCode.UNSUPPORTED_VERSION, final[0]) if final else None


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


def not_enough_live(
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
