"""What a log knows of itself without its files: where it starts and ends, who wrote what in it, and its newest batches.

Told of every batch once that is in a file; at the opening, by recovery, of all that there are.
"""

from metadata_log.format.batch import Batch
from metadata_log.format.ids import Offset
from metadata_log.store.damage import DamagedRange
from metadata_log.store.log_history import LogHistory
from metadata_log.store.log_notes import LogStart
from metadata_log.store.tail import Tail


class LogMemory:
    """See the file's head. What is durable of it, and damaged, is the log's to know."""

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
        """An empty log."""
        self.start = start._replace(resetting=False)
        self.end, self.chain = start.start.offset, start.chain
        self.history = LogHistory(start)
        self.tail = Tail(start.start.offset, start.chain, self._tail_bytes)

    def take(self, batch: Batch) -> None:
        """`batch` is the log's last one now."""
        self.history.take(batch)
        self.tail.append(batch)
        self.end = batch.end_offset
        self.chain = batch.chain

    def follow(self, item: Batch | DamagedRange) -> None:
        """`item` is what recovery has read next. What lies below the start is not this log's."""
        start = self.start.start.offset
        if isinstance(item, Batch):
            if item.base_offset >= start:
                self.take(item)
        elif item.end > max(start, item.start):
            self._step_over(item)

    def _step_over(self, damaged: DamagedRange) -> None:
        self.history.step_over(damaged)
        self.end, self.chain = damaged.end, damaged.chain_after
        self.tail.clear(self.end, self.chain)

    def cut(self, end: Offset, chain: bytes, last: Batch | None, header_time_ms: int) -> None:
        """The log ends at `end` now, with `chain` there and behind the batch `last`.

        That is None where the file that is the last one now holds no batch; `header_time_ms` is the time below that file.
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
