"""The snapshots of a node: chosen by number, trusted by checksum, complete or absent."""

import random

import pytest

from metadata_log.disk.failures import FlushFailed
from metadata_log.format.ids import OffsetAndEpoch
from snapshots.format import SnapshotCorrupt, part_name, snapshot_name
from snapshots.policy import RetentionPolicy
from snapshots.reader import read_runs, read_snapshot
from snapshots.store import PositionOutOfRange, SnapshotNotFound, SnapshotStore, genesis
from snapshots.writer import write_records
from tests.sim.world.disk import MemoryDirectory, PowerCut
from tests.snapshots.images import VOTERS, image_at, meta_of, records_in


def write(store: SnapshotStore, offset: int, epoch: int = 1) -> OffsetAndEpoch:
    image = image_at(offset, epoch)
    return store.write(meta_of(image), image).end


def test_order_is_by_number_and_the_bootstrap_one_is_apart() -> None:
    store = SnapshotStore(MemoryDirectory("/d"))
    store.write_bootstrap(VOTERS)
    ends = [write(store, offset, epoch) for offset, epoch in ((1000, 3), (9, 1), (200, 2))]
    assert [info.end for info in store.list()] == sorted(ends)
    bootstrap = store.bootstrap()
    assert bootstrap is not None
    assert bootstrap.voters == VOTERS
    with pytest.raises(SnapshotNotFound):
        store.read_chunk(OffsetAndEpoch(0, 0), 0, 10)


def test_clusters_that_were_formatted_apart_begin_with_different_chains() -> None:
    assert genesis("a", VOTERS) != genesis("b", VOTERS)
    assert genesis("a", VOTERS) == genesis("a", VOTERS)


def test_a_bad_snapshot_is_passed_over_and_takes_no_good_one_with_it() -> None:
    """S5. The newest snapshot is damaged: the one before is the newest valid one, and retention keeps it although the
    limits are exceeded.
    """
    disk = MemoryDirectory("/d")
    store = SnapshotStore(disk)
    for offset in (10, 20, 30):
        write(store, offset)
    disk.flip_bit(snapshot_name(OffsetAndEpoch(30, 1)), 900)
    fresh = SnapshotStore(disk)
    newest = fresh.newest_valid()
    assert newest is not None
    assert newest.end.offset == 20
    assert fresh.retain(RetentionPolicy(max_bytes=1), log_bytes=0) == [snapshot_name(OffsetAndEpoch(10, 1))]
    assert [info.end.offset for info in fresh.list()] == [20, 30]


def test_chunks_in_any_size_make_the_file_again() -> None:
    there, here = SnapshotStore(MemoryDirectory("/a")), SnapshotStore(MemoryDirectory("/b"))
    end = write(there, 500)
    position, size = 0, 1
    dice = random.Random(1)
    while position < size:
        size, data = there.read_chunk(end, position, dice.randint(1, 3_000))
        here.write_part(end, position, data)
        position += len(data)
    assert here.list() == ()
    assert here.complete_part(end) == there.read_meta(end)
    assert [*records_in(read_runs(here.directory, end))] == list(image_at(500).canonical_records())
    assert here.list()[0].size == size == there.list()[0].size
    assert there.read_chunk(end, size, 10) == (size, b"")
    for wrong in (-1, size + 1):
        with pytest.raises(PositionOutOfRange):
            there.read_chunk(end, wrong, 10)


def test_a_chunk_that_continues_nothing_is_refused() -> None:
    store, end = SnapshotStore(MemoryDirectory("/d")), OffsetAndEpoch(5, 1)
    with pytest.raises(PositionOutOfRange):
        store.write_part(end, 10, b"x")
    store.write_part(end, 0, b"abc")
    with pytest.raises(PositionOutOfRange):
        store.write_part(end, 2, b"x")
    with pytest.raises(PositionOutOfRange):
        store.write_part(OffsetAndEpoch(6, 1), 3, b"x")
    store.write_part(end, 0, b"begins anew")


def test_a_download_that_does_not_verify_is_gone() -> None:
    disk = MemoryDirectory("/d")
    store, end = SnapshotStore(disk), OffsetAndEpoch(5, 1)
    store.write_part(end, 0, b"not a snapshot" * 20)
    with pytest.raises(SnapshotCorrupt):
        store.complete_part(end)
    assert disk.names() == []
    with pytest.raises(SnapshotNotFound):
        store.complete_part(end)


