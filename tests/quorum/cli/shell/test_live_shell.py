"""The shell on a running cluster: the same commands as on a directory, with the same rows, and always the newest image."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest
from click.testing import CliRunner, Result
from quorum_rpc.v1 import admin_pb2

from clients.scram import scram_credential
from metadata_log.format.errors import ErrorCode
from metaquorum import AdminClient
from quorum.cli.errors import EXIT_NOT_FOUND, EXIT_REFUSED, EXIT_TIMEOUT, EXIT_USAGE
from quorum.cli.main import cli
from quorum.cli.options import Options
from quorum.cli.shell.live_source import LiveSource
from quorum.cli.shell.loop import Loop
from quorum.cli.shell.shell import Shell
from quorum.cli.shell.source import DirectorySource, Refusal
from quorum.controller.protocol.topic_commands import CreateTopics, NewTopic
from quorum.runtime.protocol.requests import Refused
from quorum.wire.server import serve
from service_kit.rpc.server import serving
from tests.quorum.runtime.quorum_of_three import Quorum, quorum_of_three, until
from tests.quorum.wire.fake_node import ANY_PORT, IDENTITY, FakeNode

pytestmark = pytest.mark.slow

T = TypeVar("T")
NOW_MS = 4_000_000_000_000
BROKERS = admin_pb2.ConfigResource(resource_type=4, name="")
RETENTION = "configs/brokers/<default>/log.retention.ms"


class Live(NamedTuple):
    """A cluster of three. Its leader's directory is `directory`."""

    quorum: Quorum
    client: AdminClient
    options: Options
    directory: Path

    async def set_retention(self, value: str) -> int:
        """Sets a config. Returns the end of its batch."""
        operation = admin_pb2.ConfigOperation(kind=admin_pb2.ConfigOperation.SET, key="log.retention.ms", value=value)
        alteration = admin_pb2.ConfigAlteration(resource=BROKERS, operations=[operation])
        return (await self.client.alter_configs([alteration])).offset


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Live]:
    """With a config that was set twice, a quota, and the credentials of alice."""
    async with quorum_of_three(tmp_path) as quorum, quorum.client() as client:
        await client.list_topics()
        leader = next(each.status().node_id for each in quorum.loops.values() if each.status().is_active)
        targets = ",".join(f"127.0.0.1:{each.port}" for each in quorum.endpoints.values())
        live = Live(quorum, client, Options(bootstrap_controller=targets), tmp_path / str(leader))
        await live.set_retention("3600000")
        await live.set_retention("60000")
        await client.alter_user_scram_credentials([scram_credential("alice/and *bob", "pencil")])
        entity = admin_pb2.ClientQuotaEntity(parts=[{"entity_type": "user", "name": "alice"}])
        operation = {"key": "consumer_byte_rate", "value": 5.5}
        await client.alter_client_quotas([admin_pb2.ClientQuotaAlteration(entity=entity, operations=[operation])])
        yield live


@contextmanager
def shell_on(options: Options) -> Iterator[Shell]:
    with LiveSource(options) as source:
        yield Shell(source, lambda: NOW_MS)


def done(shell: Shell, *commands: str) -> list[Any]:
    """What each command shows: rows for programs and lines for people; or its refusal."""
    found: list[Any] = []
    for command in commands:
        try:
            shown = shell.run(command.split())
            found.append([(row, shown.line(row)) for row in shown.rows])
        except Refusal as e:
            found.append((str(e), e.exit_code))
    return found


def said(shell: Shell, command: str) -> list[str]:
    (found,) = done(shell, command)
    assert isinstance(found, list), found
    return [line for _, line in found]


async def on_thread(work: Callable[[], T]) -> T:
    """The shell blocks its thread, and the cluster runs on this one."""
    return await asyncio.to_thread(work)


COMMANDS = (
    "pwd", "ls", "ls /users /quotas", "ls configs/brokers", "ls " + RETENTION, "cat " + RETENTION, "cat /", "cat /users",
    "cat configs/* /features", "cat log/digest", "tree", "tree configs", "find *", "find log* configs", "find nothing",
    "cd users", "pwd", "ls", "ls ..", "cat *", "cd alice%2Fand*", "pwd", "cat .", "cd /", "cd", "help",
    "diff 0 end", "diff 3 4", "diff end 4 /users", "diff 4 configs", "diff 4 4", "diff end /log",
    "history configs", "history /", "history users 3", f"history {RETENTION} 0", "history topics",
    "at 4", "pwd", "ls /", "cat " + RETENTION, "diff end", "diff 3", "at 0", "ls /users", "at 1970-01-02T00:00:00Z", "cat /log",
    "at 1h", "cat /", "at end", "pwd",
    "cat nothing", "cd " + RETENTION, "cd nothing", "cd *", "cat", "cd a b", "fly", "at 99999", "at " + "9" * 30,
    "at yesterday", "diff 1 2 3 /", "diff 1 2 /no", "diff 1 99999 /", "history users x", "history users 99999",
    "history users " + "9" * 30, "tree *", "find x *", "ls users nothing", "cat /brokers/" + "9" * 4_000,
)  # fmt: skip


