"""A flush that is under way: the part of it that is slow, and the proof of what it has made durable.

*A flush is split in three*, so that the slow part may run on a worker: `Log.begin_flush` gives a ticket, `FlushTicket.sync` does
the fsync, `Log.complete_flush` moves `flushed_end` to the ticket's end. A truncation, a reset or a repair of the log voids the
tickets that are out: the log's generation grows, and a ticket of an earlier generation moves nothing. Without that:
    1. the log appends 8..10 of epoch 3, and the worker begins its fsync;
    2. the log is truncated to 7, and appends other records 8..10 of epoch 4, which are not flushed yet;
    3. the worker comes back: "flushed 10", and this node acknowledges bytes that a power cut would lose.
"""

from typing import NamedTuple

from metadata_log.disk.files import File
from metadata_log.format.ids import Offset


class FlushTicket(NamedTuple):
    """A flush that has begun. `sync` may run on any thread; `Log.complete_flush` says whether it counts."""

    generation: int
    end: Offset
    chain: bytes
    file: File | None
    """None where everything below `end` is durable already."""

    def sync(self) -> None:
        """The fsync.

        Raises:
            FlushFailed: stop the process.
        """
        if self.file is not None:
            self.file.flush()
