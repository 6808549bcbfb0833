"""Reading a snapshot, with all checks: every CRC, the chain, the order of the parts, the count and the digest.

The file is read in windows, and a batch's length is checked before memory is allocated for it. The number of batches has no
maximum, because the cluster has no maximum of partitions: a limit here would keep a node out of a cluster that has grown.
Snapshots come from the node's own disk and from controllers of its cluster.

    read_snapshot    verifies the whole file before it returns the first record
    verify_snapshot  the same for a node, which believes the hashes in the columns of partitions
    load_packed      verifies and loads in one pass (`loader`): for the start of a broker
    read_runs        checks CRCs and chain while it reads, partitions in runs: for files that were verified before
    read_meta        reads only the first two batches and the footer, with their CRCs: for verified files
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple, TypeAlias, cast

from metadata_log.disk.failures import is_unreadable
from metadata_log.disk.files import Directory, File
from metadata_log.format.batch import BATCH_BYTES_MAX, HEADER_BYTES, Batch, decode, verify_chain
from metadata_log.format.codec import UnknownRecord, decode_batch, decode_record, split_payload
from metadata_log.format.errors import LogFormatError, UnsupportedRecord
from metadata_log.format.ids import OffsetAndEpoch, uuid_text
from metadata_log.format.partition_runs import PartitionRun, run_of
from metadata_log.format.records import (
    RECORD_VERSION,
    TYPE_NUMBERS,
    KRaftVersion,
    MetadataRecord,
    PartitionColumns,
    Record,
    SnapshotFooter,
    SnapshotHeader,
    Voters,
)
from metadata_log.image.digest import DIGEST_BYTES, MODULUS, digest_to_bytes, partitions_hash
from snapshots.format import (
    FIRST_CHAIN,
    FORMAT_VERSION,
    SnapshotCorrupt,
    SnapshotMeta,
    part_name,
    snapshot_name,
)

_COLUMNS_MARK: Final = bytes((TYPE_NUMBERS[PartitionColumns], RECORD_VERSION))
"""The first bytes of `PartitionColumns` after its array's head: type and version."""
HashesOf: TypeAlias = Callable[[PartitionColumns], tuple[int, int]]
"""Returns the sum of the hashes of the partitions in a record, and their number."""
_WINDOW_BYTES: Final = 4 << 20
_FOOTER_SIZES: Final = tuple(HEADER_BYTES + 3 + 2 * (2 + DIGEST_BYTES) + count_bytes for count_bytes in (1, 2, 3, 5, 9))
"""Possible sizes of a footer's batch: MessagePack writes a count in one of these lengths."""

assert _WINDOW_BYTES >= BATCH_BYTES_MAX


class SnapshotContents(NamedTuple):
    """A verified snapshot; `records` are decoded while the caller reads them."""

    meta: SnapshotMeta
    digest: bytes
    record_count: int
    records: Iterator[MetadataRecord]


def read_snapshot(directory: Directory, end: OffsetAndEpoch, *, part: bool = False) -> SnapshotContents:
    """Verify the snapshot at `end` as a whole (CRCs, chain, digest, count), then decode its records while the caller
    reads them.

    Raises:
        SnapshotCorrupt: the snapshot is damaged; the text names file and position.
        FileNotFoundError: the snapshot does not exist.
    """
    footer, meta = _verified(directory, end, part, _checked_hashes)
    name = part_name(end) if part else snapshot_name(end)
    return SnapshotContents(meta, footer.digest, footer.record_count, records_of(directory, name))


def verify_snapshot(directory: Directory, end: OffsetAndEpoch, *, part: bool = False) -> SnapshotMeta:
    """Verify the snapshot at `end` like `read_snapshot`, but believe the hashes in the columns of partitions.

    A node verifies its snapshots at each start. CRCs and chain find all damage of the disk, and computing the hashes of two
    million partitions would take most of the start. Only `read_snapshot` finds that a writer packed a partition wrongly.

    Raises:
        SnapshotCorrupt, FileNotFoundError: as `read_snapshot`.
    """
    return _verified(directory, end, part, _named_hashes)[1]


