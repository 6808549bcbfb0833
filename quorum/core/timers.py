"""What is due when, in each role. A timer that has fired is moved or gone, so that none stays due."""

from typing import assert_never

from quorum.core import election, follower, joining, leader
from quorum.core.quorum_state import QuorumState
from quorum.core.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached, Why


def next_deadline_ms(q: QuorumState) -> int | None:
    """When the next of this role's timers is due; None if it has none."""
    deadlines: list[int] = []
    match q.role:
        case Unattached(election_deadline_ms=deadline_ms):
            if q.may_campaign:
                deadlines.append(deadline_ms)
        case Prospective(votes=asked, deadline_ms=deadline_ms) | Candidate(votes=asked, deadline_ms=deadline_ms):
            deadlines.extend((deadline_ms, *asked.ask_at_ms.values()))
        case Follower() as role:
            deadlines.append(follower.deadline_ms(q, role))
            ask_at_ms = joining.deadline_ms(q)
            if ask_at_ms is not None:
                deadlines.append(ask_at_ms)
        case Leader() as term:
            deadline = leader.next_deadline_ms(q, term)
            if deadline is not None:
                deadlines.append(deadline)
        case Resigned(deadline_ms=deadline_ms, tell_at_ms=tell_at_ms):
            deadlines.extend(tell_at_ms.values())
            if not q.shutting_down:
                deadlines.append(deadline_ms)
        case _:
            assert_never(q.role)
    if q.shutting_down and not isinstance(q.role, Resigned):
        return None
    if follower.may_fetch(q):
        deadlines.append(q.retry_at_ms)
    return min(deadlines, default=None)


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
        case Resigned(deadline_ms=deadline_ms) if deadline_ms <= q.now_ms and not q.shutting_down:
            # It has waited long enough: in the next epoch it may run like anyone, and at once.
            q.become_unattached(q.epoch + 1, Why.REST_IS_OVER)
            if q.may_campaign:
                election.become_prospective(q, Why.ELECTION_TIMEOUT)
        case Resigned():
            leader.tell_successors(q)
        case _:
            assert_never(q.role)
