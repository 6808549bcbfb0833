"""`quorumctl brokers fence | unfence | drain | undrain | unregister`, against a served node."""

from collections.abc import AsyncIterator

import pytest

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NO_LEADER
from metadata_log.format.records import METADATA_VERSION, FeatureLevel
from quorum.cli.commands.brokers.outages import Outage, confirm_fence
from quorum.cli.errors import CliError
from quorum.controller.protocol.commands import Command, FenceBroker, FenceExpiredBrokers, UnregisterBroker
from quorum.runtime.protocol.requests import Refused
from quorum.wire.server import serve
from tests.quorum.cli.test_cluster_commands import Run, quorumctl
from tests.quorum.controller.partitions.test_reassignments import in_sync
from tests.quorum.wire.fake_node import ANY_PORT, IDENTITY, FakeNode

pytestmark = pytest.mark.slow


@pytest.fixture
def node() -> FakeNode:
    return FakeNode()


@pytest.fixture
async def run(node: FakeNode) -> AsyncIterator[Run]:
    """`await run("brokers", "list")` asks the served node."""
    async with serve(node, IDENTITY, ANY_PORT, grace_s=0) as port:
        node.target = f"127.0.0.1:{port}"

        async def ask(*arguments: object) -> object:
            return await quorumctl("-C", f"127.0.0.1:{port}", *arguments)

        yield ask  # type: ignore[misc]


def fenced_brokers(node: FakeNode) -> list[int]:
    return [broker.broker_id for broker in node.cluster.image.brokers.values() if broker.fenced]


async def test_a_broker_is_drained_shown_and_given_back(run: Run, node: FakeNode) -> None:
    """A dry run changes nothing; the table has the mode, and the description has reason and time."""
    node.cluster.assign("orders", (0, 1), (1, 0))
    dry = await run("brokers", "drain", 0, "--dry-run", "--wait")
    assert (dry.exit_code, dry.stdout.splitlines()[1]) == (0, "0\twould be drained\t1\t0\t2")
    assert node.cluster.leaders("orders") == [0, 1]

    drained = await run("brokers", "drain", 0, "--reason", "new disk", "--wait", "-o", "json")
    assert drained.exit_code == 0
    (row,) = drained.document["brokers"]
    assert row == {
        "broker_id": 0, "result": "drained", "error": None, "message": None, "led_partitions": 0,
        "leaderless_partitions": 0, "replicas": 2,
    }  # fmt: skip
    assert node.cluster.leaders("orders") == [1, 1]
    header, row = (await run("brokers", "list")).stdout.splitlines()[:2]
    assert dict(zip(header.split("\t"), row.split("\t"), strict=True))["MODE"] == "maintenance"
    (broker,) = (await run("brokers", "describe", 0, "-o", "json")).document["brokers"]
    assert (broker["mode"], broker["mode_reason"]) == ("maintenance", "new disk")
    (line,) = [each for each in (await run("brokers", "describe", 0)).stdout.splitlines() if "mode " in each]
    assert line.startswith("  mode         maintenance (an operator has drained the broker) since 20")
    assert line.endswith(": new disk")

    assert (await run("brokers", "unfence", 0)).exit_code == 1
    assert (await run("brokers", "undrain", 0)).exit_code == 0
    assert not len(node.cluster.image.broker_modes)

    for word, why in (("undrain", "was not in maintenance"), ("unfence", "was not fenced by an operator")):
        _, line = (await run("brokers", word, 0)).stdout.splitlines()
        assert line == f"0\tunchanged\tbroker 0 {why}: nothing had to be changed"


async def test_a_drain_that_cannot_end_says_so(run: Run, node: FakeNode) -> None:
    """Nobody else is in sync: the broker leads on, and `--wait` ends with exit code 5. Without `--wait` the drain is done."""
    node.cluster.assign("orders", (0,))
    waited = await run("brokers", "drain", 0, "--wait", "--timeout", 0.1)
    assert waited.exit_code == 5
    assert waited.stdout.splitlines()[1] == "0\tdrained\t1\t0\t1"
    waiting, over = waited.stderr.splitlines()
    assert waiting == "waiting: 1 partition has no other replica in sync that could lead"
    assert over.startswith("quorumctl: not finished in time: of these brokers some still lead partitions: 0. ")
    assert (await run("brokers", "drain", 0)).exit_code == 0


