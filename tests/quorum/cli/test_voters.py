"""Changing who votes and who leads from the command line, and formatting a node that is to join."""

from dataclasses import replace
from pathlib import Path

import pytest

from metadata_log.disk.files import RealDirectory
from metadata_log.disk.identity import read_identity
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import ReplicaKey, uuid_text
from metadata_log.format.records import Endpoint, Voter
from quorum.core.protocol.messages import (
    AddVoterRequest,
    QuorumChangeResponse,
    RemoveVoterRequest,
    TransferLeadershipRequest,
)
from quorum.runtime.disk.open_directory import LOG_DIRECTORY
from quorum.runtime.protocol.requests import LeaderHint, NodeStatus
from snapshots.store import SnapshotStore, genesis
from tests.quorum.cli.shapes import shape
from tests.quorum.cli.test_cluster_commands import Run, node, quorumctl, run
from tests.quorum.wire.fake_node import IDENTITY, FakeNode

__all__ = ["node", "run"]

pytestmark = pytest.mark.slow

OBSERVER = bytes([9]) * 16


async def test_an_observer_becomes_a_voter(run: Run, node: FakeNode) -> None:
    """Its directory id is what the quorum knows of it; first as a dry run, which does nothing."""
    words = ("quorum", "add-voter", "--node-id", 9, "--endpoint", "c9:9001")
    dry = await run(*words, "--dry-run")
    assert (dry.exit_code, node.asked) == (0, [])
    assert dry.stdout == f"Would add voter 9 ({uuid_text(OBSERVER)}) at c9:9001: {{1,2}} -> {{1,2,9}}.\n"
    done = await run(*words)
    assert done.stdout.startswith("Added voter 9") and done.stdout.endswith("as of offset 43.\n")
    (request,) = node.asked
    assert isinstance(request, AddVoterRequest)
    assert request.voter == Voter(9, OBSERVER, (Endpoint("CONTROLLER", "c9", 9001),))
    document = (await run(*words, "-o", "json")).document
    assert shape(document) == {
        "schema_version": "int", "node_id": "int", "directory_id": "str", "dry_run": "bool", "offset": "int",
        "previous_voters": ["int"], "voters": ["int"], "endpoint": "str",
    }  # fmt: skip


async def test_a_voter_is_added_by_its_config_file(run: Run, node: FakeNode, tmp_path: Path) -> None:
    """Node id, listener and directory id are read where they stand; nothing has to be typed."""
    config = tmp_path / "c.yaml"
    config.write_text(
        f"node.id: 4\nlisteners: CONTROLLER://0.0.0.0:9001\nmetadata.log.dir: {tmp_path / 'data'}\n"
        "advertised.listeners: CONTROLLER://c4:9001\n"
    )
    unformatted = await run("quorum", "add-voter", "--config", config)
    assert unformatted.exit_code == 4 and "is not formatted" in unformatted.stderr
    await run("storage", "format", "--config", config, "--from", node.target)
    added = await run("quorum", "add-voter", "--config", config)
    assert added.exit_code == 0, added.stderr
    (request,) = node.asked
    assert isinstance(request, AddVoterRequest)
    identity = read_identity(RealDirectory(tmp_path / "data"))
    assert identity is not None
    assert request.voter == Voter(4, identity.directory_id, (Endpoint("CONTROLLER", "c4", 9001),))
    config.write_text(config.read_text().replace("advertised.listeners: CONTROLLER://c4:9001\n", ""))
    unreachable = await run("quorum", "add-voter", "--config", config)
    assert unreachable.exit_code == 2 and "advertised.listeners" in unreachable.stderr
    (tmp_path / "data" / "meta.properties").unlink()
    (tmp_path / "data" / "meta.properties").mkdir()
    unreadable = await run("quorum", "add-voter", "--config", config)
    assert unreadable.exit_code == 1 and f"{tmp_path / 'data'}: Is a directory" in unreadable.stderr


