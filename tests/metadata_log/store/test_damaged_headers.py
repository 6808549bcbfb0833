"""Segments with a damaged or missing header: the records are intact, and the header is written again from its neighbours."""

from random import Random

import pytest

from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.store.damage import LostTail
from metadata_log.store.log import Log
from metadata_log.store.log_notes import FLUSHED_NAME
from metadata_log.store.segment import SEGMENT_HEADER_BYTES, base_offset_of, segment_name
from tests.metadata_log.store.damaged_log import (
    CONFIG,
    check_damaged,
    check_mended,
    contents,
    everything,
    filled,
    repair_all,
    segments,
)
from tests.sim.world.disk import PowerCut


def test_a_damaged_header_is_written_anew_from_what_stands_around_it() -> None:
    """No record is lost with a header, so no other node is asked."""
    directory, healthy, written = filled()
    before = contents(directory)
    for name in segments(directory):
        directory.edit(name, lambda data: data.__setitem__(slice(0, 72), bytes(72)))
        log = Log.open(directory, config=CONFIG)
        assert log.damage == ()
        check_damaged(log, healthy, written)
        assert contents(directory) == before


@pytest.mark.parametrize("note", ["of its base", "of an older segment", "none"])
def test_a_damaged_header_in_the_last_segment_is_no_torn_tail_whatever_the_note_says(note: str) -> None:
    """A power cut may bring back an older note. But the log writes a batch only after the segment's header is
    durable.
    """
    directory, healthy, written = filled()
    before = contents(directory)
    name = segments(directory)[-1]
    end = {"of its base": base_offset_of(name) or 0, "of an older segment": written[2].end_offset, "none": 0}[note]
    healthy._note.write(end, healthy.chain_at(end) or b"")
    healthy._note.flush()
    healthy.close()
    if note == "none":
        directory.remove(FLUSHED_NAME)
    directory.flip_bit(name, 20)
    log = Log.open(directory, config=CONFIG)
    assert contents(directory) == before
    check_mended(directory, log, healthy, written)


@pytest.mark.parametrize("start", [6, 10])
@pytest.mark.parametrize("note", [2, 6])
def test_a_damaged_header_of_a_file_that_begins_below_the_start_hides_nothing_of_the_log(start: int, note: int) -> None:
    """The only segment has a damaged header, and a power cut has brought back an older note. The log's start proves the
    batches.
    """
    directory, healthy, written = filled(6)
    (name,) = segments(directory)
    healthy.drop_prefix(OffsetAndEpoch(start, 1 if start == 6 else 2))
    healthy._note.write(note, next(batch.chain for batch in written if batch.end_offset == note))
    healthy._note.flush()
    healthy.close()
    directory.flip_bit(name, 20)
    kept = [batch for batch in written if batch.base_offset >= start]
    for _ in range(2):
        log = Log.open(directory, config=CONFIG)
        assert (log.damage, log.shape, everything(log)) == ((), healthy.shape, kept)
        log.close()


def test_a_damaged_header_in_the_last_segment_takes_no_batch_with_it_that_stands_before_more_damage() -> None:
    directory, healthy, written = filled()
    name = segments(directory)[-1]
    last = [batch for batch in written if batch.base_offset >= (base_offset_of(name) or 0)]
    assert len(last) > 2
    healthy.close()
    directory.flip_bit(name, 20)
    directory.flip_bit(name, SEGMENT_HEADER_BYTES + sum(len(batch.data) for batch in last) - 3)
    with pytest.raises(LostTail) as e:
        Log.open(directory, config=CONFIG)
    assert (e.value.lost_from, e.value.durable_end) == (last[-1].base_offset, last[-1].end_offset)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_damaged_header_and_more_damage_in_one_file_survive_a_power_cut_at_any_step(place: int) -> None:
    for step in range(1, 100):
        directory, healthy, written = filled()
        before = contents(directory)
        name = segments(directory)[1]
        first = [batch for batch in written if batch.base_offset >= (base_offset_of(name) or 0)][: place + 1]
        directory.flip_bit(name, 20)
        directory.flip_bit(name, SEGMENT_HEADER_BYTES + sum(len(batch.data) for batch in first) - 3)
        directory.cut_power_after(step)
        try:
            log = Log.open(directory, config=CONFIG)
            (damaged,) = log.damage
            assert damaged.start == first[-1].base_offset
            check_damaged(log, healthy, written)
            repair_all(log, written)
        except PowerCut:
            directory = directory.crash(Random(step))
            log = Log.open(directory, config=CONFIG)
            check_damaged(log, healthy, written)
            repair_all(log, written)
        else:
            directory.heal()
            step = 0
        assert contents(directory) == before
        check_mended(directory, log, healthy, written)
        if step == 0:
            break
    else:
        raise AssertionError("it takes more than a hundred operations")


