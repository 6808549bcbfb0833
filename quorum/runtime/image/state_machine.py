"""The image of the cluster as this node holds it: the committed one always, and on the active controller a proposed one.

    committed      the state after [0, applied): what has been promised to anybody
    proposed       committed plus everything appended since: what the controller decides by

The image is immutable, so "proposed but not committed" is a second reference, a commit is moving the first one forward,
and losing leadership is dropping the second. Nodes apply only up to min(high watermark, own flushed end): a node that
applied what its own disk may still lose could, after a power cut, have told of a state that it cannot rebuild.

On followers the committed image follows the log (`metadata_log.image.replay`). On the active controller each commit adopts the
image that was made when the records were proposed, so nothing is replayed twice.
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
"""How much a follower replays before it looks up again: about 4,000 records, a few milliseconds."""


class Mark(NamedTuple):
    """A committed snapshot mark, and the image just after it."""

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
        self._stopped: str | None = None
        self.digests = Digests()
        """Of the committed image at the newest batch ends."""
        self.bytes_since_mark = 0
        """Committed bytes of data batches since the last mark: what the next snapshot would save a reader."""
        self.last_mark_ms = 0
        """The log's time of the last mark, or of the first batch applied here where there was none."""

    @property
    def committed(self) -> MetadataImage:
        return self._replay.image

    @property
    def applied(self) -> Offset:
        """One past the last applied record. (Inside an open transaction this is ahead of `committed`'s provenance.)"""
        return self._replay.offset

    @property
    def proposed(self) -> MetadataImage:
        """What to decide by. Only while proposing."""
        assert self._proposing
        return self._proposals[-1].image if self._proposals else self.committed

    @property
    def stopped(self) -> str | None:
        """Why replay stands still, if it does: a record that this code cannot apply, or an image that is not the others'. Raft
        lives on without it."""
        return self._stopped

    def load(self, image: MetadataImage) -> None:
        """The committed image is `image`: at start-up, or after a snapshot was installed."""
        assert not self._proposing
        self._replay = Replay(image)
        self._stopped = None
        self.digests.forget()
        self.digests.note(self.applied, image.digest_bytes)
        self.bytes_since_mark = 0
        self.last_mark_ms = image.provenance.timestamp_ms

    def stop(self, reason: str) -> None:
        """Nothing more is applied until an image is loaded: this one is not to be believed."""
        self._stopped = reason

    def begin_proposing(self) -> None:
        """This node is the active controller from here on: the committed image is the whole log."""
        self._proposing = True
        self._proposals.clear()

    def stop_proposing(self) -> None:
        self._proposing = False
        self._proposals.clear()

    def stage(self, records: Sequence[MetadataRecord], base_offset: Offset) -> MetadataDelta:
        """What `records` would do to the proposed image.

        Raises:
            InvalidRecord: if they don't fit; then nothing has happened.
        """
        delta = MetadataDelta(self.proposed)
        for offset, record in enumerate(records, base_offset):
            delta.replay(record, offset)
        return delta

    def propose(self, delta: MetadataDelta | None, batch: Batch, *, is_mark: bool = False) -> None:
        """`batch` is in the log now; `delta` is what it does (None: a control batch, which does nothing)."""
        provenance = Provenance(batch.end_offset, batch.epoch, batch.last_timestamp_ms)
        staged = delta if delta is not None else MetadataDelta(self.proposed)
        record_bytes = 0 if batch.is_control else len(batch.data)
        self._proposals.append(_Proposal(batch.end, staged.finish(provenance), is_mark, record_bytes))

    def apply(self, log: LogView, until: Offset) -> list[Mark]:
        """Moves the committed image towards `until` (at most a slice of it) and returns the marks passed on the way."""
        if self._stopped is not None or until <= self.applied:
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
        return marks

    def _follow(self, log: LogView, until: Offset) -> list[Mark]:
        batches = log.read(self.applied, APPLY_BYTES_PER_TURN, until)
        try:
            result = self._replay.apply(batches)
        except ReplayStopped as e:
            self._stopped = str(e)
            return []
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
        for proposal in self._proposals:
            assert offset < proposal.end.offset, (offset, proposal.end)
            offset = proposal.end.offset
