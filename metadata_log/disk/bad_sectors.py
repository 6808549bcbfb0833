"""Reads that go on behind a sector that the disk cannot read.

A read that spans one bad sector fails as a whole (EIO) and does not say which sector is bad. Example: a scrub reads 256
KiB with hundreds of batches, and one sector is bad.
  1. The read of 256 KiB fails.
  2. `read_around` reads the same bytes again, sector by sector. All sectors but one return their data.
  3. The bad sector becomes bytes with the value 0xFF: only the batches in that sector are damaged.
An unreadable sector is damage, and only in memory: the next start reads the sector again, and may succeed.
"""

from typing import Final

from metadata_log.disk.failures import is_unreadable
from metadata_log.disk.files import File

SECTOR_BYTES: Final = 512
UNREADABLE: Final = b"\xff"
"""The value of each byte that the disk cannot read. Not zero: zeros are the end of a segment. No batch begins with it."""


def read_around(file: File, position: int, length: int) -> bytes:
    """Read as `File.read_at` does, but replace each sector that the disk cannot read by `UNREADABLE` bytes.

    Raises:
        OSError: any error other than an unreadable sector.
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
            part = UNREADABLE * (sector_end - position)
        parts.append(part)
        position = sector_end
    return b"".join(parts)
