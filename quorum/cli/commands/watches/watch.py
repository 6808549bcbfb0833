"""`quorumctl watch`: prints each committed change as it comes.

    $ quorumctl watch --kind shard --from-now
    2026-11-24T09:30:00.000Z below 1250
      1249  written  shard b/7  broker 2
    ^Cquorumctl: everything below 1250 was shown; go on with --position 1:1250:3:6fc6a0f5...

The watch goes on by itself when its node dies. Nothing is left out and nothing comes twice; docs/watches.md has the guarantees.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from quorum.cli.commands.watches.batch_lines import json_lines, table_lines
from quorum.cli.commands.watches.positions import Position, position_text
from quorum.cli.errors import EXIT_USAGE, CliError
from quorum.cli.options import Options, ask_entities, command
from quorum.cli.shared_options import ID

if TYPE_CHECKING:
    from metaquorum import EntityClient, WatchBatch, WatchPosition


@click.command()
@click.option("--kind", metavar="KIND", help="Show the entities of this kind.")
@click.option("--prefix", default="", metavar="TEXT", help="Only entities whose names begin with this text.")
@click.option("--all-kinds", is_flag=True, help="Show the entities of every kind.")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Show this topic; may be repeated.")
@click.option("--all-topics", is_flag=True, help="Show every topic.")
@click.option("--broker", "brokers", multiple=True, type=ID, metavar="ID", help="Show this broker; may be repeated.")
@click.option("--all-brokers", is_flag=True, help="Show every broker.")
@click.option("--sessions", is_flag=True, help="Show the sessions of clients.")
@click.option("--others", is_flag=True, help="Show features, quotas, ACLs, kinds, config keys and controllers.")
@click.option("--from-now", is_flag=True, help="Begin with the next change, and not with the present state.")
@click.option(
    "--position", type=Position(), metavar="POSITION", help="Go on behind this position, which a watch has printed."
)
@click.option("--positions", is_flag=True, help="Show the position behind each batch in the table. JSON always has it.")
@command
def watch(
    options: Options,
    kind: str | None,
    all_kinds: bool,
    from_now: bool,
    position: WatchPosition | None,
    positions: bool,
    **shown: Any,
) -> None:
    """Prints the committed changes as they come, until Ctrl-C. Without a filter: everything but secrets.

    Each paragraph of the table, and each line of json or jsonl, is whole: a transaction is never torn, and changes that came
    close together are in one paragraph, under the time of the newest. The first paragraph is the present state (RESET), unless
    --from-now or --position says otherwise. A later RESET replaces all that was shown before. Ctrl-C ends the command with exit
    code 0, and the last line on stderr has the position to go on.

    \b
    $ quorumctl watch --kind shard --prefix a/ --from-now
    """
    if options.output == "yaml":
        raise CliError("a watch has no end, and so no YAML document: use -o json", EXIT_USAGE)
    if kind is not None and all_kinds:
        raise CliError("--kind and --all-kinds exclude each other", EXIT_USAGE)
    if shown["prefix"] and not kind:
        raise CliError("--prefix is for the entities of one kind: give --kind", EXIT_USAGE)
    if from_now and position is not None:
        raise CliError("--from-now and --position exclude each other", EXIT_USAGE)
    seen = position

    async def work(client: EntityClient) -> None:
        nonlocal seen
        chosen = client.watch("" if all_kinds else kind, from_now=from_now, position=position, bookmarks=True, **shown)
        async with chosen as batches:
            async for batch in batches:
                _print(options, batch, positions)
                seen = batch.position

    try:
        ask_entities(options, work)
    except KeyboardInterrupt:
        pass  # the way to end a watch
    finally:
        if seen is not None:
            text = f"everything below {seen.offset} was shown; go on with --position {position_text(seen)}"
            click.echo(f"quorumctl: {text}", err=True)


def _print(options: Options, batch: WatchBatch, positions: bool) -> None:
    lines = table_lines(batch, positions=positions) if options.output == "table" else json_lines(batch)
    if lines:
        click.echo("\n".join(lines))
