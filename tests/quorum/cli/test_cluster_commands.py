"""The commands that ask a cluster, as real processes against a served node: documents, exit codes, one-line errors.

They run as processes because gRPC wants one event loop per process, and the served node has this one's.
"""

import asyncio
import json
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import BROKER_RESOURCE, Endpoint
from quorum.cli.commands.brokers.brokers import _meaning
from quorum.cli.commands.leaders import requests_for
from quorum.controller.protocol.brokers.state_reason import StateReason
from quorum.controller.protocol.config_commands import (
    AlterConfigs,
    ConfigAlteration,
    ConfigOperation,
    ConfigOperationKind,
)
from quorum.core.protocol.problem import Problem, ProblemCode
from quorum.runtime.protocol.requests import LeaderHint, NodeStatus, Refused
from quorum.wire.server import serve
from tests import forked
from tests.processes.certificates import Authority
from tests.quorum.cli.shapes import shape
from tests.quorum.controller.cluster import incarnation, registration
from tests.quorum.wire.fake_node import ANY_PORT, IDENTITY, FakeNode
from tests.quorum.wire.peers.test_elections import moved

pytestmark = pytest.mark.slow

FULL = Problem(ProblemCode.DISK_FULL, "the disk is full")
SENTRY = Path(__file__).parents[3] / "examples" / "sentry_topics.json"


class Ran(NamedTuple):
    """What a command has done."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def document(self) -> Any:
        return json.loads(self.stdout)


Run = Callable[..., Coroutine[Any, Any, Ran]]


async def quorumctl(*arguments: object) -> Ran:
    ran = await asyncio.to_thread(forked.quorumctl, *map(str, arguments))
    return Ran(ran.returncode, ran.stdout, ran.stderr)


def with_controller_2_at(status: NodeStatus, port: int) -> NodeStatus:
    """The status of a node that knows this address of controller 2."""
    endpoint = Endpoint("CONTROLLER", "127.0.0.1", port)
    replicas = (replace(each, endpoint=endpoint) if each.node_id == 2 else each for each in status.replicas)
    return replace(status, replicas=tuple(replicas))


@pytest.fixture
def node() -> FakeNode:
    return FakeNode()


@pytest.fixture
async def run(node: FakeNode) -> AsyncIterator[Run]:
    """`await run("topics", "list")` asks the served node."""
    async with serve(node, IDENTITY, ANY_PORT, grace_s=0) as port:
        node.target = f"127.0.0.1:{port}"

        async def ask(*arguments: object) -> Ran:
            return await quorumctl("-C", f"127.0.0.1:{port}", *arguments)

        yield ask


async def test_a_topics_life(run: Run) -> None:
    """Created, listed, described, deleted; each document's shape, and an exit code for each way to fail."""
    created = await run("topics", "create", "orders", "--partitions", 2, "--config", "retention.ms=5", "-o", "json")
    assert created.exit_code == 0
    assert shape(created.document) == {
        "schema_version": "int",
        "offset": "int",
        "topics": [{"name": "str", "result": "str", "error": None, "message": None, "topic_id": "str"}],
    }
    (there,) = created.document["topics"]
    again = await run("topics", "create", "orders")
    assert again.exit_code == 4
    header, row = (line.split("\t") for line in again.stdout.splitlines())
    assert dict(zip(header, row, strict=True)) == {
        "NAME": "orders", "RESULT": "refused", "TOPIC_ID": there["topic_id"], "MESSAGE": "topic 'orders' exists already",
    }  # fmt: skip
    both = await run("topics", "create", "orders", "more", "--if-not-exists", "-o", "json")
    assert both.exit_code == 0
    exists, more = both.document["topics"]
    assert exists == {**there, "result": "exists"}
    assert (more["result"], more["error"], more["message"]) == ("created", None, None)
    assert (await run("topics", "delete", "more")).exit_code == 0
    twice = await run("topics", "delete", "orders", "orders", "--if-exists")
    assert (twice.exit_code, twice.stderr) == (2, "quorumctl: topic orders is named twice; nothing was done\n")
    listed = await run("-o", "json", "topics", "list")
    assert shape(listed.document) == {
        "schema_version": "int",
        "topics": [{"name": "str", "topic_id": "str", "partitions": "int", "replication_factor": "int"}],
    }
    described = await run("topics", "describe", "orders", "-o", "json")
    assert shape(described.document["topics"][0]) == {
        "name": "str", "topic_id": "str", "partition_count": "int", "configs": {"retention.ms": "str"},
        "labels": {},
        "partitions": [{
            "partition": "int", "leader_id": "int", "leader_epoch": "int", "partition_epoch": "int", "replicas": ["int"],
            "isr": ["int"], "adding_replicas": [], "removing_replicas": [], "elr": [], "last_known_elr": [],
            "offline_replicas": [], "leader_recovery_state": "str",
        }],
    }  # fmt: skip
    assert (await run("topics", "delete", "orders")).exit_code == 0
    missing = await run("topics", "describe", "orders")
    assert missing.exit_code == 3
    assert missing.stderr == "quorumctl: UNKNOWN_TOPIC_OR_PARTITION: there is no topic 'orders'\n"
    absent = await run("topics", "delete", "orders", "--if-exists", "-o", "json")
    assert absent.exit_code == 0
    assert absent.document["topics"] == [
        {"name": "orders", "result": "absent", "error": None, "message": None, "topic_id": None}
    ]


