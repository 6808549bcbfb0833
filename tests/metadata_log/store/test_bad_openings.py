"""Openings on a disk that is full, or cannot read some byte outside of batches. A log that can be opened without that
byte opens, and an error is called damage only if the next start would find the damage too.
"""

import errno
import random
from collections.abc import Callable

import pytest

from metadata_log.format.errors import CorruptLog
from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.format.records import Topic
from metadata_log.store.damage import LostTail
from metadata_log.store.log import Log
from metadata_log.store.log_notes import FLUSHED_NAME
from metadata_log.store.segment import SEGMENT_HEADER_BYTES, segment_name
from metadata_log.store.segment_file import Segment
from metadata_log.store.segment_repair import REPAIR_SUFFIX
from tests.metadata_log.store.damaged_log import CONFIG, ID, SMALL, contents, everything, filled, segments
from tests.sim.world.disk import MemoryDirectory, PowerCut


@pytest.mark.parametrize("accept_loss", [False, True])
@pytest.mark.parametrize("behind", ["the whole log", "nothing intact", "an intact batch", "no segment"])
def test_without_the_note_nobody_knows_how_much_of_a_damaged_end_was_durable(behind: str, *, accept_loss: bool) -> None:
    """The start fails. If the end were cut as a torn tail, the node would vote with less than it has acknowledged.

    Intact batches behind the damage do not help: other acknowledged records may have followed them. The disk may be
    able to read the note at the next start.
    """
    directory, healthy, written = filled()
    healthy.close()
    last, end = segments(directory)[-1], healthy._segments.active.end_position
    before = contents(directory)
    directory.break_sector(FLUSHED_NAME, 0)
    if behind == "the whole log":
        pass
    elif behind == "nothing intact":
        for position in range(SEGMENT_HEADER_BYTES, end, 512):
            directory.break_sector(last, position)
    elif behind == "an intact batch":
        directory.flip_bit(last, SEGMENT_HEADER_BYTES + 80)
    else:
        for name in segments(directory):
            directory.remove(name)
    spoilt = directory.names()
    for _ in range(2):
        with pytest.raises(OSError, match="flushed: the disk cannot read how far this log was durable") as e:
            Log.open(directory, config=CONFIG, accept_loss=accept_loss)
        assert e.value.errno == errno.EIO
        assert directory.names() == spoilt
    if behind == "the whole log":
        pass
    elif behind == "nothing intact":
        directory.heal()
        assert contents(directory) == before
        log = Log.open(directory, config=CONFIG)
        assert (log.shape, everything(log)) == (healthy.shape, written)


# --- an empty log ----------------------------------------------------------------------------------------------------


def _flip(directory: MemoryDirectory, name: str) -> None:
    directory.flip_bit(name, 20)


def _break(directory: MemoryDirectory, name: str) -> None:
    directory.break_sector(name, 20)


@pytest.mark.parametrize("spoil", [_flip, _break])
@pytest.mark.parametrize("start", [OffsetAndEpoch(0, 0), OffsetAndEpoch(100, 7)])
def test_an_empty_log_without_a_sound_header_begins_again_where_it_begins(
    start: OffsetAndEpoch, spoil: Callable[[MemoryDirectory, str], None]
) -> None:
    """After an install in an idle cluster the log has only a header, for hours. The notes have everything that was in
    that header.
    """
    directory = MemoryDirectory()
    log = Log.open(directory)
    log.append([Topic("before", ID)], 1, 1)
    log.flush()
    log.reset_to(start, bytes(range(32)), 5)
    shape = log.shape
    log.close()
    (name,) = segments(directory)
    spoil(directory, name)
    log = Log.open(directory)
    assert (log.shape, log.lost, log.damage, log.last_timestamp_ms) == (shape, None, (), 5)
    batch = log.append([Topic("behind", ID)], 8, 6)
    log.flush()
    log.close()
    assert everything(Log.open(directory)) == [batch]


def test_a_header_of_another_place_is_not_an_empty_log() -> None:
    """The file was created behind records that are lost now, so the log is refused, and an operator has to look."""
    directory = MemoryDirectory()
    Log.open(directory).close()
    (name,) = segments(directory)
    directory.rename(name, segment_name(40))
    directory.flip_bit(segment_name(40), 20)
    with pytest.raises(CorruptLog, match="there is no log"):
        Log.open(directory)


def test_without_a_note_nobody_knows_that_a_log_was_empty() -> None:
    directory, healthy, _ = filled()
    healthy.close()
    for name in segments(directory)[1:]:
        directory.remove(name)
    directory.edit(segments(directory)[0], lambda data: data.__delitem__(slice(10, None)))
    directory.remove(FLUSHED_NAME)
    with pytest.raises(CorruptLog, match="there is no log"):
        Log.open(directory, config=CONFIG)


