"""What a damaged node does by itself when nobody can help: it reads its disk again, and gives up history only for good."""

import pytest

from metadata_log.format.batch import Batch
from metadata_log.format.errors import CorruptLog, ErrorCode
from metadata_log.store.damage import DamagedRange
from metadata_log.store.segment import SEGMENT_HEADER_BYTES
from quorum.core.protocol.inputs import Failure
from quorum.core.protocol.messages import ReadLogRequest, ReadLogResponse
from quorum.runtime.disk.open_directory import LOG_DIRECTORY
from quorum.runtime.disk.repair import PATIENCE_ROUNDS, REST_MAX_MS, REST_MS
from quorum.runtime.protocol.world import RaftFailure
from snapshots.format import snapshot_name
from tests.quorum.runtime.disk.damaged_node import LAST_EPOCH, DamagedNode, lone_voter_with_sealed_segments

IN_A_BATCH = SEGMENT_HEADER_BYTES + 85
TEN_MINUTES_MS = 600_000


def with_snapshot(*, rotten: bool) -> DamagedNode:
    """A node that has just found damage below its own snapshot; `rotten`: it is more than a read that failed once."""
    it = DamagedNode(damaged_at=None)
    node, snapshot = it.lone.node, it.snapshot_at(19)
    node.snapshotter.store.write(snapshot.meta, snapshot.image)
    node.log.note_snapshot(snapshot.meta.end)
    if rotten:
        it.metadata.flip_bit(it.name, IN_A_BATCH)
    node.disk.found_damage(CorruptLog.at(f"{it.metadata.path_text}/{it.name}", SEGMENT_HEADER_BYTES, 0, "rot"))
    it.lone.turn()
    return it


def test_a_full_disk_is_no_reason_to_give_up_what_it_holds() -> None:
    """This disk gives again what nobody else has, and there is no room to write it anew. It stays damaged until there is."""
    it = with_snapshot(rotten=False)
    log, snapshot = it.lone.node.log, it.snapshot_at(19).meta.end
    it.disk.limit_space(it.disk.used_bytes)
    for _ in range(2):
        it.answer(it.too_old(it.end, snapshot))
    assert log.damage and log.shape.start.offset == 0 and it.lone.stopped is None
    assert isinstance(it.lone.sent[-1][1], ReadLogRequest), "nor is another's snapshot fetched"
    it.disk.limit_space(None)
    it.wait(REST_MS)
    for _ in range(2):
        it.answer(it.too_old(it.end, snapshot))
    assert (log.damage, log.shape.start.offset) == ((), 0)
    assert it.metadata.read(it.name, 1 << 20) == it.intact


def test_what_is_mended_while_the_last_one_is_asked_is_not_given_up() -> None:
    """For rounds those who answer have nothing. The last of them fails when there is nothing left to ask for."""
    it = with_snapshot(rotten=True)
    log = it.lone.node.log
    for rounds in range(PATIENCE_ROUNDS):
        it.answer(ReadLogResponse(ErrorCode.STORAGE_ERROR, LAST_EPOCH, None))
        if rounds < PATIENCE_ROUNDS - 1:
            it.answer(ReadLogResponse(ErrorCode.STORAGE_ERROR, LAST_EPOCH, None))
            it.wait(REST_MS)
    (damaged,) = log.damage
    log.repair(damaged, [each for each in it.written if damaged.start <= each.base_offset < damaged.end])
    to, request = it.asked[-1]
    it.lone.turn(RaftFailure(to, request, Failure.TIMED_OUT))
    assert (log.damage, log.shape.start.offset) == ((), 0)


def test_a_lone_voter_reads_real_rot_again_ever_more_rarely() -> None:
    """All of the range each time, in the midst of its turns. Once the disk gives it after all, that is soon seen."""
    lone = lone_voter_with_sealed_segments()
    node = lone.node
    for info in node.snapshotter.store.list():
        node.snapshotter.store.directory.remove(snapshot_name(info.end))
    metadata, name = lone.disk.subdirectory(LOG_DIRECTORY), node.log.extents()[0].name
    metadata.flip_bit(name, IN_A_BATCH)
    place = f"{metadata.path_text}/{name}"
    node.disk.found_damage(CorruptLog.at(place, SEGMENT_HEADER_BYTES, 0, "rot"))
    looks, end_ms = 0, lone.now_ms + TEN_MINUTES_MS
    while (due_ms := node.disk.repair.next_deadline_ms()) is not None and due_ms < end_ms:
        lone.now_ms = max(lone.now_ms, due_ms)
        lone.turn()
        looks += 1
    assert node.log.damage and 10 < looks <= 10 + TEN_MINUTES_MS // REST_MAX_MS
    metadata.flip_bit(name, IN_A_BATCH)
    lone.now_ms += REST_MAX_MS
    lone.turn()
    assert node.log.damage == ()


def test_others_are_asked_as_often_as_ever_while_the_own_disk_is_read_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes back is found within a moment; what has rotted does not come back."""
    it = with_snapshot(rotten=True)
    log, looks = it.lone.node.log, 0

    def counted(damaged: DamagedRange) -> list[Batch]:
        nonlocal looks
        looks += 1
        return read_again(damaged)

    read_again = log.read_again
    monkeypatch.setattr(log, "read_again", counted)
    rounds = TEN_MINUTES_MS // REST_MS
    for _ in range(rounds):
        for _ in range(2):
            to, request = it.asked[-1]
            it.lone.turn(RaftFailure(to, request, Failure.TIMED_OUT))
        it.wait(REST_MS)
    assert len(it.asked) > 2 * rounds
    assert 10 < looks <= 10 + TEN_MINUTES_MS // REST_MAX_MS
    it.answer_all()
    assert it.metadata.read(it.name, 1 << 20) == it.intact


def test_a_log_is_stood_on_its_own_snapshot_though_the_disk_is_full() -> None:
    """It takes a few bytes to say where the log starts: the ballast has room for that, and what goes makes more."""
    it = with_snapshot(rotten=True)
    log = it.lone.node.log
    it.disk.limit_space(it.disk.used_bytes)
    for _ in range(2):
        it.answer(it.too_old(it.end))
    assert (log.damage, log.shape.start.offset) == ((), 19)
    assert it.lone.stopped is None and it.lone.node.core.shape == log.shape


def test_an_own_snapshot_that_cannot_be_read_is_not_stood_on() -> None:
    """Only until it can."""
    it = with_snapshot(rotten=True)
    log, store = it.lone.node.log, it.lone.node.snapshotter.store
    store._verified.clear()  # as after a restart
    it.metadata.break_sector(snapshot_name(it.snapshot_at(19).meta.end), 0)
    for _ in range(2):
        it.answer(it.too_old(it.end))
    assert (log.shape.start.offset, it.lone.stopped) == (0, None) and log.damage
    it.disk.heal()
    it.wait(REST_MS)
    for _ in range(2):
        it.answer(it.too_old(it.end))
    assert (log.damage, log.shape.start.offset) == ((), 19)
