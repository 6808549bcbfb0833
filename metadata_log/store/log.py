"""The `@metadata` log of one node: append, flush, truncate, read, and start anew from a snapshot.

    drop_prefix / reset_to                    append / append_batches
            |                                        |
            v                                        v
    start --[ sealed segment | sealed | active segment )-- end
                                          ^ flushed_end

This file holds whatever changes a log; the reading is its base, `LogView`. One thread owns a log; only the fsync of a flush may
run on another one (`flush_ticket`).

*A segment is sealed before the next one begins*, with an fsync in between. So only the active segment has anything to flush,
and only the last file of a log can have a torn tail worth the name.

*Damage inside* does not end a log. What is intact on both sides of it stays usable, its end and chain are true, and it grows;
`damage` says what is missing, whoever reads that is refused (`DamagedRangeRead`), and `repair` puts it back. `recovery` tells
this from a lost tail.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, NoReturn

from metadata_log.disk.files import Directory
from metadata_log.disk.flush_ticket import FlushTicket
from metadata_log.format.batch import Batch, encode, genesis_chain, verify_chain
from metadata_log.format.codec import decode_batch, encode_records
from metadata_log.format.errors import CorruptLog, LogFormatError
from metadata_log.format.ids import Epoch, Offset, OffsetAndEpoch
from metadata_log.format.records import FIRST_CONTROL_TYPE, TYPE_NUMBERS, Record
from metadata_log.store.damage import DamagedRange, DamagedRangeRead, LostTail
from metadata_log.store.log_notes import Flushed, FlushedNote, LogStart, remove_lost, write_lost, write_start
from metadata_log.store.log_opening import Found, MayLose, find, start_anew
from metadata_log.store.log_view import LogView
from metadata_log.store.segment import Segment, SegmentHeader
from metadata_log.store.segment_repair import check_filling
from metadata_log.store.segments import Segments

LOG_BEGINNING: Final = OffsetAndEpoch(0, 0)


class LogConfig(NamedTuple):
    """How a log is kept."""

    segment_bytes: int = 64 << 20
    """A segment that would grow larger is sealed, and the next one begun."""
    tail_bytes: int = 8 << 20
    """So many bytes of the newest batches stay in memory."""
    archive: bool = True
    """Retired segments go to `archive/`; without it they are removed."""
    archive_max_bytes: int = 1 << 30
    archive_max_age_ms: int = 30 * 24 * 3_600_000
    """In the log's own time."""


