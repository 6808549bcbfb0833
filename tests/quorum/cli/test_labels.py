"""`quorumctl labels`, and the option `--label` of lists."""

import pytest

from metadata_log.format.records import TOPIC_RESOURCE
from tests.quorum.cli.test_cluster_commands import Run, node, run
from tests.quorum.wire.fake_node import FakeNode

__all__ = ["node", "run"]

pytestmark = pytest.mark.slow


async def test_labels_are_set_listed_used_as_filters_and_removed(run: Run, node: FakeNode) -> None:
    node.cluster.assign("orders", (0, 1), (1, 0))
    node.cluster.assign("sales", (0, 1))
    dry = await run("labels", "set", "team=a", "--topic", "orders", "--dry-run")
    assert dry.exit_code == 0 and "would be set" in dry.stdout and node.cluster.image.label_count == 0
    assert (await run("labels", "set", "team=a", "--topic", "orders", "--broker", 1)).exit_code == 0
    done = await run("labels", "set", "hot=", "--topic", "orders", "--partition", 1, "-o", "json")
    assert done.document["results"] == [
        {
            "resource": "topic orders", "resource_type": "topic", "resource_name": "orders", "partition": 1,
            "result": "set", "error": None, "message": None,
        }
    ]  # fmt: skip
    listed = await run("labels", "list", "-o", "json")
    assert [(each["resource"], each["partition"], each["labels"]) for each in listed.document["things"]] == [
        ("topic orders", None, {"team": "a"}), ("topic orders", 1, {"hot": ""}), ("broker 1", None, {"team": "a"}),
    ]  # fmt: skip
    heading, row = (await run("labels", "list", "--label", "hot")).stdout.splitlines()
    assert heading.split() == ["RESOURCE", "PARTITION", "LABELS"] and row.split() == ["topic", "orders", "1", "hot="]

    topics = await run("topics", "list", "--label", "team=a", "-o", "json")
    assert [each["name"] for each in topics.document["topics"]] == ["orders"]
    brokers = await run("brokers", "list", "--label", "team", "-o", "json")
    assert [each["broker_id"] for each in brokers.document["brokers"]] == [1]
    described = await run("topics", "describe", "orders", "-o", "json")
    assert described.document["topics"][0]["labels"] == {"team": "a"}
    assert "labels       team=a" in (await run("brokers", "describe", 1)).stdout

    assert (await run("labels", "remove", "team", "never", "--topic", "orders", "--broker", 1)).exit_code == 0
    assert not node.cluster.image.labels_of(TOPIC_RESOURCE, "orders") and node.cluster.image.label_count == 1


@pytest.mark.parametrize(
    ("wrong", "exit_code"),
    [
        (("set", "team=a"), 2),
        (("set", "--topic", "orders"), 2),
        (("set", "team", "--topic", "orders"), 2),
        (("set", "team=a", "--topic", "orders", "--topic", "orders"), 2),
        (("set", "team=a", "--topic", "a", "--topic", "b", "--partition", 1), 2),
        (("set", "team=a", "--partition", 1, "--broker", 1), 2),
        (("remove", "team", "--topic", "nobody"), 3),
        (("list", "--label", "Team"), 1),
    ],
)
async def test_wrong_usage_and_refusals_have_their_exit_codes(run: Run, wrong: tuple[str, ...], exit_code: int) -> None:
    assert (await run("labels", *wrong)).exit_code == exit_code
