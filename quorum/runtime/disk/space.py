"""A disk that is full: who gives way, in which order, and how the node goes on by itself when there is room again.

    1. retired segments in `archive/`, oldest first: nobody but the audit reads them;
    2. what wanted to be written: a proposal is refused with STORAGE_ERROR, fetched batches wait on their leader, a snapshot is
       left to the next mark;
    3. the ballast (`metadata_log.disk.ballast`), so that votes can be written. They always are, or the node stops.

Until the ballast is taken again and some room is left beside it, the node is *short of space*: it votes and answers, does not
lead (another one may have room), and does not fetch (what came could not be kept). A failed fsync is another matter, and stops
the node as ever.
"""

from collections.abc import Callable
from typing import TypeVar

from metadata_log.disk.ballast import Ballast
from metadata_log.disk.files import Directory, is_full
from metadata_log.store.log import Log

RETRY_MS = 500
ROOM_BYTES = 4 << 20
"""So much must be free beside the ballast before the node goes on: else it would run into the same wall with the next batch."""

T = TypeVar("T")


class NoRoom(Exception):
    """There was no room for it, and nothing of it was written that counts."""


class Space:
    """The room on this node's disk. Owned by the node's thread."""

    def __init__(self, directory: Directory, log: Log, now_ms: int, *, has_ballast: bool) -> None:
        self._directory = directory
        self._ballast = Ballast(directory)
        self._log = log
        self._retry_ms = now_ms + RETRY_MS
        self.is_short = not has_ballast
        self.shortages = int(self.is_short)
        """How often this node ran out of space since it started."""

    def next_deadline_ms(self) -> int | None:
        return self._retry_ms if self.is_short else None

    def look_again(self, now_ms: int) -> bool:
        """True if it is time to try again, whether there is room now or not."""
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
        """`act`, again and again as long as something can be dropped from the archive for it.

        Raises:
            NoRoom: the node is short of space now.
            OSError: something else is wrong with the disk.
        """
        if self.is_short:
            # The ballast may have been released since: its room is kept for votes.
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
        """`act`, with the ballast's room if need be.

        Raises:
            OSError: even that was not enough, or something else is wrong with the disk.
        """
        try:
            return self.write(act, now_ms)
        except NoRoom:
            # Whoever looked again whether there is room has taken the ballast back, and all that there was.
            self._ballast.release()
            return act()
