"""A damaged log is mended from what other controllers hold: who gives what, and what the damaged one makes of it."""

import pytest

from metadata_log.format.batch import Batch
from metadata_log.format.errors import CorruptLog, ErrorCode
from metadata_log.format.ids import ReplicaKey
from metadata_log.format.records import Topic
from metadata_log.store.log import Log
from metadata_log.store.log_config import LogConfig
from metadata_log.store.segment import SEGMENT_HEADER_BYTES
from quorum.core.protocol.inputs import Failure
from quorum.core.protocol.messages import FetchRequest, FetchResponse, ReadLogRequest, ReadLogResponse
from quorum.runtime.disk.open_directory import LOG_DIRECTORY
from quorum.runtime.disk.peer_reads import read_log
from quorum.runtime.disk.repair import REST_MS
from quorum.runtime.protocol.jobs import ScrubJob
from quorum.runtime.protocol.peer_answers import unanswered
from quorum.runtime.protocol.world import RaftRequest, SnapshotWanted
from snapshots.format import genesis, snapshot_name
from snapshots.policy import RetentionPolicy
from tests.quorum.runtime.disk.damaged_node import (
    CONFIG,
    LAST_EPOCH,
    VOTERS,
    DamagedNode,
)
from tests.quorum.runtime.lone_node import CLUSTER_ID, LoneNode, directory_id, formatted_disk, voters_of
from tests.sim.world.disk import MemoryDirectory

ASKING = ReplicaKey(2, directory_id(2))


def a_log(batches: int = 20) -> Log:
    log = Log.open(MemoryDirectory(), config=LogConfig(segment_bytes=2048, tail_bytes=700))
    for i in range(batches):
        log.append([Topic(f"topic-{i}", bytes(16))] * 2, 1, 1000 + i)
    log.flush()
    return log


def test_only_what_is_durable_is_given() -> None:
    """Whole batches, from the very offset that was asked for, below the end that was asked for."""
    log = a_log()
    log.append([Topic("not flushed", bytes(16))], 1, 5_000)
    for offset, end_offset, expected in ((4, 10, [4, 6, 8]), (4, 9, [4, 6]), (38, 90, [38])):
        answer = read_log(ReadLogRequest(ASKING, offset, end_offset, 1 << 20), log, epoch=3, leader_id=1)
        assert (answer.error, answer.epoch, answer.leader_id) == (ErrorCode.NONE, 3, 1)
        assert [batch.base_offset for batch in answer.batches] == expected


def test_what_is_not_held_is_out_of_range() -> None:
    """Above the durable end, below the start, in the middle of a batch, and nonsense."""
    log = a_log()
    start = log.shape.epoch_below(10)
    assert start is not None
    log.drop_prefix(log.shape.start._replace(offset=10, epoch=start))
    for offset, end_offset in ((8, 20), (11, 20), (40, 60), (30, 20), (-5, 7)):
        answer = read_log(ReadLogRequest(ASKING, offset, end_offset, 1 << 20), log, epoch=3, leader_id=None)
        assert (answer.error, answer.batches, answer.log_start) == (ErrorCode.OFFSET_OUT_OF_RANGE, (), 10), offset


def test_what_is_damaged_here_too_is_said() -> None:
    log = a_log()
    log.note_damage(CorruptLog.at("/memory/00000000000000000000.log", 100, 0, "rot"))
    damaged = log.damage[0]
    answer = read_log(ReadLogRequest(ASKING, damaged.start, 40, 1 << 20), log, epoch=3, leader_id=None)
    assert (answer.error, answer.batches) == (ErrorCode.STORAGE_ERROR, ())


def test_an_answer_has_at_least_one_batch_and_at_most_a_mebibyte() -> None:
    log = a_log()
    answer = read_log(ReadLogRequest(ASKING, 0, 40, -1), log, epoch=3, leader_id=None)
    assert len(answer.batches) == 1
    for _ in range(5):
        log.append([Topic("t" * 600_000, bytes(16))], 1, 5_000)
    log.flush()
    answer = read_log(ReadLogRequest(ASKING, 40, 45, 1 << 30), log, epoch=3, leader_id=None)
    assert len(answer.batches) == 1


# --- the node that asks --------------------------------------------------------------------------------------------


