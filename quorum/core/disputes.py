"""Whose history is it, if two differ at equal (offset, epoch)? Nobody truncates; the other voters decide.

Log matching says that two logs which hold a record of the same epoch at the same offset agree on everything before it. If
their chains differ all the same, somebody's disk or code has lied. Whoever cut its log on the strength of the other's word
might cut away the only true copy. So both ends of the dispute do the same thing: they ask every other voter for its chain
at that place, and count.

    follower: its fetch was answered CHAIN_MISMATCH --+
                                                      +--> Dispute: place, own chain --ChainRequest--> the other voters
    leader:   a voter's fetch differs at its end -----+

    a majority has one other chain   this node is the odd one out. It stops, and says where; a leader resigns before.
    a majority has this node's       the other one is. A follower does not follow such a leader, and runs as if that had gone;
                                     a leader goes on leading, and does not count whoever differs.
    neither                          nobody moves. A follower goes on asking, its leader and those who have not said yet; it is
                                     fed nothing meanwhile, and does not vote for such a leader. `problem` says so to whoever
                                     looks. With two voters this is all that can be known, and a person has to decide.

A witness that does not hold the place has said nothing. (It may hold it later, copied from one of the two: then that one's
history is the majority's, which is what decides.) Each mismatch asks again whoever has not said, so there is no timer. A
dispute is over when the leader's logs and the follower's agree again: under another leader, or after a restart with another
directory.

Sources: none in KRaft, which has no chain. Compare Raft 5.3, log matching.
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
"""Hexadecimal digits of a chain that are enough to tell two apart."""

NO_BOUNDARY = bytes(32)
"""The chain of a log that holds the place in the middle of a batch: another history than that of a log where one ends."""

# --- the two ends of it ----------------------------------------------------------------------------------------------


def on_mismatch(state: QuorumState, role: Follower, request: FetchRequest) -> None:
    """The leader has another history at the end of this node's log."""
    state.role = replace(role, has_fetched=False)
    _open(state, state.me, role.leader_id, request, request.chain)


def on_accused(state: QuorumState, request: FetchRequest, chain: bytes | None) -> None:
    """A replica has another history than this leader's `chain`. An observer's word starts no dispute: it may be anybody's."""
    if state.latest_voters.contains(request.replica):
        _open(state, request.replica, request.replica.node_id, request, chain or NO_BOUNDARY)


def close(state: QuorumState, other: ReplicaKey) -> None:
    """The logs agree: this follower's (`other` is itself) with its leader's, or that of `other` with this leader's."""
    state.disputes.pop(other, None)


def _open(state: QuorumState, other: ReplicaKey, with_whom: NodeId, request: FetchRequest, chain: bytes) -> None:
    dispute = state.disputes.get(other)
    if dispute is None or not dispute.is_at(request) or (dispute.chain, dispute.with_whom) != (chain, with_whom):
        dispute = state.disputes[other] = Dispute(request.fetch_offset, request.last_fetched_epoch, chain, with_whom)
    for voter in state.latest_voters.others(state.me):
        node_id = voter.node_id
        if node_id not in dispute.said and node_id not in dispute.asked and node_id != state.me.node_id:
            dispute.asked.add(node_id)
            state.send(node_id, ChainRequest(state.me, dispute.offset, dispute.epoch))
    _judge(state, dispute)


# --- witnesses -------------------------------------------------------------------------------------------------------


def on_chain_request(state: QuorumState, request: ChainRequest, reply_to: int, chain_at_offset: bytes | None) -> None:
    """A witness says what is on its disk; `chain_at_offset` is this node's chain there."""
    error, chain, shape = ErrorCode.NONE, None, state.shape
    if min(request.offset, request.epoch, request.replica.node_id) < 0:
        error = ErrorCode.INVALID_REQUEST
    elif request.offset <= shape.flushed_end and shape.epoch_below(request.offset) == request.epoch:
        chain = chain_at_offset or NO_BOUNDARY
    state.reply(
        reply_to, ChainResponse(error, state.epoch, state.leader_hint, chain, shape.flushed_end, shape.last_epoch)
    )


def on_chain_response(state: QuorumState, source: NodeId, request: ChainRequest, response: ChainResponse) -> None:
    """What a witness holds. (Of epochs and leaders nothing is taken in: that is the fetches' business.)"""
    for dispute in list(state.disputes.values()):
        if dispute.is_at(request):
            dispute.asked.discard(source)
            if response.error is ErrorCode.NONE and response.chain is not None:
                dispute.said[source] = response.chain
            _judge(state, dispute)


def on_chain_failed(state: QuorumState, destination: NodeId, request: ChainRequest) -> None:
    for dispute in state.disputes.values():
        if dispute.is_at(request):
            dispute.asked.discard(destination)


# --- the verdict -----------------------------------------------------------------------------------------------------


def _majority_chain(state: QuorumState, dispute: Dispute) -> bytes | None:
    """The chain that a majority of the voters has at the disputed place; None if there is none, or it is not known."""
    voters = state.latest_voters
    said = {node_id: chain for node_id, chain in dispute.said.items() if voters.key_of(node_id) is not None}
    if state.is_voter and state.disk_trust.may_vote:
        said[state.me.node_id] = dispute.chain
    chain, count = Counter(said.values()).most_common(1)[0] if said else (b"", 0)
    return chain if count >= voters.majority else None


def _judge(state: QuorumState, dispute: Dispute) -> None:
    """Draws the conclusion, as far as there is one.

    Raises:
        SafetyViolated: this node is the odd one out.
    """
    chain, role = _majority_chain(state, dispute), state.role
    if chain is None:
        return
    if chain != dispute.chain:
        if isinstance(role, Leader):
            leader.resign(state, role, Why.ACCUSED)
        with_them = sorted(node_id for node_id, said in dispute.said.items() if said == chain)
        raise SafetyViolated(
            f"this node's history is not the quorum's: at offset {dispute.offset}, epoch {dispute.epoch}, its chain is "
            f"{dispute.chain.hex()[:SHOWN]}, and nodes {', '.join(map(str, with_them))}, a majority, have "
            f"{chain.hex()[:SHOWN]}; nothing was cut. Keep this directory for a look, and give the node a new one"
        )
    if isinstance(role, Follower) and state.me in state.disputes:
        suspect(state, role)


def problem(state: QuorumState) -> str:
    """Which dispute this node has, in one sentence; empty if it has none."""
    for dispute in state.disputes.values():
        decided = _majority_chain(state, dispute) is not None
        outcome = "a majority has this node's" if decided else "no majority decides between them, so nobody moves"
        return (
            f"node {dispute.with_whom} has another history at offset {dispute.offset}, epoch {dispute.epoch}, "
            f"where the chain here is {dispute.chain.hex()[:SHOWN]}; {outcome}"
        )
    return ""
