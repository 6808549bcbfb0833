"""`quorumctl shell`: walks through the metadata of a running cluster, or of a directory, at any offset that can be reached."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from quorum.cli.errors import EXIT_USAGE, CliError
from quorum.cli.options import Options, command, whose
from quorum.cli.output import emit, json_text

if TYPE_CHECKING:
    from quorum.cli.shell.shell import Shell, Shown
    from quorum.cli.shell.source import Source


class ShellCommand(click.Command):
    """Takes everything behind `--` as the command of the shell. click alone would take the first word for the directory."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own, behind = (args[: args.index("--")], args[args.index("--") + 1 :]) if "--" in args else (args, [])
        try:
            rest = super().parse_args(ctx, list(own))
        except click.BadParameter as e:
            if e.param is None or e.param.name != "directory":
                raise
            raise click.UsageError(f"{e.format_message()} A command of the shell stands behind --", ctx) from e
        ctx.params["words"] = (*ctx.params["words"], *behind)
        return rest


@click.command(cls=ShellCommand)
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False), required=False)
@click.argument("words", nargs=-1, metavar="[-- COMMAND...]")
@command
def shell(options: Options, directory: Path | None, words: tuple[str, ...]) -> None:
    """Walks through the metadata as through files: those of the running cluster, or those in the DIRECTORY of a controller or a
    broker.

    The node of the DIRECTORY may run or not, and the directory may be a copy: the shell changes nothing. Commands: ls, cd, pwd,
    cat, tree, find, diff, history, at, help, exit. Tab completes names and paths. A command behind -- is carried out alone; -o
    json makes it a document.

    \b
    $ quorumctl shell -- cat /topics/orders
    """
    from quorum.cli.shell.shell import Shell
    from quorum.cli.shell.source import Refusal
    from service_kit.process.clock import RealClock

    with _source(options, directory) as source:
        opened = Shell(source, RealClock().wall_ms)
        try:
            if words:
                _show(options, opened.run(list(words)))
                _tell_view(source)
                return
            opened.look()
        except Refusal as e:
            raise CliError(str(e), e.exit_code) from e
        _converse(options, source, opened)


@contextmanager
def _source(options: Options, directory: Path | None) -> Iterator[Source]:
    """Raises CliError: the directory or an option cannot be used."""
    if directory is None:
        from quorum.cli.shell.live_source import LiveSource

        with LiveSource(options) as live:
            yield live
        return
    from quorum.cli.shell.source import DirectorySource

    for name in ("bootstrap_controller", "bootstrap_server"):
        if getattr(options, name) is not None and name not in options.from_environment:
            raise CliError(f"either DIRECTORY or --{name.replace('_', '-')}, not both", EXIT_USAGE)
    yield DirectorySource(directory)


def _converse(options: Options, source: Source, opened: Shell) -> None:
    """Carries out lines from the terminal, or from a pipe."""
    from quorum.cli.shell.loop import Loop

    loop = Loop(opened, lambda shown: _show(options, shown))
    if sys.stdin.isatty():
        click.echo(f"{source.title}. `help` lists the commands.")
        loop.cmdloop()
    else:
        any(loop.onecmd(line.strip()) for line in sys.stdin)


def _tell_view(source: Source) -> None:
    view = getattr(source, "local_view", None)
    if view is not None:
        click.echo(f"quorumctl: {whose(view)}", err=True)


def _show(options: Options, shown: Shown) -> None:
    if options.output == "table":
        for row in shown.rows:
            click.echo(shown.line(row))
    elif options.output == "jsonl":
        for row in shown.rows:
            click.echo(json_text({key: value for key, value in row.items() if key != "line"}))
    else:
        rows = [{key: value for key, value in row.items() if key != "line"} for row in shown.rows]
        emit(options.output, {"rows": rows}, rows="rows")
