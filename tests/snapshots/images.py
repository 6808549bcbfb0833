"""Snapshots for tests: an image of a random history, and the metadata that a log would have for it."""

from collections.abc import Iterable, Iterator

from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.format.partition_runs import PartitionRun
from metadata_log.format.records import Endpoint, MetadataRecord, Voter, Voters
from metadata_log.image.metadata_image import MetadataImage, Provenance, evolved
from snapshots.format import SnapshotMeta
from tests.metadata_log.image.histories import History

VOTERS = Voters((Voter(1, b"d" * 16, (Endpoint("CONTROLLER", "c1", 9093),)),))


def image_at(offset: int, epoch: int = 1, *, seed: int = 6, steps: int = 25) -> MetadataImage:
    """Return an image of a random history, placed at `offset`."""
    return evolved(History(seed).run(steps).image, {"provenance": Provenance(offset, epoch, 1_000 + offset)})


def records_in(pieces: Iterable[MetadataRecord | PartitionRun]) -> Iterator[MetadataRecord]:
    """Return the records, one by one."""
    for piece in pieces:
        if isinstance(piece, PartitionRun):
            yield from piece.records()
        else:
            yield piece


def meta_of(image: MetadataImage) -> SnapshotMeta:
    offset, epoch, timestamp_ms = image.provenance
    return SnapshotMeta(OffsetAndEpoch(offset, epoch), timestamp_ms, offset.to_bytes(32, "big"), VOTERS, 1)
