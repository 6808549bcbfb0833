"""A controller's log for its watches: committed batches, and the image at their end.

Watches read what the node has applied, so a watch never shows a record that this node's disk could still lose. The newest batches
come from memory. Older ones are read from the files on a thread (`metadata_log.store.side_reader`), so that a watch that catches
up delays no turn. Example with watches at node 2, a follower:
    1. node 2 appends [40, 45), and does not know yet that it is committed: the image is at 40, and `read` returns nothing;
    2. the next turn applies the batch: the turn ends with the image at 45, and wakes the watches, if there are any;
    3. a client goes on at 1,000 of 900,000. A thread reads the files. The leader trims the log meanwhile, and a file is gone: the
       watch asks again, and is told that the log begins above its position.
"""

import asyncio
from collections.abc import Callable
from contextlib import closing

from metadata_log.format.batch import Batch
from metadata_log.format.errors import CorruptLog
from metadata_log.format.ids import Offset
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.store.side_reader import SideReader
from quorum.runtime.node import Node
from quorum.runtime.protocol.requests import Refused
from watches.core.position import Place, Position
from watches.core.watched_log import LogUnreadable, PositionLost, Stretch, Unavailable


class NodeWatchedLog:
    """Implements `WatchedLog` over one node. All calls come on the thread of the turns."""

    def __init__(self, node: Node, refusal: Callable[[], Refused | None]) -> None:
        """`refusal` returns why the node takes no requests any more."""
        self._node = node
        self._refusal = refusal
        self._news: asyncio.Event | None = None
        """Set at the next change. None: no watch waits."""
        self._seen: tuple[Offset, bool] = (0, False)
        """The state for which the watches wait to change."""

    @property
    def cluster_id(self) -> str:
        return self._node.identity.cluster_id

    @property
    def generation(self) -> int:
        return self._node.identity.generation

    @property
    def image(self) -> MetadataImage:
        return self._node.state.committed

    def problem(self) -> Unavailable | None:
        refused = self._refusal()
        if refused is not None:
            return Unavailable(refused.code.name, refused.message)
        if self._node.is_loading_image:
            return Unavailable("NOT_READY", "this controller loads its image: watch at another node, or in a moment")
        if self._node.has_odd_image:
            return Unavailable("BROKER_NOT_AVAILABLE", "the image of this controller is not that of the others")
        return None

    async def changed(self) -> None:
        if self._news is None:
            self._news = asyncio.Event()
            self._seen = self._state()
        await self._news.wait()

    def tell(self) -> None:
        """Wakes the watches if the image has moved, or if the node serves none any more. Called at the end of each turn."""
        if self._news is not None and self._state() != self._seen:
            news, self._news = self._news, None
            news.set()

    def _state(self) -> tuple[Offset, bool]:
        return self._node.state.committed.offset, self.problem() is None

    async def place_of(self, offset: Offset) -> Place:
        log, image = self._node.log, self._node.state.committed
        shape = log.shape
        try:
            chain = log.chain_at(offset)
        except CorruptLog as e:
            raise self._unreadable(e) from e
        return Place(
            shape.start.offset,
            image.offset,
            image.provenance.epoch,
            shape.epoch_below(offset),
            chain,
            log.skipped(),
        )

    async def read(self, position: Position, max_bytes: int, until: Offset) -> Stretch:
        log = self._node.log
        until = min(until, self._node.state.committed.offset)
        if position.offset < log.shape.start.offset:
            raise PositionLost(f"the log begins at offset {log.shape.start.offset}")
        if position.offset >= min(until, log.end):
            return Stretch(())
        try:
            if log.chain_at(position.offset) != position.chain:
                raise PositionLost(f"the log has another history below offset {position.offset}")
            if log.is_in_memory(position.offset):
                return Stretch(log.read(position.offset, max_bytes, until), log.skipped())
            if any(damaged.end > position.offset for damaged in log.damage):
                raise LogUnreadable(f"the disk has lost records above offset {position.offset}")
            side, generation = log.reader_from(position.offset), log.generation
        except CorruptLog as e:
            raise self._unreadable(e) from e
        try:
            batches = await asyncio.to_thread(_read, side, position.offset, max_bytes, until)
        except FileNotFoundError as e:
            raise PositionLost(f"a part of the log was retired meanwhile: {e}") from e
        except CorruptLog as e:
            if log.generation != generation:
                raise PositionLost("the log was written anew meanwhile") from e
            raise self._unreadable(e) from e
        return Stretch(batches, log.skipped())

    def _unreadable(self, error: CorruptLog) -> LogUnreadable:
        self._node.found_damage(error)
        return LogUnreadable("the disk of this controller has lost a part of the log")


def _read(side: SideReader, offset: Offset, max_bytes: int, until: Offset) -> tuple[Batch, ...]:
    """Reads from the files. Runs on a thread."""
    taken: list[Batch] = []
    size = 0
    with closing(side.batches()) as batches:
        for batch in batches:
            if batch.base_offset < offset:
                continue
            size += len(batch.data)
            if batch.end_offset > until or (taken and size > max_bytes):
                break
            taken.append(batch)
    return tuple(taken)
