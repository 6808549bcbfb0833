"""The log's part of a follower's decisions, and what stops after an error of a log.

    1. `PartitionFollower` decides `AppendBatches`; `carry_out` appends them and returns a flush ticket;
    2. a worker runs `ticket.sync()`, for many partitions at once;
    3. `PartitionLog.complete_flush(ticket)`, then `PartitionFollower.log_changed(log.shape)`.

An error stops as little as possible (`failure_of`):

| error | what stops |
|---|---|
| the disk, or a quota, is full | nothing: the follower fetches again after a pause, and a leader refuses the append |
| batches that do not fit, damage, the log of another partition | the replica |
| any other error of the disk; a failed fsync; a directory that was removed | the log directory |
| the same in the last log directory | the broker: the caller knows |
"""

from enum import Enum
from typing import NamedTuple, TypeAlias, assert_never

from broker_agent.replica.follower import (
    AppendBatches,
    BatchesRefused,
    BeginAt,
    DiskFailed,
    RaiseLogStart,
    StopReason,
    TruncateLog,
)
from broker_agent.replica.partition_log import PartitionLog
from broker_agent.replica.producers import PartitionRefused
from metadata_log.disk.failures import FlushFailed, is_full
from metadata_log.disk.flush_ticket import FlushTicket
from metadata_log.format.errors import CorruptLog, LogFormatError
from metadata_log.format.ids import OffsetAndEpoch

LogEffect: TypeAlias = AppendBatches | TruncateLog | BeginAt | RaiseLogStart
"""The decisions of a follower that change its log."""


class Scope(Enum):
    """What an error of a log stops."""

    NOTHING = "nothing"
    REPLICA = "replica"
    LOG_DIRECTORY = "log directory"


class LogFailure(NamedTuple):
    """An error of a log: what stops, and the reason in the follower's words."""

    scope: Scope
    reason: StopReason


def carry_out(log: PartitionLog, effect: LogEffect, wall_ms: int) -> FlushTicket:
    """Change the log as the follower has decided. Return the ticket of the flush that must follow.

    Raises:
        LogFormatError, PartitionRefused, OSError, FlushFailed: see `failure_of`. `log.shape` tells what was done.
    """
    match effect:
        case AppendBatches(batches):
            log.append_fetched(batches, wall_ms)
        case TruncateLog(end):
            log.truncate(end, wall_ms)
        case BeginAt(start):
            log.begin_at(OffsetAndEpoch(start.offset, start.epoch), start.chain)
        case RaiseLogStart(offset):
            log.delete_below(offset)
        case _:
            assert_never(effect)
    return log.begin_flush()


def failure_of(error: Exception) -> LogFailure:
    """Say what an error stops that a method of `PartitionLog`, or `FlushTicket.sync`, has raised.

    Raises:
        Exception: `error` itself, if it is no error of a log: a mistake of this program.
    """
    match error:
        case CorruptLog():
            return LogFailure(Scope.REPLICA, DiskFailed(str(error)))
        case LogFormatError() | PartitionRefused():
            return LogFailure(Scope.REPLICA, BatchesRefused(str(error)))
        case OSError() if is_full(error):
            return LogFailure(Scope.NOTHING, DiskFailed(str(error)))
        case OSError() | FlushFailed():
            return LogFailure(Scope.LOG_DIRECTORY, DiskFailed(str(error)))
    raise error