async def test_every_command_has_the_same_rows_on_the_directory_and_live(live: Live) -> None:
    """Rows, lines, texts of refusals, exit codes and prompts."""
    in_directory = Shell(DirectorySource(live.directory), lambda: NOW_MS)
    with shell_on(live.options) as running:
        empty = 0
        for command in COMMANDS:
            there = done(in_directory, command)
            here = await on_thread(partial(done, running, command))
            assert here == there, command
            assert running.prompt == in_directory.prompt, command
            empty += here == [[]]
        assert empty < len(COMMANDS) / 4, "most commands have something to compare"


async def test_secrets_stay_on_the_controllers(live: Live) -> None:
    with shell_on(live.options) as shell:
        (found,) = await on_thread(lambda: done(shell, "cat /users"))
        assert "[redacted]" in str(found) and "8192" in str(found)
        assert "[redacted]" in str(await on_thread(lambda: done(shell, "history /users")))


async def test_an_operator_follows_the_newest_image_and_stays_at_an_offset(live: Live) -> None:
    with shell_on(live.options) as shell:
        assert await on_thread(lambda: said(shell, f"cat {RETENTION}")) == ["60000"]
        before = shell.prompt.removeprefix("mq@").removesuffix(":/> ")
        end = await live.set_retention("7")
        assert await on_thread(lambda: said(shell, f"cat {RETENTION}")) == ["7"]
        assert shell.prompt == f"mq@{end}:/> "
        await on_thread(lambda: said(shell, f"at {before}"))
        later = await live.set_retention("8")
        assert await on_thread(lambda: said(shell, f"cat {RETENTION}")) == ["60000"]
        assert await on_thread(lambda: said(shell, f"diff end /{RETENTION}")) == [f'~ /{RETENTION}  "8" -> "60000"']
        assert shell.prompt == f"mq@{before}:/> "
        assert [line.split("  ")[0] for line in await on_thread(lambda: said(shell, f"history {RETENTION} {end}"))] == [
            str(later)
        ]
        await on_thread(lambda: said(shell, "at end"))
        assert shell.prompt == f"mq@{later}:/> "


async def test_the_next_command_finds_the_next_leader(live: Live) -> None:
    with shell_on(live.options) as shell:
        before = await on_thread(lambda: said(shell, "cat configs"))
        await live.quorum.stop_one(int(live.directory.name))
        await until(lambda: any(each.status().is_active for each in live.quorum.loops.values()))
        assert await on_thread(lambda: said(shell, "cat configs")) == before


async def test_a_follower_answers_from_its_own_image_if_asked_to(live: Live) -> None:
    follower = next(node_id for node_id in live.quorum.loops if node_id != int(live.directory.name))
    target = f"127.0.0.1:{live.quorum.endpoints[follower].port}"
    await until(
        lambda: (
            live.quorum.loops[follower].status().applied_offset
            == live.quorum.loops[int(live.directory.name)].status().applied_offset
        )
    )
    ran = await on_thread(lambda: CliRunner().invoke(cli, ["-C", target, "shell", "--local", "--", "cat", RETENTION]))
    assert (ran.exit_code, ran.stdout) == (0, "60000\n")
    assert f"this is what controller {follower} has applied" in ran.stderr
    through = await on_thread(lambda: CliRunner().invoke(cli, ["-C", target, "shell", "--", "history", RETENTION, "4"]))
    assert through.exit_code == 0 and '"3600000" -> "60000"' in through.stdout and not through.stderr


# --- against a fake node -----------------------------------------------------------------------------------------------


@pytest.fixture
async def node() -> AsyncIterator[FakeNode]:
    """With the topics `orders` and `payments`."""
    node = FakeNode()
    node.cluster.run(CreateTopics((NewTopic("orders", 1, 1), NewTopic("payments", 1, 1))))
    async with serve(node, IDENTITY, ANY_PORT, grace_s=0) as port:
        node.target = f"127.0.0.1:{port}"
        yield node


def invoked(target: str, *words: str, text: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["-C", target, "--timeout", "1", "shell", *words], input=text)


