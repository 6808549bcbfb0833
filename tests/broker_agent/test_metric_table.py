"""A broker's metrics page holds its table, and the table holds to Prometheus' rules."""

import re
from types import SimpleNamespace
from typing import Any

from broker_agent.metric_table import BROKER_METRICS, add_metrics
from broker_agent.publishing.publishers import PublisherProblem
from broker_agent.session.lifecycle import BrokerState
from service_kit.process.metrics import Metrics
from service_kit.rpc.call_tallies import CallTallies
from tests.service_kit.prometheus_rules import complaints, promtool
from watches.service.tallies import WatchTallies


def agent() -> Any:
    """As much of an agent as its metrics read."""
    return SimpleNamespace(
        state=BrokerState.ONLINE,
        may_serve=lambda: True,
        lease_lapsed=False,
        leases_lapsed=1,
        stores_dropped=0,
        snapshots_loaded=2,
        cache=SimpleNamespace(current=SimpleNamespace(offset=40, features=lambda: {"metadata.version": 2})),
        high_watermark=47,
        problems=(PublisherProblem("b", "KeyError: 1", 2),),
        publishers=SimpleNamespace(
            failures={("a",): 0, ("b",): 3}, problems=(PublisherProblem("b", "KeyError: 1", 2),)
        ),
    )


def page() -> bytes:
    metrics = Metrics()
    add_metrics(metrics, agent(), CallTallies(), None, WatchTallies())
    return metrics.page()


def test_the_page_shows_every_row_and_nothing_else() -> None:
    """Each with the help text and the kind of its row."""
    text = page().decode()
    shown = re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE)
    assert shown == [(row.full_name, row.kind.value) for row in BROKER_METRICS]
    assert all(f"# HELP {row.full_name} {row.help}\n" in text for row in BROKER_METRICS)
    assert "\nmetaquorum_metadata_lag_offsets 7.0\n" in text
    assert (
        '\nmetaquorum_publisher_failing{publisher="a"} 0.0\nmetaquorum_publisher_failing{publisher="b"} 1.0\n' in text
    )
    assert '\nmetaquorum_problem{code="disk_full"} 0.0\nmetaquorum_problem{code="publisher_failed"} 1.0\n' in text
    assert '\nmetaquorum_publisher_failures_total{publisher="b"} 3.0\n' in text
    assert '\nmetaquorum_feature_level{feature="metadata.version"} 2.0\n' in text


def test_the_names_are_as_prometheus_wants_them() -> None:
    """By promtool's rules, and by promtool itself where it is installed."""
    assert list(complaints(BROKER_METRICS)) == []
    assert promtool(page()) == ""
    assert all(re.fullmatch(r"[A-Z0-9].{10,159}\.", row.help) for row in BROKER_METRICS)
