"""Snapshots that are loaded in the background, while the node votes, replicates and may be sent a newer one."""

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.format.records import FeatureLevel, Partition
from metadata_log.image.delta import MetadataDelta
from metadata_log.image.metadata_image import EMPTY_IMAGE, MetadataImage, Provenance
from quorum.core.protocol.effects import ElectionState
from quorum.core.protocol.messages import FetchRequest, FetchResponse, FetchSnapshotRequest, FetchSnapshotResponse
from quorum.runtime.disk import election_file
from quorum.runtime.disk.open_directory import LOG_DIRECTORY
from snapshots.format import SnapshotMeta, part_name, snapshot_name
from snapshots.store import SnapshotStore
from snapshots.writer import write_records
from tests.quorum.runtime.lone_node import LoneNode, formatted_disk, voters_of
from tests.sim.world.disk import MemoryDirectory

VOTERS = voters_of([1, 2, 3])
OLD, NEW = OffsetAndEpoch(4, 1), OffsetAndEpoch(9, 1)


def _image(end: OffsetAndEpoch) -> MetadataImage:
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay(FeatureLevel("group.version", end.offset), 0)
    return delta.finish(Provenance(end.offset, end.epoch, 1_000))


def _write(directory: MemoryDirectory, end: OffsetAndEpoch) -> None:
    SnapshotStore(directory).write(SnapshotMeta(end, 1_000, bytes(32), VOTERS, 1), _image(end))


def _follower_with_old_snapshot(disk: MemoryDirectory | None = None) -> LoneNode:
    """Node 1 follows node 2 in epoch 1; it has begun to load its snapshot at 4 and has fetched from there."""
    disk = disk or formatted_disk(VOTERS)
    _write(disk.subdirectory(LOG_DIRECTORY), OLD)
    election_file.save(disk, ElectionState(1, None, 2))
    return LoneNode(disk)


def _send_new_snapshot(lone: LoneNode, *, damaged: bool = False) -> None:
    """The leader's log starts at 9: it sends its snapshot there, in one piece."""
    elsewhere = MemoryDirectory("/elsewhere")
    _write(elsewhere, NEW)
    if damaged:
        elsewhere.flip_bit(snapshot_name(NEW), 100)
    _send_from(lone, elsewhere)


def _send_from(lone: LoneNode, elsewhere: MemoryDirectory) -> None:
    data = elsewhere.read(snapshot_name(NEW), 1 << 20)
    _, fetch = lone.sent[-1]
    assert isinstance(fetch, FetchRequest)
    lone.respond(FetchResponse(ErrorCode.NONE, 1, 2, fetch.number, snapshot=NEW))
    _, fetch_snapshot = lone.sent[-1]
    assert isinstance(fetch_snapshot, FetchSnapshotRequest)
    lone.respond(FetchSnapshotResponse(ErrorCode.NONE, 1, 2, fetch_snapshot.number, len(data), 0, data))


def test_a_load_that_was_overtaken_by_an_install_does_not_count() -> None:
    """A large snapshot takes long to load; the leader's newer one may be installed before that ends.

    The late one must not put the state machine back to where the log has nothing any more.
    """
    lone = _follower_with_old_snapshot()
    _send_new_snapshot(lone)
    load, install = lone.jobs

    lone.finish(install)
    assert lone.node.state.applied == NEW.offset
    lone.finish(load)

    assert lone.stopped is None
    assert lone.node.state.committed == _image(NEW)
    lone.node.check_invariants()


def test_an_install_after_the_load_replaces_it() -> None:
    """In the other order both count, one after the other."""
    lone = _follower_with_old_snapshot()
    _send_new_snapshot(lone)
    load, install = lone.jobs

    lone.finish(load)
    assert lone.node.state.committed == _image(OLD)
    lone.finish(install)

    assert lone.node.state.committed == _image(NEW)


def test_an_install_whose_flush_fails_stops_the_node() -> None:
    """A disk that has failed one fsync is not asked a second time (R16): what it says then is not to be believed."""
    disk = formatted_disk(VOTERS)
    lone = _follower_with_old_snapshot(disk)
    _send_new_snapshot(lone)
    load, install = lone.jobs
    lone.finish(load)

    disk.fail_next_flush()
    lone.finish(install)

    assert lone.stopped is not None
    assert "fail this flush" in lone.stopped


