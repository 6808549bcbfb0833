"""The place at which a log goes on behind damage.

A batch behind damage is believed only if it leads, batch by batch, to a known chain: the previous chain in the next
segment's header or, in the last segment, the chain at the durable end. So bytes that only look like a batch, such as the
bytes of a batch inside a record, are never believed. Behind a damaged header, the first batch is believed if it
continues the batch before the header.

A file has at most one damaged range: intact batches between two damaged places count as damaged. Example: a file has
batches at 10, 20, 30, 40 and 50, the batch at 20 is damaged, and the next file's header says that the chain at 60 is C.
  1. The batches at 30, 40 and 50 continue each other and lead to C at 60.
  2. The batch at 30 cannot be checked, because the chain before is lost; the batch at 40 confirms only the chain at 40.
  3. So the log goes on at 40, and the damaged range is [20, 40).
  4. If the batch at 40 is damaged as well, only the batch at 50 leads to C. The log goes on at 60: the range is [20, 60).
"""

from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

from metadata_log.disk.files import Directory
from metadata_log.format.batch import Batch, verify_chain
from metadata_log.format.ids import Epoch, Offset, OffsetAndEpoch
from metadata_log.store.log_notes import Flushed
from metadata_log.store.salvage import first_that_leads_to, intact_batches
from metadata_log.store.segment import SEGMENT_HEADER_BYTES, SegmentHeader, base_offset_of, header_of


class DamagedPlace(NamedTuple):
    """The first damaged place: byte `position` of the `file_index`-th file. The log is intact up to `offset`."""

    file_index: int
    position: int
    offset: Offset
    reason: str


class Resume(NamedTuple):
    """The place behind damage from which the log can be read: `position` in the `file_index`-th file. `header.start`
    comes next.
    """

    file_index: int
    position: int
    header: SegmentHeader


class Reached(NamedTuple):
    """The end of the intact batches before the damage: epoch, chain and time of the last one."""

    epoch: Epoch
    chain: bytes
    timestamp_ms: int


class ResumeSearch:
    """The search for the place where one log goes on behind one damage."""

    def __init__(
        self,
        directory: Directory,
        names: Sequence[str],
        durable: Flushed | None,
        damage: DamagedPlace,
        reached: Reached,
    ) -> None:
        """`names` are the log's segments; `durable` is the durable end, if known."""
        self._directory = directory
        self._names = names
        self._durable = durable
        self._damage = damage
        self._reached = reached

    def find(self) -> Resume | None:
        """Find the place where the log goes on behind `damage`, with proof; None if there is no such place."""
        for index in range(self._damage.file_index, len(self._names)):
            position = self._damage.position if index == self._damage.file_index else 0
            if position == 0:
                header = header_of(self._directory, self._names[index])
                if header is not None:
                    return self._resume_at(header, index)
                resume = self._resume_at_next_batch(index)
                if resume is not None:
                    return resume
                position = SEGMENT_HEADER_BYTES
            header_behind = self._header_behind(index)
            known = (
                Flushed(header_behind.start.offset, header_behind.previous_chain) if header_behind else self._durable
            )
            if known is not None and known.end > self._damage.offset:
                resume = self._resume_in(index, position, known, has_next=header_behind is not None)
                if resume is not None:
                    return resume
        return None

    def _resume_at(self, header: SegmentHeader, index: int) -> Resume | None:
        """Resume at the beginning of an intact file; None if this file cannot come after the batches read before."""
        offset = header.start.offset
        if (
            offset < self._damage.offset
            or header.start.epoch < self._reached.epoch
            or (offset == self._damage.offset and header.previous_chain != self._reached.chain)
        ):
            return None
        return Resume(index, SEGMENT_HEADER_BYTES, header)

    def _resume_at_next_batch(self, index: int) -> Resume | None:
        """Resume behind a damaged header, at a batch that continues the batches read before or the log's start.

        The known durable end does not matter here: a header is durable before any batch is written, so a damaged header
        is not a torn tail.
        """
        with closing(self._directory.open(self._names[index])) as file:
            for position, batch in intact_batches(file, SEGMENT_HEADER_BYTES, self._lowest(index)):
                resume = self._continuing(index, position, batch)
                if resume is not None:
                    return resume
        return None

    def _lowest(self, index: int) -> Offset:
        """Return the lowest offset that a batch of the file may have: a file has no batch below its name."""
        return max(self._damage.offset, base_offset_of(self._names[index]) or 0)

    def _continuing(self, index: int, position: int, batch: Batch) -> Resume | None:
        """Resume at `batch`, if `batch` continues the batches read before."""
        epoch, chain, timestamp_ms = self._reached
        if batch.base_offset != self._damage.offset or batch.epoch < epoch or not verify_chain(batch, chain):
            return None
        header = SegmentHeader(OffsetAndEpoch(self._damage.offset, epoch), chain, timestamp_ms)
        return Resume(index, position, header)

    def _header_behind(self, index: int) -> SegmentHeader | None:
        """Return the next file's header; None if this file is the last one or that header is damaged."""
        return header_of(self._directory, self._names[index + 1]) if index + 1 < len(self._names) else None

    def _resume_in(self, index: int, position: int, known: Flushed, *, has_next: bool) -> Resume | None:
        """Resume inside a file, behind the first intact batch of those that lead to `known`."""
        with closing(self._directory.open(self._names[index])) as file:
            found = first_that_leads_to(known, intact_batches(file, position, self._lowest(index)), self._reached.epoch)
        if found is None:
            return None
        at, first = found
        if first.end_offset == known.end and has_next:
            return None  # only the beginning of the next file is proven
        behind_it = Resume(index, at + len(first.data), SegmentHeader(first.end, first.chain, first.last_timestamp_ms))
        return self._continuing(index, at, first) or behind_it