async def test_a_dead_broker_is_not_drained_while_partitions_wait_for_it(run: Run, node: FakeNode) -> None:
    """Broker 0 has died: it leads nothing, and logs-0, where only broker 0 is in sync, has no leader."""
    node.cluster.assign("logs", (0,))
    node.cluster.assign("orders", (0, 1))
    node.cluster.now_ms += 20_000
    for broker_id in (1, 2):
        node.cluster.contact(broker_id)
    node.cluster.run(FenceExpiredBrokers())
    assert (node.cluster.leaders("logs"), node.cluster.leaders("orders")) == ([NO_LEADER], [1])
    waited = await run("brokers", "drain", 0, "--wait", "--timeout", 0.1, "-o", "json")
    (row,) = waited.document["brokers"]
    assert (waited.exit_code, row["led_partitions"], row["leaderless_partitions"]) == (5, 0, 1)
    assert waited.stderr.endswith(
        "quorumctl: 1 partition has no leader (logs-0): a drained broker is in sync there, and cannot lead; "
        "start the broker\n"
    )
    at_once = await run("brokers", "drain", 0)
    assert at_once.exit_code == 0 and "note: 1 partition has no leader (logs-0)" in at_once.stderr


async def test_a_drain_of_all_brokers_says_that_the_leaders_stay(run: Run, node: FakeNode) -> None:
    """A drain of one broker says nothing of the kind."""
    node.cluster.assign("orders", (0, 1, 2))
    assert (await run("brokers", "drain", 0, "--dry-run")).stderr == ""
    drained = await run("brokers", "drain", 0, 1, 2)
    assert drained.exit_code == 0
    assert drained.stderr.startswith("note: no other broker is online and in work: the leaders stay where they are")


async def test_a_fence_names_the_partitions_that_would_have_no_leader(run: Run, node: FakeNode) -> None:
    """The dry run counts them. The fence itself asks, and is refused where nobody can be asked; `--yes` fences at once."""
    node.cluster.assign("logs", (0,))
    node.cluster.assign("orders", (0, 1), (1, 0), (2, 0))
    lost = "1 partition would have no leader (logs-0): no other replica in sync is online"
    dry = await run("brokers", "fence", 0, "--dry-run")
    assert (dry.exit_code, dry.stderr) == (0, f"note: {lost}\n")
    both = await run("brokers", "fence", 0, 1, "--dry-run")
    assert both.stderr.startswith("note: 3 partitions would have no leader (logs-0, orders-0, orders-1):")
    refused = await run("brokers", "fence", 0)
    assert (refused.exit_code, fenced_brokers(node)) == (2, [])
    assert refused.stderr == f"quorumctl: {lost}; nobody can be asked here; nothing was done: add --yes\n"
    assert (await run("brokers", "fence", 0, "--yes")).exit_code == 0
    assert (node.cluster.leaders("logs"), node.cluster.leaders("orders")) == ([NO_LEADER], [1, 1, 2])