def read_runs(directory: Directory, end: OffsetAndEpoch) -> Iterator[MetadataRecord | PartitionRun]:
    """Read the records of a snapshot, partitions in runs. CRCs and chain are checked while reading; the digest is not checked.

    Raises:
        SnapshotCorrupt: the snapshot is damaged; the text names file and position.
        UnsupportedRecord: a record was written by a newer release.
    """
    return _runs(directory, snapshot_name(end))


def read_meta(directory: Directory, end: OffsetAndEpoch) -> SnapshotMeta:
    """Read the header, quorum and footer of a snapshot: a few reads, however large the file is.

    Raises:
        SnapshotCorrupt: one of these is damaged. The batches between them are not read.
        FileNotFoundError: the snapshot does not exist.
    """
    name = snapshot_name(end)
    path = f"{directory.path_text}/{name}"
    file = directory.open(name)
    try:
        batches = batches_of(file, path)
        head = []
        for position, batch in batches:
            head.append((position, batch))
            if len(head) == 2:
                break
        if len(head) < 2:
            raise SnapshotCorrupt.at(path, file.size(), "the file ends before its footer")
        header = _header(head[0][1], end, path, head[0][0])
        kraft_version, voters = _quorum(head[1][1], path, head[1][0])
        footer = _footer_at_end(file, path)
    finally:
        file.close()
    return SnapshotMeta(end, header.last_contained_log_timestamp_ms, footer.chain, voters, kraft_version)


def batches_of(file: File, path: str) -> Iterator[tuple[int, Batch]]:
    """Read every batch of a snapshot's file with its position. Check CRC and chain, but not the order of the parts.

    Raises:
        SnapshotCorrupt: the file is damaged; the text names file and position.
    """
    size, position, chain = file.size(), 0, FIRST_CHAIN
    window, window_start = b"", 0
    while position < size:
        at = position - window_start
        if at + BATCH_BYTES_MAX > len(window) and window_start + len(window) < size:
            window, window_start, at = file.read_at(position, _WINDOW_BYTES), position, 0
        try:
            batch = decode(window, at)
        except LogFormatError as e:
            raise SnapshotCorrupt.at(path, position, str(e)) from e
        if not verify_chain(batch, chain):
            raise SnapshotCorrupt.at(path, position, "the batch does not continue the previous batch")
        chain = batch.chain
        yield position, batch
        position += len(batch.data)


@contextmanager
def unreadable_is_damaged() -> Iterator[None]:
    """Treat an unreadable sector as damage, for a caller that can use another snapshot, or a copy from another node.

    A process that ends with the disk's own error is restarted, and its next read may succeed. A process that ends with
    damage is not restarted.

    Raises:
        SnapshotCorrupt: instead of the disk's error.
    """
    try:
        yield
    except OSError as e:
        if not is_unreadable(e):
            raise
        raise SnapshotCorrupt(f"the disk cannot read the snapshot, which is treated as damaged: {e}") from e


def _verified(
    directory: Directory, end: OffsetAndEpoch, part: bool, hashes_of: HashesOf
) -> tuple[SnapshotFooter, SnapshotMeta]:
    name = part_name(end) if part else snapshot_name(end)
    file = directory.open(name)
    try:
        return _verify(file, f"{directory.path_text}/{name}", end, hashes_of)
    finally:
        file.close()


class Parts:
    """The control batches of a snapshot, filled in by `data_batches`."""

    def __init__(self, end: OffsetAndEpoch) -> None:
        self.end = end
        self.header: SnapshotHeader | None = None
        self.quorum: tuple[int, Voters] | None = None
        self.footer: SnapshotFooter | None = None

    def whole(self, path: str, size: int) -> tuple[SnapshotFooter, SnapshotMeta]:
        """Return the content of all parts. Raises SnapshotCorrupt: one of them is missing."""
        header, quorum, footer = self.header, self.quorum, self.footer
        if header is None or quorum is None or footer is None:
            raise SnapshotCorrupt.at(path, size, "the file ends before its footer")
        meta = SnapshotMeta(self.end, header.last_contained_log_timestamp_ms, footer.chain, quorum[1], quorum[0])
        return footer, meta


