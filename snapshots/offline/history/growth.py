"""The rows of `growth`: how large the cluster is at the end of each day, and how much the log grew. Days without records have no
row.

The newest day has no `day` in its row: the next run may add to it. So the baseline keeps its numbers. Example: run 1 ends at noon
with 40 records of that day. Run 2 reads 25 more records of the day, and 30 of the next one. It writes the day with 65 records as
final, and the next day as the newest.
"""

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from snapshots.offline.history.folding.intervals import day_of
from snapshots.offline.history.tables import Row

SUMMED: Final = (
    "topics_created",
    "topics_removed",
    "partitions_created",
    "partitions_removed",
    "batches",
    "records",
    "bytes",
)


def growth_rows(
    days: Mapping[dt.date, Mapping[str, int]],
    brokers: Iterable[tuple[int, int]],
    before: Row,
) -> tuple[list[Row], Row]:
    """Return the rows, and what the next run must know.

    `days` has the sums of each day, `brokers` the times at which brokers came (+1) and went (-1). `before` has the sizes
    `topics`, `partitions` and `brokers` where the tables end, and the row `newest` of the newest day, or None.
    """
    sums = {day: Counter(counts) for day, counts in days.items()}
    newest = before["newest"]
    if newest is not None:
        known = sums.setdefault(dt.date.fromisoformat(newest["date"]), Counter())
        known.update({name: newest[name] for name in SUMMED})
        # The sizes in `before` include that day, so the day must not count twice.
    moves: Counter[dt.date] = Counter()
    for time_ms, count in brokers:
        moves[day_of(time_ms)] += count
    topics, partitions, registered = before["topics"], before["partitions"], before["brokers"]
    rows: list[Row] = []
    for day in sorted({*sums, *moves}):
        counts = sums.get(day, Counter())
        new = Counter(days.get(day, {}))
        topics += new["topics_created"] - new["topics_removed"]
        partitions += new["partitions_created"] - new["partitions_removed"]
        registered += moves[day]
        sizes = {"topics": topics, "partitions": partitions, "brokers": registered}
        rows.append({"date": day, **sizes, **{name: counts[name] for name in SUMMED}, "day": day})
    if rows:
        rows[-1]["day"] = None
    last = {**rows[-1], "date": rows[-1]["date"].isoformat()} if rows else newest
    return rows, {"topics": topics, "partitions": partitions, "brokers": registered, "newest": last}
