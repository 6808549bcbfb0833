"""Whom a node follows now: what it tells people, load balancers and clients of a leader.

For elections a node remembers the leader that it had (`QuorumState.leader_id`): a prospective one may go back to it. A report
must not take memory for news:

    1 leads {1,2,3}. 3 dies, then 1 does. 2 remembers that 1 led, asks for votes, gets none, waits for 1 again, for ever.
    2 follows nobody, from the moment on at which 1 has not answered it for a fetch timeout; and that is what 2 says.

So a follower names a leader that has answered one of its fetches well within `fetch_timeout_ms`, and no other. A leader names
itself while a majority has followed it within `check_quorum_ms` (a new one is given that time from its election on): one that was
paused, or cut off, hears only later that it has been succeeded. Nothing is decided by any of this.
"""

from collections.abc import Sequence
from typing import NamedTuple, assert_never

from metadata_log.ids import NodeId
from quorum.core.quorum_state import QuorumState
from quorum.core.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached, Votes


class Followed(NamedTuple):
    """Whom this node follows, or why nobody."""

    leader_id: NodeId | None
    reason: str = ""
    """Why nobody, in words; empty where somebody is followed."""
    since_ms: int = 0
    """Where nobody is followed: when a leader was last heard, or, if none was, when this process started (`now_ms`)."""


def followed(q: QuorumState, now_ms: int) -> Followed:
    """As of `now_ms`, which may be later than the last input."""
    heard_ms = q.started_ms if q.heard_ms is None else q.heard_ms
    match q.role:
        case Leader() as term:
            began_ms = term.last_round_began_ms(q.latest_voters, q.me)
            shown_ms = term.elected_ms if began_ms is None else max(began_ms, term.elected_ms)
            if now_ms - shown_ms < q.config.check_quorum_ms:
                return Followed(q.me.node_id)
            reason = f"it leads epoch {q.epoch}, but no majority has followed it for {q.config.check_quorum_ms} ms"
            return Followed(None, reason, shown_ms)
        case Follower() as role if role.heard_ms is not None and not role.suspicious:
            if now_ms - role.heard_ms < q.config.fetch_timeout_ms:
                return Followed(role.leader_id)
            reason = f"controller {role.leader_id}, its leader, has not answered for {q.config.fetch_timeout_ms} ms"
            return Followed(None, reason, role.heard_ms)
        case _:
            return Followed(None, _why_nobody(q), heard_ms)


def _why_nobody(q: QuorumState) -> str:
    known = q.election.leader_id
    lost = f"controller {known}, the last leader that it knew, does not answer it" if known is not None else ""
    match q.role:
        case Follower(leader_id=leader_id) as role if role.suspicious:
            return f"controller {leader_id}, its leader, is gone or has stepped down"
        case Follower():
            return lost
        case Prospective(votes=votes):
            asked = _answers(q, votes)
            return f"{lost or f'nobody leads epoch {q.epoch}'}; it asks who would vote for it{asked}"
        case Candidate(votes=votes):
            return f"it runs for leader of epoch {q.epoch}{_answers(q, votes)}"
        case Resigned():
            return f"it led epoch {q.epoch} and leads no more"
        case Unattached() | Leader():
            return f"it has heard of no leader of epoch {q.epoch}"
        case _:
            assert_never(q.role)


def _answers(q: QuorumState, votes: Votes) -> str:
    """Which voters keep it from a majority so far."""
    others = q.latest_voters.others(q.me)
    refusing = [voter.node_id for voter in others if voter in votes.rejected]
    silent = [voter.node_id for voter in others if voter not in votes.rejected and voter not in votes.granted]
    said = [
        *([f"{_list(silent)} {'does' if len(silent) == 1 else 'do'} not answer"] if silent else []),
        *([f"{_list(refusing)} {'refuses' if len(refusing) == 1 else 'refuse'}"] if refusing else []),
    ]
    return f", and of the other voters {' and '.join(said)}" if said else ""


def _list(node_ids: Sequence[NodeId]) -> str:
    return ", ".join(str(node_id) for node_id in sorted(node_ids))
