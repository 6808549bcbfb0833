"""The records of one partition between their arrival and the program: checked batches, unpacked when their turn comes.

    1. The position is 7. The answer has the batches [5, 9) and [9, 12), and the high watermark 12.
    2. `add` checks CRCs, order and epochs, and keeps the batches as they came.
    3. `take(3)` unpacks the first batch, skips records 5 and 6, and returns 7 and 8. The next `take` returns 9, 10 and 11.

Unpacking a batch takes about a microsecond for each record, and happens at its first `take` only: a batch that a seek throws away
costs a CRC.
"""

from collections import deque
from typing import NamedTuple

from clients.metadata.cluster import TopicPartition
from metadata_log.format.batch import Batch, decode_all
from metadata_log.format.data_batch import DataRecord, Header, decode_data
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Epoch, Offset


class ConsumerRecord(NamedTuple):
    """One record, as a program gets it."""

    topic: str
    partition: int
    offset: Offset
    timestamp_ms: int
    """Milliseconds since 1970, as the producer said."""
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    leader_epoch: Epoch
    """The epoch of the leader that appended the record."""


class RecordBuffer:
    """The fetched records of one partition, in the order of their offsets."""

    def __init__(self, key: TopicPartition) -> None:
        self._key = key
        self._batches: deque[Batch] = deque()
        self._records: list[DataRecord] = []
        """The records of the first batch, once it is unpacked."""
        self.size_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._batches)

    @property
    def end_offset(self) -> Offset | None:
        """The offset after the last record; None if the buffer is empty."""
        return self._batches[-1].end_offset if self._batches else None

    def clear(self) -> None:
        self._batches.clear()
        self._records, self.size_bytes = [], 0

    def add(self, data: bytes, offset: Offset, epoch: Epoch | None, leader_epoch: Epoch | None, until: Offset) -> int:
        """Add the batches of an answer that was asked for from `offset` on; return the number of bytes added.

        `epoch` is that of the record below `offset`, `leader_epoch` that of the asked leader; None: not known. Batches that end
        above `until`, the high watermark, are left out.

        Raises:
            LogFormatError: the batches are damaged, or do not continue `offset` and `epoch`; none was added.
        """
        last_epoch = self._batches[-1].epoch if self._batches else epoch
        added: list[Batch] = []
        for batch in decode_all(data):
            if not batch.base_offset <= offset < batch.end_offset:
                raise LogFormatError(f"the batch {batch} where offset {offset} should be")
            if last_epoch is not None and batch.epoch < last_epoch:
                raise LogFormatError(f"the batch {batch} after a record of the later leader epoch {last_epoch}")
            if leader_epoch is not None and batch.epoch > leader_epoch:
                raise LogFormatError(f"the batch {batch} from the leader of the earlier epoch {leader_epoch}")
            if batch.end_offset > until:
                break
            added.append(batch)
            offset, last_epoch = batch.end_offset, batch.epoch
        size = sum(len(batch.data) for batch in added)
        self._batches.extend(added)
        self.size_bytes += size
        return size

    def take(self, offset: Offset, limit: int) -> tuple[list[ConsumerRecord], bool]:
        """Take at most `limit` records of the first batch, from `offset` on. The second value is True if the batch is used up.

        Raises:
            LogFormatError: the batch does not hold valid records. The buffer is empty now.
        """
        batch = self._batches[0]
        if not self._records:
            try:
                self._records = decode_data(batch)
            except LogFormatError:
                self.clear()
                raise
        topic, partition = self._key
        first = offset - batch.base_offset
        assert 0 <= first < batch.record_count, f"{batch} at offset {offset}"
        last = min(first + limit, len(self._records))
        base, epoch = batch.base_offset, batch.epoch
        taken = [ConsumerRecord(topic, partition, base + i, *self._records[i], epoch) for i in range(first, last)]
        is_used_up = last == len(self._records)
        if is_used_up:
            self._batches.popleft()
            self._records = []
            self.size_bytes -= len(batch.data)
        return taken, is_used_up
