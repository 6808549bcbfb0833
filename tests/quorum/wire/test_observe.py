"""What supervisors and load balancers are told of a controller."""

import asyncio
import contextlib
import io
import json
from dataclasses import replace

from quorum.runtime.protocol.requests import LeaderHint, NodeStatus
from quorum.wire.metric_table import add_metrics
from quorum.wire.observe import watch
from service_kit.process.logs import Logs
from service_kit.process.metrics import Metrics
from service_kit.rpc.health import ADMIN, LIVE, QUORUM, Health
from tests.quorum.wire.fake_node import FakeNode


async def told(status: NodeStatus) -> tuple[str | None, str | None, str | None]:
    """What is wrong by the three checks: live, quorum, admin."""
    node, health = FakeNode(), Health()
    node.status = lambda: status  # type: ignore[method-assign]
    watching = asyncio.ensure_future(watch(node, health))
    while health.trouble(ADMIN) == "starting":
        await asyncio.sleep(0)
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching
    return health.trouble(LIVE), health.trouble(QUORUM), health.trouble(ADMIN)


async def test_a_node_that_knows_its_leader_is_ready() -> None:
    """Also with a concern that does not keep it from anything."""
    assert await told(replace(FakeNode().status(), concern="the log is damaged")) == (None, None, None)


async def test_a_node_that_does_not_do_its_part_is_not_ready_and_says_why() -> None:
    """Who restarts one node after the other waits for it; admin calls it still hands on, and nobody is to kill it."""
    short = "the log is short of 7, which it had durably"
    status = replace(FakeNode().status(), concern=short, hindrance=short)
    assert await told(status) == (None, short, None)


async def test_a_node_without_a_leader_is_not_ready() -> None:
    status = replace(FakeNode().status(), leader=LeaderHint(None, 1, None))
    assert await told(status) == (None, "no leader is known", "no leader is known")


def test_decisions_that_failed_are_counted_on_the_metrics_page() -> None:
    """What an alert is made of: the concern goes after a while, the number stays."""
    node, metrics = FakeNode(), Metrics()
    node.status = lambda: replace(FakeNode().status(), failed_decisions=3)  # type: ignore[method-assign]
    add_metrics(metrics, node)
    assert b"metaquorum_failed_decisions_total 3" in metrics.page()


def test_who_follows_no_leader_shows_none_on_the_metrics_page() -> None:
    """NaN, as for all that a node does not know: an alert on the leader must not be kept quiet by one that is only remembered."""
    node, metrics = FakeNode(), Metrics()
    add_metrics(metrics, node)
    assert b"metaquorum_current_leader 1.0\n" in metrics.page()
    node.status = lambda: replace(FakeNode().status(), leader=LeaderHint(None, 1, None))  # type: ignore[method-assign]
    assert b"metaquorum_current_leader NaN\n" in metrics.page()


async def test_a_leader_logs_which_voter_falls_silent_and_when_it_is_heard_again() -> None:
    """Once each; a controller that leads no more knows nothing of others, which is no news of them."""
    node, health, stream = FakeNode(), Health(), io.StringIO()
    well = node.status()
    silent = replace(
        well, replicas=tuple(replace(each, status="silent") if each.node_id == 2 else each for each in well.replicas)
    )
    deposed = replace(well, role="resigned", leader=LeaderHint(None, 1, None), no_leader_reason="it leads no more")
    looks = iter([well, silent, silent, well, silent, deposed])
    over = asyncio.Event()

    def look() -> NodeStatus:
        status = next(looks, None)
        if status is None:
            over.set()
        return status or deposed

    node.status = look  # type: ignore[method-assign]
    with Logs("info", "json", stream=stream):
        watching = asyncio.ensure_future(watch(node, health, interval_s=0))
        await over.wait()
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["event"], line["voter_id"]) for line in lines if "voter_id" in line] == [
        ("voter silent", 2),
        ("voter heard again", 2),
        ("voter silent", 2),
    ]
    led = [(line["leader_id"], line.get("reason")) for line in lines if line["event"] == "leader"]
    assert led == [(1, None), (None, "it leads no more")]
