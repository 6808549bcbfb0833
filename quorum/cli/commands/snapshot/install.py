"""`quorumctl snapshot install`: puts a snapshot file onto a stopped node, if the running quorum confirms it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from quorum.cli.commands.snapshot.listing import rows_of
from quorum.cli.errors import EXIT_CONFLICT, CliError
from quorum.cli.options import Options, ask, command
from quorum.cli.output import emit
from quorum.cli.ownership import check_owner
from quorum.cli.shared_options import DRY_RUN

if TYPE_CHECKING:
    from metaquorum import AdminClient
    from quorum.recovery.confirmation import Listed, QuorumView, VoterSnapshots
    from quorum.recovery.snapshot_install import SnapshotFile, Standing

_FILE: Final = click.Path(path_type=Path, dir_okay=False, exists=True)
_DIRECTORY: Final = click.Path(path_type=Path, file_okay=False, exists=True)


@click.command()
@click.argument("file", type=_FILE)
@click.option("--directory", required=True, type=_DIRECTORY, help="Data directory of the stopped node.")
@DRY_RUN
@command
def install(options: Options, file: Path, directory: Path, dry_run: bool) -> None:
    """Puts a snapshot onto a stopped controller or broker, so that it need not fetch the snapshot from its leader.

    FILE is a snapshot of a controller, or was made by `quorum-offline compact`. The running controllers (-C or -b) confirm it:
    the leader, or a majority of the voters, has a snapshot of the same end with the same bytes. The node's own records have to
    end below the snapshot's end.

    If the command is broken off at any point, run it again, or start the node: the node has its old state or the new one.

    \b
    $ quorumctl snapshot install 00000000000000003575-0000000003.checkpoint --directory /var/lib/metaquorum/broker -C c1:9001
    """
    from metadata_log.disk.failures import DirectoryInUse, FlushFailed
    from metadata_log.disk.files import RealDirectory
    from metadata_log.format.errors import LogFormatError
    from quorum.recovery.carry_out import locked
    from quorum.recovery.confirmation import NotConfirmed
    from quorum.recovery.snapshot_install import CannotInstall

    target = RealDirectory(directory.resolve())
    try:
        check_owner(target.path, "snapshot install")
        with locked([target]):
            document, heading = _installed(options, file.resolve(), target, dry_run=dry_run)
    except (CannotInstall, NotConfirmed) as e:
        raise CliError(str(e), EXIT_CONFLICT) from e
    except DirectoryInUse as e:
        raise CliError(str(e), EXIT_CONFLICT) from e
    except (OSError, FlushFailed, LogFormatError) as e:
        raise CliError(
            f"{e}. The node has its old state, or the snapshot as a whole. Repair the cause, and run this again"
        ) from e
    emit(options.output, document, heading=heading)


def _installed(options: Options, path: Path, target: Any, *, dry_run: bool) -> tuple[dict[str, Any], list[str]]:
    """Checks, asks, and installs. Returns the document and its lines for people."""
    from metadata_log.disk.read_only import LocalDirectory
    from metadata_log.format.errors import LogFormatError
    from quorum.recovery.confirmation import confirmed_by
    from quorum.recovery.snapshot_install import carry_out, judge, read_file

    try:
        file = read_file(LocalDirectory(path.parent), path.name)
    except LogFormatError as e:
        raise CliError(f"{e}. Nothing was changed. Copy or compact the snapshot anew", EXIT_CONFLICT) from e
    standing = judge(target, file)
    quorum = ask(options, _asked)
    nodes = confirmed_by(file.listed, standing.identity, quorum)
    if not dry_run:
        carry_out(target, file, standing)
    document = _document(file, standing, nodes, target.path_text, dry_run=dry_run)
    return document, _lines(document)


async def _asked(client: AdminClient) -> QuorumView:
    """Asks the leader for the quorum, and each voter for its snapshots."""
    from quorum.recovery.confirmation import QuorumView

    status = await client.describe_quorum(of_leader=True)
    rows = await rows_of(client, status)
    leads = status.role == "leader" and any(
        each.node_id == status.node_id and each.status == "leader" for each in status.voters
    )
    return QuorumView(
        status.cluster_id,
        status.generation or 1,
        status.node_id if leads else None,
        status.epoch,
        status.high_watermark if status.HasField("high_watermark") else None,
        [_of_voter(each.node_id, rows) for each in status.voters],
    )


def _of_voter(node_id: int, rows: list[dict[str, Any]]) -> VoterSnapshots:
    from quorum.recovery.confirmation import VoterSnapshots

    own = [row for row in rows if row["node_id"] == node_id]
    error = next((row["error"] for row in own if row["error"] is not None), None)
    return VoterSnapshots(node_id, tuple(_listed(row) for row in own if row["end_offset"] is not None), error)


def _listed(row: dict[str, Any]) -> Listed:
    from metadata_log.format.ids import OffsetAndEpoch
    from quorum.recovery.confirmation import Listed

    return Listed(OffsetAndEpoch(row["end_offset"], row["epoch"]), row["bytes"], bytes.fromhex(row["sha256"] or ""))


def _document(
    file: SnapshotFile, standing: Standing, nodes: tuple[int, ...], directory: str, *, dry_run: bool
) -> dict[str, Any]:
    return {
        "directory": directory,
        "role": standing.identity.role,
        "node_id": standing.identity.node_id,
        "file": file.path,
        "end_offset": file.meta.end.offset,
        "epoch": file.meta.end.epoch,
        "bytes": file.listed.size,
        "records": file.record_count,
        "metadata_version": file.metadata_version,
        "sha256": file.listed.sha256.hex(),
        "confirmed_by": list(nodes),
        "log_end_offset_before": standing.end,
        "result": "unchanged" if standing.has_it else "would_install" if dry_run else "installed",
    }


def _lines(document: dict[str, Any]) -> list[str]:
    node = f"{document['role']} {document['node_id']}"
    end = f"{document['end_offset']}@{document['epoch']}"
    confirmed = f"Confirmed by controllers {', '.join(map(str, document['confirmed_by']))}: {document['sha256'][:16]}."
    if document["result"] == "unchanged":
        return [confirmed, f"No change: {node} has the snapshot {end} already. Start the node."]
    if document["result"] == "would_install":
        what = (
            f"the log, which ends at {document['log_end_offset_before']}, would begin anew at {document['end_offset']}"
        )
        return [confirmed, f"Nothing was changed. Without --dry-run {node} gets the snapshot {end}: {what}."]
    return [
        confirmed,
        f"Installed the snapshot {end} on {node}. Start the node: it goes on at {document['end_offset']}.",
    ]