async def test_a_controller_that_does_not_fetch_is_named(
    run: Run, monkeypatch: pytest.MonkeyPatch, node: FakeNode
) -> None:
    """1. After `quorum recover` an operator starts controller 9, whose configuration names no living controller.  2. The leader
    waits in vain for a fetch of controller 9.  3. The error says so, and not that no active controller has answered."""

    async def refuse(_: object) -> QuorumChangeResponse:
        text = "waited 300 ms for controller 9, with this directory id, to fetch from this leader; nothing was done"
        return QuorumChangeResponse(ErrorCode.REQUEST_TIMED_OUT, 1, 1, text)

    monkeypatch.setattr(node, "raft", refuse)
    refused = await run("--timeout", "0.3", "quorum", "add-voter", "--node-id", 9, "--endpoint", "c9:9001")
    assert refused.exit_code == 5
    assert "not done within 0.3 s; the last answer: waited 300 ms for controller 9" in refused.stderr
    assert "does its configuration name a living controller (controller.quorum.voters)?" in refused.stderr


async def test_who_is_to_vote_must_be_said_and_must_be_there(run: Run, node: FakeNode) -> None:
    """A mistake is told before anything is asked of the quorum."""
    for words, exit_code, text in (
        ((), 2, "name the new voter"),
        (("--node-id", 9), 2, "name the new voter"),
        (("--node-id", 9, "--endpoint", "c9"), 2, "host:port expected"),
        (("--node-id", 9, "--endpoint", "c9:1", "--directory-id", "short"), 2, "not an id"),
        (("--node-id", 5, "--endpoint", "c5:9001"), 3, "is no observer (there are: 9). Start it first"),
    ):
        refused = await run("quorum", "add-voter", *words)
        assert (refused.exit_code, text in refused.stderr) == (exit_code, True), refused
    assert node.asked == []


async def test_a_voter_is_removed(run: Run, node: FakeNode) -> None:
    """By its node id; the quorum's refusal is one line with the exit code of its kind."""
    dry = await run("quorum", "remove-voter", "--node-id", 2, "--dry-run", "-o", "json")
    assert (dry.document["voters"], dry.document["offset"], node.asked) == ([1], None, [])
    assert (await run("quorum", "remove-voter", "--node-id", 2)).exit_code == 0
    (request,) = node.asked
    assert isinstance(request, RemoveVoterRequest) and request.voter == ReplicaKey(2, bytes([2]) * 16)
    assert (await run("quorum", "remove-voter", "--node-id", 9)).exit_code == 3
    node.answer_change = lambda request: QuorumChangeResponse(ErrorCode.VOTER_NOT_FOUND, 1, 1, "it is gone already")
    refused = await run("quorum", "remove-voter", "--node-id", 2)
    assert (refused.exit_code, refused.stderr) == (3, "quorumctl: VOTER_NOT_FOUND: it is gone already\n")


async def test_without_a_leader_no_change_of_voters_is_judged(run: Run, node: FakeNode) -> None:
    """1. The only controller that answers follows no leader.  2. `--dry-run` does not promise a change that nobody can make: it
    ends with 5, as the change itself does.  3. Observers are known to a leader only: no controller is called unknown."""
    status = replace(
        node.status(), role="prospective", leader=LeaderHint(None, 1, None), no_leader_reason="2, 3 do not answer"
    )
    node.status = lambda: status  # type: ignore[method-assign]
    add = ("quorum", "add-voter", "--node-id", 9, "--endpoint", "c9:9001")
    remove = ("quorum", "remove-voter", "--node-id", 2)
    for words in ((*add, "--dry-run"), (*remove, "--dry-run"), add):
        refused = await run(*words)
        assert (refused.exit_code, refused.stdout) == (5, ""), refused
        assert (
            "no controller leads, as controller 1 says: 2, 3 do not answer. Nothing was judged or changed"
            in refused.stderr
        )
    status = replace(status, role="follower", leader=LeaderHint(2, 1, Endpoint("CONTROLLER", "127.0.0.1", 1)))
    silent = await run(*remove, "--dry-run")
    assert (
        silent.exit_code == 5
        and "the leader, controller 2, does not answer. Nothing was judged or changed" in silent.stderr
    )
    assert node.asked == []