async def test_quorum_documents(run: Run) -> None:
    """What is not known is null, in status and replication."""
    status = (await run("quorum", "status", "-o", "json")).document
    member = {"node_id": "int", "directory_id": "str", "endpoint": "str", "status": "str"}
    assert shape(status) == {
        "schema_version": "int", "cluster_id": "str", "generation": "int", "leader_id": "int",
        "leader_epoch": "int", "no_leader_reason": None, "no_leader_for_ms": None, "high_watermark": "int",
        "max_follower_lag": "int", "max_follower_lag_time_ms": "int", "voters": [member], "silent_voters": [],
        "observers": [{**member, "endpoint": None}], "answered_by": "int", "answered_by_role": "str",
        "log_start_offset": "int", "log_end_offset": "int", "flushed_end_offset": "int", "applied_offset": "int",
        "snapshot": None, "chain": "str", "digest": "str", "problems": [],
    }  # fmt: skip
    replicas = (await run("quorum", "replication", "-o", "jsonl")).stdout.splitlines()
    assert [json.loads(line)["status"] for line in replicas] == ["leader", "follower", "observer"]
    assert shape(json.loads(replicas[1])) == {
        "node_id": "int", "directory_id": "str", "log_end_offset": "int", "lag": "int", "behind_for_ms": "int",
        "last_fetch_age_ms": "int", "last_caught_up_age_ms": "int", "status": "str", "endpoint": None,
    }  # fmt: skip


async def test_status_without_a_leader_answers_and_says_unhealthy(run: Run, node: FakeNode) -> None:
    """Exit code 10: it was asked, and something is wrong; not 5, which says that nobody could be asked."""
    status = node.status()

    def leaderless() -> Any:
        return replace(
            status, role="prospective", leader=LeaderHint(None, 1, None), high_watermark=None,
            no_leader_reason="2, 3 do not answer", no_leader_for_ms=12_345,
        )  # fmt: skip

    node.status = leaderless  # type: ignore[method-assign]
    ran = await run("quorum", "status", "-o", "json")
    assert ran.exit_code == 10
    assert (ran.document["leader_id"], ran.document["high_watermark"]) == (None, None)
    assert (ran.document["no_leader_reason"], ran.document["no_leader_for_ms"]) == ("2, 3 do not answer", 12_345)
    told = "for 12.3 s, as controller 1 says: 2, 3 do not answer\n"
    assert f"LeaderId: -\nNoLeader: {told}" in (await run("quorum", "status")).stdout
    ran = await run("quorum", "replication")
    assert (ran.exit_code, ran.stderr) == (10, f"quorumctl: no leader {told}")


async def test_a_silent_voter_is_no_follower_and_counts_as_far_behind(run: Run, node: FakeNode) -> None:
    """It lacks all that the leader holds, since the epoch began; status and replication say so, and end with 10."""
    seen = node.status()
    dead = [
        replace(
            each, status="silent", log_end_offset=None, last_fetch_age_ms=None, last_caught_up_age_ms=None,
            lag=seen.log_end_offset, behind_for_ms=5_000,
        )
        if each.node_id == 2 else each
        for each in seen.replicas
    ]  # fmt: skip
    led = replace(seen, replicas=tuple(dead))
    node.status = lambda: led  # type: ignore[method-assign]
    ran = await run("quorum", "status", "-o", "json")
    assert ran.exit_code == 10
    said = ran.document
    assert (said["max_follower_lag"], said["max_follower_lag_time_ms"]) == (seen.log_end_offset, 5_000)
    assert said["silent_voters"] == [2]
    ran = await run("quorum", "replication")
    assert ran.exit_code == 10
    row = next(line.split("\t") for line in ran.stdout.splitlines() if line.startswith("2\t"))
    assert row[2:7] == ["-", str(seen.log_end_offset), "5000", "-", "silent"]


