"""Open the log of a directory when a process starts: recover the log that is there, or create a new one.

`recovery` decides which bytes are the log, and which end of it is lost. This file carries the decision out. The order
is such that the next opening understands what a crash has left:
  1. note the loss, if there is one (`lost`);
  2. cut what is lost;
  3. make all remaining records durable, and write damaged headers anew from the batches before.
Example: a log was durable up to 60, and the disk has lost everything above 40. Without step 1 before step 2, a crash
after the cut would leave a directory that looks like a whole log with the end 40. The next start would vote as if this
node had never acknowledged 40..59.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from metadata_log.disk.files import Directory
from metadata_log.format.batch import Batch
from metadata_log.format.errors import CorruptLog
from metadata_log.format.ids import Offset
from metadata_log.store.damage import DamageLedger, LostTail
from metadata_log.store.log_config import LogConfig
from metadata_log.store.log_history import QuorumRecord
from metadata_log.store.log_memory import LogMemory
from metadata_log.store.log_notes import Flushed, FlushedNote, LogStart, read_lost, read_start, write_lost, write_start
from metadata_log.store.recovery import Recovery
from metadata_log.store.segment import SegmentHeader, segment_names
from metadata_log.store.segment_file import Segment
from metadata_log.store.segment_repair import discard_unfinished
from metadata_log.store.segments import Segments

MayLose: TypeAlias = Callable[[Sequence[tuple[Offset, QuorumRecord]]], bool]
"""Decide whether a log may be opened without its durable end, from the records about voters that are left."""


Observer: TypeAlias = Callable[[Batch], None]


class Found(NamedTuple):
    """An opened log. Everything in it is durable."""

    memory: LogMemory
    lost: Flushed | None
    """How far the log had been durable, if its durable end is lost."""


def find(
    directory: Directory,
    segments: Segments,
    note: FlushedNote,
    *,
    at: LogStart,
    config: LogConfig,
    may_lose: MayLose,
    snapshot: Flushed | None = None,
    observe: Observer = lambda _: None,
) -> Found:
    """Open the log in `directory` into `segments`; create one that starts at `at` if the directory has none.

    `snapshot` is the end of a snapshot that is durable beside the log. The note `flushed` may be older than the
    snapshot. `observe` is called with each intact batch, also with those below the log's start.

    Raises:
        LostTail: the end of the durable part is lost, and `may_lose` does not permit that.
        CorruptLog: the files do not hold what was written.
        OSError, FlushFailed: the disk failed.
    """
    discard_unfinished(directory)
    lost = read_lost(directory)
    start = read_start(directory)
    memory = LogMemory(start or at, config.tail_bytes, config.format_version)
    opening = _Opening(directory, segments, note, memory, lost, may_lose, snapshot, observe)
    opening.find(start, start or at, notes_first_start=config.notes_first_start)
    return Found(opening.memory, opening.lost)


def start_anew(directory: Directory, segments: Segments, note: FlushedNote, start: LogStart) -> None:
    """Delete all segments, and create an empty log at `start`. After a crash inside this call, the next opening
    completes the work.
    """
    write_start(directory, start._replace(resetting=True))  # from now on no old segment counts
    segments.remove_all()
    segments.create(SegmentHeader(start.start, start.chain, start.timestamp_ms))
    note.write(start.start.offset, start.chain)
    note.flush()
    write_start(directory, start._replace(resetting=False))


def begin(directory: Directory, segments: Segments, note: FlushedNote, start: LogStart) -> None:
    """Create a new log at `start` in a directory without one, with three fsyncs. The header of its first segment tells the start.

    The note and the header are durable before the segment's name. So after a crash inside this call, the directory has an empty
    log or none, and no later crash finds a log with batches and without the note.
    """
    note.write(start.start.offset, start.chain)
    note.flush()
    header = SegmentHeader(start.start, start.chain, start.timestamp_ms)
    segments.adopt([Segment.create_whole(directory, header)], DamageLedger())


class _Opening:
    """One opening of one log. Call `find` once."""

    def __init__(
        self,
        directory: Directory,
        segments: Segments,
        note: FlushedNote,
        memory: LogMemory,
        lost: Flushed | None,
        may_lose: MayLose,
        snapshot: Flushed | None,
        observe: Observer,
    ) -> None:
        self._directory = directory
        self._segments = segments
        self._note = note
        self._may_lose = may_lose
        self._snapshot = snapshot
        self._observe = observe
        self.memory = memory
        self.lost = lost

    def find(self, start: LogStart | None, at: LogStart, *, notes_first_start: bool) -> None:
        """Open the log. `start` is the content of `log-start`; `at` is the same, or the start of a new log."""
        durable = self._note.read()
        is_new = (
            start is None and not segment_names(self._directory) and (durable is None or durable.end <= at.start.offset)
        )
        if is_new or at.resetting:
            self._refuse_earlier_loss()
            if is_new and not notes_first_start and at.start.offset == 0:
                begin(self._directory, self._segments, self._note, at)
                self.memory.begin_at(at)
            else:
                self._start_anew(at)
        else:
            recovery = Recovery(self._directory, start, durable, self._snapshot, self.memory.format_version)
            self._recover(recovery, at, durable)

    def _recover(self, recovery: Recovery, at: LogStart, durable: Flushed | None) -> None:
        lost = self._judge(recovery, at)
        if lost is not None:
            self._lose(recovery, lost)
        # Keep the cut files also if an earlier opening noted the loss and ended before its cut: the remains now look
        # like a torn tail.
        recovery.cut(keep_files=self.lost is not None)
        if not recovery.segments or recovery.segments[-1].end_offset < at.start.offset:
            # (If the damage is below the start, in the segment that contains the start, the log is empty now.)
            self._start_anew(at)
            return
        self._segments.adopt(recovery.segments, DamageLedger(recovery.ranges))
        self._segments.ledger.forget_below(self.memory.start.start.offset, self.memory.start.chain)
        self._make_durable(recovery.segments, durable)
        self._segments.retire(recovery.retired_names)

    def _judge(self, recovery: Recovery, at: LogStart) -> Flushed | None:
        """Read the whole log into memory; return how far the log had been durable, if its end is lost."""
        memory, began = self.memory, False
        for item in recovery.read():
            if not began:
                memory.begin_at(recovery.start)
                began = True
            memory.add_recovered(item)
            if isinstance(item, Batch):
                self._observe(item)
        self._refuse_earlier_loss()
        lost = recovery.settle(may_lose=self._may_be_lost)
        if not began:  # before a loss is noted: if no record is left, the note needs this log's own first chain
            memory.begin_at(recovery.start if recovery.segments else at)
        return lost

    def _may_be_lost(self) -> bool:
        return self._may_lose(tuple(self.memory.history.quorum_records))

    def _refuse_earlier_loss(self) -> None:
        if self.lost is not None and not self._may_be_lost():
            where = CorruptLog(
                f"{self._directory.path_text}: an earlier start cut this log at damage, and the lost records are still missing"
            )
            raise LostTail.what(where, 0, *self.lost)

    def _lose(self, recovery: Recovery, lost: Flushed) -> None:
        """Note the loss, durably, before anything is cut.

        The order matters. If the process crashed after the cut and before the note, the next start would take the
        shorter log for complete and vote with it.
        """
        recovery.set_aside()
        self.lost = max(lost, self.lost or lost)
        write_lost(self._directory, self.lost)
        self._note.write(self.memory.end, self.memory.chain)
        self._note.flush()

    def _make_durable(self, segments: Sequence[Segment], durable: Flushed | None) -> None:
        """Write again and fsync the records above `durable`, the noted end, and the headers that are lost. Records below the
        noted end are on the disk already.
        """
        active = self._segments.active
        for segment in segments:
            # The active segment in any case: an earlier process may have been killed between a truncation and its
            # fsync. The cut records also continue the chain, and a power cut would bring them back.
            is_written = segment is active or durable is None or segment.end_offset > durable.end
            if is_written:
                segment.write_again(0 if durable is None else durable.end)
            if segment.is_header_lost:
                segment.write_header()
            if is_written or segment.is_header_lost:
                segment.file.flush()
            if segment is not active:
                segment.release()
        self._directory.flush()
        self._note.write(self.memory.end, self.memory.chain)
        # Only this note says that the damaged records had been durable. If a power cut brought back an older note,
        # recovery would treat the damage as a torn tail and cut it.
        self._note.flush()

    def _start_anew(self, start: LogStart) -> None:
        start_anew(self._directory, self._segments, self._note, start)
        self.memory.begin_at(start)