def test_a_damaged_node_mends_itself_and_only_then_runs() -> None:
    """It votes with its true end meanwhile."""
    it = DamagedNode()
    node = it.lone.node
    assert (node.log.shape.end, len(node.log.damage)) == (20, 1)
    assert it.stand_for_election() == []
    assert node.disk.status().damaged_records > 0
    it.answer_all()
    assert it.metadata.read(it.name, 1 << 20) == it.intact
    assert it.lone.stopped is None
    status = node.disk.status()
    assert (status.damage_found, status.damage_mended, status.damaged_records) == (1, 1, 0)
    assert it.stand_for_election() != []
    assert node.disk.repair.next_deadline_ms(has_damage=bool(node.log.damage)) is None, (
        "there is nothing left to ask for"
    )


def test_the_voters_are_asked_in_turn_and_nonsense_is_passed_over() -> None:
    it = DamagedNode()
    (first, request), node = it.asked[0], it.lone.node
    it.answer(ReadLogResponse(ErrorCode.OFFSET_OUT_OF_RANGE, 1, None))
    assert [to for to, _ in it.asked] == [first, 5 - first]
    other = Log.open(MemoryDirectory(), chain=bytes(32))
    forged: list[Batch] = [other.append([Topic("forged", bytes(16))], 1, 1) for _ in range(4)]
    it.answer(ReadLogResponse(ErrorCode.NONE, 1, None, tuple(forged[: request.end_offset])))
    assert len(it.asked) == 2, "after a round it rests"
    assert node.disk.repair.next_deadline_ms(has_damage=bool(node.log.damage)) == it.lone.now_ms + REST_MS
    it.lone.now_ms += REST_MS
    it.lone.turn()
    to, request = it.asked[-1]
    it.lone.turn(unanswered(to, request, Failure.TIMED_OUT))
    assert len(it.asked) == 4
    it.answer_all()
    assert it.metadata.read(it.name, 1 << 20) == it.intact


def test_a_forged_history_that_fits_in_front_is_thrown_away_as_a_whole() -> None:
    """Its batches continue what is intact before the damage, and do not lead to what is intact behind: nothing is written."""
    it = DamagedNode()
    other = Log.open(MemoryDirectory(), chain=genesis(CLUSTER_ID, VOTERS))
    end = it.asked[0][1].end_offset
    it.answer(
        ReadLogResponse(ErrorCode.NONE, 1, None, tuple(other.append([Topic("x", bytes(16))], 1, 1) for _ in range(end)))
    )
    assert it.metadata.read(it.name, 1 << 20) != it.intact
    assert it.asked[-1][1].offset == 0
    it.answer_all()
    assert it.metadata.read(it.name, 1 << 20) == it.intact


def test_who_votes_is_known_again_with_what_is_mended() -> None:
    """The damage had taken the record that says so."""
    four = voters_of([1, 2, 3, 4])
    it = DamagedNode(SEGMENT_HEADER_BYTES + 250, voters=four)
    node = it.lone.node
    assert list(node.core.voters.ids) == [1, 2, 3]
    it.answer_all()
    assert node.core.voters.ids == (1, 2, 3, 4)
    assert node.core.shape == node.log.shape


def test_a_leader_that_finds_damage_steps_down_and_mends_itself() -> None:
    """A follower's fetch reads what has rotted since: it gets nothing of it, and soon another leader."""
    it = DamagedNode(damaged_at=None)
    it.lead()
    it.lone.run_until_idle()
    it.metadata.flip_bit(it.name, SEGMENT_HEADER_BYTES + 90)
    epoch, reply_to = it.lone.node.core.epoch, it.lone.new_reply_to()
    fetch = FetchRequest(ReplicaKey(2, directory_id(2)), epoch, 1, 0, 0, genesis(CLUSTER_ID, VOTERS), 0, 0, 1 << 20)
    it.lone.turn(RaftRequest(fetch, reply_to))

    answer = it.lone.answers[reply_to]
    assert isinstance(answer, FetchResponse)
    assert (answer.error, answer.batches) == (ErrorCode.STORAGE_ERROR, ())
    assert not it.lone.node.core.is_leading
    assert it.lone.stopped is None
    it.lone.turn()
    it.answer_all()
    assert it.metadata.read(it.name, 1 << 20) == it.intact


