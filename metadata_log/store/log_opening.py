"""What a log's directory holds when a process begins: the log that was left there, or a new one; and how it is made to count.

`recovery` says what of the bytes is the log, and which end of it is lost. What follows from that is done here, in an order in
which a crash anywhere leaves what the next opening understands: first a loss is noted, then what is lost is cut, then all
that is left is made durable, and last what harms nobody is put right.
"""

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

from metadata_log.disk.files import Directory, is_full
from metadata_log.format.errors import CorruptLog
from metadata_log.format.ids import Offset
from metadata_log.store.damage import LostTail
from metadata_log.store.log_history import QuorumRecord
from metadata_log.store.log_memory import LogMemory
from metadata_log.store.log_notes import Flushed, FlushedNote, LogStart, read_lost, read_start, write_lost, write_start
from metadata_log.store.recovery import Recovery, segment_names
from metadata_log.store.segment import Segment, SegmentHeader
from metadata_log.store.segment_repair import discard_unfinished
from metadata_log.store.segments import Segments

MayLose: TypeAlias = Callable[[Sequence[tuple[Offset, QuorumRecord]]], bool]
"""Whether a log may be opened without its durable end, given what is left in it about who votes."""


class Found(NamedTuple):
    """An opened log. All of it is durable."""

    memory: LogMemory
    lost: Flushed | None
    """How far the log had been durable, if it was opened without the end of that."""


def find(
    directory: Directory,
    segments: Segments,
    note: FlushedNote,
    *,
    begin: LogStart,
    tail_bytes: int,
    may_lose: MayLose,
    snapshot: Flushed | None = None,
) -> Found:
    """The log in `directory`, its files in `segments`; one that begins at `begin` if there is none.

    `snapshot` is a place that is known although the note may be older: the end of a snapshot that is durable beside the log.

    Raises:
        LostTail: the end of what was durable once is gone, and may not be lost.
        CorruptLog: what is there is not what was written.
        OSError, FlushFailed: the disk's.
    """
    discard_unfinished(directory)
    lost = read_lost(directory)
    start = read_start(directory)
    opening = _Opening(directory, segments, note, LogMemory(start or begin, tail_bytes), lost, may_lose, snapshot)
    opening.find(start, start or begin)
    return Found(opening.memory, opening.lost)


def start_anew(directory: Directory, segments: Segments, note: FlushedNote, start: LogStart) -> None:
    """Nothing is left of what was there, and an empty log starts at `start`. After a crash in here the next opening goes on."""
    write_start(directory, start._replace(resetting=True))  # from here on no old segment counts
    segments.remove_all()
    segments.create(SegmentHeader(start.start, start.chain, start.timestamp_ms))
    note.write(start.start.offset, start.chain)
    note.flush()
    write_start(directory, start._replace(resetting=False))


@contextmanager
def _read_a_moment_ago() -> Iterator[None]:
    """For what recovery has just read, all of it, and found intact.

    Raises:
        OSError: in place of CorruptLog. A process that ends with damage is not started again; the next start judges this damage.
    """
    try:
        yield
    except CorruptLog as e:
        raise OSError(errno.EIO, f"{e}; the disk gave it a moment ago") from e


class _Opening:
    """One opening of one log: `find`, once."""

    def __init__(
        self,
        directory: Directory,
        segments: Segments,
        note: FlushedNote,
        memory: LogMemory,
        lost: Flushed | None,
        may_lose: MayLose,
        snapshot: Flushed | None,
    ) -> None:
        self._directory = directory
        self._segments = segments
        self._note = note
        self._may_lose = may_lose
        self._snapshot = snapshot
        self.memory = memory
        self.lost = lost

    def find(self, start: LogStart | None, begin: LogStart) -> None:
        """`start` is the noted one, `begin` the same, or where a new log would begin."""
        durable = self._note.read()
        is_new = (
            start is None
            and not segment_names(self._directory)
            and self._note.unread is None
            and (durable is None or durable.end <= begin.start.offset)
        )
        if is_new or begin.resetting:
            self._refuse_earlier_loss()
            self._start_anew(begin)
        else:
            self._recover(Recovery(self._directory, start, durable, self._snapshot), begin, durable)

    def _recover(self, recovery: Recovery, begin: LogStart, durable: Flushed | None) -> None:
        lost = self._judge(recovery, begin)
        if lost is not None:
            self._lose(recovery, lost)
        # Also where an earlier opening has noted the loss, and ended before its cut: what is cut now looks torn.
        recovery.cut(keep_files=self.lost is not None)
        if not recovery.segments or recovery.segments[-1].end_offset < begin.start.offset:
            # (The damage may stand below the start, in the segment that the start stands in: the log is empty then.)
            self._start_anew(begin)
            return
        self._segments.adopt(recovery.segments, recovery.ranges)
        self._make_durable(recovery.segments, durable)
        self._segments.retire(recovery.retired_names)
        self._mend_empty_ranges()

    def _judge(self, recovery: Recovery, begin: LogStart) -> Flushed | None:
        """Reads all that there is. What of it is lost, and may be."""
        memory, began = self.memory, False
        for item in recovery.read():
            if not began:
                memory.begin_at(recovery.start)
                began = True
            memory.follow(item)
        self._refuse_earlier_loss()
        lost = recovery.settle(may_lose=self._may_be_lost, unread=self._note.unread)
        if not began:  # before a loss is noted: with no record left, the note must have this log's own first chain
            memory.begin_at(recovery.start if recovery.segments else begin)
        return lost

    def _may_be_lost(self) -> bool:
        return self._may_lose(tuple(self.memory.history.quorum_records))

    def _refuse_earlier_loss(self) -> None:
        if self.lost is not None and not self._may_be_lost():
            where = CorruptLog(f"{self._directory.path_text}: the log was cut at damage, and is not what it was since")
            raise LostTail.what(where, 0, *self.lost)

    def _lose(self, recovery: Recovery, lost: Flushed) -> None:
        """In this order: no crash in here may leave a node that has forgotten what it has forgotten."""
        recovery.set_aside()
        self.lost = max(lost, self.lost or lost)
        write_lost(self._directory, self.lost)
        self._note.write(self.memory.end, self.memory.chain)
        self._note.flush()

    def _make_durable(self, pieces: Sequence[Segment], durable: Flushed | None) -> None:
        """`durable` is what was noted: below that no process has left anything in the page cache only."""
        active = self._segments.active
        for piece in pieces:
            # The active one in any case: a truncation may have been killed before its fsync, and what it cut, which
            # continues the chain just as well, would be back after a power cut.
            if piece is active or durable is None or piece.end_offset > durable.end:
                with _read_a_moment_ago():
                    piece.write_again(0 if durable is None else durable.end)
                piece.file.flush()
            if piece is not active:
                piece.release()
        self._directory.flush()
        self._note.write(self.memory.end, self.memory.chain)
        # Nothing else says that what is damaged had been durable. An older note, back after a power cut, would make of it a
        # torn tail, which is cut.
        self._note.flush()

    def _mend_empty_ranges(self) -> None:
        """No record is missing in those: what stands around each says all."""
        try:
            while empty := self._segments.empty_ranges():
                with _read_a_moment_ago():
                    self._segments.mend(empty[0], (), self.memory.start)
        except OSError as e:
            if not is_full(e):
                raise
            # They are in nobody's way, and a node that cannot write can vote: the next start with room mends them.

    def _start_anew(self, start: LogStart) -> None:
        start_anew(self._directory, self._segments, self._note, start)
        self.memory.begin_at(start)
