"""The failures of a disk, and what each allows: go on, wait, or stop the process.

FlushFailed, Removed     the process stops: nobody knows which bytes the disk has
is_full                  the write is refused, and is possible again when an operator makes room
is_unreadable            one sector is lost; other sectors may be readable
FileTooLarge             the file is not what it should be; nothing of the file was read
DirectoryInUse           another process has the directory; nothing was opened
"""

import errno
from pathlib import Path

from metadata_log.format.errors import LogFormatError


class FlushFailed(Exception):
    """An fsync failed, so the content of the disk is unknown. Stop the process. (Not an OSError, so that no handler of
    OSErrors catches it.)
    """


class Removed(FlushFailed):
    """A file or directory was deleted or replaced while the process used it. Writes to it would be lost at the next
    start.
    """

    def __init__(self, what: Path | str) -> None:
        super().__init__(
            f"{what} was removed, or replaced, while this process was using it. Everything written there now would be lost, "
            "so this process stops. Find out who did that. If the directory was moved, move it back and start this node again. "
            "If the directory or a part of it is gone, this node's disk is lost: give the node a new directory, never an old copy"
        )


def is_full(error: OSError) -> bool:
    """Return True if the disk, or this user's quota, is full. This error goes away when room is made; most other disk
    errors do not.
    """
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def is_unreadable(error: OSError) -> bool:
    """Return True if the disk could not read the requested sector. Other sectors may be fine, and a later attempt may
    succeed.
    """
    return error.errno == errno.EIO


class FileTooLarge(LogFormatError):
    """A file is larger than its format permits. It was not read."""


class DirectoryInUse(Exception):
    """Another process holds the directory's lock. The message names its pid."""
