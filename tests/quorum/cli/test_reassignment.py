"""Plans as files, waves of reassignments, and the commands around them."""

import asyncio
import json
import random
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from metaquorum import AdminClient
from quorum.cli.reassignment import progress, waves
from quorum.cli.reassignment.cluster_state import broker_lines, load, planned
from quorum.cli.reassignment.plan_file import plan_document, read_plan
from quorum.cli.reassignment.plan_warnings import warnings_of
from quorum.cli.reassignment.waves import carry_out
from quorum.controller.controller import Controller
from quorum.controller.partitions.reassignment.rebalancing import Place, Replicas
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.mode_commands import DrainBroker
from quorum.controller.protocol.reassignment_commands import AlterPartitionReassignments, Reassignment
from quorum.wire.server import serve
from tests.ctrl_c import ctrl_c_ends_a_process
from tests.quorum.cli.test_cluster_commands import Ran, quorumctl
from tests.quorum.controller.cluster import Cluster
from tests.quorum.controller.partitions.test_reassignments import in_sync
from tests.quorum.wire.fake_node import ANY_PORT, IDENTITY, FakeNode


@pytest.fixture
def node() -> FakeNode:
    """Partitions 0 to 3 of t are on brokers 0 and 1; broker 2 has nothing, and gets two replicas at a time."""
    node = FakeNode()
    cluster = node.cluster
    cluster.controller = Controller(ControllerConfig(reassignment_moves_per_broker_max=2), random.Random(1))
    cluster.controller.activate(cluster.image, cluster.now_ms)
    for broker_id in cluster.image.brokers:
        cluster.contact(broker_id)
    cluster.assign("t", (0, 1), (1, 0), (0, 1), (1, 0))
    return node


@pytest.fixture
async def port(node: FakeNode) -> AsyncIterator[int]:
    async with serve(node, IDENTITY, ANY_PORT, grace_s=0) as port:
        yield port


@pytest.fixture
async def client(port: int) -> AsyncIterator[AdminClient]:
    async with AdminClient([f"127.0.0.1:{port}"]) as client:
        yield client


def all_in_sync(cluster: Cluster) -> None:
    """Every leader finds the replicas of its partitions in sync."""
    for partition in cluster.partitions("t"):
        in_sync(cluster, *partition.replicas, partition=partition.partition)


PLAN = {("t", number): (2, number % 2) for number in range(4)}


# --- files -----------------------------------------------------------------------------------------------------------


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Kafka's format; keys that this release does not know are left aside."""
    file = tmp_path / "plan.json"
    document = plan_document(PLAN, PLAN)
    document["partitions"][0]["log_dirs"] = ["any", "any"]
    file.write_text(json.dumps({"schema_version": 2, **document}))
    assert read_plan(file) == PLAN