async def test_tab_completes_names_and_paths_of_the_running_cluster(node: FakeNode) -> None:
    def completed(*texts: str) -> list[list[str]]:
        with shell_on(Options(bootstrap_controller=node.target)) as shell:
            loop = Loop(shell, lambda _: None)
            return [loop.completedefault(text) for text in texts]

    found = await on_thread(
        lambda: completed("to", "/topics/pay", "/topics/orders/i", "/topics/", "/no/x", "/topics/orders/id/")
    )
    assert found == [
        ["topics/"],
        ["/topics/payments/"],
        ["/topics/orders/id"],
        ["/topics/orders/", "/topics/payments/"],
        [],
        [],
    ]
    node.refuse_with = Refused(ErrorCode.INVALID_REQUEST, "not now")
    assert await on_thread(lambda: completed("to")) == [[]], "a line is being typed: nobody wants to hear of it"


async def test_one_command_is_carried_out_alone(node: FakeNode) -> None:
    ran = await on_thread(lambda: invoked(node.target, "--", "ls", "topics"))
    assert (ran.exit_code, ran.stdout) == (0, "orders/\npayments/\n")
    document = await on_thread(lambda: invoked(node.target, "-o", "json", "--", "ls", "topics"))
    assert [row["path"] for row in json.loads(document.stdout)["rows"]] == ["/topics/orders", "/topics/payments"]
    missing = await on_thread(lambda: invoked(node.target, "--", "cat", "/topics/nothing"))
    assert missing.exit_code == EXIT_NOT_FOUND and "there is no /topics/nothing" in missing.stderr
    assert (await on_thread(lambda: invoked(node.target, "--", "fly"))).exit_code == EXIT_USAGE


async def test_commands_may_come_from_a_pipe(node: FakeNode) -> None:
    ran = await on_thread(lambda: invoked(node.target, text="cd topics\nls\ncat nothing\nls orders\nexit\nls /\n"))
    assert ran.stdout == "orders/\npayments/\nid\nconfigs/\npartitions/\n"
    assert "there is no /topics/nothing" in ran.stderr


async def test_a_directory_and_an_address_exclude_each_other(node: FakeNode, tmp_path: Path, monkeypatch: Any) -> None:
    both = await on_thread(lambda: invoked(node.target, str(tmp_path)))
    assert both.exit_code == EXIT_USAGE and "either DIRECTORY or --bootstrap-controller" in both.stderr
    monkeypatch.setenv("QUORUMCTL_BOOTSTRAP_CONTROLLER", node.target)
    ran = await on_thread(lambda: CliRunner().invoke(cli, ["shell", str(tmp_path), "--", "ls"]))
    assert ran.exit_code == EXIT_NOT_FOUND and "is no directory of a node" in ran.stderr, "the environment is no word"
    assert (await on_thread(lambda: CliRunner().invoke(cli, ["shell", "--", "ls"]))).exit_code == 0
    lone = await on_thread(lambda: CliRunner().invoke(cli, ["shell", "ls"]))
    assert lone.exit_code == EXIT_USAGE and "stands behind --" in lone.stderr


async def test_a_cluster_that_does_not_answer_is_told_from_one_that_refuses(node: FakeNode) -> None:
    gone = await on_thread(lambda: invoked("127.0.0.1:1", "--", "ls"))
    assert gone.exit_code == EXIT_TIMEOUT and "cannot be reached" in gone.stderr
    node.refuse_with = Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "CN=intern is not in admin.principals")
    refused = await on_thread(lambda: invoked(node.target, "--", "ls"))
    assert refused.exit_code == EXIT_REFUSED and "CN=intern is not in admin.principals" in refused.stderr
    node.refuse_with = Refused(ErrorCode.NOT_CONTROLLER, "nobody leads")
    leaderless = await on_thread(lambda: invoked(node.target, text="ls\n"))
    assert leaderless.exit_code == EXIT_TIMEOUT and "nobody leads" in leaderless.stderr
    node.refuse_with = Refused(ErrorCode.STORAGE_ERROR, "the segment at 0 is damaged")
    damaged = await on_thread(lambda: invoked(node.target, "--", "ls"))
    assert damaged.exit_code == EXIT_NOT_FOUND and "the segment at 0 is damaged" in damaged.stderr


async def test_a_cluster_of_an_older_release_says_what_to_do() -> None:
    async with serving(ANY_PORT, lambda server: None, grace_s=0) as port:
        ran = await on_thread(lambda: invoked(f"127.0.0.1:{port}", "--", "ls"))
    assert ran.exit_code == EXIT_REFUSED
    assert (
        "of an older release, which has no shell. Upgrade the controllers, or run `quorumctl shell DIR`" in ran.stderr
    )
