"""The facts that the report draws, asked of the tables of a history with Spark SQL.

Each question has a bound, so a page stays small, however long the log is. Example: 400 brokers ran for a year. The page shows the
BROKERS_SHOWN brokers with the lowest availability, and no mark for the state `online`: a track is online where it is empty.
"""

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from snapshots.offline.history.views import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUCKETS: Final = 96
"""Into how many parts the time of the log is divided for counts."""
BROKERS_SHOWN: Final = 30
PARTITIONS_SHOWN: Final = 12
ROWS_SHOWN: Final = 20
ELECTIONS_SHOWN: Final = 50
SPANS_MAX: Final = 4_000
"""Maximum number of marks of one chart."""

Row = dict[str, Any]


class Times(NamedTuple):
    """The time that the history covers, in milliseconds since 1970, and its parts."""

    first_ms: int
    last_ms: int

    @property
    def bucket_ms(self) -> int:
        return max(1, -(-(self.last_ms - self.first_ms + 1) // BUCKETS))


class Facts(NamedTuple):
    """The facts, mostly as rows: column -> value. Times are milliseconds since 1970."""

    times: Times
    end_offset: int
    brokers: list[Row]
    """broker_id, percent; the lowest first."""
    states: list[Row]
    """broker_id, state, reason, from_ms, to_ms; without `online`."""
    outages: list[Row]
    """topic, partition, from_ms, duration_ms, is_open, last_leader, broker_reason; the longest first."""
    outages_total: Row
    """times, partitions, ms."""
    conditions: list[Row]
    """topic, partition, under_replicated_ms, under_min_isr_ms; the longest first."""
    conditions_by_bucket: dict[str, dict[int, int]]
    """Condition -> bucket -> partitions."""
    leaders: list[Row]
    """topic, partition, leader, from_ms, to_ms, changes; of the partitions with the most changes."""
    churn: dict[str, dict[int, int]]
    """Kind of change -> bucket -> number."""
    elections: list[Row]
    """epoch, time_ms, leader_id, previous_leader, gap_ms, why; the newest first."""
    elections_total: int
    growth: list[Row]
    """at_ms, topics, partitions, brokers, records, bytes; a row for a day."""
    largest: list[Row]
    """topic, partitions; the largest first."""


def read_facts(spark: "SparkSession", history_dir: str) -> Facts:
    """Ask the tables in `history_dir`, which must be complete.

    Raises:
        HistoryRefused: the directory has no history.
    """
    register(spark, history_dir)
    ask = _Questions(spark)
    times, end_offset = ask.times()
    return Facts(
        times=times,
        end_offset=end_offset,
        brokers=ask.rows(_BROKERS),
        states=ask.rows(_STATES),
        outages=ask.rows(_OUTAGES),
        outages_total=ask.rows(_OUTAGES_TOTAL)[0],
        conditions=ask.rows(_CONDITIONS),
        conditions_by_bucket=ask.counts(_CONDITIONS_BY_BUCKET, times),
        leaders=ask.rows(_LEADERS),
        churn=ask.counts(_CHURN, times),
        elections=ask.rows(_ELECTIONS),
        elections_total=ask.rows("SELECT count(*) AS n FROM elections")[0]["n"],
        growth=ask.rows(_GROWTH),
        largest=ask.rows(_LARGEST),
    )


class _Questions:
    """Asks one session."""

    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark

    def rows(self, query: str) -> list[Row]:
        found: list[Row] = self._spark.sql(query).toArrow().to_pylist()
        return found

    def times(self) -> tuple[Times, int]:
        row = self.rows(_TIMES)[0]
        return Times(row["first_ms"] if row["first_ms"] is not None else row["last_ms"], row["last_ms"]), row[
            "end_offset"
        ]

    def counts(self, query: str, times: Times) -> dict[str, dict[int, int]]:
        """Ask a query that has `kind`, `bucket` and `count`; {first} and {length} are the time's first and a part's length."""
        found: dict[str, dict[int, int]] = {}
        for row in self.rows(query.format(first=times.first_ms, length=times.bucket_ms)):
            found.setdefault(row["kind"], {})[row["bucket"]] = row["count"]
        return found


_TIMES: Final = """
    SELECT end_offset, unix_millis(end_time) AS last_ms, unix_millis(first) AS first_ms
    FROM history_end CROSS JOIN (
        SELECT min(t) AS first FROM (
            SELECT min(from_time) AS t FROM broker_states UNION ALL SELECT min(from_time) FROM leadership
            UNION ALL SELECT min(time) FROM elections UNION ALL SELECT min(time) FROM changes))
"""

_BROKERS: Final = f"""
    SELECT broker_id, round(100 * sum(coalesce(available_ms, 0)) / sum(known_ms), 3) AS percent
    FROM availability GROUP BY broker_id ORDER BY percent, broker_id LIMIT {BROKERS_SHOWN}
"""

_STATES: Final = f"""
    SELECT broker_id, state, coalesce(reason, '') AS reason,
           unix_millis(from_time) AS from_ms, unix_millis(coalesce(to_time, end_time)) AS to_ms
    FROM broker_states CROSS JOIN history_end
    WHERE state != 'online' ORDER BY to_ms - from_ms DESC LIMIT {SPANS_MAX}
"""

_OUTAGES: Final = f"""
    SELECT topic, partition, unix_millis(from_time) AS from_ms, duration_ms, is_open, last_leader, broker_reason
    FROM outages ORDER BY duration_ms DESC, topic, partition, from_ms LIMIT {ROWS_SHOWN}
"""

_OUTAGES_TOTAL: Final = """
    SELECT count(*) AS times, count(DISTINCT topic_id, partition) AS partitions, coalesce(sum(duration_ms), 0) AS ms FROM outages
"""

_CONDITIONS: Final = f"""
    SELECT topic, partition,
           sum(ms) FILTER (WHERE condition = 'under_replicated') AS under_replicated_ms,
           sum(ms) FILTER (WHERE condition = 'under_min_isr') AS under_min_isr_ms
    FROM (
        SELECT topic, topic_id, partition, condition,
               coalesce(duration_ms, unix_millis(end_time) - unix_millis(from_time)) AS ms
        FROM partition_conditions CROSS JOIN history_end WHERE condition != 'offline')
    GROUP BY topic, topic_id, partition
    ORDER BY under_replicated_ms DESC, topic, partition LIMIT {ROWS_SHOWN}
"""

_CONDITIONS_BY_BUCKET: Final = """
    SELECT condition AS kind, bucket, count(DISTINCT topic_id, partition) AS count
    FROM (
        SELECT condition, topic_id, partition,
               explode(sequence((unix_millis(from_time) - {first}) DIV {length},
                                (unix_millis(coalesce(to_time, end_time)) - {first}) DIV {length})) AS bucket
        FROM partition_conditions CROSS JOIN history_end WHERE from_time <= coalesce(to_time, end_time))
    GROUP BY condition, bucket
"""

_LEADERS: Final = f"""
    WITH most AS (
        SELECT topic_id, partition, count(*) - 1 AS changes FROM leadership
        GROUP BY topic_id, partition ORDER BY changes DESC, topic_id, partition LIMIT {PARTITIONS_SHOWN})
    SELECT topic, partition, leader, changes,
           unix_millis(from_time) AS from_ms, unix_millis(coalesce(to_time, end_time)) AS to_ms
    FROM leadership JOIN most USING (topic_id, partition) CROSS JOIN history_end
    WHERE changes > 0 ORDER BY changes DESC, topic, partition, from_offset LIMIT {SPANS_MAX}
"""

_CHURN: Final = """
    SELECT kind, (unix_millis(time) - {first}) DIV {length} AS bucket, count(*) AS count
    FROM (
        SELECT concat('leader changes: ', cause) AS kind, time FROM leader_changes WHERE cause != 'topic_removed'
        UNION ALL SELECT 'ISR changes', time FROM isr_changes
        UNION ALL SELECT 'config changes', time FROM changes WHERE kind = 'config'
        UNION ALL SELECT concat(if(kind = 'entity', 'entities', 'topics'), ' ', action), time FROM changes
            WHERE kind IN ('topic', 'entity') AND action IN ('created', 'removed'))
    GROUP BY kind, bucket
"""

_ELECTIONS: Final = f"""
    SELECT epoch, unix_millis(time) AS time_ms, leader_id, previous_leader, gap_ms, why
    FROM elections ORDER BY epoch DESC LIMIT {ELECTIONS_SHOWN}
"""

_GROWTH: Final = """
    SELECT unix_millis(CAST(date AS TIMESTAMP)) AS at_ms, topics, partitions, brokers, records, bytes
    FROM growth ORDER BY date
"""

_LARGEST: Final = f"""
    SELECT topic, count(*) AS partitions FROM leadership WHERE to_offset IS NULL
    GROUP BY topic, topic_id ORDER BY partitions DESC, topic LIMIT {ROWS_SHOWN}
"""
