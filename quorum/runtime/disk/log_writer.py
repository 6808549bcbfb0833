"""What a node writes into its own log: proposals, control records, what the leader has sent, and when all that is made durable.

*The core knows the log that there is.* Each growth is told to the core at once, except proposals: all of a turn's are told
together (`take_unreported`). Told of each, it would answer a waiting follower with the first and let it come back for the rest
a flush later.

*Nothing is written past a full disk* (`space`). What there is no room for is not in the log, and whoever wanted it hears of it
or asks again; only a vote is written at any price. Fetches are held meanwhile, for their answers could not be kept.

*One flush in flight.* What is appended meanwhile shares the next one: group commit that grows with load by itself. The
leader's followers fetch and flush at the same time as the leader does.
"""

import contextlib
import logging
from collections.abc import Callable, Sequence

from metadata_log.disk.files import Directory
from metadata_log.format.batch import Batch
from metadata_log.format.errors import CorruptLog, ErrorCode, LogFormatError
from metadata_log.format.ids import NodeId, Offset, OffsetAndEpoch
from metadata_log.format.records import LeaderChange, Voters
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
    """The writing hand of one node. `step` tells the core, and carries out what follows from it."""

    def __init__(
        self,
        node_id: NodeId,
        directory: Directory,
        log: Log,
        store: SnapshotStore,
        space: Space,
        step: Callable[[raft.Input], None],
    ) -> None:
        self._node_id = node_id
        self._directory = directory
        self._log = log
        self._store = store
        self._space = space
        self._step = step
        self._held: list[tuple[NodeId, FetchRequest | FetchSnapshotRequest]] = []
        """Fetches that are not sent, because what came could not be kept."""
        self._unreported = False
        self._flushing = False

    def save_election(self, state: ElectionState, now_ms: int) -> None:
        """Durable when this returns."""
        self._space.write_at_any_price(lambda: election_file.save(self._directory, state), now_ms)

    # --- growing ---------------------------------------------------------------------------------------------------

    def append_proposal(self, batch: Batch, now_ms: int) -> None:
        """As leader: `batch`, which was sealed for the log's end as it is now.

        Raises:
            Refused: there is no room; nothing was appended, and this node leads no longer than this turn.
        """
        try:
            self._space.write(lambda: self._log.write(batch), now_ms)
        except NoRoom as e:
            text = "this controller's disk is full; nothing was done, and it will not lead until there is room"
            raise Refused(ErrorCode.STORAGE_ERROR, text) from e
        self._unreported = True

    def take_unreported(self) -> bool:
        """Whether anything was proposed since the core was last told how far the log goes. It is told now."""
        unreported, self._unreported = self._unreported, False
        return unreported

    def append_control(self, record: LeaderChange | Voters, epoch: int, now_ms: int, wall_ms: int) -> Batch | None:
        """As leader; the core is still to be told (`report`). None: no room, and this node leads no longer than this turn."""
        try:
            return self._space.write(lambda: self._log.append([record], epoch, wall_ms), now_ms)
        except NoRoom:
            return None

    def append_fetched(self, batches: Sequence[Batch], now_ms: int) -> None:
        """As follower. The core is told how far it came: of what there is no room for, the leader hears with the next fetch."""
        log = self._log

        def append() -> None:
            log.append_batches([batch for batch in batches if batch.base_offset >= log.shape.end])

        try:
            with contextlib.suppress(NoRoom):
                self._space.write(append, now_ms)
        except LogFormatError as e:
            if isinstance(e, CorruptLog):
                raise
            # Whole, as its CRC says, but of another history: this disk is all right, it is the leader's that is not trusted.
            logger.error("node %d: the leader's batches are refused: %s", self._node_id, e)
            self._step(raft.BatchesRefused(str(e)))
        else:
            self.report(batches[0].base_offset)

    def report(self, begin: Offset) -> None:
        """Tells the core that the log has grown from `begin`, and what it says there about the voter set."""
        quorum_records: tuple[tuple[Offset, QuorumRecord], ...] = tuple(
            entry for entry in self._log.control_records() if entry[0] >= begin
        )
        self._step(raft.Appended(self._log.shape, quorum_records))

    def truncate(self, end: Offset) -> None:
        """As follower: what is from `end` on is not the leader's."""
        self._log.truncate(end)
        self._step(raft.Truncated(self._log.shape))

    def write_chunk(self, snapshot: OffsetAndEpoch, position: int, data: bytes, now_ms: int) -> None:
        """A piece of the leader's snapshot, with which this log will begin."""
        store = self._store
        try:
            self._space.write(lambda: store.write_part(snapshot, position, data), now_ms)
        except NoRoom as e:
            store.discard_parts()
            self._step(raft.SnapshotInstallFailed(snapshot, str(e), is_damaged=False))
        except PositionOutOfRange as e:
            # The repair of the log has used the one download that there can be, meanwhile: this one begins anew.
            self._step(raft.SnapshotInstallFailed(snapshot, str(e), is_damaged=False))

    # --- without room ----------------------------------------------------------------------------------------------

    def hold(self, destination: NodeId, request: FetchRequest | FetchSnapshotRequest) -> None:
        """`request` is not sent now."""
        self._held.append((destination, request))

    def release_held(self) -> None:
        """There may be room again: to the core, the fetches that were held have timed out, and it fetches anew."""
        held, self._held = self._held, []
        for destination, request in held:
            self._step(raft.RequestFailed(destination, request, raft.Failure.TIMED_OUT))

    # --- flushing --------------------------------------------------------------------------------------------------

    def flush_if_grown(self) -> FlushJob | None:
        """The flush for all that was appended, unless one is in flight."""
        shape = self._log.shape
        if self._flushing or shape.flushed_end >= shape.end:
            return None
        self._flushing = True
        return FlushJob(self._log.begin_flush())

    def finish_flush(self, job: FlushJob, error: Exception | None) -> None:
        """The flush has come back.

        Raises:
            NodeStopped: it failed. It is never tried again: the kernel may have marked the lost pages clean.
        """
        if error is not None:
            raise NodeStopped(f"flush failed: {error}; what was written may be lost, so this node stops") from error
        self._flushing = False
        if self._log.complete_flush(job.ticket):
            self._step(raft.Flushed(self._log.shape))
