"""What the log reports of itself: grown, cut, flushed, replaced by a snapshot. The core never guesses, it is told.

The voter set is a function of the log (KIP-853), so this is also where it changes.
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


def on_report(q: QuorumState, report: LogReport) -> None:
    match report:
        case Appended(shape=shape, control=control):
            _on_appended(q, shape, control)
        case BatchesRefused():
            # The leader sees no progress. If it sends the same to a majority, it will not be leader for long.
            q.awaiting_log = False
            q.retry_at_ms = q.now_ms + q.config.fetch_wait_ms
        case Truncated(shape=shape):
            assert q.known_high_watermark is None or q.known_high_watermark <= shape.end, "cut below the watermark"
            q.take_shape(shape)
            q.awaiting_log = False
            q.voters = q.voters.truncate(shape.end)
        case Flushed(shape=shape):
            q.take_shape(shape)
            if isinstance(q.role, Leader):
                leader.advance_high_watermark(q, q.role)
        case LogMended(shape=shape, control=control):
            q.take_shape(shape)
            found = ((offset, record) for offset, record in control if isinstance(record, Voters))
            q.voters = q.voters.fill(found)
        case LogStartMoved(shape=shape):
            q.take_shape(shape)
        case SnapshotInstalled(shape=shape, voters=voters, control=control):
            assert not isinstance(q.role, Leader), "a leader never loads a snapshot"
            q.take_shape(shape)
            q.awaiting_log = False
            above = ((offset, record) for offset, record in control if isinstance(record, Voters))
            q.voters = VoterHistory.from_snapshot(voters, shape.start.offset, above)
            download.on_installed(q)
            q.raise_high_watermark(shape.start.offset)
            follower.on_log_replaced(q)
        case SnapshotInstallFailed(snapshot=snapshot, reason=reason, is_damaged=is_damaged):
            q.awaiting_log = False
            download.on_install_failed(q, snapshot, reason, is_damaged=is_damaged)
        case _:
            assert_never(report)


def _on_appended(q: QuorumState, shape: LogShape, control: tuple[tuple[Offset, Voters | KRaftVersion], ...]) -> None:
    assert shape.end >= q.shape.end, f"an append that shortens the log: {q.shape.end} -> {shape.end}"
    q.take_shape(shape)
    q.awaiting_log = False
    voters_changed = False
    for offset, record in control:
        if isinstance(record, Voters):
            q.voters = q.voters.append(offset, record)
            voters_changed = True
            if isinstance(q.role, Leader):
                q.role.changes.written(offset)
    match q.role:
        case Leader() as term:
            leader.on_log_grown(q, term, voters_changed=voters_changed)
        case Follower():
            follower.on_log_grown(q)
        case _:
            raise AssertionError(f"something was appended as {q.role.role}")
