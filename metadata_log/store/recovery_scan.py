"""The first half of a recovery: reads all files of a log in order, checks every batch, and goes on behind damage.

    file 0                  file 20                       file 60
    [0 .. 19 intact]        [20 .. 39 | ~~~~ | 50 .. 59]  [60 .. 79 | ~~~~
                                      ^                             ^
                                      a range, `_step_over`         `_damage`: nothing intact leads on from here

The scan changes nothing on the disk, and does not decide if an end is lost: `recovery` does.
"""

from collections.abc import Iterator

from metadata_log.disk.files import Directory
from metadata_log.format.batch import FORMAT_VERSION, Batch, check_format, verify_chain
from metadata_log.format.errors import CorruptLog, LogFormatError
from metadata_log.format.ids import Epoch, Offset, OffsetAndEpoch
from metadata_log.store.damage import DamagedRange
from metadata_log.store.log_notes import Flushed, LogStart
from metadata_log.store.resume import DamagedPlace, Reached, Resume, ResumeSearch
from metadata_log.store.salvage import following
from metadata_log.store.segment import (
    SEGMENT_HEADER_BYTES,
    BadBatch,
    SegmentHeader,
    UnsupportedSegment,
    base_offset_of,
    header_of,
    is_leftover,
    segment_names,
    walk,
)
from metadata_log.store.segment_file import IndexEntry, Segment


class _AnotherHistory(Exception):
    """An intact segment that does not belong to this log. Recovery does not read the files behind it."""


def _furthest_known(directory: Directory, note: Flushed | None, snapshot: Flushed | None) -> Flushed | None:
    """Return how far the log was durable: the end in `note`, or the end of the batches that continue `snapshot`, if
    that is higher.
    """
    if snapshot is None or (note is not None and note.end >= snapshot.end):
        return note
    end = note
    for batch in following(directory, snapshot):
        end = Flushed(batch.end_offset, batch.chain)
    return end


