"""Reads that skip the sectors that a disk cannot read.

A read that spans one bad sector fails as a whole (EIO) and does not say which sector is bad. Example: a scrub reads 256
KiB with hundreds of batches, and one sector is bad.
  1. The read of 256 KiB fails.
  2. `read_around` reads the same bytes again, sector by sector. All sectors but one return their data.
  3. The bad sector becomes zeros, and the caller learns its position: only the batches in that sector are damaged.
A sector that returns data at the second attempt was not bad: cables, controllers and networks fail too. `read_twice` is
for small files, and for bytes that are useful only as a whole.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from metadata_log.disk.files import File, is_unreadable

SECTOR_BYTES: Final = 512

Read = TypeVar("Read")


def read_around(file: File, position: int, length: int, unreadable: Callable[[int], object]) -> bytes:
    """Read as `File.read_at` does, but replace a sector that the disk cannot read by zeros, and call `unreadable` with
    its position.

    Raises:
        OSError: any error other than an unreadable sector; also whatever `unreadable` raises.
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
    """Return what `read` returns; call it a second time if the disk could not read at first.

    Raises:
        OSError: the second attempt failed too, or the error is of another kind.
    """
    try:
        return read()
    except OSError as e:
        if not is_unreadable(e):
            raise
    return read()
