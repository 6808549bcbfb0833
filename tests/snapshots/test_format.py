"""The format of a snapshot: one file for one state and offset, on every node; and all damage is found."""

import hashlib
import random

import pytest

from metadata_log.format.batch import BATCH_BYTES_MAX
from metadata_log.format.codec import decode_batch, encode_record
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import EPOCH_MAX, OFFSET_MAX, OffsetAndEpoch
from metadata_log.format.records import (
    METADATA_VERSION,
    TOPIC_RESOURCE,
    Config,
    FeatureLevel,
    MetadataRecord,
    Partition,
    PartitionColumns,
    SnapshotFooter,
    Topic,
)
from metadata_log.image.delta import MetadataDelta
from metadata_log.image.digest import MODULUS, digest_to_bytes, record_hash
from metadata_log.image.metadata_image import EMPTY_IMAGE, Provenance
from metadata_log.image.replay import Replay
from metadata_log.image.topic_image import runs_of
from snapshots import format as snapshot_format
from snapshots.format import (
    FIRST_CHAIN,
    SnapshotCorrupt,
    SnapshotMeta,
    parse_name,
    part_name,
    snapshot_batches,
    snapshot_name,
)
from snapshots.reader import batches_of, read_meta, read_runs, read_snapshot, records_of
from snapshots.store import SnapshotStore
from snapshots.writer import write_image, write_records
from tests.metadata_log.image.histories import uuid
from tests.sim.world.disk import MemoryDirectory
from tests.snapshots.images import VOTERS, image_at, meta_of, records_in


def test_a_name_says_end_and_epoch_and_whether_it_is_whole() -> None:
    end = OffsetAndEpoch(1234, 7)
    assert snapshot_name(end) == "00000000000000001234-0000000007.checkpoint"
    assert parse_name(snapshot_name(end)) == (end, False)
    assert parse_name(part_name(end)) == (end, True)
    for other in ("00000000000000001234.log", "1-2.checkpoint", snapshot_name(end) + ".bak", "flushed"):
        assert parse_name(other) is None


def test_a_name_beyond_the_last_offset_is_no_snapshot() -> None:
    """Twenty digits hold larger numbers than the wire. A node with such a file could list its snapshots to no operator."""
    assert parse_name(snapshot_name(OffsetAndEpoch(OFFSET_MAX, 1))) == (OffsetAndEpoch(OFFSET_MAX, 1), False)
    for offset in (OFFSET_MAX + 1, 10**20 - 1):
        assert parse_name(snapshot_name(OffsetAndEpoch(offset, 1))) is None


@pytest.mark.parametrize("seed", range(8))
def test_what_is_written_is_read(seed: int) -> None:
    """Round trip: metadata, records in canonical order, count and digest. Loading the records gives the image again."""
    disk, image = MemoryDirectory("/d"), image_at(500, seed=seed)
    info = write_image(disk, meta_of(image), image)
    contents = read_snapshot(disk, info.end)
    assert contents.meta == meta_of(image) == read_meta(disk, info.end)
    assert (contents.digest, contents.record_count) == (image.digest_bytes, image.record_count)
    records = list(contents.records)
    assert records == list(image.canonical_records()) == [*records_in(read_runs(disk, info.end))]
    assert Replay().load_snapshot(iter(records), image.provenance) == image


def test_two_histories_with_one_state_make_one_file() -> None:
    """The file depends on the state only, not on the history, and not on the place where the digest was kept."""

    def state(*records: MetadataRecord) -> bytes:
        delta = MetadataDelta(EMPTY_IMAGE)
        for offset, record in enumerate(records):
            delta.replay(record, offset)
        image, disk = delta.finish(Provenance(50, 2, 9_000)), MemoryDirectory("/d")
        write_image(disk, meta_of(image), image)
        by_image = disk.read(snapshot_name(OffsetAndEpoch(50, 2)), 1 << 20)
        disk.remove(snapshot_name(OffsetAndEpoch(50, 2)))
        write_records(disk, meta_of(image), image.canonical_records())
        assert disk.read(snapshot_name(OffsetAndEpoch(50, 2)), 1 << 20) == by_image
        return by_image

    a, b = Topic("a", uuid(1)), Topic("b", uuid(2))
    retention = Config(TOPIC_RESOURCE, "a", "retention.ms", "1")
    one = state(a, b, retention)
    other = state(b, a, Config(TOPIC_RESOURCE, "a", "retention.ms", "2"), retention)
    assert one == other
    assert one != state(a, b)


