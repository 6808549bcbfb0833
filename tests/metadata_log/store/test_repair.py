"""The repair of a damaged log with batches of other nodes: every byte is restored, at once or not at all."""

from random import Random

import pytest

from metadata_log.format.errors import CorruptLog, LogFormatError
from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.format.records import Topic
from metadata_log.store.damage import DamagedRangeRead
from metadata_log.store.log import Log
from metadata_log.store.segment import SEGMENT_HEADER_BYTES
from tests.metadata_log.store.damaged_log import (
    CONFIG,
    ID,
    check_damaged,
    check_mended,
    contents,
    everything,
    filled,
    repair_all,
    segments,
    within,
)
from tests.sim.world.disk import MemoryDirectory, PowerCut


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_missing_segment_is_put_back(index: int) -> None:
    directory, healthy, written = filled(40)
    before = contents(directory)
    healthy.close()
    name = segments(directory)[index]
    directory.remove(name)
    log = Log.open(directory, config=CONFIG)
    check_damaged(log, healthy, written)
    repair_all(log, written)
    check_mended(directory, log, healthy, written)
    assert {name: data.rstrip(b"\x00") for name, data in contents(directory).items()} == {
        name: data.rstrip(b"\x00") for name, data in before.items()
    }


@pytest.mark.parametrize("is_zero", [True, False])
@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_segment_of_which_only_the_header_is_left_is_filled_again(index: int, is_zero: bool) -> None:
    """The disk has lost all batches of a segment: the file ends behind the header, or has zeros there."""

    def lose(data: bytearray) -> None:
        data[SEGMENT_HEADER_BYTES:] = bytes(len(data) - SEGMENT_HEADER_BYTES) if is_zero else b""

    directory, healthy, written = filled(40)
    before = contents(directory)
    healthy.close()
    directory.edit(segments(directory)[index], lose)
    log = Log.open(directory, config=CONFIG)
    check_damaged(log, healthy, written)
    repair_all(log, written)
    check_mended(directory, log, healthy, written)
    assert contents(directory) == before


def test_rot_in_the_segment_before_a_missing_one_is_repaired_first() -> None:
    """1. Segment 2 is missing at the start.  2. The last batch of segment 1 rots, and the repair of segment 2 finds that: the
    header of a new segment 2 needs this batch.  3. Both ranges lead to the right chains, and are repaired, the older one first.
    """
    directory, healthy, written = filled(40)
    healthy.close()
    first, second, *_ = segments(directory)
    directory.remove(second)
    log = Log.open(directory, config=CONFIG)
    (missing,) = log.damage
    directory.flip_bit(first, len(contents(directory)[first]) - 1)
    with pytest.raises(CorruptLog) as found:
        log.repair(missing, within(missing, written))
    log.note_damage(found.value)
    check_damaged(log, healthy, written)
    rotten, same = log.damage
    assert (rotten.end, same) == (missing.start, missing)
    with pytest.raises(DamagedRangeRead) as refused:
        log.repair(missing, within(missing, written))
    assert refused.value.damaged == rotten
    repair_all(log, written)
    check_mended(directory, log, healthy, written)


def test_several_segments_at_once() -> None:
    """Damage in several segments, across the border of two, and over a whole file."""
    for victims in (
        [(0, 400), (1, 500), (2, 100)],
        [(0, 900), (1, 10), (1, 100)],
        [(1, 10), (1, 200), (1, 900), (2, 30)],
    ):
        directory, healthy, written = filled(40)
        before = contents(directory)
        for index, position in victims:
            directory.flip_bit(segments(directory)[index], position)
        log = Log.open(directory, config=CONFIG)
        assert log.damage
        check_damaged(log, healthy, written)
        repair_all(log, written)
        check_mended(directory, log, healthy, written)
        assert contents(directory) == before


def test_damage_in_the_active_segment_is_mended_under_a_flush() -> None:
    """A flush that began before the repair belongs to the replaced file: its ticket is void, and the next flush
    counts.
    """
    directory = MemoryDirectory()
    log = Log.open(directory)
    for i in range(6):
        log.append([Topic(f"topic-{i}", ID)], 1, i)
    log.flush()
    written = everything(log)
    directory.flip_bit(segments(directory)[0], SEGMENT_HEADER_BYTES + 90)
    log = Log.open(directory)
    written.append(log.append([Topic("new", ID)], 1, 10))
    ticket = log.begin_flush()
    repair_all(log, written)
    ticket.sync()
    assert not log.complete_flush(ticket)
    written.append(log.append([Topic("newer", ID)], 1, 11))
    log.flush()
    assert everything(Log.open(directory.crash(Random(1)))) == written


