"""The timers of each role. A timer which has fired is moved or cleared, so that no timer stays due.

Example: a follower has a fetch deadline. The deadline passes, `on_timer` makes the follower prospective, and the new
role has an election deadline in the future instead.
"""

from typing import assert_never

from quorum.core import election, follower, leader
from quorum.core.membership import auto_join
from quorum.core.protocol.deadlines import soonest
from quorum.core.quorum_state import QuorumState
from quorum.core.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached, Why


def next_deadline_ms(state: QuorumState) -> int | None:
    """When the next timer of the role is due; None: no timer."""
    if state.shutting_down and not isinstance(state.role, Resigned):
        return None
    if isinstance(state.role, Leader):
        return leader.next_deadline_ms(state, state.role)  # a leader fetches from no node
    fetch_ms = state.fetch.retry_at_ms if follower.may_fetch(state) else None
    match state.role:
        case Unattached(election_deadline_ms=deadline_ms):
            return soonest(fetch_ms, deadline_ms if state.may_campaign else None)
        case Prospective(votes=asked, deadline_ms=deadline_ms) | Candidate(votes=asked, deadline_ms=deadline_ms):
            return soonest(fetch_ms, deadline_ms, *asked.ask_at_ms.values())
        case Follower() as role:
            return soonest(fetch_ms, follower.deadline_ms(state, role), auto_join.deadline_ms(state))
        case Resigned(deadline_ms=deadline_ms, tell_at_ms=tell_at_ms):
            may_go_on = state.has_next_epoch and not state.shutting_down
            return soonest(fetch_ms, deadline_ms if may_go_on else None, *tell_at_ms.values())
        case _:
            assert_never(state.role)


def on_timer(state: QuorumState) -> None:
    """Handles every due timer.

    A role which ends may leave another due timer to the next role; that timer is handled as well.
    """
    if state.shutting_down and not isinstance(state.role, Resigned):
        return
    match state.role:
        case Unattached() as role:
            follower.on_unattached_timer(state, role)
        case Follower() as role:
            follower.on_timer(state, role)
        case Prospective() | Candidate():
            election.on_timer(state)
        case Leader() as leadership:
            leader.on_timer(state, leadership)
        case Resigned(deadline_ms=deadline_ms) if (
            deadline_ms <= state.now_ms and state.has_next_epoch and not state.shutting_down
        ):
            # The node has waited long enough. In the next epoch it may campaign like any other node, and at once.
            state.become_unattached(state.epoch + 1, Why.REST_IS_OVER)
            if state.may_campaign:
                election.become_prospective(state, Why.ELECTION_TIMEOUT)
        case Resigned():
            leader.tell_successors(state)
        case _:
            assert_never(state.role)
