"""A table of metrics becomes a Prometheus page."""

from collections.abc import Mapping
from typing import Any

import pytest

from service_kit.process.metrics import Kind, Metric, Metrics
from service_kit.process.tallies import Counter, Histogram
from tests.service_kit.prometheus_rules import complaints


def page_of(*rows: Metric[Any]) -> list[str]:
    metrics = Metrics()
    metrics.add_table(rows, lambda: None)
    return metrics.page().decode().splitlines()


def test_a_page_reads_every_row_from_one_look() -> None:
    """So the numbers of one page belong together, and a page costs one status."""
    looks: list[int] = []

    def look() -> int:
        looks.append(1)
        return len(looks)

    metrics = Metrics()
    metrics.add_table([Metric(name, Kind.GAUGE, "A number.", lambda n: n) for name in ("a", "b")], look)
    assert b"metaquorum_a 1.0\n" in (page := metrics.page()) and b"metaquorum_b 1.0\n" in page
    assert b"metaquorum_a 2.0\n" in metrics.page()


def test_a_counter_shows_its_known_series_from_the_start() -> None:
    """`rate()` of a series that appears with its first event misses that event."""
    fetches = Counter("voter", "broker")
    fetches.add(2, "voter")
    assert page_of(Metric("fetches_total", Kind.COUNTER, "Fetches.", lambda _: fetches, ("by",))) == [
        "# HELP metaquorum_fetches_total Fetches.",
        "# TYPE metaquorum_fetches_total counter",
        'metaquorum_fetches_total{by="voter"} 2.0',
        'metaquorum_fetches_total{by="broker"} 0.0',
    ]


def test_a_histogram_has_cumulative_buckets_a_sum_and_a_count() -> None:
    """An observation on a bound belongs to the bucket of that bound."""
    seconds = Histogram((0.1, 1.0))
    for each in (0.05, 0.1, 0.5, 3.0):
        seconds.observe(each)
    assert page_of(Metric("work_seconds", Kind.HISTOGRAM, "Work.", lambda _: seconds))[2:] == [
        'metaquorum_work_seconds_bucket{le="0.1"} 2.0',
        'metaquorum_work_seconds_bucket{le="1.0"} 3.0',
        'metaquorum_work_seconds_bucket{le="+Inf"} 4.0',
        "metaquorum_work_seconds_count 4.0",
        "metaquorum_work_seconds_sum 3.65",
    ]


def test_a_number_that_a_node_does_not_know_is_nan() -> None:
    """0 would be a claim."""
    assert page_of(Metric("current_leader", Kind.GAUGE, "The leader.", lambda _: None))[-1] == (
        "metaquorum_current_leader NaN"
    )


def test_a_gauge_may_have_one_value_for_each_label() -> None:
    """A series that is gone from the reading is gone from the page."""
    lags: Mapping[tuple[str, ...], float] = {("2",): 0, ("3",): 7}
    row: Metric[Any] = Metric("replica_lag", Kind.GAUGE, "Lag.", lambda _: lags, ("node_id",))
    assert page_of(row)[-1] == 'metaquorum_replica_lag{node_id="3"} 7.0'
    lags = {}
    assert len(page_of(row)) == 2


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("elections", Kind.COUNTER, "_total"),
        ("elections_total", Kind.GAUGE, "_total"),
        ("turn_ms", Kind.HISTOGRAM, "abbreviated"),
        ("turn_milliseconds", Kind.HISTOGRAM, "base unit"),
        ("seconds_of_turn", Kind.GAUGE, "at the end"),
        ("turn_count", Kind.GAUGE, "_count"),
        ("turn_histogram_seconds", Kind.HISTOGRAM, "type"),
        ("turnSeconds", Kind.GAUGE, "snake_case"),
    ],
)
def test_the_rules_for_names_refuse_what_promtool_refuses(name: str, kind: Kind, said: str) -> None:
    """One row of the linter each."""
    assert any(said in each for each in complaints([Metric(name, kind, "Text.", lambda _: 0)])), name