def data_batches(file: File, path: str, parts: Parts) -> Iterator[tuple[int, Batch]]:
    """Read the batches with records, each with its position, and check the order of all batches. `parts` gets the others.

    Raises:
        SnapshotCorrupt: the file is damaged, or a batch is not where it should be.
    """
    end, offset = parts.end, 0
    for position, batch in batches_of(file, path):
        if parts.footer is not None:
            raise SnapshotCorrupt.at(path, position, "something follows the footer")
        if batch.base_offset != offset or batch.epoch != end.epoch:
            raise SnapshotCorrupt.at(
                path, position, f"a batch {batch} where offset {offset} of epoch {end.epoch} is expected"
            )
        offset = batch.end_offset
        if parts.header is None:
            parts.header = _header(batch, end, path, position)
        elif parts.quorum is None:
            parts.quorum = _quorum(batch, path, position)
        elif batch.is_control:
            parts.footer = _footer(batch, path, position)
        else:
            yield position, batch
        if {batch.first_timestamp_ms, batch.last_timestamp_ms} != {parts.header.last_contained_log_timestamp_ms}:
            raise SnapshotCorrupt.at(path, position, "the batch has another time than the header")


def _verify(file: File, path: str, end: OffsetAndEpoch, hashes_of: HashesOf) -> tuple[SnapshotFooter, SnapshotMeta]:
    parts = Parts(end)
    total = count = 0
    for position, batch in data_batches(file, path, parts):
        hashed, number = _hash_records(batch, path, position, hashes_of)
        total += hashed
        count += number
    footer, meta = parts.whole(path, file.size())
    check_sums(footer, count, digest_to_bytes(total % MODULUS), path, file.size())
    return footer, meta


def check_sums(footer: SnapshotFooter, count: int, digest: bytes, path: str, position: int) -> None:
    """Compare count and digest with the footer.

    The footer's digest was kept with the image, not computed from the bytes. So only this check finds a record that was
    wrong before it was packed.
    """
    if footer.record_count != count or footer.digest != digest:
        reason = f"{count} records with digest {digest.hex()[:16]}; the footer says {footer.record_count} and "
        raise SnapshotCorrupt.at(path, position, reason + footer.digest.hex()[:16])


def _hash_records(batch: Batch, path: str, position: int, hashes_of: HashesOf) -> tuple[int, int]:
    """Return the sum of the canonical records' hashes, and the number of these records."""
    total = count = 0
    try:
        for packed in split_payload(batch.payload, batch.record_count):
            record = decode_record(packed) if packed.startswith(_COLUMNS_MARK, 1) else None
            if isinstance(record, PartitionColumns):
                hashes, partitions = hashes_of(record)
            else:
                hashes, partitions = int.from_bytes(hashlib.sha256(packed).digest(), "big"), 1
            total += hashes
            count += partitions
    except LogFormatError as e:
        raise SnapshotCorrupt.at(path, position, str(e)) from e
    return total, count


def _named_hashes(record: PartitionColumns) -> tuple[int, int]:
    return int.from_bytes(record.hashes, "big"), record.partition_count


def _checked_hashes(record: PartitionColumns) -> tuple[int, int]:
    """Return the sum of the hashes of the partitions, computed from the partitions, and their number.

    Raises:
        LogFormatError: the columns do not fit each other, or the record names another sum.
    """
    run = run_of(record)
    hashes = partitions_hash(run.topic_id, run.first, run.states) % MODULUS
    if hashes != run.hashes:
        last = run.first + len(run.states) - 1
        raise LogFormatError(f"partitions {run.first} to {last} of topic {uuid_text(run.topic_id)} have another hash")
    return hashes, len(run.states)


