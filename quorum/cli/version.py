"""`quorumctl version`, and the flag `--version` that says the same."""

import platform

import click

from quorum.cli.options import Options, command
from quorum.cli.output import emit
from service_kit.process.release import release, release_line


@click.command()
@command
def version(options: Options) -> None:
    """Shows what is installed.

    \b
    $ quorumctl version
    """
    document = {"version": release(), "python_version": platform.python_version()}
    emit(options.output, document, heading=[release_line()])


def print_version(ctx: click.Context, _option: click.Parameter, asked: bool) -> None:
    """Prints the release and ends the command, where `--version` was given."""
    if asked and not ctx.resilient_parsing:
        click.echo(release_line())
        ctx.exit()
