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
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from metadata_log.format.batch import Batch
from metadata_log.format.ids import Offset, OffsetAndEpoch
from metadata_log.format.records import MetadataRecord
from metadata_log.image.delta import MetadataDelta
from metadata_log.image.metadata_image import MetadataImage, Provenance
from metadata_log.image.replay import Replay, ReplayStopped
from metadata_log.store.log_view import LogView
from quorum.runtime.image.digests import Digests

APPLY_BYTES_PER_TURN = 256 << 10
"""How many bytes of batches a follower replays in a turn: about 4,000 records, a few milliseconds."""


class Mark(NamedTuple):
    """A committed snapshot mark, and the image just after the mark."""

    end: OffsetAndEpoch
    image: MetadataImage


class _Proposal(NamedTuple):
    end: OffsetAndEpoch
    image: MetadataImage
    is_mark: bool
    record_bytes: int


class StateMachine:
    """Committed and proposed images over one log.

    Invariants: `applied <= high watermark` and `applied <= flushed_end`; while proposing, the proposals' ends ascend and
    the last one is the log's end.
    """

    def __init__(self) -> None:
        self._replay = Replay()
        self._proposals: deque[_Proposal] = deque()
        self._proposing = False
        self.applied: Offset = self._replay.end.offset
        """One past the last applied record. (Inside an open transaction this is ahead of `committed`'s provenance.)"""
        self.stopped: str | None = None
        """The reason if replay has stopped: a record that this code cannot apply, or an image that differs from a majority's.
        Raft continues without replay."""
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
        return self._proposals[-1].image if self._proposals else self.committed

    def load(self, image: MetadataImage) -> None:
        """Replaces the committed image by `image`, at the start or after a snapshot was installed."""
        assert not self._proposing
        self._replay = Replay(image)
        self.applied = self._replay.end.offset
        self.stopped = None
        self.digests.forget()
        self.digests.note(self.applied, image.digest_bytes)
        self.bytes_since_mark = 0
        self.last_mark_ms = image.provenance.timestamp_ms

    def stop(self, reason: str) -> None:
        """Stops replay until an image is loaded, because the present image may be wrong."""
        self.stopped = reason

    def begin_proposing(self) -> None:
        """Begins to keep a proposed image: the node is the active controller, and has applied the whole log."""
        self._proposing = True
        self._proposals.clear()

    def stop_proposing(self) -> None:
        self._proposing = False
        self._proposals.clear()

    def stage(self, records: Sequence[MetadataRecord], base_offset: Offset) -> MetadataDelta:
        """The change that `records` would make to the proposed image.

        Raises:
            InvalidRecord: the records don't fit; the state machine has not changed.
        """
        delta = MetadataDelta(self.proposed)
        for offset, record in enumerate(records, base_offset):
            delta.replay(record, offset)
        return delta

    def propose(self, delta: MetadataDelta | None, batch: Batch, *, is_mark: bool = False) -> None:
        """Takes a batch that has just been appended. `delta` is its change; None: a control batch, without a change."""
        provenance = Provenance(batch.end_offset, batch.epoch, batch.last_timestamp_ms)
        staged = delta if delta is not None else MetadataDelta(self.proposed)
        record_bytes = 0 if batch.is_control else len(batch.data)
        self._proposals.append(_Proposal(batch.end, staged.finish(provenance), is_mark, record_bytes))

    def apply(self, log: LogView, until: Offset) -> list[Mark]:
        """Moves the committed image towards `until`, by a slice at most, and returns the marks passed on the way."""
        if self.stopped is not None or until <= self.applied:
            return []
        return self._adopt(until) if self._proposing else self._follow(log, until)

    def _adopt(self, until: Offset) -> list[Mark]:
        marks: list[Mark] = []
        newest: MetadataImage | None = None
        while self._proposals and self._proposals[0].end.offset <= until:
            end, newest, is_mark, record_bytes = self._proposals.popleft()
            self.digests.note(end.offset, newest.digest_bytes)
            self.bytes_since_mark += record_bytes
            if is_mark:
                marks.append(self._pass_mark(end, newest))
        if newest is not None:
            self._replay.adopt(newest)
            self.applied = self._replay.end.offset
        return marks

    def _follow(self, log: LogView, until: Offset) -> list[Mark]:
        batches = log.read(self.applied, APPLY_BYTES_PER_TURN, until)
        try:
            result = self._replay.apply(batches)
        except ReplayStopped as e:
            self.stopped = str(e)
            return []
        finally:
            self.applied = self._replay.end.offset
        self.digests.note(self.applied, self.committed.digest_bytes)
        if self.last_mark_ms == 0 and batches:
            self.last_mark_ms = batches[0].first_timestamp_ms
        last_mark_end = result.marks[-1].end.offset if result.marks else 0
        marks = [self._pass_mark(marked.end, marked.image) for marked in result.marks]
        self.bytes_since_mark += sum(
            len(batch.data) for batch in batches if not batch.is_control and batch.base_offset >= last_mark_end
        )
        return marks

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
