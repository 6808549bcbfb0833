"""`quorumctl log skip-batch`: the way on behind a committed batch that no controller can apply.

$ quorumctl log skip-batch --offset 40 --epoch 3 --chain 6fc6a0f5... --dry-run
$ quorumctl log skip-batch --offset 40 --epoch 3 --chain 6fc6a0f5... --accept-loss
"""

from __future__ import annotations

from typing import Any

import click

from quorum.cli.options import Options, ask, command
from quorum.cli.output import Column, emit
from quorum.cli.shared_options import DRY_RUN

_COLUMNS = (
    Column("OFFSET", "offset"),
    Column("TYPE", "type"),
    Column("DATA", "data"),
)
_CHAIN_BYTES = 32
_UNDONE = (
    "Warning: with --although-applied, all nodes that have applied these records build their images again without them. Changes "
    "that clients saw acknowledged are undone. If a later record builds on them, replay stops there on all nodes."
)


@click.command("skip-batch")
@click.option(
    "--offset", type=click.IntRange(0), metavar="OFFSET", required=True, help="Offset of the batch's first record."
)
@click.option("--epoch", type=click.IntRange(0), metavar="EPOCH", required=True, help="Epoch of the batch.")
@click.option("--chain", metavar="HEX", required=True, help="Chain of the batch, 64 hexadecimal digits.")
@DRY_RUN
@click.option("--accept-loss", is_flag=True, help="Skip the batch; its records are lost for ever.")
@click.option(
    "--although-applied",
    is_flag=True,
    help="Skip the batch although the leader has applied it, and other nodes cannot. Acknowledged changes are undone.",
)
@command
def skip_batch(
    options: Options, offset: int, epoch: int, chain: str, dry_run: bool, accept_loss: bool, although_applied: bool
) -> None:
    """Makes all nodes drop a committed batch that they cannot apply.

    `quorumctl health` names the offset, the epoch and the chain. Look with --dry-run first. A batch of a transaction takes the
    whole transaction along. A repeated call finds the batch skipped.

    With --although-applied, all nodes that have applied the batch build their images again without it. Changes that clients saw
    acknowledged are undone. If a later record builds on them, replay stops there on all nodes. Rather upgrade the nodes that
    cannot apply the batch.

    \b
    $ quorumctl log skip-batch --offset 40 --epoch 3 --chain 6fc6a0f59c2a7e5c... --dry-run
    """
    if dry_run is accept_loss:
        raise click.UsageError("nothing was done: name either --dry-run or --accept-loss")
    try:
        chain_bytes = bytes.fromhex(chain)
    except ValueError:
        chain_bytes = b""
    if len(chain_bytes) != _CHAIN_BYTES:
        raise click.UsageError(f"nothing was done: {chain!r} is no chain of {2 * _CHAIN_BYTES} hexadecimal digits")
    answer = ask(
        options,
        lambda client: client.skip_batch(
            offset, epoch, chain_bytes, although_applied=although_applied, validate_only=dry_run
        ),
    )
    records = [{"offset": each.offset, "type": each.type, "data": each.data} for each in answer.records]
    document: dict[str, Any] = {
        "dry_run": dry_run,
        "offset": answer.offset,
        "dropped_start": answer.dropped_start,
        "dropped_end": answer.dropped_end,
        "reason": answer.reason or None,
        "records": records,
    }
    undone = [_UNDONE] if dry_run and although_applied and not answer.reason else []
    emit(options.output, document, rows="records", columns=_COLUMNS, heading=[*undone, *_heading(document)])


def _heading(document: dict[str, Any]) -> list[str]:
    where = f"[{document['dropped_start']}, {document['dropped_end']})"
    said = [f"The leader cannot apply it: {document['reason']}."] if document["reason"] else []
    if document["dry_run"]:
        said.append(f"Dry run: nothing was changed. These records in {where} would be lost:")
    else:
        said.append(
            f"Skipped at offset {document['offset'] - 1}: every node drops the records in {where}. They are lost:"
        )
    return said
