"""One batch of a producer: records of one partition that are sent, and delivered or failed, together.

A batch is *fresh* until it is first sent. Then it gets a *stamp*: producer id, producer epoch and the sequence number of its
first record. A stamp stays as long as the batch may be in the log. Example:

    1. Batch A (10 records) gets the stamp (7, epoch 0, sequence 40). Its answer is lost: A may be in the log.
    2. A is sent again with the same stamp. The leader finds sequence 40 of producer 7, and answers the old offset.
"""

from clients.metadata.cluster import TopicPartition
from clients.producer.config import RECORD_OVERHEAD_BYTES
from metadata_log.format.batch import BATCH_RECORDS_MAX
from metadata_log.format.data_batch import NO_STAMP, ProducerStamp
from metadata_log.format.ids import Epoch


class Batch:
    """Records of one partition. The fields are for the partition's queue; nobody else changes them."""

    __slots__ = (
        "attempts",
        "created_ms",
        "deadline_ms",
        "in_flight",
        "is_closed",
        "is_told",
        "is_void",
        "key",
        "last_problem",
        "may_be_written",
        "memory",
        "number",
        "ordinal",
        "parts",
        "retry_ms",
        "sent_as_head",
        "size",
        "splits",
        "stamp",
        "timestamps",
        "tokens",
        "tried_epoch",
    )

    def __init__(self, number: int, key: TopicPartition, created_ms: int, deadline_ms: int) -> None:
        self.number = number
        self.key = key
        self.created_ms = created_ms
        self.deadline_ms = deadline_ms
        """The time at which the batch has failed, if it is not delivered yet."""
        self.parts: list[bytes] = []
        """The packed records."""
        self.tokens: list[object] = []
        """The caller's object for each record."""
        self.timestamps: list[int] = []
        self.size = 0
        self.memory = 0
        """How many bytes of the buffer the batch has."""
        self.stamp: ProducerStamp = NO_STAMP
        self.ordinal = 0
        """How many batches of the partition had a stamp before this one."""
        self.attempts = 0
        self.retry_ms = 0
        """The end of the pause after the last attempt."""
        self.tried_epoch: Epoch | None = None
        """The leader epoch of the last attempt; None: there was none, or it is not known."""
        self.in_flight = False
        self.sent_as_head = False
        """True if no earlier batch of the partition was under way at the last attempt."""
        self.may_be_written = False
        """True once an attempt under this stamp has ended without the broker's word that nothing was appended."""
        self.is_void = False
        """True if the batch can never be in the log under its stamp: it gets another stamp."""
        self.is_closed = False
        """True if the batch takes no more records."""
        self.is_told = False
        """True if the caller has been told the end of the batch."""
        self.splits = False
        """True if the batch is too large for the topic: it becomes two batches."""
        self.last_problem = ""

    def __repr__(self) -> str:
        """Draws the batch in one line."""
        flags = [
            name for name in ("in_flight", "may_be_written", "is_void", "is_told", "is_closed") if getattr(self, name)
        ]
        return (
            f"batch {self.number} of {self.key.topic}-{self.key.partition}: {len(self.parts)} records, {self.size} bytes, "
            f"stamp {tuple(self.stamp)}, attempts {self.attempts}, {' '.join(flags) or 'fresh'}"
        )

    def has_room(self, size: int, batch_size: int) -> bool:
        """True if a record of `size` bytes fits."""
        return not self.is_closed and self.size + size <= batch_size and len(self.parts) < BATCH_RECORDS_MAX

    def add(self, packed: bytes, timestamp_ms: int, token: object) -> None:
        """Adds a record. The first record may have any size."""
        self.parts.append(packed)
        self.timestamps.append(timestamp_ms)
        self.tokens.append(token)
        self.size += len(packed)
        self.memory += len(packed) + RECORD_OVERHEAD_BYTES

    def halves(self) -> "tuple[Batch, Batch]":
        """Returns two fresh batches with the records of this one, in order."""
        middle = len(self.parts) // 2
        first, second = (Batch(self.number, self.key, self.created_ms, self.deadline_ms) for _ in range(2))
        for half, part in ((first, slice(None, middle)), (second, slice(middle, None))):
            for packed, timestamp_ms, token in zip(
                self.parts[part], self.timestamps[part], self.tokens[part], strict=True
            ):
                half.add(packed, timestamp_ms, token)
            half.is_closed = True
            half.last_problem = self.last_problem
        return first, second
