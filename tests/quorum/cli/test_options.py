"""Which cluster a command asks: flags, the environment, and what happens when both speak."""

import click
import pytest
from click.testing import CliRunner

from metadata_log.format.errors import ErrorCode
from metaquorum import AdminError
from quorum.cli.errors import EXIT_TIMEOUT, EXIT_USAGE, of_admin_error
from quorum.cli.lazy import LazyGroup
from quorum.cli.main import cli, main
from quorum.cli.options import Options, command

CONTROLLER_VARIABLE = "QUORUMCTL_BOOTSTRAP_CONTROLLER"
SERVER_VARIABLE = "QUORUMCTL_BOOTSTRAP_SERVER"


@click.command()
@command
def endpoints(options: Options) -> None:
    """Prints the addresses that a command would ask."""
    click.echo(",".join(options.endpoints))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    assert isinstance(cli, LazyGroup)
    monkeypatch.setitem(cli.commands, "endpoints", endpoints)
    return CliRunner()


@pytest.mark.parametrize("words", [("-b", "b:1", "endpoints"), ("endpoints", "-b", "b:1")])
def test_a_flag_beats_the_environment(run: CliRunner, words: tuple[str, ...]) -> None:
    """The shell has exported the controllers of one cluster; the command line names a broker, and the broker is asked."""
    result = run.invoke(cli, words, env={CONTROLLER_VARIABLE: "c:1"})
    assert (result.exit_code, result.output) == (0, "b:1\n")


@pytest.mark.parametrize("words", [("-C", "c:1", "endpoints"), ("endpoints", "-C", "c:1")])
def test_a_flag_for_controllers_beats_an_exported_broker(run: CliRunner, words: tuple[str, ...]) -> None:
    result = run.invoke(cli, words, env={SERVER_VARIABLE: "b:1"})
    assert (result.exit_code, result.output) == (0, "c:1\n")


def test_the_environment_alone_is_heard(run: CliRunner) -> None:
    result = run.invoke(cli, ["endpoints"], env={CONTROLLER_VARIABLE: "c:1,c:2"})
    assert (result.exit_code, result.output) == (0, "c:1,c:2\n")


@pytest.mark.parametrize(
    ("words", "environment"),
    [
        (("-b", "b:1", "-C", "c:1", "endpoints"), {}),
        (("-b", "b:1", "endpoints", "-C", "c:1"), {}),
        (("endpoints",), {CONTROLLER_VARIABLE: "c:1", SERVER_VARIABLE: "b:1"}),
    ],
)
def test_two_of_equal_rank_are_refused(run: CliRunner, words: tuple[str, ...], environment: dict[str, str]) -> None:
    """Two flags, or two variables: quorumctl cannot know which cluster is meant, so it asks none."""
    result = run.invoke(cli, words, env=environment)
    assert result.exit_code == EXIT_USAGE
    assert "not both" in result.stderr


def test_both_names_of_the_version_agree() -> None:
    """`--version` is what people type first at a new tool."""
    flag, word = CliRunner().invoke(cli, ["--version"]), CliRunner().invoke(cli, ["version"])
    assert (flag.exit_code, word.exit_code) == (0, 0)
    assert flag.output == word.output
    assert flag.output.startswith("metaquorum ")


@pytest.mark.parametrize("address", ["c", "http://c:1", "c:0", "c:65536", "c:" + "9" * 5_000, "c:1,::1:9001"])
def test_an_address_of_another_form_is_refused_before_it_is_asked(run: CliRunner, address: str) -> None:
    result = run.invoke(cli, ["-C", address, "endpoints"])
    assert result.exit_code == EXIT_USAGE
    assert "write host:port" in result.stderr


@pytest.mark.parametrize("words", [("-C", "", "endpoints"), ("-b", "", "endpoints"), ("endpoints", "-C", " , ")])
def test_an_empty_address_is_none(run: CliRunner, words: tuple[str, ...]) -> None:
    """`-C "$CLUSTER"` where the shell has no such variable: the command must not go to whatever runs on this machine."""
    result = run.invoke(cli, words)
    assert result.exit_code == EXIT_USAGE
    assert "no address given" in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("health", "--timeout", "nan"),
        ("dev", "up", "--dir", "nowhere", "--wait", "nan"),
        ("dev", "down", "--dir", "nowhere", "--wait", "NaN"),
        ("dev", "start", "--dir", "nowhere", "--wait", "-nan", "1"),
        ("dev", "stop", "--dir", "nowhere", "--wait", "nan", "1"),
    ],
)
def test_no_duration_is_not_a_number(words: tuple[str, ...]) -> None:
    """`nan` is in every range for click; here it is wrong usage, and nothing was begun."""
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == EXIT_USAGE
    assert "is no duration" in result.stderr


@pytest.mark.parametrize(
    ("words", "text"),
    [(("topics", "create", "t\udcff"), "is not UTF-8"), (("-C", "h\udcff:1", "health"), "not a host name")],
)
def test_bytes_that_are_no_text_are_wrong_usage(
    words: tuple[str, ...], text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python hands on the byte 0xff of a command line as a surrogate, which no message can carry: one line, no traceback."""
    monkeypatch.setattr("sys.argv", ["quorumctl", "--timeout", "0.1", *words])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == EXIT_USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert text in line


@pytest.mark.parametrize("code", [ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT])
def test_no_answer_through_a_broker_is_no_refusal(code: ErrorCode) -> None:
    """All controllers are down. A health check by -b ends with 5, as by -C: nobody has refused anything."""
    assert of_admin_error(AdminError(code, "no controller could be asked in time")).exit_code == EXIT_TIMEOUT


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["topcs"], "No such command 'topcs'. Did you mean 'topics'?"),
        (["topics", "lst"], "No such command 'lst'. Did you mean 'list'?"),
        (["zzz"], "No such command 'zzz'."),
        (["quorum", "transfer-leader", "1"], "Got unexpected extra argument (1). Did you mean --to 1?"),
        (["quorum", "can-restart", "1"], "Missing option '--node-id'. Did you mean --node-id 1?"),
        (["quorum", "remove-voter", "--timeout", "5", "2", "--dry-run"], "Did you mean --node-id 2?"),
        (["quorum", "can-restart", "--timeout", "5"], "Missing option '--node-id'.\n"),
    ],
)
def test_a_mistyped_command_is_refused_with_the_right_one(words: list[str], said: str) -> None:
    """For groups too, which are imported only when they are asked for. So is a node id without its option."""
    refused = CliRunner().invoke(cli, words)
    assert refused.exit_code == 2
    assert said in refused.stderr


def test_ctrl_c_has_an_exit_code_of_its_own() -> None:
    """1 would say that the change was refused; nobody knows that."""

    @click.command()
    def interrupted() -> None:
        raise KeyboardInterrupt

    group = LazyGroup("quorumctl", commands={"wait": interrupted}, lazily={})
    ran = CliRunner().invoke(group, ["wait"])
    assert ran.exit_code == 130
    assert ran.stderr.startswith(
        "quorumctl: interrupted. If the command changes something, the change may have been made"
    )
