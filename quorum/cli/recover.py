"""`quorumctl quorum recover`: a majority is lost for good. Offline, on directories on which nothing runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from quorum.cli.errors import EXIT_CONFLICT, EXIT_NOT_FOUND, EXIT_USAGE, CliError
from quorum.cli.options import Options, command
from quorum.cli.output import Column, emit

if TYPE_CHECKING:
    from quorum.cli.recovering import Plan
    from quorum.cli.surveying import Candidate

_COLUMNS = (
    Column("DIRECTORY", "path"),
    Column("ROLE", "role"),
    Column("NODE", "node_id"),
    Column("GENERATION", "generation"),
    Column("VOTE_EPOCH", "vote_epoch"),
    Column("START", "start_offset"),
    Column("END", "end_offset"),
    Column("EPOCH", "last_epoch"),
    Column("DURABLE", "flushed_end_offset"),
    Column("SNAPSHOT", "snapshot_end_offset"),
    Column("COMMITTED", "committed_end_offset"),
    Column("CHAIN", "chain"),
    Column("DAMAGE", "damage"),
)
_DIRECTORY = click.Path(path_type=Path)


@click.command()
@click.option(
    "--directory", "controllers", multiple=True, required=True, type=_DIRECTORY,
    help="The data directory of a controller that is left. May be given more than once.",
)  # fmt: skip
@click.option(
    "--from-broker", "brokers", multiple=True, type=_DIRECTORY,
    help="The data directory of a broker, which holds committed records only. May be given more than once.",
)  # fmt: skip
@click.option("--endpoint", metavar="HOST:PORT", help="Where the survivor will be reached, if not where the log says.")
@click.option("--dry-run", is_flag=True, help="Read and report; change nothing.")
@click.option("--yes", is_flag=True, help="Do it: the lost controllers will never be started again.")
@command
def recover(
    options: Options,
    controllers: tuple[Path, ...],
    brokers: tuple[Path, ...],
    endpoint: str | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Makes a quorum of one from what is left, when a majority of the controllers is lost for good.

    The best log among the directories wins. What was committed beyond it is lost. All that the lost controllers, and
    brokers that do not follow, say from then on is refused: they are of an older generation.
    """
    from daemon.clock import RealClock
    from metadata_log.files import DirectoryInUse, FlushFailed
    from quorum.cli.recovering import carry_out, locked, plan
    from quorum.cli.surveying import CannotRecover

    where = _endpoint(endpoint)
    paths = _distinct([*controllers, *brokers])
    try:
        with locked(paths):
            planned = plan(_surveyed(controllers, brokers), where)
            document = _document(planned)
            if dry_run or not yes:
                document["end_offset"] = None
            else:
                document["end_offset"] = carry_out(planned, RealClock().wall_ms())
    except CannotRecover as e:
        raise CliError(str(e), EXIT_CONFLICT) from e
    except DirectoryInUse as e:
        raise CliError(
            f"{e}. A node that runs is not lost: stop it first, if a majority really is", EXIT_CONFLICT
        ) from e
    except (OSError, FlushFailed) as e:
        raise CliError(f"{e}. Run it again: what was written so far harms nobody") from e
    done = document["end_offset"] is not None
    if options.output == "table":
        emit("table", document, rows="candidates", columns=_COLUMNS)
        for line in [*_report(planned), *(_next_steps(planned) if done else ())]:
            click.echo(line)
    else:
        emit(options.output, document, rows="candidates")
    if not done and not dry_run:
        raise CliError("nothing was changed. If this is what you want, say it with --yes", EXIT_USAGE)


def _distinct(paths: list[Path]) -> list[Path]:
    resolved = [path.resolve() for path in paths]
    for path, each in zip(paths, resolved, strict=True):
        if not path.is_dir():
            raise CliError(f"{path} is not a directory", EXIT_NOT_FOUND)
        if resolved.count(each) > 1:
            raise CliError(f"{path} is named twice", EXIT_USAGE)
    return paths


