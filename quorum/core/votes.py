"""Requests about elections: votes, pre-votes, and another node's news that an epoch begins or ends.

The law of a vote (Raft 5.2, 5.4.1): a node grants one vote per epoch, saves the vote before replying, and grants only
to a candidate whose log is at least as up to date as its own. The votes of a majority then prove that the candidate
holds all committed records. A pre-vote (KIP-996) asks the same question without consequences: neither epoch nor timer
nor disk changes. `QuorumState.vote_for` queues `SaveElectionState` before the reply, and the node carries out effects
in order. A candidate's vote for itself is in `election`.

                 vote                                          pre-vote
    leader       no                                            no
    follower     no (a follower knows a leader)                if up to date, and the leader is gone or has not answered yet
                                                               (a restarted follower gives its leader a fetch timeout first)
    candidate    no (a candidate voted for itself)             if up to date
    resigned     no                                            if up to date
    unattached   if up to date, no leader known in the epoch,  if up to date
    prospective    and no other vote given in the epoch        if up to date
    full disk    as above                                      never (see `disk_trust`)
    lost a tail  never (see `disk_trust`)                      never

An observer votes like a voter. A candidate counts only the votes of its own voter set, and asks an observer only
because the candidate's set names the observer. The observer may merely lack the record which makes it a voter. If
observers refused, an election could fail for ever:

    1. Node 1 leads {1,2,3} and appends the set {1,2,3,4}. Only node 2 has the record when node 1 dies.
    2. Node 2 needs three votes of {1,2,3,4}: its own, and those of 3 and 4. Node 4 does not know that it is a voter.
    3. Node 3 cannot win either: node 3 lacks the record, so node 2 refuses it.

"One vote per epoch, saved before the reply" holds for an observer, too, so such a vote is safe. (A node with a replaced
disk refuses requests meant for its former self: INVALID_VOTER_KEY.)

Strangers have few rights. Any program can send requests to the port, and so can a node with a cloned disk. A node
answers vote requests of replicas outside its voter set, because its own set may be the older one, but:

* A stranger costs no healthy leader its office. While the node leads, or its leader answers, a stranger's request moves
  neither epoch nor vote. (KRaft adopts the epoch, and holds an election.) A new voter unknown to this node loses
  nothing: a leader with the newer set steps down by itself, and without a leader this node notices the silence.
* A node adopts an epoch only within reach (`epochs`). Epochs are durable, and no epoch follows the last one: a single
  request naming 2^63 - 1 would otherwise end all elections of the cluster for good, even after restarts.
* A node believes "epoch N begins" or "epoch N ends" only from a replica which is or was a voter in the node's own log.
  The node could not follow any other replica anyway, and a stranger's claim must not look like a second leader, which
  stops the node. A stranger may still lead a newer voter set, formed while this node was away. So if the stranger's
  request names this very replica, a node without a leader asks the stranger as well, and judges by the answer.
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
from quorum.core.protocol.voters import VOTERS_MAX
from quorum.core.quorum_state import QuorumState, SafetyViolated
from quorum.core.roles import Follower, Leader, Role, RoleState, Unattached, Why


def is_up_to_date(candidate: OffsetAndEpoch, mine: OffsetAndEpoch) -> bool:
    """Raft 5.4.1: the later last epoch wins; with equal epochs, the longer log wins."""
    return (candidate.epoch, candidate.offset) >= (mine.epoch, mine.offset)


def grants(
    role: RoleState, election: ElectionState, candidate: ReplicaKey, *, up_to_date: bool, pre_vote: bool
) -> bool:
    """The table above, for a node already in the request's epoch (for a pre-vote: in the request's epoch or an earlier
    one).
    """
    if not up_to_date:
        return False
    if pre_vote:
        match role:
            case Follower():
                return role.suspicious or not role.trusts_leader
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

    # A pre-vote names the sender's current epoch; a vote names the epoch the sender wants to lead.
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
    trust = state.disk.trust
    may_grant = trust.may_grant_pre_vote if request.pre_vote else trust.may_vote
    may_vote = may_grant and not _disputes_with(state, request.candidate.node_id)
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
    """True if the candidate has another history than this node, which would not follow it (see `disputes`)."""
    return any(dispute.with_whom == candidate for dispute in state.disputes.values())


def _is_untimely(state: QuorumState, candidate: ReplicaKey) -> bool:
    """True if a stranger campaigns while a working leader exists."""
    if state.latest_voters.contains(candidate):
        return False
    match state.role:
        case Leader():
            return True
        case Follower() as role:
            return role.trusts_leader and not role.suspicious
        case _:
            return False


def _is_out_of_reach(state: QuorumState, epoch: Epoch) -> bool:
    return epoch - state.epoch > reach(state.epoch)


def _refusal_of_leader(state: QuorumState, leader: ReplicaKey, epoch: Epoch) -> ErrorCode | None:
    """The reason for ignoring `leader`'s news about `epoch`; None: believe it. See the file's head."""
    if epoch < 0 or leader.node_id < 0 or _is_out_of_reach(state, epoch):
        return ErrorCode.INVALID_REQUEST
    if epoch < state.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if not state.voters.has_named(leader):
        return ErrorCode.INVALID_VOTER_KEY
    return None


def _enter_epoch_of(state: QuorumState, leader: ReplicaKey, epoch: Epoch) -> None:
    """Checks the claim of `leader` to lead, or to have led, `epoch`. The epoch is not below this node's."""
    if leader.node_id == state.me.node_id:
        raise SafetyViolated(f"another node uses this node's id: {leader}")
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
            state.contact.claims(request.leader.node_id)
        return answer(refusal)
    if request.receiver != state.me:
        return answer(ErrorCode.INVALID_VOTER_KEY)
    _enter_epoch_of(state, request.leader, request.epoch)
    state.contact.began(request.epoch, state.now_ms)
    if request.epoch > state.epoch or state.role.role is not Role.FOLLOWER:
        state.become_follower(request.epoch, request.leader.node_id)
    elif isinstance(state.role, Follower) and state.role.suspicious and not state.disputes:
        # The leader is alive. If it leads no longer, the next fetch will say so.
        state.update_role(replace(state.role, campaign_at_ms=None))
    return answer(ErrorCode.NONE)


