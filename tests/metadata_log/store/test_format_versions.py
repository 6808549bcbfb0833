"""A log has batches of one format version: a log of metadata refuses the batches of partitions, and the other way round."""

import pytest

from metadata_log.format.batch import DATA_FORMAT_VERSION, Batch, genesis_chain
from metadata_log.format.data_batch import DataRecord, ProducerStamp, data_payload, pack_records
from metadata_log.format.errors import CorruptLog, LogFormatError
from metadata_log.format.records import NoOp
from metadata_log.store.log import Log
from metadata_log.store.log_config import LogConfig
from tests.sim.world.disk import MemoryDirectory

GENESIS = genesis_chain("the same for both", b"")
SMALL = LogConfig(segment_bytes=2048, tail_bytes=10)
DATA = LogConfig(segment_bytes=2048, tail_bytes=10, format_version=DATA_FORMAT_VERSION)


def data_log(directory: MemoryDirectory, batches: int = 5) -> Log:
    log = Log.open(directory, chain=GENESIS, config=DATA)
    for i in range(batches):
        records = pack_records([DataRecord(i, b"k", bytes(500))])
        log.append_data(data_payload(records, ProducerStamp(7, 0, i)), 1, 1, (i, i))
    log.flush()
    return log


def test_the_log_of_a_partition_is_a_log_like_any_other() -> None:
    """Segments, chain, reopening, truncation: nothing looks into the payload."""
    directory = MemoryDirectory()
    log = data_log(directory)
    batches = log.read(0, 1 << 20)
    chain = log.shape.chain
    log.close()
    seen: list[Batch] = []

    log = Log.open(directory, config=DATA, observe=seen.append)

    assert (log.end, log.shape.chain, log.read(0, 1 << 20)) == (5, chain, batches)
    assert tuple(seen) == batches and len([name for name in directory.names() if name.endswith(".log")]) == 2
    log.truncate(3)
    follower = Log.open(MemoryDirectory(), chain=GENESIS, config=DATA)
    follower.append_batches(batches)
    assert follower.shape.chain == chain and log.shape.chain == batches[2].chain


def test_a_batch_of_the_other_kind_is_not_appended() -> None:
    data, metadata = data_log(MemoryDirectory()), Log.open(MemoryDirectory(), chain=GENESIS, config=SMALL)
    record = metadata.append([NoOp()], 1, 1)

    with pytest.raises(LogFormatError, match="format version 2, and the batches of this log have 1"):
        Log.open(MemoryDirectory(), chain=GENESIS, config=SMALL).append_batches(data.read(0, 1))
    with pytest.raises(LogFormatError, match="format version 1, and the batches of this log have 2"):
        Log.open(MemoryDirectory(), chain=GENESIS, config=DATA).append_batches([record])
    with pytest.raises(AssertionError):
        data.append([NoOp()], 1, 1)
    with pytest.raises(AssertionError):
        metadata.append_data(b"", 1, 1, (0, 0))


def test_a_directory_of_the_other_kind_is_refused_and_stays_as_it_is() -> None:
    """Intact batches of another kind are no torn tail: an operator has mixed up two directories."""
    data, metadata = MemoryDirectory(), MemoryDirectory()
    data_log(data).close()
    log = Log.open(metadata, chain=GENESIS, config=SMALL)
    log.append([NoOp()], 1, 1)
    log.flush()
    log.close()

    for directory, config in ((data, SMALL), (metadata, DATA)):
        before = {name: directory.read(name, 1 << 20) for name in directory.names()}
        with pytest.raises(CorruptLog, match="never mix"):
            Log.open(directory, config=config, accept_loss=True)
        assert before == {name: directory.read(name, 1 << 20) for name in directory.names()}


def test_a_damaged_partition_goes_on_behind_the_damage_as_metadata_does() -> None:
    directory = MemoryDirectory()
    data_log(directory, 9).close()
    directory.flip_bit(directory.names()[1], 800)

    log = Log.open(directory, config=DATA)

    assert log.end == 9 and [(each.start, each.end) for each in log.damage] == [(4, 6)]


def test_a_log_at_rest_has_no_file_open_and_goes_on_when_it_is_used() -> None:
    directory = MemoryDirectory()
    log = data_log(directory)
    batches = log.read(0, 1 << 20)
    chain = log.shape.chain

    log.rest()

    assert log.read(5, 1) == () and log.chain_at(5) == chain
    assert log.read(0, 1 << 20) == batches
    records = pack_records([DataRecord(9, b"k", b"v")])
    log.append_data(data_payload(records, ProducerStamp(7, 0, 5)), 1, 1, (9, 9))
    assert log.shape.flushed_end == 5
    log.rest()  # not durable yet: stays open
    log.flush()
    log.rest()
    log.close()
    assert Log.open(directory, config=DATA).end == 6


def test_a_segment_can_be_ended_before_it_is_full() -> None:
    directory = MemoryDirectory()
    log = data_log(directory, 2)
    log.roll()
    log.roll()

    assert [name for name in directory.names() if name.endswith(".log")] == [
        "00000000000000000000.log",
        "00000000000000000002.log",
    ]
    assert log.shape.flushed_end == 2
    log.close()
    assert Log.open(directory, config=DATA).end == 2
