"""A leader with a wild clock: the jobs end with their results, and tables and pages show a time that calendars have."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from snapshots.offline.audit.run import audit
from snapshots.offline.report.run import write_report
from snapshots.offline.rows import TIME_MAX_MS, TIME_MIN_MS, time_us
from tests.snapshots.nodes import Node, flip, segments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_time_becomes_the_nearest_that_a_calendar_has() -> None:
    assert time_us(1_700_000_000_000) == 1_700_000_000_000_000
    assert time_us(1 << 62) == TIME_MAX_MS * 1_000
    assert time_us(-(1 << 62)) == TIME_MIN_MS * 1_000
    assert datetime.fromtimestamp(TIME_MAX_MS / 1_000, UTC).year == 9999


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_jobs_end_with_their_results(spark: "SparkSession", tmp_path: Path) -> None:
    """From the middle of the log on, the time is far behind the year 9999. The log has no finding. With a flipped bit the audit
    reads one row for each batch, and the damage is the only finding. The page of the report can be read.
    """
    node = Node(tmp_path / "node", 3).live(5)
    node.wall_ms = 1 << 62
    node.live(5)
    node.write_out()
    node.journal.flush()
    made = write_report(spark, [str(node.path)], str(tmp_path / "page.html"), uncommitted=True)
    assert (tmp_path / "page.html").read_text().endswith("</html>\n")
    assert made.audit.is_clean
    last = segments(node.path)[-1]
    flip(last, 100)
    found = audit(spark, [str(node.path)]).findings
    assert {each.file for each in found} == {last.name}
