"""Logs of partitions on a disk in memory, and records for them."""

from broker_agent.replica.partition_log import Appended, PartitionLog
from broker_agent.replica.partition_log_config import PartitionLogConfig
from broker_agent.replica.retention import RetentionConfig
from metadata_log.format.data_batch import NO_STAMP, DataRecord, ProducerStamp, RecordSet, pack_records
from tests.sim.world.disk import MemoryDirectory

TOPIC_ID = bytes(range(16))
NOW_MS = 1_700_000_000_000
KEPT_FOR_EVER = RetentionConfig(-1, -1, -1)
SMALL = PartitionLogConfig(segment_bytes=2_000, retention=KEPT_FOR_EVER)


def opened(
    directory: MemoryDirectory | None = None, config: PartitionLogConfig = SMALL, wall_ms: int = NOW_MS
) -> PartitionLog:
    return PartitionLog.open(directory or MemoryDirectory("/p"), TOPIC_ID, 0, wall_ms=wall_ms, config=config)


def records(count: int = 1, size: int = 20, at_ms: int = NOW_MS) -> RecordSet:
    return pack_records([DataRecord(at_ms, b"key", bytes(size)) for _ in range(count)])


def append(
    log: PartitionLog,
    count: int = 1,
    *,
    size: int = 20,
    stamp: ProducerStamp = NO_STAMP,
    epoch: int = 1,
    at_ms: int = NOW_MS,
) -> Appended:
    return log.append(records(count, size, at_ms), stamp, epoch, at_ms)


def copy_all(source: PartitionLog, target: PartitionLog) -> None:
    """Replicate everything that `target` lacks."""
    while batches := source.read(target.shape.end, 3_000, source.shape.end):
        target.append_fetched(batches, NOW_MS)
    target.flush()
