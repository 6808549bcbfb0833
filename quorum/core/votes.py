"""Being asked: whether this node grants a vote or a pre-vote, and what it does when told that an epoch begins or ends.

The law of a vote (Raft 5.2, 5.4.1): one per epoch, durable before it is spoken, and only for a candidate whose log is at least as
up to date, because then a majority's votes are worth a log that holds everything committed. A pre-vote (KIP-996) is the
same question in the conditional; it changes nothing here, neither epoch nor timer nor disk. How a vote becomes durable:
`QuorumState.vote_for` puts `SaveElectionState` before the reply, and the node carries effects out in order. The vote
that a candidate gives itself is in `election`.

                 vote                                          pre-vote
    leader       no                                            no
    follower     no (it knows a leader)                        if up to date, and the leader has not answered it yet or is gone
                                                               (a restarted one gives its leader a fetch timeout first)
    candidate    no (it voted for itself)                      if up to date
    resigned     no                                            if up to date
    unattached   if up to date, no leader known in the epoch,  if up to date
    prospective    and no other vote given in it               if up to date
    lost a tail  never (see `disk_trust`)                      never

An observer votes like a voter. Who asks counts only the votes of its own set, and asks this very replica only because that
set names it; this node may simply not have the record yet that lets it vote. If it then refused, nobody might win:

    1 leads {1,2,3}, appends {1,2,3,4}; only 2 has that record when 1 dies.
    2 needs three of {1,2,3,4}: itself, 3, and 4, which does not know that it votes.    3 lacks the record: 2 refuses it.

One vote an epoch, durable before it is spoken, holds for an observer too, so nothing is lost by it. (A node whose disk was
replaced is not meant by those who ask for its former self: INVALID_VOTER_KEY.)

How much a stranger may do. Whoever reaches the port may say anything, and so may a disk that was cloned into the wrong place.
A vote request of a replica outside the voter set is answered (this node's set may be the older one), but:

  * It costs no healthy leader its term: while this node leads, or its leader answers it, such a request moves neither epoch nor
    vote. (KRaft takes the epoch in, and has an election for it.) A voter that this node has not heard of yet loses nothing by
    that: if its leader knows the newer set, it is the leader's to step down, and if the leader is gone, this node notices.
  * An epoch is taken in only if it lies within reach (`epochs`). It is durable, and there is none after the last: one request
    that named 2^63 - 1 would end all elections of the cluster for good, through every restart.
  * That an epoch begins or ends is believed only of a replica that votes, or has voted, in this node's own log. Nobody else
    could be followed anyway, and what a stranger claims must not look like a second leader, which stops the node. But where it
    knows this very replica, it may lead a set that was formed while this node was away: then a node that has lost its
    leader asks the stranger as well, and judges by what that answers.
"""

from dataclasses import replace

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Epoch, NodeId, OffsetAndEpoch, ReplicaKey
from quorum.core.protocol.effects import ElectionState
from quorum.core.protocol.epochs import reach
from quorum.core.protocol.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    VoteRequest,
    VoteResponse,
)
from quorum.core.quorum_state import QuorumState, SafetyViolated
from quorum.core.roles import Follower, Leader, Role, RoleState, Unattached, Why


def is_up_to_date(candidate: OffsetAndEpoch, mine: OffsetAndEpoch) -> bool:
    """Raft 5.4.1: the later last epoch wins; at equal epochs the longer log does."""
    return (candidate.epoch, candidate.offset) >= (mine.epoch, mine.offset)


def grants(
    role: RoleState, election: ElectionState, candidate: ReplicaKey, *, up_to_date: bool, pre_vote: bool
) -> bool:
    """The table above, for a node whose epoch is already the request's (or, for a pre-vote, not above it)."""
    if not up_to_date:
        return False
    if pre_vote:
        match role:
            case Follower():
                return role.suspicious or not role.has_fetched
            case _:
                return role.role is not Role.LEADER
    if role.role not in (Role.UNATTACHED, Role.PROSPECTIVE):
        return False
    if election.voted_for is not None:
        return election.voted_for == candidate
    return election.leader_id is None


def on_vote_request(state: QuorumState, request: VoteRequest, reply_to: int) -> None:
    def answer(error: ErrorCode, granted: bool = False) -> None:
        state.reply(reply_to, VoteResponse(error, state.epoch, state.leader_hint, granted))

    # A pre-vote names the epoch that its sender is in, a vote the one that it wants to lead.
    last_epoch_max = request.epoch if request.pre_vote else request.epoch - 1
    if not (0 <= request.last_epoch <= last_epoch_max and request.end_offset >= 0 and request.candidate.node_id >= 0):
        return answer(ErrorCode.INVALID_REQUEST)
    if request.epoch < state.epoch:
        return answer(ErrorCode.FENCED_LEADER_EPOCH)
    if request.receiver != state.me:
        return answer(ErrorCode.INVALID_VOTER_KEY)
    if request.candidate.node_id == state.me.node_id or _is_out_of_reach(state, request.epoch):
        return answer(ErrorCode.INVALID_REQUEST)
    if _is_untimely(state, request.candidate):
        return answer(ErrorCode.NONE)
    if request.epoch > state.epoch and not request.pre_vote:
        state.become_unattached(request.epoch, Why.HIGHER_EPOCH)
    may_vote = state.disk_trust.may_vote and not _disputes_with(state, request.candidate.node_id)
    granted = may_vote and grants(
        state.role,
        state.election,
        request.candidate,
        up_to_date=is_up_to_date(OffsetAndEpoch(request.end_offset, request.last_epoch), state.shape.end_and_epoch),
        pre_vote=request.pre_vote,
    )
    if granted and not request.pre_vote:
        state.vote_for(request.candidate)
    return answer(ErrorCode.NONE, granted)


