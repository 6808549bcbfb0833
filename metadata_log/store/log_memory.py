"""The part of a log that is kept in memory: start, end, chain, history and the newest batches.

The log reports every batch to `LogMemory` once the batch is written to a file. At opening, recovery reports every batch
of the files.
"""

from collections.abc import Sequence

from metadata_log.format.batch import DATA_FORMAT_VERSION, FORMAT_VERSION, Batch, check_format, encode, verify_chain
from metadata_log.format.codec import decode_batch, encode_records
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Epoch, Offset
from metadata_log.format.records import FIRST_CONTROL_TYPE, TYPE_NUMBERS, Record
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

    def __init__(self, start: LogStart, tail_bytes: int, format_version: int = FORMAT_VERSION) -> None:
        self._tail_bytes = tail_bytes
        self.format_version = format_version
        self.begin_at(start)

    def begin_at(self, start: LogStart) -> None:
        """Become the memory of an empty log that starts at `start`."""
        self.start = start._replace(resetting=False)
        self.end, self.chain = start.start.offset, start.chain
        self.history = LogHistory(start)
        self.tail = Tail(start.start.offset, start.chain, self._tail_bytes)

    def seal(self, records: Sequence[Record], epoch: Epoch, wall_ms: int) -> Batch:
        """Make the batch with which `records` would continue the log. Its time is `wall_ms`, or the time of the previous
        batch if the clock was set back.

        Raises:
            BatchTooLarge: `records` do not fit one batch.
        """
        assert self.format_version == FORMAT_VERSION, "records of metadata in the log of a partition"
        is_control = TYPE_NUMBERS[type(records[0])] >= FIRST_CONTROL_TYPE
        assert all((TYPE_NUMBERS[type(each)] >= FIRST_CONTROL_TYPE) is is_control for each in records)
        assert epoch >= self.history.last_epoch, f"epoch {epoch} behind {self.history.last_epoch}"
        timestamp_ms = max(wall_ms, self.history.last_timestamp_ms)
        return encode(
            encode_records(records),
            base_offset=self.end,
            epoch=epoch,
            record_count=len(records),
            first_timestamp_ms=timestamp_ms,
            last_timestamp_ms=timestamp_ms,
            is_control=is_control,
            previous_chain=self.chain,
        )

    def seal_data(self, payload: bytes, record_count: int, epoch: Epoch, timestamps_ms: tuple[int, int]) -> Batch:
        """Make the batch of format version 2 with which `payload` would continue the log of a partition.

        `timestamps_ms` are the smallest and the largest timestamp of the records.

        Raises:
            BatchTooLarge: `payload` does not fit one batch.
        """
        assert self.format_version == DATA_FORMAT_VERSION, "records of clients in a log of metadata"
        assert epoch >= self.history.last_epoch, f"epoch {epoch} behind {self.history.last_epoch}"
        return encode(
            payload,
            base_offset=self.end,
            epoch=epoch,
            record_count=record_count,
            first_timestamp_ms=timestamps_ms[0],
            last_timestamp_ms=max(timestamps_ms[1], self.history.last_timestamp_ms),
            is_control=False,
            previous_chain=self.chain,
            format_version=self.format_version,
        )

    def check_continued_by(self, batches: Sequence[Batch]) -> None:
        """Raise LogFormatError unless `batches` continue the log."""
        end, epoch, chain = self.end, self.history.last_epoch, self.chain
        for batch in batches:
            if batch.base_offset != end:
                raise LogFormatError(
                    f"a batch with base offset {batch.base_offset}, but the log ends at {end}; not appended"
                )
            if batch.epoch < epoch:
                raise LogFormatError(f"a batch of epoch {batch.epoch} at offset {end}, after epoch {epoch}")
            if not verify_chain(batch, chain):
                raise LogFormatError(f"the batch at offset {end} does not continue this log's chain")
            check_format(batch, self.format_version)
            if batch.is_control:
                decode_batch(batch)  # refuse a voter set that this release cannot read
            end, epoch, chain = batch.end_offset, batch.epoch, batch.chain

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

    def cut(self, end: Offset, chain: bytes, timestamp_ms: int) -> None:
        """Cut back to `end`, with `chain` there; `timestamp_ms` is the time of the batch that ends there."""
        self.end, self.chain = end, chain
        if end >= self.tail.start_offset:
            self.tail.truncate(end)
        else:
            self.tail.clear(end, chain)
        timestamp_ms = (
            max(self.start.timestamp_ms, timestamp_ms) if end > self.start.start.offset else self.start.timestamp_ms
        )
        self.history.forget_from(end, self.start.start.epoch, timestamp_ms)
