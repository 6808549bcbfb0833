"""A damaged node without help: when no other voter has the lost records, the node starts its log at its own snapshot."""

import pytest

from metadata_log.format.errors import CorruptLog, ErrorCode
from metadata_log.store.log import Log
from metadata_log.store.segment import SEGMENT_HEADER_BYTES
from quorum.core.protocol.inputs import Failure
from quorum.core.protocol.messages import ReadLogResponse
from quorum.runtime.disk.open_directory import LOG_DIRECTORY
from quorum.runtime.disk.repair import PATIENCE_ROUNDS, REST_MS
from quorum.runtime.protocol.peer_answers import unanswered
from snapshots.format import snapshot_name
from tests.quorum.runtime.disk.damaged_node import LAST_EPOCH, DamagedNode, lone_voter_with_sealed_segments

IN_A_BATCH = SEGMENT_HEADER_BYTES + 85
TEN_MINUTES_MS = 600_000


def with_snapshot() -> DamagedNode:
    """A node that has just found damage below its own snapshot."""
    it = DamagedNode(damaged_at=None)
    node, snapshot = it.lone.node, it.snapshot_at(19)
    node.snapshotter.store.write(snapshot.meta, snapshot.image)
    node.log.note_snapshot(snapshot.meta.end)
    it.metadata.flip_bit(it.name, IN_A_BATCH)
    node.disk.found_damage(CorruptLog.at(f"{it.metadata.path_text}/{it.name}", SEGMENT_HEADER_BYTES, 0, "rot"))
    it.lone.turn()
    return it


@pytest.mark.parametrize("rotten", [True, False])
def test_a_lone_voter_waits_for_a_restart_which_judges_its_disk_anew(rotten: bool) -> None:
    """No snapshot covers the damage, and no other voter has the records. A restart finds only what is damaged then."""
    lone = lone_voter_with_sealed_segments()
    node = lone.node
    for info in node.snapshotter.store.list():
        node.snapshotter.store.directory.remove(snapshot_name(info.end))
    metadata, name = lone.disk.subdirectory(LOG_DIRECTORY), node.log.extents()[0].name
    if rotten:
        metadata.flip_bit(name, IN_A_BATCH)
    place = f"{metadata.path_text}/{name}"
    node.disk.found_damage(CorruptLog.at(place, SEGMENT_HEADER_BYTES, 0, "the disk cannot read it"))
    for _ in range(20):
        lone.now_ms += REST_MS
        lone.turn()
    assert node.log.damage and not node.core.is_leading and lone.stopped is None
    node.log.close()
    assert len(Log.open(metadata).damage) == rotten


def test_what_is_mended_while_the_last_one_is_asked_is_not_given_up() -> None:
    """For rounds those who answer have nothing. The last of them fails when there is nothing left to ask for."""
    it = with_snapshot()
    log = it.lone.node.log
    for rounds in range(PATIENCE_ROUNDS):
        it.answer(ReadLogResponse(ErrorCode.STORAGE_ERROR, LAST_EPOCH, None))
        if rounds < PATIENCE_ROUNDS - 1:
            it.answer(ReadLogResponse(ErrorCode.STORAGE_ERROR, LAST_EPOCH, None))
            it.wait(REST_MS)
    (damaged,) = log.damage
    log.repair(damaged, [each for each in it.written if damaged.start <= each.base_offset < damaged.end])
    to, request = it.asked[-1]
    it.lone.turn(unanswered(to, request, Failure.TIMED_OUT))
    assert (log.damage, log.shape.start.offset) == ((), 0)


def test_a_log_is_stood_on_its_own_snapshot_though_the_disk_is_full() -> None:
    """It takes a few bytes to say where the log starts: the ballast has room for that, and what goes makes more."""
    it = with_snapshot()
    log = it.lone.node.log
    it.disk.limit_space(it.disk.used_bytes)
    for _ in range(2):
        it.answer(it.too_old(it.end))
    it.lone.run_until_idle()
    assert (log.damage, log.shape.start.offset) == ((), 19)
    assert it.lone.stopped is None and it.lone.node.core.shape == log.shape


def test_an_own_snapshot_that_cannot_be_read_is_not_stood_on() -> None:
    """Only until it can."""
    it = with_snapshot()
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
    it.lone.run_until_idle()
    assert (log.damage, log.shape.start.offset) == ((), 19)
