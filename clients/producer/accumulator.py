"""The records that wait for their delivery: a queue of batches for each partition, and the bytes that they take.

Example with `batch_size` 16 KiB and `buffer_memory` 32 MiB:

    1. 100 records for orders-0 make the open batch of orders-0. A record that would exceed 16 KiB opens the next batch.
    2. All brokers are away. Batches pile up until 32 MiB are in use. The next record finds no room, and its caller waits.
    3. The brokers return. Each delivered batch makes room, and the callers go on in the order in which they came.
"""

from clients.metadata.cluster import TopicPartition
from clients.producer.batch import Batch
from clients.producer.config import RECORD_OVERHEAD_BYTES, ProducerConfig
from clients.producer.partition_queue import PartitionQueue


class Accumulator:
    """All batches of one producer."""

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        self.used_bytes = 0
        """How many bytes of the buffer are in use."""
        self._unfinished: dict[int, int] = {}
        """How many records of each batch have no end yet, by the batch's number, in the order of the numbers."""
        self.last_number = 0
        """The number of the newest batch."""
        self.flushed_number = 0
        """Batches up to this number do not linger."""

    def has_room(self, size: int) -> bool:
        """True if a record of `size` packed bytes fits into the buffer now."""
        return self.used_bytes + size + RECORD_OVERHEAD_BYTES <= self._config.buffer_memory

    def has_open_batch(self, key: TopicPartition, size: int) -> bool:
        """True if a record of `size` bytes would join a batch that is there."""
        queue = self.queues.get(key)
        return queue is not None and bool(queue.fresh) and queue.fresh[-1].has_room(size, self._config.batch_size)

    def append(
        self, key: TopicPartition, packed: bytes, timestamp_ms: int, token: object, now_ms: int
    ) -> PartitionQueue | None:
        """Adds a record. Returns the queue if there is something new to do: a new batch, or a full one."""
        config = self._config
        queue = self.queues.get(key)
        if queue is None:
            queue = self.queues[key] = PartitionQueue(
                key,
                in_flight_max=config.max_in_flight_requests_per_connection,
                is_idempotent=config.is_idempotent,
            )
        size = len(packed)
        batch = queue.fresh[-1] if queue.fresh else None
        news = batch is None or not batch.has_room(size, config.batch_size)
        if batch is None or news:
            if batch is not None:
                batch.is_closed = True
            self.last_number += 1
            batch = Batch(self.last_number, key, now_ms, now_ms + config.delivery_timeout_ms)
            self._unfinished[batch.number] = 0
            queue.fresh.append(batch)
        batch.add(packed, timestamp_ms, token)
        self._unfinished[batch.number] += 1
        self.used_bytes += size + RECORD_OVERHEAD_BYTES
        if batch.size >= config.batch_size:
            batch.is_closed = news = True
        return queue if news else None

    def finished(self, batch: Batch) -> None:
        """Notes the end of a batch: its bytes are free."""
        self.used_bytes -= batch.memory
        left = self._unfinished[batch.number] - len(batch.tokens)
        if left:
            self._unfinished[batch.number] = left  # the other half of a batch that was split
        else:
            del self._unfinished[batch.number]

    def linger_ms(self, queue: PartitionQueue, *, is_crowded: bool) -> int:
        """How long the first batch of a queue waits for more records. `is_crowded`: callers wait for room in the buffer."""
        if is_crowded or (queue.fresh and queue.fresh[0].number <= self.flushed_number):
            return 0
        return self._config.linger_ms

    def flush(self) -> int:
        """Ends the lingering of all present batches. Returns the number for `is_flushed`."""
        self.flushed_number = self.last_number
        for queue in self.queues.values():
            if queue.fresh:
                queue.fresh[-1].is_closed = True
        return self.last_number

    def is_flushed(self, number: int) -> bool:
        """True if all batches up to `number` have ended."""
        oldest = next(iter(self._unfinished), None)
        return oldest is None or oldest > number