def test_what_no_other_controller_holds_any_more_is_left_to_the_snapshot() -> None:
    """Their logs start above the damage. Where this node has a snapshot above it, too, its log starts there from now on."""
    it = DamagedNode(damaged_at=None)
    node = it.lone.node
    it.keep_snapshot(19)
    it.metadata.flip_bit(it.name, SEGMENT_HEADER_BYTES + 85)
    node.log.note_damage(CorruptLog.at(f"{it.metadata.path_text}/{it.name}", SEGMENT_HEADER_BYTES + 10, 0, "rot"))
    it.lone.turn()
    it.lone.turn()
    damaged = node.log.damage[0]
    it.answer(it.too_old(damaged.end))
    it.answer(it.too_old(damaged.end))
    it.lone.run_until_idle()
    assert (node.log.damage, node.log.shape.start.offset) == ((), 19)
    assert not node.core.disk_trust.damaged


def test_a_lone_controller_stands_on_its_snapshot_when_what_is_below_has_rotted() -> None:
    """There is nobody to ask; but nothing that it needs is gone, and without it there is no cluster."""
    lone = LoneNode(formatted_disk(voters_of([1])), CONFIG)
    lone.run_until_idle()
    for _ in range(8):
        lone.turn(SnapshotWanted("r" * 400, lone.new_reply_to(), lone.now_ms + 1_000))
        lone.run_until_idle()
    node = lone.node
    snapshot, name = node.log.shape.snapshot, node.log.extents()[0].name
    assert snapshot is not None and node.active.on
    lone.disk.subdirectory(LOG_DIRECTORY).flip_bit(name, SEGMENT_HEADER_BYTES + 85)
    place = f"{node._directory.path_text}/{LOG_DIRECTORY}/{name}"
    node.disk.found_damage(CorruptLog.at(place, SEGMENT_HEADER_BYTES + 10, 0, "rot"))
    assert node.log.damage and node.log.damage[0].end <= snapshot.offset

    for _ in range(20):
        lone.now_ms = max(lone.now_ms, node.next_deadline_ms() or lone.now_ms)
        lone.turn()
        lone.run_until_idle()

    assert (node.log.damage, node.log.shape.start) == ((), snapshot)
    assert node.active.on and not node.core.disk_trust.damaged


def test_retention_that_comes_upon_rot_has_it_mended() -> None:
    """Where the log is to begin is read from a file in which nobody has looked for long. The node goes on, as a damaged one."""
    lone = LoneNode(formatted_disk(voters_of([1])), CONFIG._replace(retention=RetentionPolicy(max_bytes=1)))
    lone.run_until_idle()
    node, metadata = lone.node, lone.disk.subdirectory(LOG_DIRECTORY)
    for _ in range(2):
        lone.turn(SnapshotWanted("r" * 400, lone.new_reply_to(), lone.now_ms + 1_000))
    for name in [name for name in metadata.names() if name.endswith(".log")]:
        metadata.flip_bit(name, SEGMENT_HEADER_BYTES + 85)
    lone.run_until_idle()
    assert lone.stopped is None
    assert node.disk.status().damage_found == 1


def test_what_was_cut_off_meanwhile_is_not_read_again() -> None:
    """A leader has the log cut at the damage while others are asked for it; then the last of them fails."""
    it = DamagedNode()
    it.answer(it.too_old(it.end))
    to, request = it.asked[-1]
    it.lone.node.log.truncate(0)
    it.lone.turn(unanswered(to, request, Failure.TIMED_OUT))
    assert it.lone.stopped is None
    assert it.lone.node.log.damage == ()


# --- scrubbing -----------------------------------------------------------------------------------------------------


def scrub_a_pass(it: DamagedNode) -> int:
    """As many slices as there are; gives how many."""
    for slices in range(100):
        due_ms = it.lone.node.disk.scrub.next_deadline_ms()
        assert due_ms is not None
        it.lone.now_ms = max(it.lone.now_ms, due_ms)
        it.lone.turn()
        jobs = [job for job in it.lone.jobs if isinstance(job, ScrubJob)]
        it.lone.run_until_idle()
        if slices and not it.lone.node.disk.scrub._extents:
            return slices
        assert len(jobs) <= 1
    raise AssertionError("a pass that does not end")


