"""A reader: one watch at the end of the log, as the hub sees it.

The hub pushes messages and reports; the conversation with the client takes them. Both run on the event loop.
"""

import asyncio

from metadata_log.format.ids import Offset
from service_kit.rpc.refusals import Refusal
from watches.core.filters import Filter
from watches.core.position import Position, ResetReason
from watches.core.reader_queue import Message, Pushed, ReaderQueue
from watches.service.messages import Tail


class Reader:
    """One watch. Attached to the hub, it has seen or queued everything below the hub's position."""

    __slots__ = ("behind", "lost", "queue", "refusal", "shown", "since", "tail", "wake")

    def __init__(self, shown: Filter, buffer_bytes: int) -> None:
        self.shown = shown
        self.queue = ReaderQueue(buffer_bytes)
        self.since: Offset = 0
        """The watch has begun here on this node, with the changes or with the state."""
        self.behind: Position | None = None
        """Set: the reader has left the hub at this position, and reads on from the log."""
        self.tail: Tail | None = None
        """The end of the last message that was queued since the reader is attached."""
        self.lost: ResetReason | None = None
        """Set: what the watch has shown may not be true any more, so that it goes on with the state."""
        self.refusal: Refusal | None = None
        """Set: the watch ends, once its queue is empty."""
        self.wake = asyncio.Event()

    def push(self, message: Message, before: Position, tail: Tail) -> Pushed:
        """Queue a message; `before` is the position in front of it, and `tail` the one behind it."""
        pushed = self.queue.push(message)
        if pushed is Pushed.QUEUED:
            self.tail = tail
        elif pushed is Pushed.BEHIND:
            self.leave(before)
        elif pushed is Pushed.CUT:
            self.end(_too_slow(before))
        self.wake.set()
        return pushed

    def is_beyond(self, position: Position) -> bool:
        """Return True if the reader has seen or queued something above `position`."""
        return self.tail is not None and self.tail.position.offset > position.offset

    def leave(self, position: Position) -> None:
        """Let the reader go on from the log, at `position` or its own end above, when its queue is empty."""
        own = self.tail
        self.behind = own.position if own is not None and self.is_beyond(position) else position
        self.wake.set()

    def reset(self, reason: ResetReason) -> None:
        """Let the watch go on with the state."""
        self.lost = reason
        self.wake.set()

    def end(self, refusal: Refusal) -> None:
        """End the watch, once its queue is empty."""
        self.refusal = self.refusal or refusal
        self.wake.set()


def _too_slow(position: Position) -> Refusal:
    text = f"too many events waited at offset {position.offset} for the client to take them"
    return Refusal("THROTTLING_QUOTA_EXCEEDED", f"{text}: go on from the position of the last whole message")
