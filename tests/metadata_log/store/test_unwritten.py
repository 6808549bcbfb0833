"""Batches in the log that are not in the file yet: the proposals of a leader's turn."""

from pathlib import Path

import pytest

from metadata_log.disk.files import Directory, RealDirectory
from metadata_log.format.batch import Batch
from metadata_log.store.log import Log
from metadata_log.store.log_config import LogConfig
from tests.metadata_log.store.damaged_log import everything
from tests.metadata_log.store.test_log import SMALL, filled, topics
from tests.sim.world.disk import MemoryDirectory


def add_unwritten(log: Log, name: str) -> Batch:
    batch = log.seal(topics(2, name), epoch=3, wall_ms=2_000)
    log.append_unwritten(batch)
    return batch


def test_unwritten_batches_reach_the_file_by_one_write() -> None:
    """The log answers for them before; a killed process loses them."""
    directory = MemoryDirectory()
    log = filled(directory, batches=1, config=LogConfig())
    before, written = directory.operations, log.shape
    added = [add_unwritten(log, f"later-{i}") for i in range(5)]
    assert directory.operations == before, "the room was reserved already"
    assert log.read(2, 1 << 20) == tuple(added)
    assert Log.open(directory.kill()).shape.end == written.end

    log = Log.open(directory.kill())
    before = directory.operations
    added = [add_unwritten(log, f"again-{i}") for i in range(5)]
    log.write_out()
    log.write_out()
    assert directory.operations == before + 1
    assert everything(Log.open(directory.kill()))[1:] == added


@pytest.mark.parametrize("real", [True, False])
def test_whatever_uses_the_file_finds_all_batches_in_it(real: bool, tmp_path: Path) -> None:
    """A flush, another append, a read from the disk, a new segment and a truncation write the unwritten batches first."""
    directory: Directory = RealDirectory(tmp_path / "data") if real else MemoryDirectory()
    log = Log.open(directory, config=SMALL._replace(tail_bytes=1))
    batches: list[Batch] = []
    for i in range(20):
        batches += [add_unwritten(log, f"a-{i}"), add_unwritten(log, f"b-{i}")]
        if i % 4 == 0:
            log.flush()
        elif i % 4 == 1:
            batches.append(log.append(topics(1, f"c-{i}"), epoch=3, wall_ms=2_000))
        elif i % 4 == 2:
            assert log.read(batches[-2].base_offset, 1 << 20) == tuple(batches[-2:])
    add_unwritten(log, "cut")
    log.truncate(batches[-1].end_offset)
    log.flush()
    assert everything(log) == batches
    log.close()
    assert everything(Log.open(directory, config=SMALL)) == batches


def test_a_full_disk_refuses_only_the_unwritten_batch_without_room() -> None:
    """The room of a batch is reserved before the batch is in the log, so those before it are written."""
    directory = MemoryDirectory()
    config = LogConfig(segment_bytes=4_096)
    log = filled(directory, batches=1, config=config)
    directory.limit_space(directory.used_bytes)
    taken: list[Batch] = []
    with pytest.raises(OSError):
        while True:
            taken.append(add_unwritten(log, f"later-{len(taken)}"))
    assert len(taken) > 3
    assert log.shape.end == taken[-1].end_offset
    log.write_out()
    directory.limit_space(None)
    assert everything(Log.open(directory.kill(), config=config))[1:] == taken


def test_a_write_that_failed_is_repeated_at_the_same_place() -> None:
    """A file system that cannot reserve room refuses the write itself. No later batch overtakes the unwritten ones."""
    directory = MemoryDirectory()
    directory.stop_reserving()
    log = filled(directory, batches=1)
    directory.limit_space(directory.used_bytes)
    batches = [add_unwritten(log, "later"), add_unwritten(log, "last")]
    for _ in range(2):
        with pytest.raises(OSError):
            log.write_out()
        with pytest.raises(OSError):
            log.append(topics(1), epoch=3, wall_ms=2_000)
    directory.limit_space(None)
    batches.append(log.append(topics(1), epoch=3, wall_ms=2_000))
    log.flush()
    assert everything(Log.open(directory.kill()))[1:] == batches
