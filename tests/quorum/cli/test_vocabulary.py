"""All commands of `quorumctl` use one vocabulary: one thing has one name, one form and one meaning."""

import shlex
from collections.abc import Iterator
from typing import Any

import click
import pytest
from click.testing import CliRunner

from quorum.cli.main import cli
from quorum.cli.shared_options import DRY_RUN, WAIT

ONE_FORM = {"--dry-run": DRY_RUN, "--wait": WAIT}
PUBLISHED = {
    ("quorumctl quorum recover", "--dry-run"): "Read and report; change nothing.",
    ("quorumctl snapshot create", "--wait"): (
        "Wait until every voter that answers has written its snapshot; name the other voters."
    ),
}
"""Options that say what is special about them."""


def commands(group: click.Group = cli, above: click.Context | None = None) -> Iterator[tuple[str, click.Command]]:
    ctx = click.Context(group, info_name="quorumctl") if above is None else above
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        below = click.Context(command, info_name=name, parent=ctx)
        if isinstance(command, click.Group):
            yield from commands(command, below)
        else:
            yield below.command_path, command


COMMANDS = dict(commands())


def options(command: click.Command) -> Iterator[click.Option]:
    return (each for each in command.params if isinstance(each, click.Option) and not each.hidden)


@pytest.mark.parametrize("path", COMMANDS)
def test_the_help_of_every_command_has_an_example_that_is_right(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example is the command itself, and click accepts each word of it."""
    monkeypatch.setattr(click.Path, "convert", lambda self, value, *_: value)
    (line,) = [line for line in (COMMANDS[path].help or "").splitlines() if line.strip().startswith("$ ")]
    words, named = shlex.split(line.strip()[2:]), path.split()
    assert words[: len(named)] == named
    COMMANDS[path].make_context(path, words[len(named) :])


def forms() -> Iterator[tuple[str, click.Option, dict[str, Any]]]:
    for path, command in COMMANDS.items():
        for option in options(command):
            yield path, option, {"help": option.help or "", "metavar": option.make_metavar(click.Context(command))}


def test_an_option_that_may_be_repeated_says_so() -> None:
    silent = [
        (path, option.opts[0]) for path, option, form in forms() if option.multiple and "epeated" not in form["help"]
    ]
    assert not silent


def test_numbers_have_a_name() -> None:
    """`--broker ID` tells more than `--broker INTEGER RANGE`."""
    assert not [(path, option.opts[0]) for path, option, form in forms() if "RANGE" in form["metavar"]]


def test_every_option_has_a_help_text() -> None:
    assert not [(path, option.opts[0]) for path, option, form in forms() if not form["help"]]


def test_shared_options_have_one_form() -> None:
    """`--dry-run` and `--wait` are flags, and say the same everywhere."""
    for path, option, form in forms():
        shared = ONE_FORM.get(option.opts[0])
        if shared is None:
            continue

        @click.command()
        @shared
        def sample(**_: object) -> None: ...

        (expected,) = options(sample)
        assert option.is_flag, path
        assert form["help"] in (expected.help, PUBLISHED.get((path, option.opts[0]))), path


def test_a_number_after_the_flag_wait_is_no_second_broker() -> None:
    """`drain 101 --wait 600` would drain broker 600, too."""
    ran = CliRunner().invoke(cli, ["brokers", "drain", "101", "--wait", "600"])
    assert ran.exit_code == 2
    assert "did you mean --wait --timeout 600?" in ran.stderr
