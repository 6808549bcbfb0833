"""Reads a snapshot and believes nothing: every CRC, the chain, the order of the parts, the count and the digest are checked.

The file is read in windows, never at once; a batch's length is checked before anybody allocates by it.
"""

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

from metadata_log.batch import BATCH_BYTES_MAX, Batch, decode, verify_chain
from metadata_log.codec import UnknownRecord, decode_batch, split_payload
from metadata_log.digest import MODULUS, digest_to_bytes
from metadata_log.errors import LogFormatError, UnsupportedRecord
from metadata_log.files import Directory, File
from metadata_log.ids import OffsetAndEpoch
from metadata_log.records import (
    KRaftVersion,
    MetadataRecord,
    SnapshotFooter,
    SnapshotHeader,
    Voters,
)
from snapshots.format import FIRST_CHAIN, FORMAT_VERSION, SnapshotCorrupt, SnapshotMeta, part_name, snapshot_name

_WINDOW_BYTES = 4 << 20

assert _WINDOW_BYTES >= BATCH_BYTES_MAX


class SnapshotContents(NamedTuple):
    """A snapshot, open for reading. Draw `records` to the end: only then is all of it verified."""

    meta: SnapshotMeta
    digest: bytes
    record_count: int
    records: Iterator[MetadataRecord]


def read_snapshot(directory: Directory, end: OffsetAndEpoch, *, part: bool = False) -> SnapshotContents:
    """The snapshot at `end`, verified first as a whole (CRCs, chain, digest, count), then decoded as it is drawn.

    Raises:
        SnapshotCorrupt: naming file and position.
        FileNotFoundError: if there is none.
    """
    name = part_name(end) if part else snapshot_name(end)
    path = f"{directory.path_text}/{name}"
    file = directory.open(name)
    try:
        footer, meta = _verify(file, path, end)
    finally:
        file.close()
    return SnapshotContents(meta, footer.digest, footer.record_count, _records(directory, name))


def read_meta(directory: Directory, end: OffsetAndEpoch) -> SnapshotMeta:
    """What the snapshot says besides its records. Verifies the whole file."""
    return read_snapshot(directory, end).meta


def _batches(file: File, path: str) -> Iterator[tuple[int, Batch]]:
    """Every batch with its position; CRC and chain checked."""
    size, position, chain = file.size(), 0, FIRST_CHAIN
    window, window_start = b"", 0
    while position < size:
        at = position - window_start
        if at + BATCH_BYTES_MAX > len(window) and window_start + len(window) < size:
            window, window_start, at = file.read_at(position, _WINDOW_BYTES), position, 0
        try:
            batch = decode(window, at)
        except LogFormatError as e:
            raise SnapshotCorrupt(f"{path}, position {position}: {e}") from e
        if not verify_chain(batch, chain):
            raise SnapshotCorrupt(f"{path}, position {position}: the batch does not continue the one before it")
        chain = batch.chain
        yield position, batch
        position += len(batch.data)


def _verify(file: File, path: str, end: OffsetAndEpoch) -> tuple[SnapshotFooter, SnapshotMeta]:
    header: SnapshotHeader | None = None
    quorum: tuple[int, Voters] | None = None
    footer: SnapshotFooter | None = None
    total, count = 0, 0
    for position, batch in _batches(file, path):
        where = f"{path}, position {position}"
        if footer is not None:
            raise SnapshotCorrupt(f"{where}: something follows the footer")
        if header is None:
            header = _header(batch, end, where)
        elif quorum is None:
            quorum = _quorum(batch, where)
        elif batch.is_control:
            footer = _footer(batch, where)
        else:
            hashed, number = _hash_records(batch, where)
            total += hashed
            count += number
        if header is not None and batch.last_timestamp_ms != header.last_contained_log_timestamp_ms:
            raise SnapshotCorrupt(f"{where}: a batch of another time than the header's")
    if header is None or quorum is None or footer is None:
        raise SnapshotCorrupt(f"{path}, position {file.size()}: the file ends before its footer")
    digest = digest_to_bytes(total % MODULUS)
    if footer.record_count != count or footer.digest != digest:
        raise SnapshotCorrupt(f"{path}: {count} records with digest {digest.hex()[:16]}; the footer says otherwise")
    meta = SnapshotMeta(end, header.last_contained_log_timestamp_ms, footer.chain, quorum[1], quorum[0])
    return footer, meta


def _hash_records(batch: Batch, where: str) -> tuple[int, int]:
    """The sum of the records' hashes: each over its own bytes, as they were packed."""
    try:
        packed = split_payload(batch.payload, batch.record_count)
    except LogFormatError as e:
        raise SnapshotCorrupt(f"{where}: {e}") from e
    return sum(int.from_bytes(hashlib.sha256(record).digest(), "big") for record in packed), len(packed)


def _control(batch: Batch, where: str) -> list[object]:
    if not batch.is_control:
        raise SnapshotCorrupt(f"{where}: records where a control batch should be")
    try:
        return list(decode_batch(batch))
    except LogFormatError as e:
        raise SnapshotCorrupt(f"{where}: {e}") from e


def _header(batch: Batch, end: OffsetAndEpoch, where: str) -> SnapshotHeader:
    match _control(batch, where):
        case [SnapshotHeader() as header]:
            pass
        case other:
            raise SnapshotCorrupt(f"{where}: {other} where the header should be")
    if header.format_version != FORMAT_VERSION:
        raise SnapshotCorrupt(f"{where}: snapshot format {header.format_version}; this code reads {FORMAT_VERSION}")
    if (header.end_offset, header.epoch) != end:
        raise SnapshotCorrupt(f"{where}: the header says {header.end_offset}@{header.epoch}, the file's name says {end}")
    return header


def _quorum(batch: Batch, where: str) -> tuple[int, Voters]:
    match _control(batch, where):
        case [KRaftVersion(level=level), Voters() as voters]:
            return level, voters
        case other:
            raise SnapshotCorrupt(f"{where}: {other} where the voter set should be")


def _footer(batch: Batch, where: str) -> SnapshotFooter:
    match _control(batch, where):
        case [SnapshotFooter() as footer]:
            return footer
        case other:
            raise SnapshotCorrupt(f"{where}: {other} where the footer should be")


def _records(directory: Directory, name: str) -> Iterator[MetadataRecord]:
    path = f"{directory.path_text}/{name}"
    file = directory.open(name)
    try:
        for position, batch in _batches(file, path):
            if batch.is_control:
                continue
            for record in decode_batch(batch):
                if isinstance(record, UnknownRecord):
                    raise UnsupportedRecord(f"{path}, position {position}: a record of type {record.type_number}")
                yield record  # type: ignore[misc]
    finally:
        file.close()
