"""The errors of a consumer. Each names the partition, and says how to go on.

    ConsumerError           the consumer cannot go on with a partition by itself
      NoPosition            no stored position, and auto_offset_reset is none: seek
      OffsetOutOfRange      the position has left the log, and auto_offset_reset is none: seek
      LogTruncated          records that this consumer has read were lost in an unclean election: seek
      CorruptRecords        a broker's answer is damaged: poll again, or seek past it
      PartitionMissing      the cluster has no such partition: create it, or assign others
    PositionsUnusable       the store of positions cannot be read or written

Other partitions go on: a program that catches the error may seek, pause or assign, and poll again.
"""

from clients.metadata.cluster import TopicPartition
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Offset


def named(partition: TopicPartition) -> str:
    """Return the partition as people write it, for example orders-0."""
    return f"{partition.topic}-{partition.partition}"


class ConsumerError(Exception):
    """A partition that the consumer cannot read on. `code`: Kafka's code of the error."""

    def __init__(self, code: ErrorCode, partition: TopicPartition, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.partition = partition
        self.message = message


class NoPosition(ConsumerError):
    """The partition has no position, and no policy says where to begin."""

    def __init__(self, partition: TopicPartition, why: str = "no position is stored") -> None:
        text = f"{named(partition)}: {why}, and auto_offset_reset is none. Nothing was read: seek to a position"
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, partition, text)


class OffsetOutOfRange(ConsumerError):
    """The position is outside of the leader's log, and no policy says where to go on."""

    def __init__(self, partition: TopicPartition, offset: Offset, log_start: Offset) -> None:
        fact = f"{named(partition)}: offset {offset} is not in the log, which begins at {log_start}"
        text = f"{fact}, and auto_offset_reset is none. Nothing was skipped: seek to a position"
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, partition, text)
        self.fact = fact
        """The message without the advice: for a consumer that goes on by its policy."""
        self.offset = offset
        self.log_start = log_start


class LogTruncated(ConsumerError):
    """Records below the position were lost (KIP-320). `divergent_offset`: the log agrees with what was read below; None: the
    leader could not say."""

    def __init__(self, partition: TopicPartition, offset: Offset, divergent_offset: Offset | None) -> None:
        where = "an offset that the leader does not know" if divergent_offset is None else f"offset {divergent_offset}"
        fact = (
            f"{named(partition)}: the log was cut at {where}, below the position {offset}: records that this consumer has read "
            "were lost in an unclean election"
        )
        super().__init__(ErrorCode.DIVERGING_EPOCH, partition, f"{fact}. Nothing was skipped: seek to a position")
        self.fact = fact
        """The message without the advice: for a consumer that goes on by its policy."""
        self.offset = offset
        self.divergent_offset = divergent_offset


class CorruptRecords(ConsumerError):
    """A leader's answer has damaged batches, or batches that do not continue the position."""

    def __init__(self, partition: TopicPartition, offset: Offset, why: str) -> None:
        text = (
            f"{named(partition)}: the records at offset {offset} came damaged: {why}. None was used: poll again, or seek past "
            "them"
        )
        super().__init__(ErrorCode.STORAGE_ERROR, partition, text)
        self.offset = offset


class PartitionMissing(ConsumerError):
    """The metadata has not had the partition for `max_block_ms`, or the topic may not be read."""


class PositionsUnusable(Exception):
    """The store of positions cannot be read or written. The message names the file and the reason."""
