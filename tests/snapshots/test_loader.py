"""A snapshot that is verified and loaded in one pass is the snapshot that the two passes of a controller give."""

import random

import pytest

from metadata_log.format.errors import LogFormatError
from metadata_log.format.records import METADATA_VERSION, FeatureLevel, MetadataRecord, Partition, Topic
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.replay import Replay
from snapshots.format import SnapshotCorrupt, snapshot_name
from snapshots.loader import load_packed
from snapshots.reader import read_runs, verify_snapshot
from snapshots.writer import SnapshotWriter, write_image
from tests.metadata_log.image.histories import broker, uuid
from tests.sim.world.disk import MemoryDirectory
from tests.snapshots.images import image_at, meta_of


def image_of(partitions: int) -> MetadataImage:
    records: list[MetadataRecord] = [FeatureLevel(METADATA_VERSION, 2), *(broker(n, broker_epoch=n) for n in (1, 2, 3))]
    records.append(Topic("a", uuid(1)))
    records += [Partition(uuid(1), n, (1, 2, 3), (1, 2, 3), (), (), 1, 0, 0, 0) for n in range(partitions)]
    return Replay().load_snapshot(records, image_at(500).provenance)


@pytest.mark.parametrize("image", [image_at(500), image_at(500, seed=3, steps=60), image_of(1_500)], ids=repr)
def test_one_pass_gives_what_two_passes_give(image: MetadataImage) -> None:
    disk = MemoryDirectory("/d")
    info = write_image(disk, meta_of(image), image)
    loaded = load_packed(disk, info.end)
    assert loaded.meta == verify_snapshot(disk, info.end) == meta_of(image)
    twice = Replay().load_snapshot(read_runs(disk, info.end), image.provenance)
    assert loaded.image == twice
    assert [*loaded.image.canonical_records()] == [*twice.canonical_records()]


def test_any_flipped_byte_is_found() -> None:
    """A broker that starts with a damaged snapshot begins anew: no byte of the file may be wrong unnoticed."""
    image, dice = image_of(300), random.Random(5)
    disk = MemoryDirectory("/d")
    info = write_image(disk, meta_of(image), image)
    data = disk.read(snapshot_name(info.end), 1 << 20)
    for place in [0, len(data) - 1, *dice.sample(range(len(data)), 150)]:
        damaged = MemoryDirectory("/d")
        file = damaged.open(snapshot_name(info.end), create=True)
        file.write_at(0, data[:place] + bytes([data[place] ^ 1 << dice.randrange(8)]) + data[place + 1 :])
        with pytest.raises(LogFormatError):
            load_packed(damaged, info.end)


@pytest.mark.parametrize("cut", [1, 60, 400])
def test_a_file_without_its_end_is_found(cut: int) -> None:
    image = image_of(300)
    disk = MemoryDirectory("/d")
    info = write_image(disk, meta_of(image), image)
    file = disk.open(snapshot_name(info.end))
    file.truncate(file.size() - cut)
    with pytest.raises(SnapshotCorrupt):
        load_packed(disk, info.end)


def test_an_image_with_another_digest_than_the_footer_is_found() -> None:
    """The digest was kept with the image while it changed. If the records have another sum, one of them is wrong."""
    image = image_of(300)
    disk = MemoryDirectory("/d")
    info = SnapshotWriter(disk, meta_of(image), image.canonical_pieces(), bytes(32)).run()
    with pytest.raises(SnapshotCorrupt, match=r"305 records with digest .* the footer says 305 and 0000"):
        load_packed(disk, info.end)
