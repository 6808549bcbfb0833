"""`quorumctl entities put` and `delete`.

    $ quorumctl entities put shard a/7 'broker 2' --if-version 1244

The write is made only if the last write of the entity was at offset 1,244. Otherwise nothing is done, and the exit code is 4.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from metadata_log.format.ids import OFFSET_MAX
from metadata_log.format.records.entities import ENTITY_VALUE_BYTES_MAX
from quorum.cli.errors import EXIT_NOT_FOUND, EXIT_USAGE, CliError
from quorum.cli.options import Options, ask_entities, command
from quorum.cli.output import Column, emit
from quorum.cli.times import Duration

if TYPE_CHECKING:
    from metaquorum import Token

_RESULTS = (
    Column("KIND", "kind"),
    Column("NAME", "name"),
    Column("RESULT", "result"),
    Column("VERSION", "version"),
)
_IF_VERSION = click.option(
    "--if-version",
    type=click.IntRange(0, OFFSET_MAX),
    metavar="VERSION",
    help="Change the entity only if this is its version.",
)


@click.command()
@click.argument("kind")
@click.argument("name")
@click.argument("value", required=False)
@click.option(
    "--file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Take the value from this file; - is the standard input.",
)
@_IF_VERSION
@click.option("--if-absent", is_flag=True, help="Write the entity only if it does not exist.")
@click.option(
    "--ttl",
    "ttl_ms",
    type=Duration(),
    default=0,
    metavar="DURATION",
    help="The entity vanishes if it is not written again for so long: 30s, 1h30m.",
)
@click.option("--keep-owner", is_flag=True, help="Leave an ephemeral entity with its session. The entity must exist.")
@command
def put(options: Options, kind: str, name: str, value: str | None, file: str | None, **how: Any) -> None:
    """Writes an entity: with VALUE, or with the content of a file.

    Without --ttl and --keep-owner the entity stays until it is deleted, also if it was ephemeral before. The exit code is 4 if a
    condition does not hold; nothing is done then.

    \b
    $ quorumctl entities put shard a/7 'broker 2' --if-version 1244
    """
    if (value is None) is (file is None):
        raise CliError("give the value either as an argument or with --file; nothing was done", EXIT_USAGE)
    if how["if_absent"] and how["if_version"] is not None:
        raise CliError("--if-absent and --if-version exclude each other; nothing was done", EXIT_USAGE)
    if how["ttl_ms"] and how["keep_owner"]:
        raise CliError("--ttl and --keep-owner exclude each other; nothing was done", EXIT_USAGE)
    data = value.encode() if value is not None else _content(file or "-")
    token = ask_entities(options, lambda client: client.put(kind, name, data, **how))
    _emit(options, kind, name, "written", token)


@click.command()
@click.argument("kind")
@click.argument("name")
@_IF_VERSION
@click.option("--if-exists", is_flag=True, help="Do not fail if there is no such entity.")
@command
def delete(options: Options, kind: str, name: str, if_version: int | None, if_exists: bool) -> None:
    """Deletes an entity. The exit code is 3 if there is none, and 4 if it has another version.

    \b
    $ quorumctl entities delete shard a/7 --if-version 1310
    """
    token = ask_entities(options, lambda client: client.delete(kind, name, if_version=if_version))
    if token is None and not if_exists:
        raise CliError(f"there is no entity {name!r} of kind {kind!r}; nothing was done", EXIT_NOT_FOUND)
    _emit(options, kind, name, "absent" if token is None else "deleted", token)


def _emit(options: Options, kind: str, name: str, result: str, token: Token | None) -> None:
    row = {
        "kind": kind,
        "name": name,
        "result": result,
        "version": None if token is None else token.offset,
        "generation": None if token is None else token.generation,
        "error": None,
        "message": None,
    }
    emit(options.output, {"results": [row]}, rows="results", columns=_RESULTS)


def _content(file: str) -> bytes:
    try:
        if file == "-":
            if sys.stdin is None:
                raise CliError("the standard input is closed; nothing was done; name a file", EXIT_USAGE)
            data = sys.stdin.buffer.read(ENTITY_VALUE_BYTES_MAX + 1)
        else:
            with Path(file).open("rb") as opened:
                data = opened.read(ENTITY_VALUE_BYTES_MAX + 1)
    except OSError as e:
        raise CliError(f"{file}: the value cannot be read: {e.strerror or e}; nothing was done", EXIT_USAGE) from e
    if len(data) > ENTITY_VALUE_BYTES_MAX:
        text = (
            f"{file}: the value has more than {ENTITY_VALUE_BYTES_MAX >> 10} KiB, and no entity may; nothing was done"
        )
        raise CliError(text, EXIT_USAGE)
    return data
