"""What a crash or a bad disk has left, judged: which bytes are the log, what is a torn tail, and what is damage.

A power cut keeps any subset of the sectors that were not flushed. So *above* what was once durable there may be anything:
half a batch, a hole, a later batch without an earlier one. That is a torn tail; nobody was told of it, and it is cut.
*Below*, all was there once. Damage there was done by something else, others may have been told of those records, and
cutting them away would be forgetting what was promised. It is never cut.

    intact               o                           o = the first offset that is not intact
    [--------------------|~~~~~~~~~~~~~~)
                ^                                    durable up to here: a torn tail, cut at o
                                  ^                  durable up to here, and nothing intact leads there: LostTail
    [--------------------|~~~|-----------------)
                                  ^                  durable up to here: a DamagedRange, and the log is read on behind it

How far it was durable is said by the note `flushed`; and by each segment's header for all segments before, because one is
sealed before the next exists.

*Picking the log up behind damage.* The place where to go on is one that leads, batch by batch, to a chain that is known: the
previous chain in the next segment's header or, in the last segment, the noted one. So what looks like a batch and is none
(the bytes of one may stand inside a record) misleads nobody. In one file at most one range is damaged: what lies intact
between two damaged places counts with them. Only behind a header the first batch may prove itself: it continues what is before.

Where the note is missing or damaged (no crash of ours does that), only the bytes can speak: if in the last segment an intact
batch of a later offset stands anywhere behind the damage, that is loss, else a torn tail. So it is where the disk cannot read
what stands above the note: a power cut brings back an older note, and leaves torn what can be read. Where the disk cannot read
the note itself, it is done without only if the log reads to a clean end: the note is there, and may say more than the bytes.

A power cut may also bring back a note that is older than the node's own newest snapshot, which was made of what was durable.
So what is damaged below the snapshot's end is no torn tail. Where the log goes on from there, it is picked up behind the
damage, as far as that leads. Where it does not, because the record at the snapshot's end is damaged too, a batch that stands
above is loss, as it is without a note. A snapshot that a crash has left before the log was reset to it has nothing above it.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Final, NamedTuple

from metadata_log.disk.copy import copy_file
from metadata_log.disk.files import Directory
from metadata_log.format.batch import Batch, verify_chain
from metadata_log.format.errors import CorruptLog, LogFormatError
from metadata_log.format.ids import Epoch, Offset, OffsetAndEpoch
from metadata_log.store.damage import DamagedRange, LostTail
from metadata_log.store.log_notes import FLUSHED_NAME, Flushed, LogStart
from metadata_log.store.salvage import first_that_leads_to, intact_batches
from metadata_log.store.segment import (
    SEGMENT_HEADER_BYTES,
    BadBatch,
    Segment,
    SegmentHeader,
    UnreadableBatch,
    UnsupportedSegment,
    base_offset_of,
    is_leftover,
    segment_name,
    walk,
)

DAMAGED_SUFFIX: Final = ".damaged"


class Damage(NamedTuple):
    """The first place that is not intact: in the `segment_index`-th file, at byte `position`; intact up to `offset`."""

    segment_index: int
    position: int
    offset: Offset
    reason: str
    is_unreadable: bool = False
    """The disk cannot read it: no power cut of ours leaves that."""


class _Resume(NamedTuple):
    """Where the log can be read again: from `position` of the `index`-th file on, where `header.start` is what comes next."""

    file_index: int
    position: int
    header: SegmentHeader


class _AnotherHistory(Exception):
    """A segment that is intact and does not belong to this log. Nothing behind it can be trusted to."""


def segment_names(directory: Directory) -> list[str]:
    """The names of the segments in `directory`, oldest first. Other files are other people's."""
    return [name for name in directory.names() if base_offset_of(name) is not None]


def header_of(directory: Directory, name: str) -> SegmentHeader | None:
    """What the header of a segment says; None if it is damaged."""
    try:
        segment = Segment.open(directory, name)
    except LogFormatError:
        return None
    segment.release()
    return segment.header


