"""`quorumctl topics apply`: the file, the plan that it makes of the cluster, and the changes; against a served node."""

import asyncio
from pathlib import Path

import pytest
import yaml

from metadata_log.format.records import BROKER_RESOURCE, TOPIC_RESOURCE
from metaquorum import AdminClient
from quorum.cli.apply.changes import apply_plan, check_plan
from quorum.cli.apply.plan import make_plan
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


async def test_differences_that_cannot_be_closed_are_shown_with_the_others(
    client: AdminClient, node: FakeNode, tmp_path: Path
) -> None:
    """As problems of the plan; the diff marks each with `!`."""
    node.cluster.create("orders", 4, 2)
    changed = wanted(tmp_path, brokers=[{"broker": 77, "configs": {"num.io.threads": 16}}], cluster=None)
    plan = await make_plan(client, changed)
    assert [(each.kind, each.name) for each in plan.problems] == [("topic", "orders"), ("broker", "77")]
    assert list(plan.diff()) == [
        "+ topic sales", "+   partitions 1", "  topic orders", "+   retention.ms=7",
        "! orders has 4 partitions, and partitions never become fewer (the file says 3); make a new topic",
        "! broker 77 is not registered",
    ]  # fmt: skip
    checked = await check_plan(client, plan)
    assert (checked.is_good, checked.exit_code, checked.count("refused")) == (False, 1, 0)


BAD = {
    "brokers": None,
    "cluster": {"configs": {"nope": 3}},
    "topics": [
        {"topic": "orders", "partitions": 9, "configs": {"retention.ms": "abc"}},
        {"topic": "wide", "replication_factor": 9},
        {"topic": "bad name", "partitions": 1},
        {"topic": "odd", "configs": {"nope": 1}},
        {"topic": "huge", "partitions": 2_000_000_000},
        {"topic": "sales", "partitions": 9},
        {"topic": "good", "partitions": 1},
    ],
}


async def test_the_controllers_check_every_change_before_the_first_is_made(
    client: AdminClient, node: FakeNode, tmp_path: Path
) -> None:
    """All refusals are there at once, each at its change: a refused config keeps no other topic from its answer."""
    node.cluster.create("orders", 3, 2)
    node.cluster.create("sales", 1, 2)
    before = str(node.cluster.image)
    checked = await check_plan(client, await make_plan(client, wanted(tmp_path, **BAD)))
    assert str(node.cluster.image) == before
    by_name = {(each["kind"], each.get("topic", "")): each for each in checked.document()["changes"]}
    assert {key: each["error"] for key, each in by_name.items()} == {
        ("create", "wide"): "INVALID_REPLICATION_FACTOR", ("create", "bad name"): "INVALID_TOPIC_EXCEPTION",
        ("create", "odd"): "INVALID_CONFIG", ("create", "huge"): "POLICY_VIOLATION", ("create", "good"): None,
        ("grow", "orders"): None, ("grow", "sales"): None, ("alter", "orders"): "INVALID_CONFIG",
        ("alter_broker", ""): "INVALID_CONFIG",
    }  # fmt: skip
    assert (by_name["create", "good"]["partitions"], by_name["create", "good"]["result"]) == (1, "would be done")
    assert by_name["alter_broker", ""]["text"].startswith("alter all brokers: ")


async def test_an_apply_that_is_refused_in_the_middle_tells_what_was_done(
    client: AdminClient, node: FakeNode, tmp_path: Path
) -> None:
    """Another client deletes topic sales after the check. Configs come before partitions, and nothing after the refusal."""
    for name in ("orders", "sales", "old.1"):
        node.cluster.create(name, 1, 2)
    topics = [
        {"topic": "new", "partitions": 1},
        {"topic": "sales", "configs": {"retention.ms": 5}},
        {"topic": "orders", "partitions": 3},
    ]
    plan = await make_plan(client, wanted(tmp_path, topics=topics, brokers=None, cluster=None), prune=True)
    await client.delete_topics(["sales"])
    outcome = await apply_plan(client, plan)
    assert [(each["text"], each["result"]) for each in outcome.changes()] == [
        ("create new with 1 partitions", "done"), ("grow orders from 1 to 3 partitions", "not tried"),
        ("alter sales: retention.ms from unset to 5", "refused"), ("delete old.1", "not tried"),
    ]  # fmt: skip
    assert (outcome.is_good, outcome.exit_code) == (False, 3)
    assert node.cluster.image.topic("orders").partition_count == 1  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"schema_version": 2}, "schema_version is 2: this release knows 1"),
        ({"topic": []}, "the file has the unknown field 'topic'; did you mean 'topics'?"),
        ({"schema_version": None, "topcs": []}, "the file has the unknown field 'topcs'; did you mean 'topics'?"),
        ({"topics": [{"topic": "a", "owner": "b"}]}, "topic a has the unknown field 'owner'; known: topic, "),
        *(
            (
                {"schema_version": version, "topics": [{"topic": "a", wrong: 3}]},
                f"topic a .*{wrong!r}; did you mean '{right}'",
            )
            for version in (1, None)
            for wrong, right in (
                ("partitons", "partitions"),
                ("config", "configs"),
                ("replication-factor", "replication_factor"),
            )
        ),
        ({"brokers": [{"broker": 1, "config": {}}]}, "broker 1 has the unknown field 'config'"),
        ({"cluster": {"config": {}}}, "\"cluster\" has the unknown field 'config'"),
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
    for document in ([{"topic": "a"}], {"topics": [{"name": "a", "pipeline": "b"}], "source": "anywhere"}):
        file = tmp_path / "topics.yaml"
        file.write_text(yaml.safe_dump(document))
        assert [each.name for each in read_wanted(file, 2, None).topics] == ["a"]


@pytest.mark.parametrize("text", ["", "# nothing yet", "{}", "topics:", "schema_version: 1"])
def test_an_empty_file_changes_nothing(text: str, tmp_path: Path) -> None:
    """Each part may be missing, so all parts may be missing."""
    for file in (tmp_path / "topics.yaml", tmp_path / "topics.json"):
        if file.suffix == ".yaml" or text in ("", "{}"):
            file.write_text(text)
            assert read_wanted(file, None, None) == Wanted((), {}, ())


@pytest.mark.slow
async def test_a_refused_apply_has_a_document_and_says_what_to_do(run: Run, node: FakeNode, tmp_path: Path) -> None:
    """A dry run is refused as the real run is; neither changes anything, and `-o json` has every answer."""
    node.cluster.create("orders", 3, 2)
    file = tmp_path / "topics.yaml"
    topics = [{"topic": "orders", "partitions": 9, "configs": {"retention.ms": "abc"}}, {"topic": "b", "partitions": 1}]
    await asyncio.to_thread(file.write_text, yaml.safe_dump({"topics": topics}))
    tried = await run("topics", "apply", file, "--dry-run")
    assert (tried.exit_code, tried.stdout.splitlines()[-1]) == (
        1,
        "Would do: 1 to create, 1 to grow. Refused: 1. Nothing was changed.",
    )
    ran = await run("topics", "apply", file, "-o", "json")
    assert (ran.exit_code, ran.document["applied"]) == (1, False)
    assert ran.document["results"] == {"would be done": 2, "refused": 1}
    assert "nothing was done. Correct the file, and run the command again" in ran.stderr
    assert "alter orders" in ran.stderr and "INVALID_CONFIG" in ran.stderr
    assert node.cluster.image.topic("orders").partition_count == 3  # type: ignore[union-attr]


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