def two_topics(level: int) -> list[MetadataRecord]:
    def partition(topic: bytes, number: int) -> Partition:
        return Partition(topic, number, (1, 2, 3), (1, 2, 3), (), (), 1, 0, 0, 0)

    a, b = uuid(1), uuid(2)
    records: list[MetadataRecord] = [FeatureLevel(METADATA_VERSION, level)]
    return [*records, Topic("a", a), *(partition(a, n) for n in range(1_500)), Topic("b", b), partition(b, 0)]


@pytest.mark.parametrize("level", [1, 2])
def test_partitions_are_in_columns_from_level_2_on(level: int) -> None:
    """Release 0.1.0 has level 1 only, and reads no columns. The canonical records, their number and the digest are the same."""
    records, disk, meta = two_topics(level), MemoryDirectory("/d"), meta_of(image_at(9))
    digest = digest_to_bytes(sum(map(record_hash, records)) % MODULUS)
    info = write_records(disk, meta, records)
    found = [
        record for _, batch in batches_of(disk.open(snapshot_name(info.end)), "/d") for record in decode_batch(batch)
    ]
    columns = [(each.first, each.partition_count) for each in found if isinstance(each, PartitionColumns)]
    assert columns == ([(0, 1_000), (1_000, 500), (0, 1)] if level == 2 else [])
    assert sum(isinstance(each, Partition) for each in found) == (0 if level == 2 else 1_501)
    contents = read_snapshot(disk, info.end)
    assert [*contents.records] == records == [*records_of(disk, snapshot_name(info.end))]
    assert (contents.record_count, contents.digest) == (len(records), digest)


def test_columns_with_another_hash_than_their_partitions_are_found() -> None:
    """A node that starts believes the sum in the columns. So the reader that verifies a file computes this sum again."""
    [run] = runs_of(uuid(1), [each[2:] for each in two_topics(2)[2:22] if isinstance(each, Partition)])
    wrong = run._replace(hashes=run.hashes ^ 1)
    disk, meta = MemoryDirectory("/d"), meta_of(image_at(9))
    info = write_records(disk, meta, [*two_topics(2)[:2], wrong])
    with pytest.raises(SnapshotCorrupt, match=r"partitions 0 to 19 of topic .* have another hash"):
        read_snapshot(disk, info.end)


