"""Reports of the log: grown, cut, flushed, damaged, replaced by a snapshot.

The core relies on these reports and never guesses the log's shape.

The voter set is a function of the log (KIP-853), so the reports also change the voter set. Example:

    1. The core of leader 1 returns AppendControl({1,2,3,4}). The voter set is still {1,2,3}.
    2. The driver appends the record at offset 40 and reports Appended. The voter set is now {1,2,3,4}.
    3. Node 1 loses its office, and the next leader's log has no such record. Node 1 truncates to 40.
    4. The driver reports Truncated(end 40). The voter set is {1,2,3} again.

Damage changes the rights of the node (`disk_trust`). Example:

    1. The scrubber of voter 2 finds offsets 10 to 20 unreadable, and the runtime feeds `DamageFound`.
    2. If voter 2 leads, it resigns (`UNFIT`). If voter 2 is a candidate or prospective, it stops campaigning.
    3. The runtime repairs the range from voter 3's batches and feeds `DamageRepaired`: voter 2 may campaign again.
"""

from typing import TypeAlias, assert_never

from metadata_log.format.ids import Offset
from metadata_log.format.log_shape import LogShape
from metadata_log.format.records import KRaftVersion, Voters
from quorum.core import download, election, follower, leader
from quorum.core.protocol.inputs import (
    AnswerRefused,
    Appended,
    DamageFound,
    DamageRepaired,
    DiskFilled,
    DiskHasRoom,
    Flushed,
    LogRepaired,
    LogStartMoved,
    SnapshotInstalled,
    SnapshotInstallFailed,
    Truncated,
)
from quorum.core.protocol.voters import VoterHistory
from quorum.core.quorum_state import QuorumState
from quorum.core.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached, Why

LogReport: TypeAlias = (
    Appended
    | AnswerRefused
    | Truncated
    | Flushed
    | LogRepaired
    | LogStartMoved
    | SnapshotInstalled
    | SnapshotInstallFailed
)


def on_report(state: QuorumState, report: LogReport) -> None:
    match report:
        case Appended(shape=shape, control=control):
            _on_appended(state, shape, control)
        case AnswerRefused():
            # The leader sees no progress. If it gives such answers to a majority, it will soon lose its office.
            state.end_log_change()
            state.fetch.wait_until(state.now_ms + state.config.fetch_wait_ms)
        case Truncated(shape=shape):
            assert state.known_high_watermark is None or state.known_high_watermark <= shape.end, (
                "truncated below the high watermark"
            )
            state.take_shape(shape)
            state.end_log_change()
            state.take_voters(state.voters.truncate(shape.end))
        case Flushed(shape=shape):
            state.take_shape(shape)
            if isinstance(state.role, Leader):
                leader.advance_high_watermark(state, state.role)
        case LogRepaired(shape=shape, control=control):
            state.take_shape(shape)
            found = ((offset, record) for offset, record in control if isinstance(record, Voters))
            state.take_voters(state.voters.fill(found))
        case LogStartMoved(shape=shape):
            state.take_shape(shape)
        case SnapshotInstalled(shape=shape, voters=voters, control=control):
            assert not isinstance(state.role, Leader), "a leader never loads a snapshot"
            state.take_shape(shape)
            state.end_log_change()
            above = ((offset, record) for offset, record in control if isinstance(record, Voters))
            state.take_voters(VoterHistory.from_snapshot(voters, shape.start.offset, above))
            download.on_installed(state)
            state.raise_high_watermark(shape.start.offset)
            follower.on_log_replaced(state)
        case SnapshotInstallFailed(snapshot=snapshot, reason=reason, is_damaged=is_damaged):
            state.end_log_change()
            download.on_install_failed(state, snapshot, reason, is_damaged=is_damaged)
        case _:
            assert_never(report)


def _on_appended(
    state: QuorumState, shape: LogShape, control: tuple[tuple[Offset, Voters | KRaftVersion], ...]
) -> None:
    assert shape.end >= state.shape.end, f"an append that shortens the log: {state.shape.end} -> {shape.end}"
    state.take_shape(shape)
    state.end_log_change()
    voters_changed = False
    for offset, record in control:
        if isinstance(record, Voters):
            state.take_voters(state.voters.append(offset, record))
            voters_changed = True
            if isinstance(state.role, Leader):
                state.role.changes.written(offset)
    match state.role:
        case Leader() as leadership:
            leader.on_log_grown(state, leadership, voters_changed=voters_changed)
        case Follower():
            follower.on_log_grown(state)
        case _:
            raise AssertionError(f"records were appended as {state.role.role}")


DiskReport: TypeAlias = DamageFound | DamageRepaired | DiskFilled | DiskHasRoom


def on_disk_report(state: QuorumState, report: DiskReport) -> None:
    match report:
        case DamageFound() | DamageRepaired():
            state.disk.note_damage(is_damaged=isinstance(report, DamageFound))
        case DiskFilled() | DiskHasRoom():
            state.disk.note_room(is_full=isinstance(report, DiskFilled))
        case _:
            assert_never(report)
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
