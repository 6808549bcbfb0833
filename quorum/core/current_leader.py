"""Whom a node follows now: what it tells people, load balancers and clients of a leader.

For elections a node remembers the leader that it had (`QuorumState.leader_id`): a prospective one may go back to it. A report
must not take memory for news:

    1 leads {1,2,3}. 3 dies, then 1 does. 2 remembers that 1 led, asks for votes, gets none, waits for 1 again, for ever.
    2 follows nobody, from the moment on at which 1 has not answered it for a fetch timeout; and that is what 2 says.

So a node names a leader that it has heard within `fetch_timeout_ms`, and no other: one that has answered one of its fetches well,
or that has said itself, by BeginQuorumEpoch, that it leads this epoch. (A leader says so over and over to a voter that does not
fetch because its disk is full; clients of that voter are still sent to the leader.) What a third node says of a leader is not
enough, for it may not have noticed yet. A leader names itself while a majority has followed it within `check_quorum_ms` (a new
one is given that time from its election on): one that was paused, or cut off, hears only later that it has been succeeded.

Nothing is decided by any of this.
"""

from collections.abc import Sequence
from typing import NamedTuple, assert_never

from metadata_log.format.ids import NodeId
from quorum.core.quorum_state import QuorumState
from quorum.core.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached, Votes


class Followed(NamedTuple):
    """Whom this node follows, or why nobody."""

    leader_id: NodeId | None
    reason: str = ""
    """Why nobody, in words; empty where somebody is followed."""
    since_ms: int = 0
    """Where nobody is followed: when a leader was last heard, or, if none was, when this process started (`now_ms`)."""


def followed(state: QuorumState, now_ms: int) -> Followed:
    """As of `now_ms`, which may be later than the last input."""
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
            heard_ms = _newest(state.heard_ms, state.begun_ms)
            return Followed(None, _why_nobody(state), state.started_ms if heard_ms is None else heard_ms)


def _last_word_ms(state: QuorumState) -> int | None:
    """When the leader of this epoch was last heard; None: never, or it is seen gone."""
    if isinstance(state.role, Follower) and state.role.suspicious:
        return None
    answered_ms = state.role.heard_ms if isinstance(state.role, Follower) else None
    return _newest(answered_ms, state.begun_ms if state.begun_epoch == state.epoch else None)


def _newest(*times_ms: int | None) -> int | None:
    return max((ms for ms in times_ms if ms is not None), default=None)


def _why_nobody(state: QuorumState) -> str:
    known = state.election.leader_id
    lost = f"controller {known}, the last leader that it knew, does not answer it" if known is not None else ""
    match state.role:
        case Follower(leader_id=leader_id) as role if role.suspicious:
            return f"controller {leader_id}, its leader, is gone or has stepped down"
        case Follower(leader_id=leader_id) as role if role.heard_ms is not None:
            return f"controller {leader_id}, its leader, has not answered for {state.config.fetch_timeout_ms} ms"
        case Follower():
            return lost
        case Prospective(votes=votes):
            asked = _answers(state, votes)
            return f"{lost or f'nobody leads epoch {state.epoch}'}; it asks who would vote for it{asked}"
        case Candidate(votes=votes):
            return f"it runs for leader of epoch {state.epoch}{_answers(state, votes)}"
        case Resigned():
            return f"it led epoch {state.epoch} and leads no more"
        case Unattached() | Leader():
            return lost or f"it has heard of no leader of epoch {state.epoch}"
        case _:
            assert_never(state.role)


def _answers(state: QuorumState, votes: Votes) -> str:
    """Which voters keep it from a majority so far."""
    others = state.latest_voters.others(state.me)
    refusing = [voter.node_id for voter in others if voter in votes.rejected]
    silent = [voter.node_id for voter in others if voter not in votes.rejected and voter not in votes.granted]
    said = [
        *([f"{_list(silent)} {'does' if len(silent) == 1 else 'do'} not answer"] if silent else []),
        *([f"{_list(refusing)} {'refuses' if len(refusing) == 1 else 'refuse'}"] if refusing else []),
    ]
    return f", and of the other voters {' and '.join(said)}" if said else ""


def _list(node_ids: Sequence[NodeId]) -> str:
    return ", ".join(str(node_id) for node_id in sorted(node_ids))
