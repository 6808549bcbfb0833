"""Retention: the offset from which a partition keeps its records. Pure.

A log deletes whole segments, oldest first, and only below the high watermark, as Kafka does:
  * by time: a segment whose newest record is older than `retention.ms`. The time of a record is the timestamp of its producer;
  * by size: a segment without which the log still has `retention.bytes`.

Example: the segments begin at the offsets 0, 100 and 200, each has 1 MiB, and the log ends at 250; `retention.bytes` is 1.5 MiB.
  1. Without the first segment, 2 MiB are left: it is deleted.
  2. Without the second segment, 1 MiB would be left, less than 1.5 MiB. So the log starts at 100.

*The active segment*, to which the log appends, is deleted too if it is too old. The log begins a new segment first. A segment
also ends when its first record is older than `segment.ms`, so that a partition with few records deletes them in time.
"""

from collections.abc import Sequence
from typing import NamedTuple

from metadata_log.format.ids import Offset
from metadata_log.format.log_shape import SegmentSpan


class RetentionConfig(NamedTuple):
    """The limits of one topic. -1: no limit."""

    retention_ms: int = 7 * 24 * 3_600_000
    retention_bytes: int = -1
    segment_ms: int = 7 * 24 * 3_600_000
    """How long a segment is appended to, by the timestamp of its first record."""


def retained_start(
    segments: Sequence[SegmentSpan], high_watermark: Offset, wall_ms: int, config: RetentionConfig
) -> Offset:
    """Return the offset from which the log keeps its records: the base of a segment, or the end of the last one."""
    surplus = sum(each.size_bytes for each in segments) - config.retention_bytes
    for each in segments:
        is_old = config.retention_ms >= 0 and each.last_timestamp_ms < wall_ms - config.retention_ms
        surplus -= each.size_bytes
        is_surplus = config.retention_bytes >= 0 and surplus >= 0
        if not (is_old or is_surplus) or each.end_offset > high_watermark or each.base_offset == each.end_offset:
            return each.base_offset
    return segments[-1].end_offset


def is_to_end(first_timestamp_ms: int, wall_ms: int, config: RetentionConfig) -> bool:
    """Return True if the active segment, whose first batch has this timestamp, is to end now."""
    return config.segment_ms >= 0 and first_timestamp_ms <= wall_ms - config.segment_ms
