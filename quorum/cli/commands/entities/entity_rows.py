"""Entities as rows. A value is text, or `{"base64": ...}` in JSON and `base64:...` in a table.

A value is text if it is UTF-8 without control characters other than tabs and line ends. Example: b"broker 2" shows as `broker 2`,
and b"\\xff\\x00" as `base64:/wA=`. A table cuts long values; JSON has each byte.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

from metadata_log.format.ids import id_shown

if TYPE_CHECKING:
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


def owner_json(owner: EntityOwner | None) -> dict[str, Any] | None:
    """Returns the owner for JSON."""
    if owner is None:
        return None
    session = None if owner.session_id is None else id_shown(owner.session_id)
    return {"session_id": session, "broker_id": owner.broker_id, "epoch": owner.epoch}


def owner_cell(owner: EntityOwner | None) -> str | None:
    """Returns the owner for a table."""
    if owner is None:
        return None
    if owner.session_id is None:
        return f"broker {owner.broker_id}"
    return f"session {id_shown(owner.session_id)}"


def entity_row(entity: Entity, output: str, *, has_value: bool = True) -> dict[str, Any]:
    """Returns the entity as a row for this output."""
    is_table = output == "table"
    value = (value_cell if is_table else value_json)(entity.value) if has_value else None
    return {
        "kind": entity.kind,
        "name": entity.name,
        "version": entity.version,
        "created": entity.created,
        "owner": (owner_cell if is_table else owner_json)(entity.owner),
        "value": value,
    }
