"""The plan of a stretch of the log: which records have an effect, between which batches a watch may stop, and names of topics.

The plan is made before the first record of the stretch is shown, because three things become known only behind a record:

*The end of a metadata transaction.* The records of a transaction that was aborted have no effect. No position lies inside a
transaction: a reader that resumed there would show half of it.

*A skip.* A `SkippedBatch` drops batches that lie before it (`metadata_log.image.skips`).

*The name of a deleted topic.* A partition's record has only the topic's id. The image at the end of the stretch has the names of
the topics that live, and the `RemoveTopic` records of the stretch have the names of the others. An id keeps its name for ever,
and no id is used again, so one name for each id is enough.

    offset   record                                  shown to a watch of `orders`
    40       Topic(orders, A)                        40
    41       PartitionChange(A, 0)                   41: the name is known from 45, the `RemoveTopic`
    42..44   Begin, PartitionChange(A, 1), Abort     no: aborted
    45       RemoveTopic(orders, A)                  45

*The cost.* The plan reads every batch of the stretch, but decodes only the batches in which the bytes of a marker or of a
`RemoveTopic` occur: 2 to 5 us for a batch of a few hundred bytes, on a thread. A watch at the end of the log has no such cost,
because its node decodes each new batch anyway, and takes the plan from the decoded records.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from metadata_log.format.batch import Batch
from metadata_log.format.codec import decode_batch, encode_record
from metadata_log.format.ids import ZERO_UUID, Offset, Uuid
from metadata_log.format.records import (
    AbortTransaction,
    BeginTransaction,
    EndTransaction,
    RemoveTopic,
    SkippedBatch,
    Topic,
)
from metadata_log.image.skips import Skips as KnownSkips
from metadata_log.image.skips import names, skips_in
from watches.core.position import Skips

Landmark: TypeAlias = tuple[Offset, object]
"""An offset, and the record there."""

_MARK_BYTES: Final = 3
"""How many bytes of a packed record tell its type and version."""
_MARKS: Final = tuple(
    encode_record(each)[:_MARK_BYTES]
    for each in (BeginTransaction(""), EndTransaction(), AbortTransaction(""), RemoveTopic("", ZERO_UUID))
)


class Span(NamedTuple):
    """The records of one metadata transaction: [begin, end)."""

    begin: Offset
    end: Offset
    is_aborted: bool


class OutOfOrder(Exception):
    """The stretch begins inside a metadata transaction: no node has handed out this position."""


class LogPlan:
    """The plan of one stretch. Take its batches in order; then ask."""

    def __init__(self, skips: Skips = (), names: dict[Uuid, str] | None = None, *, with_created: bool = False) -> None:
        """`skips` are the records about skipped batches in the node's whole log. The plan adds names of topics to `names`.
        `with_created`: also those of topics that are created in the stretch."""
        self.names: dict[Uuid, str] = {} if names is None else names
        """The names of topics that were deleted in the stretch, by id; with those that were created, if asked for."""
        self.skips: list[tuple[Offset, SkippedBatch]] = []
        """The records about skipped batches in the stretch, with their offsets."""
        self._known = KnownSkips()
        self._known.learn(skip for _, skip in skips)
        self._with_created = with_created
        self._begun: Offset | None = None
        self._spans: list[Span] = []

    def take(self, batch: Batch, landmarks: Iterable[Landmark]) -> None:
        """Take the next batch; `landmarks` are its records, or at least all that `landmarks_of` returns.

        Raises:
            OutOfOrder: a transaction ends that has not begun in the stretch.
        """
        if batch.is_control:
            self.skips += [(at, each) for at, each in landmarks if isinstance(each, SkippedBatch)]
            return
        if self.drops(batch):
            self._begun = None
            return
        for at, record in landmarks:
            kind = type(record)
            if kind is RemoveTopic or (kind is Topic and self._with_created):
                assert isinstance(record, RemoveTopic | Topic)
                self.names[record.topic_id] = record.name
            elif kind is BeginTransaction:
                self._begun = at
            elif kind is EndTransaction or kind is AbortTransaction:
                if self._begun is None:
                    raise OutOfOrder(f"the transaction that ends at offset {at} begins below the position")
                self._spans.append(Span(self._begun, at + 1, kind is AbortTransaction))
                self._begun = None

    @property
    def is_closed(self) -> bool:
        """True if no transaction is open at the end of the stretch."""
        return self._begun is None

    def drops(self, batch: Batch) -> bool:
        """Return True if an operator has skipped `batch`: it has no effect, and may be unreadable."""
        skip = None if batch.is_control else self._known.at(batch.base_offset)
        return skip is not None and names(skip, batch)

    def hides(self, offset: Offset) -> bool:
        """Return True if the record at `offset` belongs to a transaction without effect."""
        span = self._around(offset)
        if span is not None:
            return span.is_aborted and offset < span.end
        return self._begun is not None and offset >= self._begun

    def may_stop_at(self, offset: Offset) -> bool:
        """Return True if no transaction lies around the batch boundary `offset`."""
        span = self._around(offset)
        is_inside = span is not None and span.begin < offset < span.end
        return not is_inside and (self._begun is None or offset <= self._begun)

    def _around(self, offset: Offset) -> Span | None:
        """The span that begins at `offset` or is the last one below, if it reaches up to `offset`."""
        index = bisect_right(self._spans, offset, key=lambda each: each.begin) - 1
        return self._spans[index] if index >= 0 and offset < self._spans[index].end else None


def landmarks_of(batch: Batch) -> Iterator[Landmark]:
    """Return the records that a plan needs of a batch, without decoding batches that cannot have any.

    Raises:
        LogFormatError: the batch cannot be decoded.
    """
    payload = batch.payload
    is_needed = any(skips_in((batch,))) if batch.is_control else any(mark in payload for mark in _MARKS)
    return enumerate(decode_batch(batch), batch.base_offset) if is_needed else iter(())


def plan_of(batches: Sequence[Batch], skips: Skips = ()) -> LogPlan:
    """Return the plan of whole batches."""
    plan = LogPlan(skips)
    for batch in batches:
        plan.take(batch, () if plan.drops(batch) else landmarks_of(batch))
    return plan
