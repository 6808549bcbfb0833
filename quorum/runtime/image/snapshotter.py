"""Writes, retires and installs the snapshots of a node, one job at a time.

Every node writes a snapshot at each committed *mark*, a control record of the leader. So all nodes write snapshots at the same
offsets, from equal images, and the files are equal byte for byte: comparing the files compares the controllers. Example:
    1. leader 1 finds a snapshot due, and appends a mark at offset 99;
    2. the mark is committed: nodes 1, 2 and 3 each write the snapshot with end 100;
    3. the marks at 199 and 299 are committed while node 3 still writes: node 3 skips 199, and writes 300 next.
So the log above a node's newest snapshot stays short, and with it the next start of the node.
"""

from collections.abc import Sequence

from metadata_log.disk.files import Directory
from metadata_log.format.ids import Offset, OffsetAndEpoch
from metadata_log.format.records import SnapshotMark, Voters
from metadata_log.store.log import Log
from quorum.core.protocol.voters import KRAFT_VERSION
from quorum.runtime.image.state_machine import Mark, StateMachine
from quorum.runtime.protocol.jobs import Job, LoadSnapshotJob, WriteSnapshotJob
from snapshots.format import SnapshotMeta
from snapshots.policy import MarkPolicy, RetentionPolicy
from snapshots.store import SnapshotInfo, SnapshotStore


class Snapshotter:
    """Owns the node's snapshot store, the running snapshot job, and the time of the next mark."""

    def __init__(self, directory: Directory, mark_policy: MarkPolicy, retention: RetentionPolicy) -> None:
        self.store = SnapshotStore(directory)
        self._mark_policy = mark_policy
        self._retention = retention
        self._busy = False
        self._passed: tuple[Mark, Voters] | None = None
        """The newest mark that was committed while a job was running, and the voters at its end."""

    def mark_due(self, state: StateMachine, wall_ms: int) -> SnapshotMark | None:
        """The mark that the leader should append now; None if no snapshot is due. An idle log needs no snapshot."""
        reason = self._mark_policy.due(state.bytes_since_mark, wall_ms - state.last_mark_ms)
        return None if reason is None else SnapshotMark(reason)

    # --- writing ---------------------------------------------------------------------------------------------------

    def job_for(self, mark: Mark, log: Log, voters: Voters) -> Job | None:
        """The job that writes the snapshot at `mark`; None if another snapshot job runs, or if the snapshot exists.

        If another job runs, `job_for_passed` returns the job after this other job.
        """
        self._passed = (mark, voters) if self._busy else None
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

    def job_for_passed(self, log: Log) -> Job | None:
        """The job for the newest mark that was committed while the last job ran; None if there was no mark, or if the leader's
        snapshot has replaced the log meanwhile.
        """
        passed, self._passed = self._passed, None
        if passed is None or passed[0].end.offset <= log.shape.start.offset:
            return None
        return self.job_for(passed[0], log, passed[1])

    def written(self, job: WriteSnapshotJob, log: Log) -> list[str]:
        """Takes a durable snapshot: the log may start at its end now. Returns the names of the files that retention deleted."""
        self._busy = False
        log.note_snapshot(job.meta.end)
        return self.clean(log)

    def given_up(self, job: WriteSnapshotJob) -> None:
        """Deletes an unfinished snapshot that did not fit on the disk. The next mark begins another snapshot."""
        self._busy = False
        self._passed = None
        self.store.drop_unfinished(job.meta.end)

    def clean(self, log: Log) -> list[str]:
        """Deletes the oldest snapshots, and the log below the oldest kept snapshot, while the directory is over its limits.

        The log below the oldest snapshot is deleted also if no further snapshot may be deleted, and if the log starts at an
        offset without a snapshot. Then archived segments over the archive's limits are deleted.
        """
        retired = self.store.retain(self._retention, log_bytes=log.size_bytes)
        kept = self.store.list()
        if kept and (retired or self._is_over(log, kept)):
            oldest = kept[0].end
            # The log can start only at an offset with a known chain, so not inside of damage; a later snapshot will do.
            if oldest.offset > log.shape.start.offset and not log.is_within_damage(oldest.offset):
                retired = [*retired, *log.drop_prefix(oldest)]
        return [*retired, *log.trim_archive()]

    def _is_over(self, log: Log, kept: Sequence[SnapshotInfo]) -> bool:
        """True if the log must start later although all snapshots stay."""
        start = log.shape.start
        is_too_large = log.size_bytes + sum(info.size for info in kept) > self._retention.max_bytes
        return is_too_large or (start.offset > 0 and all(info.end != start for info in kept))

    def rotten(self, end: OffsetAndEpoch, log: Log) -> bool:
        """Takes the news that the snapshot at `end` is damaged; True if the snapshot has been deleted.

        The damaged snapshot stays if no other snapshot reaches up to the log's start; the next whole snapshot replaces it.
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
        """The job that makes a finished download durable and reads the snapshot into an image."""
        return LoadSnapshotJob(self.store, end, install=True)

    @property
    def is_busy(self) -> bool:
        """True while a job writes a snapshot, or loads a snapshot that repairs the log."""
        return self._busy

    def repair_job(self, end: OffsetAndEpoch, chain: bytes | None, *, is_own: bool) -> LoadSnapshotJob:
        """The job that loads a snapshot in place of damage: the node's own, or a finished download. The snapshot must have
        `chain`, unless `chain` is None.
        """
        self._busy = True
        return LoadSnapshotJob(self.store, end, install=not is_own, repairs=True, chain=chain)

    def repair_over(self) -> None:
        """Takes the end of the repairing job, successful or not: the node writes snapshots at marks again."""
        self._busy = False
        self._passed = None

    def newest_load_job(self, log_start: Offset) -> LoadSnapshotJob | None:
        """The job that loads the newest whole snapshot at the start of the process; None if the log needs no snapshot.

        Raises:
            OSError: the disk cannot read a snapshot, and no other snapshot reaches up to `log_start`.
        """
        newest = self.store.newest_at_start(log_start)
        return None if newest is None else LoadSnapshotJob(self.store, newest.end, install=False)
