"""The content of a controller's disk, as far as an observer can tell: the shape of its log, and the damage in it."""

from typing import NamedTuple

from metadata_log.format.ids import Epoch, Offset
from metadata_log.format.log_shape import LogShape
from metadata_log.store.damage import DamagedRange


class Held(NamedTuple):
    """A log, up or as its node's last crash met it."""

    shape: LogShape
    damage: tuple[DamagedRange, ...] = ()

    @property
    def last_epoch(self) -> Epoch:
        """The epoch of the last durable record."""
        return self.shape.epoch_below(self.shape.flushed_end) or 0

    def has(self, offset: Offset, epoch: Epoch) -> bool:
        """True if the records below `offset`, the last of them of `epoch`, are durable here.

        Two logs that hold a record of one epoch at one offset hold the same below (R6). All below a log's start is committed.
        Which epochs a damaged range had nobody can say; what was there is there again when it is mended.
        """
        if self.shape.flushed_end < offset:
            return False
        if self.shape.start.offset > offset or any(each.start < offset <= each.end for each in self.damage):
            return True
        return self.shape.epoch_below(offset) == epoch


def has(held: Held | None, offset: Offset, epoch: Epoch) -> bool:
    """The same of somebody who may hold nothing."""
    return held is not None and held.has(offset, epoch)
