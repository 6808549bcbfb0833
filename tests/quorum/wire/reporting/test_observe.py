"""What supervisors and load balancers are told of a controller."""

import asyncio
import contextlib
import io
import json
from dataclasses import replace
from typing import Any

from quorum.core.protocol.problem import Problem, ProblemCode
from quorum.runtime.protocol.requests import DiskStatus, LeaderHint, NodeStatus
from quorum.wire.reporting.cluster_figures import ClusterFigures
from quorum.wire.reporting.metric_table import add_metrics
from quorum.wire.reporting.observe import watch
from service_kit.process.logs import Logs
from service_kit.process.metrics import Metrics
from service_kit.rpc.call_tallies import CallTallies
from service_kit.rpc.health import ADMIN, LIVE, QUORUM, Health
from tests.quorum.wire.fake_node import FakeNode
from watches.service.tallies import WatchTallies


async def told(status: NodeStatus) -> tuple[str | None, str | None, str | None]:
    """What is wrong by the three checks: live, quorum, admin."""
    node, health = FakeNode(), Health()
    node.status = lambda: status  # type: ignore[method-assign]
    watching = asyncio.ensure_future(watch(node, health))
    while health.problem(ADMIN) == "starting":
        await asyncio.sleep(0)
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching
    return health.problem(LIVE), health.problem(QUORUM), health.problem(ADMIN)


async def test_a_node_that_knows_its_leader_is_ready() -> None:
    """Also with a problem that does not keep it from anything."""
    assert await told(
        replace(FakeNode().status(), problems=(Problem(ProblemCode.LOG_DAMAGED, "7 records cannot be read"),))
    ) == (None, None, None)


async def test_a_node_that_does_not_do_its_part_is_not_ready_and_says_why() -> None:
    """Who restarts one node after the other waits for it; admin calls it still hands on, and nobody is to kill it."""
    short = "the log is missing records below offset 7 that this node may have acknowledged"
    status = replace(FakeNode().status(), problems=(Problem(ProblemCode.LOG_END_LOST, short),))
    assert await told(status) == (None, short, None)


async def test_a_node_without_a_leader_is_not_ready() -> None:
    status = replace(FakeNode().status(), leader=LeaderHint(None, 1, None))
    assert await told(status) == (None, "no leader is known", "no leader is known")


def test_decisions_that_failed_are_counted_on_the_metrics_page() -> None:
    """What an alert is made of: the problem goes after a while, the number stays."""
    node, metrics = FakeNode(), Metrics()
    node.status = lambda: replace(FakeNode().status(), failed_decisions=3)  # type: ignore[method-assign]
    add_metrics(metrics, node, CallTallies(), ClusterFigures(), None, WatchTallies())
    assert b"metaquorum_failed_decisions_total 3" in metrics.page()


def test_who_follows_no_leader_shows_none_on_the_metrics_page() -> None:
    """NaN, as for all that a node does not know: an alert on the leader must not be kept quiet by one that is only remembered."""
    node, metrics = FakeNode(), Metrics()
    add_metrics(metrics, node, CallTallies(), ClusterFigures(), None, WatchTallies())
    assert b"metaquorum_current_leader 1.0\n" in metrics.page()
    node.status = lambda: replace(FakeNode().status(), leader=LeaderHint(None, 1, None))  # type: ignore[method-assign]
    assert b"metaquorum_current_leader NaN\n" in metrics.page()


async def lines_of(node: FakeNode, *looks: NodeStatus) -> list[dict[str, Any]]:
    """What `watch` logs while the node's status is one of `looks` after the other."""
    stream, over, left = io.StringIO(), asyncio.Event(), iter(looks)

    def look() -> NodeStatus:
        status = next(left, None)
        if status is None:
            over.set()
        return status or looks[-1]

    node.status = look  # type: ignore[method-assign]
    with Logs("info", "json", stream=stream):
        watching = asyncio.ensure_future(watch(node, Health(), interval_s=0))
        await over.wait()
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
    return [json.loads(line) for line in stream.getvalue().splitlines()]


async def test_a_problem_is_logged_once_when_it_begins_and_once_when_it_is_solved() -> None:
    """By its code, so that an operator finds it in the runbook; the end of a problem is no error."""
    well = FakeNode().status()
    full = Problem(ProblemCode.DISK_FULL, "the disk is full")
    damaged = [Problem(ProblemCode.LOG_DAMAGED, f"{records} records cannot be read") for records in (7, 3)]
    looks = [
        replace(well, problems=each) for each in ((full,), (full, damaged[0]), (full, damaged[1]), (damaged[1],), ())
    ]
    lines = await lines_of(FakeNode(), *looks)
    assert [(line["level"], line["event"], line["code"], line["text"]) for line in lines if "code" in line] == [
        ("error", "problem", "disk_full", "the disk is full"),
        ("error", "problem", "log_damaged", "7 records cannot be read"),
        ("error", "problem", "log_damaged", "3 records cannot be read"),
        ("info", "problem solved", "disk_full", "the disk is full"),
        ("info", "problem solved", "log_damaged", "3 records cannot be read"),
    ]


async def test_a_repair_is_logged_with_the_ranges_of_this_repair() -> None:
    """And not with all ranges since the start of the process."""
    well = FakeNode().status()
    looks = [replace(well, disk=DiskStatus(damage_found=3, damage_mended=mended)) for mended in (0, 1, 3)]
    lines = await lines_of(FakeNode(), *looks)
    assert [line["ranges"] for line in lines if line["event"] == "damage mended"] == [1, 2]


async def test_a_leader_logs_which_voter_falls_silent_and_when_it_is_heard_again() -> None:
    """Once each; a controller that leads no more knows nothing of others, which is no news of them."""
    well = FakeNode().status()
    silent = replace(
        well, replicas=tuple(replace(each, status="silent") if each.node_id == 2 else each for each in well.replicas)
    )
    deposed = replace(
        well, role="resigned", leader=LeaderHint(None, 1, None), no_leader_reason="it led epoch 2 and has resigned"
    )
    lines = await lines_of(FakeNode(), well, silent, silent, well, silent, deposed)
    assert [(line["event"], line["voter_id"]) for line in lines if "voter_id" in line] == [
        ("voter silent", 2),
        ("voter heard again", 2),
        ("voter silent", 2),
    ]
    led = [(line["leader_id"], line.get("reason")) for line in lines if line["event"] == "leader"]
    assert led == [(1, None), (None, "it led epoch 2 and has resigned")]
