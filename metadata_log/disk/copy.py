"""Copies of files, or of parts of files, in steps that fit into memory."""

from collections.abc import Callable
from contextlib import closing
from typing import Final

from metadata_log.disk.bad_sectors import read_around
from metadata_log.disk.files import Directory, File

_COPY_BYTES: Final = 1 << 20


def copy_file(directory: Directory, name: str, copy: str) -> None:
    """Copy a file durably, unless a file with the copy's name exists. A sector that the disk cannot read is zero in the
    copy.

    Raises:
        OSError: usually the disk is full; no copy was made.
    """
    if directory.exists(copy):
        return
    part = f"{copy}.tmp"
    with closing(directory.open(name)) as source, closing(directory.open(part, create=True)) as target:
        try:
            copy_bytes(source, 0, source.size(), target, 0, lambda _: None)
            target.flush()
        except OSError:
            directory.remove(part)
            raise
    directory.rename(part, copy)
    directory.flush()


def copy_bytes(
    source: File, position: int, stop: int, target: File, at: int, unreadable: Callable[[int], object]
) -> int:
    """Copy [position, stop) of `source` to `at` in `target`. Return the position behind the copy. See `read_around`."""
    while position < stop:
        data = read_around(source, position, min(_COPY_BYTES, stop - position), unreadable)
        if not data:
            raise OSError(f"the file to copy ends at {position}, but had {stop} bytes before; the copy is not complete")
        target.write_at(at, data)
        position, at = position + len(data), at + len(data)
    return at
