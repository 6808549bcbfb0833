"""Helpers for tests of damage: logs to damage, and checks of a damaged and of a repaired log."""

from collections.abc import Sequence
from random import Random

import pytest

from metadata_log.format.batch import Batch
from metadata_log.format.errors import CorruptLog
from metadata_log.format.records import Record, SnapshotMark, Topic, Voters
from metadata_log.store.damage import DamagedRange, DamagedRangeRead
from metadata_log.store.log import Log
from metadata_log.store.log_config import LogConfig
from metadata_log.store.segment import base_offset_of
from tests.sim.world.disk import MemoryDirectory

CONFIG = LogConfig(segment_bytes=1024, tail_bytes=400)
SMALL = CONFIG._replace(segment_bytes=400)
ID = bytes(range(16))


def segments(directory: MemoryDirectory) -> list[str]:
    return [name for name in directory.names() if base_offset_of(name) is not None]


def contents(directory: MemoryDirectory) -> dict[str, bytes]:
    """Return the bytes of the segments, without the room that is preallocated."""
    return {name: directory.read(name, 1 << 22).rstrip(b"\0") for name in segments(directory)}


def everything(log: Log) -> list[Batch]:
    return list(log.read(log.shape.start.offset, 1 << 30))


def filled(batches: int = 20, config: LogConfig = CONFIG) -> tuple[MemoryDirectory, Log, list[Batch]]:
    """Make a durable log of several segments, with some records about voters. Return the log and its batches."""
    directory = MemoryDirectory()
    log = Log.open(directory, config=config)
    for i in range(batches):
        records: list[Record] = [Voters(()), SnapshotMark(f"{i}")] if i % 5 == 3 else [Topic(f"topic-{i}", ID)] * 2
        log.append(records, 1 + i // 4, 1000 + i)
    log.flush()
    log._note.flush()
    return directory, log, everything(log)


def noted(log: Log, error: CorruptLog) -> DamagedRange:
    """Note damage that a reader has found. Return the damaged range."""
    if isinstance(error, DamagedRangeRead):
        return error.damaged
    before = log.damage
    log.note_damage(error)
    return next(each for each in log.damage if each not in before)


def within(damaged: DamagedRange, written: Sequence[Batch]) -> list[Batch]:
    return [batch for batch in written if damaged.start <= batch.base_offset < damaged.end]


def repair_all(log: Log, written: Sequence[Batch]) -> None:
    for damaged in log.damage:
        log.repair(damaged, within(damaged, written))


def check_damaged(log: Log, healthy: Log, written: Sequence[Batch]) -> None:
    """Check that a read of intact batches returns them, and a read of damaged ones raises DamagedRangeRead."""
    shape, before = log.shape, healthy.shape
    shape.check_invariants()
    assert (shape.start, shape.end, shape.chain, shape.flushed_end, shape.last_epoch) == (
        before.start,
        before.end,
        before.chain,
        before.flushed_end,
        before.last_epoch,
    )
    assert log.last_timestamp_ms == healthy.last_timestamp_ms
    lost = [batch for damaged in log.damage for batch in within(damaged, written)]
    for batch in written:
        if batch in lost:
            with pytest.raises(DamagedRangeRead):
                log.read(batch.base_offset, 1)
        else:
            assert log.read(batch.base_offset, 1) == (batch,)
            assert log.chain_at(batch.end_offset) == batch.chain
    for damaged in log.damage:
        assert log.chain_at(damaged.start) == damaged.chain_before
        assert log.chain_at(damaged.end) == damaged.chain_after
        with pytest.raises(DamagedRangeRead):
            log.chain_at(damaged.start + 1)


def check_mended(
    directory: MemoryDirectory, log: Log, healthy: Log, written: Sequence[Batch], config: LogConfig = CONFIG
) -> None:
    assert log.damage == ()
    assert log.shape == healthy.shape
    assert log.control_records() == healthy.control_records()
    assert everything(log) == written
    assert Log.open(directory, config=config).shape == healthy.shape


def mutate(rng: Random, data: bytearray) -> None:
    """Cut off the end, remove, insert or overwrite some bytes."""
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
