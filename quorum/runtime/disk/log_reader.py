"""What a node reads of its own log and snapshots for other controllers, when the core has decided on the answer.

    core: ReplyWithBatches --> log.read ---------> the response, with batches or a part of one
          ReplyWithChunk ----> store.read_chunk -> the response, with a piece of the snapshot

The core knows a log by its shape only (`metadata_log.format.log_shape`): it decides on an answer without bytes, and the
reader puts
them in.

*A read that comes upon damage answers an error, and ends no process.* Whoever asks tries again, elsewhere:
    1. node 1 leads; node 2 fetches from offset 7, which node 1 has to read from its disk;
    2. the batch at 7 fails its CRC: the log takes note of the damage, and node 2 hears STORAGE_ERROR;
    3. before the turn is over the core is told that its log is damaged: node 1 resigns, and its repair begins.
"""

from collections.abc import Callable
from dataclasses import replace

from metadata_log.format.errors import CorruptLog, ErrorCode
from metadata_log.format.pieces import as_asked
from metadata_log.store.log_view import LogView
from quorum.core.protocol import effects as fx
from quorum.core.protocol.messages import ChainResponse
from quorum.core.raft import RaftCore
from quorum.runtime.protocol.world import World
from snapshots.store import PositionOutOfRange, SnapshotNotFound, SnapshotStore


class LogReader:
    """The reading eye of one node, as `LogWriter` is its writing hand. `found_damage` takes note of damage that may be mended."""

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
        """Answers a fetch with as much of the log as it asks for, or with STORAGE_ERROR where that is damaged.

        Raises:
            CorruptLog: the damage is nothing that could be mended.
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
        """Answers with a piece of a snapshot, or says that there is none, or none at that position."""
        try:
            size, data = self._store.read_chunk(effect.snapshot, effect.response.position, effect.max_bytes)
            response = replace(effect.response, size=size, data=data)
        except SnapshotNotFound:
            response = replace(effect.response, error=ErrorCode.SNAPSHOT_NOT_FOUND)
        except PositionOutOfRange:
            response = replace(effect.response, error=ErrorCode.POSITION_OUT_OF_RANGE)
        self._world.reply(effect.reply_to, response)

    def silent_witness(self) -> ChainResponse:
        """The answer to a question about the chain at an offset that is damaged here.

        A witness whose own disk is damaged there has nothing to say, and that is no reason to die.
        """
        shape, core = self._log.shape, self._core
        return ChainResponse(
            ErrorCode.STORAGE_ERROR, core.epoch, core.leader_id, None, shape.flushed_end, shape.last_epoch
        )