async def test_a_follower_alone_cannot_say_that_all_voters_are_heard(run: Run, node: FakeNode) -> None:
    """The leader, controller 2, is out of reach for the command and for controller 1. Controller 3 may be dead for hours."""
    seen = node.status()
    unknown = [
        replace(each, status="follower" if each.node_id == 1 else "unknown", lag=None, behind_for_ms=None,
                            last_fetch_age_ms=None, last_caught_up_age_ms=None)
        for each in seen.replicas
    ]  # fmt: skip
    nowhere = LeaderHint(2, 1, Endpoint("CONTROLLER", "127.0.0.1", 1))
    followed = replace(seen, role="follower", leader=nowhere, replicas=tuple(unknown))
    node.status = lambda: followed  # type: ignore[method-assign]
    why = "not known, because leader 2 could not be asked, neither from here nor by controller 1\n"
    status = await run("quorum", "status")
    assert status.exit_code == 10 and f"SilentVoters: {why}" in status.stdout
    replication = await run("quorum", "replication")
    assert (replication.exit_code, replication.stderr) == (10, f"quorumctl: {why}")
    health = await run("health", "-o", "json")
    assert health.exit_code == 10 and health.document["pending"] == []
    assert health.document["reasons"][0].startswith("leader 2 could not be asked")


async def test_health_asks_the_leader_again_about_a_voter_that_has_just_gone(run: Run, node: FakeNode) -> None:
    """Voter 2 refuses connections. The leader heard it 20 ms ago; at the second look, not for 1.2 s."""
    seen, looks = node.status(), 0

    def status() -> Any:
        nonlocal looks
        looks += 1
        gone = [
            replace(
                each, endpoint=Endpoint("CONTROLLER", "127.0.0.1", 1), last_fetch_age_ms=20 if looks == 1 else 1_220
            )
            if each.node_id == 2 else each
            for each in seen.replicas
        ]  # fmt: skip
        return replace(seen, replicas=tuple(gone))

    node.status = status  # type: ignore[method-assign]
    ran = await run("health", "-o", "json")
    assert ran.exit_code == 10
    (reason,) = ran.document["reasons"]
    assert reason.startswith("controller 2 cannot be asked, and the leader has not heard it for 1.2 s: ")


async def test_status_says_what_is_wrong_with_a_follower(run: Run, node: FakeNode) -> None:
    """A follower's disk is known to nobody but itself, so each is asked, whoever answered for the quorum."""
    follower = FakeNode()
    sick = replace(follower.status(), node_id=2, role="follower", problems=(FULL,))
    follower.status = lambda: sick  # type: ignore[method-assign]
    async with serve(follower, IDENTITY, ANY_PORT, grace_s=0) as port:
        led = with_controller_2_at(node.status(), port)
        node.status = lambda: led  # type: ignore[method-assign]
        assert "Problem: 2: disk_full: the disk is full\n" in (await run("quorum", "status")).stdout
        document = (await run("quorum", "status", "-o", "json")).document
    assert document["answered_by"] == 1
    assert document["problems"] == [
        {"node_id": 2, "code": "disk_full", "text": "the disk is full", "blocks_ready": True}
    ]


async def test_health_of_a_cluster_that_is_well(run: Run) -> None:
    """Exit code 0, and all that the verdict is made of. A controller without an address is a note."""
    ran = await run("health", "-o", "json")
    assert ran.exit_code == 0, ran
    each: dict[str, object] = {
        "node_id": "int", "endpoint": "str", "is_voter": "bool", "status": "str", "lag": "int", "behind_for_ms": "int",
        "last_fetch_age_ms": None, "problems": [], "no_leader_reason": None, "missing": None,
        "other_directory_id": None,
    }  # fmt: skip
    document = ran.document
    assert shape(document["controllers"][0]) == each
    assert shape({**document, "controllers": []}) == {
        "schema_version": "int", "healthy": "bool", "reasons": [], "pending": [], "notes": ["str"], "cluster_id": "str",
        "generation": "int", "leader_id": "int", "leader_epoch": "int", "no_leader_reason": None,
        "no_leader_for_ms": None, "high_watermark": "int", "answered_by": "int", "is_leaders": "bool", "controllers": [],
        "brokers": [
            {"broker_id": "int", "state": "str", "mode": None, "last_contact_age_ms": "int", "data_plane": "str"}
        ],
        "partitions": {
            "count": "int", "leaderless": "int", "under_replicated": "int", "first_leaderless": [],
            "first_under_replicated": [],
        },
        "reassignments": {"count": "int", "waiting": "int", "waits_for": []},
        "error": None,
    }  # fmt: skip
    assert document["healthy"] is True


