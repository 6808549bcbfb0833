"""Disputes: two logs with different histories at equal (offset, epoch). No node truncates; the other voters decide.

Log matching says: two logs with a record of the same epoch at the same offset agree on all records before. If their
chains differ all the same, a disk or a program has returned wrong data. A node truncating its log on another node's
word alone might delete the only true copy. So both parties of a dispute ask every other voter for the chain at the
disputed place, and count:

    follower: the leader answered CHAIN_MISMATCH ----+
                                                     +--> Dispute: place, own chain --ChainRequest--> the other voters
    leader:   a voter's fetch differs at its end ----+

    a majority has one other chain   This node is wrong. The node stops and reports the place; a leader resigns first.
    a majority has this node's       The other party is wrong. A follower treats such a leader as gone and campaigns;
                                     a leader continues, and does not count the other party.
    no majority known                No node moves. A follower keeps asking its leader and the voters without an answer.
                                     The follower gets no records meanwhile, and does not vote for such a leader.
                                     `problem` reports the dispute. With two voters an operator has to decide.

Example, {1,2,3} led by 1:

    1. A fault leaves another record at offset 40 of node 2's log, of the same epoch as leader 1's record.
    2. Node 2 fetches at 50 with another chain than leader 1's. Leader 1 answers CHAIN_MISMATCH.
    3. Leader 1 and node 2 both ask voter 3 for its chain at 50. Voter 3 has the chain of leader 1: two of three.
    4. Node 2 stops. Leader 1 continues without counting node 2.

A voter without a record at the disputed place gives no testimony. (The voter may copy the record later from one of the
parties; that party's history is then the majority's, as it should be.) Each further mismatch repeats the requests to
voters without testimony, so no timer is needed. A dispute ends when leader and follower agree again: under another
leader, or after a restart with another directory.

KRaft has no chain, and so no disputes. Compare Raft 5.3, log matching.
"""

from collections import Counter
from dataclasses import replace

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId, ReplicaKey
from quorum.core import leader
from quorum.core.protocol.messages import ChainRequest, ChainResponse, FetchRequest
from quorum.core.protocol.testimony import Dispute
from quorum.core.quorum_state import QuorumState, SafetyViolated
from quorum.core.roles import Follower, Leader, Why
from quorum.core.votes import suspect

SHOWN = 16
"""How many hexadecimal digits of a chain a message shows: enough to tell two chains apart."""

NO_BOUNDARY = bytes(32)
"""The chain reported for a place inside a batch: another history than in a log with a batch ending there."""

# --- the two parties -------------------------------------------------------------------------------------------------


def on_mismatch(state: QuorumState, role: Follower, request: FetchRequest) -> None:
    """Opens a follower's dispute: the leader has another history at the end of this node's log."""
    state.update_role(replace(role, trusts_leader=False))
    _open(state, state.me, role.leader_id, request, request.chain)


def on_accused(state: QuorumState, request: FetchRequest, chain: bytes | None) -> None:
    """Opens a leader's dispute with a voter.

    An observer's fetch opens no dispute, because any program may pose as an observer.
    """
    if state.latest_voters.contains(request.replica):
        _open(state, request.replica, request.replica.node_id, request, chain or NO_BOUNDARY)


def _open(state: QuorumState, other: ReplicaKey, with_whom: NodeId, request: FetchRequest, chain: bytes) -> None:
    dispute = state.disputes.get(other)
    if dispute is None or not dispute.is_at(request) or (dispute.chain, dispute.with_whom) != (chain, with_whom):
        dispute = Dispute(request.fetch_offset, request.last_fetched_epoch, chain, with_whom)
        state.open_dispute(other, dispute)
    for voter in state.latest_voters.others(state.me):
        node_id = voter.node_id
        if node_id not in dispute.said and node_id not in dispute.asked and node_id != state.me.node_id:
            dispute.ask(node_id)
            state.send(node_id, ChainRequest(state.me, dispute.offset, dispute.epoch))
    _judge(state, dispute)


# --- witnesses -------------------------------------------------------------------------------------------------------


def on_chain_request(state: QuorumState, request: ChainRequest, reply_to: int, chain_at_offset: bytes | None) -> None:
    """Answers with the chain on this node's disk: `chain_at_offset`."""
    error, chain, shape = ErrorCode.NONE, None, state.shape
    if min(request.offset, request.epoch, request.replica.node_id) < 0:
        error = ErrorCode.INVALID_REQUEST
    elif request.offset <= shape.flushed_end and shape.epoch_below(request.offset) == request.epoch:
        chain = chain_at_offset or NO_BOUNDARY
    state.reply(
        reply_to, ChainResponse(error, state.epoch, state.leader_hint, chain, shape.flushed_end, shape.last_epoch)
    )


def on_chain_response(state: QuorumState, source: NodeId, request: ChainRequest, response: ChainResponse) -> None:
    """Notes a voter's testimony. (Epochs and leaders are adopted from answers to fetches only.)"""
    for dispute in list(state.disputes.values()):
        if dispute.is_at(request):
            dispute.answered(source, response.chain if response.error is ErrorCode.NONE else None)
            _judge(state, dispute)


def on_chain_failed(state: QuorumState, destination: NodeId, request: ChainRequest) -> None:
    for dispute in state.disputes.values():
        if dispute.is_at(request):
            dispute.answered(destination, None)


# --- the verdict -----------------------------------------------------------------------------------------------------


def _majority_chain(state: QuorumState, dispute: Dispute) -> bytes | None:
    """The chain of a majority of the voters at the disputed place; None: no majority, or not known yet."""
    voters = state.latest_voters
    said = {node_id: chain for node_id, chain in dispute.said.items() if voters.key_of(node_id) is not None}
    if state.is_voter and state.disk.trust.may_vote:
        said[state.me.node_id] = dispute.chain
    chain, count = Counter(said.values()).most_common(1)[0] if said else (b"", 0)
    return chain if count >= voters.majority else None


def _judge(state: QuorumState, dispute: Dispute) -> None:
    """Draws the conclusion, as far as known.

    Raises:
        SafetyViolated: this node's history is not the majority's.
    """
    chain, role = _majority_chain(state, dispute), state.role
    if chain is None:
        return
    if chain != dispute.chain:
        if isinstance(role, Leader):
            leader.resign(state, role, Why.ACCUSED)
        with_them = sorted(node_id for node_id, said in dispute.said.items() if said == chain)
        raise SafetyViolated(
            f"this node has another history than the quorum: at offset {dispute.offset}, epoch {dispute.epoch}, its chain is "
            f"{dispute.chain.hex()[:SHOWN]}, and nodes {', '.join(map(str, with_them))}, a majority, have "
            f"{chain.hex()[:SHOWN]}; nothing was truncated. Keep this directory for analysis, and start the node with a new one"
        )
    if isinstance(role, Follower) and state.me in state.disputes:
        suspect(state, role)


def problem(state: QuorumState) -> str:
    """The first open dispute, in one sentence; empty: no dispute."""
    for dispute in state.disputes.values():
        decided = _majority_chain(state, dispute) is not None
        outcome = "a majority has this node's" if decided else "no majority decides between them, so neither node moves"
        return (
            f"node {dispute.with_whom} has another history at offset {dispute.offset}, epoch {dispute.epoch}, "
            f"where the chain here is {dispute.chain.hex()[:SHOWN]}; {outcome}"
        )
    return ""
