"""Snapshots as a node makes, serves and installs them; one job at a time.

Every node writes its snapshot at a *mark*, a control record that the leader appends when one is due and that counts once
it is committed. So all nodes write at the same offsets, from images that must be equal, and the files are equal byte for
byte: comparing them compares the controllers. A node that is busy or late skips a mark.
"""

from collections.abc import Sequence

from metadata_log.disk.files import Directory
from metadata_log.format.ids import Offset, OffsetAndEpoch
from metadata_log.format.records import SnapshotMark, Voters
from metadata_log.store.log import Log
from quorum.runtime.image.state_machine import Mark, StateMachine
from quorum.runtime.protocol.jobs import Job, LoadSnapshotJob, WriteSnapshotJob
from snapshots.format import SnapshotMeta
from snapshots.policy import MarkPolicy, RetentionPolicy
from snapshots.store import SnapshotInfo, SnapshotStore

KRAFT_VERSION = 1


class Snapshotter:
    """Which snapshots there are on this node, which are being made, and when the next one is due."""

    def __init__(self, directory: Directory, mark_policy: MarkPolicy, retention: RetentionPolicy) -> None:
        self.store = SnapshotStore(directory)
        self._mark_policy = mark_policy
        self._retention = retention
        self._busy = False

    def mark_due(self, state: StateMachine, wall_ms: int) -> SnapshotMark | None:
        """The mark to append now, by the leader's judgement from the log; never for an idle log."""
        reason = self._mark_policy.due(state.bytes_since_mark, wall_ms - state.last_mark_ms)
        return None if reason is None else SnapshotMark(reason)

    # --- writing ---------------------------------------------------------------------------------------------------

    def job_for(self, mark: Mark, log: Log, voters: Voters) -> Job | None:
        """The job that writes the snapshot at `mark`; None if this node is busy with one or already has it."""
        if self._busy or any(info.end == mark.end for info in self.store.list()):
            return None
        if log.is_within_damage(mark.end.offset):
            return None
        chain = log.chain_at(mark.end.offset)
        assert chain is not None, f"the mark's end {mark.end} is a batch boundary of this log"
        self._busy = True
        self.store.drop_part(mark.end.offset)
        timestamp_ms = mark.image.provenance.timestamp_ms
        return WriteSnapshotJob(
            self.store, SnapshotMeta(mark.end, timestamp_ms, chain, voters, KRAFT_VERSION), mark.image
        )

    def written(self, job: WriteSnapshotJob, log: Log) -> list[str]:
        """The snapshot is durable: the log may now stand on it. Returns the names of what retention has retired."""
        self._busy = False
        log.note_snapshot(job.meta.end)
        return self.clean(log)

    def given_up(self, job: WriteSnapshotJob) -> None:
        """There was no room for the snapshot: what there is of it goes, and the next mark has another one."""
        self._busy = False
        self.store.drop_unfinished(job.meta.end)

    def clean(self, log: Log) -> list[str]:
        """Drops the oldest snapshots, and the log before the oldest kept one, while the directory is over its limits.

        The log's beginning goes, too, where there is no snapshot left to drop, or none at its start; and what is over the
        archive's limits.
        """
        retired = self.store.retain(self._retention, log_bytes=log.size_bytes)
        kept = self.store.list()
        if kept and (retired or self._is_over(log, kept)):
            oldest = kept[0].end
            # Where the log does not know its chain it cannot start; a later snapshot will do.
            if oldest.offset > log.shape.start.offset and not log.is_within_damage(oldest.offset):
                retired = [*retired, *log.drop_prefix(oldest)]
        return [*retired, *log.trim_archive()]

    def _is_over(self, log: Log, kept: Sequence[SnapshotInfo]) -> bool:
        """Whether the log must start later although all the snapshots stay."""
        start = log.shape.start
        is_too_large = log.size_bytes + sum(info.size for info in kept) > self._retention.max_bytes
        return is_too_large or (start.offset > 0 and all(info.end != start for info in kept))

    def rotten(self, end: OffsetAndEpoch, log: Log) -> bool:
        """The snapshot at `end` is damaged; True if it is gone now.

        It stays if the log cannot do without it: the next one that is whole takes it away.
        """
        self.store.withdraw(end)
        others = [info.end for info in self.store.list() if not self.store.is_damaged(info.end)]
        newest = others[-1] if others else None
        if log.shape.start.offset > (newest.offset if newest else 0):
            return False
        self.store.drop([end])
        log.forget_snapshot(newest)
        return True

    # --- installing ------------------------------------------------------------------------------------------------

    def install_job(self, end: OffsetAndEpoch) -> LoadSnapshotJob:
        """A finished download becomes durable and is read into an image."""
        return LoadSnapshotJob(self.store, end, install=True)

    @property
    def is_busy(self) -> bool:
        """A snapshot is being written, or one that is to mend the log is being read."""
        return self._busy

    def mending_job(self, end: OffsetAndEpoch, chain: bytes | None) -> LoadSnapshotJob:
        """As `install_job`, of a snapshot that is to cover damage; it must have `chain` where the log has one at its end."""
        self._busy = True
        return LoadSnapshotJob(self.store, end, install=True, mends=True, chain=chain)

    def mending_over(self) -> None:
        """That job is done, or has failed: marks are followed again."""
        self._busy = False

    def newest_load_job(self, log_start: Offset) -> LoadSnapshotJob | None:
        """At start-up: the newest snapshot whose bytes are whole; None if there is only the bootstrap one.

        Raises:
            OSError: the disk cannot read the one without which nothing reaches up to `log_start`.
        """
        newest = self.store.newest_at_start(log_start)
        return None if newest is None else LoadSnapshotJob(self.store, newest.end, install=False)
