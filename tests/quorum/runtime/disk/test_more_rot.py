"""More damage shows while a log is being mended, or looked at: it is noted and mended like the rest, and stops nobody."""

import pytest

from metadata_log.format.errors import CorruptLog
from metadata_log.store.log_config import LogConfig
from metadata_log.store.segment import SEGMENT_HEADER_BYTES, base_offset_of
from quorum.runtime.disk.repair import REST_MS
from quorum.runtime.protocol.jobs import ScrubJob
from quorum.runtime.protocol.node_config import NodeConfig
from quorum.runtime.protocol.world import JobDone
from tests.quorum.runtime.disk.damaged_node import DamagedNode

CONFIG = NodeConfig(log=LogConfig(segment_bytes=512, tail_bytes=700))
"""Segments of four batches, and the last seven or so in memory."""
IN_A_BATCH = SEGMENT_HEADER_BYTES + 85
IN_THE_THIRD_BATCH = SEGMENT_HEADER_BYTES + 300


def segments(it: DamagedNode) -> list[str]:
    return [name for name in it.metadata.names() if base_offset_of(name) is not None]


def found(it: DamagedNode, name: str) -> None:
    """While the node runs, somebody comes upon rot at the beginning of this segment."""
    it.metadata.flip_bit(name, IN_A_BATCH)
    it.lone.node.disk.found_damage(CorruptLog.at(f"{it.metadata.path_text}/{name}", SEGMENT_HEADER_BYTES, 0, "rot"))


def with_rot_ahead_of_damage() -> DamagedNode:
    """A node that was opened with damage from its third batch on; the first one rots now, and nobody has looked there since."""
    it = DamagedNode(IN_THE_THIRD_BATCH, config=CONFIG)
    assert [each.start for each in it.lone.node.log.damage] == [2]
    it.metadata.flip_bit(it.name, IN_A_BATCH)
    return it


def test_rot_just_ahead_of_the_damage_is_mended_too() -> None:
    """Mending reads what stands ahead. Taken for a bad answer that rot would have everybody asked for the same for ever."""
    it = with_rot_ahead_of_damage()
    it.answer(it.right_answer(it.asked[-1][1], batches=20))
    it.lone.turn()
    assert [each.start for each in it.lone.node.log.damage] == [0]
    it.answer_all()
    assert [batch.data for batch in it.lone.node.log.read(0, 1 << 20)] == [batch.data for batch in it.written]
    assert it.lone.node.disk.status().damage_found == 2
    assert it.lone.stopped is None


def test_a_repair_that_comes_to_nothing_voids_no_flush() -> None:
    """Nor does it begin the scrub's pass anew: no bytes stand elsewhere."""
    it = with_rot_ahead_of_damage()
    log = it.lone.node.log
    generation, (lost,) = log.generation, log.damage
    with pytest.raises(CorruptLog):
        log.repair(lost, [batch for batch in it.written if lost.start <= batch.base_offset < lost.end])
    assert log.generation == generation


def test_rot_just_below_anothers_snapshot_is_noted_when_the_log_is_to_start_there() -> None:
    """The snapshot ends in what is in memory, where its chain is known; its last batch's time is read from the file."""
    it = DamagedNode(None, config=CONFIG)
    names = segments(it)
    found(it, names[0])
    it.lone.turn()
    log = it.lone.node.log
    end = log._memory.tail.start_offset + 2
    name = log._segments.of(end).name
    assert log.damage[0].end < end and base_offset_of(name) != end
    snapshot = it.snapshot_at(end)
    for _ in range(2):
        it.answer(it.too_old(it.end, snapshot.meta.end))
    it.give_pieces(snapshot.data)
    it.metadata.flip_bit(name, IN_A_BATCH)
    it.lone.run_until_idle()
    assert it.lone.stopped is None
    assert (log.shape.start.offset, len(log.damage)) == (0, 2)
    it.wait(REST_MS)
    it.answer_all()
    assert log.damage == ()


def test_what_a_scrub_finds_in_a_segment_that_was_retired_meanwhile_is_nobodys_loss() -> None:
    """The slice was being read on a worker while retention dropped the log's beginning."""
    it = DamagedNode(None, config=CONFIG)
    node = it.lone.node
    due_ms = node.disk.scrub.next_deadline_ms()
    assert due_ms is not None
    it.lone.now_ms = due_ms
    it.lone.turn()
    (job,) = [job for job in it.lone.jobs if isinstance(job, ScrubJob)]
    it.metadata.flip_bit(job.extent.name, IN_A_BATCH)
    with pytest.raises(CorruptLog) as rot:
        job.run()
    snapshot = it.snapshot_at(19)
    node.snapshotter.store.write(snapshot.meta, snapshot.image)
    node.log.drop_prefix(snapshot.meta.end)
    assert job.extent.name not in segments(it)
    it.lone.turn(JobDone(job, rot.value))
    assert (node.log.damage, it.lone.stopped) == ((), None)
    assert node.disk.status().damage_found == 0


def test_rot_that_a_truncation_comes_upon_is_reported() -> None:
    """The process ends, with nothing cut: the next start judges the damage. And somebody should look at this disk."""
    it = DamagedNode(None, config=CONFIG._replace(log=LogConfig(segment_bytes=1 << 16, tail_bytes=1 << 20)))
    end = it.lone.node.log.end
    it.metadata.flip_bit(it.name, IN_A_BATCH)
    with pytest.raises(OSError, match="Nothing was cut"):
        it.lone.node.log.truncate(11)
    status = it.lone.node.disk.status()
    assert (status.damage_found, it.lone.node.log.end) == (1, end)
    assert it.name in status.last_damage
