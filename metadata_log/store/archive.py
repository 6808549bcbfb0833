"""`archive/`: segments that the log needs no more, kept for the audit as long as there is room and they are not too old.

Age is counted in the log's own time, so that a clock that is wrong removes nothing. When the disk is full, these go first.
"""

from contextlib import closing
from typing import Final

from metadata_log.disk.files import Directory, is_unreadable
from metadata_log.format.errors import LogFormatError
from metadata_log.store.segment import SEGMENT_HEADER_BYTES, base_offset_of, unpack_header

ARCHIVE_NAME: Final = "archive"


class Archive:
    """The retired segments of one log."""

    def __init__(self, directory: Directory) -> None:
        self._parent = directory

    @property
    def _directory(self) -> Directory:
        return self._parent.subdirectory(ARCHIVE_NAME)

    def names(self) -> list[str]:
        """The segments in it, oldest first."""
        if not self._parent.exists(ARCHIVE_NAME):
            return []
        return [name for name in self._directory.names() if base_offset_of(name) is not None]

    def take(self, names: list[str]) -> None:
        """Moves segments in, durably where they are now. Where they were they may reappear after a power cut."""
        archive = self._directory
        for name in names:
            self._parent.move(name, archive)
        archive.flush()

    def drop_oldest(self) -> bool:
        """Removes the oldest segment; False if there is none."""
        names = self.names()
        if names:
            self._directory.remove(names[0])
        return bool(names)

    def trim(self, max_bytes: int, oldest_ms: int) -> list[str]:
        """Removes what is over the limits, oldest first: beyond so many bytes, or last written before `oldest_ms`."""
        names = self.names()
        sizes = {name: self._size(name) for name in names}
        total, gone = sum(sizes.values()), 0
        while gone < len(names) and (total > max_bytes or self._ended_ms(names[gone + 1 :]) < oldest_ms):
            total -= sizes[names[gone]]
            gone += 1
        for name in names[:gone]:
            self._directory.remove(name)
        return names[:gone]

    def _size(self, name: str) -> int:
        with closing(self._directory.open(name)) as file:
            return file.size()

    def _ended_ms(self, following: list[str]) -> int:
        """When the segment before these was last written, as the next one's header says. The newest is never too old."""
        newest = 1 << 63
        if not following:
            return newest
        with closing(self._directory.open(following[0])) as file:
            try:
                return unpack_header(file.read_at(0, SEGMENT_HEADER_BYTES)).previous_timestamp_ms
            except LogFormatError:
                return newest  # damaged: its time is not known, and the limit in bytes takes it in the end
            except OSError as e:
                if not is_unreadable(e):
                    raise
                return newest
