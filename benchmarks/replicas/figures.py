"""The figures of one load, of either side."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple


class Throughput(NamedTuple):
    """All producers together, at full speed. MB are of records' values: 1 MB is 1,000,000 bytes."""

    records_per_s: float
    mb_per_s: float


class Latency(NamedTuple):
    """From the sending of a record to its acknowledgement, at a fixed rate."""

    p50_ms: float
    p99_ms: float


class Recovery(NamedTuple):
    """Seconds from the kill of a leader to the first acknowledged append, over all its partitions."""

    partitions: int
    first_s: float
    p50_s: float
    last_s: float


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that `percent` of 100 values are not above."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def recovery_of(seconds: Sequence[float]) -> Recovery:
    """The figures of one kill."""
    return Recovery(len(seconds), min(seconds), statistics.median(seconds), max(seconds))
