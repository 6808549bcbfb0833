"""The file of high watermarks: the old one or the new one after any crash, and never a wrong number."""

import contextlib
from random import Random

import pytest

from broker_agent.replica.high_watermarks import HIGH_WATERMARKS_NAME, read_high_watermarks, write_high_watermarks
from broker_agent.replica.log_directory import ReplicaPlace
from metadata_log.format.errors import LogFormatError
from tests.sim.world.disk import MemoryDirectory, PowerCut

FIRST = {ReplicaPlace(bytes(range(16)), 0): 5, ReplicaPlace(bytes(16), (1 << 31) - 1): (1 << 63) - 1}
SECOND = {ReplicaPlace(bytes(16), 0): 0}


def test_what_was_written_reads_back() -> None:
    directory = MemoryDirectory()
    assert read_high_watermarks(directory) == {}
    for high_watermarks in (FIRST, SECOND, {}):
        write_high_watermarks(directory, high_watermarks)
        assert read_high_watermarks(directory) == high_watermarks


@pytest.mark.parametrize("seed", range(10))
def test_a_crash_leaves_the_old_file_or_the_new_one(seed: int) -> None:
    for operations in range(1, 5):
        directory = MemoryDirectory()
        write_high_watermarks(directory, FIRST)
        directory.cut_power_after(operations)
        with contextlib.suppress(PowerCut):
            write_high_watermarks(directory, SECOND)
        assert read_high_watermarks(directory.crash(Random(seed))) in (FIRST, SECOND)


def test_every_flipped_bit_and_every_cut_is_noticed() -> None:
    directory = MemoryDirectory()
    write_high_watermarks(directory, FIRST)
    data = directory.read(HIGH_WATERMARKS_NAME, 1_000)
    damaged = [data[:length] for length in range(len(data))] + [data + b"\0"]
    damaged += [
        data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :] for at in range(len(data)) for bit in range(8)
    ]
    for each in damaged:
        directory.write_atomic(HIGH_WATERMARKS_NAME, each)
        with pytest.raises(LogFormatError, match="begin at the start of the logs"):
            read_high_watermarks(directory)
