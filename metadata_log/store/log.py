"""The `@metadata` log of one node: append, flush, truncate, read, repair, and start again from a snapshot.

    drop_prefix / reset_to                    append / append_batches
            |                                        |
            v                                        v
    start --[ sealed segment | sealed | active segment )-- end
                                          ^ flushed_end

This file has the operations that cut and repair a log; its base classes have those that append (`LogEnd`) and read (`LogView`).
One thread owns a log. Only the fsync of a flush may run on another thread (`flush_ticket`).

*The log seals a segment, with an fsync, before it creates the next segment.* So only the active segment has anything to
flush, and only the last file of a log can have a torn tail.

*Damage inside a log does not end the log.* Example:
  1. the log of node 1 holds the records 0..99, all durable; the disk loses the bytes of the records 40..49;
  2. a scrub reads that file, and `note_damage` records the damaged range [40, 50);
  3. node 1 goes on appending at 100 and serving 0..39 and 50..99; a read at 45 raises DamagedRangeRead;
  4. node 1 fetches 40..49 from node 2, `repair` checks them against the chain and puts them back.
A lost *tail* is another case: no intact record follows the damage. `recovery` tells the two cases apart.
"""

import errno
from collections.abc import Sequence
from typing import Final, NoReturn

from metadata_log.disk.files import Directory
from metadata_log.format.batch import Batch, genesis_chain
from metadata_log.format.errors import CorruptLog, NotABoundary
from metadata_log.format.ids import Offset, OffsetAndEpoch
from metadata_log.store.damage import DamagedRange, DamagedRangeRead, LostTail
from metadata_log.store.log_config import LogConfig
from metadata_log.store.log_end import LogEnd
from metadata_log.store.log_notes import Flushed, FlushedNote, LogStart, Trim, remove_lost, write_lost, write_start
from metadata_log.store.log_opening import MayLose, Observer, find, start_anew
from metadata_log.store.segment_repair import check_filling
from metadata_log.store.segments import LogPlace, Segments

LOG_BEGINNING: Final = OffsetAndEpoch(0, 0)


