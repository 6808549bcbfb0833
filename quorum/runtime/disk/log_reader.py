"""Reads the node's log and snapshots for other controllers, after the core has decided on the answer.

    core: ReplyWithBatches --> log.read ---------> the response, with batches or a part of a batch
          ReplyWithChunk ----> store.read_chunk -> the response, with a piece of the snapshot

The core knows only the shape of a log (`metadata_log.format.log_shape`), so the core decides on an answer without bytes, and the
reader adds the bytes.

*A read that finds damage answers with an error, and stops no process.* The asking node tries again, at another node. Example:
    1. node 1 leads; node 2 fetches from offset 7, and node 1 reads the batch at 7 from its disk;
    2. the batch fails its CRC: the log notes the damage, and node 2 receives STORAGE_ERROR;
    3. before the turn is over, the core learns of the damage: node 1 resigns, and its repair begins.
"""

from collections.abc import Callable
from dataclasses import replace

from metadata_log.format.errors import CorruptLog, ErrorCode
from metadata_log.format.fetch_size import as_asked
from metadata_log.store.log_view import LogView
from quorum.core.protocol import effects as fx
from quorum.core.protocol.messages import ChainResponse
from quorum.core.raft import RaftCore
from quorum.runtime.protocol.world import World
from snapshots.store import PositionOutOfRange, SnapshotNotFound, SnapshotStore


class LogReader:
    """Reads one node's log, as `LogWriter` writes the log. `found_damage` notes damage for the repair."""

    def __init__(
        self,
        log: LogView,
        store: SnapshotStore,
        core: RaftCore,
        world: World,
        found_damage: Callable[[CorruptLog], None],
    ) -> None:
        self._log = log
        self._store = store
        self._core = core
        self._world = world
        self._found_damage = found_damage

    def reply_with_batches(self, effect: fx.ReplyWithBatches) -> None:
        """Answers a fetch with the requested batches, or with STORAGE_ERROR if the log is damaged at this place.

        Raises:
            CorruptLog: the damage cannot be repaired.
        """
        response = effect.response
        try:
            found = self._log.read(effect.offset, effect.max_bytes)
            batches, part = as_asked(found, effect.max_bytes, effect.part_position)
            response = response._replace(batches=batches, part=part)
        except CorruptLog as e:
            self._found_damage(e)
            response = response._replace(error=ErrorCode.STORAGE_ERROR)  # this leader resigns before the turn is over
        self._world.reply(effect.reply_to, response)

    def reply_with_chunk(self, effect: fx.ReplyWithChunk) -> None:
        """Answers with a piece of a snapshot, or with SNAPSHOT_NOT_FOUND or POSITION_OUT_OF_RANGE."""
        try:
            size, data = self._store.read_chunk(effect.snapshot, effect.response.position, effect.max_bytes)
            response = replace(effect.response, size=size, data=data)
        except SnapshotNotFound:
            response = replace(effect.response, error=ErrorCode.SNAPSHOT_NOT_FOUND)
        except PositionOutOfRange:
            response = replace(effect.response, error=ErrorCode.POSITION_OUT_OF_RANGE)
        self._world.reply(effect.reply_to, response)

    def silent_witness(self) -> ChainResponse:
        """The answer to a question about the chain at an offset that this node cannot read.

        The node gives no testimony about the chain at a damaged offset, and continues.
        """
        shape, core = self._log.shape, self._core
        return ChainResponse(
            ErrorCode.STORAGE_ERROR, core.epoch, core.leader_id, None, shape.flushed_end, shape.last_epoch
        )
