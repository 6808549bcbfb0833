"""The log of one replica of a partition: data batches on the disk of this broker.

    log start                      flushed end    end
        [---- segment ----|---- segment ----|------)
                                            ^ the replica reports this end to its leader

The log is a `metadata_log.store.log.Log` with batches of format version 2. All replicas of a partition have the same bytes at the
same offsets, below the point at which one of them was cut off. The leader makes batches of records, and followers append the
leader's batches unchanged. CRC and chain prove them. The first chain is a hash of topic id and partition number, so batches of
another partition never continue this log.

*A replica counts only what its own disk has* (`shape.flushed_end`). Example, if it reported `shape.end`:
  1. Leader 1 and follower 2 are in the ISR. Both append record 5, and neither has flushed.
  2. Follower 2 reports the end 6, so leader 1 acknowledges record 5.
  3. Both machines lose power. Record 5 is lost, although it was acknowledged.

*A failure stops this partition, and no other*, until the broker is started again: CorruptLog (also LostTail), OSError and
NotABoundary. The caller must not use the log any more, except `close`. FlushFailed says that the content of the disk is unknown.

*The price of a log.* An open log has two open files, `flushed` and the active segment, and at most one sealed segment. `rest`
closes all of them, and a broker with thousands of partitions calls it for the logs that are idle. An opening reads and checks
every byte of the segments; the states of producers come from the same pass, for about a microsecond more per batch.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, Self

from broker_agent.replica.partition_log_config import PartitionLogConfig
from broker_agent.replica.producers import PartitionRefused, ProducerCheckpoints, ProducerStates
from broker_agent.replica.retention import is_to_end, retained_start
from broker_agent.replica.time_search import TimeSearch
from metadata_log.disk.files import Directory
from metadata_log.disk.flush_ticket import FlushTicket
from metadata_log.format.batch import Batch, genesis_chain
from metadata_log.format.data_batch import (
    ProducerStamp,
    RecordSet,
    data_payload,
    stamp_of,
)
from metadata_log.format.errors import CorruptLog, ErrorCode
from metadata_log.format.ids import Epoch, Offset, OffsetAndEpoch, Uuid, uuid_text
from metadata_log.format.log_shape import LogShape
from metadata_log.store.damage import DamagedRangeRead
from metadata_log.store.log import Log
from metadata_log.store.log_notes import LogStart, Trim

_READ_BYTES: Final = 1 << 20


class Appended(NamedTuple):
    """Where a producer's records are in the log: [base_offset, end_offset)."""

    base_offset: Offset
    end_offset: Offset
    is_duplicate: bool
    """True if the records had been appended before, and nothing was appended now."""


def partition_genesis(topic_id: Uuid, partition: int) -> bytes:
    """Return the chain before the first batch of a partition."""
    return genesis_chain(f"{uuid_text(topic_id)}/{partition}", b"")


