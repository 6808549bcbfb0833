"""Writes the node's log: proposals, control records, the leader's batches, and the flushes that make all records durable.

*The core always knows the present log.* A method that changes the log returns the report for the core, and the node gives the
report to the core at once. Proposals are the exception: the node reports all proposals of a turn together (`take_unreported`).
Counter-example, if each proposal were reported at once:
    1. leader 1 appends the proposal of client A: the core answers the waiting fetch of follower 2 with A's batch;
    2. leader 1 appends the proposals of clients B and C in the same turn;
    3. follower 2 receives B and C only with its next fetch, one flush later.

*The proposals of a turn reach the file with one write*, before the core knows of them. Each append reserves room in the file, so
a full disk refuses the append, not the write. Example with leader 1, which takes the proposals A, B, C and D in one turn:
    1. A and B find room; C does not: leader 1 refuses C and D, and will resign in this turn;
    2. leader 1 writes A and B into the reserved room, and reports both to the core;
    3. if the file system could not reserve room, and refuses the write, leader 1 deletes the ballast and writes A and B again.

*A full disk takes no record* (`space`). A record without room is not in the log: a client gets a refusal, a follower fetches
again later. Only a vote is written in any case. Meanwhile the node holds its own fetches, because it could not keep the answers.

*One flush at a time.* Batches appended during a flush share the next flush, so the group commit grows with the load. The
followers fetch and flush while the leader flushes.
"""

import contextlib
import logging
from collections.abc import Sequence

from metadata_log.disk.files import Directory
from metadata_log.format.batch import Batch
from metadata_log.format.errors import CorruptLog, ErrorCode, LogFormatError, NotABoundary
from metadata_log.format.ids import NodeId, Offset, OffsetAndEpoch
from metadata_log.format.records import LeaderChange, SkippedBatch, Voters
from metadata_log.store.log import Log
from metadata_log.store.log_history import QuorumRecord
from quorum.core.protocol import inputs as raft
from quorum.core.protocol.effects import ElectionState
from quorum.core.protocol.messages import FetchRequest, FetchSnapshotRequest
from quorum.runtime.disk import election_file
from quorum.runtime.disk.space import NoRoom, Space
from quorum.runtime.protocol.jobs import FlushJob
from quorum.runtime.protocol.requests import Refused
from quorum.runtime.protocol.world import NodeStopped
from snapshots.store import PositionOutOfRange, SnapshotStore

logger = logging.getLogger(__name__)


