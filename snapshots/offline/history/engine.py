"""The Spark side of a run: the rows of the log with those of the state before them, and the passes over them."""

import datetime as dt
import json
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from snapshots.offline.history.folding.broker_history import ENTITIES, BrokerHistory, StepRecords
from snapshots.offline.history.folding.steps import Step, Steps
from snapshots.offline.history.folding.task import Task, record_of, steps_in
from snapshots.offline.history.log_rows import LOG_ROWS
from snapshots.offline.history.output import Baseline, HistoryRefused, files_of_state
from snapshots.offline.history.pieces import PIECES, Piece, units_of
from snapshots.offline.history.storage.directory import TablesDirectory
from snapshots.offline.history.storage.kept_rows import rows_in
from snapshots.offline.history.storage.parquet_rows import parquet_rows
from snapshots.offline.history.tables import COUNTS, STATE, Row
from snapshots.offline.history.topic_packs import EntityRow
from snapshots.offline.history.writer import PASSED, STATE_SCHEMA, UNITS, WRITTEN, TaskMerge, TaskPass
from snapshots.offline.rows import FROM_SNAPSHOT
from snapshots.offline.typed.arrow_schema import spark_schema_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MERGE_TASKS: Final = 64
"""Maximum number of tasks of the merge."""
_TOPIC_PREFIX: Final = '["topic",'
Written = dict[str, tuple[int, int]]
"""For each table the numbers of final rows and of open rows."""


def with_state(spark: "SparkSession", rows: "DataFrame", out: TablesDirectory, last: Baseline) -> "DataFrame":
    """Return the rows of the log, behind those of the state that the run `last` has left.

    Raises:
        HistoryRefused: files of the state are missing or damaged.
    """
    from pyspark.sql import functions as f

    names = files_of_state(out, last.run)
    found = sum(_whole_rows(out, name) for name in names)
    if found != last.state_rows:
        raise HistoryRefused(
            f"{out}/{STATE} has {found} of the {last.state_rows} rows of run {last.run}: files are missing or strange; make the "
            "tables anew in another directory"
        )
    if not names:
        return rows
    state = parquet_rows(spark, out, names, STATE_SCHEMA)
    columns = [
        f.col(field.name)
        if field.name in STATE_SCHEMA.names
        else f.lit(0 if field.name in ("step", "epoch", "time_ms", "size") else None)
        .cast(spark_schema_of([field])[0].dataType)
        .alias(field.name)
        for field in LOG_ROWS
    ]
    return state.select(*columns).unionByName(rows)


def _whole_rows(out: TablesDirectory, name: str) -> int:
    """Return the number of rows in a file of the state. Raises HistoryRefused: the file is damaged."""
    try:
        with out.source(name) as source:
            return rows_in(source, STATE_SCHEMA)
    except ValueError as e:
        raise HistoryRefused(
            f"{out}/{name} is damaged ({e!s:.200}); make the tables anew in another directory"
        ) from None


def broker_pass(
    rows: "DataFrame", steps: Steps, begin: Step, open_rows: Iterable[Row], *, goes_on: bool
) -> tuple[BrokerHistory, list[Row]]:
    """Run the pass over the brokers; return it, and the intervals that ended."""
    from pyspark.sql import functions as f

    kind = f.get_json_object("entity", "$[0]")
    needed = rows.where(f.col("entity").startswith("[") & kind.isin(*ENTITIES))
    ordered = needed.select(*EntityRow._fields).orderBy("generation", "offset", "entity").toLocalIterator()
    entity_rows = (EntityRow(*row)._replace(payload=bytes(row["payload"])) for row in ordered)
    history, waiting = BrokerHistory(), list(open_rows)
    closed: list[Row] = []
    is_loaded = False
    for generation, group in groupby(entity_rows, key=lambda row: row.generation):
        if generation == FROM_SNAPSHOT:
            history.load(((row.offset, record_of(row)) for row in group), waiting, begin, goes_on=goes_on)
            is_loaded = True
            continue
        if not is_loaded:
            history.load((), waiting, begin, goes_on=goes_on)
            is_loaded = True
        for step, records in steps_in(group, steps):
            closed += history.step(StepRecords(step, tuple(records)))
    if not is_loaded:
        history.load((), waiting, begin, goes_on=goes_on)
    return history, closed


def sizes_of_state(rows: "DataFrame") -> tuple[int, int]:
    """Return the numbers of topics and partitions in the state."""
    from pyspark.sql import functions as f

    topics = rows.where((f.col("generation") == FROM_SNAPSHOT) & f.col("entity").startswith(_TOPIC_PREFIX))
    found = topics.agg(f.count("*").alias("records"), f.countDistinct("entity").alias("topics")).collect()[0]
    return found["topics"], found["records"] - found["topics"]


class Passed(NamedTuple):
    """The rows that the large pass has written, and its counts."""

    written: Written
    counts: dict[dt.date, Row]
    """Topics and partitions that came and went, of each day."""
    state_rows: int


def large_pass(spark: "SparkSession", rows: "DataFrame", task: Task, staging: TablesDirectory, run: int) -> Passed:
    """Run the pass over all entities, and write the staged files."""
    from pyspark.sql import functions as f

    entities = rows.where(f.col("entity").startswith("[")).select(*EntityRow._fields)
    ordered = entities.repartition("entity").sortWithinPartitions("entity", "generation", "offset")
    answers = ordered.mapInArrow(TaskPass(task, staging, run), spark_schema_of(PASSED)).collect()
    counts: dict[dt.date, Row] = {}
    state_rows = 0
    pieces: list[Piece] = []
    for row in answers:
        if row["table"] == COUNTS:
            _add_counts(counts, json.loads(row["counts"]))
        elif row["table"] == STATE:
            state_rows += row["rows"]
        else:
            pieces.append(Piece(*row[:-1]))
    written: Written = dict.fromkeys(task.tables, (0, 0)) | _merge(spark, pieces, staging, run)
    return Passed(written, counts, state_rows)


def _merge(spark: "SparkSession", pieces: Iterable[Piece], staging: TablesDirectory, run: int) -> Written:
    """Merge the pieces to the files of their days."""
    from pyspark.sql import functions as f

    units = [(number, json.dumps(unit)) for number, unit in enumerate(units_of(pieces))]
    if not units:
        return {}
    planned = spark.createDataFrame(units, spark_schema_of(UNITS)).repartition(min(len(units), MERGE_TASKS))
    written = planned.mapInArrow(TaskMerge(staging, run), spark_schema_of(WRITTEN))
    answers = written.groupBy("table").agg(f.sum("final").alias("final"), f.sum("open").alias("open")).collect()
    staging.remove_all(PIECES)
    return {row["table"]: (row["final"], row["open"]) for row in answers}


def _add_counts(counts: dict[dt.date, Row], more: Mapping[str, int]) -> None:
    for name, count in more.items():
        day, column = name.split(" ")
        known = counts.setdefault(dt.date.fromisoformat(day), {})
        known[column] = known.get(column, 0) + count
