"""Damage that a scrub or a reader finds while the log is open."""

import pytest

from metadata_log.format.errors import CorruptLog
from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.format.records import Topic
from metadata_log.store.damage import DamagedRange, LostTail
from metadata_log.store.log import Log
from metadata_log.store.log_config import LogConfig
from metadata_log.store.log_notes import Flushed
from metadata_log.store.segment import SEGMENT_HEADER_BYTES
from metadata_log.store.segments import check
from tests.metadata_log.store.damaged_log import (
    CONFIG,
    ID,
    check_damaged,
    check_mended,
    contents,
    everything,
    filled,
    noted,
    repair_all,
    segments,
)
from tests.sim.world.disk import MemoryDirectory


def scrubbed(directory: MemoryDirectory, log: Log) -> list[DamagedRange]:
    """Run one whole scrub, in small slices."""
    found = []
    extents = list(log.extents())
    while extents:
        extent = extents.pop(0)
        try:
            rest = check(directory, extent, 300)
        except CorruptLog as e:
            found.append(noted(log, e))
            extents = [each for each in log.extents() if each.position > found[-1].position or each.name != extent.name]
            extents = [each for each in extents if each.name >= extent.name]
            continue
        if rest is not None:
            extents.insert(0, rest)
    return found


@pytest.mark.slow
def test_a_scrub_finds_any_flipped_bit_of_a_sealed_segment() -> None:
    directory, log, written = filled(12)
    before = contents(directory)
    assert scrubbed(directory, log) == []
    sealed = segments(directory)[:-1]
    for name in sealed:
        for position in range(SEGMENT_HEADER_BYTES, len(before[name]), 17):
            directory.flip_bit(name, position)
            (damaged,) = scrubbed(directory, log)
            assert list(log.damage) == [damaged]
            check_damaged(log, log, written)
            repair_all(log, written)
            assert contents(directory) == before
            assert log.damage == ()
    check_mended(directory, log, Log.open(directory, config=CONFIG), written)


def test_a_scrub_names_the_offset_of_the_damage_or_none() -> None:
    """A slice knows the offset of a batch only by the batch before it. The log itself tells the range, in any case."""
    for damaged_batch, offset in ((0, None), (2, 4)):
        directory, log, written = filled()
        told: list[str] = []
        log.on_damage = told.append
        extent = log.extents()[0]
        position = SEGMENT_HEADER_BYTES + sum(len(each.data) for each in written[:damaged_batch])
        directory.flip_bit(extent.name, position + 90)
        with pytest.raises(CorruptLog) as rot:
            check(directory, extent, 1 << 20)
        assert (rot.value.position, rot.value.offset) == (position, offset)
        assert (", offset " in str(rot.value)) == (offset is not None)
        damaged = noted(log, rot.value)
        assert damaged.start <= written[damaged_batch].base_offset < damaged.end
        assert told == [f"{damaged}: {rot.value}"]


