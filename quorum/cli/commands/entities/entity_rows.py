"""Entities as rows. A value is text, or `{"base64": ...}` in JSON and `base64:...` in a table.

A value is text if it is UTF-8 without control characters other than tabs and line ends. Example: b"broker 2" shows as `broker 2`,
and b"\\xff\\x00" as `base64:/wA=`. A table cuts long values; JSON has each byte.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

from metadata_log.format.ids import id_shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from metaquorum import Entity, EntityOwner

CHARACTERS_SHOWN_MAX: Final = 200
"""Maximum length of a value in a table."""
_LAYOUT: Final = "\t\n\r"


def text_of(value: bytes) -> str | None:
    """Returns the value as text; None: the value is no text."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return text if all(each.isprintable() or each in _LAYOUT for each in text) else None


def value_json(value: bytes) -> Any:
    """Returns the value for JSON."""
    text = text_of(value)
    return {"base64": base64.b64encode(value).decode()} if text is None else text


def value_cell(value: bytes) -> str:
    """Returns the value for a table."""
    text = text_of(value)
    shown = f"base64:{base64.b64encode(value).decode()}" if text is None else text
    if len(shown) <= CHARACTERS_SHOWN_MAX:
        return shown
    return f"{shown[:CHARACTERS_SHOWN_MAX]}... ({len(value):,} bytes)"


def owner_json(owner: EntityOwner | None, names: Mapping[bytes, str] | None) -> dict[str, Any] | None:
    """Returns the owner for JSON. `names`: those of sessions, by id; None: they are left out."""
    if owner is None:
        return None
    session = None if owner.session_id is None else id_shown(owner.session_id)
    named = {} if names is None else {"session_name": names.get(owner.session_id or b"") or None}
    return {"session_id": session, **named, "broker_id": owner.broker_id, "epoch": owner.epoch}


def owner_cell(owner: EntityOwner | None, names: Mapping[bytes, str] | None) -> str | None:
    """Returns the owner for a table, for example `session worker-a (4chE71wVSbCQ2Xl2IdCbGg)`."""
    if owner is None:
        return None
    if owner.session_id is None:
        return f"broker {owner.broker_id}"
    name, shown = (names or {}).get(owner.session_id), id_shown(owner.session_id)
    return f"session {name} ({shown})" if name else f"session {shown}"


def entity_row(
    entity: Entity, output: str, *, has_value: bool = True, names: Mapping[bytes, str] | None = None
) -> dict[str, Any]:
    """Returns the entity as a row for this output. `names`: those of sessions, by id."""
    is_table = output == "table"
    value = (value_cell if is_table else value_json)(entity.value) if has_value else None
    return {
        "kind": entity.kind,
        "name": entity.name,
        "version": entity.version,
        "created": entity.created,
        "owner": (owner_cell if is_table else owner_json)(entity.owner, names),
        "value": value,
    }
