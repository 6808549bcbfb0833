"""Reading around what a disk cannot read.

A read that spans one bad sector fails as a whole (EIO), and says nothing of where. A scrub's window of 256 KiB holds hundreds of
batches; all but one or two of them are still there. So what fails is read again sector by sector: a sector that gives its data
then (cables, controllers and networks fail too) was never bad, and of the others each is named. What is small, or is of use as
a whole only, is read twice.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from metadata_log.disk.files import File, is_unreadable

SECTOR_BYTES: Final = 512

Read = TypeVar("Read")


def read_around(file: File, position: int, length: int, unreadable: Callable[[int], object]) -> bytes:
    """Like `File.read_at`; but a sector that the disk cannot read is zero, and `unreadable` is told where it begins.

    Raises:
        OSError: any other; and whatever `unreadable` raises.
    """
    try:
        return file.read_at(position, length)
    except OSError as e:
        if not is_unreadable(e):
            raise
    parts = []
    stop = min(position + length, file.size())
    while position < stop:
        sector_end = min(stop, (position // SECTOR_BYTES + 1) * SECTOR_BYTES)
        try:
            part = file.read_at(position, sector_end - position)
        except OSError as e:
            if not is_unreadable(e):
                raise
            unreadable(position)
            part = bytes(sector_end - position)
        parts.append(part)
        position = sector_end
    return b"".join(parts)


def read_twice(read: Callable[[], Read]) -> Read:
    """What `read` gives, the second time if the disk could not the first time.

    Raises:
        OSError: not then either, or any other.
    """
    try:
        return read()
    except OSError as e:
        if not is_unreadable(e):
            raise
    return read()
