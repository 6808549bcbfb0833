"""The errors of a send. Each says whether the record may have been written.

SendError                  base: `code`, `message`, `topic`, `partition`, `may_have_been_written`
  NotWritten               the record is surely not in the log, and never will be
    RecordTooLarge         refused before it was queued
    BufferExhausted        refused before it was queued: no room within `max_block_ms`
    TopicNotKnown          refused before it was queued: no metadata, no such partition, no right
    ProducerClosed         refused before it was queued, or not sent any more
  MayHaveBeenWritten       the record may be in the log, or may still come into it; look before you send it again

Example: the leader of orders-0 dies, and no other broker can lead. After `delivery_timeout_ms` a record that was on its way fails
with MayHaveBeenWritten, and a record that was queued behind it with NotWritten.
"""

from metadata_log.format.errors import ErrorCode


class SendError(Exception):
    """A record was not delivered. `partition` None: no partition was chosen yet."""

    may_have_been_written = False

    def __init__(self, code: ErrorCode, message: str, topic: str, partition: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.topic = topic
        self.partition = partition


class NotWritten(SendError):
    """The record is not in the log, and never will be."""


class RecordTooLarge(NotWritten):
    """The record is larger than `max_request_size`, a batch or `buffer_memory` allow. Nothing was queued."""


class BufferExhausted(NotWritten):
    """The buffer had no room within `max_block_ms`. Nothing was queued."""


class TopicNotKnown(NotWritten):
    """The topic or partition is not in the metadata, or the client may not see it. Nothing was queued."""


class ProducerClosed(NotWritten):
    """The producer was closed before the record was sent."""


class MayHaveBeenWritten(SendError):
    """The record may be in the log, or may still come into it."""

    may_have_been_written = True
