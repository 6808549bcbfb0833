"""The part of a log that is kept in memory: start, end, chain, history and the newest batches.

The log reports every batch to `LogMemory` once the batch is written to a file. At opening, recovery reports every batch
of the files.
"""

from metadata_log.format.batch import Batch
from metadata_log.format.ids import Offset
from metadata_log.store.damage import DamagedRange
from metadata_log.store.log_history import LogHistory
from metadata_log.store.log_notes import LogStart
from metadata_log.store.tail import Tail


class LogMemory:
    """The state of a log in memory. The log itself knows which part is durable and which part is damaged."""

    start: LogStart
    end: Offset
    """One past the last record, flushed or not."""
    chain: bytes
    """The chain at the end."""
    history: LogHistory
    tail: Tail

    def __init__(self, start: LogStart, tail_bytes: int) -> None:
        self._tail_bytes = tail_bytes
        self.begin_at(start)

    def begin_at(self, start: LogStart) -> None:
        """Become the memory of an empty log that starts at `start`."""
        self.start = start._replace(resetting=False)
        self.end, self.chain = start.start.offset, start.chain
        self.history = LogHistory(start)
        self.tail = Tail(start.start.offset, start.chain, self._tail_bytes)

    def append(self, batch: Batch) -> None:
        """Add `batch`, the log's new last batch."""
        self.history.append(batch)
        self.tail.append(batch)
        self.end = batch.end_offset
        self.chain = batch.chain

    def add_recovered(self, item: Batch | DamagedRange) -> None:
        """Add `item`, the next batch or damaged range that recovery found. Ignore items below the log's start."""
        start = self.start.start.offset
        if isinstance(item, Batch):
            if item.base_offset >= start:
                self.append(item)
        elif item.end > max(start, item.start):
            self._append_damaged(item)

    def _append_damaged(self, damaged: DamagedRange) -> None:
        self.history.append_damaged(damaged)
        self.end, self.chain = damaged.end, damaged.chain_after
        self.tail.clear(self.end, self.chain)

    def cut(self, end: Offset, chain: bytes, last: Batch | None, header_time_ms: int) -> None:
        """Cut back to `end`, with `chain` there; `last` is the batch that ends there.

        `last` is None if the last file now holds no batch. `header_time_ms` is the time in that file's header.
        """
        self.end, self.chain = end, chain
        if end >= self.tail.start_offset:
            self.tail.truncate(end)
        else:
            self.tail.clear(end, chain)
        timestamp_ms = max(self.start.timestamp_ms, header_time_ms)
        last = self.tail.last_batch() or last
        if last is not None and end > self.start.start.offset:
            timestamp_ms = last.last_timestamp_ms
        self.history.forget_from(end, self.start.start.epoch, timestamp_ms)
