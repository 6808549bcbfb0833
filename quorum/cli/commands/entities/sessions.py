"""`quorumctl sessions`: the sessions of clients, with which ephemeral entities vanish.

    $ quorumctl sessions close 4chE71wVSbCQ2Xl2IdCbGg 1244

The id and the epoch are those of `sessions list`. A session of the same id that was opened later goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from metadata_log.format.ids import OFFSET_MAX, id_shown, parse_uuid
from quorum.cli.errors import EXIT_USAGE, CliError
from quorum.cli.options import Options, ask_entities, at_position, command
from quorum.cli.output import Column, emit

if TYPE_CHECKING:
    from metaquorum import EntityClient

_COLUMNS = (
    Column("ID", "session_id"),
    Column("EPOCH", "epoch"),
    Column("NAME", "name"),
    Column("PRINCIPAL", "principal"),
    Column("TIMEOUT_MS", "timeout_ms"),
    Column("ENTITIES", "entities"),
)
_RESULTS = (Column("ID", "session_id"), Column("EPOCH", "epoch"), Column("RESULT", "result"))


@click.group()
def sessions() -> None:
    """See and end the sessions of clients."""


@sessions.command("list")
@at_position
@command
def list_(options: Options) -> None:
    """Lists the open sessions of clients. A session without a principal belongs to an entity with a TTL.

    \b
    $ quorumctl sessions list
    """

    async def work(client: EntityClient) -> list[dict[str, Any]]:
        return [
            {
                "session_id": id_shown(each.session_id),
                "epoch": each.epoch,
                "name": each.name or None,
                "principal": each.principal or None,
                "timeout_ms": each.timeout_ms,
                "entities": each.entity_count,
            }
            async for each in client.sessions()
        ]

    emit(options.output, {"sessions": ask_entities(options, work)}, rows="sessions", columns=_COLUMNS)


@sessions.command()
@click.argument("session_id", metavar="ID")
@click.argument("epoch", type=click.IntRange(0, OFFSET_MAX), metavar="EPOCH")
@command
def close(options: Options, session_id: str, epoch: int) -> None:
    """Ends a session at once: all its entities vanish in the same batch. A session that has ended is no error.

    \b
    $ quorumctl sessions close 4chE71wVSbCQ2Xl2IdCbGg 1244
    """
    try:
        id_bytes = parse_uuid(session_id)
    except ValueError as e:
        text = f"{session_id!r} is no id of a session; nothing was done. `quorumctl sessions list` shows the ids"
        raise CliError(text, EXIT_USAGE) from e
    offset = ask_entities(options, lambda client: client.close_session(id_bytes, epoch))
    row = {"session_id": session_id, "epoch": epoch, "result": "closed", "error": None, "message": None}
    emit(options.output, {"offset": offset, "results": [row]}, rows="results", columns=_RESULTS)
