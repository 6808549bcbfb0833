"""Replay: the image follows the log. Used by controllers, brokers and tools.

`apply` takes committed batches, in order and without gaps, makes one new image from all of them, and calls the
publishers. A batch takes effect as a whole or not at all. If a record does not fit, the image stays where it was before
the record's batch, and replay stops for good (`ReplayStopped`). Example:
  1. broker 7 runs release 1 and replays 0..99; the batch 100..104 has a record of a type that only release 2 knows;
  2. broker 7 publishes the image at 100 and stops: "replay stopped at offset 102";
  3. if broker 7 skipped the record instead, its image would differ from all others, and its digest would not match.

*Metadata transactions* (KIP-868). Records between `BeginTransaction` and `EndTransaction` are checked at once and
published together at the end; `AbortTransaction` discards them. Until then the image stays at the state before the
transaction, while the offset moves on:

    log        | r r | Begin r r | r r r | End | r
    image.offset     ^ stays here ............. ^ and is here after End
    offset           (position) moves with every batch

The records of an open transaction make an image of their own (`OpenTransaction.image`), one step for each `apply`. So the end
of a transaction with a million records costs no more than any other batch.

*Control records* are for the quorum, not for the image. They move the offset and are reported. At a `SnapshotMark`,
replay keeps the image at exactly that offset for the snapshot writer, in `ReplayResult.marks`.

*Skips.* An operator can have a batch dropped that stops replay everywhere (`skips`). A replay that is told of the skip
drops the batch. A replay that has applied the batch stops at the `SkippedBatch` record (`AppliedSkipped`).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias, cast

from metadata_log.format.batch import Batch
from metadata_log.format.codec import UnknownRecord, decode_batch
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Offset, OffsetAndEpoch
from metadata_log.format.partition_runs import PartitionRun
from metadata_log.format.records import (
    BeginTransaction,
    ControlRecord,
    EndTransaction,
    MetadataRecord,
    SkippedBatch,
    SnapshotMark,
    level_problem,
)
from metadata_log.format.records.transactions import TRANSACTION_MARKERS
from metadata_log.image.changes import Changes
from metadata_log.image.delta import InvalidRecord, MetadataDelta
from metadata_log.image.image_editor import DeltaKind
from metadata_log.image.metadata_image import EMPTY_IMAGE, MetadataImage, Provenance, evolved
from metadata_log.image.skips import Skips, names, skips_in


class ReplayStopped(LogFormatError):
    """Replay cannot go on at `offset`. The records before that batch were published, and are in `result`."""

    def __init__(self, offset: Offset, reason: str) -> None:
        super().__init__(f"replay stopped at offset {offset}: {reason}")
        self.offset = offset
        self.reason = reason
        self.result: ReplayResult | None = None


class AppliedSkipped(ReplayStopped):
    """The image has the effect of a batch that the record at `offset` skips: make the image anew, and tell the skip."""

    def __init__(self, offset: Offset, skip: SkippedBatch) -> None:
        super().__init__(offset, f"the batch at offset {skip.offset} is skipped, and this image has its effect")
        self.skip = skip


class MarkedImage(NamedTuple):
    """A committed `SnapshotMark`: the end of its snapshot, and the image to write."""

    end: OffsetAndEpoch
    image: MetadataImage
    reason: str


class OpenTransaction(NamedTuple):
    """A metadata transaction that has begun, and has neither ended nor been aborted."""

    name: str
    image: MetadataImage
    """The image with the records of the transaction so far. It is published at the end, or never."""
    changed: Changes
    """The changes of these records."""


class ReplayResult(NamedTuple):
    """One step of the image along the log."""

    before: MetadataImage
    image: MetadataImage
    changed: Changes
    marks: tuple[MarkedImage, ...] = ()
    control_records: tuple[tuple[Offset, ControlRecord], ...] = ()
    reloaded: bool = False
    """The image comes from a snapshot; `changed` is the difference to the previous image."""


Publisher: TypeAlias = Callable[[ReplayResult], None]


class Replay:
    """The image of one node, which follows one log."""

    def __init__(self, image: MetadataImage = EMPTY_IMAGE) -> None:
        self.image = image
        """The last published image."""
        self.end = image.provenance
        """The end of the last accepted batch. Inside a transaction this is ahead of the image."""
        self.open: OpenTransaction | None = None
        """The transaction that is open at `end`, as of the last `apply`."""
        self._delta: MetadataDelta | None = None
        """Records that are not in the image yet."""
        self._redo: list[tuple[Offset, list[MetadataRecord]]] = []
        """The records in `_delta`, outside transactions. Used to build the delta again without a bad batch."""
        self._changed: list[Changes] = []
        self._marks: list[MarkedImage] = []
        self._control_records: list[tuple[Offset, ControlRecord]] = []
        self._stopped: ReplayStopped | None = None
        self._skips = Skips()
        self._publishers: list[Publisher] = []

    @property
    def offset(self) -> Offset:
        """The base offset of the next batch."""
        return self.end.offset

    @property
    def transaction(self) -> str | None:
        """The name of the metadata transaction that is open at `offset`."""
        return None if self.open is None else self.open.name

    @property
    def stopped(self) -> ReplayStopped | None:
        """Why replay has stopped; None if it goes on."""
        return self._stopped

    def subscribe(self, publisher: Publisher) -> None:
        """Call `publisher` after each `apply` that took a batch and each load, in the order of subscription."""
        self._publishers.append(publisher)

    def learn(self, skips: Iterable[SkippedBatch]) -> None:
        """Take note of committed skips. Replay goes on if it has stopped at a batch that one of them drops."""
        self._skips.learn(skips)
        if self._stopped is not None and self._skips.at(self.offset) is not None:
            self._stopped = None

    def apply(self, batches: Sequence[Batch]) -> ReplayResult:
        """Apply committed batches; the first one begins at `offset`.

        Raises:
            ReplayStopped: a record is unknown, damaged or does not fit. Everything before its batch was applied.
            LogFormatError: the batches do not begin at `offset` or have a gap. Nothing was applied.
        """
        if self._stopped is not None:
            raise self._stopped
        self._check_order(batches)
        self._skips.learn(skips_in(batches))
        before = self.image
        for batch in batches:
            try:
                self._take(batch)
            except ReplayStopped as e:
                self._stopped = e
                break
        self._settle(self.end)
        result = self._publish(before)
        if self._stopped is not None:
            self._stopped.result = result
            raise self._stopped
        return result

    def adopt(
        self, image: MetadataImage, end: Provenance | None = None, transaction: OpenTransaction | None = None
    ) -> None:
        """Continue from `image`, which the controller that wrote the log has built already. O(1); publishers are not
        called. With a `transaction` that is open, `image` is the one before it, and `end` is the position.
        """
        self.image = image
        self.end = image.provenance if end is None else end
        self.open = transaction
        self._delta = self._stopped = None
        self._redo.clear()

    def load_snapshot(self, records: Iterable[MetadataRecord | PartitionRun], provenance: Provenance) -> MetadataImage:
        """Replace the image by the canonical records of a snapshot, partitions one by one or in runs.

        Raises:
            InvalidRecord: the records do not form an image; the present image stays. The error's offset is the record's
                number.
        """
        loading = Loading()
        for record in records:
            loading.take(record)
        return self.install(loading.finish(provenance))

    def install(self, image: MetadataImage) -> MetadataImage:
        """Replace the image by one that was loaded elsewhere, in slices or on another thread, and publish it."""
        before = self.image
        self.adopt(image)
        self._changed = [Changes.between(before, image)]
        self._publish(before, reloaded=True)
        return image

    # --- inside ---

    def _check_order(self, batches: Sequence[Batch]) -> None:
        expected = self.end.offset
        for batch in batches:
            if batch.base_offset != expected:
                raise LogFormatError(
                    f"a batch at offset {batch.base_offset} where {expected} is expected; nothing was applied"
                )
            expected = batch.end_offset

    def _take(self, batch: Batch) -> None:
        """Apply one batch, as a whole or not at all."""
        provenance = Provenance(batch.end_offset, batch.epoch, batch.last_timestamp_ms)
        skip = None if batch.is_control else self._skips.at(batch.base_offset)
        if skip is not None and names(skip, batch):
            self._drop(skip)
            self.end = provenance
            return
        records = _known_records(batch)
        if batch.is_control:
            self._take_control(batch, cast(list[ControlRecord], records))
        elif TRANSACTION_MARKERS.isdisjoint(map(type, records)):
            self._take_plain(batch.base_offset, cast(list[MetadataRecord], records))
        else:
            self._take_transactional(batch, cast(list[MetadataRecord], records))
        self.end = provenance

    def _drop(self, skip: SkippedBatch) -> None:
        """Leave a batch out. An open transaction is the one that `skip` drops."""
        self._skips.drop(skip)
        if self.open is not None:
            self.open = self._delta = None

    def _replay(self, base_offset: Offset, records: Sequence[MetadataRecord]) -> None:
        if self._delta is None:
            self._delta = MetadataDelta(self.image if self.open is None else self.open.image)
        self._delta.replay_all(records, base_offset)

    def _take_plain(self, base_offset: Offset, records: list[MetadataRecord]) -> None:
        try:
            self._replay(base_offset, records)
        except InvalidRecord as e:
            self._delta = None
            if self.open is None:
                for each_offset, each in self._redo:
                    self._replay(each_offset, each)
            raise ReplayStopped(e.offset, e.reason) from e
        if self.open is None:
            self._redo.append((base_offset, records))

    def _take_transactional(self, batch: Batch, records: list[MetadataRecord]) -> None:
        """Apply a batch with a marker inside. The image is finished first, so that replay can return to it after an
        error.
        """
        self._settle(self.end)
        image, transaction, changes_before = self.image, self.open, len(self._changed)
        try:
            for offset, record in enumerate(records, batch.base_offset):
                if type(record) in TRANSACTION_MARKERS:
                    self._mark(record, offset, batch)
                else:
                    self._replay(offset, (record,))
        except (InvalidRecord, ReplayStopped) as e:
            self.image, self.open, self._delta = image, transaction, None
            del self._changed[changes_before:]
            raise ReplayStopped(e.offset, e.reason) from e
        if self.open is None:
            self._settle(Provenance(batch.end_offset, batch.epoch, batch.last_timestamp_ms))

    def _mark(self, record: MetadataRecord, offset: Offset, batch: Batch) -> None:
        if isinstance(record, BeginTransaction):
            level = self.image.metadata_version if self._delta is None else self._delta.level
            problem = level_problem(record, level)
            if problem is not None:
                raise ReplayStopped(offset, problem)
            if self.open is not None:
                raise ReplayStopped(offset, f"transaction {record.name!r} begins inside {self.open.name!r}")
            if offset > batch.base_offset:
                self._settle(Provenance(offset, batch.epoch, batch.last_timestamp_ms))
            self.open = OpenTransaction(record.name, self.image, Changes())
        elif self.open is None:
            raise ReplayStopped(offset, f"{type(record).__name__} without a transaction")
        else:
            provenance = Provenance(offset + 1, batch.epoch, batch.last_timestamp_ms)
            self._settle(provenance)
            whole, self.open = self.open, None
            if isinstance(record, EndTransaction):
                self.image = whole.image
                self._changed.append(whole.changed)
            self._settle(provenance)

    def _take_control(self, batch: Batch, records: list[ControlRecord]) -> None:
        for offset, record in enumerate(records, batch.base_offset):
            if isinstance(record, SkippedBatch) and not self._skips.has_done(record):
                raise AppliedSkipped(offset, record)
            self._control_records.append((offset, record))
            if isinstance(record, SnapshotMark) and self.open is None:
                provenance = Provenance(offset + 1, batch.epoch, batch.last_timestamp_ms)
                self._settle(provenance)
                self._marks.append(MarkedImage(provenance.end, self.image, record.reason))

    def _settle(self, provenance: Provenance) -> None:
        """Move the image up to `provenance`. Inside a transaction the image stays, and that of the transaction moves."""
        delta, self._delta = self._delta, None
        if self.open is not None:
            if delta is not None:
                self.open = self.open._replace(image=delta.finish(provenance))
                self.open.changed.add(delta.changed)
        elif delta is not None:
            self.image = delta.finish(provenance)
            self._changed.append(delta.changed)
            self._redo.clear()
        elif self.image.provenance != provenance:
            self.image = evolved(self.image, {"provenance": provenance})

    def _publish(self, before: MetadataImage, *, reloaded: bool = False) -> ReplayResult:
        changed = self._changed[0] if self._changed else Changes()
        for later in self._changed[1:]:
            changed.add(later)
        result = ReplayResult(
            before, self.image, changed, tuple(self._marks), tuple(self._control_records), reloaded
        )  # fmt: skip
        self._changed = []
        self._marks.clear()
        self._control_records.clear()
        if self.image is not before or result.control_records:
            for publisher in self._publishers:
                publisher(result)
        return result


def loading_delta() -> MetadataDelta:
    """Return a delta for the records of a snapshot."""
    return MetadataDelta(EMPTY_IMAGE, kind=DeltaKind.LOADING)


class Loading:
    """An image that is made from a snapshot, record by record. `Replay.install` takes the finished image."""

    def __init__(self) -> None:
        self._delta = loading_delta()
        self._place = 0

    def take(self, record: MetadataRecord | PartitionRun) -> None:
        """Take the next record, or the next run of partitions.

        Raises:
            InvalidRecord: the record does not fit. The error's offset is the record's number.
        """
        if type(record) is PartitionRun:
            self._delta.extend(record, self._place)
            self._place += len(record.states)
        else:
            self._delta.replay(cast(MetadataRecord, record), self._place)
            self._place += 1

    def finish(self, provenance: Provenance) -> MetadataImage:
        """Return the image after all records."""
        return self._delta.finish(provenance)


def _known_records(batch: Batch) -> list[MetadataRecord | ControlRecord]:
    try:
        records = decode_batch(batch)
    except LogFormatError as e:
        raise ReplayStopped(batch.base_offset, str(e)) from e
    for offset, record in enumerate(records, batch.base_offset):
        if isinstance(record, UnknownRecord):
            raise ReplayStopped(
                offset,
                f"a record of type {record.type_number}, version {record.version}, which this release does not know",
            )
    return cast(list[MetadataRecord | ControlRecord], records)
