"""The report: what a history shows on the page, and that any phone can read it."""

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from snapshots.offline.audit.findings import Neighbour, error
from snapshots.offline.audit.result import AuditResult
from snapshots.offline.history.output import read_baseline
from snapshots.offline.history.storage.directory import LocalTables, StoreRefused
from snapshots.offline.report.charts import Curve, Series, Span, activity, curves, timeline
from snapshots.offline.report.facts import BUCKETS, Facts, Times, read_facts
from snapshots.offline.report.forecast import DAY_MS, DAYS_MIN, line_of
from snapshots.offline.report.html import duration, table, time_text
from snapshots.offline.report.page import report_html
from snapshots.offline.report.run import write_report
from tests.snapshots.report.page import read_page
from tests.snapshots.tables.conftest import write_story

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR_MS = 3_600_000
NOTHING = AuditResult((), {}, (), (), (), None, None, None)
TIMES = Times(0, 10 * DAY_MS)


def facts(**changed: Any) -> Facts:
    """A history of 10 days without events, but `changed`."""
    empty: dict[str, Any] = {name: [] for name in Facts._fields}
    empty |= {"times": TIMES, "end_offset": 10, "outages_total": {"times": 0, "partitions": 0, "ms": 0}}
    empty |= {"conditions_by_bucket": {}, "churn": {}, "elections_total": 0}
    return Facts(**{**empty, **changed})


def test_a_history_without_events_says_so() -> None:
    page = read_page(report_html(NOTHING, facts()))
    assert "No partition was ever without a leader." in page.text
    assert "availability" not in page.anchors and "growth" not in page.anchors


def test_names_of_a_log_are_text_and_never_html() -> None:
    evil = "<script>alert(1)</script>"
    row = {"topic": evil, "partition": 0, "leader": 1, "from_ms": 0, "to_ms": 5, "changes": 1}
    lost = {"from_ms": 0, "duration_ms": 5, "is_open": True, "last_leader": 1, "broker_reason": evil}
    finding = error("record-misfit", evil, entity=evil)._replace(records=(Neighbour(1, evil, evil),))
    told = facts(
        leaders=[row],
        largest=[{"topic": evil, "partitions": 3}],
        outages=[{**row, **lost}],
        outages_total={"times": 1, "partitions": 1, "ms": 5},
    )
    page = read_page(report_html(NOTHING._replace(findings=(finding,)), told))
    assert page.text.count("alert(1)") >= 6


def test_every_finding_and_section_has_an_address() -> None:
    found = tuple(error("offset-gap", f"finding {number}", offset=number) for number in range(3))
    page = read_page(report_html(NOTHING._replace(findings=found), facts()))
    assert {"findings", "finding-1", "finding-3", "outages", "nodes", "rules"} <= page.anchors
    assert {"findings", "outages", "nodes"} <= page.links  # the table of contents


def test_a_mark_begins_and_ends_where_the_state_did() -> None:
    """Broker 3 was fenced for the fourth of 10 days. A mark of before the log is cut at its start."""
    span = Span("broker 3", 3 * DAY_MS, 4 * DAY_MS, "fenced", "fenced")
    assert 'class="fenced" style="left:30.000%;width:10.000%"' in timeline([span], *TIMES)
    early = Span("broker 3", -DAY_MS, DAY_MS, "fenced", "fenced")
    assert "left:0.000%;width:10.000%" in timeline([early], *TIMES)


def test_charts_of_nothing_and_of_one_moment_are_drawn() -> None:
    read_page(timeline([], 5, 5, [("broker 1", "100 %")]) + activity([Series("x", {})], 5, 1, BUCKETS))
    read_page(curves([Curve("partitions", [(5, 0.0)], "0"), Curve("topics", [], "0")], 5, 5))
    assert 'points="0.00,2.00 100.00,2.00"' in curves([Curve("partitions", [(5, 7.0)], "7")], 5, 15)
    assert duration(None) == "–" and duration(90_000) == "1.5 min"


def test_a_cell_on_a_phone_has_the_heading_of_its_column() -> None:
    assert '<td class="n" data-label="epoch">7</td>' in table(("#epoch", ""), [("7", "x")])
    assert "<td>x</td>" in table(("#epoch", ""), [("7", "x")])


def test_a_forecast_goes_through_the_last_days() -> None:
    """900 partitions 30 days ago and 1,200 now: 1,500 in 30 days. Days without rows keep the value of the day before."""
    grown = [(day * DAY_MS, 900.0 + 10 * day) for day in range(31)]
    line = line_of(grown)
    assert line is not None and line.after(30) == 1_500
    assert line_of(grown[: DAYS_MIN - 1]) is None
    still = line_of([(0, 5.0), (9 * DAY_MS, 5.0)])
    assert still is not None and still.days == 10 and still.after(365) == 5
    shrinking = line_of([(day * DAY_MS, 10.0 - day) for day in range(10)])
    assert shrinking is not None and shrinking.after(365) == 0


def test_any_growth_gives_a_line_without_an_error() -> None:
    dice = random.Random(7)
    for _ in range(200):
        days = sorted(dice.sample(range(500), dice.randrange(1, 80)))
        line_of([(day * DAY_MS, float(dice.randrange(1_000_000))) for day in days])


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_report_of_the_story_shows_what_happened(spark: "SparkSession", tmp_path: Path) -> None:
    """The story of docs/history.md: two outages of payments-0, three elections, and the topic `audit` is the largest."""
    write_story(tmp_path / "story")
    out, history = tmp_path / "report.html", tmp_path / "history"
    made = write_report(spark, [str(tmp_path / "story")], str(out), str(history))
    page = read_page(out.read_text())
    assert made.history.outages_total == {"times": 2, "partitions": 1, "ms": 2_920_000}
    assert [(row["epoch"], row["why"]) for row in made.history.elections][-1] == (1, "first_known")
    assert made.history.elections_total == 3
    assert made.history.largest[0] == {"topic": "audit", "partitions": 6}
    assert {row["broker_id"]: row["percent"] < 100 for row in made.history.brokers} == {101: True, 102: True, 103: True}
    assert {"fenced", "stopping", "waiting"} <= page.classes
    for told in ("payments-0", "28.3 min", "session ended", "leader changes: failure", "partitions in 30 days"):
        assert told in page.text, told
    assert read_facts(spark, str(history)) == made.history  # the tables stay, and answer the same


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_page_that_cannot_be_written_leaves_complete_tables(spark: "SparkSession", tmp_path: Path) -> None:
    """The job said that it wrote no result, though the tables had a run more."""
    write_story(tmp_path / "story")
    history, page = tmp_path / "history", tmp_path / "nowhere" / "report.html"
    told = rf"{page}.*\. The page was not written, and the tables in {history} are complete\. Repair the cause"
    with pytest.raises(StoreRefused, match=told):
        write_report(spark, [str(tmp_path / "story")], str(page), str(history), audited=NOTHING)
    baseline = read_baseline(LocalTables(history))
    assert baseline is not None and baseline.run == 1


def test_a_time_that_no_calendar_has_is_shown_as_a_number() -> None:
    """A log may be forged, with all checksums right. The page has to show it all the same."""
    assert time_text(253_402_300_799_999) == "9999-12-31 23:59:59"
    assert time_text(1 << 62) == "4,611,686,018,427,387,904 ms"
    assert time_text(-1) == "-1 ms"
