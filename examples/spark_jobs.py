"""The offline jobs in one process with one Spark session: one request on each line of stdin, one answer on each line of stdout.

`quorum-offline` starts Spark for each command. On a log as small as the demo's, the start costs more than the job. This process
starts Spark once and runs the same code. The process ends when its stdin ends.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def answer(spark: "SparkSession", request: dict[str, Any]) -> dict[str, Any]:
    """Runs one job and returns the result."""
    from snapshots.offline.audit.run import audit
    from snapshots.offline.audit.summary import summary
    from snapshots.offline.compaction import compact
    from snapshots.offline.report.page import report_html

    if request["job"] == "compact":
        compacted = compact(spark, request["directory"], request["offset"], request["out"])
        return {"path": compacted.path, "records": compacted.record_count, "digest": compacted.digest.hex()}
    result = audit(spark, request["directories"])
    if request["report"] is not None:
        Path(request["report"]).write_text(report_html(result))
    return summary(result)


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
    answers.write(json.dumps({"version": spark.version, "seconds": time.monotonic() - began}) + "\n")
    for line in sys.stdin:
        try:
            found = answer(spark, json.loads(line))
        except Exception as e:  # any failure of a job is an answer to its request
            found = {"error": f"{type(e).__name__}: {e}"}
        answers.write(json.dumps(found) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
