"""The read-only side of a log: its shape, batches, chain, voter records, and damaged ranges.

    start      damage       flushed_end   end
      [--------)~~~~~~~[-------------|-----)
       readable refused   readable     written, not yet durable

*A log has two ends.* `end` is one past the last record that was written (into the page cache), and `flushed_end` one
past the last durable record. A log promises only the records below `flushed_end`. The high watermark belongs to Raft;
the log does not know it.

*A view changes nothing.* Code that must not change a log takes a `LogView`, and the type checker enforces that. A view
shows the current log; a `LogShape` taken from the view never changes. Example:
    1. a log holds the records 0..9, and those below 8 are durable; a reader takes `shape`;
    2. the log appends 10 and 11: `end` is 12 now, and the reader's shape still has the end 10;
    3. a scrub finds that the disk has lost the records 3..5: `damage` lists [3, 6) from now on, `read(3)` raises
       DamagedRangeRead, and `read(6)` works as before.

Views are not thread-safe: only the thread that owns the log may read.
"""

from collections.abc import Sequence

from metadata_log.disk.files import Directory
from metadata_log.format.batch import Batch
from metadata_log.format.ids import Offset, OffsetAndEpoch
from metadata_log.format.log_shape import LogShape, SegmentSpan
from metadata_log.format.records import SkippedBatch
from metadata_log.store.damage import DamagedRange
from metadata_log.store.log_history import QuorumRecord
from metadata_log.store.log_notes import Flushed, LogStart
from metadata_log.store.log_opening import Found
from metadata_log.store.segment import SEGMENT_HEADER_BYTES
from metadata_log.store.segments import Extent, Segments
from metadata_log.store.side_reader import Part, SideReader


