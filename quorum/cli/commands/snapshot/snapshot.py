"""`quorumctl snapshot`"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from quorum.cli.commands.snapshot.install import install
from quorum.cli.commands.snapshot.listing import rows_of
from quorum.cli.errors import EXIT_TIMEOUT, EXIT_UNHEALTHY, CliError
from quorum.cli.options import Options, ask, command
from quorum.cli.output import Column, emit

if TYPE_CHECKING:
    from metaquorum import AdminClient

_POLL_S = 0.05
_COLUMNS = (
    Column("NODE", "node_id"),
    Column("END_OFFSET", "end_offset"),
    Column("EPOCH", "epoch"),
    Column("BYTES", "bytes"),
    Column("LOG_TIME", "log_time"),
    Column("SHA256", "sha256_text"),
    Column("ERROR", "error"),
)


@click.group()
def snapshot() -> None:
    """Write, list and install snapshots."""


snapshot.add_command(install)


@snapshot.command()
@click.option("--reason", default="", help="A remark, kept in the log with the mark.")
@click.option(
    "--wait", is_flag=True, help="Wait until every voter that answers has written its snapshot; name the other voters."
)
@command
def create(options: Options, reason: str, wait: bool) -> None:
    """Makes every controller write a snapshot of the same offset.

    With --wait, exit code 10 if a voter cannot be asked, so that its snapshot is unknown.

    \b
    $ quorumctl snapshot create --wait
    """

    async def work(client: AdminClient) -> dict[str, Any]:
        offset = (await client.create_snapshot(reason)).offset
        written, missing = await _wait(client, offset) if wait else ({}, {})
        hashes = sorted({sha256 for sha256 in written.values() if sha256 is not None})
        return {
            "end_offset": offset,
            "written_by": sorted(written) if wait else None,
            "not_written_by": [{"node_id": node_id, "error": error} for node_id, error in sorted(missing.items())]
            if wait
            else None,
            "sha256": hashes[0] if len(hashes) == 1 else None,
            "identical": len(hashes) == 1 if hashes else None,
        }

    document = ask(options, work)
    text = f"Marked at offset {document['end_offset']}."
    if wait:
        nodes = ", ".join(str(node_id) for node_id in document["written_by"])
        text = f"Snapshot at offset {document['end_offset']} written by controllers {nodes}."
        if document["sha256"] is not None and document["identical"]:
            text += f" The files are the same, byte for byte: {document['sha256'][:16]}."
    emit(options.output, document, heading=[text])
    if document["identical"] is False:
        click.echo("quorumctl: the files differ, which must not be; compare the nodes with `snapshot list`", err=True)
        raise SystemExit(EXIT_UNHEALTHY)
    missing = document["not_written_by"]
    if missing:
        voters = len(missing) + len(document["written_by"])
        each = "; ".join(f"controller {row['node_id']}: {row['error']}" for row in missing)
        click.echo(
            f"quorumctl: {len(missing)} of {voters} voters have not written it, as far as is known: {each}. One that comes back "
            "writes it by itself, or takes the leader's; `quorumctl snapshot list` shows it",
            err=True,
        )
        raise SystemExit(EXIT_UNHEALTHY)


async def _wait(client: AdminClient, offset: int) -> tuple[dict[int, str | None], dict[int, str]]:
    """Waits until every answering controller has the snapshot. Returns the hash of each file, and the errors of the others."""
    deadline_s = asyncio.get_running_loop().time() + client.timeout_s
    while True:
        rows = await rows_of(client, await client.describe_quorum())
        answering = {row["node_id"] for row in rows if row["error"] is None}
        having = {row["node_id"]: row["sha256"] for row in rows if row["end_offset"] == offset}
        if answering and having.keys() == answering:
            return having, {row["node_id"]: row["error"] for row in rows if row["error"] is not None}
        if asyncio.get_running_loop().time() > deadline_s:
            missing = (
                ", ".join(str(node_id) for node_id in sorted(answering - having.keys())) or "no controller answers"
            )
            raise CliError(
                f"the mark at offset {offset} is committed, but after {client.timeout_s:g} s no snapshot is there yet on: "
                f"{missing}. `quorumctl snapshot list` shows when it is",
                EXIT_TIMEOUT,
            )
        await asyncio.sleep(_POLL_S)


@snapshot.command("list")
@command
def list_(options: Options) -> None:
    """Lists the snapshots on every controller's disk.

    \b
    $ quorumctl snapshot list
    """

    async def work(client: AdminClient) -> list[dict[str, Any]]:
        return await rows_of(client, await client.describe_quorum())

    rows = ask(options, work)
    shown = [row for row in rows if row["end_offset"] is not None or row["error"] is not None]
    if options.output == "table":
        shown = [{**row, "sha256_text": row["sha256"][:16] if row["sha256"] else None} for row in shown]
    emit(options.output, {"snapshots": shown}, rows="snapshots", columns=_COLUMNS)
