"""A controller that starts on a disk with one sector that cannot be read, in each of its small files and snapshots."""

import pytest

from metadata_log.disk.identity import Identity
from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.format.records import NoOp
from metadata_log.store.log_notes import FLUSHED_NAME, START_NAME
from quorum.runtime.disk import election_file
from quorum.runtime.disk.open_directory import LOG_DIRECTORY, Opened, open_directory
from quorum.runtime.protocol.node_config import NodeConfig
from quorum.runtime.protocol.world import SnapshotWanted
from snapshots.format import BOOTSTRAP_END, snapshot_name
from tests.quorum.runtime.lone_node import CLUSTER_ID, LoneNode, directory_id, formatted_disk, voters_of
from tests.sim.world.disk import MemoryDirectory

IDENTITY = Identity(CLUSTER_ID, 1, directory_id(1), 1, "controller")


def _disk_with_snapshots(count: int) -> tuple[MemoryDirectory, list[OffsetAndEpoch]]:
    """What a lone voter has left, and its snapshots' ends, oldest first. Its log reaches back to its beginning."""
    disk = formatted_disk(voters_of([1]))
    lone = LoneNode(disk)
    lone.run_until_idle()
    for _ in range(count):
        lone.turn(SnapshotWanted("for the test", lone.new_reply_to(), lone.now_ms + 1_000))
        lone.run_until_idle()
    ends = [info.end for info in lone.node.snapshotter.store.list()]
    assert len(ends) == count
    return disk.kill(), ends


def _started(disk: MemoryDirectory) -> Opened:
    return open_directory(disk, IDENTITY, NodeConfig())


@pytest.mark.parametrize("place", ["first sector", "last sector"])
def test_an_unreadable_snapshot_is_passed_over_where_the_log_covers_it(
    place: str, caplog: pytest.LogCaptureFixture
) -> None:
    disk, (end,) = _disk_with_snapshots(1)
    metadata = disk.subdirectory(LOG_DIRECTORY)
    metadata.break_sector(snapshot_name(end), 0 if place == "first sector" else metadata.size(snapshot_name(end)) - 1)
    opened = _started(disk)
    assert opened.load is None
    assert (opened.log.shape.start.offset, opened.log.shape.snapshot) == (0, None)
    assert f"{snapshot_name(end)} is damaged: this node starts from an older snapshot, or from the log" in caplog.text
    opened.log.close()
    lone = LoneNode(disk)
    lone.run_until_idle()
    assert lone.stopped is None and lone.node.active.on


def test_an_unreadable_snapshot_is_passed_over_where_an_older_one_is_whole() -> None:
    """The log starts at the older one, or below it."""
    disk, (older, newer) = _disk_with_snapshots(2)
    metadata = disk.subdirectory(LOG_DIRECTORY)
    metadata.break_sector(snapshot_name(newer), 0)
    for log_start in (0, older.offset):
        opened = _started(disk)
        assert opened.load is not None
        assert (opened.load.end, opened.log.shape.snapshot) == (older, older)
        assert opened.log.shape.start.offset == log_start
        opened.log.drop_prefix(older)
        opened.log.close()


def test_an_unreadable_snapshot_that_nothing_covers_is_the_disk_s_error_and_changes_nothing() -> None:
    """A start that fails with that is tried again, and may succeed. Damage would be final."""
    disk, (_, newer) = _disk_with_snapshots(2)
    metadata = disk.subdirectory(LOG_DIRECTORY)
    opened = _started(disk)
    opened.log.append([NoOp()], opened.log.shape.last_epoch, 1)
    opened.log.flush()
    opened.log.drop_prefix(newer)
    shape = opened.log.shape
    opened.log.close()
    metadata.break_sector(snapshot_name(newer), 0)
    before = {name: metadata.size(name) for name in metadata.names() if metadata.exists(name) and "." in name}
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output error"):
            _started(disk)
    assert before == {name: metadata.size(name) for name in before}
    disk.heal()
    opened = _started(disk)
    assert opened.load is not None
    assert (opened.load.end, opened.log.shape) == (newer, shape)


def test_an_unreadable_note_fails_the_start_and_changes_nothing() -> None:
    """The note may name a higher end than the batches that can be read."""
    disk, (end,) = _disk_with_snapshots(1)
    metadata = disk.subdirectory(LOG_DIRECTORY)
    opened = _started(disk)
    shape = opened.log.shape
    opened.log.close()
    metadata.break_sector(FLUSHED_NAME, 0)
    for _ in range(2):
        with pytest.raises(OSError, match="flushed: the disk cannot read how far this log was durable"):
            _started(disk)
    disk.heal()
    opened = _started(disk)
    assert opened.load is not None
    assert (opened.load.end, opened.log.shape, opened.log.lost) == (end, shape, None)


def test_a_vote_that_cannot_be_read_is_not_forgotten() -> None:
    """Where many disks hang for a moment, no majority may give up its votes: the start fails, and is tried again."""
    disk, _ = _disk_with_snapshots(1)
    saved = election_file.load(disk)
    disk.break_sector(election_file.FILE_NAME, 0)
    for _ in range(2):
        with pytest.raises(OSError, match="quorum-state: the disk cannot read this node's vote") as e:
            open_directory(disk, IDENTITY, NodeConfig(), new_directory_id=lambda: bytes(range(16)))
        assert "remove the file" in str(e.value)
    disk.heal()
    assert election_file.load(disk) == saved
    assert _started(disk).election == saved


@pytest.mark.parametrize("name", [snapshot_name(BOOTSTRAP_END), START_NAME])
def test_what_no_node_can_do_without_is_the_disk_s_error(name: str) -> None:
    disk, _ = _disk_with_snapshots(1)
    disk.subdirectory(LOG_DIRECTORY).break_sector(name, 0)
    with pytest.raises(OSError, match=name):
        _started(disk)
    disk.heal()
    _started(disk)