async def test_leadership_is_handed_over_and_the_new_leader_named(run: Run, node: FakeNode) -> None:
    """The command ends when a leader of a later epoch answers."""
    before = node.status()

    def later() -> NodeStatus:
        return replace(before, epoch=before.epoch + len(node.asked))

    node.status = later  # type: ignore[method-assign]
    done = await run("quorum", "transfer-leader")
    assert done.stdout.startswith("Controller 1 leads in epoch 2")
    assert isinstance(node.asked[0], TransferLeadershipRequest) and node.asked[0].target is None
    already = await run("quorum", "transfer-leader", "--to", 1)
    assert already.stdout == "Controller 1 leads in epoch 2 already.\n"
    other = await run("quorum", "transfer-leader", "--to", 2)
    assert other.exit_code == 1 and "controller 1 was elected, and not 2" in other.stderr


async def test_an_election_that_does_not_come_is_told(run: Run) -> None:
    """Exit code 5, and what to look at."""
    timed_out = await run("quorum", "transfer-leader", "--timeout", "0.3")
    assert timed_out.exit_code == 5
    assert "no other leader is known" in timed_out.stderr


async def test_whether_a_controller_can_be_restarted(run: Run) -> None:
    """Exit codes 0 and 10, with the reason in one sentence."""
    no = await run("quorum", "can-restart", "--node-id", 2)
    assert no.exit_code == 10
    assert no.stdout == ("Controller 2 cannot be restarted now: 2 of 2 voters are needed, and fewer would remain.\n")
    yes = await run("quorum", "can-restart", "--node-id", 9, "-o", "json")
    assert yes.exit_code == 0
    assert shape(yes.document) == {"schema_version": "int", "node_id": "int", "can_restart": "bool", "reason": "str"}


async def test_a_controller_that_joins_is_formatted_from_a_running_one(
    run: Run, node: FakeNode, tmp_path: Path
) -> None:
    """Same cluster, same beginning, a directory id of its own: also where its node id was among the first voters."""
    for node_id in (4, 1):
        path = tmp_path / str(node_id)
        words = ("--directory", path, "--node-id", node_id, "--role", "controller", "--from", node.target)
        formatted = await run("storage", "format", *words)
        assert formatted.exit_code == 0, formatted.stderr
        assert "It starts as an observer" in formatted.stdout
        identity = read_identity(RealDirectory(path))
        assert identity is not None and identity.cluster_id == IDENTITY.cluster_id
        assert identity.generation == IDENTITY.generation
        assert identity.directory_id != IDENTITY.directory_id
        assert identity.genesis_chain == genesis(IDENTITY.cluster_id, node.status().bootstrap)
        bootstrap = SnapshotStore(RealDirectory(path).subdirectory(LOG_DIRECTORY)).bootstrap()
        assert bootstrap is not None and bootstrap.voters == node.status().bootstrap


async def test_a_node_is_not_formatted_for_the_wrong_cluster(run: Run, node: FakeNode, tmp_path: Path) -> None:
    """What is said twice must agree; what cannot be asked is not guessed."""
    base = ("storage", "format", "--directory", tmp_path / "x", "--node-id", 4, "--role", "controller")
    other = await run(*base, "--from", node.target, "--cluster-id", "another")
    assert other.exit_code == 4 and "is of cluster test-cluster, not another" in other.stderr
    both = await run(*base, "--from", node.target, "-I", "1@c1:9001:AAAAAAAAAAAAAAAAAAAAAg")
    assert both.exit_code == 2
    neither = await run(*base)
    assert neither.exit_code == 2 and "name the cluster" in neither.stderr
    nobody = await quorumctl(*base, "--from", "127.0.0.1:1")
    assert nobody.exit_code == 5
    assert not (tmp_path / "x").exists()


def _target(run: Run) -> str:
    """Where the served node listens."""
    return run.target  # type: ignore[attr-defined,no-any-return]