def on_end_quorum_epoch(state: QuorumState, request: EndQuorumEpochRequest, reply_to: int) -> None:
    """The leader steps down: the preferred successor campaigns at once, each next successor a little later."""

    def answer(error: ErrorCode) -> None:
        state.reply(reply_to, EndQuorumEpochResponse(error, state.epoch, state.leader_hint))

    refusal = _refusal_of_leader(state, request.leader, request.epoch)
    if refusal is not None:
        return answer(refusal)
    _enter_epoch_of(state, request.leader, request.epoch)
    state.contact.ended(state.now_ms)
    if request.epoch > state.epoch:
        state.become_unattached(request.epoch, Why.HIGHER_EPOCH)
    turn_ms = state.now_ms + wait_of_rank(state, tuple(key.node_id for key in request.preferred_successors))
    match state.role:
        case Follower(campaign_at_ms=campaign_at_ms):
            earlier_ms = turn_ms if campaign_at_ms is None else min(turn_ms, campaign_at_ms)
            state.update_role(replace(state.role, campaign_at_ms=earlier_ms))
        case Unattached(election_deadline_ms=deadline_ms):
            state.update_role(Unattached(min(deadline_ms, turn_ms)))
        case _:
            pass
    return answer(ErrorCode.NONE)


def wait_of_rank(state: QuorumState, successors: tuple[NodeId, ...]) -> int:
    """How many milliseconds this node waits for better successors. A node missing in the list waits longest.

    The list comes from another node, so its length is bounded: no list makes a node wait for minutes.
    """
    rank = successors.index(state.me.node_id) if state.me.node_id in successors else len(successors)
    return min(rank, VOTERS_MAX) * state.config.successor_wait_ms


def suspect(state: QuorumState, role: Follower) -> None:
    """The leader's process is gone, or leads no longer: this node campaigns on its turn, unless the leader answers
    first.
    """
    state.contact.lost()
    if role.campaign_at_ms is None:
        turn_ms = state.now_ms + wait_of_rank(state, role.successors)
        state.update_role(replace(role, campaign_at_ms=turn_ms))