def _disputes_with(state: QuorumState, candidate: NodeId) -> bool:
    """Whether this node has found another history at that one: it would not follow it (see `disputes`)."""
    return any(dispute.with_whom == candidate for dispute in state.disputes.values())


def _is_untimely(state: QuorumState, candidate: ReplicaKey) -> bool:
    """A stranger runs while there is a leader that works."""
    if state.latest_voters.contains(candidate):
        return False
    match state.role:
        case Leader():
            return True
        case Follower() as role:
            return role.has_fetched and not role.suspicious
        case _:
            return False


def _is_out_of_reach(state: QuorumState, epoch: Epoch) -> bool:
    return epoch - state.epoch > reach(state.epoch)


def _refusal_of_leader(state: QuorumState, leader: ReplicaKey, epoch: Epoch) -> ErrorCode | None:
    """Why nothing that `leader` says of `epoch` is taken in; None if it is. See the file's head."""
    if epoch < 0 or leader.node_id < 0 or _is_out_of_reach(state, epoch):
        return ErrorCode.INVALID_REQUEST
    if epoch < state.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if not state.voters.has_named(leader):
        return ErrorCode.INVALID_VOTER_KEY
    return None


def _enter_epoch_of(state: QuorumState, leader: ReplicaKey, epoch: Epoch) -> None:
    """`leader` itself says that it leads, or led, `epoch`, which is not below this node's."""
    if leader.node_id == state.me.node_id:
        raise SafetyViolated(f"another node calls itself {leader}")
    known = state.election.leader_id
    if epoch == state.epoch and known is not None and known != leader.node_id:
        raise SafetyViolated(f"epoch {epoch} has two leaders: {known} and {leader.node_id}")


def on_begin_quorum_epoch(state: QuorumState, request: BeginQuorumEpochRequest, reply_to: int) -> None:
    """The leader of an epoch makes itself known: follow it."""

    def answer(error: ErrorCode) -> None:
        state.reply(reply_to, BeginQuorumEpochResponse(error, state.epoch, state.leader_hint))

    refusal = _refusal_of_leader(state, request.leader, request.epoch)
    if refusal is not None:
        if (
            refusal is ErrorCode.INVALID_VOTER_KEY
            and request.receiver == state.me
            and request.leader.node_id != state.me.node_id
        ):
            state.heard_of = request.leader.node_id
        return answer(refusal)
    if request.receiver != state.me:
        return answer(ErrorCode.INVALID_VOTER_KEY)
    _enter_epoch_of(state, request.leader, request.epoch)
    state.begun_epoch, state.begun_ms = request.epoch, state.now_ms
    if request.epoch > state.epoch or state.role.role is not Role.FOLLOWER:
        state.become_follower(request.epoch, request.leader.node_id)
    elif isinstance(state.role, Follower) and state.role.suspicious and not state.disputes:
        # It speaks, so it is there. If it does not lead any more, the next fetch will say so.
        state.role = replace(state.role, campaign_at_ms=None)
    return answer(ErrorCode.NONE)


def on_end_quorum_epoch(state: QuorumState, request: EndQuorumEpochRequest, reply_to: int) -> None:
    """The leader steps down: the preferred successor runs at once, the next ones a little later each."""

    def answer(error: ErrorCode) -> None:
        state.reply(reply_to, EndQuorumEpochResponse(error, state.epoch, state.leader_hint))

    refusal = _refusal_of_leader(state, request.leader, request.epoch)
    if refusal is not None:
        return answer(refusal)
    _enter_epoch_of(state, request.leader, request.epoch)
    state.begun_epoch, state.begun_ms = 0, state.now_ms
    if request.epoch > state.epoch:
        state.become_unattached(request.epoch, Why.HIGHER_EPOCH)
    turn_ms = state.now_ms + wait_of_rank(state, tuple(key.node_id for key in request.preferred_successors))
    match state.role:
        case Follower(campaign_at_ms=campaign_at_ms):
            earlier_ms = turn_ms if campaign_at_ms is None else min(turn_ms, campaign_at_ms)
            state.role = replace(state.role, campaign_at_ms=earlier_ms)
        case Unattached(election_deadline_ms=deadline_ms):
            state.role = Unattached(min(deadline_ms, turn_ms))
        case _:
            pass
    return answer(ErrorCode.NONE)


def wait_of_rank(state: QuorumState, successors: tuple[NodeId, ...]) -> int:
    """How long this node lets better successors go first, in milliseconds; one that is not listed goes last."""
    rank = successors.index(state.me.node_id) if state.me.node_id in successors else len(successors)
    return rank * state.config.successor_wait_ms


def suspect(state: QuorumState, role: Follower) -> None:
    """The leader's process is gone, or leads no more: run when it is this node's turn, unless it answers before."""
    if role.campaign_at_ms is None:
        turn_ms = state.now_ms + wait_of_rank(state, role.successors)
        state.role = replace(role, campaign_at_ms=turn_ms)
