"""Writing a snapshot: after any crash the snapshot exists as a whole or not at all.

The order is: write `.part`, fsync, rename, fsync of the directory. The writer uses only the immutable image and a file
of its own, so it may run on any thread.
"""

from collections.abc import Iterable
from typing import NamedTuple

from metadata_log.disk.files import Directory
from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.format.records import MetadataRecord
from metadata_log.image.metadata_image import MetadataImage
from snapshots.format import SnapshotMeta, part_name, snapshot_batches, snapshot_name

WRITE_BYTES = 1 << 20
"""About how many bytes the writer collects for one write."""


class SnapshotInfo(NamedTuple):
    """One snapshot on disk."""

    end: OffsetAndEpoch
    size: int
    timestamp_ms: int


def write_image(directory: Directory, meta: SnapshotMeta, image: MetadataImage) -> SnapshotInfo:
    """Write the snapshot of `image`, which must be the state at `meta.end`."""
    assert image.provenance.offset == meta.end.offset, (image.provenance, meta.end)
    return write_records(directory, meta, image.canonical_records(), image.digest_bytes)


def write_records(
    directory: Directory, meta: SnapshotMeta, records: Iterable[MetadataRecord], digest: bytes | None = None
) -> SnapshotInfo:
    """Write the snapshot of these canonical records. Do nothing if a snapshot with this end exists.

    Raises:
        OSError, FlushFailed: the disk failed; a `.part` file may remain, which the next start removes.
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
