"""Changes of a node's disk trust: damage was found or repaired, or a lost tail was restored (see `disk_trust`).

Example:

    1. The scrubber of voter 2 finds offsets 10 to 20 unreadable, and the runtime feeds `DamageFound`.
    2. If voter 2 leads, it resigns (`UNFIT`). If voter 2 is a candidate or prospective, it stops campaigning.
    3. The runtime repairs the range from voter 3's batches and feeds `DamageRepaired`: voter 2 may campaign again.
"""

from typing import assert_never

from quorum.core import election, leader
from quorum.core.protocol.inputs import DamageFound, DamageRepaired
from quorum.core.quorum_state import QuorumState
from quorum.core.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached, Why


def on_damage(state: QuorumState, report: DamageFound | DamageRepaired) -> None:
    state.disk.note_damage(is_damaged=isinstance(report, DamageFound))
    if state.disk.trust.may_campaign:
        return
    match state.role:
        case Leader() as leadership:
            leader.resign(state, leadership, Why.UNFIT)
        case Prospective() as role:
            election.give_up(state, role)
        case Candidate():
            state.become_unattached(state.epoch, Why.UNFIT)
        case Unattached() | Follower() | Resigned():
            pass
        case _:
            assert_never(state.role)


def restore_if_whole(state: QuorumState) -> None:
    """Restores full trust once the lost records are on disk again. The head of `disk_trust` has the conditions."""
    lost = state.disk.trust.lost
    if lost is None:
        return
    durable_end = state.shape.flushed_end
    is_committed = lost.is_bounded and min(durable_end, state.known_high_watermark or 0) >= lost.end
    last_durable_epoch = state.shape.epoch_below(durable_end)
    if is_committed or (last_durable_epoch is not None and last_durable_epoch > lost.epoch):
        state.disk.restore_tail()