def test_batches_are_cut_by_the_records_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither count nor size exceed their limits; a record above the size limit gets a batch of its own."""
    monkeypatch.setattr(snapshot_format, "DATA_BATCH_RECORDS", 5)
    small = [Config(TOPIC_RESOURCE, "t", f"k{i:03}", "v") for i in range(12)]
    large = [
        Config(TOPIC_RESOURCE, "t", f"l{i}", "x" * size) for i, size in enumerate((300 << 10, 300 << 10, 900 << 10))
    ]
    batches = list(snapshot_batches(meta_of(image_at(9)), [*small, *large]))
    assert [batch.record_count for batch in batches] == [1, 2, 5, 5, 3, 1, 1, 1]
    assert all(len(batch.data) <= BATCH_BYTES_MAX for batch in batches)
    assert [batch.base_offset for batch in batches] == [0, 1, 3, 8, 13, 16, 17, 18]


def test_every_flipped_bit_is_found_and_named() -> None:
    """With any bit flipped, the file does not verify, and the error names the file and the first byte of the batch."""
    dice, disk, image = random.Random(3), MemoryDirectory("/d"), image_at(77, steps=60)
    name = snapshot_name(write_image(disk, meta_of(image), image).end)
    intact = disk.read(name, 1 << 24)
    assert len(intact) > 2_000
    for _ in range(200):
        position = dice.randrange(len(intact))
        damaged = bytearray(intact)
        damaged[position] ^= 1 << dice.randrange(8)
        disk.write_atomic(name, bytes(damaged))
        with pytest.raises(SnapshotCorrupt, match=name) as caught:
            read_snapshot(disk, image.provenance.end)
        assert caught.value.file == f"/d/{name}"
        assert caught.value.position <= position


@pytest.mark.parametrize("cut", [1, 80, 150, 151, 400])
def test_a_file_that_ends_early_or_goes_on_is_no_snapshot(cut: int) -> None:
    disk, image = MemoryDirectory("/d"), image_at(77)
    name = snapshot_name(write_image(disk, meta_of(image), image).end)
    intact = disk.read(name, 1 << 24)
    for wrong in (intact[:-cut], intact + intact[-cut:], b""):
        disk.write_atomic(name, wrong)
        with pytest.raises(SnapshotCorrupt):
            read_snapshot(disk, image.provenance.end)


def test_a_forger_who_can_sum_is_found_by_the_digest() -> None:
    """One record is removed, with correct CRCs and chains. Count and digest in the footer do not match."""
    disk, image = MemoryDirectory("/d"), image_at(77)
    meta = meta_of(image)
    records = list(image.canonical_records())
    forged = b"".join(b.data for b in snapshot_batches(meta, records[1:], image.digest_bytes))
    disk.write_atomic(snapshot_name(meta.end), forged)
    with pytest.raises(SnapshotCorrupt, match="digest"):
        read_snapshot(disk, meta.end)


def test_a_file_under_another_name_is_not_believed() -> None:
    disk, image = MemoryDirectory("/d"), image_at(77)
    info = write_image(disk, meta_of(image), image)
    other = OffsetAndEpoch(78, 1)
    disk.rename(snapshot_name(info.end), snapshot_name(other))
    with pytest.raises(SnapshotCorrupt, match="name says 78@1"):
        read_meta(disk, other)


@pytest.mark.parametrize("count", [0, 127, 128, 255, 256, 65_535, 65_536, 1 << 32])
def test_a_footer_is_found_from_the_end_whatever_its_count(count: int) -> None:
    """The encoding of the count has five lengths, and `read_meta` finds the footer with each of them."""
    from metadata_log.format.batch import encode

    disk, meta = MemoryDirectory("/d"), meta_of(image_at(77))
    batches = list(snapshot_batches(meta, ()))
    footer = SnapshotFooter(b"c" * 32, digest_to_bytes(0), count)
    last = batches[-1]
    forged = encode(
        encode_record(footer), base_offset=last.base_offset, epoch=last.epoch, record_count=1,
        first_timestamp_ms=last.first_timestamp_ms, last_timestamp_ms=last.last_timestamp_ms, is_control=True,
        previous_chain=batches[-2].chain if len(batches) > 1 else FIRST_CHAIN,
    )  # fmt: skip
    disk.write_atomic(snapshot_name(meta.end), b"".join(b.data for b in (*batches[:-1], forged)))
    assert read_meta(disk, meta.end).chain == b"c" * 32


def test_a_snapshot_of_a_late_epoch_is_written_listed_and_read() -> None:
    """The name has as many digits as the epoch needs. Snapshots are ordered by number: as text, ...-10000000000 comes
    before ...-9999999999.
    """
    ends = [OffsetAndEpoch(7, 9_999_999_999), OffsetAndEpoch(7, 10_000_000_000), OffsetAndEpoch(8, EPOCH_MAX)]
    store = SnapshotStore(MemoryDirectory("/d"))
    for end in ends:
        meta = SnapshotMeta(end, 1_700_000_000_000, bytes(32), VOTERS, 1)
        store.directory.write_atomic(
            snapshot_name(end), b"".join(each.data for each in snapshot_batches(meta, [Topic("a", uuid(1))]))
        )
        assert parse_name(snapshot_name(end)) == (end, False) and store.read_meta(end) == meta

    assert [info.end for info in store.list()] == ends
    assert snapshot_name(ends[2]) == "00000000000000000008-9223372036854775807.checkpoint"
    for other in ("09999999999", "9223372036854775808", "123456789"):
        assert parse_name(f"00000000000000000007-{other}.checkpoint") is None


def test_corruption_is_a_format_error() -> None:
    """Callers that drop damaged files need to catch one kind of error only."""
    assert issubclass(SnapshotCorrupt, LogFormatError)


def test_the_format_does_not_drift() -> None:
    """The bytes of one small snapshot are pinned: another release must write the same file, or nodes of two releases
    differ.
    """
    meta = SnapshotMeta(OffsetAndEpoch(7, 2), 1_700_000_000_000, bytes(range(32)), VOTERS, 1)
    records: list[MetadataRecord] = [Topic("a", uuid(1)), Config(TOPIC_RESOURCE, "a", "retention.ms", "1")]
    data = b"".join(batch.data for batch in snapshot_batches(meta, records))
    assert hashlib.sha256(data).hexdigest() == "7eb48ec0744bbcd55d86a369c9014a57f7e338e9ce52dfa94e68346c2974e3b4"