def test_a_snapshot_that_there_was_no_room_for_takes_no_download_with_it() -> None:
    """The unfinished snapshot is deleted. The download of the leader's snapshot, which this node needs more,
    continues.
    """
    disk = MemoryDirectory("/d")
    store, there = SnapshotStore(disk), SnapshotStore(MemoryDirectory("/a"))
    end, own = write(there, 500), OffsetAndEpoch(40, 1)
    size, data = there.read_chunk(end, 0, 1 << 24)
    store.write_part(end, 0, data[:100])
    disk.write_atomic(part_name(own), b"so far, and no further")
    for given_up in (own, own, end):
        store.drop_unfinished(given_up)
    assert disk.names() == [part_name(end)]
    assert store.part_bytes(end) == 100 and store.part_bytes(own) == 0
    store.write_part(end, 100, data[100:])
    assert store.complete_part(end) == there.read_meta(end) and size == len(data)


def test_what_is_of_another_history_than_the_log_is_not_kept() -> None:
    """Even if the snapshot is intact. While it is verified, no other call deletes it."""
    disk = MemoryDirectory("/d")
    store, there = SnapshotStore(disk), SnapshotStore(MemoryDirectory("/a"))
    end = write(there, 500)
    store.write_part(end, 0, there.read_chunk(end, 0, 1 << 24)[1])
    with pytest.raises(SnapshotCorrupt, match="another chain than this log"):
        store.complete_part(end, bytes(32))
    assert disk.names() == [] and store.list() == ()


def test_writing_the_same_snapshot_again_changes_nothing() -> None:
    disk = MemoryDirectory("/d")
    store = SnapshotStore(disk)
    end = write(store, 40)
    before = disk.read(snapshot_name(end), 1 << 24)
    assert write(store, 40) == end
    assert disk.read(snapshot_name(end), 1 << 24) == before


def test_a_replaced_snapshot_stays_until_the_new_one_is_whole() -> None:
    """A compaction replaces the file of an earlier run. After any power cut a whole file has the name: the old or the new one."""
    old, new = image_at(40, seed=1), image_at(40, seed=2)
    met = set()
    for operation in range(1, 9):
        disk = MemoryDirectory("/d")
        write_records(disk, meta_of(old), old.canonical_records())
        disk.cut_power_after(operation)
        finished = True
        try:
            write_records(disk, meta_of(new), new.canonical_records(), replaces=True)
        except PowerCut:
            finished = False
        disk = disk.crash(random.Random(operation))
        digest = read_snapshot(disk, OffsetAndEpoch(40, 1)).digest
        assert digest in ((new.digest_bytes,) if finished else (old.digest_bytes, new.digest_bytes))
        met.add((finished, digest))
    assert {(False, old.digest_bytes), (True, new.digest_bytes)} <= met


def test_parts_that_a_crash_left_are_discarded_and_those_being_written_are_not() -> None:
    disk = MemoryDirectory("/d")
    store = SnapshotStore(disk)
    disk.write_atomic(part_name(OffsetAndEpoch(3, 1)), b"half")
    disk.write_atomic(part_name(OffsetAndEpoch(4, 1)), b"half")
    store._writing.add(OffsetAndEpoch(4, 1))
    store.discard_parts()
    assert disk.names() == [part_name(OffsetAndEpoch(4, 1))]


@pytest.mark.parametrize("operation", range(1, 9))
def test_a_power_cut_anywhere_leaves_the_snapshot_whole_or_absent(operation: int) -> None:
    """`.part`, flush, rename, flush of the directory: after any power cut, a name without `.part` is a whole
    snapshot.
    """
    for seed in range(12):
        disk = MemoryDirectory("/d")
        store = SnapshotStore(disk)
        old = write(store, 10)
        disk.cut_power_after(operation)
        finished = True
        try:
            write(store, 20)
        except PowerCut:
            finished = False
        disk = disk.crash(random.Random(seed))
        after = SnapshotStore(disk)
        after.discard_parts()
        newest = after.newest_valid()
        assert newest is not None
        assert [info.end for info in after.list()] == ([old, newest.end] if newest.end != old else [old])
        assert not finished or newest.end.offset == 20


