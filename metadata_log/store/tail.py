"""The newest batches of a log, kept in memory. Most fetches of followers and brokers are answered from here, without
the disk.
"""

from bisect import bisect_left, bisect_right

from metadata_log.format.batch import Batch
from metadata_log.format.ids import Offset


class Tail:
    """Consecutive batches up to the log's end: at least the last batch, and at most about `bytes_max` bytes."""

    def __init__(self, start_offset: Offset, start_chain: bytes, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.clear(start_offset, start_chain)

    def clear(self, start_offset: Offset, start_chain: bytes) -> None:
        """Forget all batches; the log now ends at `start_offset`."""
        self.start_offset = start_offset
        self._start_chain = start_chain
        self._batches: list[Batch] = []
        self._base_offsets: list[Offset] = []
        self._bytes = 0

    def append(self, batch: Batch) -> None:
        self._batches.append(batch)
        self._base_offsets.append(batch.base_offset)
        self._bytes += len(batch.data)
        if self._bytes > self._bytes_max:
            self._shrink()

    def _shrink(self) -> None:
        """Drop the oldest quarter at once, so that the cost of moving the lists is rare."""
        count = 0
        while self._bytes > self._bytes_max * 3 // 4 and count < len(self._batches) - 1:
            self._bytes -= len(self._batches[count].data)
            count += 1
        if count:
            self._start_chain = self._batches[count - 1].chain
            self.start_offset = self._base_offsets[count]
            del self._batches[:count], self._base_offsets[:count]

    def truncate(self, end: Offset) -> None:
        """Forget the batches from `end` on; `end` is a boundary at or above `start_offset`."""
        index = bisect_left(self._base_offsets, end)
        self._bytes -= sum(len(batch.data) for batch in self._batches[index:])
        del self._batches[index:], self._base_offsets[index:]

    def chain_at(self, offset: Offset) -> bytes | None:
        """Return the chain at a boundary at or above `start_offset`; None if `offset` is not a boundary."""
        assert offset >= self.start_offset
        if offset == self.start_offset:
            return self._start_chain
        before = self._batches[bisect_left(self._base_offsets, offset) - 1] if self._batches else None
        return before.chain if before is not None and before.end_offset == offset else None

    def base_of(self, offset: Offset) -> Offset:
        """Return the base offset of the batch that holds the record at `offset`, a record at or above `start_offset`."""
        return self._base_offsets[bisect_right(self._base_offsets, offset) - 1]

    def read(self, offset: Offset, max_bytes: int, until: Offset) -> list[Batch]:
        """Return batches from the boundary `offset` on: at least one, if any batch ends at or below `until`."""
        index = bisect_left(self._base_offsets, offset)
        taken: list[Batch] = []
        while index < len(self._batches):
            batch = self._batches[index]
            max_bytes -= len(batch.data)
            if batch.end_offset > until or (taken and max_bytes < 0):
                break
            taken.append(batch)
            index += 1
        return taken