class LogView:
    """The methods of `Log` that change nothing. `LogEnd` is the only subclass."""

    _flushed_end: Offset
    _flushed_chain: bytes
    _snapshot: OffsetAndEpoch | None
    _shape: LogShape | None
    """The cached shape; None after every change."""

    def __init__(self, directory: Directory, segments: Segments, found: Found) -> None:
        self._directory = directory
        self._segments = segments
        self._memory = found.memory
        self._lost = found.lost
        self._generation = 0
        """Grows with every truncation, reset and repair; a flush ticket of another generation is void."""
        self._count_all_as_durable()

    def _count_all_as_durable(self) -> None:
        """Count everything in the log as durable, and the log's start as the only known snapshot."""
        start = self._memory.start.start
        self._flushed_end, self._flushed_chain = self._memory.end, self._memory.chain
        self._snapshot = start if start.offset else None
        self._shape = None

    @property
    def shape(self) -> LogShape:
        """The log's current shape, an immutable value."""
        if self._shape is None:
            memory = self._memory
            self._shape = LogShape(
                start=memory.start.start,
                end=memory.end,
                flushed_end=self._flushed_end,
                epochs=memory.history.epochs,
                chain=memory.chain,
                flushed_chain=self._flushed_chain,
                snapshot=self._snapshot,
            )
        return self._shape

    @property
    def end(self) -> Offset:
        """One past the last record, flushed or not."""
        return self._memory.end

    @property
    def size_bytes(self) -> int:
        """The bytes of all segments, up to the end of their last batches."""
        return self._segments.size_bytes

    @property
    def last_timestamp_ms(self) -> int:
        """The time of the last batch, or of the last batch below the start; 0 if the log never had a batch."""
        return self._memory.history.last_timestamp_ms

    @property
    def damage(self) -> tuple[DamagedRange, ...]:
        """The ranges that this log has lost between its start and its end, oldest first. Nearly always empty."""
        return self._segments.ledger.ranges

    def is_damaged_at(self, offset: Offset) -> bool:
        """Return True if this log has lost the record at `offset`."""
        return self._segments.ledger.at(offset) is not None

    def is_within_damage(self, offset: Offset) -> bool:
        """Return True if this log does not know its chain at `offset`.

        (At the offset between two adjacent damaged ranges, a file header still has the chain.)
        """
        return self._segments.ledger.within(offset) is not None

    @property
    def lost(self) -> Flushed | None:
        """How far this log had been durable, if its durable end is lost; None after `forget_loss`."""
        return self._lost

    def chain_at(self, offset: Offset) -> bytes | None:
        """Return the chain at `offset`; None if `offset` is not a batch boundary of this log.

        Raises:
            DamagedRangeRead: damage has destroyed the chain at `offset`.
            CorruptLog: the search met damage that was not known yet; see `note_damage`.
        """
        memory = self._memory
        if not memory.start.start.offset <= offset <= memory.end:
            return None
        if offset == memory.start.start.offset:
            return memory.start.chain
        if offset >= memory.tail.start_offset:
            return memory.tail.chain_at(offset)
        return self._segments.chain_at(offset)

    def is_boundary(self, offset: Offset) -> bool:
        """Return True if the log starts, or a batch ends, at `offset`."""
        return self.chain_at(offset) is not None

    def base_of(self, offset: Offset) -> Offset:
        """Return the base offset of the batch that holds the record at `offset`, a record of this log.

        Raises:
            DamagedRangeRead: the record is damaged.
            CorruptLog: the search met damage that was not known yet; see `note_damage`.
        """
        memory = self._memory
        assert memory.start.start.offset <= offset < memory.end, f"{offset} is not in {self}"
        return memory.tail.base_of(offset) if offset >= memory.tail.start_offset else self._segments.base_of(offset)

    @property
    def start(self) -> LogStart:
        """The start of this log, with the epoch, the chain and the time below."""
        return self._memory.start

    def segments(self) -> tuple[SegmentSpan, ...]:
        """Return the segments of this log, oldest first. The last one is the active one."""
        return self._segments.spans(self.last_timestamp_ms)

    def control_records(self) -> Sequence[tuple[Offset, QuorumRecord]]:
        """Return the log's records about voters, each with its offset, oldest first."""
        return tuple(self._memory.history.quorum_records)

    def skipped(self) -> Sequence[tuple[Offset, SkippedBatch]]:
        """Return the log's records about skipped batches, each with its offset, oldest first. Nearly always empty."""
        return tuple(self._memory.history.skipped)

    def read(self, offset: Offset, max_bytes: int, until: Offset | None = None) -> tuple[Batch, ...]:
        """Read batches from `offset` on, which must be a boundary; return none if `offset` is the end.

        Returns at least one batch if any batch ends at or below `until`, then as many as fit into `max_bytes`.

        Raises:
            DamagedRangeRead: the first batch is damaged. If only a later batch is damaged, `read` returns the batches
                before the damage.
            CorruptLog: the disk no longer holds what was written, and the damage was not known yet; see `note_damage`.
        """
        memory = self._memory
        until = memory.end if until is None else min(until, memory.end)
        assert memory.start.start.offset <= offset <= memory.end, f"{offset} is not in {self}"
        tail = memory.tail
        if offset >= tail.start_offset:
            assert tail.chain_at(offset) is not None, f"{offset} is not a batch boundary"
            return tuple(tail.read(offset, max_bytes, until))
        return tuple(self._segments.read(offset, max_bytes, until))

    def is_in_memory(self, offset: Offset) -> bool:
        """Return True if `read` finds the batches from `offset` on without the disk."""
        return offset >= self._memory.tail.start_offset

    def reader_from(self, offset: Offset) -> SideReader:
        """Return a reader of everything from the boundary `offset` on, for another thread. The log must have no damage there."""
        files = [each for each in self._segments.files if each.end_offset > offset]
        entry = files[0].entry_below(offset) if files else None
        positions = [SEGMENT_HEADER_BYTES if entry is None else entry.position] + [SEGMENT_HEADER_BYTES] * len(files)
        parts = [Part(each.name, at, each.end_position) for each, at in zip(files, positions, strict=False)]
        return SideReader(self._directory, tuple(parts))

    def contradicts(self, snapshot: OffsetAndEpoch) -> bool:
        """Return True if nothing in this log is known to continue `snapshot`: the log ends before it, or has another
        epoch there.

        Inside a damaged range, the log compares with the epochs on both sides of the range.
        """
        offset, epoch = snapshot
        start = self._memory.start.start.offset
        if offset > self._memory.end:
            return True
        if not self.is_within_damage(offset):
            return offset >= start and self.shape.epoch_below(offset) != epoch
        damaged = self._segments.ledger.at(offset)
        assert damaged is not None
        before = self.shape.epoch_below(max(damaged.start, start))
        return before is None or not before <= epoch <= damaged.epoch_after

    @property
    def generation(self) -> int:
        """Grows whenever bytes of the log were deleted or moved."""
        return self._generation

    def extents(self) -> list[Extent]:
        """Return the parts of sealed segments that a scrub should read (`segments.check`)."""
        return self._segments.extents()

    def __str__(self) -> str:
        start, end = self._memory.start.start, self._memory.end
        return f"log [{start}, {end}) flushed {self._flushed_end} in {self._directory.path_text}"
