"""`quorumctl topics apply`"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from quorum.cli.errors import EXIT_TIMEOUT, EXIT_UNHEALTHY, EXIT_USAGE, CliError
from quorum.cli.options import Options, ask, command
from quorum.cli.output import emit
from quorum.cli.shared_options import DRY_RUN, INT32_MAX

if TYPE_CHECKING:
    from metaquorum import AdminClient
    from quorum.cli.apply.changes import Outcome
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

    The command creates topics, adds partitions and alters configs. It deletes topics only with --prune. It first asks the
    controllers to check every change, and does nothing if one is refused. --dry-run ends after this check, and --diff before it.

    FILE is JSON or YAML: {"schema_version": 1, "topics": [{"topic": NAME, "partitions": N, "replication_factor": N,
    "configs": {...}}, ...], "cluster": {"configs": {...}}, "brokers": [{"broker": ID, "configs": {...}}, ...],
    "prune": {"prefixes": [TEXT, ...]}}. Each part may be missing. A config key that FILE does not name stays as it is. A field
    with another name is a mistake; a FILE without schema_version may have other names, unless they are near to one of these.

    \b
    $ quorumctl topics apply topics.yaml --diff
    """
    from quorum.cli.apply.changes import apply_plan, check_plan
    from quorum.cli.apply.plan import make_plan
    from quorum.cli.apply.wanted_file import read_wanted

    try:
        wanted = read_wanted(file, partitions, replication_factor)
    except ValueError as e:
        raise CliError(f"{file}: {e}", EXIT_USAGE) from e
    if prune and not wanted.prune_prefixes:
        raise CliError(f'{file}: --prune needs "prune": {{"prefixes": [...]}}, which topics it may delete', EXIT_USAGE)

    async def work(client: AdminClient) -> tuple[Plan, Outcome | None, bool]:
        """The plan, the answers of the last step, and True if the step was to make the changes."""
        plan = await make_plan(client, wanted, prune=prune)
        if diff and not dry_run:
            return plan, None, False
        checked = await check_plan(client, plan)
        if dry_run or not checked.is_good:
            return plan, checked, False
        if options.output == "table":
            for change in plan.changes():
                click.echo(change["text"])
        if plan.delete and not yes:
            _confirm(len(plan.delete))
        return plan, await apply_plan(client, plan), True

    plan, outcome, is_made = ask(options, work)
    heading = list(plan.diff()) if diff else list(outcome.lines()) if dry_run and outcome is not None else []
    if outcome is None or outcome.is_good or dry_run:
        heading.append(_summary(plan, outcome, f"Nothing to do: all {len(wanted.topics)} topics are as {file} says."))
    document = plan.document() if outcome is None else outcome.document()
    is_applied = is_made and outcome is not None and outcome.is_good
    emit(options.output, {"applied": is_applied, **document}, heading=heading)
    if outcome is not None and not outcome.is_good:
        raise _failure(outcome, is_made=is_made, is_told=dry_run and options.output == "table")
    if diff and (document["changes"] or document["problems"]):
        raise SystemExit(EXIT_UNHEALTHY)


def _summary(plan: Plan, outcome: Outcome | None, nothing: str) -> str:
    """One sentence about the whole plan."""
    from quorum.cli.apply.changes import DONE, REFUSED

    kept = plan.document()["counts"] if outcome is None else outcome.good_counts()
    counts = ", ".join(f"{count} to {kind.replace('_', ' ')}" for kind, count in kept.items() if count)
    refused = 0 if outcome is None else outcome.count(REFUSED)
    if not counts and not refused and not plan.problems:
        return nothing
    if outcome is not None and outcome.count(DONE):
        return f"Done: {counts}."
    parts = [("Would do", counts), ("Refused", refused), ("Not possible", len(plan.problems))]
    return " ".join(f"{word}: {count}." for word, count in parts if count) + " Nothing was changed."


def _failure(outcome: Outcome, *, is_made: bool, is_told: bool) -> CliError:
    """The error of an apply that did not make all changes. `is_told`: the output has the lines already."""
    from quorum.cli.apply.changes import DONE, NOT_TRIED, REFUSED, UNKNOWN

    counts = [
        (outcome.count(DONE), "done"),
        (outcome.count(REFUSED), "refused"),
        (outcome.count(UNKNOWN), "without an answer"),
        (outcome.count(NOT_TRIED), "not tried"),
        (len(outcome.plan.problems), "not possible"),
    ]
    told = ", ".join(f"{count} {word}" for count, word in counts if count)
    done = "the changes that were made stay" if is_made else "nothing was done"
    advice = "Correct the file, and run the command again"
    if outcome.exit_code == EXIT_TIMEOUT:
        advice = "Run the command again when the cluster answers: it makes the changes that are missing"
    lines = "" if is_told else "\n".join(outcome.failure_lines())
    return CliError(f"not all changes can be made: {told}; {done}. {advice}", outcome.exit_code, lines)


def _confirm(deletions: int) -> None:
    """Asks the operator before topics are deleted. Without a terminal nobody can answer, so the command is refused."""
    if not sys.stdin.isatty():
        text = f"{deletions} topics would be deleted, and nobody can be asked here; nothing was done: add --yes"
        raise CliError(text, EXIT_USAGE)
    if not click.confirm(f"Delete {deletions} topics with everything in them?", err=True):
        raise CliError("nothing was done")