def _surveyed(controllers: tuple[Path, ...], brokers: tuple[Path, ...]) -> list[Candidate]:
    from quorum.cli.surveying import CannotRecover, survey

    found = []
    for option, role, paths in (("--directory", "controller", controllers), ("--from-broker", "broker", brokers)):
        for path in paths:
            candidate = survey(path)
            if candidate.identity.role != role:
                raise CannotRecover(f"{option} {path} is a {candidate.identity.role}'s directory, not a {role}'s")
            found.append(candidate)
    return found


def _endpoint(text: str | None) -> Any:
    from daemon.endpoints import BadEndpoint, parse_host_port
    from metadata_log.records import Endpoint
    from quorum.cli.formatting import LISTENER

    if text is None:
        return None
    try:
        return Endpoint(LISTENER, *parse_host_port(text))
    except BadEndpoint as e:
        raise CliError(f"--endpoint: {e}", EXIT_USAGE) from e


def _document(plan: Plan) -> dict[str, Any]:
    from metadata_log.ids import uuid_text

    return {
        "cluster_id": plan.survivor.identity.cluster_id,
        "survivor": {
            "path": str(plan.survivor.path),
            "node_id": plan.voter.node_id,
            "directory_id": uuid_text(plan.voter.directory_id),
            "endpoint": f"{plan.voter.endpoints[0].host}:{plan.voter.endpoints[0].port}",
        },
        "taken_over_from": None if plan.source is None else str(plan.source.path),
        "taken_over_from_offset": plan.agreed_end,
        "generation": plan.generation,
        "epoch": plan.epoch,
        "kept_end_offset": plan.end,
        "committed_end_offset": plan.committed_end,
        "candidates": [_row(each) for each in plan.candidates],
    }


def _row(candidate: Candidate) -> dict[str, Any]:
    snapshot = candidate.snapshot
    return {
        "path": str(candidate.path),
        "role": candidate.identity.role,
        "node_id": candidate.identity.node_id,
        "generation": candidate.identity.generation,
        "vote_epoch": candidate.vote_epoch,
        "start_offset": candidate.start,
        "end_offset": candidate.end,
        "last_epoch": candidate.epoch,
        "flushed_end_offset": candidate.flushed_end,
        "snapshot_end_offset": None if snapshot is None else snapshot.end.offset,
        "committed_end_offset": candidate.committed_end,
        "chain": candidate.chain.hex()[:16] or None,
        "damage": candidate.damage,
    }


def _report(plan: Plan) -> list[str]:
    """What is kept, what is known, and what nobody can know."""
    lines = ["", f"Controller {plan.voter.node_id} in {plan.survivor.path} becomes the only voter."]
    if plan.source is not None:
        since = "from its snapshot on" if plan.agreed_end is None else f"from offset {plan.agreed_end} on"
        lines.append(f"It takes over the better log of {plan.source.path}, {since}.")
        if plan.agreed_end is not None and plan.agreed_end < plan.survivor.end:
            lines.append(f"Its own records from {plan.agreed_end} to {plan.survivor.end} were never committed, and go.")
    lines.append(f"Kept: all below offset {plan.end} (epoch {(plan.source or plan.survivor).epoch}).")
    if plan.committed_end > 0:
        lines.append(f"Known to have been committed: all below {plan.committed_end} (brokers and snapshots prove it).")
    else:
        lines.append("Nothing here proves what was committed: no broker's directory and no snapshot is among these.")
    if plan.end > plan.committed_end:
        lines.append(
            f"From {plan.committed_end} to {plan.end}: written, perhaps committed, perhaps not. It is kept, and counts as "
            "committed from now on."
        )
    lines.append(
        f"Lost: whatever was committed at or beyond {plan.end}. These directories cannot tell whether that was anything."
    )
    return lines


def _next_steps(plan: Plan) -> list[str]:
    host, port = plan.voter.endpoints[0].host, plan.voter.endpoints[0].port
    return [
        f"Done: generation {plan.generation}, epoch {plan.epoch}. Start controller {plan.voter.node_id}: it leads alone.",
        "Never start the other old controllers again. Give each an empty directory, format it with `quorumctl storage format",
        f"--from {host}:{port}`, and let it vote with `quorumctl quorum add-voter`. Brokers begin anew by themselves.",
    ]
