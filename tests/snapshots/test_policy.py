"""The rules for making and deleting snapshots."""

import pytest

from metadata_log.format.ids import OffsetAndEpoch
from snapshots.policy import MarkPolicy, RetentionPolicy, SnapshotSize


@pytest.mark.parametrize(
    ("bytes_since", "ms_since", "is_due"),
    [(0, 10**9, False), (1, 59, False), (1, 60, True), (99, 0, False), (100, 0, True), (0, 0, False)],
)
def test_a_mark_is_due_by_bytes_or_by_time_and_never_while_idle(bytes_since: int, ms_since: int, is_due: bool) -> None:
    assert (MarkPolicy(bytes_between=100, interval_ms=60).due(bytes_since, ms_since) is not None) is is_due


def test_time_alone_can_be_switched_off() -> None:
    assert MarkPolicy(bytes_between=100, interval_ms=0).due(99, 10**12) is None


def sizes(*rows: tuple[int, int, int]) -> list[SnapshotSize]:
    return [SnapshotSize(OffsetAndEpoch(offset, 1), size, ms) for offset, size, ms in rows]


def test_a_log_a_little_over_the_limit_keeps_nearly_all_of_its_history() -> None:
    """Each deleted snapshot takes its share of the log with it; only as many as necessary are deleted."""
    snapshots = sizes((100, 5, 0), (200, 5, 1), (300, 5, 2), (400, 5, 3), (500, 5, 4))
    assert RetentionPolicy(max_bytes=400).expired(snapshots, log_bytes=400) == (OffsetAndEpoch(100, 1),)


def test_age_is_the_logs_own() -> None:
    snapshots = sizes((1, 1, 0), (2, 1, 500), (3, 1, 1_000), (4, 1, 1_001))
    assert RetentionPolicy(max_age_ms=600).expired(snapshots, 0) == (OffsetAndEpoch(1, 1),)
    assert RetentionPolicy(max_age_ms=0, max_bytes=0).expired(snapshots[:1], 10**9) == ()
    assert RetentionPolicy().expired([], 10**12) == ()
