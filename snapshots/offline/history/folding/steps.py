"""Steps: the places where the image moves, and the records that take part in each.

A *step* is a batch, or a whole transaction: the image is published after it. The records of a transaction all belong to the step
of the batch with its end. Records of aborted transactions, and of batches that an operator had skipped, belong to no step.

    offset     40        43           46     47             50
    batch      | records | Begin r r  |  r   | r outcome End | ...
    step       43          50 ................................

Example: topic A is created in the transaction above. Its row in `changes` has the offset 50, the time of the batch [47, 50), and
the principal in the outcome at 48.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from metadata_log.format.ids import Epoch, Offset
from metadata_log.format.records import AbortTransaction, BeginTransaction, EndTransaction, SkippedBatch
from metadata_log.image.entities import invisible_ranges

Range = tuple[Offset, Offset]


class Step(NamedTuple):
    """A place where the image moves: the end of a batch, its time, and who asked for the change, if the log says so."""

    offset: Offset
    time_ms: int
    epoch: Epoch
    principal: str | None = None
    request_id: str | None = None


class Marker(NamedTuple):
    """The beginning or the end of a transaction, with its offset and the step of its batch."""

    offset: Offset
    step: Step
    record: BeginTransaction | EndTransaction | AbortTransaction


class Transaction(NamedTuple):
    """A transaction that took effect: the offsets from its beginning to its end, exclusive, and its step."""

    begin: Offset
    end: Offset
    step: Step


class Steps(NamedTuple):
    """Which records below `end` took effect, and when. Ranges and transactions are sorted, and do not overlap."""

    end: Offset
    invisible: tuple[Range, ...] = ()
    transactions: tuple[Transaction, ...] = ()

    def step_of(self, offset: Offset, batch: Step) -> Step | None:
        """Return the step of the record at `offset` in a batch; None if the record had no effect."""
        if offset >= self.end or is_within(offset, self.invisible):
            return None
        if not self.transactions:
            return batch
        at = bisect_right(self.transactions, offset, key=lambda each: each.begin) - 1
        inside = at >= 0 and offset < self.transactions[at].end
        return self.transactions[at].step if inside else batch


def is_within(offset: Offset, ranges: Sequence[Range]) -> bool:
    """Return True if one of the sorted ranges has the offset."""
    if not ranges:
        return False
    at = bisect_right(ranges, offset, key=lambda each: each[0]) - 1
    return at >= 0 and offset < ranges[at][1]


def dropped_by(skips: Iterable[SkippedBatch]) -> tuple[Range, ...]:
    """Return the ranges that the skips drop, sorted."""
    return tuple(sorted({(skip.dropped_start, skip.dropped_end) for skip in skips}))


def open_at_end(markers: Iterable[Marker], dropped: Sequence[Range]) -> Offset | None:
    """Return the offset at which the transaction began that is open behind the last marker; None: none is open."""
    begun: Offset | None = None
    for marker in markers:
        if not is_within(marker.offset, dropped):
            begun = marker.offset if isinstance(marker.record, BeginTransaction) else None
    return begun


def steps_of(markers: Iterable[Marker], dropped: Sequence[Range], end: Offset) -> Steps:
    """Return the steps below `end`, a place outside of transactions. The markers are sorted by offset.

    Raises:
        LogFormatError: the markers do not pair.
    """
    visible = [each for each in markers if each.offset < end and not is_within(each.offset, dropped)]
    aborted = invisible_ranges([(each.offset, each.record) for each in visible], end)
    transactions = [
        Transaction(begin.offset, done.offset + 1, done.step)
        for begin, done in zip(visible[::2], visible[1::2], strict=True)
        if isinstance(done.record, EndTransaction)
    ]
    return Steps(end, tuple(sorted({*dropped, *aborted})), tuple(transactions))
