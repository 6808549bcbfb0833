"""Skips: committed batches that replay drops, because an operator said so (`SkippedBatch`).

A batch that some node cannot apply stops the replay of that node, and of every node that replays it later. The control
record `SkippedBatch` names the batch, and lies behind the batch in the log. So a replay is told of skips before it
comes to the batches. Example:
  1. the batch [40, 43) has a record that no controller can apply: the images of all controllers stay at 40;
  2. an operator skips the batch: the leader appends `SkippedBatch(40, ..., dropped_start=40, dropped_end=43)` at 57;
  3. each controller that stands at 40 knows the record at 57 once it is committed, drops the batch, and goes on at 43;
  4. a node of a newer release had applied the batch: it finds the skip when it comes to 57, and makes its image anew.

*A batch of a metadata transaction takes the whole transaction along*, because a transaction takes effect as a whole or
not at all. Control batches are for the quorum, and are never dropped.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from metadata_log.format.batch import Batch
from metadata_log.format.codec import decode_batch, encode_record, split_payload
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Offset
from metadata_log.format.records import (
    METADATA_VERSION,
    AbortTransaction,
    BeginTransaction,
    EndTransaction,
    FeatureLevel,
    SkippedBatch,
)

_MARK_BYTES: Final = 3
"""How many bytes of a packed record tell its type and version: the array, the type and the version."""
_BEGIN: Final = encode_record(BeginTransaction(""))[:_MARK_BYTES]
_ABORT: Final = encode_record(AbortTransaction(""))[:_MARK_BYTES]
_END: Final = encode_record(EndTransaction())
_LEVEL: Final = METADATA_VERSION.encode()
_SKIP: Final = encode_record(SkippedBatch(0, 0, b"", 0, 0))[:_MARK_BYTES]


class Skips:
    """The skips that one replay knows, and those that it has carried out."""

    def __init__(self) -> None:
        self._known: dict[Offset, SkippedBatch] = {}
        """By `dropped_start`."""
        self._done: set[Offset] = set()

    def learn(self, skips: Iterable[SkippedBatch]) -> None:
        """Take note of committed skips, before their batches are replayed."""
        for skip in skips:
            self._known.setdefault(skip.dropped_start, skip)

    def at(self, offset: Offset) -> SkippedBatch | None:
        """Return the skip that drops the data batch at `offset`; None if no known skip does."""
        if not self._known:
            return None
        found = (skip for skip in self._known.values() if skip.dropped_start <= offset < skip.dropped_end)
        return next(found, None)

    def drop(self, skip: SkippedBatch) -> None:
        """Note that a batch of `skip` is dropped now."""
        self._done.add(skip.dropped_start)

    def has_done(self, skip: SkippedBatch) -> bool:
        """Return True if this replay has dropped what `skip` drops."""
        return skip.dropped_start in self._done


def skips_in(batches: Iterable[Batch]) -> Iterator[SkippedBatch]:
    """Return the skips among the records of `batches`."""
    for batch in batches:
        if batch.is_control and batch.payload.startswith(_SKIP):
            yield from (record for record in decode_batch(batch) if isinstance(record, SkippedBatch))


def names(skip: SkippedBatch, batch: Batch) -> bool:
    """Return True unless `batch` lies at the offset that `skip` names, and is another batch."""
    return skip.offset != batch.base_offset or (skip.epoch, skip.chain) == (batch.epoch, batch.chain)


class DroppedRange:
    """The range that a skip of a batch drops: the batch, or the whole transaction to which the batch belongs.

    A transaction without an end reaches up to the last data batch.
    """

    def __init__(self, batch: Batch, begun: Offset | None) -> None:
        """`begun` is the base offset of the transaction that is open before `batch`; None: none is open."""
        self._batch_end = batch.end_offset
        self.start = batch.base_offset if begun is None else begun
        self.end = batch.end_offset
        self._is_whole = (begun is None and not _begins(batch)) or _is_over(batch)

    def take(self, later: Batch) -> None:
        """Take the next batch behind, up to the end of the log."""
        if self._is_whole or later.is_control:
            return
        if _begins(later):
            self.end = self._batch_end  # so the end of the transaction was in the batch, and cannot be read
            self._is_whole = True
            return
        self.end = later.end_offset
        self._is_whole = _is_over(later)


def dropped_range(batch: Batch, begun: Offset | None, later: Iterable[Batch]) -> tuple[Offset, Offset]:
    """Return the `DroppedRange` of `batch`, in front of all batches in `later`."""
    found = DroppedRange(batch, begun)
    for each in later:
        found.take(each)
    return found.start, found.end


def open_transaction(batches: Iterable[Batch], begun: Offset | None = None) -> Offset | None:
    """Return the base offset of the transaction that is open after `batches`; None: none is open. `begun` is the transaction
    that is open before them.
    """
    for batch in batches:
        if _begins(batch):
            begun = batch.base_offset
        if not batch.is_control and _is_over(batch):
            begun = None
    return begun


def levels_in(batches: Iterable[Batch]) -> Iterator[tuple[Offset, int]]:
    """Return the levels of `metadata.version` that `batches` set, each with its batch's base offset. Unreadable batches
    count for nothing.
    """
    for batch in batches:
        if batch.is_control or _LEVEL not in batch.payload:
            continue
        try:
            records = decode_batch(batch)
        except LogFormatError:
            continue
        for each in records:
            if isinstance(each, FeatureLevel) and each.name == METADATA_VERSION:
                yield batch.base_offset, each.level


def _begins(batch: Batch) -> bool:
    """BeginTransaction is the first record of its batch."""
    return not batch.is_control and batch.payload.startswith(_BEGIN)


def _is_over(batch: Batch) -> bool:
    """EndTransaction is the last record of its batch, AbortTransaction the only one. The batch may be unreadable."""
    payload = batch.payload
    if payload.startswith(_ABORT):
        return True
    if not payload.endswith(_END):
        return False
    try:
        return split_payload(payload, batch.record_count)[-1] == _END
    except LogFormatError:
        return True
