"""`quorumctl quorum recover`: brings a cluster back that has lost its majority. Works offline, on stopped nodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from metadata_log.format.ids import OFFSET_MAX
from quorum.cli.commands.quorum.undone import undone_document, undone_lines
from quorum.cli.errors import EXIT_CONFLICT, EXIT_NOT_FOUND, EXIT_USAGE, CliError
from quorum.cli.options import Options, command
from quorum.cli.output import Column, emit
from quorum.cli.ownership import check_owner
from quorum.cli.times import Time

if TYPE_CHECKING:
    from metadata_log.disk.files import RealDirectory
    from quorum.recovery.plan_values import Loss, Plan
    from quorum.recovery.survey import Candidate

_COLUMNS = (
    Column("DIRECTORY", "path"),
    Column("ROLE", "role"),
    Column("NODE", "node_id"),
    Column("GENERATION", "generation"),
    Column("VOTE_EPOCH", "vote_epoch"),
    Column("START", "start_offset"),
    Column("END", "end_offset"),
    Column("EPOCH", "last_epoch"),
    Column("DURABLE", "durable_end_offset"),
    Column("SNAPSHOT", "snapshot_end_offset"),
    Column("COMMITTED", "committed_end_offset"),
    Column("CHAIN", "chain"),
    Column("DAMAGE", "damage"),
)
_DIRECTORY = click.Path(path_type=Path)


@click.command()
@click.option(
    "--directory", "controllers", multiple=True, required=True, type=_DIRECTORY,
    help="Data directory of a controller that is left. May be repeated.",
)  # fmt: skip
@click.option(
    "--from-broker", "brokers", multiple=True, type=_DIRECTORY,
    help="Data directory of a broker, which has committed records only. May be repeated.",
)  # fmt: skip
@click.option(
    "--endpoint", metavar="HOST:PORT", help="Address of the survivor, if it differs from the address in the log."
)
@click.option(
    "--to-offset",
    type=click.IntRange(1, OFFSET_MAX),
    metavar="OFFSET",
    help="Restore the state after the records below this offset, and undo all later records.",
)
@click.option(
    "--to-time", "to_time_ms", type=Time(), metavar="TIME", help="Restore the state at this time; see --at-time."
)
@click.option("--dry-run", is_flag=True, help="Read and report; change nothing.")
@click.option("--yes", is_flag=True, help="Carry it out. The lost controllers must never be started again.")
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Carry out a recovery that loses durable records; the report names them.",
)
@command
def recover(
    options: Options,
    controllers: tuple[Path, ...],
    brokers: tuple[Path, ...],
    endpoint: str | None,
    to_offset: int | None,
    to_time_ms: int | None,
    dry_run: bool,
    yes: bool,
    accept_loss: bool,
) -> None:
    """Makes one controller the only voter, when a majority of the controllers is lost for good.

    The controller with the best log among the directories goes on. Records that were committed beyond that log are lost. The new
    voter refuses all requests of the lost controllers from then on: their generation of the cluster is older.

    With --to-offset or --to-time the log is cut: the state is that after the whole batches at or below the position. The report
    lists all records that are undone. The cut part is kept in files whose names end with `.undone` and the generation.

    If the command is broken off at any point, run it again with the same options: it completes the recovery.

    \b
    $ quorumctl quorum recover --directory /backup/controller-1 --directory /backup/controller-2 --dry-run
    """
    from metadata_log.disk.failures import DirectoryInUse, FlushFailed
    from metadata_log.format.errors import LogFormatError
    from quorum.recovery.carry_out import carry_out, locked
    from quorum.recovery.plan import plan
    from quorum.recovery.survey import CannotRecover
    from service_kit.process.clock import RealClock
    from snapshots.history.wanted import Wanted

    where = _endpoint(endpoint)
    point = None if to_offset is None and to_time_ms is None else Wanted(to_offset, to_time_ms)
    directories = _distinct([*controllers, *brokers])
    end: int | None = None
    try:
        with locked(directories):
            surveyed = _surveyed(directories[: len(controllers)], directories[len(controllers) :])
            planned = plan(surveyed, where, RealClock().wall_ms(), point)
            unsaid = _unsaid(planned, yes=yes, accept_loss=accept_loss)
            if not dry_run and not unsaid:
                check_owner(Path(planned.survivor.path), "quorum recover")
                end = carry_out(planned)
    except CannotRecover as e:
        raise CliError(str(e), EXIT_CONFLICT) from e
    except DirectoryInUse as e:
        raise CliError(
            f"{e}. A node that runs is not lost: stop it first, if a majority really is", EXIT_CONFLICT
        ) from e
    except (OSError, FlushFailed, LogFormatError) as e:
        raise CliError(f"{e}. {_after_failure(directories)}") from e
    _show(options, planned, end)
    if end is None and not dry_run:
        raise CliError(f"nothing was changed. If this is what you want, say it with {' and '.join(unsaid)}", EXIT_USAGE)


def _show(options: Options, planned: Plan, end: int | None) -> None:
    """Shows the plan; `end` is the new end of the log, or None if nothing was done."""
    document = {**_document(planned), "end_offset": end}
    if options.output == "table":
        emit("table", document, rows="candidates", columns=_COLUMNS)
        for line in [*_report(planned), *(_next_steps(planned) if end is not None else ())]:
            click.echo(line)
    else:
        emit(options.output, document, rows="candidates")


def _unsaid(plan: Plan, *, yes: bool, accept_loss: bool) -> list[str]:
    """The options that the operator has still to give. A recovery that was begun needs none: its options were given then."""
    return [*(() if yes else ("--yes",)), *(("--accept-loss",) if plan.losses and not accept_loss else ())]


def _after_failure(directories: Sequence[RealDirectory]) -> str:
    from quorum.runtime.disk import recovery_plan

    try:
        is_begun = any(each.exists(recovery_plan.FILE_NAME) for each in directories)
    except OSError:
        is_begun = False  # a user who cannot read the directory has begun nothing
    if is_begun:
        return (
            "The recovery is begun and not finished, and the controller does not start before it is finished. Repair the cause "
            "(for example, make room on the disk), and run the same command again: it finishes the recovery"
        )
    return (
        "No recovery was begun, and nothing was changed. Repair the cause, and run the command again. For a directory that "
        "cannot be read or locked, name a readable copy, unless this controller shall go on"
    )


def _distinct(paths: list[Path]) -> list[RealDirectory]:
    from metadata_log.disk.files import RealDirectory

    try:
        resolved = [path.resolve(strict=True) for path in paths]
        for path, each in zip(paths, resolved, strict=True):
            if not each.is_dir():
                raise CliError(f"{path} is not a directory", EXIT_NOT_FOUND)
            if resolved.count(each) > 1:
                raise CliError(f"{path} is named twice", EXIT_USAGE)
    except FileNotFoundError as e:
        raise CliError(f"{e.filename} is not a directory", EXIT_NOT_FOUND) from e
    except OSError as e:
        raise CliError(f"{e}. Nothing was begun") from e
    return [RealDirectory(path) for path in resolved]


def _surveyed(controllers: Sequence[RealDirectory], brokers: Sequence[RealDirectory]) -> list[Candidate]:
    from quorum.recovery.survey import CannotRecover, survey

    found = []
    for option, role, directories in (("--directory", "controller", controllers), ("--from-broker", "broker", brokers)):
        for directory in directories:
            candidate = survey(directory)
            if candidate.identity.role != role:
                raise CannotRecover(
                    f"{option} {directory.path} is a {candidate.identity.role}'s directory, not a {role}'s"
                )
            found.append(candidate)
    return found


def _endpoint(text: str | None) -> Any:
    from metadata_log.format.records import Endpoint
    from quorum.runtime.disk.format_directory import LISTENER
    from service_kit.process.endpoints import BadEndpoint, parse_host_port

    if text is None:
        return None
    try:
        return Endpoint(LISTENER, *parse_host_port(text))
    except BadEndpoint as e:
        raise CliError(f"--endpoint: {e}", EXIT_USAGE) from e


def _document(plan: Plan) -> dict[str, Any]:
    from metadata_log.format.ids import uuid_text
    from quorum.wire.words import endpoint_text

    steps = plan.steps
    from_offset = None if plan.source is None or steps.snapshot is not None else steps.base
    return {
        "cluster_id": plan.survivor.identity.cluster_id,
        "survivor": {
            "path": plan.survivor.path,
            "node_id": plan.voter.node_id,
            "directory_id": uuid_text(plan.voter.directory_id),
            "endpoint": endpoint_text(steps.endpoints[0]),
        },
        "resumed": plan.is_resumed,
        "taken_over_from": None if plan.source is None else plan.source.path,
        "taken_over_from_offset": from_offset,
        "generation": steps.generation,
        "epoch": steps.epoch,
        "kept_end_offset": steps.end.offset,
        "committed_end_offset": steps.committed_end,
        "losses": [
            {"path": each.path, "durable_end_offset": each.end, "was_committed": each.was_committed}
            for each in plan.losses
        ],
        "undone": None if plan.undone is None else undone_document(plan.undone, steps.generation),
        "candidates": [_row(each) for each in plan.candidates],
    }


def _row(candidate: Candidate) -> dict[str, Any]:
    snapshot = candidate.snapshot
    return {
        "path": candidate.path,
        "role": candidate.identity.role,
        "node_id": candidate.identity.node_id,
        "generation": candidate.identity.generation,
        "vote_epoch": candidate.vote_epoch,
        "start_offset": candidate.start,
        "end_offset": candidate.end,
        "last_epoch": candidate.epoch,
        "durable_end_offset": candidate.durable.end,
        "snapshot_end_offset": None if snapshot is None else snapshot.end.offset,
        "committed_end_offset": candidate.committed[0],
        "chain": candidate.chain.hex()[:16] or None,
        "damage": candidate.damage,
    }


def _report(plan: Plan) -> list[str]:
    """Describes the kept records, the known losses, and the losses that these directories cannot show."""
    from quorum.wire.words import endpoint_text

    steps, survivor = plan.steps, plan.survivor
    end, committed_end = steps.end.offset, steps.committed_end
    where = endpoint_text(steps.endpoints[0])
    lines = ["", f"Controller {plan.voter.node_id} in {survivor.path} becomes the only voter, at {where}."]
    if plan.is_resumed:
        lines.insert(1, "A recovery was begun here and broken off. It is completed just as it was begun:")
    if plan.source is not None:
        since = f"from offset {steps.base} on" if steps.snapshot is None else "from its snapshot on"
        lines.append(f"It takes over the better log of {plan.source.path}, {since}.")
        if steps.base < survivor.end and not plan.is_resumed:
            lines.append(f"Its own records from {steps.base} to {survivor.end} were never committed, and are deleted.")
    if plan.own_snapshot is not None:
        at = plan.own_snapshot.end.offset
        lines.append(
            f"Its log below {at} is damaged, and is deleted: its snapshot at {at} holds the state at that offset."
        )
    lines.append(f"Kept: all below offset {end} (epoch {steps.end.epoch}).")
    if committed_end > 0:
        lines.append(f"Known to have been committed: all below {committed_end} (brokers and snapshots prove it).")
    else:
        lines.append("Nothing here proves what was committed: no broker's directory and no snapshot is among these.")
    if end > committed_end:
        lines.append(
            f"From {committed_end} to {end}: written, perhaps committed, perhaps not. It is kept, and counts as "
            "committed from now on."
        )
    lines += [_loss(each, end) for each in plan.losses]
    if steps.undone_end:
        return [*lines, *undone_lines(plan.undone, end, steps.undone_end)]
    lines.append(
        f"Lost: all records at offset {end} and later, if any were committed. These directories cannot show it."
    )
    return lines


def _loss(loss: Loss, kept_end: int) -> str:
    what = "committed" if loss.was_committed else "perhaps committed"
    if loss.end > kept_end:
        return (
            f"LOST FOR CERTAIN: from {kept_end} to {loss.end}, {what}: {loss.path} held that durably once, and none of these "
            "leads there now without a gap."
        )
    return f"LOST FOR CERTAIN: the end of what {loss.path} held durably once, up to {loss.end}, {what}: it is not kept."


def _next_steps(plan: Plan) -> list[str]:
    from quorum.wire.words import endpoint_text

    where = endpoint_text(plan.steps.endpoints[0])
    return [
        f"Done: generation {plan.steps.generation}, epoch {plan.steps.epoch}.",
        f"Start controller {plan.voter.node_id}: it leads alone.",
        "Never start the other old controllers again. Give each an empty directory, format it with `quorumctl storage format",
        f"--from {where}`, and let it vote with `quorumctl quorum add-voter`. Brokers begin anew by themselves.",
    ]