async def test_a_controller_of_another_cluster_at_a_voters_address_is_not_that_voter(run: Run, node: FakeNode) -> None:
    """Its directory id is no reason to remove the voter and to add it again."""
    other = FakeNode()
    foreign = replace(other.status(), cluster_id="another-cluster", node_id=2, directory_id=b"n" * 16)
    other.status = lambda: foreign  # type: ignore[method-assign]
    async with serve(other, IDENTITY, ANY_PORT, grace_s=0) as port:
        led = with_controller_2_at(node.status(), port)
        node.status = lambda: led  # type: ignore[method-assign]
        document = (await run("health", "-o", "json")).document
    told = f"a controller of another cluster, another-cluster, listens at 127.0.0.1:{port}"
    assert document["reasons"] == [] and any(note.endswith(told) for note in document["notes"])


async def test_health_finds_a_voter_that_runs_with_another_directory(run: Run, node: FakeNode) -> None:
    """Its quorum-state was lost, so it goes on as an observer without an address: the voter's address still finds it."""
    other = FakeNode()
    seen = node.status()
    forgetful = replace(other.status(), node_id=2, directory_id=b"n" * 16, role="follower")
    other.status = lambda: forgetful  # type: ignore[method-assign]
    async with serve(other, IDENTITY, ANY_PORT, grace_s=0) as port:
        leader, voter, _ = seen.replicas
        voter = replace(voter, endpoint=Endpoint("CONTROLLER", "127.0.0.1", port))
        observer = replace(voter, directory_id=b"n" * 16, endpoint=None, is_voter=False)
        led = replace(seen, replicas=(leader, voter, observer))
        node.status = lambda: led  # type: ignore[method-assign]
        ran = await run("health", "-o", "json")
    assert ran.exit_code == 10
    assert "controller 2 does not vote: it runs with directory bm5ubm5ubm5ubm5ubm5ubg" in ran.document["reasons"][0]


async def test_health_without_a_leader_counts_who_does_not_answer(run: Run, node: FakeNode) -> None:
    """Nobody's word says who is silent: the one voter whose address is not known, or that refuses, is."""
    lost = replace(node.status(), leader=LeaderHint(None, 1, None), role="prospective")
    node.status = lambda: lost  # type: ignore[method-assign]
    ran = await run("health")
    assert ran.exit_code == 10
    assert "Controllers: 2 voters, 1 silent\n" in ran.stdout


async def test_health_says_why_not_and_ends_with_10(run: Run, node: FakeNode) -> None:
    """A fenced broker, and what it leaves behind, in one look; nobody to ask is another matter."""
    node.cluster.assign("t", (0,), (2,))
    node.cluster.assign("u", (2, 1))
    node.cluster.contact(2, wants_fence=True)
    ran = await run("health")
    assert ran.exit_code == 10
    assert ran.stdout.splitlines()[:4] == [
        "Healthy: no",
        "  - 1 of 3 brokers is fenced: 2",
        "  - 1 of 3 partitions without a leader: t-1",
        "  - 1 of 3 partitions with too few replicas in sync: u-0",
    ]
    assert "Brokers: 3, 2 online\n" in ran.stdout
    nobody = await quorumctl("-C", "127.0.0.1:1", "health")
    assert nobody.exit_code == 5, nobody


