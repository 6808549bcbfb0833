"""`quorumctl configs define`, `undefine` and `keys`: keys of embedders in the hands of an operator."""

import pytest

from tests.quorum.cli.test_cluster_commands import Run, node, run
from tests.quorum.wire.fake_node import FakeNode

__all__ = ["node", "run"]

pytestmark = pytest.mark.slow

DEFINE = ("configs", "define", "acme.count", "--of", "topic", "--type", "int", "--default", "8", "--minimum", "1")


async def test_a_key_is_defined_set_described_and_undefined(run: Run, node: FakeNode) -> None:
    node.cluster.assign("orders", (0, 1))
    dry = await run(*DEFINE, "--dry-run")
    assert dry.exit_code == 0 and "would be defined" in dry.stdout and not node.cluster.image.config_definitions
    defined = await run(*DEFINE, "--documentation", "How many shards.", "-o", "json")
    assert defined.document["results"] == [
        {"of": "topic", "key": "acme.count", "result": "defined", "error": None, "message": None}
    ]
    assert (await run("configs", "set", "--topic", "orders", "acme.count=0")).exit_code == 1
    assert (await run("configs", "set", "--topic", "orders", "acme.count=9")).exit_code == 0
    described = await run("configs", "describe", "--topic", "orders", "-o", "json")
    (row,) = described.document["configs"]
    assert (row["value"], row["default"], row["meaning"]) == ("9", "8", "How many shards.")

    refused = await run("configs", "undefine", "acme.count", "--of", "topic")
    assert refused.exit_code == 1 and "topic 'orders' has config acme.count = '9'" in refused.stderr
    assert (await run("configs", "delete", "--topic", "orders", "acme.count")).exit_code == 0
    assert (await run("configs", "undefine", "acme.count", "--of", "topic")).exit_code == 0
    assert not node.cluster.image.config_definitions


async def test_keys_of_topics_and_brokers_are_listed(run: Run) -> None:
    await run(*DEFINE)
    await run(
        "configs", "define", "acme.colours.", "--of", "broker", "--type", "list", "--choice", "red", "--choice", "b"
    )
    listed = await run("configs", "keys", "-o", "json")
    assert listed.document["keys"] == [
        {
            "of": "topic", "key": "acme.count", "is_prefix": False, "type": "int", "default": "8", "minimum": 1,
            "maximum": None, "choices": [], "documentation": None,
        },
        {
            "of": "broker", "key": "acme.colours.", "is_prefix": True, "type": "list", "default": "", "minimum": None,
            "maximum": None, "choices": ["red", "b"], "documentation": None,
        },
    ]  # fmt: skip
    heading, row = (await run("configs", "keys", "--of", "broker")).stdout.splitlines()
    assert heading.split()[:3] == ["OF", "KEY", "TYPE"]
    assert row.split()[:3] == ["broker", "acme.colours.", "list"] and "red,b" in row


@pytest.mark.parametrize(
    "wrong",
    [
        ("define", "acme.x"),
        ("define", "acme.x", "--of", "topic", "--type", "int", "--minimum", "-999999999999999999999999"),
        ("define", "acme.x", "--of", "topic", "--type", "float"),
        ("undefine", "--of", "topic"),
    ],
)
async def test_wrong_usage_ends_with_2(run: Run, wrong: tuple[str, ...]) -> None:
    assert (await run("configs", *wrong)).exit_code == 2
