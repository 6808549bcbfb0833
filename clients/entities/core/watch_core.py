"""The decisions of a watch: whole batches only, each change once, differences instead of states.

The watch remembers the position below which the program has seen everything. A stream that breaks inside a batch is forgotten to
this position, so the next stream repeats the whole batch:

    1. The watch is at position 1,244. A message has 500 events of the batch [1,244, 1,250), and is not whole. The stream breaks.
    2. The watch opens a stream at 1,244 at another node. Two messages have the 700 events of the batch, the second is whole.
    3. The program gets 700 events and position 1,250, once.

With `keep_state` the watch keeps the names and versions of all entities that it has shown, and turns a state into differences:

    4. The program sleeps for a day. The log begins at 9,000 now, so the node answers with the state at 9,500: shards 1 and 3.
    5. The watch knew shard 1 at version 1,100 and shard 2. It shows that shard 3 was written and that shard 2 was deleted.

After another generation or history an equal version may be another write, so every entity of the state counts as written then.
"""

from dataclasses import replace

from clients.entities.core.values import Entity
from clients.entities.core.watch_values import (
    EntityDeleted,
    EntityWritten,
    RecordWritten,
    ResetReason,
    WatchBatch,
    WatchEvent,
    WatchMessage,
    WatchPosition,
)

_SAME_HISTORY = (ResetReason.NO_POSITION, ResetReason.BELOW_LOG_START)


class StreamUnusable(Exception):
    """The stream has said what no node may say. Close it, and go on elsewhere from the last position."""


class WatchCore:
    """One watch, over any number of streams."""

    def __init__(self, position: WatchPosition | None = None, *, keep_state: bool = False) -> None:
        """`position`: where to begin. None: with the state, or with what changes from now on."""
        assert position is None or not keep_state, "the entities at a position are not known: begin with the state"
        self.position = position
        """The program has seen everything below. None: nothing yet."""
        self._known: dict[tuple[str, str], int] | None = {} if keep_state else None
        self._events: list[WatchEvent] = []
        self._reset = ResetReason.NO_RESET
        self._is_inside = False
        """True after a message that is not whole."""

    def opened(self) -> None:
        """A stream was opened at `position`: a part of a batch is forgotten."""
        self._events, self._reset, self._is_inside = [], ResetReason.NO_RESET, False

    def take(self, message: WatchMessage) -> WatchBatch | None:
        """Takes the next message of the stream, and returns the batch that it completes.

        Raises:
            StreamUnusable: the messages contradict each other, or the last position.
        """
        if self._is_inside and message.reset is not self._reset:
            if message.reset is ResetReason.NO_RESET:
                raise StreamUnusable("a change inside a state")
            self._events = []  # a state replaces events that were not whole
        self._reset = message.reset
        self._events.extend(message.events)
        self._is_inside = not message.is_whole
        if not message.is_whole:
            return None
        if message.position is None:
            raise StreamUnusable("a whole message without a position")
        events, reset = tuple(_read_in(message.position.generation, event) for event in self._events), self._reset
        self._events, self._reset = [], ResetReason.NO_RESET
        if reset is ResetReason.NO_RESET:
            self._check(message.position, events)
        if self._known is not None:
            events = self._changed(events) if reset is ResetReason.NO_RESET else self._differences(events, reset)
        self.position = message.position
        return WatchBatch(message.position, events, reset, message.timestamp_ms)

    def _check(self, position: WatchPosition, events: tuple[WatchEvent, ...]) -> None:
        """Raises StreamUnusable if the changes do not continue at the last position."""
        last = self.position
        if last is None:
            return
        if position.token < last.token:
            raise StreamUnusable(f"the stream has gone back from {last.token} to {position.token}")
        offsets = [event.offset for event in events]
        if offsets != sorted(offsets) or (offsets and not last.offset <= offsets[0] <= offsets[-1] < position.offset):
            raise StreamUnusable(f"changes outside of [{last.offset}, {position.offset}), or out of order")

    def _changed(self, events: tuple[WatchEvent, ...]) -> tuple[WatchEvent, ...]:
        assert self._known is not None
        for event in events:
            match event:
                case EntityWritten():
                    self._known[event.entity.kind, event.entity.name] = event.entity.version
                case EntityDeleted():
                    self._known.pop((event.kind, event.name), None)
                case RecordWritten():
                    pass  # only entities have a state that a watch can keep
        return events

    def _differences(self, events: tuple[WatchEvent, ...], reset: ResetReason) -> tuple[WatchEvent, ...]:
        """Turns a state into what has changed since the last position: deletions first, then writes by version."""
        assert self._known is not None
        state: dict[tuple[str, str], Entity] = {
            (event.entity.kind, event.entity.name): event.entity for event in events if isinstance(event, EntityWritten)
        }
        known = self._known
        deleted = [EntityDeleted(-1, *name) for name in sorted(known.keys() - state.keys())]
        is_same = reset in _SAME_HISTORY
        new = [entity for name, entity in state.items() if not is_same or known.get(name) != entity.version]
        self._known = {name: entity.version for name, entity in state.items()}
        written = [EntityWritten(entity.version, entity) for entity in sorted(new, key=lambda each: each.version)]
        return (*deleted, *written)


def _read_in(generation: int, event: WatchEvent) -> WatchEvent:
    """Names the generation, which only the last message of a batch tells."""
    if isinstance(event, EntityWritten) and event.entity.generation != generation:
        return event._replace(entity=replace(event.entity, generation=generation))
    return event