class Log(LogView):
    """See the file's head. Made by `Log.open`."""

    def __init__(
        self, directory: Directory, config: LogConfig, note: FlushedNote, segments: Segments, found: Found
    ) -> None:
        super().__init__(directory, segments, found)
        self._config = config
        self._note = note
        self.on_damage: Callable[[str], None] = lambda _: None
        """Is told whenever damage is noted, also where the log has come upon it by itself, and mended it."""

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
    ) -> "Log":
        """The log in `directory`: recovered if there is one, else a new one that starts at `start`.

        `chain` and `timestamp_ms` are those at `start`: the genesis chain for a new cluster, a snapshot's for a node that
        begins with one. For a log that is there already the three are not looked at.

        What recovery does with damage is told in `recovery`. All that it keeps is fsynced before it counts as flushed: after
        a killed process it may have been in the page cache only.

        With `accept_loss` a log whose durable end is gone is opened as far as it is intact, and `lost` says what is missing,
        at every opening until `forget_loss`. What is cut from the files stands beside them as `*.damaged`.

        `snapshot` is the end of the newest whole snapshot beside the log, with the chain there. What goes on from it is no torn
        tail, however old the note is.

        Raises:
            LostTail: the end of what was durable once is gone, unless `accept_loss`.
            CorruptLog: what is there is not what was written.
            OSError, FlushFailed: the disk's.
        """
        note = FlushedNote(directory)
        segments = Segments(directory, archive=config.archive)
        try:
            found = find(
                directory,
                segments,
                note,
                begin=LogStart(start, chain or genesis_chain("", b""), timestamp_ms),
                tail_bytes=config.tail_bytes,
                may_lose=accept_loss if callable(accept_loss) else lambda _: bool(accept_loss),
                snapshot=snapshot,
            )
        except BaseException:
            segments.close()
            note.close()
            raise
        return cls(directory, config, note, segments, found)

    # --- appending -------------------------------------------------------------------------------------------------

    def append(self, records: Sequence[Record], epoch: Epoch, wall_ms: int) -> Batch:
        """As leader of `epoch`: `records` as one batch, sealed and written.

        Raises:
            BatchTooLarge: too much for one batch; nothing was appended.
            OSError: the disk is full or broken; nothing was appended.
        """
        batch = self.seal(records, epoch, wall_ms)
        self.write(batch)
        return batch

    def seal(self, records: Sequence[Record], epoch: Epoch, wall_ms: int) -> Batch:
        """The batch in which `records` would continue this log. All of them are control records, or none is. Appends nothing.

        The batch's time is `wall_ms`, or the previous batch's where the clock was set back.

        Raises:
            BatchTooLarge: too much for one batch.
        """
        is_control = TYPE_NUMBERS[type(records[0])] >= FIRST_CONTROL_TYPE
        assert all((TYPE_NUMBERS[type(each)] >= FIRST_CONTROL_TYPE) is is_control for each in records)
        memory = self._memory
        assert epoch >= memory.history.last_epoch, f"epoch {epoch} in {self}"
        timestamp_ms = max(wall_ms, memory.history.last_timestamp_ms)
        return encode(
            encode_records(records),
            base_offset=memory.end,
            epoch=epoch,
            record_count=len(records),
            first_timestamp_ms=timestamp_ms,
            last_timestamp_ms=timestamp_ms,
            is_control=is_control,
            previous_chain=memory.chain,
        )

    def write(self, batch: Batch) -> None:
        """Appends a batch that `seal` has made, with nothing appended since.

        Raises:
            OSError: the disk is full or broken; nothing was appended.
        """
        assert batch.base_offset == self._memory.end, f"a batch for offset {batch.base_offset} in {self}"
        self._write((batch,))

    def append_batches(self, batches: Sequence[Batch]) -> None:
        """As follower, or broker: batches as they came, which must continue this log.

        Raises:
            LogFormatError: they do not; nothing was appended.
            OSError: the disk is full or broken; some of the first batches may have been appended, see `shape`.
        """
        memory = self._memory
        end, epoch, chain = memory.end, memory.history.last_epoch, memory.chain
        for batch in batches:
            if batch.base_offset != end:
                raise LogFormatError(f"a batch with base offset {batch.base_offset}; the log goes on at {end}")
            if batch.epoch < epoch:
                raise LogFormatError(f"a batch of epoch {batch.epoch} at offset {end}, after epoch {epoch}")
            if not verify_chain(batch, chain):
                raise LogFormatError(f"the batch at offset {end} does not continue this log's chain")
            if batch.is_control:
                decode_batch(batch)  # a voter set that nobody can read must not get in
            end, epoch, chain = batch.end_offset, batch.epoch, batch.chain
        if batches:
            self._write(batches)

    def _write(self, batches: Sequence[Batch]) -> None:
        """Writes verified batches, in one write for all that fit the active segment."""
        segment_bytes = self._config.segment_bytes
        active = self._segments.active
        run: list[Batch] = []
        run_end = active.end_position
        for batch in batches:
            if run_end + len(batch.data) > segment_bytes and batch.base_offset > active.base_offset:
                self._write_run(active, run)
                active = self._roll()
                run, run_end = [], active.end_position
            run.append(batch)
            run_end += len(batch.data)
        self._write_run(active, run)

    def _write_run(self, active: Segment, run: list[Batch]) -> None:
        if run:
            data = run[0].data if len(run) == 1 else b"".join([batch.data for batch in run])
            active.append(data, self._config.segment_bytes)
        memory = self._memory
        self._shape = None
        for batch in run:
            active.extend(batch, memory.chain)
            memory.take(batch)

    def _roll(self) -> Segment:
        """Seals the active segment and begins the next."""
        memory = self._memory
        place = OffsetAndEpoch(memory.end, memory.history.last_epoch)
        return self._segments.create(SegmentHeader(place, memory.chain, memory.history.last_timestamp_ms))

    # --- flushing --------------------------------------------------------------------------------------------------

    def begin_flush(self) -> FlushTicket:
        """A ticket for making durable all that the log holds now."""
        memory = self._memory
        file = self._segments.active.file if self._flushed_end < memory.end else None
        return FlushTicket(self._generation, memory.end, memory.chain, file)

    def complete_flush(self, ticket: FlushTicket) -> bool:
        """`ticket.sync()` has returned. False if the ticket was void: what it flushed is not what the log holds now."""
        if ticket.generation != self._generation:
            return False
        if ticket.end > self._flushed_end:
            self._flushed_end, self._flushed_chain = ticket.end, ticket.chain
            self._note.write(ticket.end, ticket.chain)
            self._shape = None
        return True

    def flush(self) -> None:
        """Makes durable all that the log holds, here and now.

        Raises:
            FlushFailed: stop the process.
        """
        ticket = self.begin_flush()
        ticket.sync()
        self.complete_flush(ticket)

    # --- cutting ---------------------------------------------------------------------------------------------------

    def truncate(self, end: Offset) -> None:
        """Cuts the log back to `end`, a batch boundary, durably; voids the tickets that are out.

        Raises:
            LostTail: `end` lies within damage, of which nothing can be kept by itself. The log ends before the damage now, and
                what had been durable is `lost`: this process must not go on as if it had kept it.
        """
        found = self._look_at(end)
        if found is None and self.is_within_damage(end):
            self._cut_before_damage(end)
        chain = self.chain_at(end) if found is None else found[1]
        assert chain is not None, f"{end} is not a batch boundary of {self}"
        self._generation += 1
        if end == self._memory.end:
            return
        if end < self._flushed_end:
            # Before the bytes go: a power cut after the cut must not find a note that says they are still there.
            self._note.write(end, chain)
            self._note.flush()
            self._flushed_end, self._flushed_chain = end, chain
            self._shape = None
        if end == self._memory.start.start.offset and self._segments.damaged_at(end) is not None:
            self._start_anew(self._memory.start)  # there is no file of which a beginning could be kept
            return
        assert found is not None, f"{end} lies in damage of {self}"
        self._segments.cut(end, found[0])
        self._memory.cut(end, chain, found[2], self._segments.active.header.previous_timestamp_ms)
        self._shape = None

    def _look_at(self, end: Offset) -> tuple[int, bytes, Batch | None] | None:
        """See `Segments.ending_at`; None also if that is lost. What is damaged there, and can be read again, is put back.

        This may come upon rot: better before anything has changed than halfway through. What is noted then reaches from one
        entry of the index to the next, and most of it, or all, the disk or memory still has.
        """
        while True:
            try:
                return self._segments.ending_at(end)
            except CorruptLog as e:
                damaged = self.note_damage(e)
                batches = self.read_again(damaged) if damaged in self.damage else []
                if not batches and isinstance(e, DamagedRangeRead):
                    return None
            try:
                if batches:
                    self.repair(damaged, batches)
            except CorruptLog as e:
                self.note_damage(e)

    def _cut_before_damage(self, end: Offset) -> NoReturn:
        damaged = self._segments.damaged_at(end)
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
        """Everything goes, and the log starts at `start`, the end of a snapshot that is durable here; voids all tickets.

        `chain` and `timestamp_ms` are what the snapshot says of its last batch. After a crash in here the log is the old one,
        or the new one and empty.
        """
        self._generation += 1
        self._start_anew(LogStart(start, chain, timestamp_ms))

    def _start_anew(self, start: LogStart) -> None:
        start_anew(self._directory, self._segments, self._note, start)
        self._memory.begin_at(start)
        self._stand_at_end()

    def drop_prefix(self, snapshot: OffsetAndEpoch) -> list[str]:
        """The log starts at `snapshot`'s end from now on, which is a boundary below `flushed_end`.

        Segments wholly below that are retired: moved to `archive/`, or removed. Gives their names. The snapshot must be
        durable, its directory too: nothing else holds these records now.
        """
        offset, memory = snapshot.offset, self._memory
        if offset <= memory.start.start.offset:
            return []
        assert offset <= self._flushed_end, f"{snapshot} is not durable in {self}"
        assert self.shape.epoch_below(offset) == snapshot.epoch, f"{snapshot} is another history than {self}"
        chain = self.chain_at(offset)
        assert chain is not None, f"{snapshot} is not a batch boundary of {self}"
        segment = self._segments.of(offset)
        last = segment.last_batch_below(offset)
        timestamp_ms = last.last_timestamp_ms if last else segment.header.previous_timestamp_ms
        start = LogStart(snapshot, chain, timestamp_ms)
        write_start(self._directory, start)
        memory.start = start
        self._snapshot = max(snapshot, self._snapshot or snapshot)
        memory.history.forget_below(offset, memory.end)
        self._shape = None
        return self._segments.retire_below(offset)

    def stand_on(self, snapshot: OffsetAndEpoch, chain: bytes, timestamp_ms: int) -> None:
        """The log starts at `snapshot`'s end, whatever is damaged below; what continues it above is kept, all else goes.

        The snapshot is durable here; `chain` and `timestamp_ms` are what it says of its last batch. Within damage the chain there
        is taken from it, and proven when what is damaged above it is mended.
        """
        if self.contradicts(snapshot):
            self.reset_to(snapshot, chain, timestamp_ms)
        elif not self.is_within_damage(snapshot.offset):
            assert self.chain_at(snapshot.offset) == chain, f"{snapshot} is another history than {self}"
            self.drop_prefix(snapshot)
        else:
            damaged = self._segments.damaged_at(snapshot.offset)
            assert damaged is not None
            start = LogStart(snapshot, chain, timestamp_ms)
            write_start(self._directory, start)
            self._memory.start = start
            self._segments.forget_damage_below(start)
            self._memory.history.begin_within(start, damaged.above(snapshot.offset, chain))
            self.note_snapshot(snapshot)
            self._segments.retire_below(snapshot.offset)

    def note_snapshot(self, snapshot: OffsetAndEpoch) -> None:
        """`snapshot` is durable on this node. The newest one counts: an older one may be finished after it."""
        self._snapshot = max(snapshot, self._snapshot or snapshot)
        self._shape = None

    # --- damage ----------------------------------------------------------------------------------------------------

    def note_damage(self, error: CorruptLog) -> DamagedRange:
        """Somebody has come upon damage that was not there at the opening. What is known of it; `repair` mends that too.

        Raises:
            CorruptLog: `error` itself, if it does not say where in this log the damage is.
        """
        if isinstance(error, DamagedRangeRead):
            return error.damaged
        name = (error.file or "").removeprefix(f"{self._directory.path_text}/")
        # The active segment's file may be opened anew, and a flush of the old one says nothing of it.
        self._generation += 1
        damaged = self._segments.damage(name, error.position or 0, self._memory.chain, self.shape.epoch_below)
        if damaged is None:
            raise error
        self.on_damage(str(error))
        self._segments.forget_damage_below(self._memory.start)
        self._note.flush()  # as at the opening: an older note must not come back while there is damage
        return damaged.above(self._memory.start.start.offset, self._memory.start.chain)

    def repair(self, damaged: DamagedRange, batches: Sequence[Batch]) -> None:
        """Puts back, durably, what `damaged` (one of `damage`) has lost; voids the tickets that are out.

        Raises:
            LogFormatError: `batches` are not that, from its beginning to its end; nothing was changed.
            CorruptLog: there is more damage, which nobody knew of, around it; nothing was changed.
            OSError: no room; the damage is still there.
        """
        assert damaged in self._segments.ranges, damaged
        check_filling(damaged, batches)
        self._segments.mend(damaged, batches, self._memory.start)
        self._generation += 1
        self._memory.history.fill(damaged, batches)
        self._shape = None

    def forget_loss(self) -> None:
        """Nobody needs to know any more that the end of this log was `lost` once."""
        remove_lost(self._directory)
        self._lost = None

    def drop_oldest_archived(self) -> bool:
        """Removes the oldest segment in the archive; False if there is none."""
        archive = self._segments.archive
        return archive is not None and archive.drop_oldest()

    def trim_archive(self) -> list[str]:
        """Removes what is over the archive's limits; gives the names."""
        archive, config = self._segments.archive, self._config
        if archive is None:
            return []
        return archive.trim(config.archive_max_bytes, self.last_timestamp_ms - config.archive_max_age_ms)

    def forget_snapshot(self, newest: OffsetAndEpoch | None) -> None:
        """A snapshot is gone; the newest one now is `newest`."""
        assert newest is not None or self._memory.start.start.offset == 0, f"nothing to stand on: {self}"
        self._snapshot = newest
        self._shape = None

    def check_in_place(self) -> None:
        """Raises Removed where this log's directory, or what was in it, was removed under this process."""
        self._directory.check_in_place()
        self._note.check_in_place()

    def close(self) -> None:
        """Closes the files. What was not flushed stays as the operating system has it."""
        self._segments.close()
        self._note.close()