class LogWriter:
    """Writes one node's log. The caller gives each returned input to the core before any other change of the log."""

    def __init__(self, node_id: NodeId, directory: Directory, log: Log, store: SnapshotStore, space: Space) -> None:
        self._node_id = node_id
        self._directory = directory
        self._log = log
        self._store = store
        self._space = space
        self._held: list[tuple[NodeId, FetchRequest | FetchSnapshotRequest]] = []
        """Fetches that are not sent now, because the node could not keep the answers."""
        self._unreported_ms: int | None = None
        """The time of the turn, if the turn has appended proposals that are not reported to the core yet."""
        self._flushing = False

    def save_election(self, state: ElectionState, now_ms: int) -> None:
        """Makes `state` durable before returning."""
        self._space.write_at_any_price(lambda: election_file.save(self._directory, state), now_ms)

    # --- growing ---------------------------------------------------------------------------------------------------

    def append_proposal(self, batch: Batch, now_ms: int) -> None:
        """Appends a leader's `batch`, which was sealed for the present end of the log. `take_unreported` writes the batch.

        Raises:
            Refused: the disk has no room; nothing was appended, and the leader resigns in this turn.
        """
        try:
            self._space.write(lambda: self._log.append_unwritten(batch), now_ms)
        except NoRoom as e:
            text = "this controller's disk is full; nothing was done, and another controller must lead until the disk has room"
            raise Refused(ErrorCode.STORAGE_ERROR, text) from e
        self._unreported_ms = now_ms

    def take_unreported(self) -> bool:
        """Writes the proposals that were appended since the last report to the core. True if there are any: the caller must
        report the log now.
        """
        now_ms, self._unreported_ms = self._unreported_ms, None
        if now_ms is None:
            return False
        self._space.write_at_any_price(self._log.write_out, now_ms)
        return True

    def append_control(
        self, record: LeaderChange | Voters | SkippedBatch, epoch: int, now_ms: int, wall_ms: int
    ) -> Batch | None:
        """Appends a leader's control record. The caller must report the growth to the core (`grown_from`).

        None: the disk has no room, and the leader resigns in this turn.
        """
        try:
            return self._space.write(lambda: self._log.append([record], epoch, wall_ms), now_ms)
        except NoRoom:
            return None

    def append_fetched(self, batches: Sequence[Batch], now_ms: int) -> raft.Appended | raft.AnswerRefused:
        """Appends the leader's batches on a follower.

        Batches without room are not appended; the follower's next fetch asks for them again.
        """
        log = self._log

        def append() -> None:
            log.append_batches([batch for batch in batches if batch.base_offset >= log.shape.end])

        try:
            with contextlib.suppress(NoRoom):
                self._space.write(append, now_ms)
        except LogFormatError as e:
            if isinstance(e, CorruptLog):
                raise
            # The batch has a right CRC, but belongs to another history: the node distrusts the leader, not its own disk.
            logger.error("node %d: the leader's batches are refused: %s", self._node_id, e)
            return raft.AnswerRefused(str(e))
        return self.grown_from(batches[0].base_offset)

    def grown_from(self, begin: Offset) -> raft.Appended:
        """The report that the log has grown from `begin`, with the new records about voters and leaders."""
        quorum_records: tuple[tuple[Offset, QuorumRecord], ...] = tuple(
            entry for entry in self._log.control_records() if entry[0] >= begin
        )
        return raft.Appended(self._log.shape, quorum_records)

    def truncate(self, end: Offset) -> raft.Truncated | raft.AnswerRefused:
        """Cuts a follower's log at `end`: the leader has other records from `end` on.

        An `end` inside a batch is refused: all nodes have the same batches of an epoch, so only a faulty leader names
        such an offset.
        """
        try:
            self._log.truncate(end)
        except NotABoundary as e:
            logger.error("node %d: the leader's truncation point is refused: %s", self._node_id, e)
            return raft.AnswerRefused(str(e))
        return raft.Truncated(self._log.shape)

    def write_chunk(
        self, snapshot: OffsetAndEpoch, position: int, data: bytes, now_ms: int
    ) -> raft.SnapshotInstallFailed | None:
        """Writes a piece of the leader's snapshot, at whose end the log will start. Returns None if the piece is written."""
        store = self._store
        try:
            self._space.write(lambda: store.write_part(snapshot, position, data), now_ms)
        except NoRoom as e:
            store.discard_parts()
            return raft.SnapshotInstallFailed(snapshot, str(e), is_damaged=False)
        except PositionOutOfRange as e:
            # The repair of the log has replaced the only download meanwhile: the core's download begins again.
            return raft.SnapshotInstallFailed(snapshot, str(e), is_damaged=False)
        return None

    # --- without room ----------------------------------------------------------------------------------------------

    def hold(self, destination: NodeId, request: FetchRequest | FetchSnapshotRequest) -> None:
        """Holds `request` back instead of sending it."""
        self._held.append((destination, request))

    def release_held(self) -> list[raft.RequestFailed]:
        """Returns the held fetches as timed out, so that the core fetches again: the disk may have room now."""
        held, self._held = self._held, []
        return [raft.RequestFailed(destination, request, raft.Failure.TIMED_OUT) for destination, request in held]

    # --- flushing --------------------------------------------------------------------------------------------------

    def flush_if_grown(self) -> FlushJob | None:
        """The job that flushes all appended records; None if a flush is running, or if all records are durable."""
        shape = self._log.shape
        if self._flushing or shape.flushed_end >= shape.end:
            return None
        self._flushing = True
        return FlushJob(self._log.begin_flush())

    def finish_flush(self, job: FlushJob, error: Exception | None) -> raft.Flushed | None:
        """Takes the result of a flush. Returns None if the log was cut or repaired meanwhile: the flush does not count.

        Raises:
            NodeStopped: the flush failed. A flush is never repeated: the kernel may have marked the lost pages clean.
        """
        if error is not None:
            raise NodeStopped(f"flush failed: {error}; what was written may be lost, so this node stops") from error
        self._flushing = False
        return raft.Flushed(self._log.shape) if self._log.complete_flush(job.ticket) else None