async def test_health_waits_until_all_is_well_or_time_is_up(run: Run, node: FakeNode) -> None:
    """It says on the way what it waits for; who watches sees each verdict."""
    well, left = node.status(), [3]

    def at_first_leaderless() -> Any:
        left[0] -= 1
        if left[0] < 0:
            return well
        return replace(well, leader=LeaderHint(None, 1, None), no_leader_reason="too early")

    node.status = at_first_leaderless  # type: ignore[method-assign]
    ran = await run("health", "--exit-when-healthy", "--timeout", 30)
    assert ran.exit_code == 0, ran
    assert ran.stdout.startswith("Healthy: yes\n")
    assert ran.stderr.startswith("waiting: no controller leads, as controller 1 says: too early")

    left[0] = 3
    ran = await run("health", "--watch", "--exit-when-healthy", "--timeout", 30, "-o", "jsonl")
    assert [json.loads(line)["healthy"] for line in ran.stdout.splitlines()] == [False, True], ran

    left[0] = 1_000
    ran = await run("health", "--exit-when-healthy", "--timeout", 0.5)
    assert re.search(r"too early \(and \d more reasons?\)\n", ran.stderr), ran
    assert ran.exit_code == 10 and ran.stdout.startswith("Healthy: no\n")
    nobody = await quorumctl("-C", "127.0.0.1:1", "health", "--exit-when-healthy", "--timeout", 0.3)
    assert nobody.exit_code == 5, nobody


async def test_brokers_and_their_documents(run: Run) -> None:
    """Endpoints by listener; a table for a pipe is separated by tabs."""
    document = (await run("brokers", "list", "-o", "json")).document
    assert shape(document) == {
        "schema_version": "int",
        "as_of_offset": "int",
        "brokers": [{
            "broker_id": "int", "state": "str", "rack": None, "endpoints": [{"listener": "str", "endpoint": "str"}],
            "broker_epoch": "int", "incarnation_id": "str", "last_contact_age_ms": "int", "metadata_offset": "int",
            "led_partitions": "int", "replicas": "int", "data_plane": "str", "mode": None,
        }],
    }  # fmt: skip
    table = (await run("brokers", "list")).stdout.splitlines()
    assert table[0].split("\t")[:2] == ["ID", "STATE"]
    assert table[1].split("\t")[:2] == ["0", "online"]


async def test_a_broker_says_since_when_and_why_it_is_in_its_state(node: FakeNode, run: Run) -> None:
    """From its record, so that any controller tells it, long after the fencing; a broker of an older release has none."""
    older = (await run("brokers", "describe", 1)).stdout
    assert "since        -" in older and "why          -" in older
    for broker_id in (0, 1, 2):
        node.cluster.run(
            replace(registration(broker_id, 2, reads_reasons=True), previous_incarnation_id=incarnation(broker_id))
        )
        node.cluster.lives[broker_id] = 2
        node.cluster.contact(broker_id)
    node.cluster.contact(2, wants_fence=True)

    (broker,) = (await run("brokers", "describe", 2, "-o", "json")).document["brokers"]
    assert shape(broker) == {
        "broker_id": "int", "state": "str", "rack": None, "endpoints": [{"listener": "str", "endpoint": "str"}],
        "broker_epoch": "int", "incarnation_id": "str", "last_contact_age_ms": "int", "metadata_offset": "int",
        "led_partitions": "int", "replicas": "int", "data_plane": "str", "state_reason": "str", "state_since": "str",
        "state_since_ms": "int", "mode": None, "mode_reason": None, "mode_since": None, "mode_since_ms": None,
        "session_left_ms": "int", "log_dirs": [{"directory_id": "str", "is_online": "bool", "replicas": "int"}], "configs": {},
        "labels": {},
    }  # fmt: skip
    assert (broker["state"], broker["state_reason"]) == ("fenced", "asked")
    assert broker["state_since"] == "2023-11-14T22:13:21.000+00:00"
    lines = (await run("brokers", "describe", 0, 2)).stdout.splitlines()
    assert [line for line in lines if line.startswith("broker")] == ["broker 0", "broker 2"]
    assert (
        "  why          asked: the broker itself has asked to be fenced, for example because it had to drop its store"
        in lines
    )

    missing = await run("brokers", "describe", 2, 7)
    assert (missing.exit_code, missing.stdout) == (3, "")
    assert "not registered: broker 7" in missing.stderr


async def test_a_broker_is_described_with_its_configs(node: FakeNode, run: Run) -> None:
    """The configs that were set on the broker itself. The configs of all brokers are a resource of their own."""
    for broker, threads in (("2", "16"), ("", "12")):
        operation = ConfigOperation(ConfigOperationKind.SET, "num.io.threads", threads)
        node.cluster.run(AlterConfigs((ConfigAlteration(BROKER_RESOURCE, broker, (operation,)),)))
    lines = (await run("brokers", "describe", 1, 2)).stdout.splitlines()
    assert [line for line in lines if "configs" in line] == ["  configs      -", "  configs      num.io.threads=16"]