def test_retention_is_soft_and_goes_oldest_first() -> None:
    store = SnapshotStore(MemoryDirectory("/d"))
    sizes = [store.write(meta_of(image), image).size for image in map(image_at, (10, 20, 30, 40))]
    total = sum(sizes)
    assert store.retain(RetentionPolicy(max_bytes=total), log_bytes=0) == []
    assert store.retain(RetentionPolicy(max_bytes=total - 1), log_bytes=0) == [snapshot_name(OffsetAndEpoch(10, 1))]
    assert len(store.retain(RetentionPolicy(max_bytes=0), log_bytes=1 << 40)) == 2
    assert [info.end.offset for info in store.list()] == [40]
    assert store.retain(RetentionPolicy(max_bytes=0, max_age_ms=0), log_bytes=1 << 40) == []


def test_what_a_failed_fsync_has_left_of_a_download_is_written_again() -> None:
    """1. The fsync that completes a download fails: the pages are marked clean, but are not on the disk.
    2. The next process continues the download and completes it. The fsync succeeds now, and proves nothing.
    3. Power cut: the snapshot must be on the disk, complete.
    """
    source = SnapshotStore(MemoryDirectory())
    end = write(source, 10)
    size, data = source.read_chunk(end, 0, 1 << 20)
    for seed in range(10):
        directory = MemoryDirectory()
        store = SnapshotStore(directory)
        store.write_part(end, 0, data)
        directory.fail_next_flush()
        with pytest.raises(FlushFailed):
            store.complete_part(end)

        store = SnapshotStore(directory.kill())
        assert store.resume_part(0) == (end, size)
        store.complete_part(end)

        found = directory.crash(random.Random(seed))
        assert found.read(snapshot_name(end), 1 << 20) == data


# --- reads that fail -----------------------------------------------------------------------------------------------


def test_retention_waits_where_the_newest_cannot_be_read() -> None:
    """The newest intact snapshot is not known then. A start fails with the disk's own error, because a start that fails
    with damage is not tried again.
    """
    disk = MemoryDirectory("/d")
    for offset in (10, 20):
        write(SnapshotStore(disk), offset)
    store = SnapshotStore(disk)
    assert len(store.list()) == 2
    for attempt in (store.newest_valid, store.bootstrap):
        store.write_bootstrap(VOTERS)
        disk.fail_next_read()
        with pytest.raises(OSError, match="Input/output error"):
            attempt()
    disk.fail_next_read()
    assert store.retain(RetentionPolicy(max_bytes=1), log_bytes=0) == []
    assert store.retain(RetentionPolicy(max_bytes=1), log_bytes=0) == [snapshot_name(OffsetAndEpoch(10, 1))]


def test_a_snapshot_whose_time_cannot_be_read_is_listed_without_one() -> None:
    """Until the disk can read it: the store does not cache a guess."""
    disk = MemoryDirectory("/d")
    there = SnapshotStore(disk)
    write(there, 10)
    (known,) = there.list()
    store = SnapshotStore(disk)
    disk.fail_next_read()
    assert store.list() == (known._replace(timestamp_ms=0),)
    assert store.list() == (known,) and known.timestamp_ms > 0


def test_a_chunk_that_cannot_be_read_is_not_here() -> None:
    disk = MemoryDirectory("/d")
    store = SnapshotStore(disk)
    end = write(store, 10)
    disk.fail_next_read()
    with pytest.raises(SnapshotNotFound, match="Input/output error"):
        store.read_chunk(end, 0, 100)
    assert len(store.read_chunk(end, 0, 100)[1]) == 100


def test_a_download_that_cannot_be_read_again_is_fetched_anew() -> None:
    """During verification, and when a new process finds it."""
    disk = MemoryDirectory("/d")
    store, there = SnapshotStore(disk), SnapshotStore(MemoryDirectory("/a"))
    end = write(there, 50)
    _, data = there.read_chunk(end, 0, 1 << 24)
    store.write_part(end, 0, data)
    disk.fail_next_read()
    with pytest.raises(SnapshotCorrupt, match="Input/output error"):
        store.complete_part(end)
    assert disk.names() == []
    store.write_part(end, 0, data)
    again = SnapshotStore(disk.kill())
    disk.fail_next_read()
    assert again.resume_part(0) is None
    assert disk.names() == [] and again.part_bytes(end) == 0
