"""Connects the repair of logs to the core: this node helps other nodes to repair theirs, and repairs its own.

another node's ReadLog, ReadSnapshot --> peer_reads --> the reply
replies to this node's own requests  --> repair --repaired--> core: LogRepaired
                                               --a snapshot is complete--> LoadSnapshotJob --> core: SnapshotInstalled
the scrub's next slice               --> ScrubJob --a snapshot is damaged--> core: LogStartMoved, or a new snapshot
"""

from collections.abc import Callable

from metadata_log.format.errors import CorruptLog, ErrorCode
from metadata_log.format.ids import NodeId
from quorum.core.protocol import inputs as raft
from quorum.core.protocol.messages import ReadLogRequest, ReadLogResponse, ReadSnapshotRequest, ReadSnapshotResponse
from quorum.core.raft import RaftCore
from quorum.runtime.disk.peer_reads import read_log, read_snapshot
from quorum.runtime.parts import Parts
from quorum.runtime.protocol.jobs import LoadSnapshotJob, ScrubJob


def who_may_help(core: RaftCore) -> tuple[NodeId, ...]:
    """The other voters, and the leader, which may be missing in the voters: the newest voter set may be in the damaged range."""
    leader_id = core.leader_id
    known = dict.fromkeys([*core.voters.ids, *([] if leader_id is None else [leader_id])])
    return tuple(node_id for node_id in known if node_id != core.me.node_id)


class LogRepair:
    """Calls the repair, which changes the log, and tells the core about the changed log."""

    def __init__(self, parts: Parts) -> None:
        self._log, self._snapshotter, self._disk = parts.log, parts.snapshotter, parts.disk
        self._core, self._world, self._step = parts.core, parts.world, parts.step

    def lend(self, request: ReadLogRequest | ReadSnapshotRequest) -> ReadLogResponse | ReadSnapshotResponse:
        """Reads batches, or a piece of a snapshot, for a node whose disk has lost them."""
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
        """Lets the repair send its next request, starts a loading job that is due, and starts the scrub's next slice."""
        self._guarded(lambda: self._disk.repair.fire(now_ms))
        self._guarded(lambda: self._start_loading(now_ms))
        slice_ = self._disk.scrub.next_job(now_ms)
        if slice_ is not None:
            self._world.start_job(slice_)

    def finish_scrub(self, job: ScrubJob, error: Exception | None) -> bool:
        """Takes the result of a scrub. True if the only snapshot is damaged, so that the active controller must write a new one.

        A damaged snapshot that the log does not need is deleted at once.
        """
        damaged = self._disk.finish_scrub(job, error)
        if damaged is None:
            return False
        if self._snapshotter.rotten(damaged, self._log):
            self._step(raft.LogStartMoved(self._log.shape))
            return False
        return True

    def _guarded(self, act: Callable[[], bool]) -> None:
        """Runs `act`. If `act` has repaired the log, the core is told; if it has found damage, the disk is told."""
        try:
            is_repaired = act()
        except CorruptLog as e:
            self._disk.found_damage(e)
            return
        if is_repaired:
            self._step(raft.LogRepaired(self._log.shape, tuple(self._log.control_records())))

    def _start_loading(self, now_ms: int) -> bool:
        job = self._disk.repair.next_job(now_ms)
        if job is not None:
            self._world.start_job(job)
        return False

    def stand_on(self, job: LoadSnapshotJob, error: Exception | None, now_ms: int) -> bool:
        """Takes the result of loading another node's snapshot. True if the log now starts at that snapshot's end.

        The caller tells the core, after the caller has put the image in its place.
        """
        self._disk.repair.load_over(error, now_ms)
        end, meta = job.end, job.meta
        if error is not None or meta is None or not self._is_wanted(job):
            return False
        try:
            self._disk.space.write_at_any_price(
                lambda: self._log.start_at_snapshot(end, meta.chain, meta.timestamp_ms), now_ms
            )
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