def test_a_reason_is_told_in_words() -> None:
    """A broker's record may have a reason that only a newer release knows."""
    assert all(_meaning(reason.value) == reason.meaning for reason in StateReason)
    assert _meaning("moved_to_the_moon") == "a reason of a newer release"


async def test_snapshots_are_marked_and_listed(run: Run) -> None:
    """The mark's offset; a node that cannot be asked is a row that says so."""
    marked = (await run("snapshot", "create", "--reason", "before the upgrade", "-o", "json")).document
    assert marked == {
        "schema_version": 2, "end_offset": 7, "written_by": None, "not_written_by": None, "sha256": None, "identical": None,
    }  # fmt: skip
    listed = (await run("snapshot", "list", "-o", "json")).document
    assert shape(listed["snapshots"][0]).keys() == {
        "node_id",
        "end_offset",
        "epoch",
        "bytes",
        "log_time",
        "sha256",
        "error",
    }


async def test_a_snapshot_that_a_voter_did_not_write_is_not_everybodys(run: Run, node: FakeNode) -> None:
    """One voter has it, one cannot be asked, one has no known address: the last two are named, and the exit code is 10."""
    seen, (_, _, port) = node.status(), node.target.rpartition(":")
    first, second, _ = seen.replicas
    voters = (
        replace(first, endpoint=Endpoint("CONTROLLER", "127.0.0.1", int(port))),
        replace(second, endpoint=Endpoint("CONTROLLER", "127.0.0.1", 1)),
        replace(second, node_id=3, endpoint=None),
    )
    led = replace(seen, replicas=voters)
    node.status = lambda: led  # type: ignore[method-assign]
    ran = await run("snapshot", "create", "--wait", "-o", "json")
    assert ran.exit_code == 10, ran
    assert ran.document["written_by"] == [1]
    missing = {each["node_id"]: each["error"] for each in ran.document["not_written_by"]}
    assert missing.keys() == {2, 3} and "cannot be reached" in missing[2] and "address is not known" in missing[3]
    told = (await run("snapshot", "create", "--wait")).stderr
    assert "2 of 3 voters have not written it" in told and "controller 3: its address is not known" in told

    led = replace(seen, replicas=voters[:1])
    ran = await run("snapshot", "create", "--wait", "-o", "json")
    assert (ran.exit_code, ran.document["not_written_by"]) == (0, [])


async def test_a_real_catalogue_is_applied_once(run: Run) -> None:
    """76 topics with their configs; the second run finds nothing to do; what cannot be done is refused as a whole."""
    dry = await run("topics", "apply", SENTRY, "--partitions", 2, "--replication-factor", 3, "--dry-run", "-o", "json")
    assert (dry.document["applied"], dry.document["counts"]["create"]) == (False, 76)
    applied = await run("topics", "apply", SENTRY, "--partitions", 2, "--replication-factor", 3)
    assert applied.exit_code == 0, applied.stderr
    assert applied.stdout.splitlines()[-1] == "Done: 76 to create."
    again = await run("topics", "apply", SENTRY, "--partitions", 2, "--replication-factor", 3, "-o", "json")
    assert (again.document["unchanged"], again.document["changes"]) == (76, [])
    grown = await run("topics", "apply", SENTRY, "--partitions", 3, "-o", "json")
    assert grown.document["counts"] == {"create": 0, "grow": 76, "alter": 0, "alter_broker": 0, "delete": 0}
    shrunk = await run("topics", "apply", SENTRY, "--partitions", 1)
    assert shrunk.exit_code == 1
    assert "partitions never become fewer" in shrunk.stderr


async def test_local_reads_say_whose_view_they_are(run: Run, node: FakeNode) -> None:
    """On stderr, so that the output stays what it is."""
    asked = await run("--local", "topics", "list", "-o", "json")
    assert (asked.exit_code, json.loads(asked.stdout)["topics"]) == (0, [])
    assert "this is what controller 1 has applied; it heard its leader 7 ms ago" in asked.stderr


