"""`archive/`: retired segments, which the log does not need any more. They are kept for the audit and for reads of the past.

The archive has a limit in bytes and a limit in age. Age is measured by the timestamps in the log, so a wrong clock
deletes nothing. When the disk is full, the node deletes archived segments first.

An operator may merge segments into larger files (`archived.merging`), beside the node that runs: a merged file is deleted as a
whole, and files may be gone when the node looks.
"""

from contextlib import closing
from typing import Final

from metadata_log.disk.failures import is_unreadable
from metadata_log.disk.files import Directory, File
from metadata_log.format.errors import LogFormatError
from metadata_log.store.archived.merged_file import MergedFile, range_of
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
        """Return the names of the archived segments and merged files, oldest first."""
        if not self._parent.exists(ARCHIVE_NAME):
            return []
        return [name for name in self._directory.names() if base_offset_of(name) is not None or range_of(name)]

    def take(self, names: list[str]) -> None:
        """Move segments into the archive, durably. After a power cut they may exist in the log's directory as well."""
        archive = self._directory
        for name in names:
            self._parent.move(name, archive)
        archive.flush()

    def drop_oldest(self) -> bool:
        """Delete the oldest file. Returns False if the archive is empty."""
        names = self.names()
        if names:
            self._remove(names[0])
        return bool(names)

    def trim(self, max_bytes: int, oldest_ms: int) -> list[str]:
        """Delete segments, oldest first, until the archive has at most `max_bytes` and no segment last written before
        `oldest_ms`.
        """
        names = self.names()
        sizes = {name: self._size(name) for name in names}
        total, gone = sum(sizes.values()), 0
        while gone < len(names) and (total > max_bytes or self._ended_ms(names[gone + 1 :]) < oldest_ms):
            total -= sizes[names[gone]]
            gone += 1
        for name in names[:gone]:
            self._remove(name)
        return names[:gone]

    def _remove(self, name: str) -> None:
        try:
            self._directory.remove(name)
        except FileNotFoundError:
            return  # merged meanwhile

    def _size(self, name: str) -> int:
        try:
            with closing(self._directory.open(name)) as file:
                return file.size()
        except FileNotFoundError:
            return 0  # merged meanwhile

    def _ended_ms(self, following: list[str]) -> int:
        """Return when the segment before `following` was last written, from the next segment's header. The newest
        segment is never too old.
        """
        newest = 1 << 63
        if not following:
            return newest
        try:
            with closing(self._opened(following[0])) as file:
                return unpack_header(file.read_at(0, SEGMENT_HEADER_BYTES)).previous_timestamp_ms
        except (LogFormatError, FileNotFoundError):
            return newest  # damaged or merged meanwhile, so the time is unknown; the limit in bytes deletes this file in the end
        except OSError as e:
            if not is_unreadable(e):
                raise
            return newest

    def _opened(self, name: str) -> File:
        """Open a segment, or the first segment of a merged file."""
        merged = range_of(name)
        return self._directory.open(name) if merged is None else MergedFile(self._directory, name).open(merged.base)
