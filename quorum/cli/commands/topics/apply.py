"""`quorumctl topics apply`"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from quorum.cli.errors import EXIT_UNHEALTHY, EXIT_USAGE, CliError
from quorum.cli.options import Options, ask, command
from quorum.cli.output import emit
from quorum.cli.shared_options import DRY_RUN, INT32_MAX

if TYPE_CHECKING:
    from metaquorum import AdminClient
    from quorum.cli.apply.plan import Plan


@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--partitions",
    type=click.IntRange(1, INT32_MAX),
    metavar="N",
    help="Number of partitions for topics without partitions in the file. Default: num.partitions.",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1, INT32_MAX),
    metavar="N",
    help="Number of replicas for topics without replication_factor in the file.",
)
@click.option("--diff", is_flag=True, help="Print the differences, and do nothing. Exit code 10 if there are any.")
@click.option(
    "--prune", is_flag=True, help="Delete topics that FILE does not name and that begin with one of its prune prefixes."
)
@click.option("--yes", is_flag=True, help="Delete without a question.")
@DRY_RUN
@command
def apply(
    options: Options,
    file: Path,
    partitions: int | None,
    replication_factor: int | None,
    diff: bool,
    prune: bool,
    yes: bool,
    dry_run: bool,
) -> None:
    """Changes topics, and the configs of brokers, to match FILE.

    The command creates topics, adds partitions and alters configs. It deletes topics only with --prune.

    FILE is JSON or YAML: {"schema_version": 1, "topics": [{"topic": NAME, "partitions": N, "replication_factor": N,
    "configs": {...}}, ...], "cluster": {"configs": {...}}, "brokers": [{"broker": ID, "configs": {...}}, ...],
    "prune": {"prefixes": [TEXT, ...]}}. Each part may be missing. A config key that FILE does not name stays as it is.

    \b
    $ quorumctl topics apply topics.yaml --diff
    """
    from quorum.cli.apply.changes import apply_plan
    from quorum.cli.apply.plan import Impossible, make_plan
    from quorum.cli.apply.wanted_file import read_wanted

    try:
        wanted = read_wanted(file, partitions, replication_factor)
    except ValueError as e:
        raise CliError(f"{file}: {e}", EXIT_USAGE) from e
    if prune and not wanted.prune_prefixes:
        raise CliError(f'{file}: --prune needs "prune": {{"prefixes": [...]}}, which topics it may delete', EXIT_USAGE)
    is_trial = dry_run or diff

    async def work(client: AdminClient) -> Plan:
        plan = await make_plan(client, wanted, prune=prune)
        if not is_trial:
            if options.output == "table":
                for line in plan.lines():
                    click.echo(line)
            if plan.delete and not yes:
                _confirm(len(plan.delete))
            await apply_plan(client, plan)
        return plan

    try:
        plan = ask(options, work)
    except Impossible as e:
        raise CliError(str(e)) from e
    document = plan.document()
    counts = ", ".join(f"{count} to {kind.replace('_', ' ')}" for kind, count in document["counts"].items() if count)
    if not document["changes"]:
        text = f"Nothing to do: all {len(wanted.topics)} topics are as {file} says."
    elif is_trial:
        text = f"Would do: {counts}. Nothing was changed."
    else:
        text = f"Done: {counts}."
    lines = list(plan.diff()) if diff else list(plan.lines()) if dry_run else []
    emit(options.output, {"applied": not is_trial, **document}, heading=[*lines, text])
    if diff and document["changes"]:
        raise SystemExit(EXIT_UNHEALTHY)


def _confirm(deletions: int) -> None:
    """Asks the operator before topics are deleted. Without a terminal nobody can answer, so the command is refused."""
    if not sys.stdin.isatty():
        text = f"{deletions} topics would be deleted, and nobody can be asked here; nothing was done: add --yes"
        raise CliError(text, EXIT_USAGE)
    if not click.confirm(f"Delete {deletions} topics with everything in them?", err=True):
        raise CliError("nothing was done")
