"""The shell on a directory: an operator walks through the metadata, now and then, and changes nothing."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from metadata_log.format.records import (
    METADATA_VERSION,
    METADATA_VERSION_MAX,
    TOPIC_RESOURCE,
    Config,
    FeatureLevel,
    RemoveTopic,
    Topic,
)
from quorum.cli.main import cli
from quorum.cli.shell.loop import Loop
from quorum.cli.shell.shell import Shell, Shown
from quorum.cli.shell.source import DirectorySource, Refusal
from tests.snapshots.history.nodes import PastNode

ORDERS = Topic("orders", b"o" * 16)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[PastNode]:
    """Offsets 1 to 5: the level, orders, a config, another value of the config, payments; each at its own time."""
    node = PastNode(tmp_path, 1)
    for records in (
        (FeatureLevel(METADATA_VERSION, METADATA_VERSION_MAX),),
        (ORDERS,),
        (Config(TOPIC_RESOURCE, "orders", "retention.ms", "7"),),
        (Config(TOPIC_RESOURCE, "orders", "retention.ms", "8"),),
        (Topic("payments", b"p" * 16),),
    ):
        node.journal.append(records, 1, 1_000_000 + 1_000 * node.journal.end)
    node.journal.flush()
    yield node
    node.journal.close()


@pytest.fixture
def shell(node: PastNode) -> Shell:
    shell = Shell(DirectorySource(node.path), lambda: 1_010_000)
    shell.look()
    return shell


def lines(shown: Shown) -> list[str]:
    return [shown.line(row) for row in shown.rows]


def said(shell: Shell, text: str) -> list[str]:
    return lines(shell.run(text.split()))


def test_an_operator_walks_through_the_metadata(shell: Shell) -> None:
    assert said(shell, "ls topics") == ["orders/", "payments/"]
    said(shell, "cd topics/orders")
    assert (said(shell, "pwd"), said(shell, "ls")) == (["/topics/orders"], ["id", "configs/", "partitions/"])
    assert said(shell, "cat configs/retention.ms") == ["8"]
    assert said(shell, "cat /features/metadata.version") == [str(METADATA_VERSION_MAX)]
    assert said(shell, "cat ../*/id") == [
        '/topics/orders/id  "b29vb29vb29vb29vb29vbw"',
        '/topics/payments/id  "cHBwcHBwcHBwcHBwcHBwcA"',
    ]
    said(shell, "cd ..")
    assert said(shell, "find retention* /") == [
        "/configs/topics/orders/retention.ms",
        "/topics/orders/configs/retention.ms",
    ]
    assert said(shell, "tree")[:3] == ["topics/", "  orders/", "    id"]


def test_the_shell_goes_to_an_offset_and_to_a_time_and_back(shell: Shell) -> None:
    assert shell.prompt == "mq@5:/> "
    said(shell, "at 3")
    assert (shell.prompt, said(shell, "cat /topics/orders/configs/retention.ms")) == ("mq@3:/> ", ["7"])
    said(shell, "at 9s")  # 1,001,000: the second batch
    assert said(shell, "ls /topics") == ["orders/"] and shell.prompt == "mq@2:/> "
    said(shell, "at end")
    assert shell.prompt == "mq@5:/> "


def test_the_end_moves_on_with_the_node_and_an_offset_stays(shell: Shell, node: PastNode) -> None:
    said(shell, "at 5")
    node.journal.append([RemoveTopic("orders", b"o" * 16)], 1, 1_005_000)
    node.journal.flush()
    assert said(shell, "ls topics") == ["orders/", "payments/"]
    said(shell, "at end")
    assert (said(shell, "ls topics"), shell.prompt) == (["payments/"], "mq@6:/> ")
    node.journal.append([RemoveTopic("payments", b"p" * 16)], 1, 1_006_000)
    node.journal.flush()
    assert (said(shell, "ls topics"), shell.prompt) == ([], "mq@7:/> ")


def test_two_offsets_are_compared(shell: Shell) -> None:
    assert said(shell, "diff 3 4 /topics") == ['~ /topics/orders/configs/retention.ms  "7" -> "8"']
    assert said(shell, "diff 4 /topics") == ['+ /topics/payments/id  "cHBwcHBwcHBwcHBwcHBwcA"']
    assert said(shell, "diff 5 4 /topics") == ['- /topics/payments/id  "cHBwcHBwcHBwcHBwcHBwcA"']


def test_the_history_of_a_path_is_each_of_its_changes(shell: Shell) -> None:
    assert said(shell, "history topics/orders/configs") == [
        '3  1970-01-01T00:16:42.000+00:00  + /topics/orders/configs/retention.ms  "7"',
        '4  1970-01-01T00:16:43.000+00:00  ~ /topics/orders/configs/retention.ms  "7" -> "8"',
    ]
    assert len(said(shell, "history /topics/orders/configs/retention.ms 3")) == 1


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("cat topics/nothing", "there is no /topics/nothing at offset 5"),
        ("cd features/metadata.version", "is a value"),
        ("cat", "usage: cat PATH..."),
        ("cd a b", "usage: cd"),
        ("fly", "no command 'fly'"),
        ("run ls", "no command 'run'"),
        ("at 99", "the committed records end at 5"),
        ("at yesterday", "an offset, or `end`"),
        ("diff 1 2 3 /", "usage: diff"),
        ("diff 1 2 /no", "neither position has /no"),
        ("history topics x", "no offset"),
    ],
)
def test_a_command_that_cannot_be_done_is_refused_with_its_reason(shell: Shell, command: str, reason: str) -> None:
    with pytest.raises(Refusal, match=reason.replace("...", r"\.\.\.")):
        said(shell, command)


def test_tab_completes_names_and_paths(shell: Shell) -> None:
    loop = Loop(shell, lambda _: None)
    assert loop.completenames("c") == ["cd ", "cat "]
    assert loop.completedefault("to") == ["topics/"]
    assert loop.completedefault("/topics/pay") == ["/topics/payments/"]
    assert loop.completedefault("/topics/orders/i") == ["/topics/orders/id"]


def test_a_bad_line_does_not_end_the_loop(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    shown: list[str] = []
    loop = Loop(shell, lambda each: shown.extend(lines(each)))
    ends = [loop.onecmd(line) for line in ("cat 'open", "cat nothing", "", "cd topics", "pwd", "exit", "EOF")]
    assert (ends, shown, loop.prompt) == ([False] * 5 + [True] * 2, ["/topics"], "mq@5:/topics> ")
    assert "there is no /nothing" in capsys.readouterr().err


def invoke(node: PastNode, *words: str, text: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["shell", str(node.path), *words], input=text)


def test_one_command_is_carried_out_alone(node: PastNode) -> None:
    assert invoke(node, "--", "cat", "/topics/orders/configs/retention.ms").stdout == "8\n"
    document = json.loads(invoke(node, "-o", "json", "--", "history", "/topics/orders/configs").stdout)
    assert [(row["offset"], row["before"], row["after"]) for row in document["rows"]] == [(3, None, "7"), (4, "7", "8")]
    missing = invoke(node, "--", "cat", "/topics/nothing")
    assert missing.exit_code == 3 and "there is no /topics/nothing" in missing.stderr
    assert invoke(node, "--", "fly").exit_code == 2


def test_commands_may_come_from_a_pipe(node: PastNode) -> None:
    assert invoke(node, text="cd topics\nls\nexit\nls /\n").stdout == "orders/\npayments/\n"


def test_a_directory_without_a_log_is_refused(tmp_path: Path) -> None:
    ran = CliRunner().invoke(cli, ["shell", str(tmp_path)])
    assert ran.exit_code == 3 and "is no directory of a node" in ran.stderr


def test_the_shell_changes_nothing(node: PastNode) -> None:
    def files() -> dict[str, bytes]:
        return {str(file): file.read_bytes() for file in node.path.rglob("*") if file.is_file()}

    before = files()
    assert invoke(node, text="cat /\ndiff 0 5\nhistory /topics\nat 2\ntree\n").exit_code == 0
    assert files() == before


def test_files_that_cannot_be_read_are_no_fault_of_the_output(tmp_path: Path) -> None:
    """quorumctl blames its own output for every other error of the operating system."""
    (tmp_path / "@metadata" / f"{0:020d}.log").mkdir(parents=True)
    (tmp_path / "@metadata" / "flushed").mkdir()
    ran = CliRunner().invoke(cli, ["shell", str(tmp_path), "--", "ls"])
    assert ran.exit_code == 3 and "Is a directory" in ran.stderr
