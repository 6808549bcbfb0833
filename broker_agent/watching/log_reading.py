"""Reads a broker's log for its watches: the part on disk, and the end that waits in memory for room. On the store's thread.

1. The disk of broker 101 is full at offset 500; the batches [500, 502) and [502, 509) wait in memory.
2. A watch reads on from 490: it gets the batches up to 500 from the disk.
3. The watch reads on from 500: it gets the two batches in memory.
"""

from broker_agent.own_disk.broker_log import BrokerLog
from metadata_log.format.batch import Batch
from metadata_log.format.ids import Epoch, Offset
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.skips import skips_in
from watches.core.position import Place, Position, Skips
from watches.core.watched_log import PositionLost, Stretch


def place_in(log: BrokerLog, offset: Offset, image: MetadataImage) -> Place:
    """Returns what the log has at `offset`; `image` is the image that the broker answers from.

    Raises:
        CorruptLog: the disk has lost this place.
    """
    epoch, chain = _boundary(log, offset)
    end = min(image.offset, log.end)
    return Place(log.disk.shape.start.offset, end, image.provenance.epoch, epoch, chain, _skips(log))


def read_from(log: BrokerLog, position: Position, max_bytes: int, until: Offset) -> Stretch:
    """Reads batches as `WatchedLog.read` does.

    Raises:
        PositionLost: the log does not have the position.
        CorruptLog: the disk has lost this place.
    """
    if position.offset >= min(until, log.end):
        return Stretch(())
    if position.offset < log.disk.shape.start.offset or _boundary(log, position.offset)[1] != position.chain:
        raise PositionLost(f"the log does not have the position {position.offset}")
    if position.offset < log.disk.end:
        batches = log.disk.read(position.offset, max_bytes, until)
    else:
        batches = _taken([batch for batch in log.waiting if batch.base_offset >= position.offset], max_bytes, until)
    return Stretch(batches, _skips(log))


def _taken(waiting: list[Batch], max_bytes: int, until: Offset) -> tuple[Batch, ...]:
    taken: list[Batch] = []
    for batch in waiting:
        max_bytes -= len(batch.data)
        if batch.end_offset > until or (taken and max_bytes < 0):
            break
        taken.append(batch)
    return tuple(taken)


def _boundary(log: BrokerLog, offset: Offset) -> tuple[Epoch | None, bytes | None]:
    """The epoch and the chain below `offset`; None where the log does not know them."""
    if offset <= log.disk.end:
        return log.disk.shape.epoch_below(offset), log.disk.chain_at(offset)
    found = next((batch for batch in log.waiting if batch.end_offset == offset), None)
    return (None, None) if found is None else (found.epoch, found.chain)


def _skips(log: BrokerLog) -> Skips:
    waiting = ((batch.base_offset, skip) for batch in log.waiting for skip in skips_in((batch,)))
    return (*log.disk.skipped(), *waiting)
