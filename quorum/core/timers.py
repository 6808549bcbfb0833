"""What is due when, in each role. A timer that has fired is moved or gone, so that none stays due."""

from typing import assert_never

from quorum.core import auto_join, election, follower, leader
from quorum.core.protocol.deadlines import soonest
from quorum.core.quorum_state import QuorumState
from quorum.core.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached, Why


def next_deadline_ms(state: QuorumState) -> int | None:
    """When the next of this role's timers is due; None if it has none."""
    if state.shutting_down and not isinstance(state.role, Resigned):
        return None
    fetch_ms = state.retry_at_ms if follower.may_fetch(state) else None
    match state.role:
        case Unattached(election_deadline_ms=deadline_ms):
            return soonest(fetch_ms, deadline_ms if state.may_campaign else None)
        case Prospective(votes=asked, deadline_ms=deadline_ms) | Candidate(votes=asked, deadline_ms=deadline_ms):
            return soonest(fetch_ms, deadline_ms, *asked.ask_at_ms.values())
        case Follower() as role:
            return soonest(fetch_ms, follower.deadline_ms(state, role), auto_join.deadline_ms(state))
        case Leader() as leadership:
            return soonest(fetch_ms, leader.next_deadline_ms(state, leadership))
        case Resigned(deadline_ms=deadline_ms, tell_at_ms=tell_at_ms):
            may_go_on = state.has_next_epoch and not state.shutting_down
            return soonest(fetch_ms, deadline_ms if may_go_on else None, *tell_at_ms.values())
        case _:
            assert_never(state.role)


def on_timer(state: QuorumState) -> None:
    """Everything that is due. A role that ends may leave one whose time has come as well; that is done too."""
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
            # It has waited long enough: in the next epoch it may run like anyone, and at once.
            state.become_unattached(state.epoch + 1, Why.REST_IS_OVER)
            if state.may_campaign:
                election.become_prospective(state, Why.ELECTION_TIMEOUT)
        case Resigned():
            leader.tell_successors(state)
        case _:
            assert_never(state.role)
