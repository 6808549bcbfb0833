"""`quorumctl entities` and `sessions`: the entities of programs in the hands of an operator."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from metadata_log.format.ids import uuid_text
from metadata_log.format.records import Owner
from quorum.cli.commands.entities.entity_rows import value_cell, value_json
from quorum.cli.commands.entities.session_names import session_names
from quorum.cli.main import cli
from quorum.controller.protocol.entity_commands import OpenSession, PutEntity, Transact
from tests.clients.fake_entities import FakeCluster, one_client
from tests.quorum.cli.shapes import shape
from tests.quorum.cli.test_cluster_commands import Run, node, run
from tests.quorum.wire.fake_node import FakeNode

__all__ = ["node", "run"]

ALICE = b"alice's session."


@pytest.mark.slow
async def test_an_entity_is_put_read_replaced_and_deleted(run: Run, node: FakeNode, tmp_path: Path) -> None:
    written = await run("entities", "put", "shard", "a/7", "broker 1", "--if-absent", "-o", "json")
    (row,) = written.document["results"]
    assert {**row, "version": 0} == {
        "kind": "shard", "name": "a/7", "result": "written", "version": 0, "generation": 1, "error": None, "message": None,
    }  # fmt: skip
    version = row["version"]
    again = await run("entities", "put", "shard", "a/7", "broker 2", "--if-absent")
    assert again.exit_code == 4 and f"shard a/7 exists already (version {version})" in again.stderr

    (tmp_path / "value").write_bytes(b"\xff\x00")
    replaced = await run(
        "entities", "put", "shard", "a/7", "--file", tmp_path / "value", "--if-version", version, "-o", "json"
    )
    newer = replaced.document["results"][0]["version"]
    assert newer > version
    heading, shown = (await run("entities", "get", "shard", "a/7")).stdout.splitlines()
    assert heading.split("\t") == ["KIND", "NAME", "VERSION", "CREATED", "OWNER", "VALUE"]
    assert shown.split("\t") == ["shard", "a/7", str(newer), str(version), "-", "base64:/wA="]
    got = await run("entities", "get", "shard", "a/7", "-o", "json")
    assert got.document["token"] == {"generation": 1, "offset": newer}
    assert got.document["entities"] == [
        {
            "kind": "shard",
            "name": "a/7",
            "version": newer,
            "created": version,
            "owner": None,
            "value": {"base64": "/wA="},
        }
    ]

    assert (await run("entities", "delete", "shard", "a/7", "--if-version", version)).exit_code == 4
    assert (await run("entities", "delete", "shard", "a/7", "--if-version", newer)).exit_code == 0
    assert (await run("entities", "get", "shard", "a/7")).exit_code == 3
    assert (await run("entities", "delete", "shard", "a/7")).exit_code == 3
    absent = await run("entities", "delete", "shard", "a/7", "--if-exists")
    assert (absent.exit_code, absent.stdout.splitlines()[1].split("\t")) == (0, ["shard", "a/7", "absent", "-"])


@pytest.mark.slow
async def test_entities_of_a_range_are_listed_counted_and_seen_as_they_were(run: Run, node: FakeNode) -> None:
    for name in ("a/1", "a/2", "b/1"):
        assert (await run("entities", "put", "shard", name, f"at {name}")).exit_code == 0
    node.images = [node.cluster.image]
    assert (await run("entities", "delete", "shard", "a/1")).exit_code == 0

    listed = await run("entities", "list", "shard", "--prefix", "a/", "--names-only")
    assert [line.split("\t")[0] for line in listed.stdout.splitlines()] == ["NAME", "a/2"]
    ranged = await run("entities", "list", "shard", "--from", "a/2", "--to", "b/1", "-o", "jsonl")
    (row,) = map(json.loads, ranged.stdout.splitlines())
    assert (row["name"], row["value"]) == ("a/2", "at a/2")
    assert (await run("entities", "list", "shard", "--count")).stdout == "2\n"
    past = await run("entities", "list", "shard", "--count", "--at-offset", node.images[0].offset, "-o", "json")
    assert past.document["count"] == 3
    raw = await run("entities", "get", "shard", "a/1", "--raw", "--at-offset", node.images[0].offset)
    assert raw.stdout == "at a/1"


@pytest.mark.slow
async def test_a_kind_is_declared_with_a_schema_and_removed(run: Run, tmp_path: Path) -> None:
    schema = tmp_path / "shard.json"
    schema.write_text('{"type": "object"}')
    assert (await run("entities", "kinds", "declare", "shard", "--schema", schema, "--max-entities", 1)).exit_code == 0
    refused = await run("entities", "put", "shard", "7", "[]")
    assert refused.exit_code == 1 and refused.stderr.startswith("quorumctl: INVALID_ENTITY: ")
    assert (await run("entities", "put", "shard", "7", "{}")).exit_code == 0
    listed = await run("entities", "kinds", "list", "-o", "json")
    assert listed.document["kinds"] == [
        {
            "kind": "shard", "is_declared": True, "entities": 1, "max_entities": 1, "bytes": 3, "max_bytes": 64 << 20,
            "max_value_bytes": 64 << 10, "has_schema": True, "schema": '{"type": "object"}',
        }
    ]  # fmt: skip
    assert (await run("entities", "kinds", "remove", "shard")).exit_code == 0
    heading, row = (await run("entities", "kinds", "list")).stdout.splitlines()
    assert dict(zip(heading.split("\t"), row.split("\t"), strict=True))["DECLARED"] == "no"


@pytest.mark.slow
async def test_a_session_is_listed_and_closed_with_its_entities(run: Run, node: FakeNode) -> None:
    node.cluster.run(OpenSession(ALICE, "worker on host a", "User:alice", 9_000))
    (epoch,) = (each.epoch for each in node.cluster.image.client_sessions.values())
    assert (await run("entities", "put", "lock", "b", "x", "--ttl", "30s")).exit_code == 0
    listed = await run("sessions", "list", "-o", "json")
    assert shape(listed.document["sessions"]) == [
        {"session_id": "str", "epoch": "int", "name": "str", "principal": "str", "timeout_ms": "int", "entities": "int"}
    ]
    (ttl,) = (each for each in listed.document["sessions"] if each["session_id"] != uuid_text(ALICE))
    assert (ttl["timeout_ms"], ttl["entities"], ttl["principal"]) == (30_000, 1, None)
    for session_id, its_epoch in ((uuid_text(ALICE), epoch), (ttl["session_id"], ttl["epoch"])):
        assert (await run("sessions", "close", session_id, its_epoch)).exit_code == 0
    assert not node.cluster.image.client_sessions
    assert (await run("entities", "get", "lock", "b")).exit_code == 3
    wrong = CliRunner().invoke(cli, ["sessions", "close", "alice", str(epoch)])
    assert (wrong.exit_code, "`quorumctl sessions list` shows the ids" in wrong.stderr) == (2, True)


@pytest.mark.slow
async def test_an_owner_is_shown_by_the_name_of_its_session(run: Run, node: FakeNode) -> None:
    bob = b"bob's session..."
    node.cluster.run(OpenSession(ALICE, "i1", "User:alice", 9_000))
    node.cluster.run(OpenSession(bob, "", "User:bob", 9_000))
    sessions = node.cluster.image.client_sessions
    for name, each in (("a", sessions[ALICE]), ("b", sessions[bob])):
        owner = Owner(each.session_id, None, each.epoch)
        node.cluster.run(Transact((), (PutEntity(("claim", name), b"", owner),)))
    assert (await run("entities", "put", "claim", "c", "x")).exit_code == 0

    async def owners(output: str = "table") -> list[object]:
        listed = await run("entities", "list", "claim", "-o", output)
        if output == "json":
            return [each["owner"] for each in listed.document["entities"]]
        return [line.split("\t")[3] for line in listed.stdout.splitlines()[1:]]

    alice, nameless = f"session i1 ({uuid_text(ALICE)})", f"session {uuid_text(bob)}"
    assert await owners() == [alice, nameless, "-"]
    assert (await run("entities", "get", "claim", "a")).stdout.splitlines()[1].split("\t")[4] == alice
    with_name, without, none = await owners("json")
    assert with_name == {
        "session_id": uuid_text(ALICE), "session_name": "i1", "broker_id": None, "epoch": sessions[ALICE].epoch,
    }  # fmt: skip
    assert isinstance(without, dict) and without["session_name"] is None and none is None


async def test_names_are_looked_for_in_a_bounded_number_of_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    async with one_client(FakeCluster()) as client, client.session("i1") as session:
        await client.put("claim", "a", b"", session=session)
        found = [each async for each in client.list("claim")]
        assert await session_names(client, found) == {session.session_id: "i1"}
        monkeypatch.setattr("quorum.cli.commands.entities.session_names.SESSIONS_READ_MAX", 0)
        assert await session_names(client, found) == {}


@pytest.mark.parametrize(
    "wrong",
    [
        ("put", "shard", "7"),
        ("put", "shard", "7", "x", "--if-absent", "--if-version", "7"),
        ("put", "shard", "7", "x", "--ttl", "soon"),
        ("list", "shard", "--count", "--names-only"),
    ],
)
def test_wrong_usage_ends_with_2(wrong: tuple[str, ...]) -> None:
    assert CliRunner().invoke(cli, ["entities", *wrong]).exit_code == 2


def test_a_value_is_text_if_people_can_read_it() -> None:
    assert [value_cell(each) for each in (b"", b"a\nb", "é".encode(), b"\x1b[2J", b"\xff")] == [
        "", "a\nb", "é", "base64:G1sySg==", "base64:/w==",
    ]  # fmt: skip
    assert value_cell(b"x" * 300) == "x" * 200 + "... (300 bytes)"
    assert value_json(b"x" * 300) == "x" * 300
