"""`quorumctl features`: what the release supports and the cluster has, up and down, and what stands in the way."""

import pytest

from metadata_log.format.records import (
    METADATA_VERSION,
    METADATA_VERSION_MAX,
    FeatureRange,
    PartitionChange,
    RegisterController,
)
from tests.quorum.cli.test_cluster_commands import Run, node, run
from tests.quorum.wire.fake_node import FakeNode

__all__ = ["node", "run"]

pytestmark = pytest.mark.slow


async def test_the_level_falls_and_rises(run: Run, node: FakeNode) -> None:
    """The table has Kafka's columns; a dry run changes nothing; a downgrade that loses something names it."""
    node.cluster.append(
        RegisterController(1, bytes(16), (), (FeatureRange(METADATA_VERSION, 1, METADATA_VERSION_MAX),))
    )
    shown = await run("features", "describe", "-o", "json")
    row = next(each for each in shown.document["features"] if each["feature"] == METADATA_VERSION)
    assert row["finalized_version_level"] == METADATA_VERSION_MAX and row["epoch"] == node.cluster.image.offset
    assert shown.document["controllers"][0]["features"] == {
        METADATA_VERSION: {"supported_min_version": 1, "supported_max_version": METADATA_VERSION_MAX}
    }
    table = (await run("features", "describe")).stdout
    assert "FEATURE\tSUPPORTED_MIN_VERSION\tSUPPORTED_MAX_VERSION\tFINALIZED_VERSION_LEVEL\tEPOCH" in table

    lower = ("features", "downgrade", "--feature", "metadata.version=1")
    dry = await run(*lower, "--dry-run")
    assert (dry.exit_code, node.cluster.image.metadata_version) == (0, METADATA_VERSION_MAX)
    node.cluster.assign("orders", (0, 1))
    topic = node.cluster.image.topic("orders")
    assert topic is not None
    node.cluster.append(PartitionChange(topic.topic_id, 0, adding_replicas=(1,)))
    refused = await run(*lower)
    assert refused.exit_code == 1 and "FEATURE_UPDATE_FAILED" in refused.stderr and "orders-0" in refused.stderr
    node.cluster.append(PartitionChange(topic.topic_id, 0, adding_replicas=()))
    assert (await run(*lower)).exit_code == 0
    assert node.cluster.image.metadata_version == 1
    for result in ("updated", "unchanged"):
        raised = await run("features", "upgrade", "-o", "json")
        assert (raised.exit_code, raised.document["features"][0]["result"]) == (0, result)
    assert node.cluster.image.metadata_version == METADATA_VERSION_MAX


async def test_another_feature_goes_on_and_off(run: Run, node: FakeNode) -> None:
    """`disable` is the level 0."""
    name = "eligible.leader.replicas.version"
    for level, words in ((1, ("upgrade", "--feature", f"{name}=1")), (0, ("disable", "--feature", name))):
        assert (await run("features", *words)).exit_code == 0
        assert node.cluster.image.features.get(name, 0) == level


@pytest.mark.parametrize(
    "wrong",
    [
        ("downgrade",),
        ("disable",),
        ("upgrade", "--feature", "metadata.version"),
        ("upgrade", "--feature", "metadata.version=" + "9" * 5_000),
        ("upgrade", "--feature", "metadata.version=2", "--feature", "metadata.version=1"),
    ],
)
async def test_wrong_usage_sends_nothing(run: Run, wrong: tuple[str, ...]) -> None:
    assert (await run("features", *wrong)).exit_code == 2
