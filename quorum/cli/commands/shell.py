"""`quorumctl shell`: walks through the metadata in a directory, at any offset that its files reach."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from quorum.cli.errors import CliError
from quorum.cli.options import Options, command
from quorum.cli.output import emit, json_text

if TYPE_CHECKING:
    from quorum.cli.shell.shell import Shown


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("words", nargs=-1, metavar="[-- COMMAND...]")
@command
def shell(options: Options, directory: Path, words: tuple[str, ...]) -> None:
    """Walks through the metadata in the DIRECTORY of a controller or a broker, as through files.

    The node may run or not, and the directory may be a copy: the shell changes nothing. Commands: ls, cd, pwd, cat, tree, find,
    diff, history, at, help, exit. Tab completes names and paths. A command behind -- is carried out alone; -o json makes it a
    document.

    \b
    $ quorumctl shell /var/lib/metaquorum/controller -- cat /topics/orders
    """
    from quorum.cli.shell.loop import Loop
    from quorum.cli.shell.shell import Shell
    from quorum.cli.shell.source import DirectorySource, Refusal
    from service_kit.process.clock import RealClock

    def show(shown: Shown) -> None:
        _show(options, shown)

    try:
        source = DirectorySource(directory)
        opened = Shell(source, RealClock().wall_ms)
        if words:
            show(opened.run(list(words)))
            return
        opened.look()
    except Refusal as e:
        raise CliError(str(e), e.exit_code) from e
    loop = Loop(opened, show)
    if sys.stdin.isatty():
        click.echo(f"{source.title}. `help` lists the commands.")
        loop.cmdloop()
    else:
        any(loop.onecmd(line.strip()) for line in sys.stdin)


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
