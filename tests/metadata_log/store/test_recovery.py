"""A log after a crash has everything that was durable, nothing that was never written, and a true account of damage."""

import contextlib
import json
from random import Random

import google_crc32c
import pytest

from metadata_log.disk.failures import FlushFailed
from metadata_log.format.batch import Batch
from metadata_log.format.errors import CorruptLog, LogFormatError
from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.format.log_shape import LogShape
from metadata_log.format.records import NoOp, Topic
from metadata_log.store.damage import LostTail
from metadata_log.store.log import Log
from metadata_log.store.log_config import LogConfig
from metadata_log.store.log_notes import FLUSHED_NAME, START_NAME, LogStart, write_start
from metadata_log.store.segment import SEGMENT_HEADER_BYTES, SegmentHeader, pack_header
from tests.metadata_log.store.damaged_log import ID, everything, mutate, segments
from tests.sim.world.disk import MemoryDirectory, PowerCut

CONFIG = LogConfig(segment_bytes=2048, tail_bytes=700)


def filled(batches: int = 20, unflushed: int = 0) -> tuple[MemoryDirectory, Log]:
    directory = MemoryDirectory()
    log = Log.open(directory, config=CONFIG)
    for i in range(batches):
        log.append([Topic(f"topic-{i}", ID)] * 2, 1 + i // 7, 1000 + i)
    log.flush()
    for i in range(unflushed):
        log.append([Topic(f"unflushed-{i}", ID)] * 2, 9, 2000 + i)
    return directory, log


class Story:
    """A log under random operations, and the logs that a crash may leave now."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.directory = MemoryDirectory()
        self.log = Log.open(self.directory, config=CONFIG)
        self.told = ["open"]
        self.kept: dict[OffsetAndEpoch, list[Batch]] = {self.log.shape.start: []}
        """For each possible start of the log (two while the start moves), the batches of which a crash may leave a
        prefix."""
        self.durable_end = 0
        """Everything below must survive a crash."""

    def note(self, durable_end: int | None = None) -> None:
        """Update the expectations after a completed operation: now the log is exactly what it says."""
        shape = self.log.shape
        shape.check_invariants()
        self.kept = {shape.start: everything(self.log)}
        self.durable_end = shape.flushed_end if durable_end is None else durable_end

    def step(self) -> None:
        kind = self.rng.choices(["append", "flush", "truncate", "drop", "reset"], [60, 25, 6, 4, 1])[0]
        self.told.append(f"{kind} {self.log.shape.start}..{self.log.shape.flushed_end}..{self.log.shape.end}")
        getattr(self, kind)()
        self.note()

    def append(self) -> None:
        epoch = self.log.shape.last_epoch + (self.rng.random() < 0.1)
        records = [Topic("t" * self.rng.choice([1, 50, 700]), ID)] * self.rng.randint(1, 3)
        (start,) = self.kept
        before = everything(self.log)
        # the batches of an interrupted append, made on a log in memory
        twin = Log.open(MemoryDirectory(), start=OffsetAndEpoch(self.log.shape.end, 0), chain=self.log.shape.chain)
        twin_batch = twin.append(records, epoch, max(self.log.last_timestamp_ms, 5))
        self.kept[start] = [*before, twin_batch]
        assert self.log.append(records, epoch, 5) == twin_batch

    def flush(self) -> None:
        self.log.flush()

    def boundaries(self) -> list[int]:
        return [self.log.shape.start.offset, *(batch.end_offset for batch in everything(self.log))]

    def truncate(self) -> None:
        end = self.rng.choice(self.boundaries()[-6:])
        self.durable_end = min(self.durable_end, end)
        self.log.truncate(end)

    def drop(self) -> None:
        shape = self.log.shape
        offset = self.rng.choice([each for each in self.boundaries() if each <= shape.flushed_end])
        epoch = shape.epoch_below(offset)
        assert epoch is not None
        start = OffsetAndEpoch(offset, epoch)
        self.kept[start] = [batch for batch in everything(self.log) if batch.base_offset >= offset]
        self.log.drop_prefix(start)

    def reset(self) -> None:
        shape = self.log.shape
        start = OffsetAndEpoch(max(0, shape.end + self.rng.randint(-5, 20)), shape.last_epoch + 1)
        self.kept[start] = []
        self.log.reset_to(start, self.rng.randbytes(32))

    def crash(self) -> None:
        if self.rng.random() < 0.3:
            self.told.append("kill")
            self.directory.kill()
        else:
            self.told.append("power cut")
            self.directory = self.directory.crash(self.rng)

    def reopen(self) -> None:
        """Open the log, sometimes with another power cut during the opening."""
        while True:
            if self.rng.random() < 0.3:
                self.directory.cut_power_after(self.rng.randint(1, 12))
            try:
                self.log = Log.open(self.directory, config=CONFIG)
                self.directory.cut_power_after(1 << 60)
                return
            except PowerCut:
                self.told.append("power cut while opening")
                self.directory = self.directory.crash(self.rng)

    def check(self) -> None:
        shape = self.log.shape
        shape.check_invariants()
        assert shape.start in self.kept
        possible = self.kept[shape.start]
        found = everything(self.log)
        assert found == possible[: len(found)], "only what was written, byte by byte, from the start on"
        assert shape.end >= min(self.durable_end, possible[-1].end_offset if possible else shape.start.offset)
        assert shape.flushed_end == shape.end
        self.check_shape(shape, found)

    def check_shape(self, shape: LogShape, found: list[Batch]) -> None:
        assert shape.chain == shape.flushed_chain == (found[-1].chain if found else shape.chain)
        for batch in found:
            assert shape.epoch_below(batch.end_offset) == batch.epoch
            assert self.log.chain_at(batch.end_offset) == batch.chain


@pytest.mark.parametrize("block", range(25))
def test_no_crash_loses_what_was_durable_nor_invents_anything(block: int) -> None:
    """Random operations with a crash inside, over and over, on a disk that keeps any subset of sectors."""
    for seed in range(block * 8, block * 8 + 8):
        story = Story(Random(seed))
        try:
            for _ in range(4):
                story.directory.cut_power_after(story.rng.randint(1, 60))
                with contextlib.suppress(PowerCut):
                    for _ in range(story.rng.randint(1, 40)):
                        story.step()
                story.crash()
                story.reopen()
                story.check()
                story.note()
        except (AssertionError, LogFormatError) as e:
            raise AssertionError(f"seed {seed}: {e}\n  " + "\n  ".join(story.told[-15:])) from e


def test_what_recovery_keeps_survives_the_next_power_cut() -> None:
    """After a killed process the tail was in the page cache only, so recovery must fsync the tail before it counts."""
    for seed in range(20):
        directory, log = filled(unflushed=3)
        shape = log.shape
        recovered = Log.open(directory.kill(), config=CONFIG)
        assert recovered.shape.flushed_end == recovered.shape.end == shape.end

        after = Log.open(directory.crash(Random(seed)), config=CONFIG)
        assert after.shape.chain == shape.chain


def test_what_a_failed_fsync_has_left_in_the_page_cache_is_written_again() -> None:
    """1. An fsync fails: the pages are marked clean, but are not on the disk. The process stops.
    2. The next process reads the pages from the page cache. An fsync succeeds now, and proves nothing.
    3. Power cut: everything that step 2 counted as flushed must be on the disk.
    """
    for seed in range(20):
        directory, log = filled(unflushed=3)
        shape = log.shape
        directory.fail_next_flush()
        with pytest.raises(FlushFailed):
            log.flush()
        recovered = Log.open(directory.kill(), config=CONFIG)
        assert recovered.shape.flushed_end == recovered.shape.end == shape.end

        after = Log.open(directory.crash(Random(seed)), config=CONFIG)
        assert after.shape.chain == shape.chain


def test_what_an_interrupted_truncation_has_cut_does_not_come_back() -> None:
    """1. A truncation cuts the file; the process is killed before its fsync.
    2. The next process opens the log, which ends at the truncation. Other records are appended.
    3. Power cut: without an fsync in step 2, the old records could be back on the disk, and continue the chain.
    """
    for seed in range(60):
        directory, log = filled()
        old = everything(log)
        operations = directory.operations
        log.truncate(38)
        needed = directory.operations - operations

        directory, log = filled()
        directory.cut_power_after(needed)
        with contextlib.suppress(PowerCut):
            log.truncate(38)
        again = Log.open(directory.kill(), config=CONFIG)
        assert everything(again) == old[:-1]
        another = again.append([Topic("another", ID)] * 2, 9, 5000)

        after = everything(Log.open(directory.crash(Random(seed)), config=CONFIG))
        assert after in ([*old[:-1], another], old[:-1])


def test_a_torn_tail_is_cut_and_the_log_goes_on() -> None:
    directory, log = filled(unflushed=1)
    name = segments(directory)[-1]
    position = log._segments.active.end_position - 3
    directory.flip_bit(name, position)

    again = Log.open(directory, config=CONFIG)
    assert again.shape.end == 40
    batch = again.append([NoOp()], 9, 0)
    again.flush()
    third = Log.open(directory, config=CONFIG)
    assert everything(third)[-1] == batch


def test_a_log_that_ends_below_its_note_is_corruption() -> None:
    directory, log = filled()
    name, end = log._segments.active.name, log._segments.active.end_position
    last = len(everything(log)[-1].data)
    directory.edit(name, lambda data: data.__setitem__(slice(end - last, end), bytes(last)))

    with pytest.raises(LostTail, match=f"{name}.*offset 38.*all below 40 had been durable"):
        Log.open(directory, config=CONFIG)


def test_another_history_of_the_same_length_is_corruption() -> None:
    """Segments that were replaced by other intact segments do not match the noted chain."""
    directory, log = filled()
    log.close()
    other = MemoryDirectory()
    forged = Log.open(other, config=CONFIG)
    for i in range(20):
        forged.append([Topic(f"forged{i}", ID)] * 2, 1 + i // 7, 1000 + i)
    forged.flush()
    for name in segments(directory):
        directory.remove(name)
    for name in segments(other):
        directory.write_atomic(name, other.read(name, 1 << 20))

    with pytest.raises(CorruptLog, match="not the one noted there"):
        Log.open(directory, config=CONFIG)


@pytest.mark.parametrize("loss", ["missing", "unreadable"])
def test_without_a_note_a_bad_end_is_a_torn_tail(loss: str) -> None:
    directory, log = filled()
    position = log._segments.active.end_position - 3
    directory.flip_bit(segments(directory)[-1], position)
    lose_the_note(directory, loss)

    assert Log.open(directory, config=CONFIG).shape.end == 38


@pytest.mark.parametrize("loss", ["missing", "unreadable"])
def test_without_a_note_damage_before_intact_batches_is_no_torn_tail(loss: str) -> None:
    """For a sealed segment, the next header proves that the damaged batch was durable; for the last one, the batches
    behind.
    """
    directory, _ = filled()
    first, last = segments(directory)[0], segments(directory)[-1]
    directory.flip_bit(first, SEGMENT_HEADER_BYTES + 90)
    lose_the_note(directory, loss)
    assert [damaged.file for damaged in Log.open(directory, config=CONFIG).damage] == [first]
    directory.flip_bit(last, SEGMENT_HEADER_BYTES + 90)
    lose_the_note(directory, loss)
    with pytest.raises(LostTail, match=last) as e:
        Log.open(directory, config=CONFIG)
    assert e.value.durable_end == 40


def test_a_segment_of_a_newer_release_is_no_damage() -> None:
    """An operator who returns to an older release gets this error. Nothing is fetched, cut or written."""
    for index in (0, 1, -1):
        directory, log = filled(40)
        log.close()
        name = segments(directory)[index]
        directory.edit(name, as_of_version_3)
        before = directory.read(name, 1 << 20)
        for accept_loss in (False, True):
            with pytest.raises(CorruptLog, match=f"{name}.*segment format version 3; this release reads 1 and 2"):
                Log.open(directory, config=CONFIG, accept_loss=accept_loss)
        assert directory.read(name, 1 << 20) == before


def as_of_version_3(data: bytearray) -> None:
    data[8:10] = (3).to_bytes(2, "big")
    data[68:72] = google_crc32c.value(bytes(data[:68])).to_bytes(4, "big")


def lose_the_note(directory: MemoryDirectory, loss: str) -> None:
    if loss == "unreadable":
        directory.flip_bit(FLUSHED_NAME, 20)
    elif directory.exists(FLUSHED_NAME):
        directory.remove(FLUSHED_NAME)


def test_without_a_start_the_log_starts_with_its_first_segment() -> None:
    directory, log = filled()
    shape = log.shape
    log.close()
    directory.remove(START_NAME)

    assert Log.open(directory, config=CONFIG).shape == shape


def test_a_damaged_start_is_corruption() -> None:
    directory, log = filled()
    log.close()
    for position in range(0, len(directory.read(START_NAME, 4096)), 5):
        directory.flip_bit(START_NAME, position, 2)
        with pytest.raises(CorruptLog, match=START_NAME):
            Log.open(directory, config=CONFIG)
        directory.flip_bit(START_NAME, position, 2)


@pytest.mark.parametrize(
    ("name", "odd"),
    [
        ("offset", "Infinity"),
        ("offset", "-1"),
        ("epoch", "1.5"),
        ("timestamp_ms", "9223372036854775808"),
        ("chain", '"00"'),
    ],
)
def test_a_start_that_nobody_can_have_written_is_corruption(name: str, odd: str) -> None:
    """Even with a correct checksum. (Found by the fuzzer.)"""
    directory, log = filled()
    log.close()
    fields = json.loads(directory.read(START_NAME, 4096).split(b"\n")[0])
    text = json.dumps(fields | {name: "ODD"}).replace('"ODD"', odd).encode()
    directory.write_atomic(START_NAME, b"%s\n%08x\n" % (text, google_crc32c.value(text)))
    with pytest.raises(CorruptLog, match=START_NAME):
        Log.open(directory, config=CONFIG)


def test_a_segment_of_another_epoch_than_the_logs_start_is_corruption() -> None:
    """1. The first segment's header and `log-start` name different epochs; both checksums are correct.
    2. If this log were opened, its next batch would have the epoch of `log-start`, and the next recovery would cut
       that batch, because its epoch is lower than the epoch below. (Found by the fuzzer.)
    """
    directory = MemoryDirectory()
    Log.open(directory, config=CONFIG).close()
    header = SegmentHeader(OffsetAndEpoch(0, 1), Log.open(directory, config=CONFIG).shape.chain, 0)
    directory.edit(segments(directory)[0], lambda data: data.__setitem__(slice(0, 72), pack_header(header)))
    for accept_loss in (False, True):
        with pytest.raises(CorruptLog, match="epoch 1 just below offset 0"):
            Log.open(directory, config=CONFIG, accept_loss=accept_loss)


def test_a_start_of_another_epoch_than_the_batch_below_it_is_corruption() -> None:
    """The same for a log that starts in the middle of a segment. (Found by the fuzzer.)"""
    directory = MemoryDirectory()
    log = Log.open(directory)
    for epoch in (1, 2):
        log.append([NoOp()], epoch, 1)
    log.flush()
    start = LogStart(OffsetAndEpoch(2, 1), log.shape.chain, 1)
    log.close()
    write_start(directory, start)
    for accept_loss in (False, True):
        with pytest.raises(CorruptLog, match="epoch 2 just below offset 2"):
            Log.open(directory, accept_loss=accept_loss)


def test_mutations_of_a_segment_give_a_log_or_a_format_error() -> None:
    """For any content of the file, without a note: every batch that can be read was written, or the error is
    CorruptLog.
    """
    rng = Random(3)
    opened = 0
    for _ in range(300):
        directory, log = filled(8)
        written = everything(log)
        log.close()
        directory.remove(FLUSHED_NAME)
        name = rng.choice(segments(directory))
        directory.edit(name, lambda data: mutate(rng, data))
        try:
            again = Log.open(directory, config=CONFIG)
        except LogFormatError:
            continue
        opened += 1
        damaged = again.damage
        for batch in written:
            is_lost = any(each.start <= batch.base_offset < each.end for each in damaged)
            if not is_lost and batch.base_offset < again.shape.end:
                assert again.read(batch.base_offset, 1) == (batch,)
    assert 0 < opened < 300
