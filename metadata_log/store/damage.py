"""Damage inside a log, with proven history on both sides of it: what is known of it, and the errors that speak of it.

    intact, chain verified |<~~~ lost here ~~~>| intact, chain verified up to what was durable
                         start                end
                   chain_before          chain_after

Each batch's chain is a hash over the chain before it, so a history that is followed from `chain_after` to a chain that was noted
as durable proves `chain_after` itself: there is one history only that leads there. Whoever fills the range from `chain_before`
and arrives at `chain_after` has put back every byte that was there.
"""

from typing import NamedTuple, Self

from metadata_log.format.errors import CorruptLog
from metadata_log.format.ids import Epoch, Offset


class DamagedRange(NamedTuple):
    """The records in [start, end), which this log has lost: they stood from byte `position` of `file` on.

    Whole batches, always. Up to one intact batch is counted in, the one just before `end`: its bytes are there, but nothing
    proves them.
    """

    start: Offset
    end: Offset
    chain_before: bytes
    chain_after: bytes
    file: str
    position: int
    end_file: str
    end_position: int
    """In `end_file`, the log can be read again from here on."""
    epoch_after: Epoch
    """The epoch of the last record of the range."""
    timestamp_after_ms: int
    """The time of its last batch."""

    def above(self, start: Offset, chain: bytes) -> "DamagedRange":
        """What is left of it for a log that begins at `start`, with `chain` there: nobody misses what is below."""
        return self._replace(start=start, chain_before=chain) if self.start < start else self

    def __str__(self) -> str:
        end_file = "" if self.end_file == self.file else f"{self.end_file} "
        return f"[{self.start}, {self.end}) at {self.file} byte {self.position} to {end_file}{self.end_position}"


class DamagedRangeRead(CorruptLog):
    """Somebody wants what is damaged. No answer is right but waiting for the repair, or asking another node."""

    damaged: DamagedRange

    @classmethod
    def of(cls, path_text: str, damaged: DamagedRange) -> Self:
        error = cls(f"{path_text}: damage: {damaged}")
        error.file, error.position, error.offset = f"{path_text}/{damaged.file}", damaged.position, damaged.start
        error.damaged = damaged
        return error


class LostTail(CorruptLog):
    """The log ends, intact, at `lost_from`; all below `durable_end` had been durable here once, and was counted on.

    No repair can prove what was there. The node may go on only as one that has forgotten: `Log.open(accept_loss=True)`.
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