def continued(directory: Directory, place: Flushed) -> Flushed:
    """How far what stands in the segments goes on from a place that is known, whatever is damaged below and in between."""
    end, chain = place
    for name in segment_names(directory):
        with closing(directory.open(name)) as file:
            for _, batch in intact_batches(file, SEGMENT_HEADER_BYTES, end):
                if batch.base_offset == end and verify_chain(batch, chain):
                    end, chain = batch.end_offset, batch.chain
    return Flushed(end, chain)


def _furthest_known(directory: Directory, note: Flushed | None, snapshot: Flushed | None) -> Flushed | None:
    """How far the log was durable, as the note says; or as far as it goes on from a snapshot's end, if that is further."""
    if snapshot is None or (note is not None and note.end >= snapshot.end):
        return note
    end = continued(directory, snapshot)
    return end if end.end > snapshot.end else note


class Recovery:
    """One recovery of one directory: `read` scans, then `settle` judges and cuts, once each."""

    def __init__(
        self, directory: Directory, start: LogStart | None, note: Flushed | None, snapshot: Flushed | None = None
    ) -> None:
        """`note` says how far it was durable; `snapshot` is the end of a snapshot that is durable beside it."""
        names = segment_names(directory)
        self._leftovers = [name for name in names if is_leftover(directory, name)]
        names = [name for name in names if name not in self._leftovers]
        start_offset = start.start.offset if start else 0
        first = sum(1 for name in names[1:] if (base_offset_of(name) or 0) <= start_offset)
        # Where the header of the segment at the start is damaged, only the one before can lead into it.
        while first > 0 and header_of(directory, names[first]) is None:
            first -= 1
        self.retired_names = names[:first]
        """Segments wholly below the log's start, which a crash kept from being retired."""
        self.segments: list[Segment] = []
        """The intact pieces, oldest first: what stands in one file, without damage in between. The last one may be empty."""
        self.ranges: list[DamagedRange] = []
        """What is damaged between two of those. One may be empty: then a header is damaged, or there is rubbish in between."""
        self._directory = directory
        self._names = names[first:]
        self._start = start
        self._note = note
        self._known = _furthest_known(directory, note, snapshot)
        """The place that the last segment leads to."""
        self._snapshot_end: Offset = 0 if snapshot is None else snapshot.end
        self._damage: Damage | None = None
        self._foreign = False
        self._end: Offset = start_offset
        self._chain: bytes | None = None
        self._epoch: Epoch = 0
        self._promised = [Flushed(start.start.offset, start.chain)] if start else []
        """Places that were durable once, with the chain there."""
        self._promised += [place for place in (note, self._known) if place is not None]
        self._kept: set[Flushed] = set()
        self._lowest: Offset = start_offset
        self._time_ms = start.timestamp_ms if start else 0

    @property
    def start(self) -> LogStart:
        """Where the log starts: as noted, or else where its first segment does. To be asked after the first item read."""
        if self._start is not None:
            return self._start
        header = self.segments[0].header
        return LogStart(header.start, header.previous_chain, header.previous_timestamp_ms)

    @property
    def stop(self) -> CorruptLog | None:
        """Why it was not read any further; None where all of it was."""
        return None if self._damage is None else self._where()

    # --- reading ---------------------------------------------------------------------------------------------------

    def read(self) -> Iterator[Batch | DamagedRange]:
        """All that can be read, in order, also what lies below the log's start."""
        index = 0
        resume: _Resume | None = None
        while index < len(self._names):
            try:
                yield from self._read_file(index, resume)
                index, resume = index + 1, None
                continue
            except _AnotherHistory as e:
                self._foreign = True
                self._damage = Damage(index, 0, self._end, str(e))
                return
            except BadBatch as e:
                damage = Damage(index, e.position, self._end, str(e), isinstance(e, UnreadableBatch))
            if self._chain is None and self._start is not None:
                self._stand_at_start(self._start)
            resume = None if self._chain is None else self._resume_behind(damage)
            if resume is None:
                self._damage = damage
                return
            if self._has_nothing_before(resume):
                self.segments.pop()  # the disk has not given the very first batch, and gives it now
                index = resume.file_index
                continue
            yield self._step_over(damage, resume)
            index = resume.file_index

    def _has_nothing_before(self, resume: _Resume) -> bool:
        """Whether the last piece is an empty one, and stands where the log is to go on."""
        place = (self._names[resume.file_index], resume.position, resume.position)
        return any((each.name, each.first_position, each.end_position) == place for each in self.segments[-1:])

    def _read_file(self, index: int, resume: _Resume | None) -> Iterator[Batch]:
        """The batches of one file, or those behind the damage in it."""
        segment = self._open(index, resume)
        self.segments.append(segment)
        for position, batch in walk(segment.file, segment.first_position, segment.file.size()):
            previous_chain = self._continue(position, batch)
            segment.extend(batch, previous_chain)
            yield batch
        if not segment.tail_is_zero():
            raise BadBatch(segment.end_position, "something other than zeros after the last batch")
        segment.release()

    def _open(self, index: int, resume: _Resume | None) -> Segment:
        name = self._names[index]
        if resume is not None and (resume.position > SEGMENT_HEADER_BYTES or resume.file_index != index):
            return Segment(self._directory, name, resume.header, resume.position)
        try:
            segment = Segment.open(self._directory, name)
        except UnsupportedSegment as e:
            raise _AnotherHistory(str(e)) from e
        except LogFormatError as e:
            if resume is not None:
                return Segment(self._directory, name, resume.header, resume.position)
            raise BadBatch(0, str(e)) from e
        if resume is None:
            self._enter(segment.header)
        return segment

    def _enter(self, header: SegmentHeader) -> None:
        """Checks that a segment with this header continues the ones before it."""
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

    def _stand_at_start(self, start: LogStart) -> None:
        self._end, self._epoch, self._chain = start.start.offset, start.start.epoch, start.chain
        self._lowest = start.start.offset
        self._check_promises()

    def _continue(self, position: int, batch: Batch) -> bytes:
        """Takes `batch` as the next one, if it is; gives the chain before it."""
        assert self._chain is not None
        previous_chain = self._chain
        if batch.base_offset != self._end:
            raise BadBatch(position, f"a batch with base offset {batch.base_offset} where {self._end} comes next")
        if batch.epoch < self._epoch:
            raise BadBatch(position, f"epoch {batch.epoch} after epoch {self._epoch}")
        if not verify_chain(batch, previous_chain):
            raise BadBatch(position, "the batch does not continue the chain")
        self._end, self._epoch, self._chain = batch.end_offset, batch.epoch, batch.chain
        self._time_ms = max(self._time_ms, batch.last_timestamp_ms)
        self._check_start()
        self._check_promises()
        return previous_chain

    def _check_start(self) -> None:
        """What this node appended next would be of the noted epoch, and its next recovery would take that for an older one."""
        if (
            self._start is not None
            and self._start.start != (self._end, self._epoch)
            and self._start.start.offset == self._end
        ):
            raise _AnotherHistory(
                f"epoch {self._epoch} just below offset {self._end}; the log is noted to start at {self._start.start}"
            )

    def _check_promises(self) -> None:
        self._kept.update(promised for promised in self._promised if promised == (self._end, self._chain))

    # --- behind damage ---------------------------------------------------------------------------------------------

    def _resume_behind(self, damage: Damage) -> _Resume | None:
        """Where the log goes on behind `damage`, proven; None if it does not."""
        for index in range(damage.segment_index, len(self._names)):
            position = damage.position if index == damage.segment_index else 0
            if position == 0:
                header = header_of(self._directory, self._names[index])
                if header is not None:
                    return self._resume_at(header, index, damage)
                resume = self._resume_at_next_batch(index, damage)
                if resume is not None:
                    return resume
                position = SEGMENT_HEADER_BYTES
            header_behind = self._header_behind(index)
            known = Flushed(header_behind.start.offset, header_behind.previous_chain) if header_behind else self._known
            if known is not None and known.end > damage.offset:
                resume = self._resume_in(index, position, damage, known, has_next=header_behind is not None)
                if resume is not None:
                    return resume
        return None

    def _resume_at(self, header: SegmentHeader, index: int, damage: Damage) -> _Resume | None:
        """At the beginning of an intact file; None if that cannot come after what was read before."""
        offset = header.start.offset
        if (
            offset < damage.offset
            or header.start.epoch < self._epoch
            or (offset == damage.offset and header.previous_chain != self._chain)
        ):
            return None
        return _Resume(index, SEGMENT_HEADER_BYTES, header)

    def _resume_at_next_batch(self, index: int, damage: Damage) -> _Resume | None:
        """Behind a damaged header, if a batch there continues what was read before, or the log's start.

        Whatever is known of the end: the header was durable before any batch was written, so this is no torn tail.
        """
        with closing(self._directory.open(self._names[index])) as file:
            for position, batch in intact_batches(file, SEGMENT_HEADER_BYTES, damage.offset):
                resume = self._continuing(damage, index, position, batch)
                if resume is not None:
                    return resume
        return None

    def _continuing(self, damage: Damage, index: int, position: int, batch: Batch) -> _Resume | None:
        """At `batch`, if it is the one that comes next."""
        assert self._chain is not None
        if batch.base_offset != damage.offset or batch.epoch < self._epoch or not verify_chain(batch, self._chain):
            return None
        header = SegmentHeader(OffsetAndEpoch(damage.offset, self._epoch), self._chain, self._time_ms)
        return _Resume(index, position, header)

    def _header_behind(self, index: int) -> SegmentHeader | None:
        """The next file's; None where the log ends, or if that file's is damaged."""
        return header_of(self._directory, self._names[index + 1]) if index + 1 < len(self._names) else None

    def _resume_in(
        self, index: int, position: int, damage: Damage, known: Flushed, *, has_next: bool
    ) -> _Resume | None:
        """In the middle of a file, behind the first intact batch of those that lead to what is known."""
        with closing(self._directory.open(self._names[index])) as file:
            found = first_that_leads_to(known, intact_batches(file, position, damage.offset), self._epoch)
        if found is None:
            return None
        at, first = found
        if first.end_offset == known.end and has_next:
            return None  # only the next file is proven
        behind_it = _Resume(index, at + len(first.data), SegmentHeader(first.end, first.chain, first.last_timestamp_ms))
        return self._continuing(damage, index, at, first) or behind_it

    def _step_over(self, damage: Damage, resume: _Resume) -> DamagedRange:
        """Takes note of what is damaged; what lies below the log's start is nobody's loss."""
        (end, epoch_after), chain_after, timestamp_ms = resume.header
        assert self._chain is not None
        start, chain_before = damage.offset, self._chain
        if self._start is not None and start < self._start.start.offset < end:
            start, chain_before = self._start.start.offset, self._start.chain
            self._kept.add(Flushed(start, chain_before))
        damaged = DamagedRange(
            start,
            end,
            chain_before,
            chain_after,
            file=self._names[damage.segment_index],
            position=damage.position,
            end_file=self._names[resume.file_index],
            end_position=resume.position,
            epoch_after=epoch_after,
            timestamp_after_ms=timestamp_ms,
        )
        self.ranges.append(damaged)
        if end > damage.offset:
            self._end, self._epoch, self._chain, self._time_ms = end, epoch_after, chain_after, timestamp_ms
            self._check_promises()
        return damaged

    # --- judging ---------------------------------------------------------------------------------------------------

    def settle(self, *, may_lose: Callable[[], bool], unread: OSError | None = None) -> Flushed | None:
        """What had been durable and is gone, where that is the log's end; None if nothing is. Changes nothing.

        `unread` is why the disk could not give the note. Without it, nothing but a clean end is believed: all that can be
        read may have been followed by what others were told of.

        Raises:
            LostTail: that, unless whoever opens this `may_lose` it.
            CorruptLog: what is there is not what it was, or does not belong together.
            OSError: `unread`, where the log does not read to a clean end. Another start may be given the note.
        """
        damage, where = self._damage, self._where()
        if self._foreign:
            raise where
        if unread is not None and (damage is not None or not self.segments):
            text = f"{self._directory.path_text}/{FLUSHED_NAME}: the disk cannot read how far this log was durable"
            raise OSError(unread.errno, f"{text} ({unread.strerror}), which must be known: {where}") from unread
        promised = max(self._promised, default=Flushed(0, b""))
        lost = promised if self._end < promised.end else None
        if lost is None and damage is not None:
            lost = self._lost_behind(damage)
        if not self.segments and lost is None and not self._is_empty():
            raise where
        if self.segments:
            self._check_promises_kept()
        if lost is not None and not may_lose():
            raise LostTail.what(where, self._end, lost.end, lost.chain)
        return lost

    def _is_empty(self) -> bool:
        """Whether there is nothing but a file without a header where the log starts, and the note knows of nothing above that.

        After an install on an idle cluster the header may be all that a log has, for hours.
        """
        start = self._start.start.offset if self._start else 0
        return self._note is not None and not self._names and self._leftovers == [segment_name(start)]

    def _where(self) -> CorruptLog:
        damage, path = self._damage, self._directory.path_text
        if damage is not None:
            return CorruptLog.at(
                f"{path}/{self._names[damage.segment_index]}", damage.position, self._end, damage.reason
            )
        if not self.segments:
            return CorruptLog.at(f"{path}/no segment", 0, self._end, "there is no log")
        last = self.segments[-1]
        return CorruptLog.at(f"{path}/{last.name}", last.end_position, self._end, "the log ends here")

    def _check_promises_kept(self) -> None:
        for promised in self._promised:
            end = promised.end
            within = any(damaged.start < end < damaged.end for damaged in self.ranges)
            if promised not in self._kept and self._lowest <= end <= self._end and not within:
                reason = f"the chain at {end} is not the one noted there"
                raise CorruptLog.at(self._directory.path_text, 0, self._lowest, reason)

    def _lost_behind(self, damage: Damage) -> Flushed | None:
        """Up to where what stands behind `damage` had been durable; None where that is a torn tail, as far as anyone knows."""
        without_note = self._note is None or damage.is_unreadable
        if not without_note and damage.offset >= self._snapshot_end:
            return None
        last: Flushed | None = None
        for batch in self._intact_behind(damage, damage.offset + 1 if without_note else self._snapshot_end):
            if batch.base_offset == self._snapshot_end and not without_note:
                return None  # intact, and does not go on from the snapshot: this is another history
            last = max(last or Flushed(0, b""), Flushed(batch.end_offset, batch.chain))
        return last

    def _intact_behind(self, damage: Damage, lowest: Offset) -> Iterator[Batch]:
        for index in range(damage.segment_index, len(self._names)):
            position = damage.position if index == damage.segment_index else SEGMENT_HEADER_BYTES
            with closing(self._directory.open(self._names[index])) as file:
                for _, batch in intact_batches(file, position, lowest):
                    yield batch

    # --- cutting ---------------------------------------------------------------------------------------------------

    def set_aside(self) -> None:
        """Copies what `cut` would take from a file, durably: what was lost is kept for whoever wants to look into it."""
        damage = self._damage
        if damage is not None and self.segments and self.segments[-1].name == self._names[damage.segment_index]:
            copy_file(self._directory, self.segments[-1].name, self.segments[-1].name + DAMAGED_SUFFIX)

    def cut(self, *, keep_files: bool) -> None:
        """The log ends where it is intact, durably. Whole files behind that are removed, or kept under another name."""
        for name in self._leftovers:
            self._directory.remove(name)
        damage = self._damage
        if damage is None:
            return
        kept = self._names.index(self.segments[-1].name) + 1 if self.segments else 0
        # The newest goes first: whatever a crash in here leaves is again an intact log with a torn tail.
        for name in reversed(self._names[kept:]):
            if keep_files:
                self._directory.rename(name, name + DAMAGED_SUFFIX)
            else:
                self._directory.remove(name)
        self._directory.flush()
        if damage.segment_index < kept:
            self.segments[-1].cut_tail()
