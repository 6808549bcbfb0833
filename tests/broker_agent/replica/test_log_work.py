"""A follower's decisions on a real log, and what an error stops."""

import errno
from typing import Any

import pytest

from broker_agent.replica.follower import (
    AppendBatches,
    BatchesRefused,
    BeginAt,
    DiskFailed,
    LogStart,
    RaiseLogStart,
    TruncateLog,
)
from broker_agent.replica.log_work import LogEffect, Scope, carry_out, failure_of
from broker_agent.replica.partition_log import PartitionLog
from metadata_log.disk.failures import FlushFailed
from metadata_log.format.batch import Batch
from metadata_log.format.ids import OffsetAndEpoch
from tests.broker_agent.replica.partition_logs import NOW_MS, SMALL, TOPIC_ID, append, opened
from tests.sim.world.disk import MemoryDirectory


def leaders_batches(count: int = 3, size: int = 20) -> tuple[Batch, ...]:
    leader = opened()
    for _ in range(count):
        append(leader, size=size)
    return leader.read(0, 1 << 30, count)


def done(log: PartitionLog, effect: LogEffect) -> None:
    ticket = carry_out(log, effect, NOW_MS)
    ticket.sync()
    assert log.complete_flush(ticket)
    assert log.shape.flushed_end == log.shape.end


def test_each_decision_of_a_follower_changes_the_log_and_is_flushed() -> None:
    log = opened()
    batches = leaders_batches()

    done(log, AppendBatches(batches))
    assert log.shape.end == 3
    done(log, TruncateLog(2, below_high_watermark=False))
    assert log.shape.end == 2
    done(log, RaiseLogStart(1))
    assert log.shape.start.offset == 1
    done(log, BeginAt(LogStart(70, 4, bytes(32)), below_high_watermark=False))
    assert (log.shape.start, log.shape.end) == (OffsetAndEpoch(70, 4), 70)


def failed(log: PartitionLog, effect: LogEffect) -> tuple[Scope, type[object]]:
    with pytest.raises(Exception) as raised:
        carry_out(log, effect, NOW_MS).sync()
    failure = failure_of(raised.value)
    return failure.scope, type(failure.reason)


def test_batches_that_do_not_fit_and_impossible_cuts_stop_the_replica() -> None:
    log = opened()
    first, second, _ = leaders_batches()
    other = PartitionLog.open(MemoryDirectory(), TOPIC_ID, 9, wall_ms=NOW_MS)
    append(other)

    assert failed(log, AppendBatches((second,))) == (Scope.REPLICA, BatchesRefused)
    assert failed(log, AppendBatches(other.read(0, 1, 1))) == (Scope.REPLICA, BatchesRefused)
    append(log, 4)
    assert failed(log, TruncateLog(2, below_high_watermark=False)) == (Scope.REPLICA, BatchesRefused)
    log.delete_below(4)
    assert failed(log, TruncateLog(1, below_high_watermark=True)) == (Scope.REPLICA, BatchesRefused)
    assert log.shape.end == 4 and first.base_offset == 0


def test_damage_stops_the_replica() -> None:
    directory = MemoryDirectory("/p")
    log = opened(directory)
    append(log, size=200)
    log.flush()
    log.rest()
    directory.flip_bit(directory.names()[0], 150)
    with pytest.raises(Exception) as raised:
        log.read(0, 1, 1)

    assert failure_of(raised.value).scope is Scope.REPLICA
    assert isinstance(failure_of(raised.value).reason, DiskFailed)


def test_a_full_disk_stops_nothing_and_the_rest_is_appended_later() -> None:
    directory = MemoryDirectory("/p")
    log = opened(directory, SMALL._replace(segment_bytes=1_000))
    batches = leaders_batches(4, size=600)
    directory.limit_space(directory.used_bytes + 1_500)

    assert failed(log, AppendBatches(batches)) == (Scope.NOTHING, DiskFailed)

    there = log.shape.end
    assert 0 < there < 4
    directory.limit_space(None)
    done(log, AppendBatches(batches[there:]))
    assert log.shape.end == 4


def test_a_failed_fsync_and_a_removed_directory_stop_the_log_directory() -> None:
    for hurt in (MemoryDirectory.fail_next_flush, MemoryDirectory.vanish):
        directory = MemoryDirectory("/p")
        log = opened(directory)
        do: Any = hurt
        do(directory)
        assert failed(log, AppendBatches(leaders_batches())) == (Scope.LOG_DIRECTORY, DiskFailed)


@pytest.mark.parametrize(
    ("error", "scope"),
    [
        (OSError(errno.ENOSPC, "full"), Scope.NOTHING),
        (OSError(errno.EDQUOT, "full"), Scope.NOTHING),
        (OSError(errno.EIO, "broken"), Scope.LOG_DIRECTORY),
        (OSError(errno.EROFS, "read-only"), Scope.LOG_DIRECTORY),
        (FileNotFoundError("gone"), Scope.LOG_DIRECTORY),
        (FlushFailed("unknown"), Scope.LOG_DIRECTORY),
    ],
)
def test_errors_of_the_disk(error: Exception, scope: Scope) -> None:
    assert failure_of(error).scope is scope


def test_a_mistake_of_the_program_is_no_failure_of_a_log() -> None:
    for mistake in (AssertionError("x"), KeyError("x"), TypeError("x")):
        with pytest.raises(type(mistake)):
            failure_of(mistake)
