"""`quorumctl quotas`, `acls` and `users`: what is set is shown, a dry run changes nothing, and wrong usage sends nothing."""

from pathlib import Path

import pytest

from tests.quorum.cli.test_cluster_commands import Run, node, run
from tests.quorum.wire.fake_node import FakeNode

__all__ = ["node", "run"]

pytestmark = pytest.mark.slow


async def test_a_quota_is_set_shown_and_removed(run: Run, node: FakeNode) -> None:
    of_web = ("--user", "alice", "--client-id", "web")
    dry = await run("quotas", "set", "producer_byte_rate=1000", *of_web, "--dry-run")
    assert dry.exit_code == 0 and "would be altered" in dry.stdout and not node.cluster.image.quotas
    assert (await run("quotas", "set", "producer_byte_rate=1000", "request_percentage=0.5", *of_web)).exit_code == 0
    assert (await run("quotas", "set", "connection_creation_rate=5", "--ip-defaults")).exit_code == 0

    everything = (await run("quotas", "list", "-o", "json")).document["quotas"]
    assert [(each["entity"], each["key"], each["value"]) for each in everything] == [
        ("user alice, client-id web", "producer_byte_rate", 1000),
        ("user alice, client-id web", "request_percentage", 0.5),
        ("ip (default)", "connection_creation_rate", 5),
    ]
    assert everything[2]["parts"] == [{"entity_type": "ip", "name": None}]
    for wanted, count in ((("--user", "alice"), 2), (("--user", "alice", "--strict"), 0), (("--user-defaults",), 0)):
        assert len((await run("quotas", "list", *wanted, "-o", "json")).document["quotas"]) == count

    assert (await run("quotas", "remove", "connection_creation_rate", "--ip-defaults")).exit_code == 0
    assert len(node.cluster.image.quotas) == 2
    refused = await run("quotas", "set", "producer_byte_rate=0", "--user", "bob")
    assert refused.exit_code == 1 and "greater than 0" in refused.stdout and "refused" in refused.stdout


@pytest.mark.parametrize(
    "wrong",
    [
        ("set", "producer_byte_rate=5"),
        ("set", "producer_byte_rate", "--user", "a"),
        ("set", "producer_byte_rate=fast", "--user", "a"),
        ("remove", "--user", "a"),
        ("list", "--user", "a", "--user-defaults"),
    ],
)
async def test_wrong_usage_of_quotas_sends_nothing(run: Run, wrong: tuple[str, ...]) -> None:
    assert (await run("quotas", *wrong)).exit_code == 2


async def test_acls_are_created_found_and_deleted(run: Run, node: FakeNode) -> None:
    """One ACL for each principal, operation and resource; a dry run changes nothing; a repetition is no error."""
    new = ("acls", "add", "--allow", "User:alice", "--operation", "read", "--operation", "alter-configs")
    on = ("--resource", "topic:app-", "--prefixed")
    assert (await run(*new, *on, "--dry-run")).exit_code == 0 and not node.cluster.image.acls
    for _ in range(2):
        assert (await run(*new, *on)).exit_code == 0
    of_bob = ("--deny", "User:bob", "--operation", "all", "--resource", "cluster", "--host", "10.0.0.9")
    assert (await run("acls", "add", *of_bob)).exit_code == 0
    assert len(node.cluster.image.acls) == 3

    shown = (await run("acls", "list", "--principal", "User:bob", "-o", "json")).document["acls"]
    assert shown == [
        {
            "resource_type": "cluster", "resource_name": "kafka-cluster", "pattern_type": "literal", "principal": "User:bob",
            "host": "10.0.0.9", "operation": "all", "permission": "deny",
        }
    ]  # fmt: skip
    for pattern, count in (("match", 2), ("any", 0)):
        found = await run("acls", "list", "--resource", "topic:app-1", "--pattern-type", pattern, "-o", "json")
        assert len(found.document["acls"]) == count

    removal = ("acls", "remove", "--resource", "topic", "--operation", "read", "-o", "json")
    dry = await run(*removal, "--dry-run")
    assert [each["result"] for each in dry.document["results"]] == ["would be deleted"]
    assert len(node.cluster.image.acls) == 3
    assert (await run(*removal)).exit_code == 0 and len(node.cluster.image.acls) == 2
    assert (await run("acls", "remove", "--all")).exit_code == 0 and not node.cluster.image.acls
    refused = await run("acls", "add", "--allow", "alice", "--operation", "read", "--resource", "topic:orders")
    assert refused.exit_code == 1 and "write User:alice" in refused.stdout


