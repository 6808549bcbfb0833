"""Positions and events of a watch as messages of `quorum_rpc.v1`, and back."""

from typing import Any

from quorum_rpc.v1 import watch_pb2

from clients.entities.core.watch_values import (
    EntityDeleted,
    EntityWritten,
    RecordWritten,
    ResetReason,
    WatchEvent,
    WatchMessage,
    WatchPosition,
)
from clients.entities.messages import entity_of


def position_message(position: WatchPosition) -> watch_pb2.WatchPosition:
    """Returns the message for a position."""
    return watch_pb2.WatchPosition(
        generation=position.generation, offset=position.offset, epoch=position.epoch, chain=position.chain
    )


def message_of(response: Any) -> WatchMessage:
    """Returns the message of a stream. Changes of a later release that this client does not know are left out."""
    position = None
    if response.HasField("position"):
        at = response.position
        position = WatchPosition(at.generation, at.offset, at.epoch, at.chain)
    generation = position.generation if position is not None else 0
    events = tuple(event for event in (_event_of(each, generation) for each in response.events) if event is not None)
    return WatchMessage(position, events, response.is_whole, ResetReason.of(response.reset), response.timestamp_ms)


def _event_of(message: Any, generation: int) -> WatchEvent | None:
    match message.WhichOneof("change"):
        case "entity_written":
            return EntityWritten(message.offset, entity_of(message.entity_written.entity, generation))
        case "entity_deleted":
            deleted = message.entity_deleted.entity
            return EntityDeleted(message.offset, deleted.kind, deleted.name)
        case "record":
            record = message.record
            return RecordWritten(message.offset, record.type, record.json, record.topic)
        case _:
            return None
