"""A flush in progress: the slow fsync, and the record of what it makes durable.

*A flush has three steps*, so that the slow step may run on a worker thread: `Log.begin_flush` makes a ticket,
`FlushTicket.sync` does the fsync, and `Log.complete_flush` moves `flushed_end` to the ticket's end. A truncation, reset
or repair of the log increases the log's generation, and a ticket of an earlier generation moves nothing. Without that
rule:
    1. the log appends 8..10 of epoch 3, and the worker begins its fsync;
    2. the log is truncated to 7, and appends other records 8..10 of epoch 4, which are not flushed yet;
    3. the worker's fsync returns, "flushed 10", and this node acknowledges bytes that a power cut would lose.
"""

from typing import NamedTuple

from metadata_log.disk.files import File
from metadata_log.format.ids import Offset


class FlushTicket(NamedTuple):
    """A flush that has begun. `sync` may run on any thread; `Log.complete_flush` decides whether the ticket is still
    valid.
    """

    generation: int
    end: Offset
    chain: bytes
    file: File | None
    """None if everything below `end` is durable already."""

    def sync(self) -> None:
        """Do the fsync.

        Raises:
            FlushFailed: stop the process.
        """
        if self.file is not None:
            self.file.flush()