def test_rot_in_a_sealed_segment_is_found_and_mended() -> None:
    it = DamagedNode(damaged_at=None)
    scrub_a_pass(it)
    assert it.lone.node.disk.scrub.scrubbed_bytes > 1000
    assert it.asked == []
    it.metadata.flip_bit(it.name, SEGMENT_HEADER_BYTES + 500)
    scrub_a_pass(it)
    it.lone.turn()
    it.answer_all()
    assert it.metadata.read(it.name, 1 << 20) == it.intact
    status = it.lone.node.disk.status()
    assert (status.damage_found, status.damage_mended) == (1, 1)


def test_a_pass_takes_about_the_configured_time() -> None:
    """And where that is 0 there is none."""
    it = DamagedNode(damaged_at=None)
    sealed_bytes = sum(each.end_position - each.position for each in it.lone.node.log.extents())
    end_ms = it.lone.now_ms + 10 * CONFIG.scrub_interval_ms
    while (due_ms := it.lone.node.disk.scrub.next_deadline_ms()) is not None and due_ms <= end_ms:
        it.lone.now_ms = due_ms
        it.lone.turn()
        it.lone.run_until_idle()
    assert 9 * sealed_bytes <= it.lone.node.disk.scrub.scrubbed_bytes <= 11 * sealed_bytes
    quiet = LoneNode(formatted_disk(VOTERS), CONFIG._replace(scrub_interval_ms=0))
    assert quiet.node.disk.scrub.next_deadline_ms() is None


@pytest.mark.parametrize("covered", [True, False])
def test_a_rotten_snapshot_goes_if_something_else_covers_it(covered: bool) -> None:
    """The only base of a log stays, although nobody is given it any more; the next whole one takes it away."""
    it = DamagedNode(damaged_at=None)
    node, store = it.lone.node, it.lone.node.snapshotter.store
    end = node.log.shape.start._replace(offset=10, epoch=2)
    name = "00000000000000000010-0000000002.checkpoint"
    it.metadata.write_atomic(name, b"no snapshot at all")
    node.log.note_snapshot(end)
    if not covered:
        node.log.drop_prefix(end)
    scrub_a_pass(it)
    assert it.metadata.exists(name) is not covered
    assert (node.log.shape.snapshot is None) is covered
    assert store.files() == ()
    assert node.disk.status().damage_found == 1
    assert it.lone.stopped is None


def test_an_active_controller_has_its_only_snapshot_replaced() -> None:
    """Else a follower that needs it would ask until the next mark is due, which may be never."""
    lone = LoneNode(formatted_disk(voters_of([1])), CONFIG)
    lone.run_until_idle()
    lone.turn(SnapshotWanted("the first", lone.new_reply_to(), lone.now_ms + 1_000))
    lone.run_until_idle()
    node = lone.node
    first = node.log.shape.snapshot
    assert first is not None
    node.log.drop_prefix(first)
    name = snapshot_name(first)
    lone.node.snapshotter.store.directory.flip_bit(name, 200)  # type: ignore[attr-defined]
    due_ms = node.disk.scrub.next_deadline_ms()
    assert due_ms is not None
    for _ in range(3):
        lone.now_ms += CONFIG.scrub_interval_ms
        lone.turn()
        lone.run_until_idle()
    assert node.log.shape.snapshot is not None and node.log.shape.snapshot > first
    assert lone.stopped is None


def test_what_was_cut_under_a_scrub_is_no_rot() -> None:
    """The slice was being read on a worker while the log was cut, and grew again with other batches."""
    it = DamagedNode(damaged_at=None)
    log = it.lone.node.log
    due_ms = it.lone.node.disk.scrub.next_deadline_ms()
    assert due_ms is not None
    it.lone.now_ms = due_ms
    it.lone.turn()
    (job,) = [job for job in it.lone.jobs if isinstance(job, ScrubJob)]
    log.truncate(3)
    for i in range(25):
        log.append([Topic(f"another-{i}", bytes(16))], LAST_EPOCH, 5_000)
    log.flush()
    it.lone.finish(job)
    assert (log.damage, it.lone.stopped) == ((), None)
    scrub_a_pass(it)
    assert log.damage == ()
