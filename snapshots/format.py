"""The format of a snapshot: the state of the cluster at one offset, as batches of canonical records (KIP-630).

    00000000000000001234-0000000007.checkpoint        the state after [0, 1234); the record at 1233 is of epoch 7
                                   .checkpoint.part   the same, not complete yet

An epoch has ten digits in the name, or more if needed. Snapshots are ordered by number, not by name.

    control batch   SnapshotHeader
    control batch   KRaftVersion, Voters              the quorum at that offset
    data batches    canonical records in canonical order, partitions in columns (`metadata_log.format.partition_runs`)
    control batch   SnapshotFooter                    the log's chain at the end, the image's digest, the record count

The batches have the log's format, with a chain of their own that begins with a constant.

*Every node writes the same bytes*, because nothing in the file depends on the machine: epoch and time come from the log
just below the end, base offsets count the records in the file, and the records alone decide where a batch ends. A Spark
job that folds the log writes the same bytes, too. Example:
  1. controllers 1, 2 and 3 reach the snapshot mark at 1233, and each writes `...1234-0000000007.checkpoint`;
  2. broker 7 downloads the first half of that file from controller 1, which then dies;
  3. broker 7 downloads the second half from controller 2, and the whole file verifies.

The bootstrap checkpoint `0-0` is written when a directory is formatted, and has the first voter set. Nodes never send
it.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from metadata_log.format.batch import Batch, encode, genesis_chain
from metadata_log.format.codec import encode_record, encode_records, encode_valid
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import EPOCH_MAX, OFFSET_MAX, OffsetAndEpoch
from metadata_log.format.partition_runs import PartitionRun, columns_of
from metadata_log.format.records import (
    METADATA_VERSION,
    RECORD_LEVELS,
    FeatureLevel,
    KRaftVersion,
    MetadataRecord,
    PartitionColumns,
    Record,
    SnapshotFooter,
    SnapshotHeader,
    Voters,
)
from metadata_log.image.digest import MODULUS, digest_to_bytes
from metadata_log.image.topic_image import in_runs

FORMAT_VERSION: Final = 1
SUFFIX: Final = ".checkpoint"
PART_SUFFIX: Final = ".checkpoint.part"
BOOTSTRAP_END: Final = OffsetAndEpoch(0, 0)
FIRST_CHAIN: Final = hashlib.sha256(b"metaquorum snapshot 1").digest()
DATA_BATCH_RECORDS: Final = 1_000
DATA_BATCH_BYTES: Final = 512 << 10
"""Maximum number of records and bytes in a data batch. A single record that is larger gets a batch of its own."""
_NAME: Final = re.compile(r"([0-9]{20})-([0-9]{10}|[1-9][0-9]{10,18})\.checkpoint(\.part)?")
"""Pattern of snapshot names. An epoch above ten digits has no leading zero, so each snapshot has one name only."""


class SnapshotCorrupt(LogFormatError):
    """A snapshot is damaged. The text names file and position."""

    file: str = ""
    position: int = 0
    """The byte in `file` at which the damaged part begins."""

    @classmethod
    def at(cls, file: str, position: int, reason: str) -> "SnapshotCorrupt":
        """Make the error for damage at a known place."""
        error = cls(f"{file}, position {position}: {reason}")
        error.file, error.position = file, position
        return error


class SnapshotMeta(NamedTuple):
    """The content of a snapshot apart from its records. All of it comes from the log."""

    end: OffsetAndEpoch
    timestamp_ms: int
    """The time of the last batch below the end."""
    chain: bytes
    """The log's chain at the end."""
    voters: Voters
    kraft_version: int


def snapshot_name(end: OffsetAndEpoch) -> str:
    return f"{end.offset:020d}-{end.epoch:010d}{SUFFIX}"


def part_name(end: OffsetAndEpoch) -> str:
    return f"{end.offset:020d}-{end.epoch:010d}{PART_SUFFIX}"


