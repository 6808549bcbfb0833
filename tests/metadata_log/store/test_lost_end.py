"""Damage at the end of a log: lost records are reported, never cut in silence, and an operator can accept the loss."""

import contextlib
from random import Random

import pytest

from metadata_log.format.batch import genesis_chain
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.format.records import Topic
from metadata_log.store.damage import LostTail
from metadata_log.store.log import Log
from metadata_log.store.log_config import LogConfig
from metadata_log.store.log_notes import FLUSHED_NAME, Flushed
from metadata_log.store.segment import SEGMENT_HEADER_BYTES
from tests.metadata_log.store.damaged_log import (
    CONFIG,
    ID,
    check_damaged,
    check_mended,
    contents,
    everything,
    filled,
    mutate,
    repair_all,
    segments,
)
from tests.sim.world.disk import MemoryDirectory, PowerCut


def after_a_power_cut(directory: MemoryDirectory, step: int) -> MemoryDirectory | None:
    """Cut the power at this step of an opening that accepts a loss. Return the remains; None if the opening has fewer steps."""
    directory.cut_power_after(step)
    try:
        Log.open(directory, config=CONFIG, accept_loss=True)
    except PowerCut:
        return directory.crash(Random(step))
    return None


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
        remains = after_a_power_cut(directory, step)
        if remains is None:
            break
        directory = remains
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
    assert directory.read(f"{name}.damaged", 1 << 22).rstrip(b"\0") == rotten[name], "the evidence is kept"
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
        remains = after_a_power_cut(directory, step)
        if remains is None:
            break
        directory = remains
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
