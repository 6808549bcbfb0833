"""Campaigning: a prospective node's pre-votes, a candidate's votes, and the answers to both (Raft 5.2, KIP-996).

A node asks for pre-votes in its own epoch. With a majority of pre-votes, its own included, the node raises its epoch,
votes for itself, saves both, and asks for votes. A candidate without a majority waits for its timer and starts again
with pre-votes, in the raised epoch. A restarted candidate keeps its vote and starts again as well.

Example, in {1,2,3} at epoch 5, after the death of leader 3:

    1. Voter 1 asks 2 and 3 for pre-votes in epoch 5. Voter 2 agrees: 1 and 2 are a majority.
    2. Voter 1 saves epoch 6 with a vote for itself, and asks 2 and 3 for votes.
    3. Voter 2 grants its vote. Voter 1 leads epoch 6.

A voter without an answer is asked again after a back-off. A voter refusing a pre-vote is asked again only if this node
has seen the leader's process gone: the other voters will notice within moments, and will then agree.
"""

from dataclasses import replace
from typing import assert_never

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId, ReplicaKey
from quorum.core import leader
from quorum.core.protocol.effects import ElectionState
from quorum.core.protocol.messages import VoteRequest, VoteResponse
from quorum.core.quorum_state import QuorumState
from quorum.core.roles import Candidate, Follower, Prospective, Votes, Why


def _own_vote(state: QuorumState) -> Votes:
    """A vote for this node itself; all other voters are to be asked now."""
    ask_at_ms = dict.fromkeys(state.latest_voters.others(state.me), state.now_ms)
    return Votes(granted=frozenset({state.me}), rejected=frozenset(), ask_at_ms=ask_at_ms)


def become_prospective(state: QuorumState, why: Why, *, suspicious: bool = False) -> None:
    """Begins to ask for pre-votes. The files on disk do not change."""
    assert state.may_campaign, "an observer, or a node with a damaged log, must not campaign"
    assert not state.awaiting_log, "a node must not campaign while its log is being replaced"
    before = state.role
    successors, partial = (before.successors, before.partial) if isinstance(before, Follower) else ((), None)
    deadline_ms = state.election_deadline_ms()
    state.become(Prospective(_own_vote(state), deadline_ms, suspicious, successors, partial), why, state.election)
    count(state)


def _become_candidate(state: QuorumState) -> None:
    election = ElectionState(state.epoch + 1, voted_for=state.me, leader_id=None)
    state.become(Candidate(_own_vote(state), state.now_ms, state.election_deadline_ms()), Why.PRE_VOTE_WON, election)
    count(state)


def give_up(state: QuorumState, role: Prospective) -> None:
    """Returns a prospective node to its leader, with what the node remembers of that leader and has received from it.

    Without a known leader, or with a newer hint (`LeaderContact.claimant`), becomes unattached.
    """
    if state.election.leader_id is not None and state.contact.claimant is None:
        state.become_follower(state.epoch, state.election.leader_id, Why.PRE_VOTE_LOST)
        assert isinstance(state.role, Follower)
        state.update_role(replace(state.role, successors=role.successors, partial=role.partial))
    else:
        state.become_unattached(state.epoch, Why.PRE_VOTE_LOST)


def count(state: QuorumState) -> None:
    """Draws the conclusion from the votes so far, and sends the vote requests now due."""
    voters = state.latest_voters
    match state.role:
        case Prospective(votes=votes) if votes.won(voters):
            _become_candidate(state)
        case Prospective(votes=votes) as role if votes.lost(voters):
            give_up(state, role)
        case Candidate(votes=votes, started_ms=started_ms) if votes.won(voters):
            leader.lead(state, votes.granted, started_ms)
        case Prospective() | Candidate():
            ask(state)
        case _:
            pass


def ask(state: QuorumState) -> None:
    """Sends the vote requests now due."""
    role = state.role
    if not isinstance(role, Prospective | Candidate):
        return
    due = [voter for voter, ask_at_ms in role.votes.ask_at_ms.items() if ask_at_ms <= state.now_ms]
    if not due:
        return
    later = {voter: at_ms for voter, at_ms in role.votes.ask_at_ms.items() if at_ms > state.now_ms}
    state.update_role(replace(role, votes=replace(role.votes, ask_at_ms=later)))
    for voter in due:
        state.send(voter.node_id, _vote_request(state, voter, pre_vote=isinstance(role, Prospective)))


def _vote_request(state: QuorumState, voter: ReplicaKey, *, pre_vote: bool) -> VoteRequest:
    end, last_epoch = state.shape.end_and_epoch
    return VoteRequest(state.me, voter, state.epoch, last_epoch, end, pre_vote)


def _is_awaited(state: QuorumState, request: VoteRequest) -> bool:
    """True if `request` belongs to the current round. Votes of another epoch or kind are not counted."""
    if request.epoch != state.epoch or request.candidate != state.me:
        return False
    return isinstance(state.role, Prospective if request.pre_vote else Candidate)


def on_vote_response(state: QuorumState, source: NodeId, request: VoteRequest, response: VoteResponse) -> None:
    """Notes one voter's answer.

    The answer to a pre-vote may come from an older epoch, of a voter which has not heard of this node's epoch. Such an
    answer counts: otherwise a node alone in a higher epoch would never get one.
    """
    fresh = state.absorb(response.epoch, response.leader_id)
    if not _is_awaited(state, request) or not (fresh or request.pre_vote):
        return
    role, voter = state.role, request.receiver
    assert isinstance(role, Prospective | Candidate)
    if voter.node_id != source:
        return
    votes = role.votes
    if response.error is ErrorCode.NONE and response.vote_granted:
        votes = replace(votes, granted=votes.granted | {voter}, rejected=votes.rejected - {voter})
    elif response.error is ErrorCode.NONE and not (isinstance(role, Prospective) and role.suspicious):
        if voter not in votes.granted:
            votes = replace(votes, rejected=votes.rejected | {voter})
    else:
        votes = replace(_ask_later(state, votes, voter), unusable=votes.unusable | {voter})
    state.update_role(replace(role, votes=votes))
    count(state)


def on_vote_failed(state: QuorumState, request: VoteRequest) -> None:
    """Without an answer, schedules another request."""
    if not _is_awaited(state, request):
        return
    role = state.role
    assert isinstance(role, Prospective | Candidate)
    votes = _ask_later(state, role.votes, request.receiver)
    state.update_role(replace(role, votes=replace(votes, unusable=votes.unusable - {request.receiver})))


def _ask_later(state: QuorumState, votes: Votes, voter: ReplicaKey) -> Votes:
    if voter in votes.granted or voter in votes.rejected:
        return votes
    return replace(votes, ask_at_ms={**votes.ask_at_ms, voter: state.now_ms + state.config.retry_backoff_ms})


def on_timer(state: QuorumState) -> None:
    """The election timeout of a prospective node or candidate, or the time for another request."""
    role = state.role
    assert isinstance(role, Prospective | Candidate)
    if role.deadline_ms > state.now_ms:
        ask(state)
        return
    match role:
        case Prospective():
            give_up(state, role)
        case Candidate() if not state.has_next_epoch:
            # Votes of this epoch may still arrive. No next epoch exists for asking again.
            state.update_role(replace(role, deadline_ms=state.election_deadline_ms()))
            ask(state)
        case Candidate():
            become_prospective(state, Why.VOTE_LOST)
        case _:
            assert_never(role)
