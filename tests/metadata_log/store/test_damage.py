"""Damage inside a log: recovery finds and names every damaged byte, cuts nothing, and the log is used behind the damage."""

from random import Random

import pytest

from metadata_log.format.errors import CorruptLog
from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.format.records import SnapshotMark, Topic
from metadata_log.store.damage import DamagedRangeRead, LostTail
from metadata_log.store.log import Log
from metadata_log.store.log_config import LogConfig
from metadata_log.store.log_notes import FLUSHED_NAME
from metadata_log.store.segment import SEGMENT_HEADER_BYTES
from tests.metadata_log.store.damaged_log import (
    CONFIG,
    ID,
    SMALL,
    check_damaged,
    check_mended,
    contents,
    everything,
    filled,
    repair_all,
    segments,
)
from tests.sim.world.disk import MemoryDirectory


def with_the_oldest_note(found: MemoryDirectory) -> MemoryDirectory:
    """Return the disk after a power cut that keeps only the last fsynced note."""
    note = found.durable_bytes(FLUSHED_NAME)
    assert note is not None
    after = found.crash(Random(1))
    after.edit(FLUSHED_NAME, lambda content: content.__setitem__(slice(None), note))
    return after


@pytest.mark.parametrize("found_by", ["opening", "scrub"])
def test_damage_that_was_seen_is_no_torn_tail_after_the_next_power_cut(found_by: str) -> None:
    """The log fsyncs its note when it opens with damage, or finds damage later.

    Otherwise a power cut could bring back an older note, with an end below the damage. In the last segment nothing else
    says that the damaged records had been durable, so recovery would cut them.
    """
    directory = MemoryDirectory()
    log = Log.open(directory, config=LogConfig(segment_bytes=1 << 16, tail_bytes=400))
    log.append([Topic("topic-0", ID)] * 2, 1, 1000)
    log.flush()
    log._note.flush()
    for i in range(1, 12):
        log.append([Topic(f"topic-{i}", ID)] * 2, 1, 1000 + i)
        log.flush()
    end, (name,) = log.shape.end, segments(directory)
    position = SEGMENT_HEADER_BYTES + 2 * len(log.read(0, 1)[0].data) + 10
    directory.flip_bit(name, position)
    if found_by == "opening":
        log.close()
        log = Log.open(directory, config=CONFIG)
    else:
        log.note_damage(CorruptLog.at(f"{directory.path_text}/{name}", position, 0, "rot"))
    (damaged,) = log.damage
    log.close()

    again = Log.open(with_the_oldest_note(directory), config=CONFIG)

    assert again.shape.end == end
    (found,) = again.damage
    assert damaged.start <= found.start < found.end <= damaged.end


@pytest.mark.slow
@pytest.mark.parametrize("part", range(6))
def test_any_flipped_bit_is_found_and_mended(part: int) -> None:
    """For every byte of every segment: nothing is cut, all other batches can be read, and the repair restores the same
    bytes.

    Only in the last batches, with nothing intact behind the damage, no repair is possible, and the log names the lost
    end.
    """
    directory, healthy, written = filled(9, SMALL)
    ends = {piece.name: piece.end_position for piece in healthy._segments.files}
    healthy.close()
    before = contents(directory)
    lost = 0
    for name in segments(directory):
        for position in range(part, ends[name], 6):
            directory.flip_bit(name, position, position % 8)
            try:
                log = Log.open(directory, config=SMALL)
            except LostTail as e:
                assert (e.durable_end, e.durable_chain) == (healthy.shape.end, healthy.shape.chain)
                assert e.lost_from >= written[-2].base_offset, "with two intact batches behind it, it can be mended"
                directory.flip_bit(name, position, position % 8)
                lost += 1
            else:
                assert len(log.damage) <= 1
                check_damaged(log, healthy, written)
                repair_all(log, written)
                check_mended(directory, log, healthy, written, SMALL)
            assert contents(directory) == before, (name, position)
    assert lost > 0


