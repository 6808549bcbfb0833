"""Running for leader: the prospective's pre-votes, the candidate's votes, and the answers to both (Raft 5.2, KIP-996).

A node asks for pre-votes in its own epoch. With a majority of those, its own included, it raises its epoch, votes for
itself, makes that durable and asks in earnest. A candidate that does not win waits out its timer and starts over with
pre-votes, still in the raised epoch. A restarted candidate does so too: it keeps its vote, and nothing more.

Who is asked and does not answer is asked again after a back-off. Who refuses a pre-vote is asked again only while this node
has seen its leader's process gone: the others will notice within moments, and then they agree.
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


def _own_vote(q: QuorumState) -> Votes:
    """Everybody else is to be asked now."""
    ask_at_ms = dict.fromkeys(q.latest_voters.others(q.me), q.now_ms)
    return Votes(granted=frozenset({q.me}), rejected=frozenset(), ask_at_ms=ask_at_ms)


def become_prospective(q: QuorumState, why: Why, *, suspicious: bool = False) -> None:
    """Asks whether a majority would vote for this node. Nothing on disk changes."""
    assert q.may_campaign, "neither an observer nor a node with a damaged log runs"
    assert not q.awaiting_log, "a node whose log is being replaced does not run"
    successors = q.role.successors if isinstance(q.role, Follower) else ()
    q.become(Prospective(_own_vote(q), q.election_deadline_ms(), suspicious, successors), why, q.election)
    count(q)


def _become_candidate(q: QuorumState) -> None:
    election = ElectionState(q.epoch + 1, voted_for=q.me, leader_id=None)
    q.become(Candidate(_own_vote(q), q.now_ms, q.election_deadline_ms()), Why.PRE_VOTE_WON, election)
    count(q)


def give_up(q: QuorumState, role: Prospective) -> None:
    """A prospective goes back to where it was: to its leader, or to waiting; to asking around, if there is a new hint."""
    if q.election.leader_id is not None and q.heard_of is None:
        q.become_follower(q.epoch, q.election.leader_id, Why.PRE_VOTE_LOST)
        assert isinstance(q.role, Follower)
        q.role = replace(q.role, successors=role.successors)
    else:
        q.become_unattached(q.epoch, Why.PRE_VOTE_LOST)


def count(q: QuorumState) -> None:
    """Draws the conclusion from the votes so far; asks those who are to be asked now."""
    voters = q.latest_voters
    match q.role:
        case Prospective(votes=votes) if votes.won(voters):
            _become_candidate(q)
        case Prospective(votes=votes) as role if votes.lost(voters):
            give_up(q, role)
        case Candidate(votes=votes, started_ms=started_ms) if votes.won(voters):
            leader.lead(q, votes.granted, started_ms)
        case Prospective() | Candidate():
            ask(q)
        case _:
            pass


def ask(q: QuorumState) -> None:
    """Sends the vote requests that are due."""
    role = q.role
    if not isinstance(role, Prospective | Candidate):
        return
    due = [voter for voter, ask_at_ms in role.votes.ask_at_ms.items() if ask_at_ms <= q.now_ms]
    if not due:
        return
    later = {voter: at_ms for voter, at_ms in role.votes.ask_at_ms.items() if at_ms > q.now_ms}
    q.role = replace(role, votes=replace(role.votes, ask_at_ms=later))
    for voter in due:
        q.send(voter.node_id, _vote_request(q, voter, pre_vote=isinstance(role, Prospective)))


def _vote_request(q: QuorumState, voter: ReplicaKey, *, pre_vote: bool) -> VoteRequest:
    end, last_epoch = q.shape.end_and_epoch
    return VoteRequest(q.me, voter, q.epoch, last_epoch, end, pre_vote)


def _is_awaited(q: QuorumState, request: VoteRequest) -> bool:
    """Whether `request` belongs to the round that is going on: votes of another epoch or kind are not counted."""
    if request.epoch != q.epoch or request.candidate != q.me:
        return False
    return isinstance(q.role, Prospective if request.pre_vote else Candidate)


def on_vote_response(q: QuorumState, source: NodeId, request: VoteRequest, response: VoteResponse) -> None:
    """Notes one voter's answer.

    An answer to a pre-vote may come from an older epoch, of a node that has not heard of ours: it is an answer to our
    question all the same, and a node that alone stands in a higher epoch would else never get one.
    """
    fresh = q.absorb(response.epoch, response.leader_id)
    if not _is_awaited(q, request) or not (fresh or request.pre_vote):
        return
    role, voter = q.role, request.receiver
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
        votes = _ask_later(q, votes, voter)
    q.role = replace(role, votes=votes)
    count(q)


def on_vote_failed(q: QuorumState, request: VoteRequest) -> None:
    """No answer: ask again in a while."""
    if not _is_awaited(q, request):
        return
    role = q.role
    assert isinstance(role, Prospective | Candidate)
    q.role = replace(role, votes=_ask_later(q, role.votes, request.receiver))


def _ask_later(q: QuorumState, votes: Votes, voter: ReplicaKey) -> Votes:
    if voter in votes.granted or voter in votes.rejected:
        return votes
    return replace(votes, ask_at_ms={**votes.ask_at_ms, voter: q.now_ms + q.config.retry_backoff_ms})


def on_timer(q: QuorumState) -> None:
    """The election timeout of a prospective or candidate, or the time to ask somebody again."""
    role = q.role
    assert isinstance(role, Prospective | Candidate)
    if role.deadline_ms > q.now_ms:
        ask(q)
        return
    match role:
        case Prospective():
            give_up(q, role)
        case Candidate() if not q.has_next_epoch:
            # The votes of this epoch may still come. There is no next epoch in which it could ask for others.
            q.role = replace(role, deadline_ms=q.election_deadline_ms())
            ask(q)
        case Candidate():
            become_prospective(q, Why.VOTE_LOST)
        case _:
            assert_never(role)