def _control(batch: Batch, path: str, position: int) -> list[object]:
    if not batch.is_control:
        raise SnapshotCorrupt.at(path, position, "records where a control batch should be")
    try:
        return list(decode_batch(batch))
    except LogFormatError as e:
        raise SnapshotCorrupt.at(path, position, str(e)) from e


def _header(batch: Batch, end: OffsetAndEpoch, path: str, position: int) -> SnapshotHeader:
    match _control(batch, path, position):
        case [SnapshotHeader() as header]:
            pass
        case other:
            raise SnapshotCorrupt.at(path, position, f"{other} where the header should be")
    if header.format_version != FORMAT_VERSION:
        reason = f"snapshot format {header.format_version}; this code reads {FORMAT_VERSION}"
        raise SnapshotCorrupt.at(path, position, reason)
    if (header.end_offset, header.epoch) != end:
        reason = f"the header says {header.end_offset}@{header.epoch}, the file's name says {end}"
        raise SnapshotCorrupt.at(path, position, reason)
    return header


def _quorum(batch: Batch, path: str, position: int) -> tuple[int, Voters]:
    match _control(batch, path, position):
        case [KRaftVersion(level=level), Voters() as voters]:
            return level, voters
        case other:
            raise SnapshotCorrupt.at(path, position, f"{other} where the voter set should be")


def _footer(batch: Batch, path: str, position: int) -> SnapshotFooter:
    match _control(batch, path, position):
        case [SnapshotFooter() as footer]:
            pass
        case other:
            raise SnapshotCorrupt.at(path, position, f"{other} where the footer should be")
    if len(footer.chain) != DIGEST_BYTES or len(footer.digest) != DIGEST_BYTES:
        raise SnapshotCorrupt.at(path, position, "a chain or digest that is not 32 bytes long")
    return footer


def _footer_at_end(file: File, path: str) -> SnapshotFooter:
    size = file.size()
    tail_start = max(0, size - max(_FOOTER_SIZES))
    tail = file.read_at(tail_start, max(_FOOTER_SIZES))
    for footer_size in _FOOTER_SIZES:
        at = len(tail) - footer_size
        if at < 0:
            continue
        try:
            batch = decode(tail, at)
        except LogFormatError:
            continue
        if len(batch.data) == footer_size:
            return _footer(batch, path, tail_start + at)
    raise SnapshotCorrupt.at(path, tail_start, "the file does not end with a footer")


def _runs(directory: Directory, name: str) -> Iterator[MetadataRecord | PartitionRun]:
    path = f"{directory.path_text}/{name}"
    file = directory.open(name)
    try:
        for position, batch in batches_of(file, path):
            if not batch.is_control:
                yield from pieces_of(batch, path, position, run_of)
    finally:
        file.close()


def pieces_of(
    batch: Batch, path: str, position: int, run: Callable[[PartitionColumns], PartitionRun]
) -> Iterator[MetadataRecord | PartitionRun]:
    """Read the records of one data batch, partitions in runs.

    Raises:
        SnapshotCorrupt, UnsupportedRecord: as `read_runs`.
    """
    try:
        for record in decode_batch(batch):
            yield run(record) if isinstance(record, PartitionColumns) else _known(record, path, position)
    except (UnsupportedRecord, SnapshotCorrupt):
        raise
    except LogFormatError as e:
        raise SnapshotCorrupt.at(path, position, str(e)) from e


def _known(record: Record | UnknownRecord, path: str, position: int) -> MetadataRecord:
    if isinstance(record, UnknownRecord):
        raise UnsupportedRecord(f"{path}, position {position}: a record of type {record.type_number}")
    return cast(MetadataRecord, record)


def records_of(directory: Directory, name: str) -> Iterator[MetadataRecord]:
    """Read the records of the snapshot in this file, partitions one by one. CRCs and chain are checked, and the digest is not.

    Raises:
        SnapshotCorrupt, UnsupportedRecord: as `read_runs`.
    """
    for piece in _runs(directory, name):
        if isinstance(piece, PartitionRun):
            yield from piece.records()
        else:
            yield piece
