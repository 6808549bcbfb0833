"""The images of the cluster on one node: the committed image, and on the active controller a proposed image.

    committed      the state after the committed records [0, applied)
    proposed       the committed image plus all records appended since; the controller decides by this image

An image is immutable. So the proposed image is a second reference; a commit moves the first reference forward; and a leader that
resigns drops the second reference. Example on the active controller 1, which has applied 40 records:
    1. controller 1 appends the batch [40, 45): `committed` is the image at 40, `proposed` the image at 45;
    2. the batch is committed and flushed: `committed` adopts the proposed image at 45, without a second replay;
    3. if controller 1 had lost the leadership instead, it would have dropped the image at 45, and decided by no image at all.

A node applies only up to min(high watermark, own flushed end). Otherwise a node could tell a client of a state, lose the records
in a power cut, and be unable to rebuild the state.

On followers the committed image follows the log (`metadata_log.image.replay`).

*A metadata transaction* (KIP-868) is open from its BeginTransaction to its EndTransaction or AbortTransaction. Meanwhile the
committed image stays the image before the transaction. The proposed image has the records of the transaction, because the next
slice builds on them. Example on controller 1, which has applied 40 records:
    1. the batches [40, 1040) and [1040, 2041) are one transaction. Controller 1 appends the first batch: `committed` is the image
       at 40, `proposed` is the image at 1040;
    2. the first batch is committed: `applied` is 1040, and `committed` is the image at 40 still;
    3. the second batch is appended and committed: `committed` is the image at 2041;
    4. if controller 1 had lost the leadership after step 2, controller 1 would follow the log inside the transaction;
    5. the next active controller 2 begins with an AbortTransaction at 1040: the proposed image is the image at 40 again.

*A poison batch* is committed, and cannot be applied. Replay stands in front of it (`poison`), and goes on when a committed
`SkippedBatch` record drops it (`metadata_log.image.skips`). A node that has applied the batch before needs its image anew
(`applied_skipped`).
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from metadata_log.format.batch import Batch
from metadata_log.format.ids import Offset, OffsetAndEpoch
from metadata_log.format.records import AbortTransaction, BeginTransaction, EndTransaction, MetadataRecord, SkippedBatch
from metadata_log.format.records.transactions import TRANSACTION_MARKERS
from metadata_log.image.changes import Changes
from metadata_log.image.delta import MetadataDelta
from metadata_log.image.metadata_image import MetadataImage, Provenance, evolved
from metadata_log.image.replay import AppliedSkipped, OpenTransaction, Replay, ReplayStopped
from metadata_log.store.log_view import LogView
from quorum.runtime.image.digests import Digests
from quorum.runtime.image.leftovers import Leftovers

APPLY_BYTES_PER_TURN = 24 << 10
"""How many bytes of batches a follower replays in a turn: about 600 new partitions or 500 changes, 2 to 5 ms of work."""


class Mark(NamedTuple):
    """A committed snapshot mark, and the image just after the mark."""

    end: OffsetAndEpoch
    image: MetadataImage


class Poison(NamedTuple):
    """The committed batch in front of which replay stands."""

    batch: Batch
    reason: str
    begun: Offset | None
    """The base offset of the transaction that is open in front of the batch."""

    def __str__(self) -> str:
        batch = self.batch
        return (
            f"{self.reason}; the batch there is [{batch.base_offset}, {batch.end_offset}) of epoch {batch.epoch}, with chain "
            f"{batch.chain.hex()}; `quorumctl log dump DATA-DIR --print-data --from-offset {batch.base_offset} --to-offset "
            f"{batch.end_offset}` shows it"
        )


class Staged(NamedTuple):
    """The change that the records of one batch would make."""

    delta: MetadataDelta
    begins: str = ""
    """The name of the transaction that the batch begins; empty: it begins none."""
    ends: bool = False
    """The batch ends the open transaction."""
    aborts: bool = False
    """The batch aborts the open transaction."""


class _Proposal(NamedTuple):
    end: Provenance
    image: MetadataImage
    """The committed image once the batch is committed: inside a transaction the image before the transaction."""
    is_mark: bool
    record_bytes: int
    transaction: OpenTransaction | None = None
    """The transaction that is open at the end of the batch."""


class StateMachine:
    """Committed and proposed images over one log.

    Invariants: `applied <= high watermark` and `applied <= flushed_end`; while proposing, the proposals' ends ascend and
    the last one is the log's end.
    """

    def __init__(self) -> None:
        self._replay = Replay()
        self._proposals: deque[_Proposal] = deque()
        self._proposing = False
        self._leftovers = Leftovers()
        self.applied: Offset = self._replay.end.offset
        """One past the last applied record. (Inside an open transaction this is ahead of `committed`'s provenance.)"""
        self.stopped: str | None = None
        """The reason if replay has stopped: a record that this code cannot apply, or an image that differs from a majority's.
        Raft continues without replay."""
        self.poison: Poison | None = None
        """The batch in front of which replay has stopped; None if replay goes on, or has stopped for another reason."""
        self.applied_skipped: SkippedBatch | None = None
        """A committed skip of a batch whose effect the image has: the image must be loaded anew."""
        self.digests = Digests()
        """The digests of the committed image at the newest batch ends."""
        self.bytes_since_mark = 0
        """Committed bytes of data batches since the last mark: the bytes that the next snapshot saves a reader."""
        self.last_mark_ms = 0
        """The log's time of the last mark; without a mark, the time of the first batch applied on this node."""

    @property
    def committed(self) -> MetadataImage:
        return self._replay.image

    @property
    def proposed(self) -> MetadataImage:
        """The image that the controller decides by. Only while proposing."""
        assert self._proposing
        image, transaction = self._newest
        return image if transaction is None else transaction.image

    @property
    def transaction(self) -> str | None:
        """The name of the transaction that is open at the end of all appended records. Only while proposing."""
        transaction = self._newest[1]
        return None if transaction is None else transaction.name

    @property
    def _newest(self) -> tuple[MetadataImage, OpenTransaction | None]:
        """The newest image outside of a transaction, and the transaction that is open now."""
        if not self._proposals:
            return self._replay.image, self._replay.open
        newest = self._proposals[-1]
        return newest.image, newest.transaction

    def load(self, image: MetadataImage) -> None:
        """Replaces the committed image by `image`, at the start or after a snapshot was installed."""
        assert not self._proposing
        self._replay = Replay(image)
        self.applied = self._replay.end.offset
        self.stopped = self.poison = self.applied_skipped = None
        self.digests.forget()
        self.digests.note(self.applied, image.digest_bytes)
        self.bytes_since_mark = 0
        self.last_mark_ms = image.provenance.timestamp_ms

    def stop(self, reason: str) -> None:
        """Stops replay until an image is loaded, because the present image may be wrong."""
        self.stopped, self.poison = reason, None

    def begin_proposing(self) -> None:
        """Begins to keep a proposed image: the node is the active controller, and has applied the whole log."""
        self._proposing = True
        self._proposals.clear()

    def stop_proposing(self) -> None:
        self._proposing = False
        self._proposals.clear()

    def stage(self, records: Sequence[MetadataRecord], base_offset: Offset) -> Staged:
        """The change that `records` would make to the proposed image. A BeginTransaction is the first of the records, an
        EndTransaction the last; an AbortTransaction is alone.

        Raises:
            InvalidRecord: the records don't fit; the state machine has not changed.
        """
        first, last = records[0], records[-1]
        begins = first.name if isinstance(first, BeginTransaction) else ""
        is_over = isinstance(last, EndTransaction | AbortTransaction)
        assert not (begins and self.transaction), f"{first} inside of {self.transaction}"
        assert begins or self.transaction or not is_over, f"{last} without a transaction"
        delta = MetadataDelta(self.proposed)
        for offset, record in enumerate(records, base_offset):
            if type(record) not in TRANSACTION_MARKERS:
                delta.replay(record, offset)
        return Staged(delta, begins, isinstance(last, EndTransaction), isinstance(last, AbortTransaction))

    def propose(self, staged: Staged | None, batch: Batch, *, is_mark: bool = False) -> None:
        """Takes a batch that has just been appended. `staged` is its change; None: a control batch, without a change."""
        provenance = Provenance(batch.end_offset, batch.epoch, batch.last_timestamp_ms)
        record_bytes = 0 if batch.is_control else len(batch.data)
        image, transaction = self._newest
        if staged is not None and staged.begins:
            transaction = OpenTransaction(staged.begins, image, Changes())
        if transaction is None or (staged is not None and staged.ends):
            image = staged.delta.finish(provenance) if staged else evolved(image, {"provenance": provenance})
            transaction = None
        elif staged is not None and staged.aborts:
            image, transaction = evolved(image, {"provenance": provenance}), None
        elif staged is not None:
            transaction = transaction._replace(image=staged.delta.finish(provenance))
        self._proposals.append(_Proposal(provenance, image, is_mark, record_bytes, transaction))

    def apply(self, log: LogView, until: Offset) -> list[Mark]:
        """Moves the committed image towards `until`, by a slice at most, and returns the marks passed on the way."""
        if until <= self.applied or self.applied_skipped is not None:
            return []
        if self._proposing:
            return [] if self.stopped is not None else self._adopt(until)
        self._learn_skips(log, until)
        return [] if self.stopped is not None else self._follow(log, until)

    def _learn_skips(self, log: LogView, until: Offset) -> None:
        """Tells replay of the committed skips, and goes on if one of them drops the batch in front of which replay stands."""
        self._replay.learn(skip for at, skip in log.skipped() if at < until)
        if self.poison is not None and self._replay.stopped is None:
            self.stopped = self.poison = None

    def release(self) -> None:
        """Frees some memory of images that were dropped. Called once a turn."""
        self._leftovers.release()

    def _adopt(self, until: Offset) -> list[Mark]:
        marks: list[Mark] = []
        newest: _Proposal | None = None
        dropped, opened = self.committed, self._replay.open
        while self._proposals and self._proposals[0].end.offset <= until:
            newest = self._proposals.popleft()
            opened = newest.transaction or opened
            self.digests.note(newest.end.offset, newest.image.digest_bytes)
            self.bytes_since_mark += newest.record_bytes
            if newest.is_mark:
                marks.append(self._pass_mark(newest.end.end, newest.image))
        if newest is not None:
            self._leftovers.keep(dropped, newest.image)
            if opened is not None and newest.transaction is None:
                self._leftovers.keep(opened.image, newest.image)  # it was aborted
            self._replay.adopt(newest.image, newest.end, newest.transaction)
            self.applied = newest.end.offset
        return marks

    def _follow(self, log: LogView, until: Offset) -> list[Mark]:
        batches = log.read(self.applied, APPLY_BYTES_PER_TURN, until)
        dropped, opened = self.committed, self._replay.open
        try:
            result = self._replay.apply(batches)
        except AppliedSkipped as e:
            self.applied_skipped = e.skip
            return []
        except ReplayStopped as e:
            self._stand_at(e, batches)
            assert e.result is not None, "`Replay.apply` publishes what it has applied"
            result = e.result  # of the batches in front: a mark among them is not read a second time
        finally:
            self.applied = self._replay.end.offset
            self._leftovers.keep(dropped, self.committed)
            if opened is not None and self._replay.open is None:
                self._leftovers.keep(opened.image, self.committed)
        self.digests.note(self.applied, self.committed.digest_bytes)
        if self.last_mark_ms == 0 and batches:
            self.last_mark_ms = batches[0].first_timestamp_ms
        last_mark_end = result.marks[-1].end.offset if result.marks else 0
        marks = [self._pass_mark(marked.end, marked.image) for marked in result.marks]
        self.bytes_since_mark += sum(
            len(batch.data)
            for batch in batches
            if not batch.is_control and last_mark_end <= batch.base_offset < self.applied
        )
        return marks

    def _stand_at(self, stopped: ReplayStopped, batches: Sequence[Batch]) -> None:
        offset, transaction = self._replay.end.offset, self._replay.open
        batch = next(each for each in batches if each.base_offset == offset)
        begun = None if transaction is None else self._replay.image.offset
        self.poison = Poison(batch, str(stopped), begun)
        self.stopped = str(self.poison)

    def _pass_mark(self, end: OffsetAndEpoch, image: MetadataImage) -> Mark:
        self.bytes_since_mark = 0
        self.last_mark_ms = image.provenance.timestamp_ms
        return Mark(end, image)

    def check_invariants(self) -> None:
        offset = self.applied
        assert offset == self._replay.end.offset, (offset, self._replay.end)
        for proposal in self._proposals:
            assert offset < proposal.end.offset, (offset, proposal.end)
            offset = proposal.end.offset
