"""The end of a log: append batches, flush them, and end a segment.

                              end          append, append_batches, append_data
                               |
    [ sealed | sealed | active )
                    ^ flushed_end          begin_flush, FlushTicket.sync, complete_flush

Example of one flush:
  1. node 1 appends the records 50..59; `end` is 60, `flushed_end` is 50;
  2. `begin_flush` makes a ticket for 60; a worker runs `sync`; node 1 appends 60..64 meanwhile;
  3. `complete_flush` moves `flushed_end` to 60. The records 60..64 wait for the next flush.
"""

from collections.abc import Callable, Sequence

from metadata_log.disk.files import Directory
from metadata_log.disk.flush_ticket import FlushTicket
from metadata_log.format.batch import Batch
from metadata_log.format.ids import Epoch
from metadata_log.format.records import Record
from metadata_log.store.log_config import LogConfig
from metadata_log.store.log_notes import FlushedNote
from metadata_log.store.log_opening import Found
from metadata_log.store.log_view import LogView
from metadata_log.store.segments import Segments


class LogEnd(LogView):
    """The methods of `Log` that append and flush. `Log` is the only subclass."""

    def __init__(
        self, directory: Directory, config: LogConfig, note: FlushedNote, segments: Segments, found: Found
    ) -> None:
        super().__init__(directory, segments, found)
        self._config = config
        self._note = note
        self.on_damage: Callable[[str], None] = lambda _: None
        """Called with a text whenever the log notes new damage, even if the log repairs that damage at once."""

    # --- appending -------------------------------------------------------------------------------------------------

    def append(self, records: Sequence[Record], epoch: Epoch, wall_ms: int) -> Batch:
        """Append `records` as one batch, as the leader of `epoch`.

        Raises:
            BatchTooLarge: `records` do not fit one batch; nothing was appended.
            OSError: the disk is full or broken; nothing was appended.
        """
        batch = self.seal(records, epoch, wall_ms)
        self._write((batch,))
        return batch

    def append_data(self, payload: bytes, record_count: int, epoch: Epoch, timestamps_ms: tuple[int, int]) -> Batch:
        """Append `payload` as one batch of format version 2, as the leader of a partition in `epoch`. The log does not
        interpret `payload`.

        Raises:
            BatchTooLarge: `payload` does not fit one batch; nothing was appended.
            OSError: the disk is full or broken; nothing was appended.
        """
        batch = self._memory.seal_data(payload, record_count, epoch, timestamps_ms)
        self._write((batch,))
        return batch

    def seal(self, records: Sequence[Record], epoch: Epoch, wall_ms: int) -> Batch:
        """Make the batch with which `records` would continue this log. Append nothing.

        The records are all control records, or all data records. The batch's time is `wall_ms`, or the time of the
        previous batch if the clock was set back.

        Raises:
            BatchTooLarge: `records` do not fit one batch.
        """
        return self._memory.seal(records, epoch, wall_ms)

    def append_unwritten(self, batch: Batch) -> None:
        """Append a batch that `seal` made, and reserve its room in the file. Nothing may have been appended since `seal`.

        The batch reaches the file with the next `write_out`, append, flush or read of the file, together with all batches
        that were appended since the last write. If the process dies before, the batch is lost.

        Raises:
            OSError: the disk is full or broken; `batch` was not appended.
        """
        assert batch.base_offset == self._memory.end, f"a batch for offset {batch.base_offset} in {self}"
        self._shape = None
        self._segments.append_unwritten(batch, self._memory, self._config.segment_bytes)

    def write_out(self) -> None:
        """Write the batches of `append_unwritten` to the file, with one write.

        Raises:
            OSError: the disk is broken, or full although the room was reserved. The batches are still unwritten, and the
                next call tries again.
        """
        self._segments.active.write_out()

    def append_batches(self, batches: Sequence[Batch]) -> None:
        """Append batches as they came from the leader, as a follower or broker. The batches must continue this log.

        Raises:
            LogFormatError: the batches do not continue this log; nothing was appended.
            OSError: the disk is full or broken; `shape` tells how many of the first batches were appended.
        """
        self._memory.check_continued_by(batches)
        if batches:
            self._write(batches)

    def _write(self, batches: Sequence[Batch]) -> None:
        self._shape = None
        self._segments.write(batches, self._memory, self._config.segment_bytes)

    # --- flushing --------------------------------------------------------------------------------------------------

    def begin_flush(self) -> FlushTicket:
        """Make a ticket for flushing everything that the log holds now."""
        memory = self._memory
        file = self._segments.active.file if self._flushed_end < memory.end else None
        return FlushTicket(self._generation, memory.end, memory.chain, file)

    def complete_flush(self, ticket: FlushTicket) -> bool:
        """Move `flushed_end` to the ticket's end. Called after `ticket.sync()` has returned.

        Returns False if the ticket is void: the log has been truncated, reset or repaired since `begin_flush`.
        """
        if ticket.generation != self._generation:
            return False
        if ticket.end > self._flushed_end:
            self._flushed_end, self._flushed_chain = ticket.end, ticket.chain
            self._note.write(ticket.end, ticket.chain)
            self._shape = None
        return True

    def flush(self) -> None:
        """Flush everything that the log holds, and wait for the disk.

        Raises:
            FlushFailed: stop the process.
        """
        ticket = self.begin_flush()
        ticket.sync()
        self.complete_flush(ticket)

    def roll(self) -> None:
        """Flush everything, and begin a new segment, unless the active segment has no batch.

        Raises:
            OSError: the disk has no room for a new segment; the log is unchanged.
            FlushFailed: stop the process.
        """
        self.flush()
        if self._segments.active.base_offset < self._memory.end:
            self._segments.create_next(self._memory)

    def configure(self, config: LogConfig) -> None:
        """Take other sizes; a smaller segment size counts from the next append on."""
        assert config.format_version == self._config.format_version
        self._config = config

    def rest(self) -> bool:
        """Close all files of the log, and forget the batches in memory, if everything is durable. The next use opens the files
        again. Returns False if something is not durable: nothing was closed.

        A log with unflushed batches stays as it is. (Example: a worker runs `FlushTicket.sync` for the end 60. If the
        owner closed the file before the fsync, `sync` would do nothing, and `complete_flush` would count 60 as durable.)
        """
        memory = self._memory
        if self._flushed_end < memory.end:
            return False
        self._segments.close()
        self._note.close()
        memory.tail.clear(memory.end, memory.chain)
        return True
