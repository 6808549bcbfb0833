"""Verifying and loading a snapshot in one pass, with the partitions still packed: the start of a broker.

    1. Broker 101 starts. Its snapshot has 1,000,000 partitions in 34 MB.
    2. It reads each batch once: CRC, chain and order are checked, and the records go into an image. The columns of the partitions
       stay packed (`metadata_log.format.packed_states`).
    3. At the footer the image's digest and number of records must be those of the footer. If not, the image is dropped.

A controller verifies first and loads later, in slices beside its elections (`quorum.runtime.protocol.jobs`).
"""

from collections.abc import Generator
from typing import NamedTuple

from metadata_log.disk.files import Directory
from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.format.packed_states import packed_run_of
from metadata_log.image.metadata_image import MetadataImage, Provenance
from metadata_log.image.replay import Loading
from snapshots.format import SnapshotMeta, snapshot_name
from snapshots.reader import Parts, check_sums, data_batches, pieces_of


class LoadedSnapshot(NamedTuple):
    """A snapshot that was verified, and its image."""

    meta: SnapshotMeta
    image: MetadataImage


def load_packed(directory: Directory, end: OffsetAndEpoch) -> LoadedSnapshot:
    """Verify the snapshot at `end` like `verify_snapshot`, and return its image (`check_packed` is the rest).

    Raises:
        SnapshotCorrupt: the snapshot is damaged; the text names file and position.
        InvalidRecord: the records do not form an image.
        UnsupportedRecord: a record was written by a newer release.
        FileNotFoundError: the snapshot does not exist.
    """
    steps = load_in_steps(directory, end)
    while True:
        try:
            next(steps)
        except StopIteration as e:
            loaded: LoadedSnapshot = e.value
            return loaded


def load_in_steps(directory: Directory, end: OffsetAndEpoch) -> Generator[None, None, LoadedSnapshot]:
    """Do the same as `load_packed`, in steps of a millisecond or two, for work beside an event loop. Raises as `load_packed`."""
    name = snapshot_name(end)
    path = f"{directory.path_text}/{name}"
    parts, loading = Parts(end), Loading()
    file = directory.open(name)
    try:
        for position, batch in data_batches(file, path, parts):
            for piece in pieces_of(batch, path, position, packed_run_of):
                loading.take(piece)
                yield
        size = file.size()
    finally:
        file.close()
    footer, meta = parts.whole(path, size)
    image = loading.finish(Provenance(end.offset, end.epoch, meta.timestamp_ms))
    check_sums(footer, image.record_count, image.digest_bytes, path, size)
    return LoadedSnapshot(meta, image)
