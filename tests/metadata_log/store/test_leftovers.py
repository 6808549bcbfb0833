"""Leftover segments: a full disk or a power cut has left a new file without its header.

Such a file has no batches. It must never cause a loss, above all if the log went on in the file before.
"""

import errno
from random import Random

import pytest

from metadata_log.format.batch import Batch
from metadata_log.format.errors import CorruptLog
from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.format.records import Topic
from metadata_log.store.damage import DamagedRange, LostTail
from metadata_log.store.log import Log
from metadata_log.store.log_config import LogConfig
from metadata_log.store.segment import SEGMENT_HEADER_BYTES, SegmentHeader, pack_header, segment_name
from tests.metadata_log.store.damaged_log import (
    CONFIG,
    ID,
    SMALL,
    check_damaged,
    check_mended,
    contents,
    everything,
    filled,
    noted,
    repair_all,
    segments,
    within,
)
from tests.sim.world.disk import MemoryDirectory, PowerCut

LARGE = LogConfig(segment_bytes=4096, tail_bytes=400)


def append(log: Log, size: int, epoch: int = 1) -> Batch:
    return log.append([Topic("t" * size, ID)], epoch, log.end)


def fill_the_disk_and_roll(directory: MemoryDirectory, log: Log) -> None:
    """Seal the active segment on a disk without room for the next header."""
    active = log._segments.active
    reserved = directory.size(active.name) - active.end_position
    directory.limit_space(directory.used_bytes - reserved)
    with pytest.raises(OSError) as e:
        append(log, 3000)
    assert e.value.errno == errno.ENOSPC
    directory.limit_space(None)


def leave(directory: MemoryDirectory, offset: int, content: bytes) -> None:
    """Leave the remains that a power cut leaves of a new segment at `offset`."""
    file = directory.open(segment_name(offset), create=True)
    file.write_at(0, content)
    file.close()


def unfinished(rng: Random, offset: int) -> bytes:
    """Return some bytes of a header, or as many zeros."""
    header = pack_header(SegmentHeader(OffsetAndEpoch(offset, 1), bytes(32), 5))
    return rng.choice([b"", header[: rng.randrange(1, SEGMENT_HEADER_BYTES - 8)], bytes(SEGMENT_HEADER_BYTES)])


# --- a roll for which there is no room -----------------------------------------------------------------------------


def test_a_roll_that_finds_the_disk_full_leaves_no_file() -> None:
    directory = MemoryDirectory()
    log = Log.open(directory, config=LARGE)
    for _ in range(3):
        append(log, 800)
    fill_the_disk_and_roll(directory, log)
    assert segments(directory) == [segment_name(0)]


@pytest.mark.parametrize("more", [3, 6])
def test_after_a_roll_that_found_the_disk_full_nothing_is_lost(more: int) -> None:
    """A batch that still fits is written to the previous file, and the next segment begins above the leftover."""
    directory = MemoryDirectory()
    log = Log.open(directory, config=LARGE)
    written = [append(log, 800) for _ in range(3)]
    fill_the_disk_and_roll(directory, log)
    leave(directory, 3, b"")  # a removal is not durable before the next flush of the directory
    written += [append(log, 800) for _ in range(more)]
    log.flush()
    assert segment_name(4) in segments(directory)
    for _ in range(4):
        assert everything(log) == written
        before = {name: data for name, data in contents(directory).items() if data}
        log.close()
        log = Log.open(directory, config=LARGE)
        assert {name: data.rstrip(b"\0") for name, data in contents(directory).items()} == {
            name: data.rstrip(b"\0") for name, data in before.items()
        }
        assert log.damage == ()


def test_after_a_roll_that_found_the_disk_full_a_power_cut_at_any_step_loses_nothing() -> None:
    """A power cut in the next opening loses nothing, either."""
    for seed in range(3):
        for step in range(1, 100):
            directory = MemoryDirectory()
            log = Log.open(directory, config=LARGE)
            written = [append(log, 800) for _ in range(3)]
            log.flush()
            durable = log.end
            directory.cut_power_after(step)
            try:
                fill_the_disk_and_roll(directory, log)
                for _ in range(6):
                    written.append(append(log, 800))
                    log.flush()
                    durable = log.end
                log.close()
                log = Log.open(directory, config=LARGE)
                log.close()
                break
            except PowerCut:
                directory = directory.crash(Random(100 * seed + step))
                directory.heal()
            for _ in range(3):
                log = Log.open(directory, config=LARGE)
                assert log.end >= durable
                assert log.damage == ()
                assert everything(log) == written[: len(everything(log))]
                log.close()
        else:
            raise AssertionError("it takes more than a hundred operations")
        assert step > 20


# --- leftovers anywhere --------------------------------------------------------------------------------------------


def test_a_leftover_s_offset_divides_no_repair() -> None:
    """The damage is found while the log is open. It covers the leftover's offset, but is in one file."""
    directory = MemoryDirectory()
    log = Log.open(directory, config=LogConfig(segment_bytes=1 << 16, tail_bytes=100))
    written = [append(log, 4000) for _ in range(17)]
    log.flush()
    before = contents(directory)
    name = segments(directory)[0]
    position, _ = log._segments.files[0].locate(8) or (0, b"")
    for content in (b"", b"metaqlog"):
        leave(directory, 10, content)
        damaged = noted(log, CorruptLog.at(f"{directory.path_text}/{name}", position, 0, "rot"))
        assert damaged.start < 10 < damaged.end
        log.repair(damaged, within(damaged, written))
        assert everything(log) == written
        assert {each: data for each, data in contents(directory).items() if each in before} == before
    log.close()
    log = Log.open(directory, config=LARGE)
    assert everything(log) == written
    assert segments(directory) == sorted(before)


