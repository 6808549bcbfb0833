"""`quorumctl configs`: what holds and why, changes that are done whole or not at all, and wrong usage that sends nothing."""

import pytest

from metadata_log.format.records import BROKER_RESOURCE, TOPIC_RESOURCE
from tests.quorum.cli.test_cluster_commands import Run, node, run
from tests.quorum.wire.fake_node import FakeNode

__all__ = ["node", "run"]

pytestmark = pytest.mark.slow


async def test_a_value_is_set_shown_with_its_source_and_deleted(run: Run, node: FakeNode) -> None:
    """The default of all brokers holds for a topic, until the topic has a value of its own, and again when that is deleted."""
    node.cluster.assign("orders", (0, 1))
    assert (await run("configs", "set", "--all-brokers", "log.retention.ms=7")).exit_code == 0
    ran = await run("configs", "set", "--topic", "orders", "retention.ms=5", "cleanup.policy=compact", "-o", "json")
    assert ran.exit_code == 0
    assert ran.document["results"] == [
        {
            "resource": "topic orders", "resource_type": "topic", "resource_name": "orders", "result": "altered",
            "error": None, "message": None,
        }
    ]  # fmt: skip
    assert node.cluster.image.config(TOPIC_RESOURCE, "orders") == {"cleanup.policy": "compact", "retention.ms": "5"}

    shown = await run("configs", "describe", "--topic", "orders", "-o", "json")
    assert [(each["key"], each["value"], each["source"]) for each in shown.document["configs"]] == [
        ("cleanup.policy", "compact", "topic"),
        ("retention.ms", "5", "topic"),
    ]
    assert [level["source"] for level in shown.document["configs"][1]["levels"]] == ["topic", "cluster", "default"]
    _, _, row = (await run("configs", "describe", "--topic", "orders", "--synonyms")).stdout.splitlines()
    assert row.endswith("topic:retention.ms=5,cluster:log.retention.ms=7,default:retention.ms=604800000")

    assert (await run("configs", "delete", "--topic", "orders", "retention.ms")).exit_code == 0
    everything = await run("configs", "describe", "--topic", "orders", "--all", "-o", "json")
    found = {each["key"]: each for each in everything.document["configs"]}
    assert (found["retention.ms"]["value"], found["retention.ms"]["source"]) == ("7", "cluster")
    assert found["retention.ms"]["meaning"].startswith("How long a record is kept")
    assert (found["segment.ms"]["value"], found["segment.ms"]["default"]) == ("604800000", "604800000")


async def test_items_of_lists_are_added_and_removed(run: Run, node: FakeNode) -> None:
    node.cluster.assign("orders", (0, 1))
    assert (await run("configs", "set", "--topic", "orders", "--append", "cleanup.policy=compact")).exit_code == 0
    assert node.cluster.image.config(TOPIC_RESOURCE, "orders")["cleanup.policy"] == "delete,compact"
    assert (await run("configs", "set", "--topic", "orders", "--subtract", "cleanup.policy=delete")).exit_code == 0
    assert node.cluster.image.config(TOPIC_RESOURCE, "orders")["cleanup.policy"] == "compact"


async def test_a_bad_value_changes_nothing_of_its_resource(run: Run, node: FakeNode) -> None:
    """Each resource has a result of its own, and the exit code is that of the first failure."""
    node.cluster.assign("orders", (0, 1))
    ran = await run("configs", "set", "--topic", "orders", "--topic", "nobody", "retention.ms=5", "segment.ms=x")
    assert ran.exit_code == 1
    assert "must be a whole number" in ran.stdout and "topic nobody" in ran.stdout
    assert node.cluster.image.config(TOPIC_RESOURCE, "orders") == {}

    dry = await run("configs", "set", "--broker", 0, "num.io.threads=3", "--dry-run")
    assert dry.exit_code == 0 and "would be altered" in dry.stdout
    assert node.cluster.image.config(BROKER_RESOURCE, "0") == {}
    assert (await run("configs", "describe", "--topic", "nobody")).exit_code == 3


@pytest.mark.parametrize(
    "wrong",
    [
        ("describe",),
        ("set", "retention.ms=5"),
        ("set", "--topic", "orders"),
        ("set", "--topic", "orders", "retention.ms"),
        ("delete", "--topic", "orders"),
        ("describe", "--topic", "orders", "--topic", "orders"),
    ],
)
async def test_wrong_usage_ends_with_2(run: Run, wrong: tuple[str, ...]) -> None:
    assert (await run("configs", *wrong)).exit_code == 2


async def test_a_refusal_has_a_word_a_code_and_a_sentence(run: Run) -> None:
    """As for topics, brokers and elections. The empty broker name of the protocol is `all brokers` for people."""
    ran = await run("configs", "set", "--all-brokers", "nope=3", "num.io.threads=4", "num.io.threads=5", "-o", "json")
    (row,) = ran.document["results"]
    assert (row["result"], row["error"], row["resource"]) == ("refused", "INVALID_CONFIG", "all brokers")
    twice = await run("configs", "set", "--all-brokers", "num.io.threads=4", "num.io.threads=5", "-o", "json")
    (row,) = twice.document["results"]
    assert row["message"] == "the default of all brokers: config num.io.threads is altered twice"