def parse_name(name: str) -> tuple[OffsetAndEpoch, bool] | None:
    """Parse a snapshot's file name into its end, and True if it is a `.part`; None for any other name."""
    match = _NAME.fullmatch(name)
    if match is None or int(match[1]) > OFFSET_MAX or int(match[2]) > EPOCH_MAX:
        return None
    return OffsetAndEpoch(int(match[1]), int(match[2])), match[3] is not None


def genesis(cluster_id: str, voters: Voters) -> bytes:
    """Return the chain before the first record of a cluster that was formatted with these voters."""
    return genesis_chain(cluster_id, encode_record(voters))


def snapshot_batches(
    meta: SnapshotMeta, records: Iterable[MetadataRecord | PartitionRun], digest: bytes | None = None
) -> Iterator[Batch]:
    """Make the batches of a snapshot, in order, one at a time. See `snapshot_steps`."""
    return (batch for batch in snapshot_steps(meta, records, digest) if batch is not None)


def snapshot_steps(
    meta: SnapshotMeta, records: Iterable[MetadataRecord | PartitionRun], digest: bytes | None = None
) -> Iterator[Batch | None]:
    """Make the batches of a snapshot, in order. A step that makes no batch packs one record, and returns None.

    `records` are the canonical records in canonical order; partitions may come one by one, or in runs, which is faster.
    `digest` is the image's digest; None: it is computed from the records.
    """
    sealer = _Sealer(meta)
    header = SnapshotHeader(FORMAT_VERSION, meta.end.offset, meta.end.epoch, meta.timestamp_ms)
    yield sealer.control([header])
    yield sealer.control([KRaftVersion(meta.kraft_version), meta.voters])
    pending: list[bytes] = []
    pending_bytes, count, total = 0, 0, 0
    for packed, number, hashes in _packed(in_runs(records), hashed=digest is None):
        count += number
        total += hashes
        if len(pending) >= DATA_BATCH_RECORDS or (pending and pending_bytes + len(packed) > DATA_BATCH_BYTES):
            yield sealer.data(pending)
            pending, pending_bytes = [], 0
        pending.append(packed)
        pending_bytes += len(packed)
        yield None
    if pending:
        yield sealer.data(pending)
    if digest is None:
        digest = digest_to_bytes(total % MODULUS)
    yield sealer.control([SnapshotFooter(meta.chain, digest, count)])


def _packed(pieces: Iterable[MetadataRecord | PartitionRun], *, hashed: bool) -> Iterator[tuple[bytes, int, int]]:
    """Return the bytes of each record, the number of canonical records in it, and (if `hashed`) the sum of their hashes.

    The levels of the features come first, so the level of the image is known before the first partition. Below the level of
    `PartitionColumns` each partition is a record of its own, which release 0.1.0 reads.
    """
    has_columns = False
    for piece in pieces:
        if isinstance(piece, PartitionRun) and has_columns:
            yield encode_valid(columns_of(piece)), len(piece.states), piece.hashes
            continue
        if isinstance(piece, FeatureLevel) and piece.name == METADATA_VERSION:
            has_columns = piece.level >= RECORD_LEVELS[PartitionColumns]
        for record in piece.records() if isinstance(piece, PartitionRun) else (piece,):
            packed = encode_valid(record)
            yield packed, 1, int.from_bytes(hashlib.sha256(packed).digest(), "big") if hashed else 0


class _Sealer:
    """Makes the batches of one snapshot, one after the other."""

    def __init__(self, meta: SnapshotMeta) -> None:
        self._meta = meta
        self._offset = 0
        self._chain = FIRST_CHAIN

    def control(self, records: list[Record]) -> Batch:
        return self._seal(encode_records(records), len(records), is_control=True)

    def data(self, packed: list[bytes]) -> Batch:
        return self._seal(b"".join(packed), len(packed), is_control=False)

    def _seal(self, payload: bytes, count: int, *, is_control: bool) -> Batch:
        batch = encode(
            payload,
            base_offset=self._offset,
            epoch=self._meta.end.epoch,
            record_count=count,
            first_timestamp_ms=self._meta.timestamp_ms,
            last_timestamp_ms=self._meta.timestamp_ms,
            is_control=is_control,
            previous_chain=self._chain,
        )
        self._offset, self._chain = batch.end_offset, batch.chain
        return batch