class PartitionLog:
    """The log of one replica. One thread owns it; only `FlushTicket.sync` may run on another thread."""

    def __init__(self, log: Log, config: PartitionLogConfig, producers: ProducerCheckpoints) -> None:
        """Use `open`."""
        self._log = log
        self._config = config
        self._producers = producers

    @classmethod
    def open(
        cls,
        directory: Directory,
        topic_id: Uuid,
        partition: int,
        *,
        wall_ms: int,
        config: PartitionLogConfig = PartitionLogConfig(),  # noqa: B008 - immutable
    ) -> Self:
        """Recover the log in `directory`, or create an empty one. Everything that remains is durable.

        Recovery cuts a torn tail: batches that were never flushed, so no other broker has counted on them.

        Raises:
            LostTail: the durable end is lost. This replica must not count as one that has its records.
            CorruptLog: damage inside the log, or the log of another partition.
            OSError, FlushFailed: the disk failed.
        """
        genesis = partition_genesis(topic_id, partition)
        producers = ProducerCheckpoints()

        def observe(batch: Batch) -> None:
            producers.note(batch, stamp_of(batch), wall_ms)

        log = Log.open(directory, chain=genesis, config=config.log, observe=observe)
        start = log.start
        try:
            if log.damage:
                raise DamagedRangeRead.of(directory.path_text, log.damage[0])
            if start.start.offset == 0 and start.chain != genesis:
                text = f"this is not the log of partition {partition} of topic {uuid_text(topic_id)}"
                raise CorruptLog.at(directory.path_text, 0, 0, text)
        except CorruptLog:
            log.close()
            raise
        if log.end == start.start.offset:
            producers.begin_at(log.end)
        return cls(log, config, producers)

    # --- what the log has --------------------------------------------------------------------------------------------

    @property
    def shape(self) -> LogShape:
        """Start, end, flushed end and leader epochs, as an immutable value."""
        return self._log.shape

    @property
    def start(self) -> LogStart:
        """The log's start, with epoch, chain and time below: a follower without these records begins here."""
        return self._log.start

    @property
    def size_bytes(self) -> int:
        return self._log.size_bytes

    @property
    def producers(self) -> ProducerStates:
        """What this log says about producers. For reading only."""
        return self._producers.states

    def end_of_epoch(self, epoch: Epoch) -> OffsetAndEpoch:
        """Return the largest leader epoch that is at most `epoch`, and its end (KIP-101, KIP-279)."""
        return self._log.shape.end_of_epoch(epoch)

    # --- appending ---------------------------------------------------------------------------------------------------

    def append(self, records: RecordSet, stamp: ProducerStamp, epoch: Epoch, wall_ms: int) -> Appended:
        """Append a producer's records as one batch, as the leader of `epoch`.

        If the records are there already, nothing is appended. The answer to the producer then waits, as the first answer did,
        until the old `end_offset` is committed.

        Raises:
            PartitionRefused: OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TIMESTAMP or RECORD_BATCH_TOO_LARGE;
                nothing was appended.
            OSError: the disk is full or broken; nothing was appended.
        """
        self._check_limits(records, wall_ms)
        states = self._producers.states
        known = states.check(stamp, records.record_count)
        if known is not None:
            return Appended(known.base_offset, known.end_offset, is_duplicate=True)
        times = (records.first_timestamp_ms, records.last_timestamp_ms)
        batch = self._log.append_data(data_payload(records, stamp), records.record_count, epoch, times)
        self._producers.note(batch, stamp, wall_ms)
        return Appended(batch.base_offset, batch.end_offset, is_duplicate=False)

    def _check_limits(self, records: RecordSet, wall_ms: int) -> None:
        size, limit = len(records.packed), self._config.max_message_bytes
        if size > limit:
            text = f"records of {size} bytes; a batch of this topic has at most {limit}; nothing was appended"
            raise PartitionRefused(ErrorCode.RECORD_BATCH_TOO_LARGE, text)
        ahead_ms = records.last_timestamp_ms - wall_ms
        if ahead_ms > self._config.timestamp_after_max_ms:
            text = f"a timestamp is {ahead_ms} ms ahead of the leader's clock; nothing was appended. Check the producer's clock"
            raise PartitionRefused(ErrorCode.INVALID_TIMESTAMP, text)

    def append_fetched(self, batches: Sequence[Batch], wall_ms: int) -> None:
        """Append batches as they came from the leader, as a follower.

        Raises:
            LogFormatError: the batches do not continue this log, or are not data batches; nothing was appended.
            OSError: the disk is full or broken; `shape` tells how many of the first batches were appended.
        """
        stamps = [stamp_of(batch) for batch in batches]
        before = self._log.end
        try:
            self._log.append_batches(batches)
        finally:
            for batch, stamp in zip(batches, stamps, strict=True):
                if before <= batch.base_offset and batch.end_offset <= self._log.end:
                    self._producers.note(batch, stamp, wall_ms)

    # --- flushing ----------------------------------------------------------------------------------------------------

    def begin_flush(self) -> FlushTicket:
        """Make a ticket for flushing everything that the log holds now. `FlushTicket.sync` may run on any thread."""
        return self._log.begin_flush()

    def complete_flush(self, ticket: FlushTicket) -> bool:
        """Move `shape.flushed_end` to the ticket's end, after `ticket.sync()`. Returns False if a truncation came between: the
        ticket is void.
        """
        return self._log.complete_flush(ticket)

    def flush(self) -> None:
        """Flush everything, and wait for the disk.

        Raises:
            FlushFailed: the content of the disk is unknown.
        """
        self._log.flush()

    # --- reading -----------------------------------------------------------------------------------------------------

    def read(self, offset: Offset, max_bytes: int, until: Offset) -> tuple[Batch, ...]:
        """Read whole batches from the one that holds `offset` on, at least one if any batch ends at or below `until`.

        A consumer reads until the high watermark, and skips the records of the first batch that are below its offset.

        Raises:
            PartitionRefused: OFFSET_OUT_OF_RANGE; the text names the log's start and end.
            CorruptLog: the disk no longer holds what was written.
        """
        start, end = self._log.start.start.offset, self._log.end
        if not start <= offset <= end:
            text = f"offset {offset} is not in the log, which has the offsets {start} to {end}"
            raise PartitionRefused(ErrorCode.OFFSET_OUT_OF_RANGE, text)
        until = min(until, end)
        if offset >= until:
            return ()
        return self._log.read(self._log.base_of(offset), max_bytes, until)

    def search_time(self, timestamp_ms: int, until: Offset) -> TimeSearch:
        """Return the search for the first record below `until` whose timestamp is at least `timestamp_ms`. Its `run` reads one
        segment at most, unless the largest timestamps are those of records that were deleted. The log must not be truncated
        meanwhile.
        """
        spans, start = self._log.segments(), self._log.start.start.offset
        first = next((each for each in spans if each.last_timestamp_ms >= timestamp_ms), None)
        place = start if first is None else max(first.base_offset, start)
        reader = None if first is None else self._log.reader_from(place)
        return TimeSearch(reader, timestamp_ms, place, until)

    # --- cutting -----------------------------------------------------------------------------------------------------

    def truncate(self, end: Offset, wall_ms: int) -> None:
        """Cut the log back to `end`, durably, as a follower. All outstanding flush tickets become void.

        The states of producers go back with the log: at most `CHECKPOINT_BYTES` are read again for that, or the whole log if
        the cut is longer than the checkpoints reach.

        Raises:
            PartitionRefused: OFFSET_OUT_OF_RANGE: the log starts above `end`, so nothing of it may stay; nothing was cut. Begin
                at the leader's log start (`begin_at`).
            NotABoundary: `end` lies inside a batch; nothing was cut.
        """
        start = self._log.start.start.offset
        if end < start:
            text = f"a truncation to {end} of a log that starts at {start}; nothing was cut. Begin at the leader's log start"
            raise PartitionRefused(ErrorCode.OFFSET_OUT_OF_RANGE, text)
        if end >= self._log.end:
            return
        self._log.truncate(end)
        place = self._producers.restore(end, start)
        while batches := self._log.read(place, _READ_BYTES):
            for batch in batches:
                self._producers.note(batch, stamp_of(batch), wall_ms)
            place = batches[-1].end_offset

    def begin_at(self, start: OffsetAndEpoch, chain: bytes, timestamp_ms: int = 0) -> None:
        """Delete everything, and begin at `start`, the start of the leader's log, with the chain there.

        `timestamp_ms` is the largest timestamp below. Without it, the first batch of the leader brings it. All outstanding flush
        tickets become void.
        """
        self._log.reset_to(start, chain, timestamp_ms)
        self._producers.begin_at(start.offset)

    def begin_trim(self, offset: Offset) -> Trim | None:
        """Move the log's start up to the batch that holds `offset`. `Trim.run`, on any thread, makes that durable, and deletes
        the segments wholly below: until then, trim and reset no more. None: the log starts there already.

        Batches are deleted as a whole, so a few records below `offset` may stay. A follower calls this with the start of the
        leader's log; records that the follower does not have yet are not deleted.
        """
        now = self._log.start.start.offset
        end = self._log.end
        place = now if offset <= now else end if offset >= end else self._log.base_of(offset)
        if place <= now:
            return None
        if place > self._log.shape.flushed_end:
            self._log.flush()
        epoch = self._log.shape.epoch_below(place)
        assert epoch is not None, place
        return self._log.begin_trim(OffsetAndEpoch(place, epoch))

    def delete_below(self, offset: Offset) -> Offset:
        """Do `begin_trim`, and wait for the disk. Return the log's start."""
        return self._trimmed(self.begin_trim(offset))

    def _trimmed(self, trim: Trim | None) -> Offset:
        if trim is not None:
            trim.run()
        return self._log.start.start.offset

    def begin_retention(self, high_watermark: Offset, wall_ms: int) -> Trim | None:
        """Forget the segments that are too old or too many, and silent producers. Return the disk's part, as `begin_trim` does.

        Every replica does that by itself. Waits for the disk only if the active segment is to end; call it every few minutes.
        """
        config = self._config
        self._producers.states.expire(wall_ms, config.producer_id_expiration_ms)
        spans = self._log.segments()
        active = spans[-1]
        if active.end_offset > active.base_offset:
            place = max(active.base_offset, self._log.start.start.offset)
            first = self._log.read(place, 1)
            if first and is_to_end(first[0].first_timestamp_ms, wall_ms, config.retention):
                self._log.roll()
                spans = self._log.segments()
        start = retained_start(spans, high_watermark, wall_ms, config.retention)
        if start == self._log.end > spans[-1].base_offset:
            self._log.roll()
        return self.begin_trim(start)

    def apply_retention(self, high_watermark: Offset, wall_ms: int) -> Offset:
        """Do `begin_retention`, and wait for the disk. Return the log's start."""
        return self._trimmed(self.begin_retention(high_watermark, wall_ms))

    # --- the rest ----------------------------------------------------------------------------------------------------

    def configure(self, config: PartitionLogConfig) -> None:
        """Take the topic's changed configuration."""
        self._config = config
        self._log.configure(config.log)

    def rest(self) -> bool:
        """Close all files until they are needed again. Returns False if something is not durable: nothing was closed."""
        return self._log.rest()

    def check_in_place(self) -> None:
        """Raise Removed if the directory, or a file in it, was deleted or replaced while the process runs."""
        self._log.check_in_place()

    def close(self) -> None:
        """Close all files. Unflushed bytes stay in the operating system's page cache."""
        self._log.close()

    def __str__(self) -> str:
        return str(self._log)
