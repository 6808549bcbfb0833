"""Reports of the log: grown, cut, flushed, replaced by a snapshot. The core relies on reports and never guesses the
shape.

The voter set is a function of the log (KIP-853), so the reports also change the voter set. Example:

    1. The core of leader 1 returns AppendControl({1,2,3,4}). The voter set is still {1,2,3}.
    2. The driver appends the record at offset 40 and reports Appended. The voter set is now {1,2,3,4}.
    3. Node 1 loses its office, and the next leader's log has no such record. Node 1 truncates to 40.
    4. The driver reports Truncated(end 40). The voter set is {1,2,3} again.
"""

from typing import TypeAlias, assert_never

from metadata_log.format.ids import Offset
from metadata_log.format.log_shape import LogShape
from metadata_log.format.records import KRaftVersion, Voters
from quorum.core import download, follower, leader
from quorum.core.protocol.inputs import (
    Appended,
    BatchesRefused,
    Flushed,
    LogMended,
    LogStartMoved,
    SnapshotInstalled,
    SnapshotInstallFailed,
    Truncated,
)
from quorum.core.protocol.voters import VoterHistory
from quorum.core.quorum_state import QuorumState
from quorum.core.roles import Follower, Leader

LogReport: TypeAlias = (
    Appended
    | BatchesRefused
    | Truncated
    | Flushed
    | LogMended
    | LogStartMoved
    | SnapshotInstalled
    | SnapshotInstallFailed
)


def on_report(state: QuorumState, report: LogReport) -> None:
    match report:
        case Appended(shape=shape, control=control):
            _on_appended(state, shape, control)
        case BatchesRefused():
            # The leader sees no progress. If it sends the same batches to a majority, it will soon lose its office.
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
        case LogMended(shape=shape, control=control):
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
