"""The queue of one reader: what was encoded for it and has not left. Bounded, in bytes.

The entries are shared by all readers with the same filter, so a queue has references only. Example with a limit of 1 MiB:
    1. The reader takes its messages slowly: 900 KiB wait. A change of 200 KiB comes: the reader is CUT. Its queue is emptied, and
       the client goes on from the position of the last message that it got.
    2. A change of 800 KiB comes for another reader, whose queue is empty. Such a change is large for any reader, so this reader
       is not cut: it is BEHIND, and reads the change from the log, piece by piece, as fast as the client takes the pieces.
"""

from collections import deque
from enum import Enum, unique
from typing import Final, NamedTuple

LARGE_SHARE: Final = 2
"""A message of more than one LARGE_SHARE-th of the limit is not queued."""


@unique
class Pushed(Enum):
    """The fate of a message."""

    QUEUED = "queued"
    BEHIND = "behind"
    """The message is too large for any queue."""
    CUT = "cut"
    """The reader is too slow. The queue is empty now."""


class Message(NamedTuple):
    """A message, or several of them end to end, as it is sent."""

    data: bytes
    events: int


class ReaderQueue:
    """The queue of one reader."""

    __slots__ = ("_bytes_max", "_messages", "waiting_bytes")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._messages: deque[Message] = deque()
        self.waiting_bytes = 0

    def __len__(self) -> int:
        return len(self._messages)

    def push(self, message: Message) -> Pushed:
        """Add a whole message: the events of some batches, with the position behind them."""
        size = len(message.data)
        if self.waiting_bytes + size <= self._bytes_max and size * LARGE_SHARE <= self._bytes_max:
            self._messages.append(message)
            self.waiting_bytes += size
            return Pushed.QUEUED
        if size * LARGE_SHARE > self._bytes_max:
            return Pushed.BEHIND
        self.clear()
        return Pushed.CUT

    def take(self, bytes_max: int) -> Message:
        """Return the oldest messages, joined, of at most `bytes_max`; at least one. The queue is not empty.

        Whole messages of this wire format, end to end, are one whole message: the lists of events are joined, and the last
        position counts.
        """
        first = self._messages.popleft()
        self.waiting_bytes -= len(first.data)
        if not self._messages or len(first.data) + len(self._messages[0].data) > bytes_max:
            return first
        taken, size, events = [first.data], len(first.data), first.events
        while self._messages and size + len(self._messages[0].data) <= bytes_max:
            data, count = self._messages.popleft()
            taken.append(data)
            size += len(data)
            events += count
        self.waiting_bytes -= size - len(first.data)
        return Message(b"".join(taken), events)

    def clear(self) -> None:
        self._messages.clear()
        self.waiting_bytes = 0
