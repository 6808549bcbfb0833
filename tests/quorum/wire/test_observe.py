"""What supervisors and load balancers are told of a controller."""

import asyncio
import contextlib
from dataclasses import replace

from daemon.health import ADMIN, LIVE, QUORUM, Health
from daemon.metrics import Metrics
from quorum.runtime.requests import LeaderHint, NodeStatus
from quorum.wire.observe import add_metrics, watch
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
    assert b"metaquorum_failed_decisions 3" in metrics.page()
