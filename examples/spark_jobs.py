"""The offline jobs in one process with one Spark session: one request on each line of stdin, one answer on each line of stdout.

`quorum-offline` starts Spark for each command. On a log as small as the demo's, the start costs more than the job. This process
starts Spark once and runs the same code. The process ends when its stdin ends.
"""

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from snapshots.offline.audit.result import AuditResult

ROWS_MAX = 1000
"""Maximum number of rows of an answer."""


class Jobs:
    """The jobs of the demo, in the order in which the demo asks for them."""

    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark
        self._audited: AuditResult | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Runs one job and returns the result."""
        match request["job"]:
            case "compact":
                return self._compact(request)
            case "history":
                return self._history(request)
            case _:
                return self._audit(request)

    def _compact(self, request: dict[str, Any]) -> dict[str, Any]:
        from snapshots.offline.compaction import compact

        made = compact(self._spark, request["directory"], request["offset"], request["out"])
        return {"path": made.path, "records": made.record_count, "digest": made.digest.hex()}

    def _audit(self, request: dict[str, Any]) -> dict[str, Any]:
        from snapshots.offline.audit.run import audit
        from snapshots.offline.audit.summary import summary

        self._audited = audit(self._spark, request["directories"])
        return summary(self._audited)

    def _history(self, request: dict[str, Any]) -> dict[str, Any]:
        """Writes the tables of a history, and the report of it and the last audit; asks the tables the questions."""
        from snapshots.offline.history.views import register
        from snapshots.offline.query.answers import as_document, ask
        from snapshots.offline.report.run import write_report

        write_report(self._spark, request["directories"], request["report"], request["out"], audited=self._audited)
        register(self._spark, request["out"])
        answers = [
            as_document(ask(self._spark, text, ROWS_MAX, as_text=False))["rows"] for text in request["questions"]
        ]
        return {"answers": answers}


def main() -> None:
    """Answers requests until stdin ends."""
    # Spark and Java write to stdout too, so answers have a descriptor of their own.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    from snapshots.offline.java import JavaNotFound
    from snapshots.offline.session import start_session

    began = time.monotonic()
    try:
        spark = start_session("local[2]", app_name="metaquorum demo", shuffle_partitions=2)
    except JavaNotFound as e:
        answers.write(json.dumps({"error": str(e)}) + "\n")
        return
    jobs = Jobs(spark)
    answers.write(json.dumps({"version": spark.version, "seconds": time.monotonic() - began}) + "\n")
    for line in sys.stdin:
        try:
            found = jobs.answer(json.loads(line))
        except Exception as e:  # any failure of a job is an answer to its request
            found = {"error": f"{type(e).__name__}: {e}"}
        answers.write(json.dumps(found) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
