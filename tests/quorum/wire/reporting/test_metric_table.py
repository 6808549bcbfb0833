"""A controller's metrics page holds its table, and the table holds to Prometheus' rules."""

import re
from dataclasses import replace

from quorum.core.protocol.problem import Problem, ProblemCode
from quorum.runtime.protocol.tallies import Tallies
from quorum.wire.reporting.cluster_figures import ClusterFigures
from quorum.wire.reporting.metric_table import CONTROLLER_METRICS, ControllerReading, add_metrics
from service_kit.process.metrics import Metrics
from service_kit.rpc.call_tallies import CallTallies
from tests.quorum.wire.fake_node import FakeNode
from tests.service_kit.prometheus_rules import complaints, promtool
from watches.service.tallies import WatchTallies


def page() -> bytes:
    metrics = Metrics()
    add_metrics(metrics, FakeNode(), CallTallies(), ClusterFigures(), None, WatchTallies())
    return metrics.page()


def test_the_page_shows_every_row_and_nothing_else() -> None:
    """Each with the help text and the kind of its row."""
    text = page().decode()
    assert re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE) == [
        (row.full_name, row.kind.value) for row in CONTROLLER_METRICS
    ]
    assert all(f"# HELP {row.full_name} {row.help}\n" in text for row in CONTROLLER_METRICS)


def test_each_problem_is_a_series() -> None:
    """From the start, so that an alert on one code needs no `absent()`."""
    node, metrics = FakeNode(), Metrics()
    sick = replace(node.status(), problems=(Problem(ProblemCode.DISK_FULL, "the disk is full"),))
    node.status = lambda: sick  # type: ignore[method-assign]
    add_metrics(metrics, node, CallTallies(), ClusterFigures(), None, WatchTallies())
    shown = dict(re.findall(r'^metaquorum_problem\{code="(\w+)"\} (\S+)$', metrics.page().decode(), re.MULTILINE))
    assert shown == {code.value: "1.0" if code is ProblemCode.DISK_FULL else "0.0" for code in ProblemCode}


def test_silent_voters_are_unknown_without_a_leader() -> None:
    """0 would look like good news in the one hour in which nobody can know."""
    well = FakeNode().status()
    silent = tuple(replace(each, status="silent") if each.node_id == 2 else each for each in well.replicas)
    (row,) = [row for row in CONTROLLER_METRICS if row.name == "silent_voters"]
    for leader_id, expected in ((1, 1), (None, None)):
        status = replace(well, replicas=silent, leader=replace(well.leader, leader_id=leader_id))
        assert row.read(ControllerReading(status, Tallies(), CallTallies(), None, None, (), WatchTallies())) == expected


def test_the_names_are_as_prometheus_wants_them() -> None:
    """By promtool's rules, and by promtool itself where it is installed."""
    assert list(complaints(CONTROLLER_METRICS)) == []
    assert promtool(page()) == ""
    assert all(re.fullmatch(r"[A-Z0-9].{10,159}\.", row.help) for row in CONTROLLER_METRICS)