class Log(LogEnd):
    """The log of one node. `Log.open` makes it."""

    @classmethod
    def open(
        cls,
        directory: Directory,
        *,
        start: OffsetAndEpoch = LOG_BEGINNING,
        chain: bytes | None = None,
        timestamp_ms: int = 0,
        config: LogConfig = LogConfig(),  # noqa: B008 - immutable
        accept_loss: bool | MayLose = False,
        snapshot: Flushed | None = None,
        observe: Observer = lambda _: None,
    ) -> "Log":
        """Recover the log in `directory`, or create one that starts at `start` if the directory has none.

        `chain` and `timestamp_ms` are the chain and the time at `start`: the genesis chain for a new cluster, or the
        values of the snapshot from which a node begins. The three arguments are ignored if the directory has a log.

        `recovery` describes how damage is treated. Everything that recovery keeps is written again and fsynced before
        it counts as flushed, because a killed process may have left bytes in the page cache only.

        `accept_loss` permits opening a log whose durable end is lost. The log then ends where it is intact. `lost`
        tells how far the log had been durable, at every opening until `forget_loss`. The bytes that were cut are kept
        in `*.damaged` files.

        `snapshot` is the end of the newest whole snapshot beside the log, with the chain there. Records that continue
        the snapshot are never treated as a torn tail, even if the note `flushed` is older than the snapshot.

        `observe` is called with each intact batch of the directory in order, also with those below the log's start.

        Raises:
            LostTail: the end of the durable part is lost, and `accept_loss` does not permit that.
            CorruptLog: the files do not hold what was written.
            OSError, FlushFailed: the disk failed.
        """
        note = FlushedNote(directory)
        segments = Segments(directory, archive=config.archive, open_files_max=config.open_files_max)
        try:
            found = find(
                directory,
                segments,
                note,
                at=LogStart(start, chain or genesis_chain("", b""), timestamp_ms),
                config=config,
                may_lose=accept_loss if callable(accept_loss) else lambda _: bool(accept_loss),
                snapshot=snapshot,
                observe=observe,
            )
        except BaseException:
            segments.close()
            note.close()
            raise
        return cls(directory, config, note, segments, found)

    # --- cutting ---------------------------------------------------------------------------------------------------

    def truncate(self, end: Offset) -> None:
        """Cut the log back to `end`, a batch boundary, durably. All outstanding flush tickets become void.

        Raises:
            NotABoundary: `end` lies inside a batch; nothing was cut.
            LostTail: `end` lies inside damage, and a part of a damaged range cannot be kept. The log now ends before
                the damage, and `lost` says what had been durable. The process must not go on as if it still had those
                records.
        """
        start = self._memory.start
        if end == start.start.offset and self.is_damaged_at(end):
            self._generation += 1
            self._start_anew(start)  # no file has a beginning that could be kept
            return
        if self.is_within_damage(end):
            self._cut_before_damage(end)
        found = self._ending_at(end)
        self._generation += 1
        if end == self._memory.end:
            return
        position, chain, timestamp_ms = found
        if end < self._flushed_end:
            # Lower the note before the bytes are cut. A power cut after the cut must not find a note that says they are
            # still there. This process promises no more from here on, even if the flush fails: the disk may have the new note.
            self._flushed_end, self._flushed_chain = end, chain
            self._shape = None
            self._note.write(end, chain)
            self._note.flush()
        self._segments.cut(end, position)
        self._memory.cut(end, chain, timestamp_ms)
        self._shape = None

    def _ending_at(self, end: Offset) -> tuple[int, bytes, int]:
        """Find the boundary `end`, as `Segments.ending_at` does.

        Raises:
            NotABoundary: `end` lies inside a batch.
            OSError: the search met new damage. An open log knows damage only from index entry to index entry, a start
                from batch to batch. So the process ends, and the next start judges the damage.
        """
        try:
            found = self._segments.ending_at(end)
        except CorruptLog as e:
            self.note_damage(e)
            text = f"{e}; a truncation to {end} met this damage. Nothing was cut; the next start judges the damage"
            raise OSError(errno.EIO, text) from e
        if found is None:
            raise NotABoundary(f"{end} is not a batch boundary of {self}; nothing was cut")
        return found

    def _cut_before_damage(self, end: Offset) -> NoReturn:
        damaged = self._segments.ledger.at(end)
        assert damaged is not None
        lost = Flushed(self._flushed_end, self._flushed_chain)
        lost = max(lost, self._lost or lost)
        write_lost(self._directory, lost)
        self._lost = lost
        self.truncate(damaged.start)
        where = DamagedRangeRead.of(self._directory.path_text, damaged)
        raise LostTail.what(where, damaged.start, *lost)

    # --- starting anew ---------------------------------------------------------------------------------------------

    def reset_to(self, start: OffsetAndEpoch, chain: bytes, timestamp_ms: int = 0) -> None:
        """Delete everything, and start the log at `start`, the end of a snapshot that is durable on this node. All
        outstanding flush tickets become void.

        `chain` and `timestamp_ms` are the values of the snapshot's last batch. After a crash inside this call the
        directory has the old log, or the new and empty one.
        """
        self._generation += 1
        self._start_anew(LogStart(start, chain, timestamp_ms))

    def _start_anew(self, start: LogStart) -> None:
        start_anew(self._directory, self._segments, self._note, start)
        self._memory.begin_at(start)
        self._count_all_as_durable()

    def drop_prefix(self, snapshot: OffsetAndEpoch) -> list[str]:
        """Move the log's start up to the end of `snapshot`, a boundary below `flushed_end`.

        Segments wholly below the new start are retired: moved to `archive/`, or deleted. Returns their names. The
        snapshot and its directory must be durable, because no other file holds these records any more.
        """
        offset, memory = snapshot.offset, self._memory
        if offset <= memory.start.start.offset:
            return []
        assert offset <= self._flushed_end, f"{snapshot} is not durable in {self}"
        assert self.shape.epoch_below(offset) == snapshot.epoch, f"{snapshot} is another history than {self}"
        chain = self.chain_at(offset)
        assert chain is not None, f"{snapshot} is not a batch boundary of {self}"
        start = LogStart(snapshot, chain, self._segments.time_below(offset))
        self._move_start(start)
        self._snapshot = max(snapshot, self._snapshot or snapshot)
        memory.history.forget_below(offset, memory.end)
        self._shape = None
        return self._segments.retire_below(offset)

    def begin_trim(self, start: OffsetAndEpoch) -> Trim | None:
        """Move the log's start up to `start`, a boundary below `flushed_end`, in memory. The disk follows with `Trim.run`, which
        may run on another thread: until then, call nothing else that moves the start. None: nothing is to be done.

        A crash before the end of `Trim.run` may bring the old start back, with all records.
        """
        memory = self._memory
        if start.offset <= memory.start.start.offset:
            return None
        assert start.offset <= self._flushed_end, f"{start} is not durable in {self}"
        chain = self.chain_at(start.offset)
        assert chain is not None, f"{start} is not a batch boundary of {self}"
        memory.start = LogStart(start, chain, self._segments.time_below(start.offset))
        self._segments.ledger.forget_below(start.offset, chain)
        self._snapshot = max(start, self._snapshot or start)
        memory.history.forget_below(start.offset, memory.end)
        self._shape = None
        return Trim(self._directory, memory.start, self._segments.forget_below(start.offset))

    def start_at_snapshot(self, snapshot: OffsetAndEpoch, chain: bytes, timestamp_ms: int) -> None:
        """Start the log at the end of `snapshot`, even if the records below are damaged. Keep the records above that
        continue the snapshot, and delete everything else.

        The snapshot is durable on this node; `chain` and `timestamp_ms` are the values of its last batch. If the
        snapshot's end lies inside a damaged range, the log takes the chain there from the snapshot. The repair of the
        rest of the range proves that chain later.
        """
        if self.contradicts(snapshot):
            self.reset_to(snapshot, chain, timestamp_ms)
        elif not self.is_within_damage(snapshot.offset):
            assert self.chain_at(snapshot.offset) == chain, f"{snapshot} is another history than {self}"
            self.drop_prefix(snapshot)
        else:
            damaged = self._segments.ledger.at(snapshot.offset)
            assert damaged is not None
            self._move_start(LogStart(snapshot, chain, timestamp_ms))
            self._memory.history.start_inside(self._memory.start, damaged.above(snapshot.offset, chain))
            self.note_snapshot(snapshot)
            self._segments.retire_below(snapshot.offset)

    def _move_start(self, start: LogStart) -> None:
        write_start(self._directory, start)
        self._memory.start = start
        self._segments.ledger.forget_below(start.start.offset, start.chain)

    def note_snapshot(self, snapshot: OffsetAndEpoch) -> None:
        """Record that `snapshot` is durable on this node. The newest snapshot counts, because an older one may be
        finished later.
        """
        self._snapshot = max(snapshot, self._snapshot or snapshot)
        self._shape = None

    # --- damage ----------------------------------------------------------------------------------------------------

    def note_damage(self, error: CorruptLog) -> None:
        """Record damage that a reader or a scrub has found.

        Raises:
            CorruptLog: `error` itself, if it does not name a place in this log.
        """
        if isinstance(error, DamagedRangeRead):
            return  # known already
        name = (error.file or "").removeprefix(f"{self._directory.path_text}/")
        # The log may open the active segment's file again. A flush of the old file handle then proves nothing, so its
        # ticket is void.
        self._generation += 1
        place = LogPlace(self._memory.start, self._memory.chain, self.shape.epoch_below)
        damaged = self._segments.damage(name, error.position or 0, place)
        if damaged is None:
            raise error
        self.on_damage(f"{damaged}: {error}")
        self._note.flush()  # as at opening: an older note must not come back while the log has damage

    def repair(self, damaged: DamagedRange, batches: Sequence[Batch]) -> None:
        """Put back, durably, the records that `damaged` (one of `damage`) has lost. All outstanding flush tickets
        become void.

        Raises:
            LogFormatError: `batches` are not exactly the lost records; nothing was changed.
            CorruptLog: the repair found more damage around `damaged`; nothing was changed.
            OSError: the disk has no room; `damaged` is still damaged.
        """
        assert damaged in self.damage, damaged
        check_filling(damaged, batches)
        self._segments.repair(damaged, batches, self._memory.start)
        self._generation += 1
        self._memory.history.replace_damaged(damaged, batches)
        self._shape = None

    def forget_loss(self) -> None:
        """Delete the note `lost`. The caller has decided that the lost end of this log does not matter any more."""
        remove_lost(self._directory)
        self._lost = None

    def drop_oldest_archived(self) -> bool:
        """Delete the oldest segment in the archive. Returns False if the archive is empty."""
        archive = self._segments.archive
        return archive is not None and archive.drop_oldest()

    def trim_archive(self) -> list[str]:
        """Delete archived segments above the archive's limits, and return their names."""
        archive, config = self._segments.archive, self._config
        if archive is None:
            return []
        return archive.trim(config.archive_max_bytes, self.last_timestamp_ms - config.archive_max_age_ms)

    def forget_snapshot(self, newest: OffsetAndEpoch | None) -> None:
        """Record that a snapshot was deleted; `newest` is the newest one that remains."""
        assert newest is not None or self._memory.start.start.offset == 0, (
            f"no snapshot is left for the start of {self}"
        )
        self._snapshot = newest
        self._shape = None

    def check_in_place(self) -> None:
        """Raise Removed if this log's directory, or a file in it, was deleted or replaced while the process runs."""
        self._directory.check_in_place()
        self._note.check_in_place()

    def close(self) -> None:
        """Close the files. Unflushed bytes stay in the operating system's page cache."""
        self._segments.close()
        self._note.close()