@pytest.mark.parametrize("index", [-5, -4, -3])
def test_a_new_segment_that_got_no_header_hides_nothing_of_the_one_before(index: int) -> None:
    """A crash or a full disk has left the next file without a header. The batches in this file that lead to the note
    are proof.
    """
    directory, healthy, written = filled(19)
    name = segments(directory)[-1]
    last = [batch for batch in written if batch.base_offset >= (base_offset_of(name) or 0)]
    assert len(last) > -index - 1
    directory.open(segment_name(healthy.shape.end), create=True).close()
    position = SEGMENT_HEADER_BYTES + sum(len(batch.data) for batch in last[: len(last) + index])
    directory.flip_bit(name, position + 85)
    log = Log.open(directory, config=CONFIG)
    (damaged,) = log.damage
    assert damaged.start == last[index].base_offset
    check_damaged(log, healthy, written)
    repair_all(log, written)
    check_mended(directory, log, healthy, written)


def test_another_file_s_batches_under_a_damaged_header_are_not_believed() -> None:
    """1. The second file has the content of the first one, and a damaged header.
    2. The first file has lost its second batch, which the second file seems to have.
    3. No batch of the second file counts: all of them are below the file's name.
    """
    directory, healthy, written = filled()
    healthy.close()
    first, second = segments(directory)[:2]
    content = directory.read(first, 1 << 20)
    directory.edit(second, lambda data: data.__setitem__(slice(None), content))
    directory.flip_bit(second, 20)
    directory.flip_bit(first, SEGMENT_HEADER_BYTES + len(written[0].data) + 85)
    log = Log.open(directory, config=CONFIG)
    (damaged,) = log.damage
    assert (damaged.start, damaged.end) == (2, base_offset_of(segments(directory)[2]))
    check_damaged(log, healthy, written)
    repair_all(log, written)
    check_mended(directory, log, healthy, written)


def test_the_first_two_files_may_have_damaged_headers_and_the_log_starts_in_the_second() -> None:
    """The second file begins below the log's start, as the first one does, and is no foreign file."""
    directory, log, written = filled()
    second = base_offset_of(segments(directory)[1])
    inside = next(batch for batch in written if batch.base_offset > (second or 0))
    before = contents(directory)
    log.drop_prefix(OffsetAndEpoch(inside.base_offset, log.shape.epoch_below(inside.base_offset) or 0))
    healthy_shape = log.shape
    log.close()
    for name in list(before)[:1]:
        directory.open(name, create=True).write_at(0, before[name])
    for name in segments(directory)[:2]:
        directory.flip_bit(name, 20)
        directory.flip_bit(name, SEGMENT_HEADER_BYTES + 85)
    log = Log.open(directory, config=CONFIG)
    assert (log.shape.start, log.end) == (healthy_shape.start, healthy_shape.end)
    repair_all(log, written)
    assert everything(log) == [batch for batch in written if batch.base_offset >= inside.base_offset]


def test_a_file_under_another_file_s_name_is_refused_and_not_taken_for_a_damaged_header() -> None:
    """The header is lost, and the first batch continues the log, but the file's name says a lower offset. The open log met an
    assertion: a file begins with the offset in its name.
    """
    directory, healthy, written = filled()
    name = segments(directory)[-1]
    base = base_offset_of(name)
    assert base is not None
    healthy.drop_prefix(next(batch.end for batch in written if batch.end_offset == base))
    healthy.close()
    assert segments(directory) == [name]
    directory.rename(name, segment_name(base - 1))
    directory.flip_bit(segment_name(base - 1), 20)
    with pytest.raises(LostTail) as e:
        Log.open(directory, config=CONFIG)
    assert e.value.lost_from == base
