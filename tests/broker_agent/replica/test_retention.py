"""Retention of whole segments, by time and by size, never above the high watermark."""

import pytest

from broker_agent.replica.retention import RetentionConfig, is_to_end, retained_start
from metadata_log.format.log_shape import SegmentSpan

SEGMENTS = (
    SegmentSpan(0, 100, 1_000, 50),
    SegmentSpan(100, 200, 1_000, 60),
    SegmentSpan(200, 300, 1_000, 70),
    SegmentSpan(300, 350, 500, 80),
)


@pytest.mark.parametrize(
    ("retention_ms", "retention_bytes", "high_watermark", "start"),
    [
        (-1, -1, 350, 0),
        (45, -1, 350, 0),  # at 95, a segment may be as old as 50
        (40, -1, 350, 100),
        (34, -1, 350, 200),
        (34, -1, 199, 100),
        (34, -1, 99, 0),
        (0, -1, 350, 350),
        (0, -1, 349, 300),
        (-1, 3_500, 350, 0),
        (-1, 2_501, 350, 0),
        (-1, 2_500, 350, 100),
        (-1, 0, 350, 350),
        (40, 1_500, 350, 200),
    ],
)
def test_the_start_of_a_log(retention_ms: int, retention_bytes: int, high_watermark: int, start: int) -> None:
    config = RetentionConfig(retention_ms, retention_bytes)
    assert retained_start(SEGMENTS, high_watermark, 95, config) == start


def test_an_empty_active_segment_stays() -> None:
    segments = (*SEGMENTS[:3], SegmentSpan(300, 300, 72, 70))
    assert retained_start(segments, 300, 1_000, RetentionConfig(0, 0)) == 300


def test_a_segment_ends_when_its_first_record_is_old() -> None:
    assert is_to_end(50, 60, RetentionConfig(segment_ms=10))
    assert not is_to_end(51, 60, RetentionConfig(segment_ms=10))
    assert not is_to_end(0, 60, RetentionConfig(segment_ms=-1))