def test_a_file_of_rubbish_between_two_segments_costs_neither() -> None:
    """The file is larger than a leftover and does not belong to this log, so it is passed over, at each start."""
    directory, healthy, written = filled()
    healthy.close()
    before = contents(directory)
    rubbish = b"\x01rubbish" * 100
    leave(
        directory, max(batch.base_offset for batch in written if segment_name(batch.base_offset) in before) - 1, rubbish
    )
    log = Log.open(directory, config=CONFIG)
    assert contents(directory).items() >= before.items()
    check_mended(directory, log, healthy, written)


def test_a_leftover_behind_a_file_hides_nothing_of_what_leads_to_the_next_one() -> None:
    """A file has a damaged batch, and intact batches that lead to the next header. A leftover's name is in between."""
    directory, healthy, written = filled()
    first, second = segments(directory)[:2]
    directory.flip_bit(first, SEGMENT_HEADER_BYTES + len(written[0].data) + 85)
    (expected,) = Log.open(directory.kill(), config=CONFIG).damage
    start_of_second = int(second.removesuffix(".log"))
    leave(directory, start_of_second - 1, b"")
    log = Log.open(directory, config=CONFIG)
    assert log.damage == (expected,)
    check_damaged(log, healthy, written)


@pytest.mark.parametrize("part", range(4))
def test_leftovers_anywhere_and_damage_anywhere_lose_nothing(part: int) -> None:
    """Damage is found at opening or later. After the repair every file has its old content and opens again."""
    rng = Random(part)
    outcomes = set()
    for _ in range(40):
        config = rng.choice([CONFIG, SMALL])._replace(tail_bytes=1)
        directory, healthy, written = filled(rng.randint(8, 20), config)
        if rng.random() < 0.3:
            mark = rng.choice(written[:-4])
            healthy.drop_prefix(OffsetAndEpoch(mark.end_offset, mark.epoch))
            written = everything(healthy)
        names = segments(directory)
        before = contents(directory)
        ends = {piece.name: piece.end_position for piece in healthy._segments.files}
        is_open = rng.random() < 0.5
        for _ in range(rng.randint(1, 4)):
            offset = rng.randint(0, healthy.end + 2)
            if segment_name(offset) not in names:
                leave(directory, offset, unfinished(rng, offset))
        within_reach = names[:-1] if is_open else names  # the last batch is read from memory
        victims = [(rng.choice(within_reach), rng.random()) for _ in range(rng.randint(0, 3)) if within_reach]
        log = healthy
        if not is_open:
            healthy.close()
        for name, share in victims:
            position = int(SEGMENT_HEADER_BYTES + share * (ends[name] - SEGMENT_HEADER_BYTES))
            directory.flip_bit(name, position if is_open or rng.random() < 0.8 else rng.randrange(64), bit=3)
        if is_open:
            damaged_now = notice(log, written)
        else:
            try:
                log = Log.open(directory, config=config)
            except LostTail:
                assert any(name in names[-2:] for name, _ in victims)  # so near to the end that no intact batch follows
                continue
            check_damaged(log, healthy, written)
            damaged_now = log.damage
        outcomes.add(f"{'open' if is_open else 'opening'} {bool(damaged_now)}")
        repair_all(log, written)
        assert everything(log) == written
        check_mended(directory, log, healthy, written, config)
        if not healthy.shape.start.offset:  # below the start nothing is repaired
            assert contents(directory) == before
    assert {"open True", "opening True"} <= outcomes


def notice(log: Log, written: list[Batch]) -> tuple[DamagedRange, ...]:
    """Read everything."""
    for batch in written:
        for _ in range(3):
            try:
                log.chain_at(batch.end_offset)
                log.read(batch.base_offset, 1)
            except CorruptLog as e:
                log.note_damage(e)
    return log.damage


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("rot", [[20], [20, SEGMENT_HEADER_BYTES + 85], [SEGMENT_HEADER_BYTES + 85], [20, -3]])
def test_rubbish_behind_a_file_s_end_and_rot_in_the_next_one(index: int, rot: list[int]) -> None:
    """The second file gets its old content back, with its header. The rubbish hides nothing, and stays."""
    directory, healthy, written = filled(30)
    healthy.close()
    before = contents(directory)
    first, second = segments(directory)[index : index + 2]
    directory.edit(first, lambda content: content.extend(b"\x01rubbish"))
    before[first] += b"\x01rubbish"
    for position in rot:
        directory.flip_bit(second, position % len(before[second]))
    log = Log.open(directory, config=CONFIG)
    check_damaged(log, healthy, written)
    repair_all(log, written)
    assert everything(log) == written
    assert contents(directory) == before
    check_mended(directory, log, healthy, written)


def test_rubbish_behind_the_end_of_a_damaged_file_costs_no_more_than_the_damage() -> None:
    """1. A batch of a sealed file is damaged, and other bytes follow the file's last batch.
    2. The header of the next file proves the last batch, so only the damaged batch and the one behind it are fetched again.
    """
    directory, healthy, written = filled(30)
    healthy.close()
    first = segments(directory)[0]
    directory.edit(first, lambda content: content.extend(b"\x01rubbish"))
    directory.flip_bit(first, SEGMENT_HEADER_BYTES + len(written[0].data) + 85)
    log = Log.open(directory, config=CONFIG)
    assert [(each.start, each.end) for each in log.damage] == [(2, 6)]
    check_damaged(log, healthy, written)
    repair_all(log, written)
    check_mended(directory, log, healthy, written)
