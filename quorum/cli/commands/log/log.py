"""`quorumctl log`"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from quorum.cli.commands.log.dumped import RECORDS, record_rows, rows_in
from quorum.cli.commands.log.skip_batch import skip_batch
from quorum.cli.commands.log.tail import tail
from quorum.cli.errors import EXIT_UNHEALTHY
from quorum.cli.options import Options, command
from quorum.cli.output import Column, emit
from quorum.wire.words import time_text

_BATCHES = (
    Column("FILE", "file"),
    Column("POSITION", "position"),
    Column("OFFSETS", "offsets"),
    Column("EPOCH", "epoch"),
    Column("KIND", "what"),
    Column("RECORDS", "record_count"),
    Column("BYTES", "bytes"),
    Column("TIME", "time"),
    Column("CHAIN", "chain_text"),
)


@click.group()
def log() -> None:
    """Read the metadata log, and skip a batch that no node can apply."""


log.add_command(skip_batch)
log.add_command(tail)


@log.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--print-data", is_flag=True, help="Print the records too.")
@click.option("--from-offset", type=click.IntRange(0), default=0, metavar="OFFSET", help="First offset to print.")
@click.option("--to-offset", type=click.IntRange(0), metavar="OFFSET", help="Offset at which to stop.")
@command
def dump(options: Options, paths: tuple[Path, ...], print_data: bool, from_offset: int, to_offset: int | None) -> None:
    """Shows what is in segments and snapshots, without a running node.

    PATHS are files, `@metadata` directories, nodes' data directories, or directories of replicas of partitions. Damage is
    shown at its place, and reading goes on after it; then the exit code is 10. Offsets in a snapshot count the snapshot's
    own records.

    \b
    $ quorumctl log dump /var/lib/metaquorum/controller --print-data --from-offset 1000
    """
    damaged = 0

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal damaged
        for row in rows_in(paths, with_records=print_data):
            is_damaged = row["kind"] == "damage" or row.get("chain_is_valid") is False or "reason" in row
            damaged += is_damaged
            wanted = is_damaged or row["end_offset"] > from_offset
            if wanted and (is_damaged or to_offset is None or row["base_offset"] < to_offset):
                yield row

    if options.output == "table":
        shown, columns = (
            (record_rows(rows(), from_offset, to_offset), RECORDS) if print_data else (_batch_rows(rows()), _BATCHES)
        )
        emit("table", {"rows": list(shown)}, rows="rows", columns=columns)
    elif options.output == "jsonl":
        emit("jsonl", {"rows": rows()}, rows="rows")
    else:
        emit(options.output, {"rows": list(rows())})
    if damaged:
        click.echo(f"quorumctl: {damaged} damaged place{'s' * (damaged > 1)}; see the rows that say so", err=True)
        raise SystemExit(EXIT_UNHEALTHY)


def _batch_rows(rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for row in rows:
        if row["kind"] == "damage":
            yield {**row, "what": f"DAMAGE: {row['reason']}"}
            continue
        is_valid = row["chain_is_valid"]
        yield {
            **row,
            "offsets": f"[{row['base_offset']},{row['end_offset']})",
            "what": "control" if row["is_control"] else "data",
            "time": time_text(row["last_timestamp_ms"]),
            "chain_text": row["chain"][:12] + ("" if is_valid else " BROKEN" if is_valid is False else " unchecked"),
        }
