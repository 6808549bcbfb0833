"""What a crash has left, judged: which bytes are the log, what is a torn tail, and what is corruption.

A power cut keeps any subset of the sectors that were not flushed. So *above* what was once durable there may be anything:
half a batch, a hole, a later batch without an earlier one. That is a torn tail; nobody was told of it, and it is cut.
*Below*, all was there once. Damage there was done by something else, others may have been told of those records, and
cutting them away would be forgetting what was promised. It is never cut: `CorruptLog`.

    scanned intact               o                          o = the first offset that is not intact
    [---------------------------|~~~~~~~~~~~~~~)
                  ^                                noted here: a torn tail, cut at o
                                      ^            noted here: corruption

Where the note `flushed` is missing or unreadable (no crash of ours does that), only the bytes can speak: if an intact batch of
a later offset stands anywhere behind the damage, the damage is taken for corruption, else for a torn tail.
"""

from collections.abc import Iterator
from typing import NamedTuple

from metadata_log.batch import Batch, verify_chain
from metadata_log.errors import CorruptLog, LogFormatError
from metadata_log.files import Directory
from metadata_log.ids import Epoch, Offset
from metadata_log.log_notes import Flushed, LogStart
from metadata_log.segment import SEGMENT_HEADER_BYTES, BadBatch, Segment, base_offset_of, walk


class Damage(NamedTuple):
    """The first place that is not intact: in the `segment_index`-th file, at byte `position`; intact up to `offset`."""

    segment_index: int
    position: int
    offset: Offset
    reason: str


def segment_names(directory: Directory) -> list[str]:
    """The names of the segments in `directory`, oldest first. Other files are other people's."""
    return [name for name in directory.names() if base_offset_of(name) is not None]


def _has_header(directory: Directory, name: str) -> bool:
    try:
        Segment.open(directory, name).close()
    except LogFormatError:
        return False
    return True


class Recovery:
    """One recovery of one directory: `batches` scans, then `settle` judges and repairs, once each."""

    def __init__(self, directory: Directory, start: LogStart | None, note: Flushed | None) -> None:
        names = segment_names(directory)
        start_offset = start.start.offset if start else 0
        first = sum(1 for name in names[1:] if (base_offset_of(name) or 0) <= start_offset)
        # Cut back to its start, a log goes on in a new segment there; a crash may have left that one without a header,
        # and then the log's end is still in the segment before.
        while first > 0 and not _has_header(directory, names[first]):
            first -= 1
        self.retired_names = names[:first]
        """Segments wholly below the log's start, which a crash kept from being retired."""
        self.segments: list[Segment] = []
        """The intact segments, oldest first; the last one may be empty."""
        self._directory = directory
        self._names = names[first:]
        self._start = start
        self._note = note
        self._damage: Damage | None = None
        self._end: Offset = start_offset
        self._chain: bytes | None = None
        self._epoch: Epoch = 0
        self._promised = [Flushed(start.start.offset, start.chain)] if start else []
        """Places that were durable once, with the chain there."""
        if note:
            self._promised.append(note)
        self._kept = 0

    @property
    def start(self) -> LogStart:
        """Where the log starts: as noted, or else where its first segment does. To be asked after the first batch."""
        if self._start is not None:
            return self._start
        header = self.segments[0].header
        return LogStart(header.start, header.previous_chain, header.previous_timestamp_ms)

    def batches(self) -> Iterator[Batch]:
        """Every intact batch in order, also those below the log's start."""
        for index, name in enumerate(self._names):
            try:
                segment = Segment.open(self._directory, name)
                self._enter(segment)
            except LogFormatError as e:
                self._damage = Damage(index, 0, self._end, str(e))
                return
            self.segments.append(segment)
            try:
                for position, batch in walk(segment.file, SEGMENT_HEADER_BYTES, segment.file.size()):
                    previous_chain = self._continue(position, batch)
                    segment.extend(batch, previous_chain)
                    yield batch
                if not segment.tail_is_zero():
                    raise BadBatch(segment.end_position, "something other than zeros after the last batch")
            except BadBatch as e:
                self._damage = Damage(index, e.position, self._end, str(e))
                return

    def _enter(self, segment: Segment) -> None:
        """Checks that `segment` continues the ones before it."""
        header = segment.header
        if self._chain is None:
            self._end, self._epoch, self._chain = header.start.offset, header.start.epoch, header.previous_chain
            self._check_promises()
        elif (header.start.offset, header.previous_chain) != (self._end, self._chain):
            segment.close()
            raise LogFormatError(f"the segment does not continue the log, which ends at offset {self._end}")

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
        self._check_promises()
        return previous_chain

    def _check_promises(self) -> None:
        self._kept += sum(1 for promised in self._promised if promised == (self._end, self._chain))

    def settle(self) -> bool:
        """Cuts a torn tail, durably; True if there was one.

        Raises:
            CorruptLog: something that was durable once is not there, or not what it was. Nothing was changed.
        """
        damage = self._damage
        promised_end = max((promised.end for promised in self._promised), default=0)
        if (
            self._end < promised_end
            or not self.segments
            or (damage and self._damage_is_corruption(damage, promised_end))
        ):
            index = damage.segment_index if damage else len(self._names) - 1
            position = damage.position if damage else self.segments[-1].end_position if self.segments else 0
            reason = damage.reason if damage else "the log ends here"
            path = f"{self._directory.path_text}/{self._names[index] if self._names else 'no segment'}"
            raise CorruptLog.at(path, position, self._end, f"{reason}; all below {promised_end} had been durable")
        lowest = self.segments[0].base_offset
        if self._start and self._start.start.offset < lowest:
            reason = f"the segment in which the log starts, at {self._start.start.offset}, is missing"
            raise CorruptLog.at(self._directory.path_text, 0, self._start.start.offset, reason)
        if self._kept < sum(1 for promised in self._promised if promised.end >= lowest):
            places = ", ".join(str(promised.end) for promised in self._promised)
            raise CorruptLog.at(
                self._directory.path_text, 0, lowest, f"the chain at {places} is not the one noted there"
            )
        if damage:
            self._cut(damage)
        return damage is not None

    def _damage_is_corruption(self, damage: Damage, promised_end: Offset) -> bool:
        if damage.offset < promised_end:
            return True
        if self._note is not None:
            return False
        if damage.segment_index < len(self.segments):
            segment = self.segments[damage.segment_index]
            if segment.intact_batch_after(damage.position, damage.offset):
                return True
        return any(self._has_batches(name) for name in self._names[damage.segment_index + 1 :])

    def _has_batches(self, name: str) -> bool:
        try:
            segment = Segment.open(self._directory, name)
        except LogFormatError:
            return False
        try:
            return any(True for _ in walk(segment.file, SEGMENT_HEADER_BYTES, segment.file.size()))
        except BadBatch:
            return False
        finally:
            segment.close()

    def _cut(self, damage: Damage) -> None:
        # The newest goes first: whatever a crash in here leaves is again an intact log with a torn tail.
        kept = len(self.segments)
        for name in reversed(self._names[kept:]):
            self._directory.remove(name)
        self._directory.flush()
        if damage.segment_index < kept:
            self.segments[damage.segment_index].cut_tail()
