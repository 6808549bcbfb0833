"""Sectors that a disk cannot read: only the batches in a bad sector are damaged, and everything around them stays
usable.
"""

import contextlib
import errno
import random
from collections.abc import Callable
from functools import partial

import pytest

from metadata_log.format.batch import Batch
from metadata_log.format.errors import CorruptLog
from metadata_log.format.records import Topic
from metadata_log.store.damage import DamagedRange, LostTail
from metadata_log.store.log import Log, LogConfig
from metadata_log.store.log_notes import Flushed
from metadata_log.store.segment import base_offset_of
from metadata_log.store.segments import Extent, check
from tests.metadata_log.store.damaged_log import ID, check_damaged, contents, everything, segments, within
from tests.sim.disk import MemoryDirectory, MemoryFile, Observer
from tests.sim.disk_content import SECTOR_BYTES

CONFIG = LogConfig(segment_bytes=100_000, tail_bytes=4000)
"""Small segments: several index entries in each, and the newest batch or two in memory."""


def filled(batches: int = 90) -> tuple[MemoryDirectory, Log, list[Batch]]:
    """Make two sealed segments and an active one, all durable. Each batch covers several sectors."""
    directory = MemoryDirectory()
    log = Log.open(directory, config=CONFIG)
    for i in range(batches):
        log.append([Topic(chr(97 + i % 26) * 1400, ID)] * 2, 1 + i // 30, 1000 + i)
    log.flush()
    log._note.flush()
    return directory, log, everything(log)


def seen(directory: MemoryDirectory) -> dict[str, bytes]:
    """Return the bytes of the segments, whether the disk can read them or not."""
    with Observer():
        return contents(directory)


def places(log: Log) -> list[tuple[str, int]]:
    """Return positions in each segment: header and first batch, the middle (and the end of a scrub's window), and the
    last batch.
    """
    found = []
    for piece in log._segments.pieces:
        middle = piece.end_position // 2
        found += [(piece.name, at) for at in (0, SECTOR_BYTES, middle, middle + 7000, piece.end_position - 1)]
    return found


def scrub(directory: MemoryDirectory, log: Log) -> None:
    extents: list[Extent] = list(log.extents())
    while extents:
        rest = check(directory, extents.pop(0), 30_000)
        extents += [] if rest is None else [rest]


def read(log: Log) -> None:
    everything(log)


def search(log: Log, written: list[Batch]) -> None:
    for batch in written:
        log.chain_at(batch.end_offset)


def note(log: Log, find: Callable[[], object]) -> list[DamagedRange]:
    """Note all damage that `find` meets."""
    noted = []
    for _ in range(10):
        try:
            find()
        except CorruptLog as e:
            before = log.damage
            noted.append(log.note_damage(e))
            if log.damage == before:
                return noted
        else:
            return noted
    raise AssertionError(f"damage without end: {log.damage}")


def repair_all(log: Log, written: list[Batch]) -> None:
    """Repair as a node does: damage that a repair meets is noted and repaired, too."""
    for _ in range(10):
        if not log.damage:
            return
        damaged = log.damage[0]
        try:
            log.repair(damaged, within(damaged, written))
        except CorruptLog as e:
            log.note_damage(e)
    raise AssertionError(f"damage without end: {log.damage}")


def covers(damaged: DamagedRange, name: str, position: int) -> bool:
    """Check that the damaged range includes the sector at `position`, and is no larger than the index makes it."""
    sector = position // SECTOR_BYTES * SECTOR_BYTES
    begins = damaged.position if damaged.file == name else 0
    ends = damaged.end_position if damaged.end_file == name else 1 << 30
    return begins < sector + SECTOR_BYTES and sector < ends


# --- found while the log is open -----------------------------------------------------------------------------------


@pytest.mark.parametrize("found_by", ["scrub", "read", "search"])
@pytest.mark.parametrize("place", range(15))
def test_a_bad_sector_that_is_found_in_an_open_log_is_mended(place: int, found_by: str) -> None:
    directory, log, written = filled()
    before = seen(directory)
    name, position = places(log)[place]
    directory.break_sector(name, position)
    finders = {
        "scrub": lambda: scrub(directory, log),
        "read": lambda: read(log),
        "search": lambda: search(log, written),
    }
    noted = note(log, finders[found_by])
    if not noted:
        unseen_by_scrub = found_by == "scrub" and name == segments(directory)[-1]
        assert unseen_by_scrub or (found_by == "search" and place % 5 == 4), "a search reads only what it must"
        noted = note(log, lambda: read(log))
    assert all(covers(each, name, position) for each in noted)
    assert 0 < sum(each.end - each.start for each in log.damage) <= 24, "two entries of the index at most"
    if log.damage[-1].end <= log._memory.tail.start_offset:  # memory has the batches that the disk cannot read
        check_damaged(log, log, written)
    repair_all(log, written)
    assert seen(directory) == before
    assert everything(log) == written
    log.close()
    directory.heal()
    assert everything(Log.open(directory, config=CONFIG)) == written


def test_a_bad_sector_is_damage_where_it_is() -> None:
    """A scrub reads ahead. A bad sector ahead does not damage the batch that the scrub is checking."""
    directory, log, written = filled()
    piece = log._segments.pieces[0]
    directory.break_sector(piece.name, 60_000)
    with pytest.raises(CorruptLog) as e:
        scrub(directory, log)
    assert e.value.position is not None
    assert 60_000 - len(written[0].data) - SECTOR_BYTES < e.value.position < 60_000 + SECTOR_BYTES
    assert log.read(0, 1) == (written[0],)


def test_a_repair_that_comes_upon_a_bad_sector_elsewhere_in_the_file_has_changed_nothing() -> None:
    """The repair names the bad sector, and both places are repaired. A place already known to be damaged does not stop
    a repair.
    """
    directory, log, written = filled()
    before = seen(directory)
    piece = log._segments.pieces[1]
    near, far = piece.first_position + 20_000, piece.end_position - 100
    for unseen in (piece.first_position + 100, piece.first_position + 60_000, far):
        directory.break_sector(piece.name, near)
        damaged = note(log, lambda: log.read(written[40].base_offset, 1 << 14))[0]
        directory.break_sector(piece.name, unseen)
        with pytest.raises(CorruptLog) as e:
            log.repair(damaged, within(damaged, written))
        assert (log.damage, seen(directory)) == ((damaged,), before)
        assert not any(name.endswith(".repair") for name in directory.names())
        second = log.note_damage(e.value)
        assert covers(second, piece.name, unseen)
        repair_all(log, written)
        assert seen(directory) == before
        assert everything(log) == written


def test_what_is_known_to_be_unreadable_does_not_keep_the_rest_of_its_file_from_being_mended() -> None:
    """A file has two damaged ranges, the first one with the file's header. The second range can be repaired first."""
    directory, log, written = filled()
    before = seen(directory)
    piece = log._segments.pieces[1]
    for position in (0, piece.end_position // 2):
        directory.break_sector(piece.name, position)
    first, second = note(log, lambda: scrub(directory, log))
    log.repair(second, within(second, written))
    assert log.damage == (first,)
    log.close()
    log = Log.open(directory, config=CONFIG)
    assert log.damage[0].start == first.start
    repair_all(log, written)
    assert seen(directory) == before
    assert everything(log) == written


# --- found at the opening ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", range(15))
def test_a_bad_sector_that_is_found_at_the_opening_is_mended(place: int) -> None:
    """Except in the last batch: no intact batch follows, so the end of the log is lost, as with wrong bytes."""
    directory, healthy, written = filled()
    healthy.close()
    before = seen(directory)
    name, position = places(healthy)[place]
    directory.break_sector(name, position)
    if place == 14:
        with pytest.raises(LostTail) as e:
            Log.open(directory, config=CONFIG)
        assert (e.value.lost_from, e.value.durable_end) == (written[-1].base_offset, healthy.end)
        assert seen(directory) == before
        log = Log.open(directory, config=CONFIG, accept_loss=True)
        log.append_batches(written[-1:])
        log.forget_loss()
    else:
        log = Log.open(directory, config=CONFIG)
        (damaged,) = log.damage
        assert covers(damaged, name, position)
        assert damaged.end - damaged.start <= 6, "what stands in the sector, and the batch behind"
        check_damaged(log, healthy, written)
        repair_all(log, written)
    assert everything(log) == written
    log.flush()
    log.close()
    again = Log.open(directory, config=CONFIG)
    assert (again.damage, again.shape) == ((), healthy.shape)
    assert {each: data.rstrip(b"\0") for each, data in contents(directory).items()} == {
        each: data.rstrip(b"\0") for each, data in before.items()
    }


def test_a_bad_sector_behind_the_end_of_the_log_is_no_loss() -> None:
    directory, healthy, _ = filled()
    healthy.close()
    active = healthy._segments.active
    for position in (active.end_position + SECTOR_BYTES, active.end_position + 20_000, directory.size(active.name) - 1):
        directory.break_sector(active.name, position)
        log = Log.open(directory, config=CONFIG)
        assert (log.damage, log.shape) == ((), healthy.shape)
        assert log.append([Topic("more", ID)], 9, 9000).base_offset == healthy.end
        log.truncate(healthy.end)
        log.close()
        directory.edit(active.name, lambda data: data.extend(bytes(40_000)))


@pytest.mark.parametrize("has_note", [True, False])
def test_what_cannot_be_read_above_the_note_is_not_cut_while_intact_batches_stand_behind_it(has_note: bool) -> None:
    """A power cut may bring back an older note, but a torn sector can be read. So an unreadable one may have been
    durable.
    """
    directory, log, written = filled()
    active = log._segments.active
    note_written = Flushed(active.base_offset, active.header.previous_chain)
    log._note.write(*note_written)
    log.close()
    if not has_note:
        directory.remove("flushed")
    before = seen(directory)
    directory.break_sector(active.name, 20_000)
    with pytest.raises(LostTail) as e:
        Log.open(directory, config=CONFIG)
    assert (e.value.durable_end, e.value.durable_chain) == (written[-1].end_offset, written[-1].chain)
    assert seen(directory) == before


def test_a_read_of_a_segment_that_fails_once_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever read of an opening fails once: nothing is damaged, and nothing is lost."""
    directory, healthy, written = filled()
    healthy.close()
    reads: list[int] = []
    read_at = MemoryFile.read_at

    def failing(file: MemoryFile, position: int, length: int) -> bytes:
        if base_offset_of(file._name) is not None:
            reads.append(position)
            if len(reads) == nth:
                raise OSError(errno.EIO, "once")
        return read_at(file, position, length)

    monkeypatch.setattr(MemoryFile, "read_at", failing)
    for nth in range(1, 100):
        reads.clear()
        log = Log.open(directory, config=CONFIG)
        assert (log.damage, log.shape) == ((), healthy.shape)
        if len(reads) < nth:
            break
        log.close()
    assert 10 < nth < 99
    assert everything(log) == written


# --- not for ever --------------------------------------------------------------------------------------------------


def test_a_sector_that_gives_its_data_again_is_read_again() -> None:
    directory, log, written = filled()
    before = seen(directory)
    name, position = places(log)[7]
    directory.break_sector(name, position)
    note(log, lambda: read(log))
    for opened in (log, Log.open(directory, config=CONFIG)):
        directory.break_sector(name, position)
        (damaged,) = opened.damage
        assert opened.read_again(damaged) == []
        directory.heal()
        opened.repair(damaged, opened.read_again(damaged))
        assert opened.damage == ()
        assert seen(directory) == before
        assert everything(opened) == written
        opened.close()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EACCES])
def test_what_is_no_bad_sector_comes_out_as_it_is(number: int) -> None:
    directory, log, _ = filled()
    log.close()

    class Refusing(MemoryDirectory):
        def open(self, name: str, *, create: bool = False) -> MemoryFile:
            if base_offset_of(name) is not None:
                raise OSError(number, "refused")
            return super().open(name, create=create)

    refusing = Refusing(directory.path_text, directory._volume)
    refusing._entries = directory._entries
    with pytest.raises(OSError, match="refused") as e:
        Log.open(refusing, config=CONFIG)
    assert e.value.errno == number


# --- truncations, and a log's start --------------------------------------------------------------------------------


def test_a_truncation_to_an_entry_of_the_index_looks_at_what_stands_below_it_before_anything_changes() -> None:
    """The index knows the position without a read. But the time of the last remaining batch has to be read from the
    file.
    """
    for can_be_read_again in (True, False):
        directory, log, written = filled()
        piece = log._segments.pieces[1]
        end = piece._index[2].base_offset
        healthy = filled()[1]
        healthy.truncate(end)
        bad = piece._index[2].position - 100
        if can_be_read_again:
            directory.flip_bit(piece.name, bad, 3)
            with pytest.raises(CorruptLog):
                piece.last_batch_below(end)
            directory.flip_bit(piece.name, bad, 3)
        directory.break_sector(piece.name, bad)
        log.truncate(end)
        (damaged,) = log.damage
        assert covers(damaged, piece.name, bad)
        assert damaged.end == end
        check = log.shape
        check.check_invariants()
        assert (check.end, check.chain, check.flushed_end, check.epochs) == (
            end,
            healthy.shape.chain,
            end,
            healthy.shape.epochs,
        )
        repair_all(log, written)
        again = log.append([Topic("again", ID)], 9, 9000)
        assert everything(log) == [*[batch for batch in written if batch.end_offset <= end], again]


@pytest.mark.parametrize("place", range(15))
def test_a_truncation_that_comes_upon_a_bad_sector_is_done_or_has_lost_the_end(place: int) -> None:
    """A truncation is never half done, and raises no other errors."""
    for nth in (20, 34, 35, 36, 60, 88, 89):
        directory, log, written = filled()
        name, position = places(log)[place]
        directory.break_sector(name, position)
        end, durable = written[nth].base_offset, log.end
        try:
            log.truncate(end)
        except LostTail as e:
            assert (e.durable_end, log.lost) == (durable, Flushed(durable, written[-1].chain))
            end = e.lost_from
            assert 0 <= written[nth].base_offset - end <= 24
        kept = [batch for batch in written if batch.end_offset <= end]
        shape = log.shape
        shape.check_invariants()
        assert (shape.end, shape.flushed_end, shape.chain) == (
            end,
            end,
            kept[-1].chain if kept else log._memory.start.chain,
        )
        note(log, partial(read, log))
        repair_all(log, written)
        assert everything(log) == kept


def test_what_is_bad_below_the_log_s_start_does_not_keep_the_rest_from_being_read_again() -> None:
    """The log starts behind the bad batch, between two index entries. Every batch of the noted range above the start is
    intact.
    """
    for is_rot in (True, False):
        directory, log, written = filled()
        entry = log._segments.pieces[1]._index[1]
        first = next(i for i, batch in enumerate(written) if batch.base_offset == entry.base_offset)
        log.drop_prefix(written[first + 1].end)
        name, bad = log._segments.pieces[0].name, entry.position + 100
        directory.flip_bit(name, bad) if is_rot else directory.break_sector(name, bad)
        with pytest.raises(CorruptLog) as e:
            log.chain_at(written[first + 2].end_offset)
        log.note_damage(e.value)
        (damaged,) = log.damage
        assert damaged.start == log.shape.start.offset
        log.repair(damaged, log.read_again(damaged))
        assert log.damage == ()
        assert everything(log) == written[first + 2 :]


def test_what_memory_holds_of_damage_is_not_asked_of_the_disk() -> None:
    """The disk has the first batches of the range; memory has the rest, with the bad sector."""
    directory, log, written = filled()
    before = seen(directory)
    active = log._segments.active
    directory.break_sector(active.name, active.end_position - 100)
    (damaged,) = note(log, lambda: log._segments.active.last_batch_below(log.end))
    assert damaged.start < log._memory.tail.start_offset < damaged.end
    assert log.read_again(damaged) == within(damaged, written)
    log.truncate(written[-1].base_offset)
    assert log.lost is None
    log.append_batches(written[-1:])
    assert everything(log) == written
    assert len(seen(directory)) == len(before)


@pytest.mark.parametrize("found_by", ["read", "opening"])
def test_a_truncation_to_where_two_damaged_ranges_meet_keeps_what_is_below(found_by: str) -> None:
    """The end of one file and the beginning of the next are lost. The next file's header is intact and has the chain in
    between.
    """
    for behind in (0, 2):
        directory, log, written = filled()
        first, second = log._segments.pieces[:2]
        between = second.base_offset
        directory.break_sector(first.name, first.end_position - 100)
        directory.break_sector(second.name, SECTOR_BYTES + 100)
        if found_by == "read":
            note(log, partial(log.chain_at, between + 4))
            note(log, partial(log.read, between - 2, 1))
        else:
            log.close()
            log = Log.open(directory, config=CONFIG)
        below, above = log.damage
        assert below.end == above.start == between
        if behind:
            with pytest.raises(LostTail) as e:
                log.truncate(between + behind)
            assert e.value.lost_from == between
        else:
            log.truncate(between)
        assert (log.end, log.damage) == (between, (below,))
        repair_all(log, written)
        again = log.append([Topic("again", ID)], 9, 9000)
        assert everything(log) == [*[batch for batch in written if batch.end_offset <= between], again]


@pytest.mark.parametrize("nth", [20, 35, 60, 88, 89])
def test_a_truncation_reads_nothing_once_it_has_changed_something(nth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever read fails, and however often: the log is unchanged, or it is truncated."""
    read_at, truncate = MemoryFile.read_at, MemoryFile.truncate
    _, log, written = filled()
    has_cut: list[bool] = []

    def read(file: MemoryFile, position: int, length: int) -> bytes:
        if has_cut:
            raise OSError(errno.EIO, "too late")
        return read_at(file, position, length)

    def cut(file: MemoryFile, size: int) -> None:
        has_cut.append(True)
        truncate(file, size)

    with monkeypatch.context() as patched:
        patched.setattr(MemoryFile, "read_at", read)
        patched.setattr(MemoryFile, "truncate", cut)
        patched.setattr(log._note, "flush", lambda: has_cut.append(True))
        log.truncate(written[nth].base_offset)
    assert has_cut
    assert everything(log) == written[:nth]
    assert log.last_timestamp_ms == written[nth - 1].last_timestamp_ms


@pytest.mark.parametrize("probability", [0.02, 0.1, 0.4])
def test_a_disk_that_fails_now_and_then_at_the_opening_costs_nothing(
    probability: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either the log opens, and noted damage is read again; or the log does not open, and nothing was cut."""
    read_at, fails = MemoryFile.read_at, False

    def failing(file: MemoryFile, position: int, length: int) -> bytes:
        if fails and base_offset_of(file._name) is not None and dice.random() < probability:
            raise OSError(errno.EIO, "now and then")
        return read_at(file, position, length)

    monkeypatch.setattr(MemoryFile, "read_at", failing)
    for seed in range(60):
        dice = random.Random(seed)
        directory, log, written = filled(50)
        log.drop_prefix(written[2].end)
        shape = log.shape
        log.close()
        fails = True
        for _ in range(3):
            with contextlib.suppress(CorruptLog, OSError):
                log = Log.open(directory, config=CONFIG)
                log.close()
        fails = False
        log = Log.open(directory, config=CONFIG)
        for damaged in log.damage:
            log.repair(damaged, log.read_again(damaged))
        assert everything(log) == written[3:], seed
        assert (log.damage, log.shape) == ((), shape)


def test_what_a_disk_may_still_give_is_not_overwritten_by_what_it_gives_now() -> None:
    """A file has two damaged ranges, and no other node has the records. A repair of one range would write the file
    again, with zeros for the other range, which the disk may still be able to read later.
    """
    for gives_first in (0, 1):
        directory, log, written = filled()
        before = seen(directory)
        piece = log._segments.pieces[1]
        places = (piece.first_position + 20_000, piece.first_position + 60_000)
        for position in places:
            directory.break_sector(piece.name, position)
        note(log, partial(scrub, directory, log))
        assert len(log.damage) == 2
        directory.heal()
        directory.break_sector(piece.name, places[1 - gives_first])
        assert [log.read_again(each) for each in log.damage] == [[], []]
        directory.heal()
        for damaged in (log.damage[0], log.damage[1]):
            log.repair(log.damage[0], log.read_again(log.damage[0]))
            assert damaged not in log.damage
        assert seen(directory) == before
        assert everything(log) == written


def test_a_header_that_is_put_right_at_the_opening_costs_nothing_that_the_disk_may_still_give() -> None:
    directory, log, written = filled()
    piece, before = log._segments.pieces[1], seen(directory)
    log.close()
    directory.flip_bit(piece.name, 20)
    directory.break_sector(piece.name, 60_000)
    log = Log.open(directory, config=CONFIG)
    (damaged,) = log.damage
    directory.heal()
    log.repair(damaged, log.read_again(damaged))
    assert everything(log) == written
    log.close()
    assert everything(Log.open(directory, config=CONFIG)) == written
    assert seen(directory)[piece.name] == before[piece.name]
