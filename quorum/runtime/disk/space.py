"""Handles a full disk: frees or refuses in a fixed order, and continues by itself when the disk has room again.

A node that cannot write for lack of room
    1. deletes archived segments, the oldest first: only the audit reads them;
    2. refuses the write: a proposal gets STORAGE_ERROR, fetched batches are dropped and fetched again later, and a snapshot is
       left to the next mark;
    3. releases the ballast (`metadata_log.disk.ballast`) for votes. If even a vote has no room, the node stops.

Until the node has taken the ballast again, and has some room besides, the node is *short of space*: it votes and answers, but
does not lead, because another voter may have room, and does not fetch, because it could not keep the batches. Example:
    1. the disk of leader 1 is full: leader 1 refuses a client's `CreateTopics` with STORAGE_ERROR, and resigns;
    2. node 2 is elected: node 1 grants its vote, and writes the vote into the room of the ballast;
    3. the operator deletes files: node 1 takes the ballast again within a second, and fetches.

A failed fsync is no lack of room: it stops the node.
"""

from collections.abc import Callable
from typing import TypeVar

from metadata_log.disk.ballast import Ballast
from metadata_log.disk.failures import is_full
from metadata_log.disk.files import Directory
from metadata_log.store.log import Log

RETRY_MS = 500
"""How long a node that is short of space waits before it looks for room again."""
ROOM_BYTES = 4 << 20
"""How many bytes must be free beside the ballast before the node continues, so that the next batch has room."""

T = TypeVar("T")


class NoRoom(Exception):
    """Raised when the disk has no room for a write; the write had no effect."""


class Space:
    """The room on the node's disk. Only the node's thread uses this object."""

    def __init__(self, directory: Directory, log: Log, now_ms: int, *, has_ballast: bool) -> None:
        self._directory = directory
        self._ballast = Ballast(directory)
        self._log = log
        self._retry_ms = now_ms + RETRY_MS
        self.is_short = not has_ballast
        self.shortages = int(self.is_short)
        """How many times the disk has become full since the node started."""

    def next_deadline_ms(self) -> int | None:
        return self._retry_ms if self.is_short else None

    def look_again(self, now_ms: int) -> bool:
        """Looks for room if RETRY_MS have passed. True if the node looked, with or without success."""
        if not self.is_short or now_ms < self._retry_ms:
            return False
        self._retry_ms = now_ms + RETRY_MS
        self.is_short = not self._has_room()
        return True

    def _has_room(self) -> bool:
        return self._take_ballast() and self._directory.free_bytes() >= ROOM_BYTES

    def _take_ballast(self) -> bool:
        while not self._ballast.take():
            if not self._log.drop_oldest_archived():
                self._ballast.release()
                return False
        return True

    def write(self, act: Callable[[], T], now_ms: int) -> T:
        """Runs `act`, and repeats a failed `act` while an archived segment can be deleted for it.

        Raises:
            NoRoom: the node is short of space now.
            OSError: the write failed for another reason.
        """
        if self.is_short:
            # The room of the released ballast is kept for votes.
            raise NoRoom("the disk was full a moment ago")
        while True:
            try:
                return act()
            except OSError as e:
                if not is_full(e):
                    raise
                if self._log.drop_oldest_archived():
                    continue
                self._ballast.release()
                self.shortages += not self.is_short
                self.is_short = True
                self._retry_ms = now_ms + RETRY_MS
                raise NoRoom(str(e)) from e

    def write_at_any_price(self, act: Callable[[], T], now_ms: int) -> T:
        """Runs `act`, in the room of the ballast if necessary.

        Raises:
            OSError: the room of the ballast was not enough, or the write failed for another reason.
        """
        try:
            return self.write(act, now_ms)
        except NoRoom:
            # `look_again` may have taken the ballast back, and with it the last free bytes.
            self._ballast.release()
            return act()