def test_an_empty_file_below_what_was_promised_is_a_lost_end() -> None:
    directory, healthy, _ = filled()
    healthy.close()
    for name in segments(directory)[1:]:
        directory.remove(name)
    directory.edit(segments(directory)[0], lambda data: data.__delitem__(slice(10, None)))
    with pytest.raises(LostTail):
        Log.open(directory, config=CONFIG)


# --- reads that fail once ----------------------------------------------------------------------------------------------


def _unreadable_during(
    patched: pytest.MonkeyPatch,
    directory: MemoryDirectory,
    owner: object,
    method: str,
    place: tuple[str, int],
) -> None:
    """Make a sector unreadable from the first call of `method` on."""
    true = getattr(owner, method)

    def failing(*arguments: object) -> object:
        directory.break_sector(*place)
        return true(*arguments)

    patched.setattr(owner, method, failing)


def test_what_the_disk_gave_a_moment_ago_and_gives_no_more_is_not_called_damage() -> None:
    """A process that ends with damage is not restarted. The start fails with OSError; the next start finds the damage
    and opens.
    """
    directory, healthy, written = filled()
    place = (healthy._segments.files[0].name, 600)
    healthy.close()
    directory.remove(FLUSHED_NAME)
    with pytest.MonkeyPatch.context() as patched:
        _unreadable_during(patched, directory, Segment, "write_again", place)
        with pytest.raises(OSError, match="Input/output error") as e:
            Log.open(directory, config=CONFIG)
    assert e.value.errno == errno.EIO
    directory.heal()
    log = Log.open(directory, config=CONFIG)
    assert (log.damage, everything(log)) == ((), written)


# --- no room -----------------------------------------------------------------------------------------------------------


def test_a_full_disk_and_a_bad_header_do_not_keep_a_log_from_opening() -> None:
    """A node with a full disk still votes. The header is written in its old place, which needs no room."""
    directory, healthy, written = filled()
    before = contents(directory)
    name = healthy._segments.files[1].name
    healthy.close()
    directory.flip_bit(name, 20)
    directory.limit_space(directory.used_bytes)
    log = Log.open(directory, config=CONFIG)
    assert (log.damage, log.shape) == ((), healthy.shape)
    assert everything(log) == written
    assert not [each for each in directory.names() if each.endswith(REPAIR_SUFFIX)]
    log.close()
    assert contents(directory) == before


def test_a_header_that_waits_for_room_is_in_nobody_s_way() -> None:
    """While a header waits for its repair, the log grows, is truncated, and is opened again."""
    for offset in (0, 12, 38):
        directory, healthy, written = filled(config=SMALL)
        healthy.close()
        directory.flip_bit(segments(directory)[2], 20)
        directory.limit_space(directory.used_bytes)
        log = Log.open(directory, config=SMALL)
        directory.limit_space(None)
        log.truncate(offset)
        more = [log.append([Topic(f"more-{i}", ID)], 9, 9000 + i) for i in range(20)]
        log.flush()
        expected = [*(batch for batch in written if batch.end_offset <= offset), *more]
        assert everything(log) == expected
        log.close()
        again = Log.open(directory, config=SMALL)
        assert (again.damage, everything(again)) == ((), expected)


# --- what was lost is kept ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("crash", ["kill", "power cut"])
def test_wherever_an_opening_ends_what_it_cuts_is_kept(crash: str) -> None:
    """Whole files behind the damage are kept too, for later inspection."""
    for operations in range(1, 100):
        directory, healthy, _ = filled()
        healthy.close()
        names = segments(directory)
        rotten = names[len(names) // 2]
        for name in names[names.index(rotten) :]:
            directory.flip_bit(name, 20)
            directory.flip_bit(name, SEGMENT_HEADER_BYTES + 3)
            directory.edit(name, lambda data: data.__setitem__(slice(200, None), b"\xff" * (len(data) - 200)))
        before = contents(directory)
        directory.cut_power_after(operations)
        try:
            Log.open(directory, config=CONFIG, accept_loss=True)
        except PowerCut:
            is_whole = False
        else:
            is_whole = True
        directory = directory.kill() if crash == "kill" else directory.crash(random.Random(operations))
        log = Log.open(directory, config=CONFIG, accept_loss=True)
        assert log.lost is not None
        kept = [directory.read(name, 1 << 22) for name in directory.names()]
        assert [name for name in before if before[name] not in kept and name >= rotten] == [], operations
        if is_whole:
            break
    assert 5 < operations < 99
