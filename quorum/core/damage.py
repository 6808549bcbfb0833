"""A node's standing changes: damage was found or mended, or a lost tail has been made good (see `standing`)."""

from typing import assert_never

from quorum.core import election, leader
from quorum.core.protocol.inputs import DamageFound, DamageRepaired
from quorum.core.quorum_state import QuorumState
from quorum.core.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached, Why


def on_damage(q: QuorumState, report: DamageFound | DamageRepaired) -> None:
    q.standing = q.standing._replace(damaged=isinstance(report, DamageFound))
    if q.standing.may_campaign:
        return
    match q.role:
        case Leader() as term:
            leader.resign(q, term, Why.UNFIT)
        case Prospective() as role:
            election.give_up(q, role)
        case Candidate():
            q.become_unattached(q.epoch, Why.UNFIT)
        case Unattached() | Follower() | Resigned():
            pass
        case _:
            assert_never(q.role)


def restore_if_whole(q: QuorumState) -> None:
    """Back to full standing, if what was lost is here again; the file's head of `standing` says what that takes."""
    lost = q.standing.lost
    if lost is None:
        return
    durable_end = q.shape.flushed_end
    is_committed = lost.is_bounded and min(durable_end, q.known_high_watermark or 0) >= lost.end
    last_durable_epoch = q.shape.epoch_below(durable_end)
    if is_committed or (last_durable_epoch is not None and last_durable_epoch > lost.epoch):
        q.standing = q.standing._replace(lost=None)