def test_what_is_damaged_is_said_to_the_byte() -> None:
    directory, log, written = filled()
    first, second = log._segments.files[:2]
    batch = written[1]
    directory.flip_bit(first.name, SEGMENT_HEADER_BYTES + len(written[0].data) + 90)
    again = Log.open(directory, config=CONFIG)

    (damaged,) = again.damage
    # the batch behind is intact, but only the batch itself says so: it counts as damaged
    assert (damaged.start, damaged.end) == (batch.base_offset, written[2].end_offset)
    assert (damaged.chain_before, damaged.chain_after) == (written[0].chain, written[2].chain)
    assert (damaged.file, damaged.position) == (first.name, SEGMENT_HEADER_BYTES + len(written[0].data))
    assert second.name not in str(damaged)


def test_bytes_that_look_like_a_batch_mislead_nobody() -> None:
    """A record may contain the bytes of a whole batch, even of the batches that follow."""
    directory = MemoryDirectory()
    log = Log.open(directory, config=LogConfig(segment_bytes=8192))
    first = log.append([Topic("first", ID)], 1, 1)
    other = Log.open(MemoryDirectory(), start=OffsetAndEpoch(2, 1), chain=bytes(32))
    nested = [other.append([Topic("nested", ID)], 1, 1) for _ in range(3)]
    log.append([SnapshotMark("x" + b"".join(batch.data for batch in nested).decode("latin-1"))], 1, 2)
    for i in range(4):
        log.append([Topic(f"topic-{i}", ID)], 1, 3 + i)
    log.flush()
    written = everything(log)
    directory.flip_bit(segments(directory)[0], SEGMENT_HEADER_BYTES + len(first.data) + 85)

    again = Log.open(directory, config=LogConfig(segment_bytes=8192))
    (damaged,) = again.damage
    assert (damaged.start, damaged.end) == (1, 3)
    assert damaged.chain_after == written[2].chain
    assert again.read(3, 1 << 20) == tuple(written[3:])


def test_a_damaged_log_goes_on() -> None:
    """A damaged log appends, flushes, seals, is killed and opened again. After the repair no trace of the damage is
    left.
    """
    directory, healthy, written = filled()
    directory.flip_bit(segments(directory)[0], 300)
    log = Log.open(directory, config=CONFIG)
    for i in range(20):
        written.append(log.append([Topic(f"later-{i}", ID)], 9, 3000 + i))
        healthy.append([Topic(f"later-{i}", ID)], 9, 3000 + i)
        if i % 6 == 0:
            log.flush()
    log.flush()
    log = Log.open(directory.kill(), config=CONFIG)
    assert len(log.damage) == 1
    repair_all(log, written)
    assert everything(log) == written
    assert log.shape.epochs == healthy.shape.epochs


def test_a_prefix_that_is_dropped_takes_its_damage_with_it() -> None:
    directory, log, _ = filled(40)
    name = segments(directory)[0]
    directory.flip_bit(name, 400)
    log = Log.open(directory, config=CONFIG)
    damaged = log.damage[0]
    with pytest.raises(DamagedRangeRead):
        log.drop_prefix(OffsetAndEpoch(damaged.start + 2, 1))
    assert log.drop_prefix(OffsetAndEpoch(40, 5))[0] == name
    assert log.damage == ()
    assert Log.open(directory, config=CONFIG).damage == ()


def test_a_truncation_below_the_damage_ends_it() -> None:
    for end in (0, 2, 4, 6):
        directory, _, written = filled()
        directory.flip_bit(
            segments(directory)[0], SEGMENT_HEADER_BYTES + sum(len(b.data) for b in written[: end // 2]) + 85
        )
        log = Log.open(directory, config=CONFIG)
        assert log.damage[0].start == end
        log.truncate(end)
        assert (log.damage, log.shape.end) == ((), end)
        another = log.append([Topic("another", ID)], 9, 9000)
        log.flush()
        assert everything(Log.open(directory, config=CONFIG)) == [*written[: end // 2], another]
