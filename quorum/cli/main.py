"""`quorumctl`: the operator's tool. Exit codes: 0 done, 1 refused, 2 wrong usage, 3 not found, 4 conflict, 5 no answer, no
leader or not in time, 10 asked and unhealthy, 130 interrupted (Ctrl-C)."""

import sys
from typing import Any

import click

from quorum.cli.errors import EXIT_USAGE
from quorum.cli.lazy import LazyGroup
from quorum.cli.options import Options, global_options, merged
from quorum.cli.output import escape_the_rest
from quorum.cli.version import print_version

_COMMANDS = {
    "acls": "quorum.cli.commands.rights.acls:acls",
    "brokers": "quorum.cli.commands.brokers.brokers:brokers",
    "cluster": "quorum.cli.commands.cluster:cluster",
    "consume": "quorum.cli.commands.records.consume:consume",
    "configs": "quorum.cli.commands.configs:configs",
    "dev": "quorum.cli.commands.dev:dev",
    "entities": "quorum.cli.commands.entities.entities:entities",
    "features": "quorum.cli.commands.features:features",
    "health": "quorum.cli.commands.health.health:health",
    "labels": "quorum.cli.commands.labels:labels",
    "leaders": "quorum.cli.commands.leaders:leaders",
    "log": "quorum.cli.commands.log.log:log",
    "partitions": "quorum.cli.commands.partitions.partitions:partitions",
    "produce": "quorum.cli.commands.records.produce:produce",
    "quotas": "quorum.cli.commands.rights.quotas:quotas",
    "quorum": "quorum.cli.commands.quorum.quorum:quorum",
    "sessions": "quorum.cli.commands.entities.sessions:sessions",
    "shell": "quorum.cli.commands.shell:shell",
    "snapshot": "quorum.cli.commands.snapshot.snapshot:snapshot",
    "storage": "quorum.cli.commands.storage:storage",
    "topics": "quorum.cli.commands.topics.topics:topics",
    "users": "quorum.cli.commands.rights.users:users",
    "version": "quorum.cli.version:version",
    "watch": "quorum.cli.commands.watches.watch:watch",
}


@click.group(
    cls=LazyGroup,
    lazily=_COMMANDS,
    context_settings={"auto_envvar_prefix": "QUORUMCTL", "help_option_names": ["-h", "--help"]},
)
@global_options
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=print_version,
    help="Shows what is installed.",
)
@click.pass_context
def cli(ctx: click.Context, /, **given: Any) -> None:
    """Operates a metaquorum cluster.

    These options may stand before or after the command, or in the environment: QUORUMCTL_BOOTSTRAP_CONTROLLER,
    QUORUMCTL_BOOTSTRAP_SERVER, QUORUMCTL_OUTPUT, QUORUMCTL_TIMEOUT_S, QUORUMCTL_CACERT, QUORUMCTL_CERT, QUORUMCTL_KEY.
    A flag beats the environment.

    \b
    Exit codes: 0 done, 1 refused, 2 wrong usage, 3 not found, 4 conflict,
    5 no answer, no leader or not in time, 10 asked and unhealthy, 130 interrupted.
    """
    ctx.obj = merged(Options(), given, ctx)


def main() -> None:
    """The console script `quorumctl`."""
    if sys.stdout is None or sys.stderr is None:  # closed by the caller (`>&-`): Python then has no stream at all
        raise SystemExit(2)
    escape_the_rest(sys.stdout)
    try:
        cli(prog_name="quorumctl")
    except UnicodeEncodeError as e:  # bytes on the command line or in the environment that stand for no text
        click.echo(f"quorumctl: {e.object!r} is not UTF-8, and no name in a cluster has such bytes", err=True)
        raise SystemExit(EXIT_USAGE) from e
    except OSError as e:  # of the output, for example on a full disk: a command reports errors of its input itself
        click.echo(f"quorumctl: the output cannot be written: {e.strerror or e}", err=True)
        raise SystemExit(1) from e


if __name__ == "__main__":
    main()
