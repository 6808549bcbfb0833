"""A log as its readers see it: its shape, its batches and chain, and the records that it has lost.

    start      damage       flushed_end   end
      [--------)~~~~~~~[-------------|-----)
       readable refused   readable     written, not yet durable

*Three ends of one log.* `end` is one past the last record that was written (into the page cache), `flushed_end` one past the
last durable one; the high watermark is no business of the log's. A log promises only the records below `flushed_end`.

*A view changes nothing.* Code that must not change a log takes a `LogView`, and the type checker holds that code to it. The view
follows its log all the same; a `LogShape` that was taken from it stays as it was:
    1. a log holds the records 0..9, and those below 8 are durable; a reader takes `shape`;
    2. the log appends 10 and 11: `end` is 12 now, and the shape that the reader took still says 10;
    3. a scrub finds that the disk has lost the records 3..5, and the log takes note of it: `damage` names [3, 6) from now on,
       `read(3)` raises DamagedRangeRead, and `read(6)` answers as before.

Not safe for several threads: a view is read by the thread that owns its log.
"""

from collections.abc import Sequence

from metadata_log.disk.files import Directory
from metadata_log.format.batch import Batch
from metadata_log.format.ids import Offset, OffsetAndEpoch
from metadata_log.format.log_shape import LogShape
from metadata_log.store.damage import DamagedRange
from metadata_log.store.log_history import QuorumRecord
from metadata_log.store.log_notes import Flushed
from metadata_log.store.log_opening import Found
from metadata_log.store.segment_repair import read_again
from metadata_log.store.segments import Extent, Segments


class LogView:
    """See the file's head. Every `Log` is one, and there are no others."""

    _flushed_end: Offset
    _flushed_chain: bytes
    _snapshot: OffsetAndEpoch | None
    _shape: LogShape | None
    """Made when asked for; None after every change."""

    def __init__(self, directory: Directory, segments: Segments, found: Found) -> None:
        self._directory = directory
        self._segments = segments
        self._memory = found.memory
        self._lost = found.lost
        self._generation = 0
        """Grows with every truncation and reset; a ticket of another generation is void."""
        self._stand_at_end()

    def _stand_at_end(self) -> None:
        """All that the log holds is durable, and no snapshot is known but the one that it starts at."""
        start = self._memory.start.start
        self._flushed_end, self._flushed_chain = self._memory.end, self._memory.chain
        self._snapshot = start if start.offset else None
        self._shape = None

    @property
    def shape(self) -> LogShape:
        """The log's shape as of now; a value, so it can be kept."""
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
        """The time of the last batch, or of the last one below the start; 0 where there never was one."""
        return self._memory.history.last_timestamp_ms

    @property
    def damage(self) -> tuple[DamagedRange, ...]:
        """What this log has lost between its start and its end, oldest first; nearly always nothing."""
        if not self._segments.ranges:
            return ()
        start = self._memory.start.start.offset
        return tuple(each for each in self._segments.ranges if each.end > start and each.end > each.start)

    def is_damaged_at(self, offset: Offset) -> bool:
        """Whether the record at `offset` is among those that this log has lost."""
        return self._segments.damaged_at(offset) is not None

    def is_within_damage(self, offset: Offset) -> bool:
        """Whether this log cannot say what its chain is at `offset`. (Where two damaged ranges meet, a file's header says it.)"""
        damaged = self._segments.damaged_at(offset)
        return damaged is not None and damaged.start < offset

    @property
    def lost(self) -> Flushed | None:
        """How far this log had been durable, if it was opened without the end of that. Not yet forgotten, see `forget_loss`."""
        return self._lost

    def chain_at(self, offset: Offset) -> bytes | None:
        """The chain at `offset`; None if that is no batch boundary of this log.

        Raises:
            DamagedRangeRead: that is not known any more.
            CorruptLog: the search came upon damage that nobody knew of.
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
        """Whether a batch of this log ends, or the log starts, at `offset`."""
        return self.chain_at(offset) is not None

    def control_records(self) -> Sequence[tuple[Offset, QuorumRecord]]:
        """The records of this log that say who votes, each with its offset, oldest first."""
        return tuple(self._memory.history.quorum_records)

    def read(self, offset: Offset, max_bytes: int, until: Offset | None = None) -> tuple[Batch, ...]:
        """Batches from the one that begins at `offset`, which must be a boundary; none where `offset` is the end.

        At least one batch if there is one that ends at or below `until`, then as many as `max_bytes` has room for.

        Raises:
            DamagedRangeRead: the first of them is damaged. Intact ones before that are given.
            CorruptLog: the disk no longer holds what was written, and nobody knew; see `note_damage`.
        """
        memory = self._memory
        until = memory.end if until is None else min(until, memory.end)
        assert memory.start.start.offset <= offset <= memory.end, f"{offset} is not in {self}"
        tail = memory.tail
        if offset >= tail.start_offset:
            assert tail.chain_at(offset) is not None, f"{offset} is not a batch boundary"
            return tuple(tail.read(offset, max_bytes, until))
        return tuple(self._segments.read(offset, max_bytes, until))

    def read_again(self, damaged: DamagedRange) -> list[Batch]:
        """What `damaged` (one of `damage`) has lost, if disk and memory together give all of it now; else nothing."""
        ranges, tail = self._segments.ranges, self._memory.tail
        batches = read_again(self._directory, damaged, ranges) if damaged.start < tail.start_offset else []
        end = batches[-1].end_offset if batches else damaged.start
        if tail.start_offset <= end < damaged.end:
            batches += tail.between(end, damaged.end)
        is_all = bool(batches) and (batches[-1].end_offset, batches[-1].chain) == (damaged.end, damaged.chain_after)
        return batches if is_all else []

    def contradicts(self, snapshot: OffsetAndEpoch) -> bool:
        """Whether nothing of this log is known to continue `snapshot`: it ends before it, or has another epoch there.

        Within damage only the epochs on both sides of it can tell.
        """
        offset, epoch = snapshot
        start = self._memory.start.start.offset
        if offset > self._memory.end:
            return True
        if not self.is_within_damage(offset):
            return offset >= start and self.shape.epoch_below(offset) != epoch
        damaged = self._segments.damaged_at(offset)
        assert damaged is not None
        before = self.shape.epoch_below(max(damaged.start, start))
        return before is None or not before <= epoch <= damaged.epoch_after

    @property
    def generation(self) -> int:
        """Grows whenever bytes that were in the log are not there any more, or stand elsewhere."""
        return self._generation

    def extents(self) -> list[Extent]:
        """What a scrub should look at: all that stands in sealed segments (`segments.check`)."""
        return self._segments.extents()

    def __str__(self) -> str:
        start, end = self._memory.start.start, self._memory.end
        return f"log [{start}, {end}) flushed {self._flushed_end} in {self._directory.path_text}"
