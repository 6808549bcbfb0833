"""Damage inside a log: recovery finds and names it and goes on behind it; a repair restores every byte; nothing is
cut.
"""

import contextlib
from random import Random

import pytest

from metadata_log.format.batch import genesis_chain
from metadata_log.format.errors import CorruptLog, LogFormatError
from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.format.records import SnapshotMark, Topic
from metadata_log.store.damage import DamagedRangeRead, LostTail
from metadata_log.store.log import Log, LogConfig
from metadata_log.store.log_notes import FLUSHED_NAME, Flushed
from metadata_log.store.segment import SEGMENT_HEADER_BYTES, base_offset_of, segment_name
from tests.metadata_log.damaged_log import (
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
    within,
)
from tests.sim.disk import MemoryDirectory, PowerCut

# --- found at the opening ------------------------------------------------------------------------------------------


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
    ends = {piece.name: piece.end_position for piece in healthy._segments.pieces}
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
    first, second = log._segments.pieces[:2]
    batch = written[1]
    directory.flip_bit(first.name, SEGMENT_HEADER_BYTES + len(written[0].data) + 90)
    again = Log.open(directory, config=CONFIG)

    (damaged,) = again.damage
    # the batch behind is intact, but only the batch itself says so: it counts as damaged
    assert (damaged.start, damaged.end) == (batch.base_offset, written[2].end_offset)
    assert (damaged.chain_before, damaged.chain_after) == (written[0].chain, written[2].chain)
    assert (damaged.file, damaged.position) == (first.name, SEGMENT_HEADER_BYTES + len(written[0].data))
    sizes = [len(each.data) for each in written[:3]]
    assert (damaged.end_file, damaged.end_position) == (first.name, SEGMENT_HEADER_BYTES + sum(sizes))
    assert second.name not in str(damaged)


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


def test_a_truncation_into_the_damage_is_a_loss_that_is_said() -> None:
    """The leader's log differs from this log from a damaged record on. The damaged records before may be committed, so
    a node that goes on without them has lost acknowledged records, and must say so.
    """
    directory, healthy, written = filled()
    directory.flip_bit(segments(directory)[0], SEGMENT_HEADER_BYTES + len(written[0].data) + 90)
    log = Log.open(directory, config=CONFIG)
    damaged = log.damage[0]
    with pytest.raises(LostTail) as e:
        log.truncate(damaged.start + 2)
    assert (e.value.lost_from, e.value.durable_end) == (damaged.start, healthy.shape.end)
    with pytest.raises(LostTail):
        Log.open(directory, config=CONFIG)
    log = Log.open(directory, config=CONFIG, accept_loss=True)
    assert (log.lost, log.damage) == (Flushed(healthy.shape.end, healthy.shape.chain), ())
    assert everything(log) == written[:1]


def test_a_truncation_into_the_damage_that_finds_the_disk_full_has_lost_nothing() -> None:
    directory, healthy, written = filled()
    directory.flip_bit(segments(directory)[0], SEGMENT_HEADER_BYTES + len(written[0].data) + 90)
    log = Log.open(directory, config=CONFIG)
    directory.limit_space(directory.used_bytes)
    with pytest.raises(OSError, match="No space left"):
        log.truncate(log.damage[0].start + 2)
    assert log.lost is None
    check_damaged(log, healthy, written)
    check_damaged(Log.open(directory, config=CONFIG), healthy, written)


def test_a_loss_of_all_records_survives_a_power_cut_at_any_step() -> None:
    """Including a power cut between the note that nothing is durable any more and the end of recovery."""
    for step in range(1, 40):
        directory, healthy, _ = filled(3)
        healthy.close()
        (name,) = segments(directory)
        directory.edit(name, lambda content: content.__delitem__(slice(SEGMENT_HEADER_BYTES, None)))
        directory.cut_power_after(step)
        try:
            Log.open(directory, config=CONFIG, accept_loss=True)
        except PowerCut:
            directory = directory.crash(Random(step))
        else:
            break
        log = Log.open(directory, config=CONFIG, accept_loss=True)
        assert (log.lost, log.end, log.shape.chain) == (Flushed(6, healthy.shape.chain), 0, genesis_chain("", b""))
    assert step > 5


def test_a_lost_end_that_reaches_below_the_log_s_start_leaves_an_empty_log_there() -> None:
    """The start may be inside the last segment. The rest of that segment is below the start, and nothing can be
    appended to it.
    """
    config = LogConfig(segment_bytes=1 << 20)
    for cut_to in (SEGMENT_HEADER_BYTES, SEGMENT_HEADER_BYTES + 400):
        directory, healthy, written = filled(config=config)
        start = OffsetAndEpoch(38, 5)
        healthy.drop_prefix(start)
        healthy.close()
        (name,) = segments(directory)
        directory.edit(name, lambda content, size=cut_to: content.__delitem__(slice(size, None)))  # type: ignore[misc]

        for _ in range(2):
            log = Log.open(directory, config=config, accept_loss=True)
            assert (log.shape.start, log.end, log.lost) == (start, 38, Flushed(40, healthy.shape.chain))
        assert log.shape.chain == written[-2].chain
        log.append_batches(written[-1:])
        log.flush()
        assert everything(log) == written[-1:]
        log.forget_loss()
        log.close()
        assert everything(Log.open(directory, config=config)) == written[-1:]


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


# --- crashes and a full disk ---------------------------------------------------------------------------------------


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


# --- the end is lost -----------------------------------------------------------------------------------------------


def damage_the_end(directory: MemoryDirectory, log: Log) -> None:
    directory.flip_bit(segments(directory)[-1], log._segments.active.end_position - 3)


