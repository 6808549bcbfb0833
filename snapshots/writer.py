"""Writing a snapshot: after any crash the snapshot exists as a whole or not at all.

The order is: write `.part`, fsync, rename, fsync of the directory. The writer uses only the immutable image and a file
of its own, so it may run on any thread.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from metadata_log.disk.files import Directory, File
from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.format.partition_runs import PartitionRun
from metadata_log.format.records import MetadataRecord
from metadata_log.image.metadata_image import MetadataImage
from snapshots.format import SnapshotMeta, parse_name, part_name, snapshot_name, snapshot_steps

WRITE_BYTES = 1 << 20
"""About how many bytes the writer collects for one write."""


class SnapshotInfo(NamedTuple):
    """One snapshot on disk."""

    end: OffsetAndEpoch
    size: int
    timestamp_ms: int


def write_image(directory: Directory, meta: SnapshotMeta, image: MetadataImage) -> SnapshotInfo:
    """Write the snapshot of `image`, which must be the state at `meta.end`."""
    return image_writer(directory, meta, image).run()


def image_writer(directory: Directory, meta: SnapshotMeta, image: MetadataImage) -> "SnapshotWriter":
    """Return the steps of `write_image`."""
    assert image.provenance.offset == meta.end.offset, (image.provenance, meta.end)
    return SnapshotWriter(directory, meta, image.canonical_pieces(), image.digest_bytes)


def write_records(
    directory: Directory,
    meta: SnapshotMeta,
    records: Iterable[MetadataRecord | PartitionRun],
    *,
    replaces: bool = False,
) -> SnapshotInfo:
    """Write the snapshot of these canonical records. If a snapshot with this end exists, do nothing, or with `replaces` put the
    new file in its place when it is whole.

    Raises:
        OSError, FlushFailed: the disk failed; a `.part` file may remain, which the next start removes.
    """
    return SnapshotWriter(directory, meta, records, replaces=replaces).run()


@contextmanager
def exclusive(directory: Directory) -> Iterator[None]:
    """Let only this process write snapshots into the directory until the end of the block. No `.part` file stays: neither one of
    a process that was killed, nor one of this process if it fails. So a full disk gets its bytes back.

    Raises:
        DirectoryInUse: another process writes there.
    """
    directory.lock()
    try:
        _remove_unfinished(directory)
        yield
    except BaseException:
        _remove_unfinished(directory)
        raise
    finally:
        directory.unlock()


def _remove_unfinished(directory: Directory) -> None:
    for name in directory.names():
        parsed = parse_name(name)
        if parsed is not None and parsed[1]:
            directory.remove(name)


class SnapshotWriter:
    """Writes one snapshot in steps: `begin`, then `slices` with `write` in between, then `finish`; at last `close`.

    Only `slices` computes, and only the other steps use the disk. So an event loop can take the slices between its other
    work, and leave the other steps to a thread.
    """

    def __init__(
        self,
        directory: Directory,
        meta: SnapshotMeta,
        records: Iterable[MetadataRecord | PartitionRun],
        digest: bytes | None = None,
        *,
        replaces: bool = False,
    ) -> None:
        self._directory = directory
        self._replaces = replaces
        self._meta = meta
        self._steps = snapshot_steps(meta, records, digest)
        self._file: File | None = None
        self._pending = bytearray()
        self._position = 0

    def run(self) -> SnapshotInfo:
        """Take all steps."""
        try:
            self.begin()
            for _ in self.slices():
                if self.has_chunk:
                    self.write()
            return self.finish()
        finally:
            self.close()

    def begin(self) -> None:
        """Open the `.part` file, unless a snapshot with this end exists that is not replaced."""
        if self._replaces or not self._directory.exists(snapshot_name(self._meta.end)):
            self._file = self._directory.open(part_name(self._meta.end), create=True)
            self._file.truncate(0)

    def slices(self) -> Iterator[None]:
        """Make the bytes of the snapshot. A slice makes those of one record, of at most 1,000 partitions."""
        if self._file is not None:
            for batch in self._steps:
                if batch is not None:
                    self._pending += batch.data
                yield

    @property
    def has_chunk(self) -> bool:
        """True if there are enough bytes for a write."""
        return len(self._pending) >= WRITE_BYTES

    def write(self) -> None:
        """Write the bytes that are there.

        Raises:
            OSError: the disk failed.
        """
        assert self._file is not None
        self._file.write_at(self._position, bytes(self._pending))
        self._position += len(self._pending)
        self._pending.clear()

    def finish(self) -> SnapshotInfo:
        """Write the rest, and give the snapshot its name.

        Raises:
            OSError, FlushFailed: the disk failed.
        """
        name = snapshot_name(self._meta.end)
        if self._file is None:
            return SnapshotInfo(self._meta.end, _size(self._directory, name), self._meta.timestamp_ms)
        self.write()
        self._file.flush()
        self.close()
        self._directory.rename(part_name(self._meta.end), name)
        self._directory.flush()
        return SnapshotInfo(self._meta.end, self._position, self._meta.timestamp_ms)

    def close(self) -> None:
        """Close the file, after the last step or after an error."""
        if self._file is not None:
            self._file.close()


def _size(directory: Directory, name: str) -> int:
    file = directory.open(name)
    try:
        return file.size()
    finally:
        file.close()
