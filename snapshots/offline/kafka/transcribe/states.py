"""The state of Kafka's cluster as an image of ours: of a snapshot, or of the log at its end.

Kafka's snapshot has the records of the image in an order that is nearly ours. Two things differ: the level of our own feature
`metadata.version` stands first, because our records need the level, and the partitions of a topic are sorted. Example:
  1. The directory has the snapshot 225-4 and a log that ends at 275. `newest_state` loads the snapshot, and replays 225..274.
  2. Without any snapshot, or below the first one, the log begins at offset 0, and is replayed from there.
  3. The record at 240 does not fit the state: `CannotTranscribe` names the offset.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, cast

from metadata_log.disk.files import Directory
from metadata_log.format.batch import CHAIN_BYTES, Batch
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Offset, OffsetAndEpoch
from metadata_log.format.records import (
    METADATA_VERSION,
    METADATA_VERSION_MAX,
    FeatureLevel,
    MetadataRecord,
    NoOp,
    Partition,
)
from metadata_log.image.delta import InvalidRecord
from metadata_log.image.metadata_image import MetadataImage, Provenance
from metadata_log.image.replay import Loading, Replay, ReplayStopped
from snapshots.offline.kafka.log_files import KafkaLog, SnapshotFile
from snapshots.offline.kafka.records import Placed
from snapshots.offline.kafka.records import Record as KafkaRecord
from snapshots.offline.kafka.scan import read_snapshot
from snapshots.offline.kafka.transcribe.batches import transcribed
from snapshots.offline.kafka.transcribe.records import Transcriber

NO_CHAIN: Final = bytes(CHAIN_BYTES)
OUR_LEVEL: Final = FeatureLevel(METADATA_VERSION, METADATA_VERSION_MAX)
"""Stands before the first record of a transcription: every record of ours may follow."""
_REPLAYED_AT_ONCE: Final = 256


class CannotTranscribe(LogFormatError):
    """The records of a log or snapshot do not make a state. The message names the place."""


class State(NamedTuple):
    """The state at one offset of Kafka's log."""

    image: MetadataImage
    base: OffsetAndEpoch | None
    """The snapshot from which the replay began; None: the log's beginning."""


def snapshot_records(placed: Iterable[Placed], transcriber: Transcriber) -> Iterator[MetadataRecord]:
    """Return the records of an image of ours for the records of a snapshot, its control records included. The level of our own
    feature and the partitions of each topic are in our order; everything else is in Kafka's.
    """
    yield OUR_LEVEL
    partitions: list[Partition] = []
    for each in placed:
        if isinstance(each.record, KafkaRecord) and each.record.message.is_control:
            continue
        record = transcriber.record(each)
        if isinstance(record, Partition):
            partitions.append(record)
            continue
        yield from _sorted(partitions)
        partitions = []
        if not isinstance(record, NoOp):
            yield cast(MetadataRecord, record)
    yield from _sorted(partitions)


def _sorted(partitions: list[Partition]) -> list[Partition]:
    return sorted(partitions, key=lambda each: (each.topic_id, each.partition))


def load_snapshot(directory: Directory, file: SnapshotFile, transcriber: Transcriber) -> MetadataImage:
    """Return the image of a snapshot.

    Raises:
        CorruptLog: the snapshot is damaged.
        CannotTranscribe: the records do not make an image.
    """
    loading, header = Loading(), _Header()
    try:
        for record in snapshot_records(header.watch(read_snapshot(directory, file.name)), transcriber):
            loading.take(record)
    except InvalidRecord as e:
        path = f"{directory.path_text}/{file.name}"
        raise CannotTranscribe(f"{path}: a record does not fit the records before it: {e.reason}") from None
    return loading.finish(Provenance(*file.end, header.timestamp_ms))


class _Header:
    """The time in the header of a snapshot that another function reads."""

    def __init__(self) -> None:
        self.timestamp_ms = 0

    def watch(self, placed: Iterable[Placed]) -> Iterator[Placed]:
        for each in placed:
            if isinstance(each.record, KafkaRecord) and each.record.name == "SnapshotHeaderRecord":
                self.timestamp_ms = max(0, each.record.fields["lastContainedLogTimestamp"])
            yield each


def empty_state() -> MetadataImage:
    """Return the state before the first record of a transcription."""
    loading = Loading()
    loading.take(OUR_LEVEL)
    return loading.finish(Provenance(0, 0, 0))


def base_of(log: KafkaLog, until: Offset | None = None) -> SnapshotFile | None:
    """Return the newest snapshot at or below `until` from which the log goes on; None: the log begins at 0, and has no snapshot.

    Raises:
        CannotTranscribe: the log begins above 0, and no snapshot reaches its beginning.
    """
    start = log.start_offset
    usable = [
        each
        for each in log.snapshots
        if each.end.offset >= max(start, 1) and (until is None or each.end.offset <= until)
    ]
    if usable:
        return usable[-1]
    if log.segments and start == 0:
        return None
    raise CannotTranscribe(
        f"{log.directory.path_text}: the log begins at offset {start}, and no snapshot reaches from there to "
        f"{'its end' if until is None else f'offset {until}'}; copy the .checkpoint files of the node too"
    )


def beginning_of(log: KafkaLog) -> SnapshotFile | None:
    """Return the snapshot on which a replay of the whole log begins; None if the log begins at 0.

    Raises:
        CannotTranscribe: there is no such snapshot.
    """
    if log.segments and log.start_offset == 0:
        return None
    for each in log.snapshots:
        if each.end.offset >= max(1, log.start_offset):
            return each
    raise CannotTranscribe(
        f"{log.directory.path_text}: the log begins at offset {log.start_offset}, and no snapshot reaches from there; copy the "
        ".checkpoint files of the node too"
    )


def newest_state(log: KafkaLog, transcriber: Transcriber, until: Offset | None = None) -> State:
    """Return the state at the end of a log, or at `until`, the end of a batch.

    Raises:
        CorruptLog: the log, or the snapshot below it, is damaged.
        CannotTranscribe: a record does not fit, or the log does not reach `until`.
    """
    base = base_of(log, until)
    image = empty_state() if base is None else load_snapshot(log.directory, base, transcriber)
    replay = Replay(image)
    pending: list[Batch] = []
    since = image.provenance.offset
    try:
        for batch in transcribed(log, transcriber, NO_CHAIN, since, until):
            pending.append(batch)
            if len(pending) == _REPLAYED_AT_ONCE:
                replay.apply(pending)
                pending = []
        replay.apply(pending)
    except ReplayStopped as e:
        raise CannotTranscribe(
            f"{log.directory.path_text}: the record at offset {e.offset} does not fit the records before it: {e.reason}"
        ) from None
    if until is not None and replay.offset != until:
        raise CannotTranscribe(
            f"{log.directory.path_text}: no batch ends at offset {until}; the batches below it end at {replay.offset}"
        )
    return State(replay.image, None if base is None else base.end)
