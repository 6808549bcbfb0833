"""A damaged range inside a log, and the errors that report damage.

    intact, chain verified |<~~~ lost records ~~~>| intact, chain verified up to the durable end
                         start                   end
                   chain_before             chain_after

Each batch's chain is a hash over the previous chain and the batch. So one chain that was noted as durable proves all
history before it, back to `chain_after`. Batches that begin at `chain_before` and arrive at `chain_after` are therefore
the lost bytes, whichever node sent them. Example:
  1. node 1 has lost the records 40..49; its log knows the chain at 40 (`chain_before`) and at 50 (`chain_after`);
  2. node 2 sends batches for 40..49, and the log computes the chain from 40 over these batches;
  3. the result equals the chain at 50: node 1 has every lost byte again. Any other result: node 1 refuses the batches.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

from metadata_log.format.errors import CorruptLog
from metadata_log.format.ids import Epoch, Offset


class DamagedRange(NamedTuple):
    """The lost records [start, end). Their bytes were stored from byte `position` of `file` on, perhaps in more files.

    A range has whole batches only. It may include intact batches just before `end`, because nothing proves them.
    """

    start: Offset
    end: Offset
    chain_before: bytes
    chain_after: bytes
    file: str
    position: int
    epoch_after: Epoch
    """The epoch of the range's last record."""
    timestamp_after_ms: int
    """The time of the range's last batch."""

    def above(self, start: Offset, chain: bytes) -> "DamagedRange":
        """Return the rest of the range for a log that starts at `start`, with `chain` there. Records below a log's
        start are not missing.
        """
        return self._replace(start=start, chain_before=chain) if self.start < start else self

    def __str__(self) -> str:
        return f"[{self.start}, {self.end}) from {self.file} byte {self.position} on"


class DamageLedger:
    """The damaged ranges of one log, oldest first.

    No two ranges have a record in common. Two ranges may meet at an offset where a file's intact header has the chain.
    """

    def __init__(self, ranges: Sequence[DamagedRange] = ()) -> None:
        self.ranges = tuple(ranges)

    def at(self, offset: Offset) -> DamagedRange | None:
        """Return the range that includes the record at `offset`."""
        return next((each for each in self.ranges if each.start <= offset < each.end), None)

    def within(self, offset: Offset) -> DamagedRange | None:
        """Return the range that hides the chain at `offset`: `offset` is neither its start nor its end."""
        return next((each for each in self.ranges if each.start < offset < each.end), None)

    def chain_at(self, offset: Offset) -> bytes | None:
        """Return the chain at `offset`, if a range starts or ends there."""
        for each in self.ranges:
            if offset in (each.start, each.end):
                return each.chain_before if offset == each.start else each.chain_after
        return None

    def overlapping(self, start: Offset, end: Offset) -> DamagedRange | None:
        """Return the first range with a record in [start, end)."""
        return next((each for each in self.ranges if each.start < end and start < each.end), None)

    def note(self, damaged: DamagedRange) -> None:
        """Add a range, in place of the ranges that it includes."""
        others = [each for each in self.ranges if each.end <= damaged.start or damaged.end <= each.start]
        self.ranges = tuple(sorted([*others, damaged]))

    def repaired(self, damaged: DamagedRange) -> None:
        self.ranges = tuple(each for each in self.ranges if each != damaged)

    def cut(self, end: Offset) -> None:
        """Drop what lies above `end`, the log's new end."""
        self.ranges = tuple(each for each in self.ranges if each.end <= end)

    def forget_below(self, start: Offset, chain: bytes) -> None:
        """Drop what lies below `start`, the log's new start: the log does not miss those records."""
        self.ranges = tuple(each.above(start, chain) for each in self.ranges if each.end > start)


class DamagedRangeRead(CorruptLog):
    """A read met a damaged range. The reader has to wait for the repair, or ask another node."""

    damaged: DamagedRange

    @classmethod
    def of(cls, path_text: str, damaged: DamagedRange) -> Self:
        error = cls(f"{path_text}: the records {damaged} are damaged; read them after the repair, or from another node")
        error.file, error.position, error.offset = f"{path_text}/{damaged.file}", damaged.position, damaged.start
        error.damaged = damaged
        return error


class LostTail(CorruptLog):
    """The log is intact up to `lost_from` only, although all records below `durable_end` had been durable on this node.

    No chain above the damage is left, so no repair can be proven. The node may go on only as a replica that has lost
    acknowledged records: `Log.open(accept_loss=True)`.
    """

    lost_from: Offset
    durable_end: Offset
    durable_chain: bytes

    @classmethod
    def what(cls, where: CorruptLog, lost_from: Offset, durable_end: Offset, durable_chain: bytes) -> Self:
        error = cls(f"{where}; all below {durable_end} had been durable")
        error.file, error.position, error.offset = where.file, where.position, where.offset
        error.lost_from, error.durable_end, error.durable_chain = lost_from, durable_end, durable_chain
        return error
