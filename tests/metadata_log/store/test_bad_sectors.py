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
from metadata_log.store.damage import DamagedRange, DamagedRangeRead, LostTail
from metadata_log.store.log import Log
from metadata_log.store.log_config import LogConfig
from metadata_log.store.log_notes import Flushed
from metadata_log.store.segment import SEGMENT_HEADER_BYTES, base_offset_of
from metadata_log.store.segments import Extent, check
from tests.metadata_log.store.damaged_log import ID, check_damaged, contents, everything, noted, segments, within
from tests.sim.world.disk import MemoryDirectory, MemoryFile, Observer
from tests.sim.world.disk_content import SECTOR_BYTES

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
    for piece in log._segments.files:
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
    found: list[DamagedRange] = []
    for _ in range(10):
        try:
            find()
        except CorruptLog as e:
            if isinstance(e, DamagedRangeRead):
                return found
            found.append(noted(log, e))
        else:
            return found
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
    return damaged.file <= name and begins < sector + SECTOR_BYTES


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
    found = note(log, finders[found_by])
    if not found:
        unseen_by_scrub = found_by == "scrub" and name == segments(directory)[-1]
        assert unseen_by_scrub or (found_by == "search" and place % 5 == 4), "a search reads only what it must"
        found = note(log, lambda: read(log))
    assert all(covers(each, name, position) for each in found)
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
    piece = log._segments.files[0]
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
    piece = log._segments.files[1]
    near, far = SEGMENT_HEADER_BYTES + 20_000, piece.end_position - 100
    for unseen in (SEGMENT_HEADER_BYTES + 100, SEGMENT_HEADER_BYTES + 60_000, far):
        directory.break_sector(piece.name, near)
        damaged = note(log, lambda: log.read(written[40].base_offset, 1 << 14))[0]
        directory.break_sector(piece.name, unseen)
        with pytest.raises(CorruptLog) as e:
            log.repair(damaged, within(damaged, written))
        assert (log.damage, seen(directory)) == ((damaged,), before)
        assert not any(name.endswith(".repair") for name in directory.names())
        second = noted(log, e.value)
        assert covers(second, piece.name, unseen)
        repair_all(log, written)
        assert seen(directory) == before
        assert everything(log) == written


# --- found at the opening ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", range(15))
def test_a_bad_sector_that_is_found_at_the_opening_is_mended(place: int) -> None:
    """Except in the last batch: no intact batch follows, and bytes that cannot be read are not cut. The start fails."""
    directory, healthy, written = filled()
    healthy.close()
    before = seen(directory)
    name, position = places(healthy)[place]
    directory.break_sector(name, position)
    if place == 14:
        with pytest.raises(OSError, match="Nothing was cut"):
            Log.open(directory, config=CONFIG, accept_loss=True)
        assert (seen(directory), directory.exists("lost")) == (before, False)
        directory.heal()
        log = Log.open(directory, config=CONFIG)
        assert log.damage == ()
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


@pytest.mark.parametrize("note", ["of the end", "older", "none"])
@pytest.mark.parametrize("behind", ["an intact batch", "nothing", "zeros"])
def test_bytes_that_cannot_be_read_are_never_cut(note: str, behind: str) -> None:
    """1. The log is durable up to its end. A power cut brings back an older note, or none.
    2. The disk cannot read a sector above that note: in the last batches, or in the zeros behind them.
    3. The start fails, whoever accepts a loss. The next start that can read the sector has the whole log.
    """
    directory, healthy, written = filled()
    active = healthy._segments.active
    if note == "older":
        assert active.header is not None
        healthy._note.write(active.base_offset, active.header.previous_chain)
    healthy.close()
    if note == "none":
        directory.remove("flushed")
    before = seen(directory)
    position = {"an intact batch": 20_000, "nothing": active.end_position - 100, "zeros": active.end_position + 1000}
    directory.break_sector(active.name, position[behind])
    if (note, behind) == ("of the end", "an intact batch"):
        assert len(Log.open(directory, config=CONFIG).damage) == 1, "this is damage inside the log"
    else:
        for _ in range(2):
            with pytest.raises(OSError, match="Nothing was cut"):
                Log.open(directory, config=CONFIG, accept_loss=True)
            assert (seen(directory), directory.exists("lost")) == (before, False)
    directory.heal()
    log = Log.open(directory, config=CONFIG)
    assert (log.damage, log.lost, log.end, everything(log)) == ((), None, healthy.end, written)


def test_a_start_judges_an_unreadable_sector_anew() -> None:
    """The damage is in memory only: a restart on a disk that can read again has no damage."""
    directory, log, written = filled()
    name, position = places(log)[7]
    for heals in (False, True):
        directory.break_sector(name, position)
        note(log, partial(read, log))
        assert len(log.damage) == 1
        log.close()
        if heals:
            directory.heal()
        log = Log.open(directory, config=CONFIG)
        assert len(log.damage) == (not heals)
    assert everything(log) == written


def test_two_bad_sectors_of_one_file_are_one_damaged_range() -> None:
    """The intact batches between count as damaged, too, in an open log as after a start."""
    directory, log, written = filled()
    before = seen(directory)
    segment = log._segments.files[1]
    for position in (SEGMENT_HEADER_BYTES + 60_000, SEGMENT_HEADER_BYTES + 20_000):
        directory.break_sector(segment.name, position)
        note(log, partial(scrub, directory, log))
    for opened in (log, Log.open(directory, config=CONFIG)):
        (damaged,) = opened.damage
        assert segment.base_offset < damaged.start < damaged.end < segment.end_offset
        check_damaged(opened, log, written)
    repair_all(log, written)
    assert seen(directory) == before
    assert everything(log) == written


# --- not for ever --------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("place", range(15))
def test_a_truncation_that_comes_upon_a_bad_sector_is_done_or_has_lost_the_end(place: int) -> None:
    """A truncation is never half done. If it meets new damage, the process ends, and the next start judges the damage."""
    for nth in (20, 34, 35, 36, 60, 88, 89):
        directory, log, written = filled()
        name, position = places(log)[place]
        directory.break_sector(name, position)
        end, durable = written[nth].base_offset, log.end
        try:
            log.truncate(end)
        except OSError:
            assert (log.end, log.lost) == (durable, None)
            log.close()
            log = Log.open(directory, config=CONFIG)
            try:
                log.truncate(end)
            except LostTail as e:
                assert (e.durable_end, log.lost) == (durable, Flushed(durable, written[-1].chain))
                end = e.lost_from
                assert 0 <= written[nth].base_offset - end <= 4, "the batch in the sector, and perhaps the batch behind"
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


@pytest.mark.parametrize("found_by", ["read", "opening"])
def test_a_truncation_to_where_two_damaged_ranges_meet_keeps_what_is_below(found_by: str) -> None:
    """The end of one file and the beginning of the next are lost. The next file's header is intact and has the chain in
    between.
    """
    for behind in (0, 2):
        directory, log, written = filled()
        first, second = log._segments.files[:2]
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
    """Either the log opens, or the log does not open. Nothing was cut, so the first start that can read all has all."""
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
        assert everything(log) == written[3:], seed
        assert (log.damage, log.shape) == ((), shape)
