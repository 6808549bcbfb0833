"""A straight line through the last days of a growth: what the next months bring if the pace stays.

Example: a cluster had 900 partitions 30 days ago, and has 1,200 now. The line rises by 10 a day, so the page says 1,500 in 30
days. A cluster that is younger than DAYS_MIN has no line: its first days are the days of its setup.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

DAY_MS: Final = 86_400_000
DAYS_MIN: Final = 7
DAYS_USED: Final = 60
"""The line goes through so many days at most, so that an old cluster is judged by its last pace."""


class Line(NamedTuple):
    """A straight line: the value at the last day, and its change for each day."""

    days: int
    """How many days the line has seen."""
    end: float
    a_day: float

    def after(self, days: int) -> int:
        """Return the value so many days after the last one, at least 0."""
        return max(0, round(self.end + days * self.a_day))


def line_of(points: Sequence[tuple[int, float]]) -> Line | None:
    """Return the line through daily values (time in milliseconds, value), in order; None if they are too few.

    A day without a row has the value of the day before.
    """
    if not points:
        return None
    values: list[float] = []
    last_ms, last = points[0]
    for at_ms, value in points:
        values += [last] * ((at_ms - last_ms) // DAY_MS - 1)
        values.append(value)
        last_ms, last = at_ms, value
    values = values[-DAYS_USED:]
    if len(values) < DAYS_MIN:
        return None
    middle = (len(values) - 1) / 2
    mean = sum(values) / len(values)
    slope = sum((day - middle) * (value - mean) for day, value in enumerate(values)) / sum(
        (day - middle) ** 2 for day in range(len(values))
    )
    return Line(len(values), values[-1], slope)