class RecoveryScan:
    """One scan of one directory. `Recovery` judges what the scan has found."""

    def __init__(
        self,
        directory: Directory,
        start: LogStart | None,
        note: Flushed | None,
        snapshot: Flushed | None = None,
        format_version: int = FORMAT_VERSION,
    ) -> None:
        """`note` says how far the log was durable; `snapshot` is the end of a durable snapshot beside the log."""
        self._format_version = format_version
        names = segment_names(directory)
        self._leftovers = [name for name in names if is_leftover(directory, name)]
        names = [name for name in names if name not in self._leftovers]
        start_offset = start.start.offset if start else 0
        first = sum(1 for name in names[1:] if (base_offset_of(name) or 0) <= start_offset)
        # If the segment at the log's start has a damaged header, only the segment before can lead into it.
        while first > 0 and header_of(directory, names[first]) is None:
            first -= 1
        self.retired_names = names[:first]
        """Segments wholly below the log's start. A crash prevented their retirement."""
        self.segments: list[Segment] = []
        """The segments of the log, oldest first. The last one may be empty."""
        self.ranges: list[DamagedRange] = []
        self._directory = directory
        self._names = names[first:]
        self._start = start
        self._note = note
        self._known = _furthest_known(directory, note, snapshot)
        """The durable end, to which the batches of the last segment must lead."""
        self._snapshot_end: Offset = 0 if snapshot is None else snapshot.end
        self._damage: DamagedPlace | None = None
        self._foreign = False
        self._end: Offset = start_offset
        self._chain: bytes | None = None
        self._epoch: Epoch = 0
        self._promised = [Flushed(start.start.offset, start.chain)] if start else []
        """Places that were durable once, each with the chain there."""
        self._promised += [place for place in (note, self._known) if place is not None]
        self._kept: set[Flushed] = set()
        self._lowest: Offset = start_offset
        self._time_ms = start.timestamp_ms if start else 0

    @property
    def start(self) -> LogStart:
        """The log's start: as in `log-start`, or else the start of the first segment. Valid after `read` gave its first
        item.
        """
        if self._start is not None:
            return self._start
        header = self.segments[0].header
        assert header is not None, "a log whose start is not noted begins with an intact header"
        return LogStart(header.start, header.previous_chain, header.previous_timestamp_ms)

    @property
    def stop(self) -> CorruptLog | None:
        """Why recovery stopped reading; None if everything was read."""
        return None if self._damage is None else self._where()

    # --- reading ---------------------------------------------------------------------------------------------------

    def read(self) -> Iterator[Batch | DamagedRange]:
        """Read everything, in order, including batches below the log's start."""
        index = 0
        while index < len(self._names):
            try:
                yield from self._read_file(index)
                index += 1
                continue
            except _AnotherHistory as e:
                self._foreign = True
                self._damage = DamagedPlace(index, 0, self._end, str(e))
                return
            except BadBatch as e:
                damage = DamagedPlace(index, e.position, self._end, str(e))
            if self._chain is None and self._start is not None:
                self._begin_at_start(self._start)
            resume = None if self._chain is None else self._resume_behind(damage)
            if resume is None or not self._step_over(damage, resume):
                self._damage = damage
                return
            if resume.header.start.offset > damage.offset:
                yield self._missing(damage, resume)
            index = resume.file_index

    def _read_file(self, index: int) -> Iterator[Batch]:
        """Read the batches of one file, or the rest of them behind a gap."""
        segment = self._last_segment(index) or self._open(index)
        for position, batch in walk(segment.file, segment.end_position, segment.file.size()):
            previous_chain = self._continue(position, batch)
            segment.extend(batch, previous_chain)
            yield batch
        if not segment.tail_is_zero():
            raise BadBatch(segment.end_position, "something other than zeros after the last batch")
        segment.release()

    def _last_segment(self, index: int) -> Segment | None:
        """Return the segment of the `index`-th file, if it was opened before."""
        return next((each for each in self.segments[-1:] if each.name == self._names[index]), None)

    def _open(self, index: int) -> Segment:
        try:
            segment = Segment.open(self._directory, self._names[index])
        except UnsupportedSegment as e:
            raise _AnotherHistory(str(e)) from e
        except LogFormatError as e:
            raise BadBatch(0, str(e)) from e
        try:
            assert segment.header is not None
            self._enter(segment.header)
        except BaseException:
            segment.release()
            raise
        self.segments.append(segment)
        return segment

    def _enter(self, header: SegmentHeader) -> None:
        """Check that a segment with this header continues the segments before."""
        offset = header.start.offset
        if self._chain is None:
            if self._start is not None and offset > self._start.start.offset:
                raise BadBatch(0, f"the segment in which the log starts, at {self._end}, is missing")
            self._end, self._epoch, self._chain = offset, header.start.epoch, header.previous_chain
            self._lowest, self._time_ms = offset, header.previous_timestamp_ms
            self._check_start()
            self._check_promises()
        elif offset > self._end:
            raise BadBatch(0, f"the segment does not continue the log, which ends at offset {self._end}")
        elif (offset, header.previous_chain) != (self._end, self._chain):
            raise _AnotherHistory(f"the segment does not continue the log, which ends at offset {self._end}")

    def _begin_at_start(self, start: LogStart) -> None:
        self._end, self._epoch, self._chain = start.start.offset, start.start.epoch, start.chain
        self._lowest = start.start.offset
        self._check_promises()

    def _continue(self, position: int, batch: Batch) -> bytes:
        """Accept `batch` if it is the next one. Return the chain before it."""
        assert self._chain is not None
        previous_chain = self._chain
        if batch.base_offset != self._end:
            raise BadBatch(position, f"a batch with base offset {batch.base_offset} where {self._end} is expected")
        if batch.epoch < self._epoch:
            raise BadBatch(position, f"epoch {batch.epoch} after epoch {self._epoch}")
        if not verify_chain(batch, previous_chain):
            raise BadBatch(position, "the batch does not continue the chain")
        try:
            check_format(batch, self._format_version)
        except LogFormatError as e:
            raise _AnotherHistory(str(e)) from e
        self._end, self._epoch, self._chain = batch.end_offset, batch.epoch, batch.chain
        self._time_ms = max(self._time_ms, batch.last_timestamp_ms)
        self._check_start()
        self._check_promises()
        return previous_chain

    def _check_start(self) -> None:
        """Refuse an epoch just below the start that differs from the epoch in `log-start`.

        This node would append its next batch with the noted epoch, and the next recovery would reject that batch.
        """
        if (
            self._start is not None
            and self._start.start != (self._end, self._epoch)
            and self._start.start.offset == self._end
        ):
            raise _AnotherHistory(
                f"epoch {self._epoch} just below offset {self._end}, but log-start says {self._start.start}"
            )

    def _check_promises(self) -> None:
        self._kept.update(promised for promised in self._promised if promised == (self._end, self._chain))

    # --- behind damage ---------------------------------------------------------------------------------------------

    def _resume_behind(self, damage: DamagedPlace) -> Resume | None:
        """Find the place where the log goes on behind `damage`, with proof; None if there is no such place."""
        assert self._chain is not None
        reached = Reached(self._epoch, self._chain, self._time_ms)
        return ResumeSearch(self._directory, self._names, self._known, damage, reached).find()

    def _step_over(self, damage: DamagedPlace, resume: Resume) -> bool:
        """Give each file from `damage` to `resume` its gap. Returns False if the file has another gap already, or is foreign."""
        if (damage.file_index, damage.position) == (resume.file_index, resume.position):
            return True  # the disk could not read the place before, and can now
        before, end, chain = self._last_segment(damage.file_index), resume.header.start.offset, self._chain
        first = damage.file_index
        if before is not None and end == self._end and resume.file_index > first:
            first += 1  # only other bytes behind the last batch of a file: no record is missing
        elif before is not None and before.gap_start is not None:
            return False
        # A file that begins below the log's present end is foreign, except for the first files of the log.
        begun = bool(self.segments)
        is_foreign = [begun and (base_offset_of(name) or 0) < self._end for name in self._names]
        if self._last_segment(resume.file_index) is None and (
            is_foreign[resume.file_index] or self._is_misnamed(resume)
        ):
            return False
        for index in range(first, resume.file_index + 1):
            name, is_last = self._names[index], index == resume.file_index
            if is_last and resume.position == SEGMENT_HEADER_BYTES and header_of(self._directory, name) is not None:
                return True  # an intact file follows; or this file, whose header could not be read before
            base = base_offset_of(name)
            assert base is not None
            if self._last_segment(index) is None:
                if is_foreign[index]:
                    continue
                header = resume.header if resume.header.start.offset == base else self._header_instead(base)
                self.segments.append(Segment(self._directory, name, header, is_header_lost=True))
            segment = self.segments[-1]
            if is_last and resume.position == segment.end_position:
                return True  # only the header is damaged
            following = end if is_last else base_offset_of(self._names[index + 1])
            assert following is not None
            goes_on = IndexEntry(
                following, resume.position if is_last else segment.file.size(), resume.header.previous_chain
            )
            segment.step_over(goes_on, chain, is_end_known=following == end)
            chain = None
        return True

    def _is_misnamed(self, resume: Resume) -> bool:
        """Return True if the file's first batch has another offset than the file's name: no records are missing between
        the name and the batch, because no bytes are. So the file has got another file's name.
        """
        is_first_batch = resume.position == SEGMENT_HEADER_BYTES
        return is_first_batch and resume.header.start.offset != base_offset_of(self._names[resume.file_index])

    def _header_instead(self, base: Offset) -> SegmentHeader | None:
        """Return the header of a file whose own header is damaged, from the batch before; None if that is damaged, too."""
        assert self._chain is not None
        if base != self._end:
            return None
        return SegmentHeader(OffsetAndEpoch(self._end, self._epoch), self._chain, self._time_ms)

    def _missing(self, damage: DamagedPlace, resume: Resume) -> DamagedRange:
        """Record a damaged range. The part of the range below the log's start is left out: those records are not
        missing.
        """
        (end, epoch_after), chain_after, timestamp_ms = resume.header
        assert self._chain is not None
        start, chain_before = damage.offset, self._chain
        if self._start is not None and start < self._start.start.offset < end:
            start, chain_before = self._start.start.offset, self._start.chain
            self._kept.add(Flushed(start, chain_before))
        name = self._names[damage.file_index]
        damaged = DamagedRange(start, end, chain_before, chain_after, name, damage.position, epoch_after, timestamp_ms)
        self.ranges.append(damaged)
        self._end, self._epoch, self._chain, self._time_ms = end, epoch_after, chain_after, timestamp_ms
        self._check_promises()
        return damaged

    def _where(self) -> CorruptLog:
        damage, path = self._damage, self._directory.path_text
        if damage is not None:
            return CorruptLog.at(f"{path}/{self._names[damage.file_index]}", damage.position, self._end, damage.reason)
        if not self.segments:
            return CorruptLog.at(f"{path}/no segment", 0, self._end, "there is no log")
        last = self.segments[-1]
        return CorruptLog.at(f"{path}/{last.name}", last.end_position, self._end, "the log ends here")
