"""Copies of files, or parts of them, in pieces that fit into memory."""

from collections.abc import Callable
from contextlib import closing
from typing import Final

from metadata_log.disk.bad_sectors import read_around
from metadata_log.disk.files import Directory, File

_COPY_BYTES: Final = 1 << 20


def copy_file(directory: Directory, name: str, copy: str) -> None:
    """A durable copy of a file, unless there is one under that name already. What cannot be read of it is zero there.

    Raises:
        OSError: no room; then there is none.
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
    """Copies [position, stop) of `source` to `at` in `target`; gives the place behind it there. See `read_around`."""
    while position < stop:
        data = read_around(source, position, min(_COPY_BYTES, stop - position), unreadable)
        if not data:
            raise OSError(f"a file ends at {position}, which had {stop} bytes")
        target.write_at(at, data)
        position, at = position + len(data), at + len(data)
    return at
