"""A node's part in mending logs, its own and others': what is lent, what is asked for, and who is told of what came of it.

another's ReadLog, ReadSnapshot --> lending
answers to its own              --> repair --mended--> core: LogMended
                                          --a snapshot is whole--> LoadSnapshotJob --> core: SnapshotInstalled
the scrub's next slice          --> ScrubJob --a snapshot is rotten--> core: LogStartMoved, or another one is made
"""

from collections.abc import Callable

from metadata_log.format.errors import CorruptLog, ErrorCode
from metadata_log.format.ids import NodeId
from metadata_log.store.log import Log
from quorum.core.protocol import inputs as raft
from quorum.core.protocol.messages import ReadLogRequest, ReadLogResponse, ReadSnapshotRequest, ReadSnapshotResponse
from quorum.core.raft import RaftCore
from quorum.runtime.disk.node_disk import Disk
from quorum.runtime.disk.peer_reads import read_log, read_snapshot
from quorum.runtime.image.snapshotter import Snapshotter
from quorum.runtime.protocol.jobs import LoadSnapshotJob, ScrubJob
from quorum.runtime.protocol.world import World


def who_may_help(core: RaftCore) -> tuple[NodeId, ...]:
    """The other voters, and the leader: the newest voter set may be in what is damaged."""
    leader_id = core.leader_id
    known = dict.fromkeys([*core.voters.ids, *([] if leader_id is None else [leader_id])])
    return tuple(node_id for node_id in known if node_id != core.me.node_id)


class Mending:
    """Stands between the repair, which knows the log, and the core, which has to be told."""

    def __init__(
        self,
        log: Log,
        snapshotter: Snapshotter,
        disk: Disk,
        core: RaftCore,
        world: World,
        step: Callable[[raft.Input], None],
    ) -> None:
        self._log = log
        self._snapshotter = snapshotter
        self._disk = disk
        self._core = core
        self._world = world
        self._step = step

    def lend(self, request: ReadLogRequest | ReadSnapshotRequest) -> ReadLogResponse | ReadSnapshotResponse:
        """What another node, whose disk has lost something, is given of this one's."""
        epoch, leader_id = self._core.epoch, self._core.leader_id
        if isinstance(request, ReadSnapshotRequest):
            return read_snapshot(request, self._snapshotter.store, epoch=epoch, leader_id=leader_id)
        try:
            return read_log(request, self._log, epoch=epoch, leader_id=leader_id)
        except CorruptLog as e:
            self._disk.found_damage(e)
            return ReadLogResponse(ErrorCode.STORAGE_ERROR, epoch, leader_id, snapshot=self._log.shape.snapshot)

    def failed(self, request: ReadLogRequest | ReadSnapshotRequest, now_ms: int) -> None:
        self._guarded(lambda: self._disk.repair.on_failure(request, now_ms))

    def answered(
        self,
        source: NodeId,
        request: ReadLogRequest | ReadSnapshotRequest,
        response: ReadLogResponse | ReadSnapshotResponse,
        now_ms: int,
    ) -> None:
        repair = self._disk.repair
        if isinstance(request, ReadLogRequest):
            assert isinstance(response, ReadLogResponse), f"an answer of the wrong kind: {response}"
            batches = response
            self._guarded(lambda: repair.on_batches(source, request, batches, now_ms))
        else:
            assert isinstance(response, ReadSnapshotResponse), f"an answer of the wrong kind: {response}"
            repair.on_piece(request, response, now_ms)

    def go_on(self, now_ms: int) -> None:
        """Asks for what is missing, or has read what is there; and looks for more, slice by slice."""
        self._guarded(lambda: self._disk.repair.fire(now_ms))
        self._guarded(lambda: self._start_loading(now_ms))
        slice_ = self._disk.scrub.next_job(now_ms)
        if slice_ is not None:
            self._world.start_job(slice_)

    def finish_scrub(self, job: ScrubJob, error: Exception | None) -> bool:
        """A slice was read again. True if the only snapshot is damaged: then another one has to be made.

        A damaged snapshot that the log can do without is gone at once.
        """
        damaged = self._disk.finish_scrub(job, error)
        if damaged is None:
            return False
        if self._snapshotter.rotten(damaged, self._log):
            self._step(raft.LogStartMoved(self._log.shape))
            return False
        return True

    def _guarded(self, act: Callable[[], bool]) -> None:
        """Does what may mend the log, or come upon more damage."""
        try:
            is_mended = act()
        except CorruptLog as e:
            self._disk.found_damage(e)
            return
        if is_mended:
            self._step(raft.LogMended(self._log.shape, tuple(self._log.control_records())))

    def _start_loading(self, now_ms: int) -> bool:
        job = self._disk.repair.next_job(now_ms)
        if job is not None:
            self._world.start_job(job)
        return False

    def stand_on(self, job: LoadSnapshotJob, error: Exception | None, now_ms: int) -> bool:
        """Another's snapshot is here, or has failed. True if the log starts at its end now, and has not been overtaken.

        The core is told by whoever calls, when the image is in its place.
        """
        self._disk.repair.load_over(error, now_ms)
        end, meta = job.end, job.meta
        if error is not None or meta is None or not self._is_wanted(job):
            return False
        try:
            self._disk.space.write_at_any_price(lambda: self._log.stand_on(end, meta.chain, meta.timestamp_ms), now_ms)
        except CorruptLog as e:
            self._disk.found_damage(e)  # just below the end, where nothing was read for `fits`
            return False
        return True

    def _is_wanted(self, job: LoadSnapshotJob) -> bool:
        damage, shape, end = self._log.damage, self._log.shape, job.end
        if self._core.is_loading_snapshot or not damage or end.offset <= damage[0].start:
            return False
        if shape.flushed_end < end.offset <= shape.end:
            return False  # in a moment that is durable, and can be judged
        assert job.meta is not None
        try:
            return self._disk.repair.fits(end, job.meta.chain)
        except CorruptLog as e:
            self._disk.found_damage(e)
            return False
