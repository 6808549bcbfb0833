"""The tables of a history as views of a Spark session, with views that answer more.

    from snapshots.offline.history.views import register
    register(spark, "/var/history")
    spark.sql("SELECT * FROM outages ORDER BY duration_ms DESC").show()

A view can look beyond the step of a row. Example: a leadership ended with `taken_out` at 812, because the controller was about to
fence broker 101, and the record that fenced 101 is at 1,040. `leader_changes` joins the two, and shows the cause `session_ended`.
The tables themselves cannot: at 812 the log did not say yet why. A view looks ahead for a minute at most: a later fencing has
another cause.
"""

from typing import TYPE_CHECKING, Final

from snapshots.offline.history.storage.directory import LocalTables
from snapshots.offline.history.tables import BROKER_STATES, LEADERSHIP, PARTITION_CONDITIONS, TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FENCINGS: Final = """
    SELECT broker_id, state, reason, from_offset, from_time, coalesce(to_offset, 9223372036854775807) AS to_offset
    FROM broker_states WHERE state IN ('fenced', 'registered', 'unregistered')
"""

LEADER_CHANGES: Final = f"""
    SELECT l.topic, l.topic_id, l.partition, l.leader AS old_leader, l.next_leader AS new_leader, l.leader_epoch,
           l.to_offset AS offset, l.to_time AS time, l.end_reason, l.principal,
           min_by(coalesce(f.reason, f.state), f.from_offset) AS broker_reason,
           CASE WHEN l.end_reason IN ('broker_fenced', 'broker_unregistered', 'taken_out') THEN 'failure'
                WHEN l.end_reason IN ('preferred_leader', 'other_election') THEN 'balancing'
                WHEN l.end_reason IN ('controlled_shutdown', 'maintenance') THEN 'planned'
                WHEN l.end_reason = 'elected' THEN 'recovery'
                ELSE l.end_reason END AS cause
    FROM leadership l LEFT JOIN ({_FENCINGS}) f
      ON f.broker_id = l.leader AND f.to_offset > l.to_offset AND f.from_time <= l.to_time + INTERVAL 1 MINUTE
         AND l.end_reason IN ('broker_fenced', 'broker_unregistered', 'taken_out', 'controlled_shutdown')
    WHERE l.to_offset IS NOT NULL
    GROUP BY ALL
"""

OUTAGES: Final = f"""
    SELECT c.topic, c.topic_id, c.partition, c.from_offset, c.from_time, c.to_offset, c.to_time,
           coalesce(c.duration_ms, unix_millis(e.end_time) - unix_millis(c.from_time)) AS duration_ms,
           c.to_offset IS NULL AS is_open, c.began_before, c.last_leader, c.absent,
           min_by(coalesce(f.reason, f.state), f.from_offset) AS broker_reason
    FROM partition_conditions c CROSS JOIN history_end e LEFT JOIN ({_FENCINGS}) f
      ON f.broker_id = c.last_leader AND f.to_offset > c.from_offset AND f.from_time <= c.from_time + INTERVAL 1 MINUTE
    WHERE c.condition = 'offline'
    GROUP BY ALL
"""

AVAILABILITY: Final = """
    SELECT broker_id, CAST(begin AS DATE) AS date,
           sum(ms) FILTER (WHERE state IN ('online', 'stopping')) AS available_ms, sum(ms) AS known_ms,
           round(100 * coalesce(sum(ms) FILTER (WHERE state IN ('online', 'stopping')), 0) / sum(ms), 3) AS percent
    FROM (
        SELECT broker_id, state, greatest(from_time, midnight) AS begin,
               unix_millis(least(until_time, midnight + INTERVAL 1 DAY)) - unix_millis(greatest(from_time, midnight)) AS ms
        FROM (
            SELECT broker_id, state, from_time, until_time,
                   explode(sequence(date_trunc('DAY', from_time), date_trunc('DAY', until_time), INTERVAL 1 DAY)) AS midnight
            FROM (
                SELECT broker_id, state, from_time, coalesce(to_time, end_time) AS until_time
                FROM broker_states CROSS JOIN history_end
                WHERE coalesce(to_time, end_time) > from_time
            )
        )
    )
    WHERE ms > 0 GROUP BY broker_id, CAST(begin AS DATE)
"""

VIEWS: Final = {
    "leader_changes": (LEADER_CHANGES, {LEADERSHIP, BROKER_STATES}),
    "outages": (OUTAGES, {PARTITION_CONDITIONS, BROKER_STATES}),
    "availability": (AVAILABILITY, {BROKER_STATES}),
}
"""Name -> query, and the tables that it needs."""


def register(spark: "SparkSession", out_dir: str) -> list[str]:
    """Make temporary views of the tables in `out_dir`, a path or a URL, and of the queries above. Returns their names.

    `history_end` has one row with the offset and the time at which the tables end. Tables at a URL are read once, by the first
    question, and Spark keeps their rows: each question would read all of them again.

    Raises:
        HistoryRefused: the directory has no history.
    """
    from snapshots.offline.history.output import HistoryRefused, place_of, read_baseline
    from snapshots.offline.history.storage.parquet_rows import table_rows

    out = place_of(out_dir)
    baseline = read_baseline(out)
    if baseline is None:
        raise HistoryRefused(f"{out_dir} has no history; `quorum-offline history` writes one")
    names = []
    for name in TABLES:
        if name in baseline.tables:
            table_rows(spark, out, name, baseline.run).createOrReplaceTempView(name)
            if not isinstance(out, LocalTables):
                spark.catalog.cacheTable(name)  # by name, so that Spark forgets the rows when the view is replaced
            names.append(name)
    end = f"SELECT {baseline.end.offset}L AS end_offset, timestamp_millis({baseline.end.time_ms}L) AS end_time"
    spark.sql(end).createOrReplaceTempView("history_end")
    for name, (query, needed) in VIEWS.items():
        if needed <= set(names):
            spark.sql(query).createOrReplaceTempView(name)
            names.append(name)
    return [*names, "history_end"]