async def test_errors_are_one_line_that_says_what_to_do(
    run: Run, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Usage 2; no leader and indeterminate 5; a refusal 1."""
    usage = await quorumctl("-C", "nonsense", "topics", "list")
    assert (usage.exit_code, usage.stderr.count("\n")) == (2, 1)
    assert "write host:port" in usage.stderr
    too_many = await quorumctl("topics", "create", "x", "--partitions", 10**20)
    assert (too_many.exit_code, "Traceback" in too_many.stderr) == (2, False)

    async def lost(*_: object) -> None:
        raise Refused(ErrorCode.REQUEST_TIMED_OUT, "not committed in time")

    with monkeypatch.context() as patched:
        patched.setattr(node, "submit", lost)
        unknown = await run("--timeout", "0.3", "topics", "create", "x")
    assert unknown.exit_code == 5
    assert "look before you repeat it" in unknown.stderr
    node.refuse_with = Refused(ErrorCode.NOT_CONTROLLER, "no leader is known")
    leaderless = await run("--timeout", "0.3", "brokers", "list")
    assert (leaderless.exit_code, leaderless.stderr.count("\n")) == (5, 1)
    for question in (("quorum", "status"), ("topics", "list")):
        nobody = await quorumctl("-b", "127.0.0.1:1", "--timeout", "0.3", *question)
        assert nobody.exit_code == 5
        assert "Does a node of the cluster run there?" in nobody.stderr
        all_down = await quorumctl("-C", "127.0.0.1:1,127.0.0.1:2", "--timeout", "0.3", *question)
        refusals = [f"127.0.0.1:{port} cannot be reached: Connection refused" for port in (1, 2)]
        assert (all_down.exit_code, all_down.stderr.count("\n")) == (5, 1)
        assert all(refusal in all_down.stderr for refusal in refusals), all_down


async def test_a_command_that_waits_says_so_on_a_terminal() -> None:
    """Ten silent seconds look like a hanging program. A script, whose stderr is no terminal, gets the error alone."""
    terminal, its_stderr = os.openpty()
    words = ("-C", "127.0.0.1:1", "--timeout", "1.2", "topics", "list")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "quorum.cli.main", *words, stdout=asyncio.subprocess.DEVNULL, stderr=its_stderr
    )
    await process.wait()
    os.close(its_stderr)
    waits, error = os.read(terminal, 10_000).decode().splitlines()
    os.close(terminal)
    assert re.search(r"not done yet: 127\.0\.0\.1:1 cannot be reached: .*; the command tries for \d s more", waits)
    assert error.startswith("quorumctl: no active controller answered within 1.2 s")


async def test_output_that_nobody_reads_ends_the_command_quietly() -> None:
    """`quorumctl ... | head -1`: exit code 141, as of any tool that SIGPIPE ends, and no text."""
    reader, writer = os.pipe()
    os.close(reader)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "quorum.cli.main", "version", stdout=writer, stderr=asyncio.subprocess.PIPE
    )
    os.close(writer)
    _, stderr = await process.communicate()
    assert (process.returncode, stderr.decode()) == (141, "")


async def test_output_that_cannot_be_written_is_one_line_too() -> None:
    """A full disk behind `>`."""
    with Path("/dev/full").open("w") as full:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "quorum.cli.main", "version", stdout=full, stderr=asyncio.subprocess.PIPE
        )
        _, stderr = await process.communicate()
    assert (process.returncode, stderr.decode().count("\n")) == (1, 1)
    assert "No space left on device" in stderr.decode()


async def test_an_option_behind_the_command_wins(run: Run) -> None:
    """Addresses may stand on both sides of the command; the nearer one is meant."""
    ran = await run("topics", "list", "-C", "127.0.0.1:1", "--timeout", "0.2")
    assert ran.exit_code == 5


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed: no certificates can be made")
async def test_swapped_key_and_certificate_are_wrong_usage(tmp_path: Path) -> None:
    """Exit code 2, one line that says which file is what, and nobody is dialled; not `cannot be reached` after the timeout."""
    files = Authority(tmp_path / "ca").sign("operator")
    flags = ("--cacert", files.certificate_authority, "--cert", files.private_key, "--key", files.certificate_chain)
    ran = await quorumctl("-C", "127.0.0.1:1", *flags, "topics", "list")
    assert ran.exit_code == 2, ran
    assert "operator.key: a certificate expected, and this is a private key: are the two swapped?" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


async def test_preferred_leaders_are_elected(run: Run, node: FakeNode) -> None:
    """Of one partition, of a topic, of everything: what was elected, what needed nothing, and an exit code for what failed."""
    moved(node.cluster, "orders", 3)
    one = await run(
        "leaders", "elect", "--election-type", "preferred", "--topic", "orders", "--partition", 1, "-o", "json"
    )
    assert one.exit_code == 0
    assert one.document == {
        "schema_version": 2, "elected": 1, "not_needed": 0, "failed": 0,
        "partitions": [{"topic": "orders", "partition": 1, "leader_id": 0, "result": "elected", "error": None, "message": None}],
    }  # fmt: skip
    again = await run("leaders", "elect", "--topic", "orders", "--partition", 1)
    assert again.exit_code == 0
    assert "not needed\tbroker 0, the preferred replica, leads already" in again.stdout

    everywhere = await run("leaders", "elect", "--all-topic-partitions", "-o", "json")
    assert everywhere.exit_code == 0
    assert (everywhere.document["elected"], everywhere.document["not_needed"]) == (2, 1)
    assert node.cluster.leaders("orders") == [0, 0, 0]

    node.cluster.contact(0, wants_fence=True)
    failed = await run("leaders", "elect", "--topic", "orders")
    assert failed.exit_code == 1
    assert "Elected: 0. Not needed: 0. Failed: 3." in failed.stdout
    assert (await run("leaders", "elect", "--topic", "nobody")).exit_code == 3
    assert (await run("leaders", "elect", "--topic", "orders", "--partition", 3)).exit_code == 3
    for wrong in ((), ("--partition", 1), ("--all-topic-partitions", "--topic", "orders")):
        assert (await run("leaders", "elect", *wrong)).exit_code == 2


async def test_a_leader_is_named_or_taken_although_records_may_be_lost(run: Run, node: FakeNode) -> None:
    """`designated` with `--leader`, and `unclean` where no replica in sync can lead. Wrong usage sends no request."""
    node.cluster.assign("orders", (0, 1), (1, 0))
    one = await run(
        "leaders", "elect", "--election-type", "designated", "--leader", 1, "--topic", "orders", "--partition", 0
    )
    assert one.exit_code == 0
    assert node.cluster.leaders("orders")[0] == 1

    for broker_id in (1, 0):
        node.cluster.contact(broker_id, wants_fence=True)
    node.cluster.contact(1)
    unclean = await run("leaders", "elect", "--election-type", "unclean", "--topic", "orders", "-o", "json")
    assert unclean.exit_code == 0
    assert {each["leader_id"] for each in unclean.document["partitions"]} == {1}
    for wrong in (
        ("--election-type", "designated", "--topic", "orders"),
        ("--leader", 1, "--topic", "orders"),
        ("--election-type", "best", "--topic", "orders"),
    ):
        assert (await run("leaders", "elect", *wrong)).exit_code == 2


def test_everything_is_asked_for_in_requests_that_are_not_too_large() -> None:
    """Topics are cut where a request is full, and no partition is left out or named twice."""
    wanted: dict[str, int | tuple[int, ...]] = {"a": 700, "b": (5, 3), "c": 1_500}
    requests = list(requests_for(wanted))

    assert [sum(map(len, request.values())) for request in requests] == [1_000, 1_000, 202]
    asked = [(topic, number) for request in requests for topic, numbers in request.items() for number in numbers]
    expected = [("a", n) for n in range(700)] + [("b", 5), ("b", 3)] + [("c", n) for n in range(1_500)]
    assert asked == expected


async def test_brokers_that_are_gone_are_removed(run: Run, node: FakeNode) -> None:
    """One that is heard stays, with the reason; one that nobody knows is an error, unless the operator says otherwise."""
    node.cluster.contact(2, wants_fence=True)
    node.cluster.now_ms += 20_000
    for broker_id in (0, 1):
        node.cluster.contact(broker_id)
    ran = await run("brokers", "unregister", 0, 2, "-o", "json")
    assert ran.exit_code == 1
    live, gone = ran.document["brokers"]
    assert (live["broker_id"], live["error"]) == (0, "POLICY_VIOLATION")
    assert live["result"] == "refused"
    assert "is alive" in live["message"] and "Stop its process first" in live["message"]
    assert gone == {"broker_id": 2, "result": "removed", "error": None, "message": None}
    assert sorted(node.cluster.image.brokers) == [0, 1]

    assert (await run("brokers", "unregister", 2)).exit_code == 3
    again = await run("brokers", "unregister", 2, "--if-exists")
    assert again.exit_code == 0 and "absent" in again.stdout