@pytest.mark.parametrize(
    "wrong",
    [
        ("add", "--operation", "read", "--resource", "topic:a"),
        ("add", "--allow", "User:a", "--operation", "read", "--resource", "topic"),
        ("add", "--allow", "User:a", "--operation", "read", "--resource", "queue:a"),
        ("add", "--allow", "User:a", "--operation", "any", "--resource", "topic:a"),
        ("remove",),
        ("remove", "--all", "--principal", "User:a"),
        ("list", "--resource", "topic:"),
    ],
)
async def test_wrong_usage_of_acls_sends_nothing(run: Run, wrong: tuple[str, ...]) -> None:
    assert (await run("acls", *wrong)).exit_code == 2


async def test_a_password_becomes_keys_that_are_shown_nowhere(run: Run, node: FakeNode, tmp_path: Path) -> None:
    """The image has keys and no password; a list has neither; a dry run and a bad file change nothing."""
    file = tmp_path / "secret.txt"
    file.write_text("pencil\n")
    new = ("users", "set", "alice", "--password-file", str(file))
    assert (await run(*new, "--dry-run")).exit_code == 0 and not node.cluster.image.scram_credentials
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        assert (await run(*new, "--mechanism", mechanism, "--iterations", 4_096)).exit_code == 0
    kept = node.cluster.image.scram_credentials["alice", 2]
    assert (len(kept.stored_key), kept.iterations) == (64, 4_096) and b"pencil" not in kept.salt + kept.stored_key
    shown = await run("users", "list", "-o", "json")
    assert shown.document["users"] == [
        {"user": "alice", "mechanism": name, "iterations": 4_096} for name in ("SCRAM-SHA-256", "SCRAM-SHA-512")
    ]
    assert (await run("users", "remove", "alice", "--mechanism", "SCRAM-SHA-256")).exit_code == 0
    assert [*node.cluster.image.scram_credentials] == [("alice", 2)]
    assert (await run("users", "remove", "bob")).exit_code == 0
    for text in ("", "two\nlines", "x" * 2_000):
        file.write_text(text)
        assert (await run(*new)).exit_code == 2
    file.unlink()
    assert (await run(*new)).exit_code == 2
    assert (await run("users", "set", "alice")).exit_code == 2
    assert node.cluster.image.scram_credentials["alice", 2] == kept


async def test_a_removed_user_keeps_no_credential(run: Run, node: FakeNode, tmp_path: Path) -> None:
    """Otherwise alice would still log in with her other mechanism, after an answer that told of no other."""
    file = tmp_path / "secret.txt"
    file.write_text("pencil\n")
    for user, mechanism in (("alice", "SCRAM-SHA-256"), ("alice", "SCRAM-SHA-512"), ("bob", "SCRAM-SHA-256")):
        assert (await run("users", "set", user, "--password-file", str(file), "--mechanism", mechanism)).exit_code == 0

    dry = await run("users", "remove", "alice", "--dry-run", "-o", "json")
    assert {each["result"] for each in dry.document["results"]} == {"would be removed"}
    assert len(node.cluster.image.scram_credentials) == 3

    removed = await run("users", "remove", "alice", "-o", "json")
    assert [(each["user"], each["mechanism"], each["result"]) for each in removed.document["results"]] == [
        ("alice", name, "removed") for name in ("SCRAM-SHA-256", "SCRAM-SHA-512")
    ]
    assert [*node.cluster.image.scram_credentials] == [("bob", 1)]
    refused = await run("users", "remove", "")
    assert refused.exit_code == 1 and refused.stdout.count("refused") == 2
