"""The figures of the cluster on a controller's metrics page."""

import re
from dataclasses import replace

from quorum.wire.reporting.cluster_figures import ClusterFigures
from quorum.wire.reporting.metric_table import add_metrics
from service_kit.process.metrics import Metrics
from service_kit.rpc.call_tallies import CallTallies
from tests.quorum.wire.fake_node import FakeNode
from watches.service.tallies import WatchTallies


def shown(node: FakeNode, figures: ClusterFigures, name: str) -> dict[str, str]:
    """The series of one metric, by their labels."""
    metrics = Metrics()
    add_metrics(metrics, node, CallTallies(), figures, None, WatchTallies())
    return dict(re.findall(rf"^metaquorum_{name}(\{{\S+\}}|) (\S+)$", metrics.page().decode(), re.MULTILINE))


async def test_the_active_controller_shows_brokers_topics_and_partitions() -> None:
    """As of the image that it has applied."""
    node, figures = FakeNode(brokers=3), ClusterFigures()
    assert shown(node, figures, "partitions") == {"": "NaN"} and shown(node, figures, "brokers") == {}
    await figures.look(node)
    assert shown(node, figures, "brokers") == {
        '{state="offline"}': "0.0",
        '{state="fenced"}': "0.0",
        '{state="online"}': "3.0",
        '{state="stopping"}': "0.0",
    }
    assert shown(node, figures, "topics") == {"": "0.0"}
    assert shown(node, figures, "offline_partitions") == {"": "0.0"}


async def test_a_controller_that_is_not_active_shows_none() -> None:
    """It knows them, but a sum over all controllers must be right."""
    node, figures = FakeNode(), ClusterFigures()
    await figures.look(node)
    follower = replace(node.status(), role="follower", is_active=False)
    node.status = lambda: follower  # type: ignore[method-assign]
    assert shown(node, figures, "topics") == {"": "NaN"} and shown(node, figures, "brokers") == {}


async def test_an_image_is_counted_once() -> None:
    """A quiet cluster costs nothing."""
    node, figures = FakeNode(), ClusterFigures()
    await figures.look(node)
    first = figures.newest
    await figures.look(node)
    assert figures.newest is first
