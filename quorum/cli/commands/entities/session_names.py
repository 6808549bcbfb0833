"""The names of the sessions that own entities: an id alone tells an operator nothing.

Example: the job `claim/7` belongs to the session `v7rvGg...`. `entities list` asks for the sessions once, and shows the owner as
`session worker-a (v7rvGg...)`. A cluster may have 100,000 sessions, so a command reads SESSIONS_READ_MAX at most. The other
owners are shown by their ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from metaquorum import Entity, EntityClient

SESSIONS_READ_MAX: Final = 10_000
"""Maximum number of sessions that one command reads to name owners: ten pages."""


async def session_names(client: EntityClient, entities: Iterable[Entity]) -> dict[bytes, str]:
    """Returns the names of the sessions that own these entities, by id, as far as the cluster knows them."""
    wanted = {
        owner.session_id: owner.epoch
        for owner in (each.owner for each in entities)
        if owner is not None and owner.session_id is not None
    }
    names: dict[bytes, str] = {}
    count = 0
    if not wanted:
        return names
    async for session in client.sessions():
        count += 1
        if count > SESSIONS_READ_MAX:
            break
        if wanted.get(session.session_id) == session.epoch:
            names[session.session_id] = session.name
        if len(names) == len(wanted):
            break
    return names