def test_below_the_log_s_start_nothing_is_missing() -> None:
    """Damage below the start does not matter. Of damage across the start, the part above is repaired."""
    for position, expected in ((SEGMENT_HEADER_BYTES + 90, 0), (10, 0), (700, 1)):
        directory, healthy, written = filled()
        start = OffsetAndEpoch(6, 1)
        healthy.drop_prefix(start)
        healthy.close()
        kept = [batch for batch in written if batch.base_offset >= 6]
        directory.flip_bit(segments(directory)[0], position)
        log = Log.open(directory, config=CONFIG)
        assert len(log.damage) == expected
        check_damaged(log, healthy, kept)
        repair_all(log, written)
        check_mended(directory, log, healthy, kept)


def test_damage_across_the_log_s_start() -> None:
    """The repaired file begins at the log's start, because this node has no records below."""
    for first, last in ((1, 3), (2, 4), (0, 5)):
        directory, healthy, written = filled()
        healthy.drop_prefix(OffsetAndEpoch(6, 1))
        healthy.close()
        kept = [batch for batch in written if batch.base_offset >= 6]
        name = segments(directory)[0]
        places = [SEGMENT_HEADER_BYTES + sum(len(batch.data) for batch in written[:i]) for i in range(8)]
        for index in (first, last):
            directory.flip_bit(name, places[index] + 85)
        log = Log.open(directory, config=CONFIG)
        (damaged,) = log.damage
        assert damaged.start == 6
        assert damaged.chain_before == written[2].chain
        check_damaged(log, healthy, kept)
        repair_all(log, written)
        check_mended(directory, log, healthy, kept)
        assert name not in segments(directory)


def test_what_does_not_fit_is_not_taken_for_the_repair() -> None:
    directory, _, written = filled()
    directory.flip_bit(segments(directory)[0], 300)
    rotten = contents(directory)
    log = Log.open(directory, config=CONFIG)
    (damaged,) = log.damage
    right = within(damaged, written)
    other = Log.open(MemoryDirectory(), start=OffsetAndEpoch(damaged.start, 1), chain=damaged.chain_before)
    forged = [other.append([Topic("forged", ID)] * batch.record_count, 1, 1) for batch in right]
    for wrong in ([], right[:-1], right[1:], [*right, written[-1]], forged):
        with pytest.raises(LogFormatError):
            log.repair(damaged, wrong)
        assert contents(directory) == rotten
    assert log.damage == (damaged,)


@pytest.mark.parametrize("victims", [[(0, 500)], [(0, 900), (1, 10), (1, 100)], [(1, 930), (2, 5)]])
def test_a_repair_survives_a_power_cut_at_any_step(victims: list[tuple[int, int]]) -> None:
    """Afterwards the log has the same damage, less, or none; a second repair completes the work."""
    for step in range(1, 60):
        directory, healthy, written = filled()
        before = contents(directory)
        for index, position in victims:
            directory.flip_bit(segments(directory)[index], position)
        log = Log.open(directory, config=CONFIG)
        directory.cut_power_after(step)
        try:
            repair_all(log, written)
        except PowerCut:
            directory = directory.crash(Random(step))
        else:
            break
        log = Log.open(directory, config=CONFIG)
        check_damaged(log, healthy, written)
        repair_all(log, written)
        check_mended(directory, log, healthy, written)
        assert contents(directory) == before
        assert not [name for name in directory.names() if name.endswith(".repair")]
    else:
        raise AssertionError("a repair takes more than sixty operations")
    assert step > 4


@pytest.mark.parametrize("victims", [[(0, 300)], [(0, 900), (1, 10)], [(0, 900), (1, 10), (2, 10)]])
def test_a_repair_that_has_no_room_changes_nothing(victims: list[tuple[int, int]]) -> None:
    """If the damage covers several files, none is replaced before there is room for all."""
    directory, healthy, written = filled()
    before = contents(directory)
    for index, position in victims:
        directory.flip_bit(segments(directory)[index], position)
    rotten = contents(directory)
    log = Log.open(directory, config=CONFIG)
    (damaged,) = log.damage
    used = directory.used_bytes
    failed = 0
    for room in range(0, 2200, 100):
        directory.limit_space(used + room)
        try:
            repair_all(log, written)
        except OSError:
            failed += 1
            assert contents(directory) == rotten
            assert log.damage == (damaged,)
            assert directory.used_bytes == used
    assert failed > 0
    directory.limit_space(None)
    repair_all(log, written)
    check_mended(directory, log, healthy, written)
    assert contents(directory) == before
