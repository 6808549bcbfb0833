"""What is due when, in each role. A timer that has fired is moved or gone, so that none stays due."""

from typing import assert_never

from quorum.core import auto_join, election, follower, leader
from quorum.core.protocol.deadlines import soonest
from quorum.core.quorum_state import QuorumState
from quorum.core.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached, Why


def next_deadline_ms(q: QuorumState) -> int | None:
    """When the next of this role's timers is due; None if it has none."""
    if q.shutting_down and not isinstance(q.role, Resigned):
        return None
    fetch_ms = q.retry_at_ms if follower.may_fetch(q) else None
    match q.role:
        case Unattached(election_deadline_ms=deadline_ms):
            return soonest(fetch_ms, deadline_ms if q.may_campaign else None)
        case Prospective(votes=asked, deadline_ms=deadline_ms) | Candidate(votes=asked, deadline_ms=deadline_ms):
            return soonest(fetch_ms, deadline_ms, *asked.ask_at_ms.values())
        case Follower() as role:
            return soonest(fetch_ms, follower.deadline_ms(q, role), auto_join.deadline_ms(q))
        case Leader() as term:
            return soonest(fetch_ms, leader.next_deadline_ms(q, term))
        case Resigned(deadline_ms=deadline_ms, tell_at_ms=tell_at_ms):
            may_go_on = q.has_next_epoch and not q.shutting_down
            return soonest(fetch_ms, deadline_ms if may_go_on else None, *tell_at_ms.values())
        case _:
            assert_never(q.role)


def on_timer(q: QuorumState) -> None:
    """Everything that is due. A role that ends may leave one whose time has come as well; that is done too."""
    if q.shutting_down and not isinstance(q.role, Resigned):
        return
    match q.role:
        case Unattached() as role:
            follower.on_unattached_timer(q, role)
        case Follower() as role:
            follower.on_timer(q, role)
        case Prospective() | Candidate():
            election.on_timer(q)
        case Leader() as term:
            leader.on_timer(q, term)
        case Resigned(deadline_ms=deadline_ms) if deadline_ms <= q.now_ms and q.has_next_epoch and not q.shutting_down:
            # It has waited long enough: in the next epoch it may run like anyone, and at once.
            q.become_unattached(q.epoch + 1, Why.REST_IS_OVER)
            if q.may_campaign:
                election.become_prospective(q, Why.ELECTION_TIMEOUT)
        case Resigned():
            leader.tell_successors(q)
        case _:
            assert_never(q.role)
