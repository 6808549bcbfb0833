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

from typing import NamedTuple, Self

from metadata_log.format.errors import CorruptLog
from metadata_log.format.ids import Epoch, Offset


class DamagedRange(NamedTuple):
    """The lost records [start, end). They were stored in `file`, from byte `position` on.

    A range has whole batches only. It may include one intact batch just before `end`, because nothing proves that
    batch.
    """

    start: Offset
    end: Offset
    chain_before: bytes
    chain_after: bytes
    file: str
    position: int
    end_file: str
    end_position: int
    """The first byte of `end_file` from which the log can be read again."""
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
        end_file = "" if self.end_file == self.file else f"{self.end_file} "
        return f"[{self.start}, {self.end}) at {self.file} byte {self.position} to {end_file}{self.end_position}"


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
