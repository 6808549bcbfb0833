"""The values of a watch: positions, events, batches."""

from dataclasses import dataclass
from enum import IntEnum, unique
from typing import NamedTuple, TypeAlias

from clients.entities.core.values import Entity, Token


@dataclass(frozen=True, slots=True, order=True)
class WatchPosition:
    """A place between two batches of one history: everything below `offset` is seen. Any node takes it to go on."""

    generation: int
    offset: int
    epoch: int
    """The epoch of the batch below `offset`."""
    chain: bytes
    """The hash of the history below `offset`, 32 bytes."""

    @property
    def token(self) -> Token:
        return Token(self.generation, self.offset)


@unique
class ResetReason(IntEnum):
    """Why a batch is the whole state, and not a change."""

    NO_RESET = 0
    NO_POSITION = 1
    """The watch began without a position."""
    BELOW_LOG_START = 2
    """The log begins above the position."""
    OTHER_GENERATION = 3
    """The position is of an earlier generation, in a history that `quorum recover` has cut off."""
    OTHER_HISTORY = 4
    """The log has another epoch or hash at the position."""

    @classmethod
    def of(cls, number: int) -> "ResetReason":
        """Returns the reason for a number from the wire. One of a later release counts as OTHER_HISTORY: forget everything."""
        try:
            return cls(number)
        except ValueError:
            return cls.OTHER_HISTORY


class EntityWritten(NamedTuple):
    """An entity was written, or is part of the state."""

    offset: int
    """The offset of the write. In a state: 0."""
    entity: Entity


class EntityDeleted(NamedTuple):
    """An entity was deleted."""

    offset: int
    """The offset of the deletion; -1: unknown, the deletion lies in a part of the log that was not seen."""
    kind: str
    name: str


class RecordWritten(NamedTuple):
    """Something else has changed: the record of the log, in words."""

    offset: int
    type: str
    """The type of the record, for example `PartitionChange`."""
    json: str
    """The fields as a JSON object, without secrets."""
    topic: str
    """The name of the topic, if the record is about a topic or a partition."""


WatchEvent: TypeAlias = EntityWritten | EntityDeleted | RecordWritten


class WatchMessage(NamedTuple):
    """A message of the stream: all of a batch, or a part of it."""

    position: WatchPosition | None
    """Set if the message is whole."""
    events: tuple[WatchEvent, ...]
    is_whole: bool
    reset: ResetReason
    timestamp_ms: int


class WatchBatch(NamedTuple):
    """The changes between the last position and this one, in the order of the log."""

    position: WatchPosition
    """Everything below is seen."""
    events: tuple[WatchEvent, ...]
    reset: ResetReason
    """Set: the log had no changes for this watch to go on with. Without `keep_state` the events are the whole state, and what
    is not among them does not exist. With `keep_state` they are the differences, as after any other batch."""
    timestamp_ms: int
    """The time of the newest batch below the position, in milliseconds since 1970; 0: unknown."""

    @property
    def is_state(self) -> bool:
        """True if the events of a watch without `keep_state` are the whole state."""
        return self.reset is not ResetReason.NO_RESET
