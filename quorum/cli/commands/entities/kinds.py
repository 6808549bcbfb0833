"""`quorumctl entities kinds`: the types of entities, with their limits, schemas and use.

    $ quorumctl entities kinds declare shard --schema shard.json --max-entities 4096

From then on each new value of a shard must meet the schema. Values that exist stay as they are.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from metadata_log.format.records.entities import (
    ENTITY_VALUE_BYTES_MAX,
    KIND_ENTITIES_MAX,
    KIND_SCHEMA_BYTES_MAX,
)
from quorum.cli.errors import EXIT_USAGE, CliError
from quorum.cli.options import Options, ask_entities, at_position, command
from quorum.cli.output import Column, emit
from quorum.cli.text_file import read_text

if TYPE_CHECKING:
    from metaquorum import EntityClient

_INT64_MAX = (1 << 63) - 1
_COLUMNS = (
    Column("KIND", "kind"),
    Column("DECLARED", "is_declared"),
    Column("ENTITIES", "entities"),
    Column("MAX_ENTITIES", "max_entities"),
    Column("BYTES", "bytes"),
    Column("MAX_BYTES", "max_bytes"),
    Column("MAX_VALUE_BYTES", "max_value_bytes"),
    Column("SCHEMA", "has_schema"),
)
_RESULTS = (Column("KIND", "kind"), Column("RESULT", "result"))


@click.group()
def kinds() -> None:
    """See and declare the kinds of entities."""


@kinds.command("list")
@at_position
@command
def list_(options: Options) -> None:
    """Lists all kinds that are declared or have entities, with the limits that hold.

    \b
    $ quorumctl entities kinds list
    """

    async def work(client: EntityClient) -> list[dict[str, Any]]:
        return [
            {
                "kind": each.limits.kind,
                "is_declared": each.is_declared,
                "entities": each.entity_count,
                "max_entities": each.limits.entities_max,
                "bytes": each.byte_count,
                "max_bytes": each.limits.bytes_max,
                "max_value_bytes": each.limits.value_bytes_max,
                "has_schema": bool(each.limits.schema),
                "schema": each.limits.schema or None,
            }
            async for each in client.kinds()
        ]

    emit(options.output, {"kinds": ask_entities(options, work)}, rows="kinds", columns=_COLUMNS)


@kinds.command()
@click.argument("kind")
@click.option(
    "--schema",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="JSON Schema (draft 2020-12) that each new value must meet. Without it: values are any bytes.",
)
@click.option("--max-entities", type=click.IntRange(1, KIND_ENTITIES_MAX), metavar="N", help="Default: 100000.")
@click.option(
    "--max-bytes",
    type=click.IntRange(1, _INT64_MAX),
    metavar="N",
    help="Maximum size of all names and values. Default: 64 MiB.",
)
@click.option(
    "--max-value-bytes",
    type=click.IntRange(1, ENTITY_VALUE_BYTES_MAX),
    metavar="N",
    help="Maximum size of one value. Default: 64 KiB.",
)
@command
def declare(options: Options, kind: str, schema: Path | None, **limits: int | None) -> None:
    """Declares a kind, or declares it anew: a limit or a schema that is not given is the default again.

    \b
    $ quorumctl entities kinds declare shard --schema shard.json --max-entities 4096
    """
    from metaquorum import KindLimits

    declared = KindLimits(
        kind,
        "" if schema is None else _schema(schema),
        entities_max=limits["max_entities"] or 0,
        bytes_max=limits["max_bytes"] or 0,
        value_bytes_max=limits["max_value_bytes"] or 0,
    )
    ask_entities(options, lambda client: client.declare_kinds(declared))
    _emit(options, kind, "declared")


@kinds.command()
@click.argument("kind")
@command
def remove(options: Options, kind: str) -> None:
    """Removes the declaration of a kind. Its entities stay. A kind without a declaration is no error.

    \b
    $ quorumctl entities kinds remove shard
    """
    ask_entities(options, lambda client: client.remove_kinds(kind))
    _emit(options, kind, "removed")


def _emit(options: Options, kind: str, result: str) -> None:
    row = {"kind": kind, "result": result, "error": None, "message": None}
    emit(options.output, {"results": [row]}, rows="results", columns=_RESULTS)


def _schema(path: Path) -> str:
    try:
        text = read_text(path, 1 << 20)
    except (OSError, ValueError) as e:
        raise CliError(f"{path}: the schema cannot be read: {e}; nothing was done", EXIT_USAGE) from e
    if not text.strip() or len(text.encode()) > KIND_SCHEMA_BYTES_MAX:
        limit = f"{KIND_SCHEMA_BYTES_MAX >> 10} KiB"
        raise CliError(f"{path}: a schema has 1 byte to {limit}; nothing was done", EXIT_USAGE)
    return text
