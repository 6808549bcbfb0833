"""The batches of a watch: a paragraph for each in the table, and an object on one line in JSON.

    2026-11-24T09:30:00.000Z below 1250
      1248  deleted  shard a/7
      1249  written  shard b/7  broker 2

Both events belong to one transaction: no reader has ever seen shard 7 in both places, or in none.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from quorum.cli.commands.entities.entity_rows import entity_row, value_cell
from quorum.cli.commands.watches.positions import position_text
from quorum.cli.output import UNKNOWN, json_text, printable
from quorum.wire.words import counted, time_text

if TYPE_CHECKING:
    from metaquorum import EntityDeleted, EntityWritten, RecordWritten, WatchBatch

    WatchEvent = EntityWritten | EntityDeleted | RecordWritten

_RESETS: Final = {
    "NO_POSITION": "the watch begins",
    "BELOW_LOG_START": "the node's log begins above the position",
    "OTHER_GENERATION": "the position is of an earlier generation",
    "OTHER_HISTORY": "the position is of another history",
}


def json_lines(batch: WatchBatch) -> list[str]:
    """Returns the batch as one JSON object on one line. A bookmark has no line."""
    if not batch.events and not batch.is_state:
        return []
    document = {
        "position": position_text(batch.position),
        "offset": batch.position.offset,
        "generation": batch.position.generation,
        "timestamp_ms": batch.timestamp_ms or None,
        "reset": batch.reset.name if batch.is_state else None,
        "events": [event_json(event, is_state=batch.is_state) for event in batch.events],
    }
    return [json_text(document)]


def event_json(event: WatchEvent, *, is_state: bool = False) -> dict[str, Any]:
    """Returns an event for JSON. In a state no event has an offset."""
    from metaquorum import EntityDeleted, EntityWritten

    offset = None if is_state else event.offset
    match event:
        case EntityWritten():
            return {"offset": offset, "event": "written", **entity_row(event.entity, "json")}
        case EntityDeleted():
            return {"offset": offset, "event": "deleted", "kind": event.kind, "name": event.name}
        case _:
            data = json.loads(event.json)
            return {"offset": offset, "event": "record", "type": event.type, "topic": event.topic or None, "data": data}


def table_lines(batch: WatchBatch, *, positions: bool) -> list[str]:
    """Returns the batch for people. `positions`: each batch ends with its position."""
    if not batch.events and not batch.is_state:
        return []
    time = time_text(batch.timestamp_ms) or UNKNOWN
    if batch.is_state:
        why = f"{batch.reset.name}: {_RESETS[batch.reset.name]}"
        lines = [f"{time} RESET at {batch.position.offset} ({why}); this is all there is: {_size(batch)}"]
    else:
        lines = [f"{time} below {batch.position.offset}"]
    lines += ["  " + "  ".join(_cells(event, is_state=batch.is_state)) for event in batch.events]
    return [*lines, f"  position {position_text(batch.position)}"] if positions else lines


def _size(batch: WatchBatch) -> str:
    return counted(len(batch.events), "item")


def _cells(event: WatchEvent, *, is_state: bool) -> list[str]:
    from metaquorum import EntityDeleted, EntityWritten

    # Records of a state have no offset. An entity has a version.
    match event:
        case EntityWritten():
            entity = event.entity
            name = printable(f"{entity.kind} {entity.name}")
            return [str(entity.version), "exists" if is_state else "written", name, printable(value_cell(entity.value))]
        case EntityDeleted():
            return [str(event.offset), "deleted", printable(f"{event.kind} {event.name}")]
        case _:
            return [UNKNOWN if is_state else str(event.offset), printable(event.type), printable(event.json)]
