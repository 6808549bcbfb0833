"""Numbers that code adds to while it works, and that a metrics page shows: counters and histograms.

Both are plain Python objects without locks: one addition costs about 0.2 us. One thread adds to a series; any thread reads.

    fetches = Counter("voter", "broker")       # a counter with one label, and the two series that are shown from the start
    fetches.add(1, "voter")

    turn_seconds = Histogram(LATENCY_BUCKETS_S)
    turn_seconds.observe(0.0004)

`service_kit.process.metrics` says under which name each is shown.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, TypeAlias

Labels: TypeAlias = tuple[str, ...]
"""The values of a series' labels, in the order of the label names in the table of metrics."""

LATENCY_BUCKETS_S: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Upper bounds of histogram buckets, from a fast disk's fsync to a very slow one's."""
WORK_BUCKETS_S: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1)
"""Upper bounds of histogram buckets for work that should never take long, such as a turn."""
LONG_BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of histogram buckets for work in the background, such as writing a snapshot."""


class Counter:
    """A number that only grows, or one such number for each combination of label values."""

    __slots__ = ("values",)

    def __init__(self, *series: str | Labels) -> None:
        """`series` are the label values that are shown as 0 from the start; without any, the counter has no labels."""
        names = [(each,) if isinstance(each, str) else each for each in series] or [()]
        self.values: dict[Labels, float] = dict.fromkeys(names, 0)

    @classmethod
    def by_labels(cls) -> "Counter":
        """A counter with labels whose values are not known in advance: a series appears with its first addition."""
        counter = cls()
        counter.values.clear()
        return counter

    def add(self, amount: float = 1, *labels: str) -> None:
        """Adds `amount`, which is not negative, to the series with these label values."""
        self.values[labels] = self.values.get(labels, 0) + amount

    @property
    def total(self) -> float:
        """The sum of all series."""
        return sum(self.values.values())


class Series:
    """One series of a histogram: how many observations fell into each bucket (the last: above all bounds), and their sum."""

    __slots__ = ("counts", "sum")

    def __init__(self, buckets: int) -> None:
        self.counts = [0] * (buckets + 1)
        self.sum = 0.0


class Histogram:
    """A distribution of observations over fixed buckets, for each combination of label values."""

    __slots__ = ("buckets", "series")

    def __init__(self, buckets: Sequence[float], *series: str) -> None:
        """`buckets` are upper bounds, ascending; `series` as in `Counter`, for one label."""
        assert list(buckets) == sorted(set(buckets)), buckets
        self.buckets = tuple(buckets)
        names: list[Labels] = [(each,) for each in series] or [()]
        self.series: dict[Labels, Series] = {name: Series(len(self.buckets)) for name in names}

    @classmethod
    def by_labels(cls, buckets: Sequence[float]) -> "Histogram":
        """A histogram with labels whose values are not known in advance: a series appears with its first observation."""
        histogram = cls(buckets)
        histogram.series.clear()
        return histogram

    def observe(self, value: float, *labels: str) -> None:
        """Adds one observation to the series with these label values."""
        series = self.series.get(labels)
        if series is None:
            series = self.series[labels] = Series(len(self.buckets))
        series.counts[bisect_left(self.buckets, value)] += 1
        series.sum += value

    @property
    def count(self) -> int:
        """How many observations there are in all series."""
        return sum(sum(each.counts) for each in self.series.values())