def test_an_install_of_damaged_bytes_is_begun_again() -> None:
    """What does not verify is dropped, and fetched anew: the disk is well."""
    lone = _follower_with_old_snapshot()
    _send_new_snapshot(lone, damaged=True)
    load, install = lone.jobs
    lone.finish(load)

    lone.finish(install)
    lone.now_ms += lone.config.raft.retry_backoff_ms * 8
    lone.turn()

    assert lone.stopped is None
    _, fetch = lone.sent[-1]
    assert isinstance(fetch, FetchRequest)
    assert fetch.fetch_offset == OLD.offset


def test_a_whole_snapshot_that_cannot_be_loaded_keeps_no_name() -> None:
    """Its checksums are right and its records fit nowhere: a newer release may have written it.

    It must not lie there under its name: at the next start it would be the newest whole one, and the log would start at it.
    """
    disk = formatted_disk(VOTERS)
    lone = _follower_with_old_snapshot(disk)
    elsewhere = MemoryDirectory("/elsewhere")
    orphan = Partition(bytes(15) + b"\x01", 0, (1,), (1,), (), (), 1, 0, 0, 0)
    write_records(elsewhere, SnapshotMeta(NEW, 1_000, bytes(32), VOTERS, 1), [orphan])
    _send_from(lone, elsewhere)
    lone.run_until_idle()

    assert lone.stopped is None
    assert [info.end for info in lone.node.snapshotter.store.list()] == [OLD]
    again = LoneNode(disk)
    again.run_until_idle()
    assert (again.stopped, again.node.state.committed) == (None, _image(OLD))


def test_a_download_goes_on_after_a_restart_and_is_loaded() -> None:
    """What the last process has fetched is not fetched again; the whole is verified all the same."""
    elsewhere = MemoryDirectory("/elsewhere")
    _write(elsewhere, NEW)
    data = elsewhere.read(snapshot_name(NEW), 1 << 20)
    half = len(data) // 2
    lone = _follower_with_old_snapshot()
    _fetch_was_redirected(lone)
    lone.respond(_piece(lone, len(data), 0, data[:half]))

    lone = LoneNode(lone.disk)
    _fetch_was_redirected(lone)
    _, asked = lone.sent[-1]
    assert isinstance(asked, FetchSnapshotRequest) and asked.position == half
    lone.respond(_piece(lone, len(data), half, data[half:]))
    lone.run_until_idle()
    assert lone.stopped is None and lone.node.state.committed == _image(NEW)
    assert lone.disk.subdirectory(LOG_DIRECTORY).read(snapshot_name(NEW), 1 << 20) == data


def test_a_download_that_a_power_cut_has_torn_is_fetched_once_more() -> None:
    """The length of its file was on the disk, its bytes were not."""
    elsewhere = MemoryDirectory("/elsewhere")
    _write(elsewhere, NEW)
    data = elsewhere.read(snapshot_name(NEW), 1 << 20)
    disk = formatted_disk(VOTERS)
    disk.subdirectory(LOG_DIRECTORY).open(part_name(NEW), create=True).write_at(0, bytes(len(data)))
    lone = _follower_with_old_snapshot(disk)
    _fetch_was_redirected(lone)
    lone.respond(_piece(lone, len(data), len(data), b""))
    lone.run_until_idle()
    _fetch_was_redirected(lone)
    lone.respond(_piece(lone, len(data), 0, data))
    lone.run_until_idle()
    assert lone.stopped is None and lone.node.state.committed == _image(NEW)


def _fetch_was_redirected(lone: LoneNode) -> None:
    _, fetch = lone.sent[-1]
    assert isinstance(fetch, FetchRequest)
    lone.respond(FetchResponse(ErrorCode.NONE, 1, 2, fetch.number, snapshot=NEW))


def _piece(lone: LoneNode, size: int, position: int, data: bytes) -> FetchSnapshotResponse:
    _, asked = lone.sent[-1]
    assert isinstance(asked, FetchSnapshotRequest) and asked.position == position
    return FetchSnapshotResponse(ErrorCode.NONE, 1, 2, asked.number, size, position, data)
