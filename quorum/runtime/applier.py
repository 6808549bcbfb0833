"""How a node's image follows its log: what is committed is applied, in order; or a snapshot takes its place.

*Applied is never ahead of durable.* A node applies what is committed as far as its own disk holds it, so a crash takes back
nothing that anybody was told of.

*While a snapshot is loaded at the start nothing is applied*: there is no image yet that the log would continue. The node votes
and replicates meanwhile. One that is installed from the leader, or stood on while the log is mended, is newer and ends that.

*A follower speaks first.* The leader, and whoever waits for its answer, wait for a follower's acknowledgement, and nobody for its
image. So in a turn that appends, or asks for more, which acknowledges what is durable, much is not applied. It is in the next
turn but one at the latest: in between, the flush ends.

*At each committed mark* a snapshot of the very image there is begun, in a job. When it is written the log may start later; one
for which there is no room is given up, and the next mark begins another.
"""

from collections.abc import Callable

from metadata_log.disk.files import FlushFailed, is_full
from metadata_log.format.errors import CorruptLog
from metadata_log.format.ids import Offset
from metadata_log.format.records import Voters
from metadata_log.store.log import Log
from quorum.core.protocol import inputs as raft
from quorum.core.raft import RaftCore
from quorum.runtime.agreement import Agreement
from quorum.runtime.disk.log_repair import Mending
from quorum.runtime.disk.node_disk import Disk
from quorum.runtime.image.snapshotter import Snapshotter
from quorum.runtime.image.state_machine import Mark, StateMachine
from quorum.runtime.protocol.jobs import LoadSnapshotJob, WriteSnapshotJob
from quorum.runtime.protocol.world import NodeStopped, World
from snapshots.store import SnapshotNotFound

PUT_OFF_TURNS_MAX = 2
"""In one turn it appends, in the next the flush has ended and it acknowledges."""


class Applier:
    """One per node. `step` tells the core, and carries out what follows; `mark_passed` is told of each committed mark."""

    def __init__(
        self,
        *,
        load: LoadSnapshotJob | None,
        log: Log,
        state: StateMachine,
        snapshotter: Snapshotter,
        disk: Disk,
        core: RaftCore,
        agreement: Agreement,
        mending: Mending,
        world: World,
        step: Callable[[raft.Input], None],
        mark_passed: Callable[[], None],
        apply_at_once_records: int,
    ) -> None:
        """`load` reads the snapshot that the log stands on; None where it stands on none."""
        self._load = load
        self._log = log
        self._state = state
        self._snapshotter = snapshotter
        self._disk = disk
        self._core = core
        self._agreement = agreement
        self._mending = mending
        self._world = world
        self._step = step
        self._mark_passed = mark_passed
        self._apply_at_once_records = apply_at_once_records
        self._turns_put_off = 0

    def start(self) -> None:
        if self._load is not None:
            self._world.start_job(self._load)

    @property
    def is_loading(self) -> bool:
        """There is no image yet."""
        return self._load is not None

    def check_invariants(self) -> None:
        self._state.check_invariants()
        if self._load is None:
            shape = self._log.shape
            assert self._state.applied <= max(shape.flushed_end, shape.start.offset)

    # --- commits ---------------------------------------------------------------------------------------------------

    def has_more_to_do(self, until: Offset) -> bool:
        """Whether `apply` would get further."""
        applied = self._state.applied
        if applied >= until or self._load is not None or self._state.stopped is not None:
            return False
        return not self._log.is_damaged_at(applied)

    def apply_later(self, until: Offset) -> None:
        """`apply`, but not yet if that is much, and others wait for what this turn has done."""
        if until - self._state.applied <= self._apply_at_once_records or self._turns_put_off == PUT_OFF_TURNS_MAX:
            self.apply(until)
        else:
            self._turns_put_off += 1

    def apply(self, until: Offset) -> None:
        """Applies what is below `until`, or as much of it as one turn may take."""
        self._turns_put_off = 0
        before = self._state.applied
        if before >= until or self._load is not None or self._log.is_damaged_at(before):
            return
        for mark in self._applied_marks(until):
            self._mark_passed()
            voters = Voters(self._core.voter_history.at(mark.end.offset).voters)
            try:
                job = self._snapshotter.job_for(mark, self._log, voters)
            except CorruptLog as e:
                self._disk.found_damage(e)
                return
            if job is not None:
                self._world.start_job(job)
        if self._state.applied != before or self._state.stopped is not None:
            self._agreement.applied()

    def _applied_marks(self, until: Offset) -> list[Mark]:
        try:
            return self._state.apply(self._log, until)
        except CorruptLog as e:
            self._disk.found_damage(e)
            return []

    # --- snapshots -------------------------------------------------------------------------------------------------

    def finish_load(self, job: LoadSnapshotJob, error: Exception | None, now_ms: int) -> None:
        """A snapshot is loaded, or has failed.

        Raises:
            NodeStopped: there is no image to be had of this disk.
        """
        is_broken = isinstance(error, FlushFailed) or (isinstance(error, OSError) and not is_full(error))
        if job.mends and not is_broken:
            self._finish_mending(job, error, now_ms)
            return
        if error is not None and job.install and not is_broken:
            # What came was damaged, or there is no room for it: it is fetched anew.
            self._snapshotter.store.discard_parts()
            is_damaged = not isinstance(error, OSError | SnapshotNotFound)
            self._step(raft.SnapshotInstallFailed(job.end, str(error), is_damaged=is_damaged))
            return
        if not job.install and job is not self._load:
            return  # a snapshot from the leader was installed meanwhile, and is newer
        if error is not None:
            raise NodeStopped(f"loading the snapshot {job.end} failed: {error}") from error
        assert job.meta is not None
        assert job.image is not None
        self._load = None
        if job.install:
            end, meta = job.end, job.meta
            self._disk.space.write_at_any_price(lambda: self._log.reset_to(end, meta.chain, meta.timestamp_ms), now_ms)
        self._state.load(job.image)
        self._agreement.applied()
        if job.install:
            self._step(raft.SnapshotInstalled(self._log.shape, job.meta.voters))

    def finish_snapshot(self, job: WriteSnapshotJob, error: Exception | None, now_ms: int) -> None:
        """A snapshot that was begun at a mark is written, or has failed.

        Raises:
            NodeStopped: it failed, and not for want of room.
        """
        if isinstance(error, OSError) and is_full(error):
            self._snapshotter.given_up(job)
            self._log.drop_oldest_archived()
            return
        if error is not None:
            raise NodeStopped(f"writing the snapshot {job.meta.end} failed: {error}") from error
        try:
            self._disk.space.write_at_any_price(lambda: self._snapshotter.written(job, self._log), now_ms)
        except CorruptLog as e:
            # Retention reads where the log is to begin, and comes to that again with the next snapshot.
            self._disk.found_damage(e)
        self._step(raft.LogStartMoved(self._log.shape))

    def _finish_mending(self, job: LoadSnapshotJob, error: Exception | None, now_ms: int) -> None:
        """Another's snapshot takes the place of what is damaged (`repair`)."""
        if self._mending.stand_on(job, error, now_ms):
            assert job.meta is not None and job.image is not None
            if self._state.applied < job.end.offset:
                self._load = None
                self._state.load(job.image)
                self._agreement.applied()
            control = tuple(self._log.control_records())
            self._step(raft.SnapshotInstalled(self._log.shape, job.meta.voters, control))