ENTRY = '{"topic": "t", "partition": 0, "replicas": [1]}'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the file is empty"),
        (" \n", "the file is empty"),
        ("Replicas to move: 4.", "not JSON: Expecting value: line 1 column 1"),
        ("[" * 100_000, "not a plan: the JSON is nested too deep"),
        ("[]", '"version": 1 expected'),
        ('{"version": 1, "partitions": [{"topic": "t", "partition": -1}]}', "expected, 0 or more, not -1"),
        ('{"version": 2, "partitions": []}', '"version": 1 expected'),
        ('{"version": 1}', 'a list under "partitions"'),
        ('{"version": 1, "partitions": [7]}', "an object expected"),
        ('{"version": 1, "partitions": [{"topic": 1}]}', 'a name under "topic"'),
        ('{"version": 1, "partitions": [{"topic": "t", "partition": true}]}', 'a number under "partition"'),
        ('{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [-1]}]}', "a list of broker ids"),
        (f'{{"version": 1, "partitions": [{ENTRY}, {ENTRY}]}}', "is there twice"),
    ],
)
def test_a_mistake_in_a_file_is_named(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "plan.json"
    file.write_text(text)
    with pytest.raises(ValueError, match=problem):
        read_plan(file)


# --- waves -----------------------------------------------------------------------------------------------------------


async def test_a_plan_is_carried_out_in_waves(
    client: AdminClient, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broker 2 gets two replicas at a time; the command asks again when those are in sync."""
    sizes: list[int] = []

    async def in_time(_: float) -> None:
        sizes.append(sum(bool(each.adding_replicas) for each in node.cluster.partitions("t")))
        all_in_sync(node.cluster)

    monkeypatch.setattr(waves, "_pause", in_time)
    outcome = await carry_out(client, PLAN, wait_s=60)
    assert sizes == [2, 2]
    assert (outcome.counts(), outcome.exit_code) == ({"finished": 4, "moving": 0, "waiting": 0, "failed": 0}, 0)
    assert [partition.replicas for partition in node.cluster.partitions("t")] == list(PLAN.values())


async def test_without_a_wait_the_rest_is_left_for_another_run(client: AdminClient, node: FakeNode) -> None:
    """Exit code 1, and each waiting partition says why. A second run begins where the first one ended."""
    outcome = await carry_out(client, PLAN)
    assert (outcome.counts(), outcome.exit_code) == ({"finished": 0, "moving": 2, "waiting": 2, "failed": 0}, 1)
    assert "broker 2 is getting 2 replicas already" in outcome.rows()[0]["message"]
    all_in_sync(node.cluster)
    assert (await carry_out(client, PLAN)).counts() == {"finished": 2, "moving": 2, "waiting": 0, "failed": 0}


async def test_a_wait_that_is_over_has_an_exit_code_of_its_own(client: AdminClient) -> None:
    assert (await carry_out(client, PLAN, wait_s=0)).exit_code == 5


async def test_a_second_run_waits_for_what_the_first_has_begun(
    client: AdminClient, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its plan is empty, because a plan is made from the targets. Broker 0 is empty only when the moves are finished."""
    off = frozenset((0,))
    first = planned(await load(client), off=off, onto=frozenset())
    monkeypatch.setattr(waves, "_pause", in_time_of(node, 1))
    while (await carry_out(client, first)).waiting:
        all_in_sync(node.cluster)
    cluster = await load(client)
    assert planned(cluster, off=off, onto=frozenset()) == {}
    assert len(cluster.moves_of(off)) == len(cluster.moves_of(frozenset())) == 2
    assert cluster.moves_of(frozenset((9,))) == set()

    late = await carry_out(client, {}, earlier=cluster.moves_of(off), wait_s=0)
    assert (late.counts(), late.exit_code) == ({"finished": 0, "moving": 2, "waiting": 0, "failed": 0}, 5)
    assert [row["not_in_sync"] for row in late.rows()] == [[2], [2]]
    done = await carry_out(client, {}, earlier=cluster.moves_of(off), wait_s=60)
    assert (done.counts(), done.exit_code) == ({"finished": 2, "moving": 0, "waiting": 0, "failed": 0}, 0)
    assert all(0 not in partition.replicas for partition in node.cluster.partitions("t"))


async def test_a_wait_names_the_broker_that_must_come_back(client: AdminClient, node: FakeNode) -> None:
    """Broker 1 stays a replica, and is fenced: broker 2 has all records, and the reassignment is not finished."""
    node.cluster.contact(1, wants_fence=True)
    late = await carry_out(client, {("t", 0): (2, 1)}, wait_s=0)
    in_sync(node.cluster, 0, 2)
    late = await carry_out(client, {}, earlier={("t", 0)}, wait_s=0)
    (row,) = late.rows()
    assert (row["not_in_sync"], row["message"]) == ([1], "waits for broker 1 (fenced)")
    assert late.text() == "1 partition moving; 1 partition waits for broker 1 (fenced)"


async def test_a_reader_of_a_pipe_is_told_now_and_then(
    client: AdminClient, node: FakeNode, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line every ten seconds, with the brokers that hold the work up."""
    monkeypatch.setattr(progress, "LINE_S", 0.0)
    node.cluster.contact(1, wants_fence=True)

    async def back_in_time(_: float) -> None:
        node.cluster.contact(1)
        all_in_sync(node.cluster)

    monkeypatch.setattr(waves, "_pause", back_in_time)
    outcome = await carry_out(client, {("t", 0): (2, 1)}, wait_s=60)
    assert (outcome.exit_code, outcome.inactive) == (0, {})
    assert capsys.readouterr().err == (
        "waiting: 0 of 1 partitions finished, 1 moving, 0 to be begun; 1 partition waits for broker 1 (fenced)\n"
    )


def in_time_of(node: FakeNode, after: int) -> Callable[[float], Awaitable[None]]:
    """A pause, at whose end from the `after`-th on everything is in sync."""
    pauses = iter(range(1, 100))

    async def pause(_: float) -> None:
        if next(pauses) >= after:
            all_in_sync(node.cluster)

    return pause


async def test_a_move_that_another_request_has_ended_is_not_finished(
    client: AdminClient, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile t-0 is cancelled, t-1 gets another target, and t-2 finishes. An earlier move of t-3 is cancelled, too."""
    node.cluster.controller = Controller(ControllerConfig(), random.Random(1))
    node.cluster.controller.activate(node.cluster.image, node.cluster.now_ms)
    node.cluster.run(AlterPartitionReassignments((Reassignment("t", 3, (2, 1)),)))

    async def pause(_: float) -> None:
        others = (Reassignment("t", 0, None), Reassignment("t", 1, (0, 2)), Reassignment("t", 3, None))
        node.cluster.run(AlterPartitionReassignments(others))
        all_in_sync(node.cluster)

    monkeypatch.setattr(waves, "_pause", pause)
    plan = {place: replicas for place, replicas in PLAN.items() if place != ("t", 3)}
    outcome = await carry_out(client, plan, earlier={("t", 3)}, wait_s=60)
    assert outcome.counts() == {"finished": 1, "moving": 0, "waiting": 0, "failed": 3}
    assert [(row["partition"], row["error"]) for row in outcome.rows()] == [
        (0, "NO_REASSIGNMENT_IN_PROGRESS"),
        (1, "NO_REASSIGNMENT_IN_PROGRESS"),
        (3, "NO_REASSIGNMENT_IN_PROGRESS"),
    ]
    assert outcome.exit_code == 1 and "cancelled" in outcome.rows()[0]["message"]


async def test_a_dry_run_begins_nothing(client: AdminClient, node: FakeNode) -> None:
    """It counts as the real run would."""
    before = node.cluster.image.offset
    outcome = await carry_out(client, {**PLAN, ("nobody", 0): (1,)}, dry_run=True)
    assert outcome.counts() == {"finished": 0, "moving": 2, "waiting": 2, "failed": 1}
    assert outcome.exit_code == 3
    assert node.cluster.image.offset == before


# --- warnings ----------------------------------------------------------------------------------------------------------


async def warned(client: AdminClient, plan: dict[Place, Replicas]) -> list[str]:
    return list(warnings_of(await load(client, ["t", "absent"], may_be_absent=True), plan))


async def test_a_plan_that_waits_for_a_fenced_broker_says_so(client: AdminClient, node: FakeNode) -> None:
    """Broker 1 stays in the target of t-0. A plan without a new replica waits for nobody."""
    assert await warned(client, {("t", 0): (2, 1), ("absent", 0): (7,)}) == []
    node.cluster.contact(1, wants_fence=True)
    assert await warned(client, {("t", 0): (1, 0), ("t", 1): (2, 0)}) == []
    (line,) = await warned(client, {("t", 0): (2, 1)})
    assert line.startswith(
        "broker 1 (fenced) is in the target of 1 partition: these reassignments are finished only when"
    )


async def test_a_plan_that_lowers_or_replaces_says_so(client: AdminClient) -> None:
    """The same target again replaces nothing."""
    assert await warned(client, {("t", 0): (1,), ("t", 3): (0,)}) == [
        "the plan lowers the replication factor of 2 partitions, for example of t-0 from 2 to 1"
    ]
    await carry_out(client, {("t", 0): (2, 1)})
    assert await warned(client, {("t", 0): (2, 1)}) == []
    assert await warned(client, {("t", 0): (0, 2)}) == [
        "the plan replaces the target of t-0 in reassignment: a replica that only the former target has is dropped"
    ]


# --- what the cluster is planned from --------------------------------------------------------------------------------


async def test_a_reassignment_in_progress_counts_as_done(client: AdminClient, node: FakeNode) -> None:
    """A plan is made from what the partitions will have; else a second plan would move the same replicas again."""
    node.cluster.run(AlterPartitionReassignments((Reassignment("t", 0, (2, 1)),)))
    cluster = await load(client)
    assert cluster.partitions["t", 0] == (2, 1)
    assert [broker.is_usable for broker in cluster.brokers] == [True] * 3
    plan = planned(cluster, off=frozenset(), onto=frozenset())
    assert broker_lines(cluster, plan)[-1] == "broker 2: 1 -> 2 replicas, preferred leader of 1 -> 2"


# --- commands --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_broker_is_emptied_by_a_plan_that_was_read_first(port: int, node: FakeNode, tmp_path: Path) -> None:
    """The plan goes through a file; `verify` says what is left, `list` and `describe` what is moving, `cancel` leads back."""

    async def run(*arguments: object) -> Ran:
        return await quorumctl("-C", f"127.0.0.1:{port}", *arguments)

    shown = await run("partitions", "rebalance", "--off", 0)
    assert shown.exit_code == 0, shown
    assert shown.stdout.splitlines()[0] == "Replicas to move: 4. Partitions to change: 4."
    assert "broker 0: 4 -> 0 replicas, preferred leader of 2 -> 0" in shown.stdout
    file = tmp_path / "plan.json"
    file.write_text((await run("partitions", "rebalance", "--off", 0, "-o", "json")).stdout)
    begun = await run("partitions", "reassign", "execute", file, "-o", "json")
    assert begun.exit_code == 1
    assert (begun.document["moving"], begun.document["waiting"]) == (2, 2)
    verified = await run("partitions", "reassign", "verify", file)
    assert verified.exit_code == 10
    assert verified.stdout.splitlines()[0] == "Finished: 0. Moving: 2. Differs: 2. Absent: 0."
    listed = await run("partitions", "reassign", "list", "-o", "json")
    assert [each["adding_replicas"] for each in listed.document["partitions"]] == [[2], [2]]
    assert "ADDING\tREMOVING" in (await run("topics", "describe", "t")).stdout
    assert [each["not_in_sync"] for each in listed.document["partitions"]] == [[2], [2]]
    cancelled = await run("partitions", "reassign", "cancel", file)
    assert (cancelled.exit_code, cancelled.stdout.splitlines()[0]) == (
        0,
        "Cancelled: 2. Not in progress: 2. Failed: 0.",
    )
    again = await run("partitions", "reassign", "cancel", "--all")
    assert (again.exit_code, again.stdout.splitlines()[:2]) == (
        0,
        [
            "Cancelled: 0. Not in progress: 0. Failed: 0.",
            "There is nothing to cancel: no reassignment is in progress.",
        ],
    )
    document = (await run("partitions", "reassign", "cancel", file, "-o", "json")).document
    assert (document["cancelled"], document["not_in_progress"], "finished" in document) == (0, 4, False)
    assert all(set(partition.replicas) == {0, 1} for partition in node.cluster.partitions("t"))


@pytest.mark.slow
async def test_topics_are_put_on_some_brokers_at_once(port: int, node: FakeNode) -> None:
    """`rebalance --execute --wait`, here with brokers that find everything in sync at once."""

    async def run(*arguments: object) -> Ran:
        return await quorumctl("-C", f"127.0.0.1:{port}", *arguments)

    generated = await run("partitions", "reassign", "generate", "--topic", "t", "--onto", 1, "--onto", 2, "-o", "json")
    assert [set(each["replicas"]) for each in generated.document["partitions"]] == [{1, 2}] * 4
    node.after_change = lambda: all_in_sync(node.cluster)
    done = await run("partitions", "rebalance", "--onto", 2, "--execute", "--wait", "-o", "json")
    assert (done.exit_code, done.document["finished"]) == (0, 2), done
    assert (await run("partitions", "rebalance", "--onto", 9)).exit_code == 3
    assert (await run("partitions", "rebalance", "--plan", "--wait")).exit_code == 2
    both = await run("partitions", "rebalance", "--plan", "--execute")
    assert both.exit_code == 2 and "either --plan or --execute" in both.stderr
    few = await run("partitions", "reassign", "generate", "--topic", "t", "--onto", 1)
    assert few.exit_code == 1 and "2 replicas need 2 brokers; --onto names 1; nothing was changed" in few.stderr
    for broker_id in (0, 1, 2):
        node.cluster.run(DrainBroker(broker_id))
    idle = await run("partitions", "rebalance")
    assert idle.exit_code == 0 and "warning: no broker takes replicas: each is fenced" in idle.stderr


@pytest.mark.slow
async def test_a_wait_that_ends_before_the_moves_says_what_goes_on(port: int, node: FakeNode) -> None:
    """Not in time: exit code 5. Ctrl-C: 130, not the 1 of a change that was refused. The moves go on both times."""

    async def run(*arguments: object) -> Ran:
        return await quorumctl("-C", f"127.0.0.1:{port}", *arguments)

    wait = ("partitions", "rebalance", "--off", 0, "--execute", "--wait")
    late = await run(*wait, "--timeout", 0.1)
    assert late.exit_code == 5 and "not finished in time: 2 partitions moving, 2 partitions waiting" in late.stderr
    all_in_sync(node.cluster)
    begun = asyncio.Event()
    node.after_change = begun.set
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "quorum.cli.main",
        "-C",
        f"127.0.0.1:{port}",
        *map(str, wait),
        stderr=asyncio.subprocess.PIPE,
        preexec_fn=ctrl_c_ends_a_process,
    )
    async with asyncio.timeout(20):
        await begun.wait()
    assert any(partition.adding_replicas for partition in node.cluster.partitions("t"))
    process.send_signal(signal.SIGINT)
    _, stderr = await process.communicate()
    assert process.returncode == 130
    assert stderr.decode().startswith(
        "quorumctl: interrupted: the command no longer waits, and what has begun goes on. "
    )
    assert any(partition.adding_replicas for partition in node.cluster.partitions("t"))
    node.cluster.contact(2, wants_fence=True)
    health = (await run("health", "-o", "json")).document
    assert health["reassignments"] == {"count": 2, "waiting": 2, "waits_for": [2]}
    assert "partitions in reassignment: 2; 2 wait for a broker that is not online: 2" in health["notes"]
    assert (await run("partitions", "reassign", "cancel")).exit_code == 2
