"""Carries out the decisions of the repair (`quorum.runtime.disk.repair`), and helps other nodes to repair their logs.

another node's ReadLog, ReadSnapshot --> peer_reads --> the reply
replies to this node's own requests  --> repair --PutBack--> log --> core: LogRepaired
                                               --Load--> LoadSnapshotJob --> log --> core: SnapshotInstalled
the scrub's next slice               --> ScrubJob --a snapshot is damaged--> core: LogStartMoved, or a new snapshot
"""

from typing import assert_never

from metadata_log.disk.failures import is_full
from metadata_log.format.errors import CorruptLog, ErrorCode, LogFormatError
from metadata_log.format.ids import NodeId, OffsetAndEpoch
from quorum.core.protocol import inputs as raft
from quorum.core.protocol.messages import ReadLogRequest, ReadLogResponse, ReadSnapshotRequest, ReadSnapshotResponse
from quorum.core.raft import RaftCore
from quorum.runtime.disk import repair
from quorum.runtime.disk.node_disk import Disk
from quorum.runtime.disk.peer_reads import READ_BYTES_MAX, read_log, read_snapshot
from quorum.runtime.parts import Parts
from quorum.runtime.protocol.jobs import LoadSnapshotJob, ScrubJob
from quorum.runtime.protocol.peer_answers import ReadEnd
from snapshots.store import PositionOutOfRange

READ_TIMEOUT_MS = 2_000
"""How long the repair waits for an answer."""
NO_BOUNDARY = b""
"""The expected chain at an offset where no batch of the log ends. No snapshot has this chain."""


def who_may_help(core: RaftCore) -> tuple[NodeId, ...]:
    """The other voters, and the leader, which may be missing in the voters: the newest voter set may be in the damaged range."""
    leader_id = core.leader_id
    known = dict.fromkeys([*core.voters.ids, *([] if leader_id is None else [leader_id])])
    return tuple(node_id for node_id in known if node_id != core.me.node_id)


