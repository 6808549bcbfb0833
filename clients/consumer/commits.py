"""The positions that may be committed, and the times of commits. No commit is ahead of the program.

A record counts as *taken* when the program asks for more, commits by itself, or closes the consumer in order. So a program that
dies in the middle of a record gets the record again.

    1. `poll` returns the records 5 to 9. The program works on them, and 4 s later the consumer still commits position 5.
    2. The program polls again: position 10 may be committed, and is committed at the latest 5 s after the last commit.
    3. The program dies while it works on records 10 to 14. The next run begins with record 10.

A seek, and the outcome of a reset, count at once: nothing is handed out between the old position and the new one.
"""

from collections.abc import Mapping

from clients.consumer.positions import StoredPosition
from clients.metadata.cluster import TopicPartition


class Commits:
    """The committed, the taken and the handed-out positions of one consumer."""

    def __init__(self, interval_ms: int, stored: Mapping[TopicPartition, StoredPosition]) -> None:
        self._interval_ms = interval_ms
        self.committed = dict(stored)
        self._handed: dict[TopicPartition, StoredPosition] = {}
        self._taken: dict[TopicPartition, StoredPosition] = {}
        """Taken, and not yet committed."""
        self._last_ms: int | None = None
        """The time of the last attempt."""

    def hand_out(self, partition: TopicPartition, position: StoredPosition) -> None:
        """Note that the program gets the records below `position`."""
        self._handed[partition] = position

    def take_all(self) -> None:
        """Note that the program has done with all that it got."""
        self._taken.update(self._handed)
        self._handed.clear()

    def move(self, partition: TopicPartition, position: StoredPosition | None) -> None:
        """Note a seek or a reset; None: there is no position for now."""
        self._handed.pop(partition, None)
        if position is not None:
            self._taken[partition] = position

    def lookup(self, partition: TopicPartition) -> StoredPosition | None:
        """Return the position at which an assignment begins."""
        return self._taken.get(partition) or self.committed.get(partition)

    def due_ms(self, now_ms: int) -> int | None:
        """Return the time of the next commit; None if there is nothing to commit."""
        if self._last_ms is None:
            self._last_ms = now_ms
        return self._last_ms + self._interval_ms if self._taken else None

    def begin(self, now_ms: int) -> dict[TopicPartition, StoredPosition]:
        """Return what to commit now. The next commit is due after the interval, whatever becomes of this one."""
        self._last_ms = now_ms
        committed = self.committed
        self._taken = {key: position for key, position in self._taken.items() if committed.get(key) != position}
        return dict(self._taken)

    def done(self, positions: Mapping[TopicPartition, StoredPosition]) -> None:
        """Note that the store has `positions`."""
        self.committed.update(positions)
        for key, position in positions.items():
            if self._taken.get(key) == position:
                del self._taken[key]
