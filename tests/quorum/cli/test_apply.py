"""`quorumctl topics apply`: the file, the plan that it makes of the cluster, and the changes; against a served node."""

import asyncio
from pathlib import Path

import pytest
import yaml

from metadata_log.format.records import BROKER_RESOURCE, TOPIC_RESOURCE
from metaquorum import AdminClient
from quorum.cli.apply.changes import apply_plan
from quorum.cli.apply.plan import Impossible, make_plan
from quorum.cli.apply.wanted_file import Wanted, read_wanted
from tests.quorum.cli.test_cluster_commands import Run, run
from tests.quorum.wire.conftest import client, node, target
from tests.quorum.wire.fake_node import FakeNode

__all__ = ["client", "node", "run", "target"]  # fixtures

DOCUMENT = {
    "schema_version": 1,
    "cluster": {"configs": {"log.retention.ms": 86_400_000}},
    "brokers": [{"broker": 1, "configs": {"num.io.threads": 16}}],
    "topics": [
        {"topic": "orders", "partitions": 3, "replication_factor": 2, "configs": {"retention.ms": 7}},
        {"topic": "sales", "partitions": 1},
    ],
    "prune": {"prefixes": ["ord", "old."]},
}


def wanted(tmp_path: Path, **changed: object) -> Wanted:
    file = tmp_path / "topics.yaml"
    document = {key: value for key, value in {**DOCUMENT, **changed}.items() if value is not None}
    file.write_text(yaml.safe_dump(document))
    return read_wanted(file, None, None)


async def test_a_file_covers_topics_brokers_and_the_default_of_all_brokers(
    client: AdminClient, node: FakeNode, tmp_path: Path
) -> None:
    """Applied once, the second plan is empty. Keys that the file does not name stay as they are."""
    node.cluster.create("sales", 1, 3)
    plan = await make_plan(client, wanted(tmp_path))
    assert list(plan.diff()) == [
        "+ topic orders", "+   partitions 3", "+   replication_factor 2", "+   retention.ms=7",
        "  all brokers", "+   log.retention.ms=86400000", "  broker 1", "+   num.io.threads=16",
    ]  # fmt: skip
    await apply_plan(client, plan)
    image = node.cluster.image
    assert image.config(BROKER_RESOURCE, "") == {"log.retention.ms": "86400000"}
    assert image.config(BROKER_RESOURCE, "1") == {"num.io.threads": "16"}
    assert image.config(TOPIC_RESOURCE, "orders") == {"retention.ms": "7"}
    again = await make_plan(client, wanted(tmp_path))
    assert (list(again.changes()), again.unchanged) == ([], 2)
    changed = wanted(tmp_path, brokers=[{"broker": 1, "configs": {"num.network.threads": 4}}], cluster=None)
    await apply_plan(client, await make_plan(client, changed))
    assert node.cluster.image.config(BROKER_RESOURCE, "1") == {"num.io.threads": "16", "num.network.threads": "4"}


async def test_only_topics_with_a_prefix_of_the_file_are_pruned(
    client: AdminClient, node: FakeNode, tmp_path: Path
) -> None:
    """And only on request: a file that lost its end must not delete a cluster."""
    for name in ("orders", "orders.dead", "old.1", "older", "sales"):
        node.cluster.create(name, 3 if name == "orders" else 1, 2)
    assert (await make_plan(client, wanted(tmp_path))).delete == []
    plan = await make_plan(client, wanted(tmp_path), prune=True)
    assert plan.delete == ["old.1", "orders.dead"]
    assert list(plan.diff())[-2:] == ["- topic old.1", "- topic orders.dead"]
    await apply_plan(client, plan)
    assert sorted(node.cluster.image.topic_ids) == ["older", "orders", "sales"]


async def test_a_broker_that_is_not_registered_makes_the_file_impossible(
    client: AdminClient, node: FakeNode, tmp_path: Path
) -> None:
    """As a whole, so that the topics are not changed either."""
    with pytest.raises(Impossible, match=r"nothing was done.*broker 77 is not registered"):
        await make_plan(client, wanted(tmp_path, brokers=[{"broker": 77, "configs": {"num.io.threads": 16}}]))
    assert not node.cluster.image.topic_ids


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"schema_version": 2}, "schema_version is 2: this release knows 1"),
        ({"topic": []}, "unknown key 'topic'"),
        ({"topics": {}}, 'a list under "topics"'),
        ({"topics": [{"topic": "a"}, {"topic": "a"}]}, "topic a is there twice"),
        ({"topics": [{"topic": "a", "configs": 7}]}, "a: configs are not a mapping"),
        ({"brokers": [{"broker": "1"}]}, 'entry 0 under "brokers"'),
        ({"brokers": [{"broker": 1}, {"broker": 1}]}, "broker 1 is there twice"),
        ({"cluster": []}, '"cluster" has "configs"'),
        ({"prune": {"prefixes": []}}, '"prune" has "prefixes"'),
        ({"prune": {"prefixes": [""]}}, "none is empty"),
    ],
)
def test_a_mistake_in_the_file_is_named(changed: dict[str, object], problem: str, tmp_path: Path) -> None:
    """An empty prefix would match every topic."""
    with pytest.raises(ValueError, match=problem):
        wanted(tmp_path, **changed)


def test_a_file_without_a_schema_version_is_as_it_was(tmp_path: Path) -> None:
    """A list, or an object with a list under "topics" and anything else."""
    for document in ([{"topic": "a"}], {"topics": [{"name": "a"}], "source": "anywhere"}):
        file = tmp_path / "topics.yaml"
        file.write_text(yaml.safe_dump(document))
        assert [each.name for each in read_wanted(file, 2, None).topics] == ["a"]


@pytest.mark.slow
async def test_deletions_need_a_word_of_the_operator(run: Run, node: FakeNode, tmp_path: Path) -> None:
    """Without a terminal nobody can be asked, so --yes is needed; --diff tells by its exit code."""
    node.cluster.create("old.1", 1, 2)
    file = tmp_path / "topics.yaml"
    await asyncio.to_thread(file.write_text, yaml.safe_dump({"schema_version": 1, "prune": {"prefixes": ["old."]}}))
    shown = await run("topics", "apply", file, "--prune", "--diff")
    assert (shown.exit_code, shown.stdout.splitlines()) == (
        10,
        ["- topic old.1", "Would do: 1 to delete. Nothing was changed."],
    )
    refused = await run("topics", "apply", file, "--prune")
    assert (refused.exit_code, "add --yes" in refused.stderr, len(node.cluster.image.topic_ids)) == (2, True, 1)
    done = await run("topics", "apply", file, "--prune", "--yes")
    assert (done.exit_code, len(node.cluster.image.topic_ids)) == (0, 0)
    assert (await run("topics", "apply", file, "--diff")).exit_code == 0
    await asyncio.to_thread(file.write_text, "topics: []")
    assert (await run("topics", "apply", file, "--prune")).exit_code == 2
