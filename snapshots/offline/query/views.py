"""The views that a question can name: those of a node's log, or those of the tables of a history.

    directory of a node         records, batches, entities, snapshots, activity, and a typed view for each record type
    directory of a history      its tables, leader_changes, outages, availability, history_end

A view of a log costs a start of Python, because Spark asks the source for the columns. So only the views that the question names
are made. Example: `SELECT name FROM topic` has the words select, name, from and topic, and only `topic` is a view.
"""

import json
import re
from typing import TYPE_CHECKING, Final

from snapshots.offline.history.views import register
from snapshots.offline.reading.ends import Ends
from snapshots.offline.schema import TABLES
from snapshots.offline.typed.columns import CLASSES, schema_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FOR_JOBS: Final = ("packed", "stretches")
"""Tables of the source that no person reads."""
_WORD: Final = re.compile(r"\w+")


def views_of_log() -> dict[str, list[str]]:
    """Return the name of each view of a log, and its columns."""
    tables = {name: [column.name for column in table] for name, table in TABLES.items() if name not in _FOR_JOBS}
    return tables | {name: schema_of(cls).names for name, cls in sorted(CLASSES.items())}


def views_of_history(spark: "SparkSession", directory: str) -> dict[str, list[str]]:
    """Make the views of a history, and return the name of each, and its columns.

    Raises:
        HistoryRefused: the directory has no history.
    """
    return {name: spark.table(name).columns for name in register(spark, directory)}


def register_log(spark: "SparkSession", directory: str, question: str, ends: Ends) -> None:
    """Make temporary views of the log in `directory`, those that the question names. All of them end at the end in `ends`."""
    until = json.dumps({path: end for path, end in ends.items() if end is not None})
    words = {word.lower() for word in _WORD.findall(question)}
    for name in views_of_log():
        if name.lower() in words:
            log = spark.read.format("metadata_log").option("path", directory)
            log.option("mode", name).option("until", until).load().createOrReplaceTempView(name)