class LogRepair:
    """Carries out the effects of the repair, and tells the core about a repaired log."""

    def __init__(self, parts: Parts, disk: Disk) -> None:
        self._me, self._log, self._snapshotter, self._disk = parts.me, parts.log, parts.snapshotter, disk
        self._core, self._world, self._step = parts.core, parts.world, parts.step

    def report_disk(self) -> None:
        """Tells the core if the log has become damaged or whole, and the disk full or not."""
        trust, is_damaged, is_full = self._core.disk_trust, bool(self._log.damage), self._disk.space.is_short
        if is_damaged is not trust.damaged:
            self._step(raft.DamageFound() if is_damaged else raft.DamageRepaired())
        if is_full is not trust.out_of_room:
            self._step(raft.DiskFilled() if is_full else raft.DiskHasRoom())

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

    # --- inputs of the repair --------------------------------------------------------------------------------------

    def take(self, event: ReadEnd, now_ms: int) -> None:
        """Takes the end of a read: its answer, or the failure."""
        self._repair(event, now_ms)

    def go_on(self, now_ms: int) -> None:
        """Gives the repair its tick, and starts the scrub's next slice."""
        self._repair(repair.Tick(), now_ms)
        slice_ = self._disk.scrub.next_job(now_ms)
        if slice_ is not None:
            self._world.start_job(slice_)

    def _repair(self, event: repair.Input, now_ms: int) -> None:
        """Gives the repair an input, carries the effect out, and gives the repair the result, until there is none."""
        result: repair.Input | None = event
        while result is not None:
            effect = self._disk.repair.step(self._seen(), result, now_ms)
            result = None if effect is None else self._carry_out(effect)

    def _seen(self) -> repair.Seen:
        may_load = not self._core.is_loading_snapshot and not self._snapshotter.is_busy
        core = self._core
        return repair.Seen(self._log.damage, self._log.shape.snapshot, core.epoch, who_may_help(core), may_load)

    # --- effects of the repair -------------------------------------------------------------------------------------

    def _carry_out(self, effect: repair.Effect) -> repair.Input | None:
        """Carries `effect` out; returns its result, or None if the result comes later.

        Raises:
            FlushFailed: the process must stop.
            OSError: the disk is broken.
        """
        match effect:
            case repair.Ask(node_id, request):
                self._world.send(node_id, request, READ_TIMEOUT_MS)
                return None
            case repair.FetchPiece(node_id, snapshot):
                position = self._snapshotter.store.part_bytes(snapshot)
                piece = ReadSnapshotRequest(self._me, snapshot, position, READ_BYTES_MAX)
                self._world.send(node_id, piece, READ_TIMEOUT_MS)
                return None
            case repair.PutBack():
                return repair.PutBackOver(self._put_back(effect))
            case repair.KeepPiece():
                return repair.PieceOver(self._keep(effect), effect.is_last)
            case repair.Load(snapshot, is_own):
                return self._load(snapshot, is_own=is_own)
            case _:
                assert_never(effect)

    def _put_back(self, effect: repair.PutBack) -> repair.Outcome:
        try:
            self._log.repair(effect.damaged, effect.batches)
        except CorruptLog as e:
            self._disk.found_damage(e)  # the batches are right, but the log around the range is damaged, too
            return repair.Outcome.MORE_DAMAGE
        except LogFormatError:
            return repair.Outcome.REFUSED
        except OSError as e:
            if not is_full(e):
                raise
            return repair.Outcome.NO_ROOM
        self._step(raft.LogRepaired(self._log.shape, tuple(self._log.control_records())))
        return repair.Outcome.DONE

    def _keep(self, effect: repair.KeepPiece) -> bool:
        store = self._snapshotter.store
        try:
            if effect.data:
                store.write_part(effect.snapshot, effect.position, effect.data)
        except PositionOutOfRange:
            return False  # another download has replaced this download meanwhile
        except OSError as e:
            if not is_full(e):
                raise
            store.drop_part(effect.snapshot.offset)
            return False
        return True

    def _load(self, snapshot: OffsetAndEpoch, *, is_own: bool) -> repair.Input | None:
        try:
            expected = self._expected_chain(snapshot)
        except CorruptLog as e:
            self._disk.found_damage(e)
            return repair.LoadOver(is_usable=True)
        self._world.start_job(self._snapshotter.repair_job(snapshot, expected, is_own=is_own))
        return None

    def _expected_chain(self, snapshot: OffsetAndEpoch) -> bytes | None:
        """The log's chain at the snapshot's end; None if unknown, or if the snapshot replaces the log there.

        Raises:
            CorruptLog: the log has further damage, which was not known before.
        """
        log = self._log
        if log.contradicts(snapshot) or log.is_within_damage(snapshot.offset):
            return None
        return log.chain_at(snapshot.offset) or NO_BOUNDARY

    def stand_on(self, job: LoadSnapshotJob, error: Exception | None, now_ms: int) -> bool:
        """Takes the result of loading the snapshot for `Load`. True if the log now starts at that snapshot's end.

        The caller tells the core, after the caller has put the image in its place.
        """
        self._snapshotter.repair_over()
        self._repair(repair.LoadOver(is_usable=error is None), now_ms)
        end, meta = job.end, job.meta
        if error is not None or meta is None:
            return False
        try:
            if not self._is_wanted(end, meta.chain):
                return False
            ranges = len(self._log.damage)
            self._disk.space.write_at_any_price(
                lambda: self._log.start_at_snapshot(end, meta.chain, meta.timestamp_ms), now_ms
            )
            self._disk.repair.mended_ranges += ranges - len(self._log.damage)
        except CorruptLog as e:
            self._disk.found_damage(e)  # at the end of the snapshot, or just below
            return False
        return True

    def _is_wanted(self, end: OffsetAndEpoch, chain: bytes) -> bool:
        damage, shape = self._log.damage, self._log.shape
        if self._core.is_loading_snapshot or not damage or end.offset <= damage[0].start:
            return False
        if shape.flushed_end < end.offset <= shape.end:
            return False  # in a moment that is durable, and can be judged
        return self._expected_chain(end) in (None, chain)

    # --- the scrub -------------------------------------------------------------------------------------------------

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
