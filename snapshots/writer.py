"""Writes a snapshot so that it is there whole or not at all: `.part`, fsync, rename, fsync of the directory.

Touches the immutable image and a file of its own, so it may run on any thread.
"""

from collections.abc import Iterable
from typing import NamedTuple

from metadata_log.disk.files import Directory
from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.format.records import MetadataRecord
from metadata_log.image.metadata_image import MetadataImage
from snapshots.format import SnapshotMeta, part_name, snapshot_batches, snapshot_name

WRITE_BYTES = 1 << 20
"""Batches are gathered to writes of about this size."""


class SnapshotInfo(NamedTuple):
    """One snapshot on disk."""

    end: OffsetAndEpoch
    size: int
    timestamp_ms: int


def write_image(directory: Directory, meta: SnapshotMeta, image: MetadataImage) -> SnapshotInfo:
    """The snapshot of `image`, which must be the state at `meta.end`."""
    assert image.provenance.offset == meta.end.offset, (image.provenance, meta.end)
    return write_records(directory, meta, image.canonical_records(), image.digest_bytes)


def write_records(
    directory: Directory, meta: SnapshotMeta, records: Iterable[MetadataRecord], digest: bytes | None = None
) -> SnapshotInfo:
    """The snapshot of these canonical records. Where there is one at this end already, nothing is done.

    Raises:
        OSError, FlushFailed: the disk's; a `.part` file may be left, which the next start removes.
    """
    name = snapshot_name(meta.end)
    if directory.exists(name):
        return SnapshotInfo(meta.end, _size(directory, name), meta.timestamp_ms)
    file = directory.open(part_name(meta.end), create=True)
    try:
        file.truncate(0)
        position = 0
        pending = bytearray()
        for batch in snapshot_batches(meta, records, digest):
            pending += batch.data
            if len(pending) >= WRITE_BYTES:
                file.write_at(position, bytes(pending))
                position += len(pending)
                pending.clear()
        file.write_at(position, bytes(pending))
        position += len(pending)
        file.flush()
    finally:
        file.close()
    directory.rename(part_name(meta.end), name)
    directory.flush()
    return SnapshotInfo(meta.end, position, meta.timestamp_ms)


def _size(directory: Directory, name: str) -> int:
    file = directory.open(name)
    try:
        return file.size()
    finally:
        file.close()