def test_a_lost_end_is_refused_unless_it_is_accepted() -> None:
    """A node never goes on by mistake with a log that lacks acknowledged records. A node that does is told so at every
    start.
    """
    directory, healthy, written = filled()
    damage_the_end(directory, healthy)
    rotten = contents(directory)
    for _ in range(2):
        with pytest.raises(LostTail, match="all below 40 had been durable") as e:
            Log.open(directory, config=CONFIG)
        assert (e.value.lost_from, e.value.durable_end, e.value.durable_chain) == (38, 40, healthy.shape.chain)
        assert contents(directory) == rotten

    log = Log.open(directory, config=CONFIG, accept_loss=True)
    assert log.lost == Flushed(40, healthy.shape.chain)
    assert everything(log) == written[:-1]
    name = segments(directory)[-1]
    assert directory.read(f"{name}.damaged", 1 << 22) == rotten[name], "the evidence is kept"
    another = log.append([Topic("another", ID)], 9, 9000)
    log.flush()
    with pytest.raises(LostTail):
        Log.open(directory, config=CONFIG)
    log = Log.open(directory, config=CONFIG, accept_loss=True)
    assert (log.lost, everything(log)) == (Flushed(40, healthy.shape.chain), [*written[:-1], another])
    log.forget_loss()
    assert log.lost is None
    assert Log.open(directory, config=CONFIG).lost is None


@pytest.mark.parametrize("what", ["last segment", "all segments", "all but the note"])
def test_files_that_are_gone_are_a_lost_end(what: str) -> None:
    """Emptying a directory does not make this node a new one."""
    directory, healthy, written = filled()
    healthy.close()
    gone = segments(directory)[-1:] if what == "last segment" else segments(directory)
    if what == "all but the note":
        gone = [name for name in directory.names() if name != FLUSHED_NAME]
    for name in gone:
        directory.remove(name)
    with pytest.raises(LostTail):
        Log.open(directory, config=CONFIG)
    log = Log.open(directory, config=CONFIG, accept_loss=True)
    found = everything(log)
    assert log.lost == Flushed(40, healthy.shape.chain)
    assert found == written[: len(found)]


def test_what_is_damaged_below_the_start_leaves_an_empty_log() -> None:
    """1. The log starts in the middle of its only segment.
    2. That segment is damaged before the start, and nothing behind the damage is proven.
    3. Opened without its end, the log is empty at its start, and the next batch is appended there. (Found by the
       fuzzer.)
    """
    directory = MemoryDirectory()
    log = Log.open(directory)
    for i in range(4):
        log.append([Topic(f"topic-{i}", ID)], 1, i)
    log.flush()
    log.note_snapshot(OffsetAndEpoch(2, 1))
    log.drop_prefix(OffsetAndEpoch(2, 1))
    log.close()
    for position in range(SEGMENT_HEADER_BYTES, 700):
        directory.edit(segments(directory)[0], lambda content, at=position: content.__setitem__(at, 255))  # type: ignore[misc]
    log = Log.open(directory, accept_loss=True)
    assert (log.shape.start.offset, log.end) == (2, 2)
    batch = log.append([Topic("another", ID)], 2, 9)
    log.flush()
    log.close()
    assert everything(Log.open(directory, accept_loss=True)) == [batch]


def test_an_accepted_loss_survives_a_power_cut_at_any_step() -> None:
    """A loss is never noted by half: a start without permission is refused, and a start with permission knows the lost
    end.
    """
    for step in range(1, 40):
        directory, healthy, written = filled()
        damage_the_end(directory, healthy)
        directory.cut_power_after(step)
        try:
            Log.open(directory, config=CONFIG, accept_loss=True)
        except PowerCut:
            directory = directory.crash(Random(step))
        else:
            break
        with pytest.raises(LostTail):
            Log.open(directory, config=CONFIG)
        log = Log.open(directory, config=CONFIG, accept_loss=True)
        assert log.lost == Flushed(40, healthy.shape.chain)
        assert everything(log) == written[:-1]
    assert step > 5


def test_damage_inside_and_a_lost_end_together() -> None:
    directory, healthy, written = filled()
    directory.flip_bit(segments(directory)[0], 300)
    damage_the_end(directory, healthy)
    log = Log.open(directory, config=CONFIG, accept_loss=True)
    assert (len(log.damage), log.lost) == (1, Flushed(40, healthy.shape.chain))
    repair_all(log, written)
    assert everything(log) == written[:-1]


@pytest.mark.slow
def test_any_mutation_is_an_answer_that_is_true() -> None:
    """For any content of the files: every batch that can be read was written, and a loss of durable records is
    reported.
    """
    rng = Random(5)
    for _ in range(150):
        directory, healthy, written = filled(rng.randint(3, 25))
        healthy.close()
        for _ in range(rng.randint(1, 3)):
            name = rng.choice(segments(directory))
            directory.edit(name, lambda data: mutate(rng, data))
        try:
            log = Log.open(directory, config=CONFIG)
        except LogFormatError:
            with contextlib.suppress(LogFormatError):
                log = Log.open(directory, config=CONFIG, accept_loss=True)
                assert log.lost == Flushed(healthy.shape.end, healthy.shape.chain)
                repair_all(log, written)
                found = everything(log)
                assert found == written[: len(found)]
            continue
        check_damaged(log, healthy, written)
        repair_all(log, written)
        check_mended(directory, log, healthy, written)


def mutate(rng: Random, data: bytearray) -> None:
    place, length = rng.randrange(len(data) or 1), rng.randint(1, 100)
    kind = rng.randrange(4)
    if kind == 0:
        del data[place:]
    elif kind == 1:
        del data[place : place + length]
    elif kind == 2:
        data[place:place] = rng.randbytes(length)
    else:
        data[place : place + length] = rng.choice([bytes(length), rng.randbytes(length)])
