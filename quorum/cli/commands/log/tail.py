"""`quorumctl log tail`: the newest records of the metadata log, of files or of a running cluster.

A cluster is asked with a watch of everything, which has no secrets. Example with a log of 5,000 records:

1. The watch says that everything below 5,000 is committed. A second watch shows the records from 0 on, and the command keeps the
   last ten: a watch goes on at positions that a node has handed out, and every history begins at 0.
2. With `--follow` a watch at 5,000 shows each new record.

A node that has trimmed its log cannot show the old records. The files of a controller can, as far as they go back.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from quorum.cli.commands.log.dumped import RECORDS, record_rows, rows_in
from quorum.cli.errors import EXIT_UNHEALTHY, EXIT_USAGE, CliError
from quorum.cli.options import Options, ask_entities, command
from quorum.cli.output import Column, emit, json_text, printable
from quorum.wire.words import time_text

if TYPE_CHECKING:
    from metaquorum import EntityClient, WatchBatch, WatchPosition

_COUNT: Final = 10
_COLUMNS: Final = (
    Column("OFFSET", "offset"),
    Column("NOT_AFTER", "not_after"),
    Column("TYPE", "type"),
    Column("DATA", "data_text"),
)
_TRIMMED: Final = "the node has trimmed its log, so the last records are not to be had from it"


@click.command()
@click.argument("directory", required=False, type=click.Path(path_type=Path, exists=True))
@click.option("-n", "count", type=click.IntRange(0, 1_000_000), default=_COUNT, metavar="N", help="Default: 10.")
@click.option("--follow", is_flag=True, help="Show each further record as it is committed, until Ctrl-C.")
@command
def tail(options: Options, directory: Path | None, count: int, follow: bool) -> None:
    """Shows the last N records of the metadata log: those that the cluster has committed, or those in a DIRECTORY.

    The cluster shows no credentials and no tokens. It sends batches together with the time of the newest: a record was written
    at NOT_AFTER or before. Records in a directory may be uncommitted. The cluster can show old records
    while no log was trimmed: -n 0 with --follow reads none. Ctrl-C ends the command with exit code 0.

    \b
    $ quorumctl log tail --follow -n 100
    """
    if follow and directory is not None:
        raise CliError("--follow asks a running cluster: leave the directory out", EXIT_USAGE)
    if follow and options.output == "yaml":
        raise CliError("--follow has no end, and so no YAML document: use -o jsonl", EXIT_USAGE)
    if directory is not None:
        _of_files(options, directory, count)
        return

    async def work(client: EntityClient) -> None:
        position = await _end(client)
        rows: Iterable[dict[str, Any]] = ()
        if count:
            position, rows = await _last(client, position, count, follow)
        if not follow:
            _emit(options, rows, _COLUMNS)
            return
        if options.output == "table":
            click.echo("\t".join(each.title for each in _COLUMNS))
        _print(options, rows)
        async with client.watch(position=position) as batches:
            async for batch in batches:
                if batch.is_state:
                    click.echo(
                        "quorumctl: the records up to here are not to be had; the command goes on behind", err=True
                    )
                else:
                    _print(options, _rows(batch))

    try:
        ask_entities(options, work)
    except KeyboardInterrupt:
        if not follow:
            raise


def _of_files(options: Options, directory: Path, count: int) -> None:
    from quorum.cli.commands.log.log_files import files_of

    segments = [each for each in files_of(directory) if each.suffix == ".log"]
    if not segments:
        raise CliError(f"{directory} holds no segments; name a node's data directory")
    rows = [*deque(record_rows(rows_in(segments, with_records=True)), count)]
    _emit(options, rows, RECORDS)
    if any(row["type"] == "DAMAGE" for row in rows):
        raise SystemExit(EXIT_UNHEALTHY)


async def _end(client: EntityClient) -> WatchPosition:
    """Returns the position below which everything is committed."""
    async with client.watch(from_now=True, bookmarks=True) as batches:
        batch: WatchBatch = await anext(batches)
        return batch.position


async def _last(
    client: EntityClient, end: WatchPosition, count: int, follow: bool
) -> tuple[WatchPosition, Iterable[dict[str, Any]]]:
    """Returns the last records, and the position behind them."""
    from metaquorum import WatchPosition

    rows: deque[dict[str, Any]] = deque(maxlen=count)
    at = WatchPosition(0, 0, 0, b"")
    async with client.watch(position=at, bookmarks=True) as batches:
        while at.offset < end.offset:
            batch = await anext(batches)
            if batch.is_state and not follow:
                text = f"{_TRIMMED}. Ask with `quorumctl log tail DIRECTORY` where a controller has its files"
                raise CliError(text)
            if batch.is_state:
                click.echo(f"quorumctl: {_TRIMMED}; the command begins at {batch.position.offset}", err=True)
            rows.extend([] if batch.is_state else _rows(batch))
            at = batch.position
    return (at if at.offset else end), rows


def _rows(batch: WatchBatch) -> Iterable[dict[str, Any]]:
    from quorum.cli.commands.watches.batch_lines import event_json

    for event in batch.events:
        fields = event_json(event)
        what = fields.pop("event")
        kind = {"written": "Entity", "deleted": "RemoveEntity"}.get(what) or fields["type"]
        data = fields["data"] if what == "record" else {key: each for key, each in fields.items() if key != "offset"}
        yield {
            "offset": event.offset,
            "not_after": time_text(batch.timestamp_ms),
            "type": kind,
            "data": data,
            "data_text": json.dumps(data, ensure_ascii=False),
        }


def _print(options: Options, rows: Iterable[dict[str, Any]]) -> None:
    for row in rows:
        if options.output == "table":
            click.echo("\t".join(printable(str(row[each.key])) for each in _COLUMNS))
        else:
            click.echo(json_text(_document(row)))


def _emit(options: Options, rows: Iterable[dict[str, Any]], columns: Sequence[Column]) -> None:
    shown = [row if options.output == "table" else _document(row) for row in rows]
    emit(options.output, {"records": shown}, rows="records", columns=columns)


def _document(row: dict[str, Any]) -> dict[str, Any]:
    """Returns a row for JSON, which needs no text of its data. The text about damage stays."""
    return {key: each for key, each in row.items() if key != "data_text" or "data" not in row}
