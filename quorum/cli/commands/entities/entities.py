"""`quorumctl entities`: reads entities, the named values of the programs that use the cluster.

    $ quorumctl entities get shard a/7
    KIND    NAME  VERSION  CREATED  OWNER  VALUE
    shard   a/7   1310     1244     -      broker 2

The version is the offset of the last write. `entities put` and `entities delete` take it as a condition.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from quorum.cli.commands.entities.entity_changes import delete, put
from quorum.cli.commands.entities.entity_rows import entity_row
from quorum.cli.commands.entities.kinds import kinds
from quorum.cli.commands.entities.session_names import session_names
from quorum.cli.errors import EXIT_NOT_FOUND, EXIT_USAGE, CliError
from quorum.cli.options import Options, ask_entities, at_position, command
from quorum.cli.output import Column, emit

if TYPE_CHECKING:
    from metaquorum import Entity, EntityClient

_NAMES = (Column("NAME", "name"), Column("VERSION", "version"), Column("CREATED", "created"), Column("OWNER", "owner"))
_LISTED = (*_NAMES, Column("VALUE", "value"))
_COLUMNS = (Column("KIND", "kind"), *_LISTED)


@click.group()
def entities() -> None:
    """See and change entities: named values that programs keep in the log of the cluster."""


entities.add_command(put)
entities.add_command(delete)
entities.add_command(kinds)


@entities.command()
@click.argument("kind")
@click.argument("name")
@click.option("--raw", is_flag=True, help="Write the bytes of the value to the output, and nothing else.")
@at_position
@command
def get(options: Options, kind: str, name: str, raw: bool) -> None:
    """Shows one entity. The exit code is 3 if there is none.

    \b
    $ quorumctl entities get shard a/7
    """

    async def work(client: EntityClient) -> tuple[Entity | None, dict[bytes, str]]:
        found = await client.get(kind, name)
        return found, {} if found is None or raw else await session_names(client, [found])

    found, names = ask_entities(options, work)
    if found is None:
        raise CliError(f"there is no entity {name!r} of kind {kind!r}", EXIT_NOT_FOUND)
    if raw:
        sys.stdout.buffer.write(found.value)
        sys.stdout.buffer.flush()
        return
    row = entity_row(found, options.output, names=names)
    token = {"generation": found.generation, "offset": found.version}
    emit(options.output, {"token": token, "entities": [row]}, rows="entities", columns=_COLUMNS)


@entities.command("list")
@click.argument("kind")
@click.option("--prefix", default="", metavar="TEXT", help="Only names that begin with this text.")
@click.option("--from", "from_name", default="", metavar="NAME", help="Only this name and those behind it.")
@click.option("--to", "to_name", default="", metavar="NAME", help="Only names before this one.")
@click.option("--names-only", is_flag=True, help="Leave the values out.")
@click.option("--count", "count_only", is_flag=True, help="Show only how many there are.")
@at_position
@command
def list_(options: Options, kind: str, names_only: bool, count_only: bool, **range_: Any) -> None:
    """Lists the entities of one kind by name: all, those with a prefix, or those of a range.

    \b
    $ quorumctl entities list shard --prefix a/ --names-only
    """
    if names_only and count_only:
        raise CliError("--names-only and --count exclude each other", EXIT_USAGE)
    if count_only:
        count = ask_entities(options, lambda client: client.count(kind, **range_))
        emit(options.output, {"count": count}, heading=[str(count)])
        return

    async def work(client: EntityClient) -> list[dict[str, Any]]:
        found = [each async for each in client.list(kind, names_only=names_only, **range_)]
        names = await session_names(client, found)
        return [entity_row(each, options.output, has_value=not names_only, names=names) for each in found]

    emit(
        options.output,
        {"entities": ask_entities(options, work)},
        rows="entities",
        columns=_NAMES if names_only else _LISTED,
    )
