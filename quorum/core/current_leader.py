"""The leader a node currently follows: the answer to operators, load balancers and clients.

For elections, a node remembers its last leader (`QuorumState.leader_id`), because a prospective node may return to it.
A report must not name a merely remembered leader:

    1. Node 1 leads {1,2,3}. Node 3 dies, then node 1.
    2. Node 2 remembers leader 1, asks for pre-votes, gets none, waits for leader 1 again, and so on for ever.
    3. Once leader 1 has not answered for a fetch timeout, node 2 follows no leader, and reports exactly that.

So a node names only a leader heard within `fetch_timeout_ms`: the leader answered one of the node's fetches well, or
sent BeginQuorumEpoch for the current epoch. (A leader repeats BeginQuorumEpoch to a voter which cannot fetch because of
a full disk; clients of this voter still get sent to the leader.) A node which has seen its leader's process gone names
the leader again only after a new sign of life. A third node's word about a leader is not enough, because the third node
may not have noticed a failure yet. A leader names itself while a majority has followed it within `check_quorum_ms`, or
until the same time after its election: a paused leader, or one which was cut off, learns of its successor only later.

No decision of the core depends on these reports.
"""

from collections.abc import Sequence
from typing import NamedTuple, assert_never

from metadata_log.format.ids import NodeId
from quorum.core.quorum_state import QuorumState
from quorum.core.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached, Votes


class Followed(NamedTuple):
    """The followed leader, or the reason for none."""

    leader_id: NodeId | None
    reason: str = ""
    """The reason for following no leader, in words; empty with a leader."""
    since_ms: int = 0
    """Without a leader: when a leader was last heard; if never, when this process started (`now_ms`)."""


def followed(state: QuorumState, now_ms: int) -> Followed:
    """The followed leader as of `now_ms`, which may be later than the last input."""
    match state.role:
        case Leader() as leadership:
            began_ms = leadership.last_round_began_ms(state.latest_voters, state.me)
            shown_ms = leadership.elected_ms if began_ms is None else max(began_ms, leadership.elected_ms)
            if now_ms - shown_ms < state.config.check_quorum_ms:
                return Followed(state.me.node_id)
            reason = (
                f"it leads epoch {state.epoch}, but no majority has followed it for {state.config.check_quorum_ms} ms"
            )
            return Followed(None, reason, shown_ms)
        case _:
            last_ms = _last_word_ms(state)
            if last_ms is not None and now_ms - last_ms < state.config.fetch_timeout_ms:
                return Followed(state.election.leader_id)
            heard_ms = _newest(state.contact.heard_ms, state.contact.begun_ms)
            return Followed(None, _why_nobody(state), state.started_ms if heard_ms is None else heard_ms)


def _last_word_ms(state: QuorumState) -> int | None:
    """When the leader of this epoch was last heard. None: never, or the leader's process is known to be gone."""
    if isinstance(state.role, Follower) and state.role.suspicious:
        return None
    answered_ms = state.role.heard_ms if isinstance(state.role, Follower) else None
    return _newest(answered_ms, state.contact.begun_ms if state.contact.begun_epoch == state.epoch else None)


def _newest(*times_ms: int | None) -> int | None:
    return max((ms for ms in times_ms if ms is not None), default=None)


def _why_nobody(state: QuorumState) -> str:
    known = state.election.leader_id
    lost = f"it no longer hears controller {known}, its last known leader" if known is not None else ""
    match state.role:
        case Follower(leader_id=leader_id) as role if role.suspicious:
            return f"controller {leader_id}, its leader, has stopped or stepped down"
        case Follower(leader_id=leader_id) as role if role.heard_ms is not None:
            return f"controller {leader_id}, its leader, has not answered for {state.config.fetch_timeout_ms} ms"
        case Follower():
            return lost
        case Prospective(votes=votes):
            asked = _answers(state, votes)
            return f"{lost or f'no leader is known in epoch {state.epoch}'}; it asks the voters for pre-votes{asked}"
        case Candidate(votes=votes):
            return f"it is a candidate in epoch {state.epoch}{_answers(state, votes)}"
        case Resigned():
            return f"it led epoch {state.epoch} and has resigned"
        case Unattached() | Leader():
            return lost or f"it knows no leader of epoch {state.epoch}"
        case _:
            assert_never(state.role)


def _answers(state: QuorumState, votes: Votes) -> str:
    """The voters so far missing for a majority, in words."""
    others = state.latest_voters.others(state.me)
    refusing = [voter.node_id for voter in others if voter in votes.rejected]
    missing = [voter for voter in others if voter not in votes.rejected and voter not in votes.granted]
    unusable = [voter.node_id for voter in missing if voter in votes.unusable]
    silent = [voter.node_id for voter in missing if voter not in votes.unusable]
    said = [
        *([f"{_list(silent)} {'does' if len(silent) == 1 else 'do'} not answer"] if silent else []),
        *([f"{_list(unusable)} {'answers' if len(unusable) == 1 else 'answer'} without a vote"] if unusable else []),
        *([f"{_list(refusing)} {'refuses' if len(refusing) == 1 else 'refuse'}"] if refusing else []),
    ]
    return f", and of the other voters {' and '.join(said)}" if said else ""


def _list(node_ids: Sequence[NodeId]) -> str:
    return ", ".join(str(node_id) for node_id in sorted(node_ids))