def test_rot_that_a_read_comes_upon_is_mended() -> None:
    """Including damage in the active segment, and next to damage that is known already."""
    for order in ((0, 1, 2), (2, 1, 0), (1, 1, 2)):
        directory = MemoryDirectory()
        log = Log.open(directory, config=LogConfig(tail_bytes=10))
        written = [log.append([Topic("t" * 9000, ID)], 1 + i // 2, i) for i in range(10)]
        log.flush()
        before = contents(directory)
        name = segments(directory)[0]
        for i in order:
            directory.flip_bit(name, SEGMENT_HEADER_BYTES + i * 18_500 + 200, 3)
        for batch in written:
            try:
                log.read(batch.base_offset, 1)
            except CorruptLog as e:
                log.note_damage(e)
        assert log.damage
        repair_all(log, written)
        assert contents(directory) == before
        assert everything(log) == written
        assert everything(Log.open(directory)) == written


def test_rot_that_is_found_below_the_log_s_start_is_nobody_s_loss() -> None:
    """If the whole file has to be written again, the part above the start is repaired."""
    directory, log, written = filled()
    healthy = filled()[1]
    for each in (log, healthy):
        each.drop_prefix(OffsetAndEpoch(6, 1))
    name = segments(directory)[0]
    directory.flip_bit(name, SEGMENT_HEADER_BYTES + 85)
    damaged = noted(log, CorruptLog.at(f"{directory.path_text}/{name}", SEGMENT_HEADER_BYTES, 0, "rot"))
    assert log.damage == (damaged,)
    assert (damaged.start, damaged.chain_before) == (6, written[2].chain)
    repair_all(log, written)
    check_mended(directory, log, healthy, written[3:])

    directory = MemoryDirectory()
    log = Log.open(directory)
    for i in range(10):
        log.append([Topic("t" * 9000, ID)], 1, i)
    log.flush()
    log.drop_prefix(OffsetAndEpoch(4, 1))
    shape = log.shape
    log.note_damage(CorruptLog.at(f"{directory.path_text}/{segments(directory)[0]}", 9_200, 1, "rot"))
    assert (log.damage, log.shape) == ((), shape)
    assert [batch.base_offset for batch in everything(log)] == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("nth", [2, 4, 12, 22])
def test_a_truncation_that_comes_upon_rot_changes_nothing_and_the_next_start_judges(nth: int) -> None:
    """An open log knows damage from index entry to index entry, a start from batch to batch. So the start keeps more."""
    directory = MemoryDirectory()
    log = Log.open(directory)
    written = [log.append([Topic("t" * 1000, ID)], 1, i) for i in range(24)]
    log.flush()
    log._note.flush()
    durable = Flushed(log.shape.end, log.shape.chain)
    name, before = segments(directory)[0], contents(directory)
    directory.flip_bit(name, SEGMENT_HEADER_BYTES + sum(len(batch.data) for batch in written[: nth - 1]) + 500)
    rotten = contents(directory)
    with pytest.raises(OSError, match="Nothing was cut"):
        log.truncate(nth)
    assert (log.end, log.lost, contents(directory)) == (24, None, rotten)
    assert before != rotten
    log.close()
    log = Log.open(directory)
    (damaged,) = log.damage
    assert (damaged.start, damaged.end) == (nth - 1, nth + 1)
    with pytest.raises(LostTail) as e:
        log.truncate(nth)
    assert (e.value.lost_from, e.value.durable_end, e.value.durable_chain) == (nth - 1, *durable)
    assert (log.end, log.lost, log.damage) == (nth - 1, durable, ())


def test_damage_that_is_none_of_this_log_s_is_not_taken_for_its_own() -> None:
    _, log, _ = filled()
    for error in (CorruptLog("somewhere"), CorruptLog.at("/elsewhere/00000000000000000000.log", 90, 0, "rot")):
        with pytest.raises(CorruptLog) as e:
            log.note_damage(error)
        assert e.value is error


def test_the_epochs_around_rot_stay_what_they_are() -> None:
    """The epochs of the last lost record and of all records behind are known, also if the log starts at a snapshot in
    the range.
    """
    for position in range(8):
        directory = MemoryDirectory()
        log = Log.open(directory, config=LogConfig(tail_bytes=100))
        written = [log.append([Topic("t" * 4000, ID)], 1 + (i >= 17) + (i >= 25), i) for i in range(32)]
        log.flush()
        epochs = log.shape.epochs
        name = segments(directory)[0]
        place = SEGMENT_HEADER_BYTES + sum(len(batch.data) for batch in written[: 4 * position])
        damaged = noted(log, CorruptLog.at(f"{directory.path_text}/{name}", place, 0, "rot"))
        assert log.shape.epochs == epochs
        assert damaged.epoch_after == written[damaged.end - 1].epoch
        snapshot = written[damaged.start].end
        log.start_at_snapshot(snapshot, written[damaged.start].chain, 5)
        log.shape.check_invariants()
        for batch in written[damaged.end - 1 :]:
            assert log.shape.epoch_below(batch.end_offset) == batch.epoch
        damaged = log.damage[0]
        log.repair(damaged, written[damaged.start : damaged.end])
        for batch in written[snapshot.offset :]:
            assert log.shape.epoch_below(batch.end_offset) == batch.epoch
        log.drop_prefix(written[29].end)
        log.shape.check_invariants()


def test_rot_above_a_gap_that_reaches_below_the_log_s_start() -> None:
    """1. The log starts inside a file. The file's header and the batches below the start are damaged: none of that is missing.
    2. A scrub finds damage above the start, in the same file. The damaged range begins at the log's start.
    3. The repair writes a new file, which begins at the log's start.
    """
    directory = MemoryDirectory()
    config = LogConfig(segment_bytes=60_000, tail_bytes=100)
    log = Log.open(directory, config=config)
    written = [log.append([Topic("t" * 9000, ID)], 1, i) for i in range(12)]
    log.flush()
    log.drop_prefix(OffsetAndEpoch(2, 1))
    log.close()
    name = segments(directory)[0]
    for position in (20, SEGMENT_HEADER_BYTES + 100, SEGMENT_HEADER_BYTES + len(written[0].data) + 100):
        directory.flip_bit(name, position)
    log = Log.open(directory, config=config)
    assert (log.damage, everything(log)) == ((), written[2:])
    place = SEGMENT_HEADER_BYTES + sum(len(batch.data) for batch in written[:3]) + 100
    log.note_damage(CorruptLog.at(f"{directory.path_text}/{name}", place, 3, "rot"))
    (damaged,) = log.damage
    assert damaged.start == 2 < damaged.end < 12
    repair_all(log, written)
    assert everything(log) == written[2:]
    log.close()
    log = Log.open(directory, config=config)
    assert (log.damage, everything(log), segments(directory)[0]) == ((), written[2:], f"{2:020d}.log")