def test_an_operator_at_a_terminal_is_asked_before_a_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fence that takes no leader away needs no answer; the answer `no` ends the command."""
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    asked: list[str] = []
    answers = iter((True, False))

    def confirm(text: str, *, err: bool) -> bool:
        asked.append(text)
        return next(answers)

    monkeypatch.setattr("click.confirm", confirm)
    confirm_fence(Outage())
    assert not asked
    outage = Outage(7, ("a-0", "a-1", "a-2", "a-3", "a-4"))
    confirm_fence(outage)
    with pytest.raises(CliError, match="nothing was done"):
        confirm_fence(outage)
    text = "7 partitions would have no leader (a-0, a-1, a-2, a-3, a-4 and 2 more): no other replica in sync is online"
    assert asked == [f"{text}. Fence all the same?"] * 2


async def test_a_fence_says_that_it_ends_a_maintenance(run: Run, node: FakeNode) -> None:
    """A broker has one mode: after the unfence the broker may lead again, so the operator is told before."""
    assert (await run("brokers", "drain", 0)).exit_code == 0
    fenced = await run("brokers", "fence", 0)
    assert fenced.exit_code == 0
    assert fenced.stderr == (
        "note: the fence ends the maintenance of broker 0; after `quorumctl brokers unfence 0`, drain it again\n"
    )


async def test_a_refusal_is_printed_once(run: Run, node: FakeNode) -> None:
    """The row has the text of a refusal: stderr has it not again."""
    node.cluster.append(FeatureLevel(METADATA_VERSION, 1))
    drained = await run("brokers", "drain", 0)
    assert (drained.exit_code, drained.stderr) == (1, "")
    assert "a mode of a broker needs metadata.version 2" in drained.stdout


async def test_a_broker_is_kept_out_until_it_is_let_in(run: Run, node: FakeNode) -> None:
    """Each broker has a result of its own; the exit code is that of the first failure."""
    ran = await run("brokers", "fence", 77, 0, "--reason", "slow disk", "-o", "json")
    assert ran.exit_code == 3
    assert [each["error"] for each in ran.document["brokers"]] == ["BROKER_ID_NOT_REGISTERED", None]
    assert [each["result"] for each in ran.document["brokers"]] == ["refused", "fenced"]
    assert ran.document["brokers"][0]["message"] == "broker 77 is not registered"
    node.cluster.contact(0)
    assert fenced_brokers(node) == [0]
    shown = (await run("brokers", "describe", 0)).stdout
    assert (
        "  why          operator: an operator keeps the broker out; `quorumctl brokers unfence 0` ends that\n" in shown
    )
    assert (await run("brokers", "unfence", 0)).stdout.splitlines()[1] == "0\tunfenced"
    node.cluster.contact(0)
    assert fenced_brokers(node) == []
    too_long = await run("brokers", "fence", 0, "--reason", "x" * 201)
    assert too_long.exit_code == 1 and "at most 200" in too_long.stdout


def keep_in_sync(node: FakeNode) -> None:
    """From now on each leader proposes all replicas as in sync, at once."""
    submit = node.submit

    async def submit_and_sync(command: Command, *arguments: object, **named: object) -> object:
        reply = await submit(command, *arguments, **named)  # type: ignore[arg-type]
        for partition in node.cluster.partitions("t"):
            if partition.adding_replicas or partition.removing_replicas:
                live = (each for each in partition.replicas if not node.cluster.image.brokers[each].fenced)
                in_sync(node.cluster, *live, partition=partition.partition)
        return reply

    node.submit = submit_and_sync  # type: ignore[method-assign, assignment]


async def test_a_drain_may_take_the_replicas_away_too(run: Run, node: FakeNode) -> None:
    """With too few other brokers nothing is changed. Otherwise the brokers end with no replica."""
    node.cluster.assign("t", (0, 1), (1, 0), (2, 1))
    impossible = await run("brokers", "drain", 0, 1, "--replicas", "--wait")
    assert impossible.exit_code == 1 and "nothing was changed" in impossible.stderr
    assert not len(node.cluster.image.broker_modes)
    for _ in range(2):
        late = await run("brokers", "drain", 0, "--replicas", "--wait", "--timeout", 0.1)
        assert late.exit_code == 5 and "2 partitions moving" in late.stderr, "the second run waits for the first"
    assert (await run("partitions", "reassign", "cancel", "--all")).exit_code == 0
    keep_in_sync(node)
    drained = await run("brokers", "drain", 0, "--replicas", "--wait")
    assert (drained.exit_code, drained.stdout.splitlines()[1]) == (0, "0\tdrained\t0\t0\t0"), drained
    assert all(0 not in partition.replicas for partition in node.cluster.partitions("t"))


async def test_a_broker_that_is_gone_is_emptied_and_removed(run: Run, node: FakeNode) -> None:
    """A broker that runs is refused before anything moves; replicas that do not arrive in time leave the broker registered."""
    node.cluster.assign("t", (0, 1), (1, 0))
    assert (await run("brokers", "unregister", 0, "--reassign")).exit_code == 2
    alive = await run("brokers", "unregister", 0, "--reassign", "--wait")
    assert alive.exit_code == 1 and "broker 0 is online; nothing was changed" in alive.stderr
    node.cluster.contact(0, wants_fence=True)
    node.cluster.now_ms += 20_000
    late = await run("brokers", "unregister", 0, "--reassign", "--wait", "--timeout", 0.1)
    assert late.exit_code == 5 and "2 partitions moving; no broker was removed" in late.stderr
    again = await run("brokers", "unregister", 0, "--reassign", "--wait", "--timeout", 0.1)
    assert again.exit_code == 5 and "2 partitions moving; no broker was removed" in again.stderr, (
        "waits for the first run"
    )
    for partition in node.cluster.partitions("t"):
        in_sync(node.cluster, 1, 2, partition=partition.partition)
    removed = await run("brokers", "unregister", 0, "--reassign", "--wait")
    assert (removed.exit_code, removed.stdout.splitlines()[1]) == (0, "0\tremoved"), removed
    assert sorted(node.cluster.image.brokers) == [1, 2]


@pytest.mark.parametrize(("word", "kind"), [("fence", FenceBroker), ("unregister", UnregisterBroker)])
async def test_an_error_in_the_middle_leaves_the_rows_of_what_was_done(
    run: Run, node: FakeNode, monkeypatch: pytest.MonkeyPatch, word: str, kind: type[Command]
) -> None:
    """The leader is lost after the first broker: the operator must see that the first broker was changed."""
    for broker_id in (0, 1, 2):
        node.cluster.contact(broker_id, wants_fence=True)
    node.cluster.now_ms += 20_000
    submit, asked = node.submit, []

    async def submit_once(command: Command, *arguments: object, **named: object) -> object:
        asked.append(command)
        if isinstance(command, kind) and len(asked) > 1:
            raise Refused(ErrorCode.NOT_CONTROLLER, "no leader is known")
        return await submit(command, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(node, "submit", submit_once)
    ran = await run("--timeout", 0.5, "brokers", word, 0, 1, 2, "-o", "json")
    assert ran.exit_code == 5, ran
    first, second, third = ran.document["brokers"]
    assert (first["error"], second["error"], third["result"]) == (None, "NOT_CONTROLLER", "not tried")
    assert "no leader" in ran.stderr
